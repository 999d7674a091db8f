"""Run folders: what was written is read again, and whatever breaks, the last whole step is there."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import Tensor

from plainformer.checkpoint import atomic, is_run, is_step, load, newest, runs, save_step, tokenizer_of
from plainformer.checkpoint.atomic import folder_beside, held, sweep
from plainformer.faults import PlainformerError
from plainformer.model import Transformer
from plainformer.text import train_tokenizer
from plainformer.tree import to_json
from specs import GPT2, LLAMA, MIXTRAL

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "sums")


def run_with(folder: Path, model: Transformer, *steps: int) -> Path:
    """A run folder whose steps hold this model, the step's number added to each weight."""
    folder.mkdir()
    (folder / "run.json").write_text("{}", encoding="utf-8")
    (folder / "spec.json").write_text(json.dumps(to_json(model.spec)), encoding="utf-8")
    train_tokenizer("bytes", "unread").save(folder / "tokenizer.json")
    for step in steps:
        save_step(folder, step, changed(model, step), memory(step), {"step": step})
    return folder


def changed(model: Transformer, step: int) -> Transformer:
    other = Transformer(model.spec, initial=None).to(next(model.parameters()).dtype)
    with torch.no_grad():
        for mine, its in zip(other.parameters(), model.parameters(), strict=True):
            mine.copy_(its + step)
    return other


def memory(step: int) -> dict[str, Tensor]:
    return {"momentum.a": torch.full((3, 2), float(step)), "step.a": torch.tensor(float(step))}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- L8 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("spec", [GPT2, LLAMA, MIXTRAL], ids=["gpt2", "llama", "mixtral"])
def test_l8_what_was_written_is_read_again_bit_for_bit(tmp_path: Path, spec: object, dtype: torch.dtype) -> None:
    model = Transformer(spec, seed=5).to(dtype)  # type: ignore[arg-type]
    run = run_with(tmp_path / "run", model, 7)
    step = newest(run)
    assert names(step) == sorted(FILES)
    for place in (run, step):
        again = load(place)
        assert again.spec == model.spec
        for (name, was), (same, now) in zip(
            changed(model, 7).named_parameters(), again.named_parameters(), strict=True
        ):
            assert (name, was.dtype) == (same, now.dtype)
            assert torch.equal(was, now)
    assert {w.dtype for w in load(run, torch.float64).parameters()} == {torch.float64}
    found = dict(runs.optimizer_of(step))
    assert found.keys() == memory(7).keys()
    assert all(torch.equal(tensor, found[name]) for name, tensor in memory(7).items())
    assert runs.state_of(step) == {"step": 7}
    assert tokenizer_of(step).kind == "bytes"


def test_sums_are_read_by_the_system_s_own_tool(tmp_path: Path) -> None:
    step = newest(run_with(tmp_path / "run", Transformer(LLAMA), 1))
    lines = (step / "sums").read_text(encoding="utf-8").splitlines()
    assert [line.split("  ")[1] for line in lines] == list(FILES[:3])
    assert all(atomic.sha256_of(step / name) == total for total, _, name in (line.partition("  ") for line in lines))


def test_files_are_as_open_to_others_as_all_that_one_writes(tmp_path: Path) -> None:
    step = newest(run_with(tmp_path / "run", Transformer(LLAMA), 1))
    assert len({path.stat().st_mode for path in step.iterdir()}) == 1


# --- which step -------------------------------------------------------------------------------------------------------


def test_the_newest_is_by_number_and_only_so_many_are_kept(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", Transformer(LLAMA), 0, 9, 10, 11)
    assert names(run / "checkpoints") == ["step-10", "step-11"]
    assert newest(run) == run / "checkpoints" / "step-11"
    assert (is_run(run), is_step(run), is_step(newest(run)), is_run(newest(run))) == (True, False, True, False)


@pytest.mark.parametrize("harmed, written, left", [((4,), 2, (1, 2)), ((5, 6), 3, (1, 3))])
def test_a_step_that_was_passed_over_is_none_of_those_that_are_kept(
    tmp_path: Path, harmed: tuple[int, ...], written: int, left: tuple[int, ...]
) -> None:
    """It is newer than what is written: the run went on from before it."""
    model = Transformer(LLAMA)
    run = run_with(tmp_path / "run", model, 1)
    for step in harmed:
        path = save_step(run, step, model, memory(step), {"step": step}, kept=9)
        (path / "state.json").write_text("{", encoding="utf-8")
    save_step(run, written, model, memory(written), {"step": written})
    assert names(run / "checkpoints") == [f"step-{step}" for step in left]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("harm", ["cut", "gone", "one bit"])
def test_a_step_that_is_not_whole_is_passed_over_with_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, harm: str
) -> None:
    run = run_with(tmp_path / "run", Transformer(LLAMA), 1, 2)
    path = run / "checkpoints" / "step-2" / file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink() if harm == "gone" else path.write_bytes(data[:-3] if harm == "cut" else data)
    assert newest(run) == run / "checkpoints" / "step-1"
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert "step-2 is not whole" in said[0]
    with pytest.raises(PlainformerError, match="this step is not whole"):
        load(path.parent)
    # The same step, made again, takes the place of the broken one.
    save_step(run, 2, changed(Transformer(LLAMA), 2), memory(2), {"step": 2})
    assert newest(run) == path.parent
    assert capsys.readouterr().err == ""


def test_a_run_without_a_whole_step_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_with(tmp_path / "run", Transformer(LLAMA), 1)
    (run / "checkpoints" / "step-1" / "sums").unlink()
    with pytest.raises(PlainformerError, match="none of its checkpoints is whole"):
        load(run)
    with pytest.raises(PlainformerError, match="there is no such folder"):
        load(tmp_path / "nowhere")
    with pytest.raises(PlainformerError, match="holds no model"):
        load(tmp_path)


def test_weights_that_are_not_the_spec_s_are_refused_by_name(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", Transformer(LLAMA), 1)
    (run / "spec.json").write_text(json.dumps(to_json(GPT2)), encoding="utf-8")
    with pytest.raises(PlainformerError, match=r"model.safetensors: .* must be"):
        load(run)
    (run / "spec.json").write_text("{", encoding="utf-8")
    with pytest.raises(PlainformerError, match=r"spec.json .*no JSON"):
        load(run)
    (run / "spec.json").unlink()
    with pytest.raises(PlainformerError, match=r"spec.json .*cannot be read"):
        load(run)


# --- whatever breaks while it is written ------------------------------------------------------------------------------

Break = Callable[[pytest.MonkeyPatch, BaseException], None]


def at(module: object, name: str, nth: int) -> Break:
    """Raise at the nth call of a function."""

    def patch(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
        real, calls = getattr(module, name), iter(range(1000))

        def call(*args: object, **more: object) -> object:
            if next(calls) == nth:
                raise error
            return real(*args, **more)

        monkeypatch.setattr(module, name, call)

    return patch


BREAKS = {
    "the first file": at(runs, "save_file", 0),
    "the second file": at(runs, "save_file", 1),
    "sums": at(runs, "sha256_of", 2),
    "fsync of a file": at(atomic.os, "fsync", 1),
    "fsync of the folder": at(atomic.os, "fsync", 4),
    "rename": at(atomic.os, "rename", 0),
}


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("where", BREAKS)
def test_a_full_disk_or_an_interrupt_leaves_the_last_whole_step_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    model = Transformer(LLAMA)
    run = run_with(tmp_path / "run", model, 1)
    with monkeypatch.context() as patch:
        BREAKS[where](patch, error)
        with pytest.raises((PlainformerError, KeyboardInterrupt)) as caught:
            save_step(run, 2, model, memory(2), {})
    if isinstance(error, OSError):
        assert "the disk is full" in str(caught.value)
    assert names(run / "checkpoints") == ["step-1"]
    assert newest(run) == run / "checkpoints" / "step-1"
    save_step(run, 2, model, memory(2), {})
    assert newest(run) == run / "checkpoints" / "step-2"


def test_a_step_has_its_name_only_once_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = run_with(tmp_path / "run", Transformer(LLAMA), 1), []
    step, write, rename = run / "checkpoints" / "step-2", runs.write_step, os.rename

    def written(folder: Path, *more: object) -> None:
        write(folder, *more)  # type: ignore[arg-type]
        seen.append(("written", step.exists(), runs.is_step(folder)))

    def renamed(source: Path, to: Path) -> None:
        seen.append(("renamed", step.exists(), runs.damage(source) is None))
        rename(source, to)

    monkeypatch.setattr(runs, "write_step", written)
    monkeypatch.setattr(atomic.os, "rename", renamed)
    save_step(run, 2, Transformer(LLAMA), memory(2), {})
    assert seen == [("written", False, False), ("renamed", False, True)]


def test_what_a_killed_process_left_is_never_taken_for_a_step_and_swept_away(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", Transformer(LLAMA), 3)
    folder = run / "checkpoints"
    for name in (".step-4.part", ".step-2.old"):
        (folder / name).mkdir()
        for file in FILES:  # whole, but for its name
            (folder / name / file).write_bytes((folder / "step-3" / file).read_bytes())
    (run / "loss.svg.part").write_text("half", encoding="utf-8")
    assert newest(run) == folder / "step-3"
    sweep(run, ("loss.svg",))
    sweep(folder)
    assert names(folder) == ["step-3"]
    assert names(run) == ["checkpoints", "run.json", "spec.json", "tokenizer.json"]


def test_what_somebody_put_into_a_run_is_not_swept_away(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", Transformer(LLAMA), 3)
    for mine in ("metrics.jsonl.old", "notes.part", "checkpoints/step-3.old", "checkpoints/best.part"):
        (run / mine).mkdir() if "checkpoints" in mine else (run / mine).write_text("mine", encoding="utf-8")
    carried = names(run), names(run / "checkpoints")
    sweep(run, ("metrics.jsonl",))
    sweep(run / "checkpoints")
    assert (names(run), names(run / "checkpoints")) == carried


def test_a_folder_that_fails_takes_the_parents_made_for_it_along(tmp_path: Path) -> None:
    with suppress(KeyError), folder_beside(tmp_path / "a" / "b" / "run") as part:
        (part / "file").write_text("x", encoding="utf-8")
        raise KeyError
    assert names(tmp_path) == []
    (tmp_path / "empty").mkdir()
    with folder_beside(tmp_path / "empty") as part:
        (part / "file").write_text("x", encoding="utf-8")
    assert names(tmp_path / "empty") == ["file"]


@pytest.mark.parametrize("said", [".", "", "../here", "../link", ".."])
def test_the_current_folder_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(PlainformerError, match=r"the current folder.*name a new one in it"), folder_beside(Path(said)):
        pytest.fail("it was filled")
    assert (names(tmp_path), names(tmp_path / "here")) == (["here", "link"], [])


def test_a_mount_point_is_refused_and_a_link_to_a_folder_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    with folder_beside(tmp_path / "link") as part:
        (part / "file").write_text("x", encoding="utf-8")
    assert (names(tmp_path), names(tmp_path / "there")) == (["link", "there"], ["file"])
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "there")
    with pytest.raises(PlainformerError, match="a mount point"), folder_beside(tmp_path / "there"):
        pytest.fail("it was filled")


def test_two_processes_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with held(tmp_path), pytest.raises(PlainformerError, match="another process"), held(tmp_path):
        pass
    with held(tmp_path):
        pass


def test_no_pickle_is_written_and_none_read_that_could_run() -> None:
    """Nor could any be: the room never names what would."""
    folder = Path(runs.__file__).parent
    said = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    assert re.findall(r"torch\.load\(.*", said) == re.findall(r"torch\.load\(.*weights_only=True\)", said) != []
    assert "torch.save" not in said
    assert "import pickle" not in said


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are asked of POSIX systems")
def test_a_disk_that_is_full_for_the_system_is_said_so_by_file(tmp_path: Path) -> None:
    """The limit on a file's size stands in for the disk: safetensors meets it outside Python."""
    run = run_with(tmp_path / "run", Transformer(LLAMA), 1)
    size = (run / "checkpoints" / "step-1" / "model.safetensors").stat().st_size
    script = (
        "import resource, sys, torch\n"
        "from plainformer.checkpoint import load, save_step\n"
        "model = load(sys.argv[1])\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({size // 2}, {size // 2}))\n"
        "try: save_step(sys.argv[1], 2, model, {}, {})\n"
        "except ValueError as refused: print(refused)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(run)], capture_output=True, text=True, env=os.environ, check=True
    )
    assert "the disk is full" in ran.stdout
    assert "model.safetensors" in ran.stdout
    assert names(run / "checkpoints") == ["step-1"]

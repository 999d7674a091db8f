"""`plainformer train` and `plainformer eval`: what they keep, what they refuse, and that nothing is ever lost."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kills import hurting, killed
from plainformer.checkpoint import load, newest, runs
from plainformer.checkpoint.atomic import held
from plainformer.cli import main
from plainformer.families import llamas, mixtures
from plainformer.faults import Fault, PlainformerError
from plainformer.model import Transformer
from plainformer.spec import Attention, Rotary
from plainformer.text import split, train_tokenizer
from plainformer.training import board, carry_on, check_resume, forecast, saving, start, starting
from plainformer.training import run as in_memory
from plainformer.training.journal import Journal
from plainformer.training.lanes import threads
from plainformer.training.processes import Processes
from plainformer.training.recipe import Settings
from plainformer.training.spikes import Spikes
from plainformer.training.starting import settings_of
from plainformer.tree import rewrite, to_json
from runs import SHORT, SMALL, metrics, some_text, tiny_run, write_text
from together import started

Said = tuple[int, str, str]
Ask = Callable[..., Said]
KEPT = ["checkpoints", "loss.svg", "metrics.jsonl", "run.json", "sample.txt", "spec.json", "tokenizer.json"]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Exit status, stdout and stderr of a command line; argparse's own refusals included."""

    def run(*words: object) -> Said:
        capsys.readouterr()
        try:
            status = main([str(word) for word in words])
        except SystemExit as left:
            status = int(left.code or 0)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory, "--eval-every", "5", "--save-every", "4")


def fingerprint(folder: Path) -> dict[str, str]:
    """Every file's bytes and time."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() + str(path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def same_weights(a: Path, b: Path) -> bool:
    first, second = (dict(load(each).named_parameters()) for each in (a, b))
    return first.keys() == second.keys() and all(torch.equal(w, second[name]) for name, w in first.items())


TIMED = {"tokens_per_second", "flops_per_second", "peak_flops_per_second", "utilisation"}


def untimed(run: Path) -> list[dict[str, object]]:
    return [{k: v for k, v in row.items() if k not in TIMED} for row in metrics(run)]


# --- what a run keeps -------------------------------------------------------------------------------------------------


def test_a_run_holds_what_the_design_says(run: Path) -> None:
    assert sorted(path.name for path in run.iterdir()) == sorted([*KEPT, "tokens.bin"])
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-12", "step-8"]
    kept = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert kept["asked"]["steps"] == 12
    assert {"version", "settings", "text", "tokens", "parameters", "machine", "versions"} <= kept.keys()
    assert Settings.from_json(kept["settings"]).to_json() == Settings.from_json(kept["settings"]).to_json()
    text = run.parent / "text.txt"
    assert kept["text"][0]["sha256"] == hashlib.sha256(text.read_bytes()).hexdigest()
    assert kept["tokens"]["train"] + kept["tokens"]["validation"] == kept["tokens"]["all"] == len(text.read_text())
    assert "validation" in (run / "loss.svg").read_text(encoding="utf-8")
    sample = (run / "sample.txt").read_text(encoding="utf-8")
    assert sample.index("--- before training ---") < sample.index("--- after 12 steps ---")


def test_metrics_have_a_row_for_each_step_with_the_design_s_keys(run: Path) -> None:
    rows = metrics(run)
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert [row["tokens"] for row in rows] == [64 * step for step in range(1, 13)]
    always = {"step", "tokens", "loss", "lr", "tokens_per_second"}
    for row in rows:
        measured = {"val_loss", "val_bits_per_byte"} if row["step"] in (5, 10, 12) else set()
        assert row.keys() == always | measured | (TIMED if row["step"] == 12 else set())
    assert rows[0]["lr"] > 0
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_eval_of_a_run_on_its_validation_part_is_the_last_val_loss_to_the_bit(run: Path, ask: Ask) -> None:
    text = (run.parent / "text.txt").read_text(encoding="utf-8")
    _, validation = split(len(text), 0.1)
    part = run.parent / "validation.txt"
    part.write_text(text[validation.start :], encoding="utf-8")
    for place in (run, run / "checkpoints" / "step-12"):
        status, out, _ = ask("eval", place, part, "--json")
        found = json.loads(out)
        assert status == 0
        assert list(found) == [
            *("loss", "perplexity", "bits_per_token", "bits_per_byte", "targets", "bytes", "context", "stride"),
        ]
        assert found["loss"] == metrics(run)[-1]["val_loss"]
        assert found["bits_per_byte"] == metrics(run)[-1]["val_bits_per_byte"]
        assert (found["targets"], found["context"], found["stride"]) == (len(validation) - 1, 16, 16)
    status, out, _ = ask("eval", run, part, "--stride", 4)
    assert status == 0
    assert "a block every 4" in out


def test_eval_refuses_what_it_cannot_score(run: Path, ask: Ask, tmp_path: Path) -> None:
    def refused(content: bytes, *more: object) -> str:
        (tmp_path / "text.txt").write_bytes(content)
        status, out, err = ask("eval", run, tmp_path / "text.txt", *more)
        assert (status, out) == (2, "")
        assert len(err.splitlines()) <= 2
        return err

    assert "empty" in refused(b"")
    assert "at least 2 are needed" in refused(b"t")
    assert "not in the vocabulary" in refused(b"the Cat")
    assert "not UTF-8" in refused(b"the \xff")
    assert "from 1 to the context, 16" in refused(b"the cat", "--stride", 17)
    assert "from 1 to the context, 16" in refused(b"the cat", "--stride", 0)
    status, _, err = ask("eval", tmp_path / "nowhere", tmp_path / "text.txt")
    assert status == 2
    assert "nowhere" in err


# --- what is refused --------------------------------------------------------------------------------------------------

TEXTS = {
    "empty": b"",
    "nine": b"nine char",
    "hundred": b"0123456789" * 10,
    "latin1": "caf\xe9 ".encode("latin-1") * 400,
    "good": some_text().encode(),
}


@pytest.mark.parametrize(
    "text, flags, said",
    [
        ("empty", (), "empty: there is no text in it"),
        ("nine", (), "use a longer text"),
        ("hundred", ("--context", "64"), "use --context 9 or --validation 0 or a longer text"),
        ("latin1", (), "not UTF-8: bad byte at offset 3"),
        ("nowhere", (), "nowhere"),
        ("good", ("--preset", "smal"), "did you mean small"),
        ("good", ("--preset", "gpt2"), "gpt2-style"),
        ("good", ("--d-model", "100", "--n-heads", "3"), "n_heads"),
        ("good", ("--tokenizer", "chars"), "did you mean characters?"),
        ("good", ("--steps", "0"), "--steps = 0: must be at least 1"),
        ("good", ("--batch-size", "-1", "--lr", "nan"), "--batch-size = -1: must be at least 1"),
        ("good", ("--lr", "0"), "--lr = 0.0: must be a finite number above 0"),
        ("good", ("--warmup", "-1"), "--warmup = -1: must be at least 0"),
        ("good", ("--validation", "1"), "--validation = 1.0: must be at least 0 and below 1"),
        ("good", ("--optimizer", "sgd"), "must be one of muon, adamw"),
        ("good", ("--dtype", "float16"), "must be one of float32, bfloat16, float64"),
        ("good", ("--minutes", "1", "--steps", "4"), "cannot go with --steps"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, ask: Ask, text: str, flags: tuple[str, ...], said: str
) -> None:
    path = tmp_path / f"{text}.txt"
    if text in TEXTS:
        path.write_bytes(TEXTS[text])
    before = sorted(tmp_path.iterdir())
    for place in (("--out", tmp_path / "new" / "run"), ("--plan",)):
        status, out, err = ask("train", path, *place, *flags)
        assert (status, out) == (2, "")
        assert said in err
        assert len(err.splitlines()) <= 2
        assert "Traceback" not in err
        assert sorted(tmp_path.iterdir()) == before


def test_f06_the_field_s_short_texts_are_refused_with_what_was_found_and_needed(
    cases: Path, tmp_path: Path, ask: Ask
) -> None:
    for name, found in (("nine_chars", "8 tokens"), ("hundred_chars", "10 tokens")):
        path = cases / "cases/field/hand/text" / f"{name}.txt"
        status, _, err = ask("train", path, "--out", tmp_path / "run", "--context", 64)
        assert status == 2
        assert found in err
        assert "at least 65 tokens are needed (context + 1)" in err
    status, _, _ = ask("train", cases / "cases/field/hand/text/empty.txt", "--out", tmp_path / "run")
    assert status == 2
    assert list(tmp_path.iterdir()) == []


def test_f07_a_text_of_one_symbol_is_learned_at_once(tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "text.txt").write_text("a" * 2000, encoding="utf-8")
    status, out, _ = ask("train", tmp_path / "text.txt", "--out", tmp_path / "run", *SHORT, "--json")
    assert status == 0
    assert (json.loads(out)["loss"], json.loads(out)["val_loss"]) == (0, 0)
    found = json.loads(ask("eval", tmp_path / "run", tmp_path / "text.txt", "--json")[1])
    assert (found["loss"], found["perplexity"]) == (0, 1)


def test_a_folder_that_holds_anything_is_left_alone(run: Path, tmp_path: Path, ask: Ask) -> None:
    text, before = run.parent / "text.txt", fingerprint(run)
    status, _, err = ask("train", text, "--out", run, *SHORT)
    assert status == 2
    assert "holds another run" in err
    assert "--resume" in err
    foreign = tmp_path / "mine"
    foreign.mkdir()
    (foreign / "letter.txt").write_text("dear", encoding="utf-8")
    for flags in ((), ("--resume",)):
        status, _, err = ask("train", text, "--out", foreign, *SHORT, *flags)
        assert status == 2
        assert "holds something else" in err
    assert ask("train", text, "--out", foreign / "letter.txt", *SHORT)[0] == 2
    assert [path.name for path in foreign.iterdir()] == ["letter.txt"]
    assert fingerprint(run) == before


def test_words_without_text_or_folder_are_refused(tmp_path: Path, ask: Ask) -> None:
    assert "at least one file is needed" in ask("train", "--out", tmp_path / "run")[2]
    assert "--out" in ask("train", write_text(tmp_path))[2]
    status, _, err = ask("train", "--out", tmp_path / "run", "--resume")
    assert status == 2
    assert "no run in it" in err


# --- a plan -----------------------------------------------------------------------------------------------------------


def test_a_plan_says_what_a_run_would_take_and_writes_nothing(tmp_path: Path, ask: Ask) -> None:
    text = write_text(tmp_path)
    status, out, _ = ask("train", text, "--plan", "--json", *SHORT)
    plan = json.loads(out)
    assert status == 0
    assert (plan["steps"], plan["tokens"], plan["text_tokens"]) == (12, 12 * 64, len(some_text()))
    assert plan["settings"]["rates"]["optimizer"] == "muon"
    status, out, _ = ask("train", text, "--plan", *SHORT)
    assert f"{plan['parameters']:,}" in out
    assert [path.name for path in tmp_path.iterdir()] == ["text.txt"]
    assert ask("train", text, "--out", tmp_path / "run", *SHORT)[0] == 0
    assert sum(w.numel() for w in load(tmp_path / "run").parameters()) == plan["parameters"]


def test_minutes_become_steps_that_are_frozen_with_the_run(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_text(tmp_path)
    flags = (*SMALL, "--batch-size", 4, "--quiet", "--minutes")
    status, out, _ = ask("train", text, "--out", tmp_path / "short", *flags, 1e-5, "--json")
    assert (status, json.loads(out)["step"]) == (0, 1)
    monkeypatch.setattr(starting, "within", lambda asked, *_: (asked, 7, 1.5))  # what the time was found to hold
    status, out, _ = ask("train", text, "--out", tmp_path / "run", *flags, 0.5, "--json")
    settings = json.loads((tmp_path / "run" / "run.json").read_text(encoding="utf-8"))["settings"]
    assert (status, json.loads(out)["step"], settings["steps"], settings["schedule"]["steps"]) == (0, 7, 7, 7)
    assert json.loads(out)["planned"]["seconds"] == 1.5
    monkeypatch.setattr(starting, "within", lambda asked, *_: (asked, 9, 1.5))
    status, _, err = ask("train", text, "--out", tmp_path / "run", *flags, 0.5, "--resume")
    assert (status, "nothing to do" in err) == (0, True)


# --- nothing is ever lost ---------------------------------------------------------------------------------------------


def interrupted(monkeypatch: pytest.MonkeyPatch, step: int, number: int = signal.SIGINT, times: int = 1) -> None:
    """Send this process a signal when the row of `step` is written."""
    append = Journal.append

    def signalled(self: Journal, row: dict[str, object]) -> None:
        append(self, row)
        if row["step"] == step:
            for _ in range(times):
                signal.raise_signal(number)

    monkeypatch.setattr(Journal, "append", signalled)


@pytest.mark.parametrize("flags", [(), ("--optimizer", "adamw"), ("--dtype", "float32"), ("--micro-batch", "3")])
def test_l6_a_resumed_run_is_the_uninterrupted_run(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    """Default settings as shipped, bfloat16 where the processor has it, and others."""
    text = write_text(tmp_path)
    words = ("train", text, *SHORT, "--eval-every", 4, *flags)
    assert ask(*words, "--out", tmp_path / "whole")[0] == 0
    for step, number in ((5, signal.SIGINT), (9, signal.SIGTERM)):
        with monkeypatch.context() as patch:
            interrupted(patch, step, number)
            status, _, err = ask(*words, "--out", tmp_path / "run", "--resume")
        assert status == 130
        assert f"after step {step}, saved in" in err
        assert f"step-{step};" in err
    assert ask(*words, "--out", tmp_path / "run", "--resume")[0] == 0
    assert same_weights(tmp_path / "whole", tmp_path / "run")
    assert untimed(tmp_path / "whole") == untimed(tmp_path / "run")


def test_l6_an_evaluation_that_was_cut_short_is_made_when_the_run_goes_on(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", write_text(tmp_path), *SHORT, "--eval-every", 4)
    assert ask(*words, "--out", tmp_path / "whole")[0] == 0
    real = in_memory.evaluate
    for nth, step in ((0, 4), (0, 4), (1, 8), (1, 12), (0, 12)):  # the first of a process may be the one that was cut
        with monkeypatch.context() as patch:
            calls = iter(range(9))

            def interrupted(*given: object, **named: object) -> object:
                if next(calls) == nth:  # noqa: B023 - it runs in this turn alone
                    signal.raise_signal(signal.SIGINT)
                return real(*given, **named)  # type: ignore[arg-type]

            patch.setattr(in_memory, "evaluate", interrupted)
            assert ask(*words, "--out", tmp_path / "run", "--resume")[0] == 130
        assert newest(tmp_path / "run").name == f"step-{step}"
        assert "val_loss" not in metrics(tmp_path / "run")[-1]
    assert ask(*words, "--out", tmp_path / "run", "--resume")[0] == 0
    assert untimed(tmp_path / "whole") == untimed(tmp_path / "run")


def test_metrics_are_cut_back_to_the_checkpoint_and_to_whole_lines(tmp_path: Path) -> None:
    rows = [json.dumps({"step": step, "loss": 1.0}) for step in range(1, 7)]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*rows[:5], rows[5][:9]]), encoding="utf-8")
    for step, left in ((9, 5), (3, 3)):
        journal = Journal(tmp_path, step)
        journal.close()
        assert [row["step"] for row in metrics(tmp_path)] == list(range(1, left + 1))


@pytest.mark.parametrize("step", [0, 12])
def test_f24_resume_at_the_first_and_at_the_last_step(run: Path, tmp_path: Path, ask: Ask, step: int) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    if step == 0:  # as a run that was killed before its first step
        for old in runs.steps_in(copy):
            shutil.rmtree(old)
        (copy / "metrics.jsonl").unlink()
        model = load(run)
        settings = Settings.from_json(json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"])
        from plainformer.initial import draws

        model.take(draws(model.spec, settings.initial, settings.seed))
        runs.save_step(copy, 0, model, {}, {"step": 0, "seconds": 0.0})
    assert carry_on(copy, quiet=True).ending == ("done" if step == 0 else "nothing to do")
    assert same_weights(run, copy)
    assert untimed(run) == untimed(copy)


def test_a_finished_run_has_nothing_to_do(run: Path, ask: Ask) -> None:
    before = fingerprint(run)
    for words in ((run.parent / "text.txt",), ()):
        status, out, err = ask("train", *words, "--out", run, "--resume")
        assert status == 0
        assert "nothing to do" in err
        assert f"{metrics(run)[-1]['val_loss']:.4f}" in out
    assert fingerprint(run) == before


def test_a_second_signal_stops_at_once_and_leaves_the_last_whole_step(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(monkeypatch, 6, times=2)
    words = ("train", write_text(tmp_path), *SHORT, "--out", tmp_path / "run", "--save-every", 5)
    assert ask(*words)[0] == 130
    assert newest(tmp_path / "run").name == "step-5"


def test_other_arguments_on_resume_are_refused_each_by_name(run: Path, tmp_path: Path, ask: Ask) -> None:
    before = fingerprint(run)
    text = run.parent / "text.txt"
    words = ("--steps", 13, "--lr", 0.5, "--d-model", 24, "--seed", 1, "--optimizer", "adamw", "--batch-size", 4)
    status, _, err = ask("train", text, "--out", run, "--resume", *words)
    assert status == 2
    assert len(err.splitlines()) == 2
    asked = dict(zip([str(word)[2:].replace("-", "_") for word in words[::2]], words[1::2], strict=True))
    with pytest.raises(PlainformerError) as refused:
        check_resume(run, [text], asked)
    named = sorted(fault.where for fault in refused.value.faults)
    assert named == ["--d-model", "--lr", "--optimizer", "--seed", "--steps"]
    other = tmp_path / "other.txt"
    other.write_text(some_text(seed=1), encoding="utf-8")
    status, _, err = ask("train", other, "--out", run, "--resume")
    assert status == 2
    assert "is not the text of this run" in err
    assert ask("train", text, "--out", run, "--resume", *SHORT)[0] == 0  # the same ones are welcome
    assert fingerprint(run) == before


def test_the_words_that_started_a_run_go_on_with_it(tmp_path: Path, ask: Ask) -> None:
    """A micro-batch larger than the batch is the batch; what to do at a spike is kept where --resume starts one."""
    words = ("train", write_text(tmp_path), *SHORT, "--micro-batch", 9, "--on-spike", "skip", "--out", tmp_path / "run")
    for _ in range(2):
        assert ask(*words, "--resume")[0] == 0
        assert json.loads((tmp_path / "run" / "run.json").read_text())["asked"]["on_spike"] == "skip"
    status, _, err = ask(*words, "--resume", "--micro-batch", 2)
    assert status == 2
    assert "the run was started with 4" in err


def test_a_run_begun_from_latent_attention_is_resumed(tmp_path: Path, ask: Ask) -> None:
    """Sizes by flag are read from its spec, and its attention is of another class."""
    text, base = write_text(tmp_path), tmp_path / "base"
    mixer = mixtures.latent(
        d_model=12, n_heads=2, d_nope=4, d_rope=2, d_value=3, q_rank=None, kv_rank=6, rotary=Rotary(theta=1e4, n_dims=2)
    )
    sizes = {"vocab_size": 300, "max_seq_len": 16, "d_model": 12, "n_layers": 1, "d_ff": 20}
    plain = llamas.llama(**sizes, n_heads=4, n_kv_heads=2, d_head=6)
    spec = rewrite(plain, lambda part: mixer if isinstance(part, Attention) else part)
    base.mkdir()
    (base / "run.json").write_text("{}", encoding="utf-8")
    (base / "spec.json").write_text(json.dumps(to_json(spec)), encoding="utf-8")
    train_tokenizer("bytes", text).save(base / "tokenizer.json")
    runs.save_step(base, 0, Transformer(spec), {}, {"step": 0})
    words = ("train", text, "--from", base, "--out", tmp_path / "run", "--steps", 2, "--quiet")
    assert ask(*words)[0] == 0
    assert ask(*words, "--resume")[0] == 0
    status, _, err = ask(*words, "--resume", "--n-heads", 4)
    assert status == 2
    assert "the run was started with 2" in err


@pytest.mark.parametrize(
    "name, here, said",
    [
        ("machine", {"processor": "an abacus"}, "processor an abacus, not"),
        ("machine", {"gpu": "a new one"}, "gpu a new one, not None"),
        ("versions", {"torch": "0.1"}, "torch 0.1, not"),
    ],
)
def test_another_kind_of_machine_and_other_versions_are_said(
    run: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, name: str, here: dict[str, str], said: str
) -> None:
    found = getattr(starting, name)()
    monkeypatch.setattr(starting, name, lambda: found | here)
    status, _, err = ask("train", "--out", run, "--resume")
    assert status == 0
    assert said in err
    assert "equal to 1e-5, not to the bit" in err


def test_what_the_run_had_and_is_gone_is_said(run: Path, tmp_path: Path, ask: Ask) -> None:
    shutil.copytree(run, tmp_path / "run")
    kept = json.loads((run / "run.json").read_text(encoding="utf-8"))
    kept["machine"]["gpu"] = "an old one"
    (tmp_path / "run" / "run.json").write_text(json.dumps(kept), encoding="utf-8")
    status, _, err = ask("train", "--out", tmp_path / "run", "--resume")
    assert status == 0
    assert "gpu None, not an old one" in err


def test_a_compiler_that_is_gone_is_said(run: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    """The small steps of training are then torch's own, whose sums are in another order."""
    if not settings_of(run).fused:
        pytest.skip("no C compiler is here")
    assert "not to the bit" not in ask("train", "--out", run, "--resume")[2]
    monkeypatch.setattr(starting, "library", lambda: (None, "no C compiler is here"))
    status, _, err = ask("train", "--out", run, "--resume")
    assert status == 0
    assert "no compiled steps: no C compiler is here" in err
    assert "equal to 1e-5, not to the bit" in err


def test_a_run_at_work_is_not_worked_on_by_another(run: Path, ask: Ask) -> None:
    with held(run):
        status, _, err = ask("train", "--out", run, "--resume")
    assert status == 2
    assert "another process is at work in it" in err


def test_a_loss_that_is_no_number_stops_before_the_update(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", write_text(tmp_path), *SHORT, "--save-every", 100)
    whole, real = tmp_path / "whole", in_memory.gradients
    assert ask(*words, "--out", whole)[0] == 0
    calls = iter(range(100))
    monkeypatch.setattr(in_memory, "gradients", lambda *given: real(*given) * (float("nan") if next(calls) == 7 else 1))
    status, out, err = ask(*words, "--out", tmp_path / "run")
    assert (status, out) == (3, "")
    assert "before step 8 was taken: the loss is nan" in err
    assert "step-7" in err
    assert newest(tmp_path / "run").name == "step-7"
    monkeypatch.setattr(in_memory, "gradients", real)
    assert ask(*words, "--out", tmp_path / "run", "--resume")[0] == 0
    assert same_weights(whole, tmp_path / "run")


def test_weights_that_blew_up_are_never_saved(tmp_path: Path, ask: Ask) -> None:
    words = ("train", write_text(tmp_path), *SHORT, "--optimizer", "adamw", "--lr", 1e38, "--save-every", 100)
    status, _, err = ask(*words, "--out", tmp_path / "run", "--warmup", 0)
    assert status == 3
    assert "the last good state is in" in err
    assert all(bool(w.isfinite().all()) for w in load(tmp_path / "run").parameters())


# --- kill -9 ----------------------------------------------------------------------------------------------------------


def killed_and_resumed(folder: Path, words: tuple[object, ...], n_kills: int, seed: int) -> tuple[int, int]:
    """Kill a run that saves each step, then let it end; hold it against one that was let be. On two threads."""
    with threads(2):
        assert main([str(word) for word in ("train", *words, "--out", folder / "whole")]) == 0
    asked = json.loads((folder / "whole" / "run.json").read_text(encoding="utf-8"))["asked"]
    with threads(2):
        start([folder / "text.txt"], folder / "run", asked)
    assert settings_of(folder / "run").lanes == 2
    met = killed(folder / "run", random.Random(seed), n_kills)
    carry_on(folder / "run", quiet=True)
    assert same_weights(folder / "whole", folder / "run")
    assert untimed(folder / "whole") == untimed(folder / "run")
    return met


KILLED = (*SMALL, "--batch-size", 4, "--save-every", 1, "--eval-every", 20, "--quiet")
no_kill = pytest.mark.skipif(sys.platform == "win32", reason="there is no kill -9")


@no_kill
def test_l6_a_killed_run_ends_as_the_uninterrupted_one(tmp_path: Path) -> None:
    """Five kills, three of them inside a write. Default settings as shipped."""
    n_killed, n_hit = killed_and_resumed(tmp_path, (write_text(tmp_path), *KILLED, "--steps", 60), n_kills=5, seed=0)
    assert n_killed == 5
    assert n_hit >= 1


@pytest.mark.proof
@no_kill
def test_f26_a_hundred_kills_half_of_them_inside_a_write(
    tmp_path: Path, record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    n_killed, n_hit = killed_and_resumed(tmp_path, (write_text(tmp_path), *KILLED, "--steps", 900), 100, seed=1)
    record_property("kills", n_killed)
    record_property("kills that hit a save", n_hit)
    with capsys.disabled():
        print(f"\n{n_killed} kills, {n_hit} of them hit a save; all resumed, final weights bit-identical")
    assert n_killed == 100
    assert n_hit >= 30


@no_kill
@pytest.mark.parametrize("at", [2, 9, 16, 23])
def test_a_disk_that_fills_in_a_run_is_told_and_the_run_goes_on_when_there_is_room(tmp_path: Path, at: int) -> None:
    """The nth of all writes fails, in the loop or in the thread that saves."""
    words = (write_text(tmp_path), *KILLED, "--steps", 12)
    assert main([str(word) for word in ("train", *words, "--out", tmp_path / "whole")]) == 0
    start([tmp_path / "text.txt"], tmp_path / "run", json.loads((tmp_path / "whole/run.json").read_text())["asked"])
    (process,) = started(1, filled, str(tmp_path / "run"), at, str(tmp_path / "said"), alone=True)
    process.join()
    assert "the disk is full" in (tmp_path / "said").read_text(encoding="utf-8")
    before = newest(tmp_path / "run")
    assert runs.step_of(before) < 12
    assert not [path for path in (tmp_path / "run" / "checkpoints").iterdir() if path.suffix == ".part"]
    carry_on(tmp_path / "run", quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "run")


def test_a_full_disk_while_an_old_step_is_removed_is_told(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    shutil.copytree(run, tmp_path / "run")
    monkeypatch.setattr(runs, "remove", full)
    with pytest.raises(PlainformerError, match="the disk is full"):
        runs.save_step(tmp_path / "run", 13, load(run), {}, {"step": 13, "seconds": 0.0})
    assert newest(tmp_path / "run").name == "step-13"  # what was asked for is there


def test_a_step_is_written_as_it_was_when_it_was_asked_for_while_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, written = threading.Event(), list[tuple[int, float]]()

    def slowly(run: Path, step: int, weights: dict[str, torch.Tensor], *_: object) -> Path:
        assert go.wait(30)
        written.append((step, float(weights["w"])))
        if step == 2:
            raise PlainformerError(Fault("disk", step, "is full"))
        return run

    monkeypatch.setattr(saving, "save_step", slowly)
    weight = torch.ones(())
    with saving.Saving(tmp_path, Processes()) as one:
        one.save(1, {"w": weight}, {}, {})
        weight.add_(1)
        assert written == []  # training went on meanwhile
        one.look()
        go.set()
        one.save(2, {"w": weight}, {}, {})  # waits for the first
        assert written[0] == (1, 1.0)
        with pytest.raises(PlainformerError, match="is full"):
            one.wait()
    assert written == [(1, 1.0), (2, 2.0)]


def filled(run: str, at: int, said: str) -> None:
    """Train until the disk is full; what was told then."""
    hurting(("full", at, ""))
    try:
        carry_on(run, quiet=True)
    except PlainformerError as refused:
        with open(said, "w", encoding="utf-8") as file:
            file.write(str(refused))


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json", "sums"])
@pytest.mark.parametrize("share", [0.0, 0.6])
def test_a_run_whose_newest_step_is_cut_short_goes_on_from_the_one_before(
    run: Path, tmp_path: Path, ask: Ask, name: str, share: float
) -> None:
    shutil.copytree(run, tmp_path / "run")
    file = tmp_path / "run" / "checkpoints" / "step-12" / name
    content = file.read_bytes()
    file.write_bytes(content[: int(share * len(content))])
    status, _, err = ask("train", "--out", tmp_path / "run", "--resume")
    assert status == 0
    assert "step-12 is not whole" in err
    assert same_weights(run, tmp_path / "run")
    assert untimed(run) == untimed(tmp_path / "run")


MEMORY = """
import resource, sys
from plainformer.cli import main
assert main(sys.argv[1:]) in (0, 130)
print("PEAK", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_of(*words: object) -> int:
    """Kilobytes that a command holds at most, in a process of its own."""
    ran = subprocess.run([sys.executable, "-c", MEMORY, *map(str, words)], capture_output=True, text=True, check=True)
    return int(next(line.split()[1] for line in ran.stdout.splitlines() if line.startswith("PEAK")))


@pytest.mark.proof
@no_kill
def test_f37_a_resumed_run_needs_no_more_memory_than_a_fresh_one(tmp_path: Path) -> None:
    sizes = ("--d-model", 512, "--n-layers", 4, "--n-heads", 4, "--context", 32, "--batch-size", 2, "--quiet")
    fresh = peak_of("train", write_text(tmp_path), "--out", tmp_path / "run", *sizes, "--steps", 4, "--save-every", 2)
    shutil.rmtree(newest(tmp_path / "run"))
    resumed = peak_of("train", "--out", tmp_path / "run", "--resume", "--quiet")
    assert resumed <= 1.1 * fresh


# --- what was planned, and what it took -------------------------------------------------------------------------------


def test_what_a_run_took_stands_beside_what_was_planned(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_text(tmp_path)
    monkeypatch.setattr(forecast, "ENOUGH_STEPS", 12)
    status, out, _ = ask("train", text, "--out", tmp_path / "run", *SHORT, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["planned"]["parameters"] == found["taken"]["parameters"]
    assert found["ratio"]["flops"] == 1  # the sheet's operations are those that torch counts
    assert found["taken"]["seconds"] > 0
    assert 0.05 < found["ratio"]["seconds"] < 20
    assert 0.5 < found["ratio"]["memory"] < 2
    status, out, _ = ask("train", text, "--out", tmp_path / "again", *SHORT)
    assert [line.split()[0] for line in out.splitlines()[-5:]] == [
        *("planned", "parameters", "memory", "flops", "seconds"),
    ]
    assert "ratio" in out
    status, out, _ = ask("train", "--out", tmp_path / "run", "--resume", "--json")
    assert "ratio" not in json.loads(out)  # this process did nothing
    planned = json.loads(ask("train", text, "--plan", *SHORT, "--json")[1])["planned"]
    assert planned["seconds"] > 0
    assert "time" in ask("train", text, "--plan", *SHORT)[1]


def test_a_model_that_takes_long_to_make_is_said_first(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "MANY_LAYERS", 0)
    assert "parameters in 1 layers" in ask("train", write_text(tmp_path), "--out", tmp_path / "run", *SHORT)[2]


def test_rows_go_to_tensorboard_where_it_is_and_are_refused_in_a_line_where_not(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("train", write_text(tmp_path), "--out", tmp_path / "run", *SHORT, "--tensorboard")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch.utils.tensorboard", None)
        status, _, err = ask(*words)
        assert status == 2
        assert "pip install 'plainformer[tensorboard]'" in err
        assert not (tmp_path / "run").exists()
    shown: list[tuple[str, float, int]] = []

    class Writer:
        def __init__(self, folder: str, purge_step: int) -> None:
            assert folder.endswith("tensorboard")
            shown.append(("begun", 0.0, purge_step))

        def add_scalar(self, name: str, value: float, step: int) -> None:
            shown.append((name, value, step))

        def close(self) -> None:
            shown.append(("closed", 0.0, 0))

    monkeypatch.setattr(board, "writer_class", lambda: Writer)
    assert ask(*words)[0] == 0
    rows = metrics(tmp_path / "run")
    expected = [(name, value, row["step"]) for row in rows for name, value in row.items() if name != "step"]
    assert shown == [("begun", 0.0, 1), *expected, ("closed", 0.0, 0)]


def test_tensorboard_reads_what_a_run_wrote(tmp_path: Path, ask: Ask) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    script = (
        "import sys\n"
        "from plainformer.cli import main\n"
        "assert main(sys.argv[2:]) == 0\n"
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "found = EventAccumulator(sys.argv[1] + '/tensorboard').Reload()\n"
        "print('LOSS', [(e.step, e.value) for e in found.Scalars('loss')])\n"
    )
    run, text = tmp_path / "run", write_text(tmp_path)
    words = [sys.executable, "-c", script, run, "train", text, "--out", run, *SHORT, "--tensorboard"]
    said = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True).stdout
    found = json.loads(said.partition("LOSS ")[2].replace("(", "[").replace(")", "]"))
    assert [step for step, _ in found] == list(range(1, 13))
    assert [value for _, value in found] == pytest.approx([row["loss"] for row in metrics(run)], rel=1e-6)


# --- a loss that explodes ---------------------------------------------------------------------------------------------


def test_a_loss_that_explodes_is_told_from_one_that_is_noisy() -> None:
    spikes, rng = Spikes(), random.Random(0)
    assert spikes.cause(1e9) is None  # nothing to hold it against
    for _ in range(15):
        spikes.keep(rng.gauss(2.0, 0.2))
        assert spikes.cause(8.0) is None  # too few to say
        assert spikes.cause(1e9)
    spikes.keep(2.0)
    assert [spikes.cause(loss) for loss in (0.0, 2.0, 2.9)] == [None] * 3
    assert "after 1.9" in str(spikes.cause(8.0)) or "after 2." in str(spikes.cause(8.0))
    flat = Spikes([0.0] * 64)
    assert flat.cause(0.9) is None
    assert flat.cause(1.1)
    assert len(flat.losses) == 64


@pytest.mark.parametrize("factor, said", [(1e4, "after 2."), (float("nan"), "the loss is nan")])
def test_a_spike_stops_before_the_update_or_is_skipped(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch, factor: float, said: str
) -> None:
    words = ("train", write_text(tmp_path), *SHORT, "--steps", 30, "--save-every", 4)
    real = in_memory.gradients

    def exploding(model: object, x_BT: torch.Tensor, *more: object) -> float:
        """The batch of step 20 is a bad one, whenever it comes."""
        bad = hashlib.sha256(x_BT.numpy().tobytes()).hexdigest() in bad_batches
        return real(model, x_BT, *more) * (factor if bad else 1)

    whole = tmp_path / "whole"
    assert ask(*words, "--out", whole)[0] == 0
    bad_batches = {hashlib.sha256(in_memory.Run(whole).batches.at(19)[0].tobytes()).hexdigest()}
    monkeypatch.setattr(in_memory, "gradients", exploding)
    status, _, err = ask(*words, "--out", tmp_path / "run")
    assert status == 3
    assert "before step 20 was taken" in err
    assert said in err
    assert newest(tmp_path / "run").name == "step-19"
    assert ask("train", "--out", tmp_path / "run", "--resume")[0] == 3  # the same batch comes again
    status, _, err = ask("train", "--out", tmp_path / "run", "--resume", "--on-spike", "skip")
    assert status == 0
    rows = metrics(tmp_path / "run")
    assert [row["step"] for row in rows] == list(range(1, 31))
    assert [row["step"] for row in rows if "skipped" in row] == [20]
    assert "loss" not in rows[19]
    assert said in rows[19]["skipped"]
    assert ask(*words, "--out", tmp_path / "again", "--on-spike", "skip")[0] == 0
    assert same_weights(tmp_path / "run", tmp_path / "again")  # skipping is resumed as anything else


def test_a_rate_far_too_large_is_told_at_the_second_step(tmp_path: Path, ask: Ask) -> None:
    """Before the stream overflows: its norms would then say 0, and the loss would look like that of a fresh model."""
    words = ("train", write_text(tmp_path), *SHORT, "--out", tmp_path / "run", "--lr", 1e6, "--warmup", 0)
    status, _, err = ask(*words)
    assert status == 3
    assert "before step 2 was taken" in err
    assert "try a lower --lr" in err


def test_a_run_that_skips_without_end_gives_up(tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "gradients", lambda *_: float("nan"))
    words = ("train", write_text(tmp_path), *SHORT, "--out", tmp_path / "run", "--on-spike", "skip")
    status, _, err = ask(*words)
    assert status == 3
    assert "the loss is nan" in err
    assert all(bool(w.isfinite().all()) for w in load(tmp_path / "run").parameters())


def test_a_resumed_run_counts_on_what_was_skipped_in_a_row(
    tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_memory, "gradients", lambda *_: float("nan"))
    words = ("train", write_text(tmp_path), *SHORT, "--out", tmp_path / "run", "--on-spike", "skip", "--resume")
    with monkeypatch.context() as patch:
        interrupted(patch, 6)
        assert ask(*words)[0] == 130
    status, _, err = ask(*words)
    assert status == 3
    assert "before step 11 was taken" in err
    assert ask(*words)[0] == 0  # who goes on after it has given up has asked for more


def test_what_somebody_put_into_sample_txt_is_kept(run: Path, tmp_path: Path, ask: Ask) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "sample.txt").write_bytes(b"caf\xe9")
    assert ask("train", "--out", tmp_path / "run", "--resume")[0] == 0
    found = (tmp_path / "run" / "sample.txt").read_bytes()
    assert found.startswith(b"caf\xe9\n--- after 12 steps ---")


def test_a_folder_whose_start_was_killed_is_started_again(tmp_path: Path, ask: Ask) -> None:
    left = tmp_path / ".run.part"
    left.mkdir()
    (left / "run.json").write_text("{", encoding="utf-8")
    words = ("train", write_text(tmp_path), *SHORT, "--out", tmp_path / "run", "--resume")
    status, _, err = ask(*words)
    assert status == 0
    assert "nothing to go on with" in err
    assert not left.exists()


def test_a_damaged_run_is_refused_by_file(run: Path, tmp_path: Path, ask: Ask) -> None:
    for file, content in (("run.json", "{"), ("run.json", '{"version": 1}'), ("tokens.bin", "PF")):
        copy = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        shutil.copytree(run, copy)
        (copy / file).write_text(content, encoding="utf-8")
        status, _, err = ask("train", "--out", copy, "--resume")
        assert status == 2
        assert file in err
    with pytest.raises(PlainformerError):
        carry_on(tmp_path / "0")

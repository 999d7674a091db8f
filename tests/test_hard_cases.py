"""What people and disks do to a command: one or two lines and exit 2, whatever was given and whatever is damaged."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import SafetensorError

from plainformer.checkpoint import exporting
from plainformer.checkpoint.atomic import folder_beside
from plainformer.cli import evaluate as command
from plainformer.cli import generate, main
from plainformer.faults import PlainformerError
from plainformer.presets import presets
from plainformer.training import decisions, evaluation
from runs import SHORT, tiny_run, write_text

Refused = Callable[..., str]
LONG = "n" * 300
DEEP = "[" * 100_000 + "]" * 100_000


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_run(tmp_path_factory)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("train", "TEXT", "--out", LONG), "File name too long"),
        (("train", "--out", LONG, "--resume"), "no run in it"),
        (("export", "RUN", LONG), "File name too long"),
        (("export", LONG, "folder"), "MODEL"),
        (("generate", LONG), "no such preset"),
        (("inspect", "RUN", "--prompt", "cat", "--svg", "."), "--svg"),
        (("inspect", "RUN", "--prompt", "cat", "--svg", ""), "--svg"),
        (("inspect", "RUN", "--prompt", "cat", "--svg", "RUN/spec.json"), "--svg"),
        (("embed", "RUN", "cat", "--npz", "RUN/spec.json"), "--npz"),
        (("train", "TEXT", "--out", "out", "--n-layers", "999999999999"), "--n-layers"),
        (("train", "TEXT", "--out", "out", "--batch-size", "999999999999"), "-batch"),
        (("train", "TEXT", "--out", "out", "--d-model", "4000000", "--n-heads", "2"), "--d-model"),
        (("train", "TEXT", "--out", "out", "--tokenizer", "bpe:99999999999"), "at most 1,000,000"),
        (("train", "TEXT", "--out", "out", "--tokenizer", "bpe:" + "9" * 5000), "at most 1,000,000"),
        (("train", "TEXT", "--plan", "--resume"), "--plan"),
    ],
)
def test_what_no_machine_can_do_is_refused_in_two_lines(
    refused: Refused,
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    at = {"RUN": str(run), "TEXT": str(run.parent / "text.txt")}
    sizes = SHORT if words[0] == "train" and "--resume" not in words else ()
    assert told in refused(words[0], *sizes, *(at.get(word, word) for word in words[1:]))
    assert not list(tmp_path.iterdir())


def test_a_plan_does_not_pretend_to_know_the_minutes(refused: Refused, run: Path) -> None:
    assert "--minutes" in refused("train", run.parent / "text.txt", "--plan", "--minutes", "1")


def test_a_memory_that_cannot_hold_the_batch_is_told_by_flag() -> None:
    text = decisions.Text(1000, 900, 100, 65)
    settings = decisions.decide({"preset": "tiny"}, text, presets["tiny"])
    decisions.check_memory(presets["tiny"], settings)
    with pytest.raises(PlainformerError, match="this machine has 1"):
        decisions.check_memory(presets["tiny"], settings, 1_000_000)


def test_the_hint_to_a_short_text_never_offers_what_would_be_refused() -> None:
    with pytest.raises(PlainformerError) as told:
        decisions.check_text(decisions.Text(20_000, 0, 20_000, 65), 64)
    assert "--context" not in str(told.value)


@pytest.mark.parametrize("name", ["spec.json", "run.json", "tokenizer.json"])
def test_json_that_is_nested_too_deep_is_a_damaged_file(refused: Refused, run: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / name).write_text(DEEP)
    assert name in refused("train", "--out", copy, "--resume")


@pytest.mark.parametrize("key", ["asked", "machine", "text"])
@pytest.mark.parametrize("value", [None, "x", -1])
def test_a_damaged_run_json_is_told_by_its_key(
    refused: Refused, run: Path, tmp_path: Path, key: str, value: object
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    kept = json.loads((copy / "run.json").read_text(encoding="utf-8"))
    (copy / "run.json").write_text(json.dumps({**kept, key: value}))
    assert f"run.json: {key}" in refused("train", "--out", copy, "--resume")


def test_of_two_that_start_in_one_folder_the_first_goes_on(run: Path, tmp_path: Path) -> None:
    with folder_beside(tmp_path / "run") as part:
        (part / "file").write_text("kept")
        with pytest.raises(PlainformerError, match="another process"), folder_beside(tmp_path / "run"):
            pass
    assert (tmp_path / "run" / "file").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_export_is_as_open_to_others_as_all_that_one_writes(run: Path, tmp_path: Path) -> None:
    assert main(["export", str(run), str(tmp_path / "folder")]) == 0
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "folder").iterdir()}
    assert len(modes) == 1


def test_a_terminal_is_never_given_what_it_would_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "\x1b[31mred\x1b]0;title\x07\x9b2J\r\u202e\x7f"
    assert generate.shown(hostile) == hostile  # a file or a pipe gets the text as it is
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert generate.shown("a\n\té🐕") == "a\n\té🐕"
    assert generate.shown(hostile) == "␛[31mred␛]0;title␇<U+009B>2J␍<U+202E><U+007F>"


def test_json_is_whole_in_every_encoding(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("é☃\x9b" * 200, encoding="utf-8")
    assert main(["train", str(text), "--out", str(tmp_path / "run"), *SHORT]) == 0
    asked = ["generate", str(tmp_path / "run"), "--prompt", "é☃", "--json", "--seed", "1"]
    ascii_alone = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"}
    said = subprocess.run(
        [sys.executable, "-m", "plainformer", *asked], env=ascii_alone, capture_output=True, check=True, timeout=60
    )
    assert json.loads(said.stdout)["rows"][0]["prompt"] == "é☃"
    assert said.stdout.isascii()


@pytest.mark.parametrize("command", ["generate", "eval", "inspect", "train", "export"])
def test_threads_that_wait_sleep(run: Path, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    text = write_text(tmp_path)
    words = {
        "generate": [run, "--max-new-tokens", "1"],
        "eval": [run, text],
        "inspect": [run, "--prompt", "cat"],
        "train": [text, "--out", tmp_path / "run", *SHORT],
        "export": [run, tmp_path / "folder"],
    }[command]
    assert main([command, *map(str, words)]) == 0
    assert os.environ["OMP_WAIT_POLICY"] == "passive"
    monkeypatch.delenv("OMP_WAIT_POLICY")


def test_an_export_to_a_full_disk_says_so_and_leaves_nothing(
    refused: Refused, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(exporting, "save_file", full)
    assert "the disk is full" in refused("export", run, tmp_path / "folder")
    assert not list(tmp_path.iterdir())


def test_an_evaluation_that_takes_long_says_how_far_it_is(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "EVERY", 0.0)
    monkeypatch.setattr(evaluation, "AT_ONCE", 64)
    assert main(["eval", str(run), str(run.parent / "text.txt"), "--json"]) == 0
    said = capsys.readouterr()
    assert "64 of 2," in said.err
    assert len(said.out.splitlines()) == 1

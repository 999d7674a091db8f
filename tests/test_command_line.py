"""What the command line says when a request cannot be: one or two lines, exit 2, whatever is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from plainformer.cli import main
from plainformer.presets import presets
from plainformer.tree import to_json


def lines_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert main(words) == 2
    said = capsys.readouterr()
    assert not said.out
    return said.err.splitlines()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "text.txt", "--out", "run", "--steps", "nan"], "--steps"),
        (["size", "gpt2", "--batch", "0"], "--batch"),
        (["size", "gpt2", "--no-such-thing"], "--no-such-thing"),
        (["nosuch"], "nosuch"),
        (["generate", "run", "--temperature", "warm"], "--temperature"),
    ],
)
def test_arguments_that_cannot_be_are_one_line(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = lines_of(words, capsys)
    assert told in line
    assert "--help)" in line


def test_help_is_still_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["size", "--help"])
    assert stop.value.code == 0
    assert "--explain" in capsys.readouterr().out


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only where there is a device that is always full")
def test_a_full_disk_behind_stdout_is_no_fault_of_ours() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "plainformer", "size", "gpt2", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 2
    assert "cannot be written" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("field", ["embedding", "head", "decoder", "towers"])
@pytest.mark.parametrize("junk", ["a word", -1, {"is": "Norm"}])
def test_a_spec_with_junk_for_a_part_is_refused(
    field: str, junk: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = to_json(presets["tiny"]) | {field: junk}
    (tmp_path / "spec.json").write_text(json.dumps(data))
    said = lines_of(["size", str(tmp_path)], capsys)
    assert len(said) <= 2
    assert "spec.json" in said[0] or field in said[0]
    assert all(len(line) < 300 for line in said)


@pytest.mark.parametrize("config", [{"model_type": ["gpt2"]}, {"model_type": {"a": 1}}, {"model_type": 3}])
def test_a_family_that_is_no_word_is_refused(
    config: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "model_type" in lines_of(["size", str(tmp_path)], capsys)[0]


def test_an_unknown_name_is_refused_shortly(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = lines_of(["size", "zzzzzz"], capsys)
    assert len(line) < 200


def test_a_published_preset_is_not_unknown_to_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words " * 500)
    (line,) = lines_of(["train", str(text), "--out", str(tmp_path / "run"), "--preset", "gpt2"], capsys)
    assert "published" in line
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("words", [["--minutes", "-1"], ["--out", "x" * 300]])
def test_a_refused_demo_leaves_nothing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--act", "two", *words]) == 2
    assert not list(tmp_path.iterdir())
    assert len(capsys.readouterr().err.splitlines()) <= 2

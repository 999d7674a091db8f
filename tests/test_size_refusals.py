"""What `size` is asked for and cannot do is said in a line; nothing that is said has no effect."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from plainformer.cli import main

LLAMA = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "tie_word_embeddings": False,
}


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What is said, once it is known to be a refusal of two lines at most and nothing but it."""
    assert main(["size", *words]) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert 1 <= len(said.splitlines()) <= 2
    return said


@pytest.mark.parametrize(
    ("words", "needs"),
    [
        (["--tokens", "1e9", "--price", "2"], "--sustained"),
        (["--tokens", "1e9", "--watts", "700"], "--sustained"),
        (["--sustained", "400e12"], "--tokens"),
        (["--price", "2", "--sustained", "400e12"], "--tokens"),
        (["--device", "h100", "--utilisation", "0.4"], "--tokens"),
    ],
)
def test_a_price_or_a_rate_that_nothing_is_reckoned_with_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], needs: str
) -> None:
    assert needs in refused(capsys, "gpt2", *words)


def test_tokens_are_said_as_sizes_are(capsys: pytest.CaptureFixture[str]) -> None:
    told = []
    for tokens in ("300e9", "300B", "0.3T"):
        assert main(["size", "gpt2", "--json", "--tokens", tokens]) == 0
        told.append(json.loads(capsys.readouterr().out)["training"]["flops_6nd"])
    assert told == [6 * 124_439_808 * 300e9] * 3
    for wrong in ("300Q", "B", "0B", "-1B"):
        assert "such as 140e9 or 300B" in refused(capsys, "gpt2", f"--tokens={wrong}")


@pytest.mark.parametrize("flag", ["--plot", "--plot-memory"])
@pytest.mark.parametrize("name", ["", "x.png", "x"])
def test_a_picture_goes_to_an_svg_file(capsys: pytest.CaptureFixture[str], flag: str, name: str) -> None:
    assert ".svg" in refused(capsys, "gpt2", flag, name)


def test_what_only_training_hears_asks_for_its_sheet(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--zero", "1", "--devices", "2"], ["--optimizer", "sgd"], ["--recompute", "full"]):
        assert main(["size", "gpt2", "--json", *words]) == 0
        assert "training_memory" in json.loads(capsys.readouterr().out)


def test_a_picture_and_a_sheet_call_parts_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["size", "mixtral-8x7b", "--plot", "where.svg"]) == 0
    sheet, picture = capsys.readouterr().out, (tmp_path / "where.svg").read_text(encoding="utf-8")
    for name in ("token tables", "attention", "experts", "router", "norms", "head"):
        assert name in sheet
        assert f">{name}<" in picture


@pytest.mark.parametrize("form", ["--json", "--csv"])
@pytest.mark.parametrize("flag", ["--plot", "--plot-memory"])
def test_a_picture_in_the_terminal_is_not_drawn_into_what_a_program_reads(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str, form: str
) -> None:
    said = refused(capsys, "gpt2", flag, "-", form)
    assert flag in said
    assert form in said
    assert main(["size", "gpt2", flag, str(tmp_path / "x.svg"), form]) == 0


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--find", "458M", "--csv"], "--csv"),
        (["--find", "458M", "--published", "1"], "--published"),
        (["--find", "458M", "--device", "h100"], "--device"),
        (["--find", "458M", "--check"], "--check"),
        (["gpt2", "--check", "--device", "h100"], "--device"),
        (["gpt2", "--explain", "--csv"], "--csv"),
        (["gpt2", "gpt2-xl", "--compare", "--explain"], "--compare"),
        (["gpt2", "--family", "llama"], "--family"),
    ],
)
def test_a_flag_that_another_has_no_use_for_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], flag: str
) -> None:
    assert flag in refused(capsys, *words)


@pytest.mark.parametrize(
    "words",
    [
        ["--batch", "8"],
        ["--context", "4096"],
        ["--kv-dtype", "fp8"],
        ["--family", "llama"],
        ["--optimizer", "muon"],
        ["--recompute", "full"],
        ["--attention", "plain"],
        ["--zero", "3"],
        ["--devices", "8"],
        ["--plot-memory", "x.svg"],
    ],
)
def test_what_only_layers_can_answer_is_refused_of_a_bare_size(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert words[0] in refused(capsys, "7B", *words)
    assert words[0] in refused(capsys, "7B", "13B", *words)


@pytest.mark.parametrize("words", [["--batch", "8"], ["--context", "64"], ["--kv-dtype", "fp8"], ["--devices", "2"]])
def test_a_flag_that_one_model_can_answer_is_heard_beside_a_bare_size(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    alone = []
    for models in (["gpt2"], ["7B", "gpt2"]):
        assert main(["size", "--json", *models, *words]) == 0
        told = json.loads(capsys.readouterr().out)
        alone.append(told if len(models) == 1 else told[1])
    assert alone[0] == alone[1]
    assert main(["size", "7B", "gpt2", *words]) == 0
    assert "124,439,808" in capsys.readouterr().out


def test_a_family_is_heard_where_one_model_is_a_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"model_type": "unknown"}), encoding="utf-8")
    for models in (["gpt2", str(path)], [str(path), "7B"], ["gpt2", str(path), "--what-if", "n_layers=1"]):
        assert main(["size", *models, "--family", "llama"]) == 0
    capsys.readouterr()
    for models in (["gpt2", "7B"], ["gpt2", "gpt2-xl"], ["gpt2", "--what-if", "n_layers=1"]):
        assert "--family" in refused(capsys, *models, "--family", "llama")


def test_a_bare_size_is_held_in_the_dtype_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    for words, n_bytes in (([], 14e9), (["--dtype", "float32"], 28e9), (["--dtype", "int4"], 3.5e9)):
        assert main(["size", "7B", "--device", "h100", "--json", *words]) == 0
        assert json.loads(capsys.readouterr().out)["device"]["memory_needed"] == n_bytes
    assert main(["size", "7B", "--device", "h100", "--dtype", "int4", "--published", "6738415616"]) == 0
    out = capsys.readouterr().out
    assert "to hold the weights in int4" in out
    assert "6,738,415,616" in out


@pytest.mark.parametrize("columns", ["1", "20", "50"])
def test_a_narrow_window_cuts_no_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for words in (["gpt3"], ["gpt3", "--explain"], ["gpt2", "gpt3"], ["gpt2", "gpt3", "--compare"]):
        assert main(["size", *words]) == 0
        out = capsys.readouterr().out
        assert "…" not in out
        assert "174,604,259,328" in out or "--compare" in words


def test_a_missing_width_is_the_only_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({key: value for key, value in LLAMA.items() if key != "hidden_size"}), encoding="utf-8")
    said = refused(capsys, str(path))
    assert "hidden_size" in said
    assert "head_dim" not in said
    assert len(said.splitlines()) == 1


def test_a_key_that_is_said_twice_is_refused_unless_both_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    text = json.dumps(LLAMA)
    path.write_text(text.replace('"vocab_size": 100', '"vocab_size": 100, "vocab_size": 200'), encoding="utf-8")
    assert "vocab_size" in refused(capsys, str(path))
    path.write_text(text.replace('"vocab_size": 100', '"vocab_size": 100, "vocab_size": 100'), encoding="utf-8")
    assert main(["size", os.fspath(path), "--json"]) == 0

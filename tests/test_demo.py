"""The demo shows what it says, overwrites nothing, and its first act needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from plainformer.cli import demo, main
from plainformer.faults import PlainformerError
from plainformer.lessons import three_tokens
from plainformer.report.curves import curve

TEXT = "the cat sat on the mat and the dog sat on the log\n" * 200
Points = list[tuple[float, float]]


def test_the_first_act_needs_no_torch() -> None:
    run = "import sys; from plainformer.cli import main; status = main(['demo', '--act', 'one'])"
    asked = f"{run}; print('torch' in sys.modules, status)"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, encoding="utf-8", check=True, cwd=ROOT)
    assert ran.stdout.splitlines()[-1] == "False 0"
    assert "124,439,808" in ran.stdout
    assert ran.stdout.index("$ plainformer size gpt2") < ran.stdout.index("attention on three tokens")


def test_three_tokens_are_what_one_finds_by_hand() -> None:
    told = "\n".join(three_tokens.lines())
    assert " 0.196  0.804      ." in told  # exp(0), exp(2 / sqrt 2), over their sum
    assert " 0.599  0.802 " in told
    assert max(map(len, told.splitlines())) < 110


def test_a_mask_that_is_gone_is_seen_in_the_story(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\n".join(three_tokens.lines()).count("0.401  0.198  0.401") == 1  # what it would be
    monkeypatch.setattr(three_tokens, "CAUSAL_TS", three_tokens.CAUSAL_TS | True)
    assert "\n".join(three_tokens.lines()).count("0.401  0.198  0.401") == 2  # and is


def test_the_second_act_trains_writes_and_draws_and_overwrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text(TEXT, encoding="utf-8")
    words = ["demo", "--act", "two", "--text", "text.txt", "--minutes", "0.01"]
    assert main(words) == 0
    said = capsys.readouterr().out
    parts = ["plainformer train text.txt", "before training", "after", "demo/loss.svg", "generate demo", "size demo"]
    places = [said.index(part) for part in [*parts, "inspect demo"]]
    assert places == sorted(places)
    assert {"run.json", "loss.svg", "sample.txt", "attention.svg"} <= {path.name for path in Path("demo").iterdir()}
    first = {path: path.read_bytes() for path in Path("demo").rglob("*") if path.is_file()}
    assert main(words) == 0
    assert {path: path.read_bytes() for path in Path("demo").rglob("*") if path.is_file()} == first
    assert Path("demo-2/sample.txt").is_file()


def test_a_demo_takes_the_first_free_name(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert demo.free(str(out)) == out
    demo.beside(out).write_text("", encoding="utf-8")  # the text of a run that was thrown away
    assert demo.free(str(out)) == tmp_path / "run-2"
    (tmp_path / "run-2").mkdir()
    assert demo.free(str(out)) == tmp_path / "run-3"


def test_every_python_has_a_text_to_train_on(tmp_path: Path) -> None:
    text = demo.documentation(tmp_path / "text.txt")
    assert text.stat().st_size > 200_000
    assert 12 <= len(demo.beginning(text)) <= demo.PROMPT
    text.write_text("\n\nshort\n" + "a long line " * 9, encoding="utf-8")
    assert demo.beginning(text) == "a long line a long line "
    text.write_text("all\nshort", encoding="utf-8")
    assert demo.beginning(text) == "all\nshort"


def test_a_python_without_its_documentation_asks_for_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(PlainformerError) as told:
        demo.documentation(tmp_path / "text.txt")
    assert "--text" in str(told.value)
    assert not list(tmp_path.iterdir())


def test_a_text_that_is_not_there_is_refused_before_anything_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--text", "nowhere.txt"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "nowhere.txt" in said.err


@pytest.mark.parametrize("failing", ["train", "generate", "size"])
def test_what_goes_wrong_ends_the_act_with_its_status(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_: list[str] = []

    def pretended(words: tuple[str, ...]) -> int:
        given_.append(words[0])
        return 130 if words[0] == failing else 0

    text = tmp_path / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "sample.txt").write_text("as written", encoding="utf-8")
    monkeypatch.setattr(demo, "main", pretended)
    assert demo.act_two(text, tmp_path / "run", ("--steps", "1")) == 130
    assert given_[-1] == failing


# --- the curve in the terminal ----------------------------------------------------------------------------------------


def test_a_curve_falls_from_the_upper_left_to_the_lower_right() -> None:
    falling = curve([(float(i), -float(i)) for i in range(10)], width=10, height=3, plain=True)
    assert falling == [" 0.00 ***", "         ****", "-9.00        ***", "      0        9"]


def test_few_points_are_joined_by_a_line() -> None:
    assert curve([(0.0, 2.0), (9.0, 0.0)], width=10, height=3, plain=True) == [
        "2.00 ***",
        "        ****",
        "0.00        ***",
        "     0        9",
    ]


@pytest.mark.parametrize("plain", [False, True])
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300),
    st.integers(5, 80),
    st.integers(2, 12),
)
def test_a_curve_stays_within_its_frame(plain: bool, ys: list[float], width: int, height: int) -> None:
    lines = curve([(float(i), y) for i, y in enumerate(ys)], width, height, plain)
    assert len(lines) == height + 1
    side = max(len(f"{y:.2f}") for y in (-1e6, 1e6))
    assert max(map(len, lines[:-1])) <= side + 1 + width
    assert any(set(line) & ({"*"} if plain else {chr(0x2800 + n) for n in range(1, 256)}) for line in lines)
    if plain:
        assert "".join(lines[:-1]).isascii()


def test_no_points_draw_no_curve() -> None:
    assert curve([]) == []

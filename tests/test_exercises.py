"""The study loop, tried as a student would: from an empty file to all exercises green."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from plainformer.check import TOPICS, check_file
from plainformer.check.blank import is_blank
from plainformer.check.checking import check_within
from plainformer.check.process import Theirs
from plainformer.cli import main
from plainformer.exercises import EXERCISES, Progress, blank, found
from plainformer.exercises.blanks import by_hand, defined

SOLVED = Path(__file__).parent / "implementations" / "solved.py"
NAMES = [one.name for one in EXERCISES]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert main(list(words)) == status
    return capsys.readouterr().out


def progress(capsys: pytest.CaptureFixture[str]) -> dict[str, str | None]:
    told = json.loads(said(capsys, "exercise", "--json"))
    assert told["right"] == sum(one["verdict"] == "right" for one in told["exercises"])
    return {one["name"]: one["verdict"] for one in told["exercises"]} | {"next": told["next"]}


# --- the table -------------------------------------------------------------------------------------------------------


def test_they_follow_the_lessons_from_softmax_to_a_gpt_that_trains() -> None:
    assert (NAMES[0], NAMES[-1], len(set(NAMES))) == ("softmax", "train_on_batch", len(NAMES))
    assert 16 <= len(EXERCISES) <= 22
    assert all(one.topic in TOPICS and one.read.title for one in EXERCISES)
    lessons = [one.lesson for one in EXERCISES[:-1]]  # the last is of all of them
    assert lessons == sorted(lessons)
    assert [one.module for one in EXERCISES] == ["numpy"] * (len(EXERCISES) - 1) + ["torch"]


@pytest.mark.parametrize("name", NAMES)
def test_a_blank_holds_law_formula_and_example_and_is_a_blank(name: str) -> None:
    text = blank(found(name))
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    docstring = ast.get_docstring(node)
    assert docstring is not None
    law, formula, example = docstring.split("\n\n")
    assert law.endswith(".")
    assert formula.startswith("    ")
    assert example.startswith("By hand: ")
    assert is_blank(text)
    assert max(map(len, text.splitlines())) <= 104
    assert len(by_hand(found(name))) < 330


# --- from an empty file to all of them -------------------------------------------------------------------------------


def test_a_student_s_way(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Blanks, one solved, one wrong, then all."""
    assert progress(capsys) == dict.fromkeys(NAMES) | {"next": 1}
    my = here / "my.py"
    said(capsys, "exercise", "3", "--to", "my.py")
    said(capsys, "exercise", "softmax", "5", "--to", "my.py")
    assert list(defined(my, my.read_text(encoding="utf-8"))) == ["layer_norm", "softmax", "gelu"]
    told = said(capsys, "check", "my.py", status=4)
    assert [line.split()[:2] for line in told.splitlines()] == [
        ["blank", "layer_norm"],
        ["blank", "softmax"],
        ["blank", "gelu"],
    ]
    assert told.count("not begun") == 3

    theirs = SOLVED.read_text(encoding="utf-8")
    for name in ("softmax", "layer_norm"):
        first, last = defined(SOLVED, theirs)[name]
        body = "".join(theirs.splitlines(keepends=True)[first:last])
        written = my.read_text(encoding="utf-8")
        at, until = defined(my, written)[name]
        lines = written.splitlines(keepends=True)
        my.write_text("".join(lines[:at]) + body + "".join(lines[until:]), encoding="utf-8")
    text = my.read_text(encoding="utf-8")
    my.write_text(text.replace("/ np.sqrt((centred**2).mean(", "/ ((centred**2).mean("), encoding="utf-8")
    told = said(capsys, "check", "my.py", status=4)
    assert "WRONG   layer_norm" in told
    assert "change " in told
    now = progress(capsys)
    assert (now["softmax"], now["layer_norm"], now["gelu"], now["rms_norm"]) == ("right", "wrong", "not begun", None)
    assert now["next"] == 2

    said(capsys, "exercise", "--all", "--to", "all.py")
    report = check_file(here / "all.py")
    assert [(one.thing, one.verdict) for one in report.answers] == [(name, "blank") for name in NAMES]
    (here / "all.py").write_text(theirs, encoding="utf-8")
    said(capsys, "check", "all.py")
    assert progress(capsys) == dict.fromkeys(NAMES, "right") | {"next": None}
    assert main(["exercise"]) == 0
    assert "from a softmax to a GPT that trains" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("thing", "old", "new", "key"),
    [
        ("may_see", "n_keys - n_queries, dtype", "0, dtype", "mask-corner"),
        ("count_gpt_parameters", "return (vocab_size", "return (2 * vocab_size", "count-head-again"),
        ("adamw_step", "w * (1 - lr * weight_decay)", "w", "adamw-no-decay"),
        ("train_on_batch", "is_causal=True", "is_causal=False", "sees the future"),
        ("train_on_batch", "tokens[:, 1:].flatten()", "tokens[:, :-1].flatten()", "do not tell the next token"),
        ("train_on_batch", "loss.backward()", "pass", "does not fall"),
    ],
)
def test_a_wrong_solution_is_named(thing: str, old: str, new: str, key: str, tmp_path: Path) -> None:
    text = SOLVED.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "wrong.py"
    path.write_text(text.replace(old, new), encoding="utf-8")
    with Theirs(path, seconds=20) as theirs:
        (answer,) = check_within(theirs, path, [thing]).answers
    assert answer.verdict == "wrong"
    assert key in answer.said or key in [k for m in answer.mistakes for k in (m.key, *m.also)]


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("attention", "np.where(allowed, scores, -np.inf)", "scores + allowed", "mask-added"),
        ("multi_head_attention", "may_see(x.shape[-2], x.shape[-2])", "None", "mask-none"),
    ],
)
def test_an_exercise_asks_what_its_words_say_and_another_file_what_fits(
    name: str, old: str, new: str, told: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mask of another kind, no causality: right in code of one's own, not in these exercises."""
    theirs = SOLVED.read_text(encoding="utf-8")
    first, last = defined(SOLVED, theirs)[name]
    lines = theirs.splitlines(keepends=True)
    body = "".join(lines[first:last])
    assert old in body
    text = "".join(lines[:first]) + body.replace(old, new) + "".join(lines[last:])
    said(capsys, "exercise", name, "--to", "my.py")
    for path, verdict in ((here / "my.py", "wrong"), (here / "own.py", "right")):
        path.write_text(text, encoding="utf-8")
        answer = json.loads(said(capsys, "check", path.name, "--only", name, "--json", status=4 * (verdict != "right")))
        (one,) = (each for each in answer["answers"] if each["thing"] == name)
        assert (one["verdict"] == "right") == (verdict == "right")
        assert (told in json.dumps(one)) == (verdict != "right")


# --- nothing is lost -------------------------------------------------------------------------------------------------


def test_work_is_never_overwritten(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    my = here / "my.py"
    my.write_text('"""Mine."""\n\nimport math\n\n\ndef softmax(x):\n    return x  # a beginning\n', encoding="utf-8")
    before = my.read_text(encoding="utf-8")
    said(capsys, "exercise", "1", "--to", "my.py", status=2)
    assert my.read_text(encoding="utf-8") == before
    said(capsys, "exercise", "2", "--to", "my.py")
    after = my.read_text(encoding="utf-8")
    assert "a beginning" in after
    assert after.startswith('"""Mine."""\n\nimport math\nimport numpy as np\n\n\ndef softmax')
    said(capsys, "exercise", "1", "--to", "my.py", "--force")
    assert "a beginning" not in my.read_text(encoding="utf-8")
    assert (here / "my-before-1.py").read_text(encoding="utf-8") == after
    assert sorted(path.name for path in here.iterdir()) == ["my-before-1.py", "my.py", "plainformer-progress.json"]
    ast.parse(my.read_text(encoding="utf-8"))


def test_a_blank_that_stands_there_stays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "exercise", "1", "2", "--to", "my.py")
    before = (here / "my.py").read_text(encoding="utf-8")
    assert said(capsys, "exercise", "1", "--to", "my.py") == ""
    assert (here / "my.py").read_text(encoding="utf-8") == before
    assert before.startswith("import numpy as np\n\n\ndef softmax(x):\n")


@pytest.mark.parametrize(
    "words",
    [
        ["exercise", "99"],
        ["exercise", "nothing"],
        ["exercise", "--to", "my.py"],
        ["exercise", "1", "--to", "my.txt"],
        ["exercise", "1", "--to", "no-folder/my.py"],
        ["exercise", "1", "--all"],
        ["exercise", "1", "--force"],
        ["exercise", "1", "--to", "my.py", "--json"],
        ["exercise", "1", "--to", "broken.py"],
    ],
)
def test_what_cannot_be_is_2_and_writes_nothing(
    words: list[str], here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "broken.py").write_text("def f(:\n", encoding="utf-8")
    assert said(capsys, *words, status=2) == ""
    assert [path.name for path in here.iterdir()] == ["broken.py"]


def test_a_spoilt_file_of_progress_is_refused(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("no json", "[1]", '{"my.py": 3}'):
        (here / "plainformer-progress.json").write_text(text, encoding="utf-8")
        said(capsys, "exercise", status=2)


def test_check_writes_no_progress_where_none_is_kept(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "my.py").write_text(blank(found("gelu")), encoding="utf-8")
    said(capsys, "check", "my.py", status=4)
    assert [path.name for path in here.iterdir()] == ["my.py"]


def test_right_in_one_file_is_right() -> None:
    kept = Progress(Path(), {"a.py": {"softmax": "right"}, "b.py": {"softmax": "wrong"}})
    assert kept.of_exercise(found("softmax")) == "right"
    assert kept.next is found("cross_entropy")

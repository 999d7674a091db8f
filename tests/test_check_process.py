"""Code under test in a process of its own: a crash, a hang, too much memory, a wrong shape are answers with a line."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from plainformer.check import Answer
from plainformer.check.checking import check_file
from plainformer.check.process import Theirs, Trouble

needs_posix = pytest.mark.skipif(
    sys.platform == "win32", reason="limits of a process are asked of POSIX systems: theirs is one"
)


def checked(folder: Path, body: str, seconds: float = 2.0, memory: int = 1 << 30, name: str = "theirs.py") -> Answer:
    path = folder / name
    path.write_text("import os, sys, time\nimport numpy as np\n\n\n" + body, encoding="utf-8")
    (answer,) = check_file(path, seconds=seconds, memory=memory).answers
    return answer


def softmax(*lines: str) -> str:
    return "def softmax(x):\n" + "".join(f"    {line}\n" for line in lines)


RIGHT = "e = np.exp(x - x.max(-1, keepdims=True))"
SHARE = "return e / e.sum(-1, keepdims=True)"
BROKEN = {
    "an error": ((RIGHT, "return e / total"), "raises NameError", "theirs.py:7  return e / total"),
    "a hang": (("while True:", "    pass"), "does not end: no answer in 2 s", "theirs.py:"),
    "an exit": (("sys.exit(3)",), "raises SystemExit: 3", "theirs.py:6  sys.exit(3)"),
    "a hard exit": (("os._exit(3)",), "the process ended itself with status 3", ""),
    "a fault": (("import ctypes", "ctypes.string_at(0)"), "ended by SIGSEGV", "theirs.py:7  ctypes.string_at(0)"),
    "no bottom": (("return softmax(x)",), "raises RecursionError", "theirs.py:6  return softmax(x)"),
    "memory": (("y = np.ones((60000, 60000))", SHARE), "raises", "theirs.py:6  y = np.ones((60000, 60000))"),
    "a signal": (("os.kill(os.getpid(), 9)",), "ended by SIGKILL", ""),
}


@needs_posix
@pytest.mark.parametrize("what", BROKEN)
def test_what_breaks_is_an_answer_with_their_line(what: str, tmp_path: Path) -> None:
    lines, said, place = BROKEN[what]
    answer = checked(tmp_path, softmax(*lines))
    assert answer.verdict == "broke"
    assert said in answer.said
    assert answer.trouble_line.startswith(place)


SHAPES = {
    "nothing": ((RIGHT,), "it returns None, not shape"),
    "a sum too many": (
        (RIGHT, "return (e / e.sum(-1, keepdims=True)).sum(-1)"),
        "it returns shape (2, 7), the formula gives shape (2, 7, 5)",
    ),
    "words": (("return 'soft'",), "it returns soft, not shape"),
    "two of it": (("return x[..., :2], x[..., :1]",), "it returns 2 things"),
}


@pytest.mark.parametrize("what", SHAPES)
def test_a_wrong_shape_is_told_beside_the_right_one(what: str, tmp_path: Path) -> None:
    lines, said = SHAPES[what]
    answer = checked(tmp_path, softmax(*lines))
    assert answer.verdict == "broke"
    assert said in answer.said


def test_an_input_changed_in_place_is_told_by_name(tmp_path: Path) -> None:
    answer = checked(tmp_path, softmax("x -= x.max(-1, keepdims=True)", "e = np.exp(x)", SHARE))
    assert (answer.verdict, answer.said) == ("wrong", "it changes its input in place: x")


def test_chance_where_none_belongs_is_told(tmp_path: Path) -> None:
    answer = checked(tmp_path, softmax(RIGHT, "return e / e.sum(-1, keepdims=True) + np.random.random(x.shape)"))
    assert (answer.verdict, answer.said) == ("wrong", "the same input gives another answer each time")


def test_half_precision_is_told(tmp_path: Path) -> None:
    body = softmax("x = x.astype(np.float16)", RIGHT, SHARE)
    answer = checked(tmp_path, body)
    assert answer.verdict == "wrong"
    assert "float16" in answer.said


def test_a_file_that_is_no_python_is_told_by_its_line(tmp_path: Path) -> None:
    answer = checked(tmp_path, "def softmax(x:\n    return x\n")
    assert answer.verdict == "broke"
    assert "SyntaxError" in answer.said
    assert answer.trouble_line.startswith("theirs.py:5")


@needs_posix
def test_a_file_that_runs_for_ever_when_imported_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plainformer.check.process.LOADING", 1.0)
    answer = checked(tmp_path, softmax(RIGHT, SHARE) + "\n\nwhile True:\n    time.sleep(0.01)\n", seconds=1)
    assert answer.verdict == "broke"
    assert "__main__" in answer.said
    assert answer.trouble_line.startswith("theirs.py:1")


def test_what_they_print_is_not_in_our_way(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    noisy = softmax("print('x' * 100_000)", "print('loud', file=sys.stderr)", RIGHT, SHARE)
    assert checked(tmp_path, noisy).is_fine
    assert capfd.readouterr() == ("", "")


@needs_posix
def test_nothing_of_theirs_is_left_running(tmp_path: Path) -> None:
    """A process that their code started ends with it."""
    pid = tmp_path / "pid"
    start = (
        f"import subprocess\nchild = subprocess.Popen(['sleep', '60'])\nopen({str(pid)!r}, 'w').write(str(child.pid))\n"
    )
    assert checked(tmp_path, start + "\n\n" + softmax(RIGHT, SHARE)).is_fine
    for _ in range(100):
        if not alive(int(pid.read_text())):
            return
        time.sleep(0.05)
    raise AssertionError("it is still there")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.is_file() or state.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_child_that_died_is_started_again(tmp_path: Path) -> None:
    path = tmp_path / "theirs.py"
    path.write_text("import os\n\n\ndef gelu(x):\n    os._exit(1)\n\n\ndef softmax(x):\n    return 3\n")
    gelu, softmax_answer = check_file(path).answers
    assert "ended itself" in gelu.said
    assert "it returns" in softmax_answer.said


def test_what_comes_back_is_no_pickle(tmp_path: Path) -> None:
    """An object of theirs is told by its class's name; nothing of it is built here."""
    path = tmp_path / "theirs.py"
    path.write_text(
        "class Odd:\n    def __reduce__(self):\n        raise RuntimeError\n\n\ndef softmax(x):\n    return Odd()\n"
    )
    with Theirs(path) as theirs:
        reply = theirs.ask(do="call", name="softmax", args=[1.0], kwargs={})
        assert not isinstance(reply, Trouble)
        assert reply.out == "a Odd"

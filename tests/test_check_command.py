"""`plainformer check`: what is printed, as JSON too, exit statuses, adapters, lists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plainformer.check import CATALOGUE, TOPICS
from plainformer.cli import main
from planted import FILES

WRONG = """import numpy as np


def softmax(x):
    e = np.exp(x - x.max())
    return e / e.sum()


def layer_norm(x, gamma, beta, eps=1e-5):
    mean = x.mean(-1, keepdims=True)
    spread = x.std(-1, keepdims=True, ddof=1)
    return (x - mean) / np.sqrt(spread**2 + eps) * gamma + beta
"""
SAID = """\
WRONG   softmax  theirs.py:4  the exponentials are divided by the sum of the whole array  [softmax-over-all]
        the formula   softmax = e / sum(e), the sum along the last axis
        by hand       x = ((1, 2), (3, 1))
          right       ((0.269, 0.731), (0.881, 0.119))
          yours       ((0.083, 0.225), (0.61, 0.083))
        change        divide by the sum along the last axis, kept as an axis: sum(-1, keepdims=True)
        your line     theirs.py:5  e = np.exp(x - x.max())  (or a line like it)
        held against  8 draws, seed 0, float64
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    path = tmp_path / "theirs.py"
    path.write_text(WRONG, encoding="utf-8")
    return path


def test_a_mistake_is_told_whole(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(theirs), "--only", "softmax"]) == 4
    said = capsys.readouterr()
    assert said.out == SAID
    assert said.err == "0 of 1 right (seed 0)\n"


def test_what_is_right_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(FILES["np"]), "--only", "softmax", "gelu"]) == 0
    assert "tanh form" in capsys.readouterr().out


def test_the_file_may_stand_behind_the_names(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--only", "softmax", str(theirs)]) == 4
    assert capsys.readouterr().out == SAID


def test_as_json_every_answer_is_an_object(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(theirs), "--json", "--seed", "3"]) == 4
    facts = json.loads(capsys.readouterr().out)
    assert (facts["file"], facts["seed"], facts["right"]) == ("theirs.py", 3, False)
    keys = [[mistake["key"] for mistake in one["mistakes"]] for one in facts["answers"]]
    assert keys == [["softmax-over-all"], ["norm-unbiased"]]
    assert all(one["confident"] and one["line"] and one["seconds"] < 5 for one in facts["answers"])


@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["check", "no-such-file.py"],
        ["check", str(FILES["np"]), "--only", "nothing"],
        ["check", str(FILES["np"]), "--seconds", "0"],
        ["check", __file__],  # no known name in it
        ["check", str(FILES["np"]), "--only", "softmax", "--seed", "-1"],
        ["check", str(FILES["np"]), "--only", "softmax", "--seed", str(2**32)],  # more than NumPy's generators take
        ["check", str(FILES["np"]), "--adapter", "no-such-folder/a.py"],
        ["check", str(FILES["np"]), "--behaviours", "--only", "softmax"],
        ["check", str(FILES["np"]), "--behaviours", "--seed", "3"],
        ["check", "--only", "no-such-file.py"],
    ],
)
def test_what_cannot_be_is_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert 1 <= len(said.err.splitlines()) <= 2


def test_the_lists_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--list"]) == 0
    listed = capsys.readouterr().out
    assert all(f"{topic.signature}\n" in listed for topic in TOPICS.values())
    assert main(["check", "--mistakes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {key for group in told.values() for key in group} == set(CATALOGUE)


ODD = """import numpy as np


def normalise_rows(values, how_much, plus):
    return np.zeros(3)


def my_gelu_function(t):
    return t
"""


def test_an_adapter_is_written_once_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The ten lines: our signature, their call; mended by hand, it is a file to check like any other."""
    odd = tmp_path / "odd.py"
    odd.write_text("import numpy as np\n\n\ndef squash(x):\n    e = np.exp(x - x.max(-1, keepdims=True))\n"
                   "    return e / e.sum(-1, keepdims=True)\n")  # fmt: skip
    adapter = tmp_path / "adapter.py"
    assert main(["check", str(odd), "--adapter", str(adapter)]) == 0
    assert capsys.readouterr().out == f"{adapter}\n"
    assert "import odd" in adapter.read_text()
    assert "def softmax(x):" in adapter.read_text()
    assert main(["check", str(odd), "--adapter", str(adapter)]) == 2
    assert main(["check", str(adapter), "--only", "softmax"]) == 0


def test_an_adapter_reads_and_does_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = tmp_path / "odd.py"
    odd.write_text(ODD + "\n\nraise RuntimeError('run')\n")
    assert main(["check", str(odd), "--adapter", str(tmp_path / "a.py")]) == 0
    text = (tmp_path / "a.py").read_text()
    assert "return odd.my_gelu_function(x)" in text
    assert len(text.splitlines()) <= 10


def test_a_terminal_gets_colour_and_a_pipe_none(theirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from plainformer.check import check_file
    from plainformer.check.answer import write

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    answers = check_file(theirs, ["softmax"]).answers
    plain, coloured = io.StringIO(), Terminal()
    write(plain, answers)
    write(coloured, answers)
    assert plain.getvalue() == SAID
    assert "\x1b[" in coloured.getvalue()


def test_behaviours_are_asked_of_theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The checks are those that the reference and the model are held to; a leak and rows that meet are noticed."""
    assert main(["check", str(FILES["nano"]), "--behaviours", "--json"]) == 4  # torch's first embeddings are no guess
    told = {one["name"]: one for one in json.loads(capsys.readouterr().out)["behaviours"]}
    assert {"GP1", "GP2", "GP3", "GP9", "FF1"} <= {name for name, one in told.items() if one["shown"]}
    assert not told["GP8"]["shown"]
    text = (
        FILES["nano"]
        .read_text(encoding="utf-8")
        .replace("self.mask[:, :, :T, :T] == 0", "self.mask[:, :, :T, :T] == 2")
    )
    (tmp_path / "leaks.py").write_text(text, encoding="utf-8")
    assert main(["check", str(tmp_path / "leaks.py"), "--behaviours"]) == 4
    said = capsys.readouterr().out
    assert "NOT    GP2  the future moves no bit" in said
    assert "shown  GP9  rows do not see each other" in said
    assert main(["check", str(FILES["np"]), "--behaviours"]) == 4
    said = capsys.readouterr().out
    assert "shown  AT3  no score buys its way past the mask" in said
    assert "NOT    AT4" in said


def test_an_axis_that_is_summed_and_not_kept_is_not_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Right for one row; on many it breaks, or, where they are as many as wide, divides by other rows' sums."""
    path = tmp_path / "theirs.py"
    body = "import numpy as np\n\n\ndef softmax(x):\n    e = np.exp(x - x.max({axis}))\n    return e / e.sum({axis})\n"
    path.write_text(body.format(axis="axis=-1"), encoding="utf-8")
    assert main(["check", str(path)]) == 4
    said = capsys.readouterr().out
    assert said.startswith("BROKE   softmax  theirs.py:4  it raises ValueError")
    assert "keepdims=True where an axis is summed?" in said
    body = "    m = max(x)\n    e = [math.exp(a - m) for a in x]\n    return [a / sum(e) for a in e]\n"
    path.write_text(f"import math\n\n\ndef softmax(x):\n{body}", encoding="utf-8")
    assert main(["check", str(path)]) == 0  # written for one row, and says so
    assert "held for arrays of 1 axis: with more the shape is another" in capsys.readouterr().out

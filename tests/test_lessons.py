"""The lessons: pages are what the lessons print; no number without code, no claim without its source, no picture
without its reading; each check has a sabotaged twin that it catches."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import ROOT
from plainformer.cli import main
from plainformer.faults import PlainformerError
from plainformer.lessons import LESSONS, Lesson, pages, prose
from plainformer.lessons.cells import Cell, cells, found, texts, written
from plainformer.lessons.telling import Teller, Told, all_cells, measured, tell
from plainformer.report.diagrams import Arrow, Box, flow
from plainformer.report.drawings import columns, lines, maps, shares
from seed_numbers import EXPECTED

pytestmark = (
    pytest.mark.no_shape_names
)  # other tests compare names with arrays in what lessons run; here it takes minutes

WRITTEN = written()
each_lesson = pytest.mark.parametrize("lesson", WRITTEN, ids=lambda lesson: lesson.name)
STORED = sorted((ROOT / "src" / "plainformer" / "lessons" / "measured").glob("*.json"))


@each_lesson
def test_a_lesson_has_no_fault(lesson: Lesson) -> None:
    """No number without code, no untagged claim, no figure or formula unexplained, the outline whole."""
    assert tell(lesson).faults == []


@each_lesson
def test_the_page_and_its_pictures_are_what_the_lesson_prints(lesson: Lesson) -> None:
    told = tell(lesson)
    page = ROOT / "docs" / "lessons" / f"{lesson.page}.md"
    assert page.read_text(encoding="utf-8") == pages.page(told), "out of date; `make docs` makes it anew"
    for name, drawing in told.drawings().items():
        assert (ROOT / "docs" / "pictures" / "lessons" / name).read_text(encoding="utf-8") == drawing.svg, name


@each_lesson
def test_a_page_shows_no_rounding(lesson: Lesson) -> None:
    """What is only rounding in float64 differs from machine to machine, and with it the page would."""
    assert re.findall(r"\d(?:\.\d+)?e-1[5-7]\b", pages.page(tell(lesson))) == []


def test_the_contents_and_nothing_else_lie_beside_the_pages() -> None:
    folder = ROOT / "docs" / "lessons"
    assert (folder / "README.md").read_text(encoding="utf-8") == pages.contents(WRITTEN)
    assert {p.name for p in folder.glob("*")} == {"README.md", *(f"{one.page}.md" for one in WRITTEN)}
    drawn = {name for lesson in WRITTEN for name in tell(lesson).drawings()}
    assert {p.name for p in (ROOT / "docs" / "pictures" / "lessons").glob("*")} == drawn


@each_lesson
def test_a_notebook_runs_cell_by_cell(lesson: Lesson) -> None:
    told = tell(lesson)
    text = pages.notebook(told)
    assert text == pages.notebook(told)
    book = json.loads(text)
    assert (book["nbformat"], len({cell["id"] for cell in book["cells"]})) == (4, len(book["cells"]))
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{lesson.name}, {cell['id']}", "exec"), names)


@pytest.mark.proof
@each_lesson
def test_a_lesson_is_told_the_same_twice(lesson: Lesson) -> None:
    again = Teller(lesson).tell(list(all_cells(lesson)))
    assert pages.page(again) == pages.page(tell(lesson))
    assert again.drawings() == tell(lesson).drawings()


@each_lesson
def test_the_numbers_that_it_declares_are_the_right_ones(lesson: Lesson) -> None:
    """Each id is one of the numbers that the first documents assert, its value within the tolerance of that."""
    for name, (what, value) in tell(lesson).numbers.items():
        assert what
        expected, tolerance = EXPECTED[name]
        listed = expected if isinstance(expected, list) else []
        words = isinstance(expected, str) or any(isinstance(one, str) for one in listed)
        ragged = len({len(one) for one in listed if isinstance(one, list)}) > 1
        if words or ragged:
            assert value == expected, name
        else:
            np.testing.assert_allclose(
                np.asarray(value, float),
                np.asarray(expected, float),
                tolerance.get("rel", 0),
                tolerance.get("abs", 0),
                err_msg=name,
            )


def test_a_number_is_declared_by_one_lesson() -> None:
    declared = [name for lesson in WRITTEN for name in tell(lesson).numbers]
    assert len(declared) == len(set(declared))


# --- rooms, files, the command ----------------------------------------------------------------------------------------

LIGHT = {"math", "numpy", "plainformer", "json", "collections", "itertools", "dataclasses", "fractions", "statistics"}


@each_lesson
def test_a_lesson_imports_the_definition_and_never_torch(lesson: Lesson) -> None:
    for file, text in texts(lesson):
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.partition(".")[0] in LIGHT, f"{file} imports {name}"


def test_every_folder_is_in_the_table_and_numbers_count_up() -> None:
    folders = {p.name for p in (ROOT / "src" / "plainformer" / "lessons").iterdir() if p.is_dir()}
    assert folders - {"__pycache__", "measured"} <= {lesson.name for lesson in LESSONS}
    assert [lesson.number for lesson in LESSONS] == list(range(len(LESSONS)))


def test_all_lessons_are_told_without_torch_in_under_a_minute() -> None:
    asked = (
        "import sys; from plainformer.cli import main; status = main(['learn', '--all']);"
        "print(status, sorted({'torch', 'matplotlib', 'transformers'} & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert ran.stderr.strip().endswith("0 []")
    for lesson in WRITTEN:
        assert lesson.title in ran.stdout


def test_a_stream_without_greek_letters_is_told_the_rest() -> None:
    asked = [sys.executable, "-m", "plainformer", "learn", "block"]
    plain = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = subprocess.run(asked, env=plain, capture_output=True, check=True)
    assert b"The block" in ran.stdout
    assert b"a picture that this window can't hold: A block: two edits of the stream" in ran.stdout


def test_learn_lists_tells_and_writes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["learn"]) == 0
    said = capsys.readouterr().out
    assert all(lesson.title in said for lesson in WRITTEN)
    lesson = WRITTEN[-1]
    assert main(["learn", lesson.name, "--notebook", str(tmp_path / "one.ipynb"), "--figures", str(tmp_path)]) == 0
    assert (tmp_path / "one.ipynb").read_text(encoding="utf-8") == pages.notebook(tell(lesson))
    assert {p.name for p in tmp_path.glob("*.svg")} == set(tell(lesson).drawings())


@pytest.mark.parametrize(
    "words",
    [
        ["learn", "99"],
        ["learn", "1", "--all"],
        ["learn", "--notebook", "x"],
        ["learn", "--measure"],
        ["learn", "1", "--text", "x"],
        ["learn", "1", "--measure", "--notebook", "no/x"],
        ["learn", "1", "--measure", "--figures", "no"],
    ],
)
def test_learn_refuses_in_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert 1 <= len(said.err.strip().splitlines()) <= 2


def test_a_lesson_is_found_by_number_or_name() -> None:
    assert found("1") == found("block") == found("01-block")
    with pytest.raises(PlainformerError):
        found("blok")


# --- what was measured ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_stored_measurement_says_how_it_was_made_and_is_shown(path: Path) -> None:
    from plainformer.measuring import MEASUREMENTS

    data = measured(path.stem)
    assert all(data[key] for key in ("command", "machine", "date", "seeds", "columns", "rows")), path.name
    assert all(column in row for row in data["rows"] for column in data["columns"])
    assert path.stem in MEASUREMENTS, "nothing measures it again"
    assert any(f"[measured: {path.stem}]" in text for lesson in WRITTEN for _, text in texts(lesson)), "shown nowhere"


def test_every_measurement_is_stored_and_its_module_there() -> None:
    from importlib.util import find_spec

    from plainformer.measuring import MEASUREMENTS, measure

    assert set(MEASUREMENTS) == {path.stem for path in STORED}
    assert all(find_spec(place) for place in MEASUREMENTS.values())
    with pytest.raises(PlainformerError):
        measure("nothing")


# --- the checks, each with a lesson that it must catch ----------------------------------------------------------------

TINY = Lesson(99, "tiny", "Tiny", "For the tests.")
GOOD = """# %% [hidden]
from plainformer.report.diagrams import Arrow, Box, flow

n = 12

# %% [markdown]
# # Tiny
#
# ## In practice
#
# **In one sentence.** It has {{n}} layers. [computed]
#
# **When you need it.** Always. [inference]
#
# **Options.** Two:
#
# | option | from |
# |---|---|
# | one | [inference] |
#
# **How to choose.** Look at `config.json`. [inference]
#
# **What it costs.** Nothing. [computed: n == 12]
#
# **What breaks.**
#
# - GPT-2 in float64. [paper: Ba et al. 2016, section 3]
#
# **In the wild.** Seen. [source: karpathy/nanoGPT@3adf61e, model.py]
#
# ## Where it fits
#
# Here. [definition]
#
# ## A part
#
# **Everyday picture.** A box.
#
# **Where the analogy breaks.** At its lid. [inference]
#
# **Tiny worked example.** It is {{n + 1}}. [computed]

# %% [figure: box]
flow("A box", {"a": Box(0, 0, "a"), "b": Box(1, 0, "b")}, [Arrow("a", "b")])

# %% [markdown]
# **How to read it.** From left to right. [definition]
#
# **Formula.** It is this:
#
# $$
# y = n + 1
# $$
#
# **Symbols.**
#
# | symbol | meaning |
# |---|---|
# | $n$ | {{n}} |
#
# **In words.** One more.
#
# **With the numbers.** {{n}} and one is {{n + 1}}. [computed]

# %%
print(n + 1)

# %% [markdown]
# **In the library.** So drawn. [definition]

# %% [source: flow]

# %% [markdown]
# **Why it matters.** It does. [inference]
#
# ## Going deeper
#
# ### A proof
#
# By counting. [inference]

# %%
assert n < n + 1

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** It is three.
#
# **Correction.** No. [inference]
#
# **Misconception.** It is four.
#
# **Correction.** No. [inference]
#
# **Misconception.** It is five.
#
# **Correction.** No. [inference]
#
# ## In twenty seconds
#
# One more. [inference]
#
# ## Self-test
#
# **Question.** How many?
#
# **Answer.** {{n}}. [computed]
#
# **Question.** How many?
#
# **Answer.** {{n}}. [computed]
#
# **Question.** How many?
#
# **Answer.** {{n}}. [computed]
#
# ## Papers

# %% [papers]

# %% [numbers]
{"tanh_0_8": ("tanh of 0.8", 0.664)}
"""


def told(text: str) -> Told:
    return Teller(TINY).tell(list(cells("tiny/1.py", text)))


def test_a_good_lesson_has_no_fault() -> None:
    good = told(GOOD)
    assert good.faults == []
    page = pages.page(good)
    assert "It has 12 layers. <sup>[computed here]</sup>" in page
    assert "<details><summary>Answer</summary>\n\n12. <sup>" in page
    assert "- Ba et al. 2016. [Layer Normalization](https://arxiv.org/abs/1607.06450), arXiv." in page
    assert "## 1. A part" in page
    assert "```text\n13\n```" in page
    assert "tanh of 0.8 | 0.664" in page


SABOTAGE = {
    "a digit in prose": ("It has {{n}} layers.", "It has 12 layers, as {{n}}.", "no code made: 12"),
    "a digit in a heading": ("## A part", "## A part of 2", "no code made: 2"),
    "a digit in a table": ("| one | [inf", "| 1 | [inf", "no code made: 1"),
    "a fraction": ("By counting.", "By ½.", "no code made: ½"),
    "a number as a formula": ("By counting.", "By $12$.", "dressed as a formula"),
    "a slot that fails": ("It has {{n}} layers", "It has {{m}} layers", "cannot be filled: NameError"),
    "code in prose that fails": ("`config.json`", "`formulas.gelu(1)`", "does not run: NameError"),
    "a claim without a tag": ("Always. [inference]", "Always.", "a claim without a tag"),
    "a row without a tag": ("| one | [inference] |", "| one | two |", "a claim without a tag"),
    "an item without a tag": ("GPT-2 in float64. [paper: Ba et al. 2016, section 3]", "GPT-2.", "a claim without"),
    "a tag in the middle": ("Always. [inference]", "Always. [inference] And now.", "a claim without a tag"),
    "an unknown tag": ("Always. [inference]", "Always. [believed]", "a claim without a tag"),
    "computed without a number": ("Always. [inference]", "Always. [computed]", "no slot of this claim computes"),
    "a second claim that rests on the first one's number": (
        "{{n}} layers. [computed]",
        "{{n}} layers. [computed] And is best. [computed]",
        "no slot of this claim computes",
    ),
    "computed, but typed": ("It has {{n}} layers", "It has {{12}} layers", "no slot of this claim computes"),
    "computed and false": ("[computed: n == 12]", "[computed: n == 13]", "gives False"),
    "computed and not a truth": ("[computed: n == 12]", "[computed: n]", "gives 12"),
    "computed that fails": ("[computed: n == 12]", "[computed: m == 12]", "NameError"),
    "a paper of nobody": ("Ba et al. 2016, section 3", "Nobody 2016, section 3", "has no such paper"),
    "a paper without a place": ("Ba et al. 2016, section 3", "Ba et al. 2016", "say where in it"),
    "a source without a commit": ("nanoGPT@3adf61e", "nanoGPT", "owner/name@commit"),
    "a measurement of nothing": ("Always. [inference]", "Always. [measured: nothing]", "there is no lessons/measured"),
    "a figure without its reading": ("**How to read it.** From", "From", "followed at once by **How to read it.**"),
    "a figure that is none": ('flow("A box"', 'str("A box"', "the code fails: TypeError"),
    "a figure that is text": ("    # nothing", "", ""),
    "a formula without symbols": ("**Symbols.**", "**Signs.** They are:", "followed by **Symbols.**"),
    "a formula without words": ("**In words.** One more.\n", "", "followed by **In words.**"),
    "a formula without numbers": ("**With the numbers.**", "With", "followed by **With the numbers.**"),
    "a formula without code": ("# %%\nprint(n + 1)", "# %% [hidden]\nprint(n + 1)", "code that runs it"),
    "code that fails": ("print(n + 1)", "print(m + 1)", "the code fails: NameError"),
    "a section without its picture": ("**Everyday picture.** A box.\n#\n", "", "lacks **Everyday picture.**"),
    "a section without its reason": ("**Why it matters.**", "It matters.", "lacks **Why it matters.**"),
    "a section without our code": ("# %% [source: flow]\n", "", "lacks <source>"),
    "a practitioner's page in disorder": ("**What breaks.**", "**Breaks.** So:", "lacks **What breaks.**"),
    "no place in the book": ("## Where it fits", "## Where it stands", "one section 'Where it fits'"),
    "a proof without code": ("# %%\nassert n < n + 1\n", "", "it needs code"),
    "a question without an answer": ("**Answer.** {{n}}. [computed]\n# \n", "", ""),
    "another title": ("# # Tiny", "# # Small", "the page is called 'Small'"),
    "no papers": ("# %% [papers]\n", "", "lacks its [papers] cell"),
    "source of nothing": ("[source: flow]", "[source: flaw]", "NameError"),
}
SABOTAGE = {name: one for name, one in SABOTAGE.items() if one[2]}


@pytest.mark.parametrize("what", SABOTAGE)
def test_a_sabotaged_lesson_is_caught(what: str) -> None:
    old, new, words = SABOTAGE[what]
    assert GOOD.count(old) >= 1, "the good lesson has nothing to sabotage here"
    faults = told(GOOD.replace(old, new, 1)).faults
    assert any(words in fault for fault in faults), faults


@pytest.mark.parametrize("kind", ["Misconception", "Question"])
def test_fewer_than_three_pairs_or_one_alone_are_caught(kind: str) -> None:
    second = {"Misconception": "Correction", "Question": "Answer"}[kind]
    pair = re.search(rf"# \*\*{kind}\.\*\*.+?\*\*{second}\.\*\*.+?\n#\n", GOOD, re.S)
    assert pair
    assert any("fewer than 3" in fault for fault in told(GOOD.replace(pair[0], "", 1)).faults)
    alone = re.sub(rf"\*\*{second}\.\*\* (.+)\n", r"\1\n", GOOD, count=1)
    assert any("is followed by one" in fault for fault in told(alone).faults)


@pytest.mark.parametrize(
    "text",
    [
        "x = 1\n",
        "# %% [picture]\nx\n",
        "# %% [figure]\nx\n",
        "# %% [markdown]\nx = 1\n",
        "# %% [papers]\nx\n",
        "# %%\n\n",
    ],
)
def test_what_is_no_cell_is_refused_by_its_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"tiny\.py:1: "):
        list(cells("tiny.py", text))


def test_a_figure_cell_gives_a_drawing() -> None:
    (cell,) = cells("tiny.py", "# %% [figure: f]\n1 + 1\n")
    teller = Teller(TINY)
    teller.coded(cell)
    assert "gives a Drawing, not int" in teller.told.faults[0]
    assert isinstance(cell, Cell)


def test_names_hold_digits_and_are_no_numbers() -> None:
    for text in ("GPT-2 small", "Llama 3 8B", "Mixtral 8x7B in bfloat16", "law L10", "$x^2$", "`f(2)`", "{{n:.3f}}"):
        assert list(prose.numbers(prose.Block("words", text, 1))) == [], text
    for text in ("GPT-12", "8 heads", "Llama 38", "x2", "3.5 %", "float63"):
        assert list(prose.numbers(prose.Block("words", text, 1))), text


# --- pictures ---------------------------------------------------------------------------------------------------------

MADE = {
    "lines": lambda: lines("L & l", {"a": [(0, 0), (1, 2)], "b": [(0, 1), (1, 0)]}, "x", "y"),
    "maps": lambda: maps("M", {"one": np.eye(3), "two": np.ones((3, 3)) / 3}, "abc", "abc"),
    "shares": lambda: shares("S", {"r": {"p": 3, "q": 1}}),
    "columns": lambda: columns(
        "C", {"g": {"p": 3.0, "q": 1.0}, "h": {"p": 1.0, "q": 0.0}}, "y", level=2, level_name="even"
    ),
    "flow": lambda: flow(
        "F", {"a": Box(0, 0, "a\n<b>", 1), "c": Box(1, 1, "+", None, True)}, [Arrow("a", "c", "l", True)]
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_a_drawing_is_sound_the_same_each_time_and_suits_light_and_dark(name: str) -> None:
    from xml.etree import ElementTree

    drawing = MADE[name]()
    assert drawing == MADE[name]()
    ElementTree.fromstring(drawing.svg)
    assert "prefers-color-scheme:dark" in drawing.svg
    assert not re.search(r"\d\.\d{3,}", drawing.svg), "coordinates have two decimals at most"
    assert len(drawing.text) > 1


def test_a_diagram_is_drawn_in_characters_where_it_fits_and_told_where_not() -> None:
    a, b, c = Box(0, 0, "a"), Box(1, 0, "two\nlines"), Box(1, 1, "c")
    drawing = flow("T", {"a": a, "b": b, "c": c}, [Arrow("a", "b", "on"), Arrow("b", "c"), Arrow("a", "c")])
    assert [line.rstrip() for line in drawing.text] == [
        "T",
        "",
        "┌───┐ on   ┌───────┐",
        "│ a │───┬─▶│  two  │",
        "└───┘   │  │ lines │",
        "        │  └───────┘",
        "        │      │",
        "        │      ▼",
        "        │    ┌───┐",
        "        └───▶│ c │",
        "             └───┘",
    ]
    wide = flow("T", {str(i): Box(i, 0, "a long name of a box") for i in range(6)}, [Arrow("0", "1", "so", True)])
    assert wide.text[2:4] == ("[a long name of a box]", "  ┄┄> a long name of a box  (so)")


def test_an_arrow_goes_around_what_stands_between() -> None:
    boxes = {"a": Box(0, 0, "a"), "b": Box(0, 1, "a wide one"), "c": Box(0, 2, "c")}
    text = flow("T", boxes, [Arrow("a", "b"), Arrow("b", "c"), Arrow("a", "c", "past", around=1)]).text
    assert any(line.endswith("│ past") for line in text)
    assert any(line.endswith("│ c │◀──────┘") for line in text), text


def test_formulas_are_letters_in_a_terminal() -> None:
    from plainformer.cli.learn import plain

    assert plain(r"$\frac{x_j - \mu}{\sqrt{\sigma^2 + \epsilon}}$") == "(x_j - μ) / (√(σ^2 + ε))"
    assert plain(r"$$\mathrm{softmax}(Q K^\top)$$") == "softmax(Q Kᵀ)"

"""The files of a lesson as cells: Python in the percent format, read as data and never imported.

# %% [markdown]                prose, each line after "# "
# %%                           code: shown with what it prints and what its last line gives
# %% [hidden]                  code that is run and not shown on the page (imports, numbers that prose needs)
# %% [figure: NAME]            code whose last line is a Drawing; saved as LESSON-NAME.svg
# %% [numbers]                 code whose last line is {id: (what it is, value)}: shown as a table
# %% [source: EXPRESSION]      the source of a function or class, shown; no body
# %% [measured: NAME]          what lessons/measured/NAME.json holds, as a table; no body
# %% [papers]                  the papers that the lesson's tags name; no body
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal, get_args

from plainformer.faults import refuse
from plainformer.lessons import LESSONS, Lesson

Kind = Literal["markdown", "code", "hidden", "figure", "numbers", "source", "measured", "papers"]
BARE = ("source", "measured", "papers")  # cells without a body
NAMED = ("figure", "source", "measured")  # cells that say which
HEADER = re.compile(r"# %%(?: \[(\w+)(?:: (.+))?\])?\s*$")


@dataclass(frozen=True)
class Cell:
    kind: Kind
    text: str  # markdown without its "# ", or code
    argument: str = ""
    file: str = ""
    line: int = 0  # of the first line of text


def texts(lesson: Lesson) -> Iterator[tuple[str, str]]:
    """Each file of a lesson, by name, and its text; none if the lesson is not written."""
    folder = files("plainformer.lessons") / lesson.name
    if folder.is_dir():
        for file in sorted((f for f in folder.iterdir() if f.name.endswith(".py")), key=lambda f: f.name):
            yield f"{lesson.name}/{file.name}", file.read_text(encoding="utf-8")


def written() -> list[Lesson]:
    """The lessons that are there."""
    return [lesson for lesson in LESSONS if next(texts(lesson), None)]


def found(asked: str) -> Lesson:
    """A lesson by its number or its name. Raises PlainformerError for one that is not there."""
    there = written()
    for lesson in there:
        if asked in (str(lesson.number), lesson.name, lesson.page):
            return lesson
    names = ", ".join(f"{lesson.number} {lesson.name}" for lesson in there)
    raise refuse("lesson", asked, "there is no such lesson", f"there are {names}")


def cells(file: str, text: str) -> Iterator[Cell]:
    """The cells of one file. Raises ValueError, naming the line, for what is no cell."""
    lines = text.splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("# %%")]
    if not starts or any(line.strip() for line in lines[: starts[0]]):
        raise ValueError(f"{file}:1: a lesson's file begins with a cell, `# %% [markdown]` or `# %% [hidden]`")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        header, body = HEADER.match(lines[start]), lines[start + 1 : end]
        kind = (header[1] or "code") if header else ""
        if not header or kind not in get_args(Kind):
            raise ValueError(f"{file}:{start + 1}: no such cell: {lines[start]}")
        if (kind in NAMED) != bool(header[2]):
            raise ValueError(f"{file}:{start + 1}: [{kind}] {'needs' if kind in NAMED else 'takes no'} argument")
        if kind == "markdown":
            if any(line.strip() and not re.match(r"#( |$)", line) for line in body):
                raise ValueError(f"{file}:{start + 1}: each line of prose begins with `# `")
            body = [line[2:] for line in body]
        if bool("".join(body).strip()) == (kind in BARE):
            raise ValueError(f"{file}:{start + 1}: [{kind}] {'has no' if kind in BARE else 'needs a'} body")
        yield Cell(kind, "\n".join(body), header[2] or "", file, start + 2)  # type: ignore[arg-type]

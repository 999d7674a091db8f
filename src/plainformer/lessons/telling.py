"""A lesson, told: its cells run in one namespace, its prose filled with their values, all faults collected."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from textwrap import dedent
from typing import Any

import numpy as np

from plainformer.lessons import Lesson, outline, prose
from plainformer.lessons.cells import Cell, cells, texts
from plainformer.lessons.papers import PAPERS, cited
from plainformer.report.drawings import Drawing

SHOWN = {"precision": 3, "suppress": True, "linewidth": 100}  # how arrays are printed


@dataclass(frozen=True)
class Piece:
    """One cell, told."""

    kind: str
    text: str  # markdown, filled; or code
    output: str = ""  # what code printed, and what its last line gave; the table of numbers
    name: str = ""  # of a figure or a measurement; of what source is shown
    drawing: Drawing | None = None


@dataclass
class Told:
    """A whole lesson."""

    lesson: Lesson
    pieces: list[Piece] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # file:line: what is wrong
    numbers: dict[str, tuple[str, Any]] = field(default_factory=dict)  # id -> (what it is, value)

    def drawings(self) -> dict[str, Drawing]:
        """Every figure, by its file's name."""
        named = ((f"{self.lesson.name}-{p.name}.svg", p.drawing) for p in self.pieces if p.kind == "figure")
        return {name: drawing for name, drawing in named if drawing}


def measured(name: str) -> dict[str, Any]:
    """What was measured and stored under this name: command, machine, date, seeds, columns, rows."""
    text = (files("plainformer.lessons") / "measured" / f"{name}.json").read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


def run(cell: Cell, names: prose.Names) -> tuple[Any, str]:
    """Run a code cell: (what its last line gives, what it printed). Raises whatever the code raises."""
    tree = ast.parse(cell.text)
    ast.increment_lineno(tree, cell.line - 1)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), np.printoptions(**SHOWN):  # type: ignore[arg-type]
        exec(compile(tree, f"<lesson {cell.file}>", "exec"), names)
        given = None
        if isinstance(last, ast.Expr):
            given = eval(compile(ast.Expression(last.value), f"<lesson {cell.file}>", "eval"), names)
        if given is not None and cell.kind == "code":
            print(repr(given))
    return given, printed.getvalue()


def source_of(expression: str, names: prose.Names) -> tuple[str, str]:
    """The source of what an expression names, and the file it stands in, from the package's root."""
    thing = eval(compile(expression, "source", "eval"), names)
    file = inspect.getsourcefile(inspect.unwrap(thing)) or ""
    place = file.replace("\\", "/").rpartition("/plainformer/")[2]
    if not place:
        raise ValueError(f"{expression} is none of this package's")
    return dedent(inspect.getsource(thing)).rstrip(), f"src/plainformer/{place}"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def measured_table(name: str) -> str:
    """A stored measurement: its table, then how, where and with which seeds it was made."""
    data = measured(name)
    rows = [[row[column] for column in data["columns"]] for row in data["rows"]]
    how = f"Measured by `{data['command']}` on {data['machine']}, {data['date']}; seeds {data['seeds']}."
    return f"{table(data['columns'], rows)}\n\n{how} {data['note']}".rstrip()


def shown(number: Any) -> str:
    """A value in the table of numbers: six digits, lists in brackets, counts with commas, rounding as such."""
    if isinstance(number, np.ndarray):
        number = number.tolist()
    if isinstance(number, list | tuple):
        return f"({', '.join(map(shown, number))})"
    if isinstance(number, bool | np.bool_ | str):
        return str(number).lower() if not isinstance(number, str) else number
    if isinstance(number, int | np.integer):
        return f"{number:,}"
    if 0 < abs(number) < 5e-13:
        return "below 1e-12"  # rounding, which differs from machine to machine
    return f"{number:,.10g}" if abs(number) >= 1e5 and float(number).is_integer() else f"{number:.6g}"


class Teller:
    """Tells one lesson's cells in turn. Kept apart from Told, which is only what came of it."""

    def __init__(self, lesson: Lesson) -> None:
        self.told = Told(lesson)
        self.names: prose.Names = {"__name__": f"lesson {lesson.name}"}
        self.title = ""
        self.sections: list[outline.Section] = []

    def fault(self, place: str, words: str) -> None:
        self.told.faults.append(f"{place}: {words}")

    def mark(self, mark: str, place: str) -> None:
        if self.sections:
            self.sections[-1].marks.append((mark, place))
            if self.sections[-1].parts and mark == "<code>":
                title, where, _ = self.sections[-1].parts[-1]
                self.sections[-1].parts[-1] = (title, where, True)

    def heading(self, block: prose.Block, place: str) -> str:
        level, _, title = block.text.partition(" ")
        if level == "#":
            self.title = title
        elif level == "##":
            self.sections.append(outline.Section(title, place))
            if title not in (*outline.FIRST, *outline.LAST):
                built = [s for s in self.sections if s.title not in (*outline.FIRST, *outline.LAST)]
                return f"## {len(built)}. {title}"
        elif self.sections:
            self.sections[-1].parts.append((title, place, False))
        return block.text

    def markdown(self, cell: Cell, then: Cell | None) -> Piece:
        found = list(prose.blocks(cell.text, cell.line))
        code = prose.Block("code", "", 0) if then and then.kind in ("code", "figure", "source", "measured") else None
        lines: list[str] = []
        label = ""
        for block, after in zip(found, [*found[1:], code], strict=True):
            place, faults = f"{cell.file}:{block.line}", list(prose.numbers(block))
            label = block.label if block.kind in ("words", "heading", "formula") else label
            if not prose.tagged(block, after, label):
                faults.append("a claim without a tag: where is it from? ([computed], [paper: ...], [inference] ...)")
            if block.kind == "heading":
                text = self.heading(block, place)
            else:
                text = prose.told(block, self.names, faults)
                if self.sections:
                    self.sections[-1].n_words += 1
            if block.kind == "formula":
                self.mark("<formula>", place)
            if block.label:
                self.mark(block.label, place)
            for fault in faults:
                self.fault(place, fault)
            tight = block.kind in ("row", "rule") or (block.kind == "item" and lines and lines[-1] == "\x01item")
            if lines and not tight:
                lines.append("")
            lines = [line for line in lines if line != "\x01item"]
            lines += [text, *(["\x01item"] if block.kind == "item" else [])]
        return Piece("markdown", "\n".join(line for line in lines if line != "\x01item"))

    def coded(self, cell: Cell) -> Piece:
        place = f"{cell.file}:{cell.line}"
        try:
            given, printed = run(cell, self.names)
        except Exception as fault:
            line = next(
                (e.lineno for e in reversed(inspect.trace()) if e.filename == f"<lesson {cell.file}>"), cell.line
            )
            self.fault(f"{cell.file}:{line}", f"the code fails: {type(fault).__name__}: {fault}")
            return Piece(cell.kind, cell.text)
        if cell.kind == "code":
            self.mark("<code>", place)
        if cell.kind == "figure":
            self.mark("<figure>", place)
            if not isinstance(given, Drawing):
                self.fault(place, f"a [figure] cell's last line gives a Drawing, not {type(given).__name__}")
                return Piece(cell.kind, cell.text)
            return Piece("figure", cell.text, printed, cell.argument, given)
        if cell.kind == "numbers":
            self.told.numbers |= given
            rows = [[what, shown(number)] for what, number in given.values()]
            return Piece("numbers", cell.text, table(["number", "value"], rows))
        return Piece(cell.kind, cell.text, printed)

    def bare(self, cell: Cell) -> Piece:
        place = f"{cell.file}:{cell.line - 1}"
        self.mark(f"<{cell.kind}>", place)
        try:
            if cell.kind == "source":
                text, file = source_of(cell.argument, self.names)
                return Piece("source", text, name=file)
            if cell.kind == "measured":
                return Piece("measured", measured_table(cell.argument), name=cell.argument)
        except Exception as fault:
            self.fault(place, f"[{cell.kind}: {cell.argument}]: {type(fault).__name__}: {fault}")
        return Piece(cell.kind, "")

    def tell(self, all_cells: Sequence[Cell]) -> Told:
        """All cells, then what only the whole shows: the outline, the papers."""
        for cell, then in zip(all_cells, [*all_cells[1:], None], strict=True):
            if cell.kind == "markdown":
                piece = self.markdown(cell, then)
            else:
                piece = (self.bare if cell.kind in ("source", "measured", "papers") else self.coded)(cell)
            self.told.pieces.append(piece)
        named = {paper for cell in all_cells if cell.kind == "markdown" for paper in prose.papers_in(cell.text)}
        papers = "\n".join(f"- {cited(paper)}" for paper in sorted(named & set(PAPERS)))
        self.told.pieces = [Piece("papers", papers) if p.kind == "papers" else p for p in self.told.pieces]
        for fault in outline.faults(self.title, self.told.lesson.title, self.sections):
            self.fault(self.told.lesson.name, fault)
        return self.told


def all_cells(lesson: Lesson) -> Iterator[Cell]:
    for file, text in texts(lesson):
        yield from cells(file, text)


@lru_cache
def tell(lesson: Lesson) -> Told:
    """A lesson of the package, told once a process."""
    return Teller(lesson).tell(list(all_cells(lesson)))

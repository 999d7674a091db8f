"""A told lesson as a page of Markdown, and as a notebook."""

from __future__ import annotations

import json
import re
from typing import Any

from plainformer.lessons import Lesson
from plainformer.lessons.telling import Piece, Told

PICTURES = "../pictures/lessons"  # from a page's folder
MADE = "<!-- Made from src/plainformer/lessons/{name}; `make docs` makes it anew. -->"


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def fold(title: str, text: str) -> str:
    """Text that a page opens when asked."""
    return f"<details><summary>{title}</summary>\n\n{text}\n\n</details>"


def folded(text: str) -> str:
    """Answers, folded under their questions."""
    return re.sub(
        r"^\*\*Answer\.\*\* (.+?)(?=\n\n|\Z)",
        lambda m: fold("Answer", m[1]),
        text,
        flags=re.S | re.M,
    )


def paragraph(piece: Piece, lesson: Lesson) -> str:
    """One piece in Markdown; what is hidden is folded away."""
    if piece.kind == "markdown":
        return folded(piece.text)
    if piece.kind == "code":
        output = f"\n\n{fenced('text', piece.output)}" if piece.output.strip() else ""
        return fenced("python", piece.text) + output
    if piece.kind == "hidden":
        return fold("The code that this part begins with", fenced("python", piece.text))
    if piece.kind == "figure" and piece.drawing:
        return f"![{piece.drawing.title}]({PICTURES}/{lesson.name}-{piece.name}.svg)"
    if piece.kind == "source":
        return f"[`{piece.name}`](../../{piece.name}):\n\n{fenced('python', piece.text)}"
    if piece.kind == "numbers":
        return fold("Every number of this lesson", piece.output)
    return piece.text if piece.kind in ("measured", "papers") else ""


def page(told: Told) -> str:
    """The whole page."""
    parts = [paragraph(piece, told.lesson) for piece in told.pieces]
    lesson = told.lesson
    there = f"In a terminal: `plainformer learn {lesson.number}`. All lessons: [contents](README.md)."
    body = [part for part in parts if part]
    first = next(i for i, part in enumerate(body) if part.startswith("# "))
    title, _, rest = body[first].partition("\n")
    body[first] = rest.strip()
    return "\n\n".join([MADE.format(name=lesson.name), title, there, *filter(None, body)]) + "\n"


def contents(lessons: list[Lesson]) -> str:
    """docs/lessons/README.md."""
    lines = [
        "# The lessons",
        "",
        "Every number on these pages is computed as the page is made, and every claim says where",
    ]
    lines += ["it is from. `plainformer learn` tells the same lessons in a terminal.", ""]
    lines += [f"{i + 1}. [{one.number}. {one.title}]({one.page}.md): {one.sentence}" for i, one in enumerate(lessons)]
    text = "\n".join(lines) + "\n"
    return re.sub(r"^\d+\. (?=\[)", "- ", text, flags=re.M)


def notebook(told: Told) -> str:
    """The lesson as a notebook, version 4.5 of its format: prose filled, code without outputs."""
    cells: list[dict[str, Any]] = []
    for i, piece in enumerate(told.pieces):
        code = piece.kind in ("code", "hidden", "figure", "numbers")
        text = piece.text if code else paragraph(piece, told.lesson)
        if not text:
            continue
        cell: dict[str, Any] = {"cell_type": "code" if code else "markdown", "id": f"cell-{i}", "metadata": {}}
        cell |= {"source": text.strip("\n").splitlines(keepends=True)}
        cells.append(cell | ({"execution_count": None, "outputs": []} if code else {}))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"

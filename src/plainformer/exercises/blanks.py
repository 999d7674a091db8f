"""A blank as text, and a file that holds blanks; what a person has written there is never lost."""

from __future__ import annotations

import ast
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from plainformer.check import examples
from plainformer.check.blank import is_blank
from plainformer.check.steps import LINES, Doing
from plainformer.exercises.table import WIDTH, Exercise
from plainformer.faults import refuse

IMPORTS = {"numpy": "import numpy as np", "torch": "import torch"}


def by_hand(exercise: Exercise) -> str:
    """The worked example: its inputs and its answer, computed."""
    topic = exercise.of
    inputs = examples.filled(topic, {**topic.example, **exercise.example})
    with np.errstate(all="ignore"):
        answer = examples.said(np.asarray(topic.run(Doing(), inputs)))
    names = exercise.shown or {
        name: "_".join(reversed(name.split("."))) for name in (*topic.example, *exercise.example)
    }
    settled = () if exercise.shown else ("activation", "causal", "n_kv_heads" * ("n_kv_heads" not in exercise.example))
    told = [
        f"{said} = {of(inputs[name])}"
        for name, said in names.items()
        if name not in settled and inputs[name] is not None
    ]
    return f"{', '.join(told)}: {answer}"


def of(value: object) -> str:
    return examples.said(value) if isinstance(value, np.ndarray) else examples.short_number(value)


def blank(exercise: Exercise) -> str:
    """Its signature, the law in words and as formula, the example, and NotImplementedError."""
    law, example = wrapped(exercise.law), wrapped(f"By hand: {by_hand(exercise)}")
    formula = [row for name in exercise.steps for row in wrapped(LINES[name], "    ")]
    docstring = "\n".join(['    """' + law[0].strip(), *law[1:], "", *formula, "", *example, '    """'])
    return exercise.code.replace("    ...", docstring, 1)


def wrapped(text: str, more: str = "") -> list[str]:
    indent = "    " + more
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


# --- a file of them --------------------------------------------------------------------------------------------------


def defined(path: Path, text: str) -> dict[str, tuple[int, int]]:
    """What a file defines at its top: first and last line (from 0, the last excluded), its decorators too."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError) as fault:
        line = getattr(fault, "lineno", None) or 1
        raise refuse("--to", f"{path}:{line}", "is no Python that can be read", "mend this line first") from None
    kinds = (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
    return {
        one.name: (min([one.lineno, *(d.lineno for d in one.decorator_list)]) - 1, one.end_lineno or one.lineno)
        for one in body
        if isinstance(one, kinds)
    }


def put(exercises: Sequence[Exercise], path: Path, force: bool = False) -> list[Exercise]:
    """Write their blanks into a file, new or with others in it; those that were written.

    A blank that stands there already stays as it is. What is no blank any more is work: it is refused, or with `force`
    begun anew, and the file as it was is kept beside it. Whole or not at all.
    """
    before = read(path)
    text, written = before, []
    for one in exercises:
        there = defined(path, text)
        if one.name not in there:
            text = f"{text.rstrip()}\n\n\n{blank(one)}" if text.strip() else blank(one)
            written.append(one)
            continue
        first, last = there[one.name]
        lines = text.splitlines(keepends=True)
        if is_blank("".join(lines[first:last])):
            continue
        if not force:
            raise refuse("--to", str(path), f"holds a {one.name} of yours",
                         "--force begins it anew, and keeps the file as it is beside it")  # fmt: skip
        text = "".join(lines[:first]) + blank(one) + "".join(lines[last:])
        written.append(one)
    if not written:
        return []
    if before.strip() and any(one.name in defined(path, before) for one in written):
        store(kept_beside(path), before)
    store(path, with_imports(text, [one.module for one in exercises]))
    return written


def kept_beside(path: Path) -> Path:
    """A name that is free for the file as it was."""
    number = 1
    while (beside := path.with_name(f"{path.stem}-before-{number}{path.suffix}")).exists():
        number += 1
    return beside


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8") if path.exists() else ""
    except (OSError, UnicodeDecodeError) as fault:
        raise refuse("--to", str(path), f"cannot be read: {fault}", "name a Python file") from None


def store(path: Path, text: str) -> None:
    """The whole file or none of it."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        os.replace(part, path)
    except OSError as fault:
        raise refuse("--to", str(path), f"cannot be written: {fault.strerror}", "name a file in a folder") from None


def with_imports(text: str, modules: Sequence[str]) -> str:
    """The file with the imports that its blanks need, after its docstring and what it must import first."""
    body = ast.parse(text).body
    there = {alias.name for one in body if isinstance(one, ast.Import) for alias in one.names}
    lacking = [IMPORTS[name] for name in dict.fromkeys(modules) if name not in there]
    if not lacking:
        return text
    after, gap = 0, ""
    for number, one in enumerate(body):
        if number == 0 and isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
            gap = "\n"
        elif isinstance(one, (ast.Import, ast.ImportFrom)):
            gap = ""
        else:
            break
        after = one.end_lineno or after
    lines = text.splitlines(keepends=True)
    rest = "".join(lines[after:]).lstrip("\n")
    imports = "".join(f"{one}\n" for one in lacking)
    return "".join(lines[:after]) + gap + imports + "\n\n" + rest

"""What lessons' prose and code need to say values: vectors, matrices, links to other lessons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from plainformer.lessons import LESSONS
from plainformer.lessons.cells import written
from plainformer.lessons.telling import measured as measured


def vector(numbers: Iterable[Any], form: str = ".3f") -> str:
    """(1.000, -0.447): numbers as prose shows them; -0.000 loses its sign."""
    said = (format(0.0 if float(format(float(x), form).replace(",", "")) == 0 else x, form) for x in numbers)
    return f"({', '.join(said)})"


def small(number: float, least: float = 1e-12) -> str:
    """A difference as a page may show it: what is only rounding differs from machine to machine."""
    return f"below {least:.0e}" if abs(number) < least else f"{abs(number):.1e}"


def power(number: float, digits: int = 2) -> str:
    """A large number by its power of ten: 5.88 × 10²¹; zeros at the end are left out."""
    said, _, exponent = f"{number:.{digits}e}".partition("e")
    said = said.rstrip("0").rstrip(".") if "." in said else said
    return f"{said} × 10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def rows(matrix: Any, form: str = ".3f") -> str:
    """A matrix's rows one after another: (1, 0), (0, 1)."""
    return ", ".join(vector(row, form) for row in np.asarray(matrix))


def lesson(name: str) -> str:
    """A link to another lesson's page by its name: [lesson 2: Attention](02-attention.md). Words alone before that
    lesson is written."""
    one = next(one for one in LESSONS if one.name == name)
    words = f"lesson {one.number}: {one.title}"
    return f"[{words}]({one.page}.md)" if one in written() else words

"""A line in a terminal: dots of Braille, eight to a character, or stars where the stream cannot hold them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

# The bit of each dot in its character: two columns, four rows (Unicode 8.2, block Braille Patterns).
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
BLANK = 0x2800


def levels(points: Sequence[tuple[float, float]], n_columns: int) -> list[float]:
    """The mean y of the points in each of n_columns of equal width along x; between columns that have some, a straight
    line."""
    first, last = points[0][0], points[-1][0]
    sums, counts = [0.0] * n_columns, [0] * n_columns
    for x, y in points:
        column = min(n_columns - 1, int((x - first) / (last - first or 1) * n_columns))
        sums[column] += y
        counts[column] += 1
    known = [i for i, n in enumerate(counts) if n]
    found = [sums[known[0]] / counts[known[0]]]
    for left, right in pairwise(known):
        a, b = (sums[i] / counts[i] for i in (left, right))
        found += [a + (b - a) * (i - left) / (right - left) for i in range(left + 1, right + 1)]
    return found


def curve(points: Sequence[tuple[float, float]], width: int = 60, height: int = 8, plain: bool = False) -> list[str]:
    """Lines of text that draw the points, x rising: the highest and lowest level at the left, x's ends below."""
    if not points:
        return []
    across, down = (1, 1) if plain else (2, 4)
    heights = levels(points, across * width)
    low, high = min(heights), max(heights)
    span, n_rows = high - low or 1.0, down * height
    cells = [[0] * width for _ in range(height)]
    before: int | None = None
    for column, y in enumerate(heights):
        here = round((high - y) / span * (n_rows - 1))
        near = here if before is None or abs(here - before) < 2 else before + (1 if here > before else -1)
        for row in range(min(near, here), max(near, here) + 1):  # joined to the dot before
            cells[row // down][column // across] |= 1 if plain else DOTS[row % down][column % across]
        before = here
    names = [f"{high:.2f}", *[""] * (height - 2), f"{low:.2f}"]
    side = max(map(len, names))
    drawn = [
        "".join((" *"[dots > 0] if plain else chr(BLANK + dots) if dots else " ") for dots in row) for row in cells
    ]
    lines = [f"{name:>{side}} {row}".rstrip() for name, row in zip(names, drawn, strict=True)]
    first, last = f"{points[0][0]:,.10g}", f"{points[-1][0]:,.10g}"
    return [*lines, f"{'':{side}} {first}{last:>{max(width - len(first), len(last) + 1)}}"]

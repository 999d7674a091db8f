"""A diagram's boxes and arrows as characters, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plainformer.report.diagrams import Arrow, Box

NORTH, EAST, SOUTH, WEST = 1, 2, 4, 8
LINES = " ╵╶└╷│┌├╴┘─┴┐┤┬┼"  # by the sides that a cell's line reaches
HEADS = {(1, 0): "▶", (-1, 0): "◀", (0, 1): "▼", (0, -1): "▲"}
MOST = 100  # columns of a drawing; a wider one is told instead
Cell = tuple[int, int]


@dataclass(frozen=True)
class Frame:
    """Where a box stands: its borders and its middle."""

    left: int
    right: int
    top: int
    bottom: int

    @property
    def x(self) -> int:
        return (self.left + self.right) // 2

    @property
    def y(self) -> int:
        return self.top + (self.bottom - self.top) // 2


def bands(places: Sequence[float], sizes: Sequence[int], gap: int, first: int = 0) -> dict[float, Cell]:
    """For each place along one side: where its band begins, and how wide the widest in it is."""
    found, at = {}, first
    for place in sorted(set(places)):
        size = max(s for p, s in zip(places, sizes, strict=True) if p == place)
        found[place] = at, size
        at += size + gap
    return found


def frames(boxes: Mapping[str, Box], arrows: Sequence[Arrow]) -> dict[str, Frame]:
    widths = {name: max(map(len, box.text.split("\n"))) + 4 for name, box in boxes.items()}
    heights = {name: len(box.text.split("\n")) + 2 for name, box in boxes.items()}
    level = [a for a in arrows if boxes[a.start].row == boxes[a.end].row]
    upright = any(boxes[a.start].column == boxes[a.end].column for a in arrows)
    gap_x = max([5, *(len(a.label) + 4 for a in level if not a.around)])
    gap_y = 2 if upright or any(a.around for a in level) else 1
    above = any(a.around < 0 for a in level)
    columns = bands([box.column for box in boxes.values()], list(widths.values()), gap_x)
    rows = bands([box.row for box in boxes.values()], list(heights.values()), gap_y, int(above))
    found = {}
    for name, box in boxes.items():
        (x, wide), (y, tall) = columns[box.column], rows[box.row]
        left, top = x + (wide - widths[name]) // 2, y + (tall - heights[name]) // 2
        found[name] = Frame(left, left + widths[name] - 1, top, top + heights[name] - 1)
    return found


def way(arrow: Arrow, boxes: Mapping[str, Box], at: Mapping[str, Frame]) -> list[Cell]:
    """The corners of an arrow's line, from beside its first box to beside its last."""
    a, b = at[arrow.start], at[arrow.end]
    one, other = boxes[arrow.start], boxes[arrow.end]
    if arrow.around and one.column == other.column:
        column = [at[name] for name, box in boxes.items() if box.column == one.column]
        x = max(f.right for f in column) + 3 if arrow.around > 0 else min(f.left for f in column) - 3
        sides = (a.right + 1, b.right + 1) if arrow.around > 0 else (a.left - 1, b.left - 1)
        return [(sides[0], a.y), (x, a.y), (x, b.y), (sides[1], b.y)]
    if arrow.around:
        row = [at[name] for name, box in boxes.items() if box.row == one.row]
        y = max(f.bottom for f in row) + 2 if arrow.around > 0 else min(f.top for f in row) - 2
        ends = (a.bottom + 1, b.bottom + 1) if arrow.around > 0 else (a.top - 1, b.top - 1)
        return [(a.x, ends[0]), (a.x, y), (b.x, y), (b.x, ends[1])]
    if one.column == other.column:
        return [(a.x, a.bottom + 1), (a.x, b.top - 1)] if a.y < b.y else [(a.x, a.top - 1), (a.x, b.bottom + 1)]
    start, end = (a.right + 1, b.left - 1) if a.x < b.x else (a.left - 1, b.right + 1)
    if one.row == other.row:
        return [(start, a.y), (end, a.y)]
    column = [at[name] for name, box in boxes.items() if box.column == other.column]
    middle = min(f.left for f in column) - 3 if a.x < b.x else max(f.right for f in column) + 3
    return [(start, a.y), (middle, a.y), (middle, b.y), (end, b.y)]


def drawn(boxes: Mapping[str, Box], arrows: Sequence[Arrow]) -> list[str] | None:
    """The lines of the drawing; None where it would be too wide."""
    at = frames(boxes, arrows)
    ways = [way(arrow, boxes, at) for arrow in arrows]
    shift = max(0, -min(x for line in ways for x, _ in line)), max(0, -min(y for line in ways for _, y in line))
    sides: dict[Cell, int] = {}
    signs: dict[Cell, str] = {}
    for line in ways:
        for (x0, y0), (x1, y1) in pairwise(line):
            dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
            out = EAST if dx > 0 else WEST if dx < 0 else SOUTH if dy > 0 else NORTH
            back = {EAST: WEST, WEST: EAST, NORTH: SOUTH, SOUTH: NORTH}[out]
            x, y = x0, y0
            while (x, y) != (x1, y1):
                sides[x, y] = sides.get((x, y), 0) | out
                x, y = x + dx, y + dy
                sides[x, y] = sides.get((x, y), 0) | back
    for line in ways:  # a line touches the box that it leaves
        (x0, y0), (x1, y1) = line[:2]
        sides[x0, y0] |= EAST | WEST if y0 == y1 else NORTH | SOUTH
        (x0, y0), (x1, y1) = line[-2:]
        step = ((x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0))
        signs[x1, y1] = HEADS.get(step, "▶")
    canvas = {cell: LINES[mask] for cell, mask in sides.items()} | signs
    for arrow, line in zip(arrows, ways, strict=True):
        (x0, y0), (x1, y1) = line[len(line) // 2 - 1 : len(line) // 2 + 1]
        upright = x0 == x1
        x = x0 + 2 if upright else (x0 + x1 - len(arrow.label)) // 2
        y = (y0 + y1) // 2 if upright else y0 - 1
        spots = {(x + i, y): c for i, c in enumerate(arrow.label)}
        canvas |= {spot: c for spot, c in spots.items() if spot not in canvas}
    for name, f in at.items():
        text = boxes[name].text.split("\n")
        inner = f.right - f.left - 1
        rows = [f"┌{'─' * inner}┐", *(f"│{part:^{inner}}│" for part in text), f"└{'─' * inner}┘"]
        canvas |= {(f.left + i, f.top + j): c for j, row in enumerate(rows) for i, c in enumerate(row)}
    wide, tall = max(x for x, _ in canvas) + shift[0] + 1, max(y for _, y in canvas) + shift[1] + 1
    if wide > MOST:
        return None
    return ["".join(canvas.get((x - shift[0], y - shift[1]), " ") for x in range(wide)).rstrip() for y in range(tall)]

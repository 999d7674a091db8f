"""Boxes and arrows: a diagram as data, drawn as SVG and told as lines for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from plainformer.report.boxes import drawn as characters
from plainformer.report.drawings import Drawing
from plainformer.report.svg import escape, number, page, words

GAP_X, GAP_Y, LINE = 44.0, 30.0, 17.0
Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A box at a place of the grid, counted from 0. Its text may have several lines; kind: which colour, if any."""

    column: float
    row: float
    text: str
    kind: int | None = None
    round: bool = False  # a circle: "+", "softmax"


@dataclass(frozen=True)
class Arrow:
    start: str
    end: str
    label: str = ""
    dashed: bool = False
    around: int = 0  # leaves the straight way: -1 by the left side (or above), 1 by the right (or below)


def flow(title: str, boxes: Mapping[str, Box], arrows: Sequence[Arrow]) -> Drawing:
    """Boxes on a grid, joined by arrows. Arrows name boxes by their keys; an unknown one raises KeyError."""
    sizes = {name: size(one) for name, one in boxes.items()}
    wide = max(w for w, _ in sizes.values())
    tall = max(h for _, h in sizes.values())
    room = 34 * any(arrow.around < 0 for arrow in arrows)
    left, top = (min(getattr(box, side) for box in boxes.values()) for side in ("column", "row"))

    def middle(name: str) -> tuple[float, float]:
        one = boxes[name]
        x = 24 + room + wide / 2 + (one.column - left) * (wide + GAP_X)
        return x, 52 + room / 2 + tall / 2 + (one.row - top) * (tall + GAP_Y)

    body = [words(16, 28, title, "t"), MARKER]
    ends = [middle(name)[0] + wide / 2 for name in boxes]
    for arrow in arrows:
        shapes, end = drawn(arrow, sizes, middle)
        body += shapes
        ends.append(end)
    for name, one in boxes.items():
        (x, y), (w, h) = middle(name), sizes[name]
        look = f'class="f c{one.kind}" fill-opacity="0.22"' if one.kind is not None else 'class="p"'
        corner = h / 2 if one.round else 6
        body.append(
            f'<rect class="p" x="{number(x - w / 2)}" y="{number(y - h / 2)}" width="{number(w)}" '
            f'height="{number(h)}" rx="{number(corner)}"/>'
        )
        body.append(
            f'<rect {look} style="stroke:var(--soft)" x="{number(x - w / 2)}" y="{number(y - h / 2)}" '
            f'width="{number(w)}" height="{number(h)}" rx="{number(corner)}"/>'
        )
        lines = one.text.split("\n")
        for i, line in enumerate(lines):
            kind = "m" if i == 0 else "m s"
            body.append(words(x, y + 4 + LINE * (i - (len(lines) - 1) / 2), line, kind))
    right = max(ends) + 24
    low = max(middle(name)[1] + tall / 2 for name in boxes) + 20 + 17 * any(arrow.around > 0 for arrow in arrows)
    text = [title, "", *(characters(boxes, arrows) or told(boxes, arrows))]
    return Drawing(title, page(right, low, title, body), tuple(text))


MARKER = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" style="fill:var(--soft)"/></marker></defs>'
)


def size(one: Box) -> tuple[float, float]:
    lines = one.text.split("\n")
    w, h = 20 + 7.2 * max(map(len, lines)), 16 + LINE * len(lines)
    return (max(w, h), h) if one.round else (max(w, 60), h)


def drawn(arrow: Arrow, sizes: Mapping[str, Point], middle: Callable[[str], Point]) -> tuple[list[str], float]:
    """An arrow from edge to edge: straight on a row or a column, one bend else, two bends when it goes around. And how
    far to the right it reaches with its label."""
    (x0, y0), (x1, y1) = middle(arrow.start), middle(arrow.end)
    (w0, h0), (w1, h1) = sizes[arrow.start], sizes[arrow.end]
    if arrow.around and abs(x0 - x1) < 1:  # down a column, by its side
        side = arrow.around
        low, high = sorted((y0, y1))
        passed = [
            w for name, (w, _) in sizes.items() if abs(middle(name)[0] - x0) < 1 and low <= middle(name)[1] <= high
        ]
        x = side * (max(passed, default=0) / 2 + 22) + x0
        points = [(x0 + side * w0 / 2, y0), (x, y0), (x, y1), (x1 + side * w1 / 2, y1)]
    elif arrow.around:  # along a row, above or below
        low, high = sorted((x0, x1))
        passed = [
            h for name, (_, h) in sizes.items() if abs(middle(name)[1] - y0) < 1 and low <= middle(name)[0] <= high
        ]
        y = y0 + arrow.around * (max(passed, default=0) / 2 + 14)
        points = [(x0, y0 + arrow.around * h0 / 2), (x0, y), (x1, y), (x1, y1 + arrow.around * h1 / 2)]
    elif abs(y0 - y1) < 1:
        way = 1 if x1 > x0 else -1
        points = [(x0 + way * w0 / 2, y0), (x1 - way * w1 / 2, y1)]
    elif abs(x0 - x1) < 1:
        way = 1 if y1 > y0 else -1
        points = [(x0, y0 + way * h0 / 2), (x1, y1 - way * h1 / 2)]
    else:  # out by the side to the middle between the columns, in by the side
        way = 1 if x1 > x0 else -1
        start, end = x0 + way * w0 / 2, x1 - way * w1 / 2
        points = [(start, y0), ((start + end) / 2, y0), ((start + end) / 2, y1), (end, y1)]
    path = "L".join(f"{number(x)} {number(y)}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if arrow.dashed else ""
    out = [f'<path style="fill:none;stroke:var(--soft);stroke-width:1.5"{dashes} marker-end="url(#a)" d="M{path}"/>']
    end = max(x for x, _ in points)
    if arrow.label:
        (xa, ya), (xb, yb) = points[len(points) // 2 - 1 : len(points) // 2 + 1]
        upright = abs(xa - xb) < 1
        x, y = (xa + xb) / 2 + (6 if upright else 0), (ya + yb) / 2 + (4 if upright else 16 if arrow.around > 0 else -6)
        out.append(
            f'<text x="{number(x)}" y="{number(y)}" class="s{"" if upright else " m"}">{escape(arrow.label)}</text>'
        )
        end = max(end, x + (7 if upright else 3.5) * len(arrow.label))
    return out, end


def told(boxes: Mapping[str, Box], arrows: Sequence[Arrow]) -> list[str]:
    """Each box once, in reading order, with where its arrows lead."""
    lines = []
    for name in sorted(boxes, key=lambda key: (boxes[key].row, boxes[key].column)):
        first, *rest = boxes[name].text.split("\n")
        lines.append(f"[{first}]" + (f"  {' '.join(rest)}" if rest else ""))
        for arrow in arrows:
            if arrow.start == name:
                label = f"  ({arrow.label})" if arrow.label else ""
                lines.append(f"  {'┄┄' if arrow.dashed else '──'}> {boxes[arrow.end].text.split(chr(10))[0]}{label}")
    return lines

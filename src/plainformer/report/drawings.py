"""Pictures that a page and a terminal can both show: the same data as SVG and as lines of text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plainformer.report import svg
from plainformer.report.curves import curve
from plainformer.report.figures import bar
from plainformer.report.svg import Points, box, colour, margin, number, page, shortened, tick_label, ticks, words

SHADES = " ░▒▓█"


@dataclass(frozen=True)
class Drawing:
    """One picture. `text`: its lines for a terminal, without colours."""

    title: str
    svg: str
    text: tuple[str, ...]

    def _repr_html_(self) -> str:  # what a notebook shows
        return self.svg


def lines(title: str, series: Mapping[str, Points], x_label: str, y_label: str) -> Drawing:
    """Named lines through (x, y) points, x rising; one line a name."""
    text: list[str] = [title]
    for name, points in series.items():
        text += ["", f"{y_label}: {name}", *curve([(float(x), float(y)) for x, y in points], height=6)]
    return Drawing(title, svg.line_chart(series, title, x_label, y_label), (*text, f"({x_label})"))


def maps(
    title: str,
    named: Mapping[str, Sequence[Sequence[float]]],
    rows: Sequence[str],
    columns: Sequence[str],
    across: int = 4,
    cell: float = 26,
) -> Drawing:
    """Squares of numbers between 0 and 1 (attention: a row is a query, a column a key), `across` maps side by side.

    In a terminal each number is a shade, and is written where a map has at most eight columns.
    """
    side = max(map(len, rows), default=0)
    text = [title]
    for name, weights in named.items():
        text += ["", f"{name}:"]
        for row, values in zip(rows, weights, strict=True):
            shades = "".join(SHADES[min(len(SHADES) - 1, int(float(v) * len(SHADES)))] * 2 for v in values)
            written = " ".join(f"{float(v):.2f}" for v in values) if len(columns) <= 8 else ""
            text.append(f"  {row:>{side}} |{shades}|  {written}".rstrip())
    drawn = svg.heat_maps(
        [(n, [[float(v) for v in r] for r in m]) for n, m in named.items()], title, rows, columns, across, cell
    )
    return Drawing(title, drawn, tuple(text))


def shares(title: str, rows: Mapping[str, Mapping[str, int]]) -> Drawing:
    """For each row a bar of its parts' shares, with its total."""
    text = [title]
    for row, parts in rows.items():
        total = sum(parts.values()) or 1
        text += ["", f"{row}: {total:,}"]
        text += [f"  {name:<14} {bar(n / total, 30)} {100 * n / total:.1f} %" for name, n in parts.items() if n]
    return Drawing(title, svg.stacked(title, rows), tuple(text))


def columns(
    title: str,
    groups: Mapping[str, Mapping[str, float]],
    y_label: str,
    x_label: str = "",
    level: float | None = None,
    level_name: str = "",
) -> Drawing:
    """Upright bars, one a group, stacked of its parts, their sum on top; `level`: a dashed line across."""
    parts = list(dict.fromkeys(name for group in groups.values() for name in group))
    sums = {name: sum(group.values()) for name, group in groups.items()}
    high = max([*sums.values(), level or 0.0]) * 1.1 or 1.0
    left, top, tall = 72.0, 72.0 if len(parts) > 1 or level is not None else 52.0, 260.0
    step = max(44.0, min(110.0, 540 / max(len(groups), 1)))
    wide = step * len(groups)

    def at(value: float) -> float:
        return top + tall * (1 - value / high)

    body, x = [words(16, 28, title, "t")], 16.0
    for i, name in enumerate(parts if len(parts) > 1 else []):
        body += [box(x, 42, 12, 12, f"f {colour(i)}"), words(x + 17, 52, name)]
        x += 30 + 7 * len(name)
    if level is not None:
        body += [f'<path class="l c5" stroke-dasharray="5 4" d="M{number(x)} 48H{number(x + 18)}"/>']
        body += [words(x + 24, 52, level_name)]
    for tick in ticks(0, high):
        body.append(f'<path class="g" d="M{number(left)} {number(at(tick))}H{number(left + wide)}"/>')
        body.append(words(left - 8, at(tick) + 4, tick_label(tick), "s e"))
    for j, (name, group) in enumerate(groups.items()):
        x0, base = left + step * (j + 0.15), 0.0
        for part, value in group.items():
            of = colour(parts.index(part))
            body.append(box(x0, at(base + value), step * 0.7, at(base) - at(base + value), f"f {of}"))
            base += value
        body.append(
            words(
                left + step * (j + 0.5), at(base) - 6, f"{sums[name]:,.4g}" if high < 1e4 else f"{sums[name]:,.0f}", "m"
            )
        )
        body.append(words(left + step * (j + 0.5), top + tall + 18, shortened(name, 14), "m"))
    if level is not None:
        body.append(
            f'<path class="l c5" stroke-dasharray="5 4" d="M{number(left)} {number(at(level))}h{number(wide)}"/>'
        )
    middle = number(top + tall / 2)
    body.append(words(left + wide / 2, top + tall + 38, x_label, "m"))
    body.append(words(18, top + tall / 2, y_label, "m", f' transform="rotate(-90 18 {middle})"'))
    text = [title, ""]
    side = min(int(margin(groups) / 7), 24)
    for name, group in groups.items():
        split = "  ".join(f"{part} {value:,.4g}" for part, value in group.items()) if len(parts) > 1 else ""
        text.append(f"{name:>{side}} {bar(sums[name] / high, 40)} {sums[name]:,.5g}  {split}".rstrip())
    if level is not None:
        text.append(f"{'':>{side}} {level_name}: {level:,.5g}")
    return Drawing(title, page(left + wide + 24, top + tall + 52, title, body), tuple(text))

"""Pictures as SVG text, made by hand: the same input gives the same bytes, on light and dark pages alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from plainformer.report.figures import label, percent

# Colours that stay apart for most eyes (Okabe and Ito 2008), a little lighter on dark pages.
LIGHT = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#8f7a00", "#5b5bd6")
DARK = ("#4aa3df", "#f0b429", "#2bc295", "#e29cc4", "#7cc7f0", "#f07b3f", "#b3b3b3", "#d6bc2e", "#9090f5")

MARKS = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
Points = Sequence[tuple[float, float]]


def escape(text: str) -> str:
    """Text that XML can hold: marked characters escaped, control characters shown by their pictures."""
    shown = []
    for character in text:
        code = ord(character)
        if code < 32:
            shown.append(chr(0x2400 + code))
        elif code == 127 or 0x80 <= code < 0xA0 or 0xD800 <= code < 0xE000 or code & 0xFFFE == 0xFFFE:
            shown.append("\N{REPLACEMENT CHARACTER}")
        else:
            shown.append(MARKS.get(character, character))
    return "".join(shown)


def number(value: float) -> str:
    """A coordinate: two decimals at most, no trailing zeros, no -0."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def colour(i: int) -> str:
    """The class of the i-th colour."""
    return f"c{i % len(LIGHT)}"


def page(width: float, height: float, title: str, body: Sequence[str]) -> str:
    """A whole picture: size, title for screen readers, style for light and dark pages."""
    light = "".join(f".c{i}{{--c:{of}}}" for i, of in enumerate(LIGHT))
    dark = "".join(f".c{i}{{--c:{of}}}" for i, of in enumerate(DARK))
    style = (
        "svg{--ink:#1f2328;--soft:#656d76;--line:#d0d7de;--paper:#ffffff}"
        f"{light}@media(prefers-color-scheme:dark){{"
        f"svg{{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--paper:#0d1117}}{dark}}}"
        "text{font:12px system-ui,sans-serif;fill:var(--ink)}.t{font-size:15px;font-weight:600}"
        ".s{fill:var(--soft)}.e{text-anchor:end}.m{text-anchor:middle}.g{stroke:var(--line)}"
        ".f{fill:var(--c)}.l{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}"
        ".p{fill:var(--paper)}"
    )
    w, h = number(max(width, 32 + 9.1 * len(title))), number(height)  # no title is cut
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" '
        f'aria-label="{escape(title)}">'
    )
    paper = f'<rect class="p" width="{w}" height="{h}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<style>{style}</style>", paper, *body, "</svg>\n"])


def words(x: float, y: float, text: str, kind: str = "", more: str = "") -> str:
    attributes = (f' class="{kind}"' if kind else "") + more
    return f'<text x="{number(x)}" y="{number(y)}"{attributes}>{escape(text)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str, more: str = "") -> str:
    sides = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    return f'<rect class="{kind}" {sides}{more}/>'


# --- bars -------------------------------------------------------------------------------------------------------------


def margin(names: Iterable[str]) -> float:
    """Room at the left for the longest name."""
    return 30 + 7.0 * max((len(shortened(name)) for name in names), default=0)


def shortened(name: str, most: int = 32) -> str:
    """A path's end says more than its start."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


def bars(title: str, values: Mapping[str, int]) -> str:
    """One bar for each name, with its number and its share of them all; a name without any keeps its colour."""
    shown = {name: value for name, value in values.items() if value}
    total, longest = sum(shown.values()), max(shown.values(), default=0) or 1
    left, wide, step = margin(shown), 360.0, 26.0
    body = [words(16, 28, title, "t")]
    for i, (name, value) in enumerate(shown.items()):
        y, end = 48 + step * i, left + wide * value / longest
        body.append(words(left - 10, y + 14, shortened(name), "e"))
        body.append(box(left, y, end - left, 18, f"f {colour(list(values).index(name))}"))
        body.append(words(end + 8, y + 14, f"{value:,} ({percent(value, total)})", "s"))
    return page(left + wide + 190, 48 + step * len(shown) + 12, title, body)


def stacked(title: str, rows: Mapping[str, Mapping[str, int]]) -> str:
    """For each row one bar of its parts' shares; totals at the right, the parts' colours above."""
    every = list(dict.fromkeys(name for parts in rows.values() for name in parts))
    names = {name: colour(i) for i, name in enumerate(every) if any(parts.get(name) for parts in rows.values())}
    left, wide, step = margin(rows), 460.0, 26.0
    body, x, y = [words(16, 28, title, "t")], 16.0, 52.0
    for name, of in names.items():
        needed = 30 + 7 * len(name)
        if x + needed > left + wide + 90:
            x, y = 16.0, y + 20
        body += [box(x, y - 10, 12, 12, f"f {of}"), words(x + 17, y, name)]
        x += needed
    top = y + 18
    for j, (row, parts) in enumerate(rows.items()):
        x, y, total = left, top + step * j, sum(parts.values())
        body.append(words(left - 10, y + 14, shortened(row), "e"))
        for name, of in names.items():
            share = wide * parts.get(name, 0) / (total or 1)
            if share:
                body.append(box(x, y, share, 18, f"f {of}"))
            x += share
        body.append(words(left + wide + 8, y + 14, label(total), "s"))
    return page(left + wide + 90, top + step * len(rows) + 12, title, body)


# --- lines ------------------------------------------------------------------------------------------------------------


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers within [low, high], about as many as asked for: steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if span <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(power * m for m in (1, 2, 5, 10) if span / (power * m) <= about)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def tick_label(value: float) -> str:
    return f"{value:,.10g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.3g}"


def line_chart(series: Mapping[str, Points], title: str, x_label: str, y_label: str) -> str:
    """Named lines through (x, y) points. Points that are not finite break a line; a lone point is a dot."""
    finite = [point for points in series.values() for point in points if all(map(math.isfinite, point))]
    xs, ys = [x for x, _ in finite] or [0.0], [y for _, y in finite] or [0.0]
    x_low, x_high, y_low, y_high = min(xs), max(xs), min(ys), max(ys)
    if x_low == x_high:
        x_low, x_high = x_low - 0.5, x_high + 0.5
    room = (y_high - y_low) * 0.05 or 0.5
    y_low, y_high = y_low - room, y_high + room
    left, wide, tall = 72.0, 540.0, 280.0
    names, under = legend(list(series) if len(series) > 1 else [], left + wide)
    top = 48.0 if under is None else under + 18

    def at(x: float, y: float) -> tuple[float, float]:
        return left + wide * (x - x_low) / (x_high - x_low), top + tall * (y_high - y) / (y_high - y_low)

    body = [words(16, 28, title, "t")]
    for tick in ticks(y_low, y_high):
        _, y = at(x_low, tick)
        body.append(f'<path class="g" d="M{number(left)} {number(y)}H{number(left + wide)}"/>')
        body.append(words(left - 8, y + 4, tick_label(tick), "s e"))
    for tick in ticks(x_low, x_high):
        body.append(words(at(tick, y_low)[0], top + tall + 18, tick_label(tick), "s m"))
    body.append(words(left + wide / 2, top + tall + 38, x_label, "m"))
    middle = number(top + tall / 2)
    body.append(words(18, top + tall / 2, y_label, "m", f' transform="rotate(-90 18 {middle})"'))
    for i, points in enumerate(series.values()):
        body += line(colour(i), [at(*p) if all(map(math.isfinite, p)) else None for p in points])
    body += names
    return page(left + wide + 24, top + tall + 52, title, body)


def legend(names: Sequence[str], right: float) -> tuple[list[str], float | None]:
    """Names with their colours under the title, in as many rows as they need, and where the last row stands."""
    drawn, x, y = [], 16.0, 52.0
    for i, name in enumerate(names):
        needed = 34 + 7 * len(name)
        if x > 16 and x + needed > right:
            x, y = 16.0, y + 20
        drawn += [box(x, y - 6, 12, 3, f"f {colour(i)}"), words(x + 18, y, name)]
        x += needed
    return drawn, y if names else None


def line(kind: str, points: Sequence[tuple[float, float] | None]) -> list[str]:
    """One line, broken where a point is None."""
    runs: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is None:
            runs.append([])
        else:
            runs[-1].append(point)
    drawn = []
    for run in runs:
        if len(run) == 1:
            drawn.append(f'<circle class="f {kind}" cx="{number(run[0][0])}" cy="{number(run[0][1])}" r="3"/>')
        elif run:
            path = "L".join(f"{number(x)} {number(y)}" for x, y in run)
            drawn.append(f'<path class="l {kind}" d="M{path}"/>')
    return drawn


# --- maps -------------------------------------------------------------------------------------------------------------


def heat_maps(
    maps: Sequence[tuple[str, Sequence[Sequence[float]]]],
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    across: int = 4,
    cell: float = 18,
) -> str:
    """Squares of weights between 0 (paper) and 1 (full colour), `across` maps side by side.

    A map is its name and its weights, row by row: for attention, a row is a query and a column a key. rows, columns:
    the tokens' names. Refuses nothing: a weight outside 0..1 is drawn as the nearer end.
    """
    upright = all(len(token) <= 1 for token in columns)
    side = max([7 * max(map(len, map(_token, rows)), default=0), 20]) + 12
    above = max([7 * max(map(len, map(_token, columns)), default=0), 20]) + 30
    wide, tall = side + cell * len(columns) + 20, above + cell * len(rows) + 16
    body = [words(16, 28, title, "t")]
    for i, (name, weights) in enumerate(maps):
        x0 = 10 + (i % across) * wide + side
        y0 = 40 + (i // across) * tall + above
        body.append(words(x0, y0 - above + 14, name, "s"))
        for j, token in enumerate(rows):
            body.append(words(x0 - 6, y0 + cell * j + cell * 0.7, _token(token), "e"))
        for j, token in enumerate(columns):
            x, y = x0 + cell * j + cell * 0.7, y0 - 6
            turn = f' transform="rotate(-90 {number(x)} {number(y)})"'
            body.append(
                words(x - cell * 0.2, y, _token(token), "m") if upright else words(x, y, _token(token), "", turn)
            )
        body.append(box(x0, y0, cell * len(columns), cell * len(rows), "g", ' style="fill:none;stroke:var(--line)"'))
        body += [
            box(x0 + cell * k, y0 + cell * j, cell, cell, "f c0", f' fill-opacity="{number(min(1.0, weight))}"')
            for j, row in enumerate(weights)
            for k, weight in enumerate(row)
            if weight >= 0.005
        ]
    n_across, n_down = min(across, max(len(maps), 1)), -(-len(maps) // across)
    return page(10 + n_across * wide, 40 + n_down * tall, title, body)


def _token(text: str) -> str:
    """A token's name: blanks are shown, what is long is cut."""
    shown = "".join("␣" if character == " " else character for character in text)
    return shown if len(shown) <= 12 else shown[:11] + "…"

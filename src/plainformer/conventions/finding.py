"""The other way round: from a label (458M) or a plotted number (1895722) to the shapes and conventions behind it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache

from plainformer.conventions import CONVENTIONS, convention, count
from plainformer.faults import refuse
from plainformer.presets import PUBLISHED
from plainformer.records import dataclass
from plainformer.spec import Spec

# Labels of GPT-2's first release, which no count gives: OpenAI later put right what it had counted wrong. They are what
# the shapes count with the first GPT's table of 40,478 rows (the lesson on counting).
MISLABELS = {
    "117M": ("gpt2", "OpenAI's first label of GPT-2 small, 124M by count"),
    "345M": ("gpt2-medium", "OpenAI's first label of GPT-2 medium, 355M by count"),
    "762M": ("gpt2-large", "OpenAI's first label of GPT-2 large, 774M by count"),
    "1542M": ("gpt2-xl", "OpenAI's first label of GPT-2 XL, 1558M by count"),
    "1.5B": ("gpt2-xl", "OpenAI's rounded label of GPT-2 XL, 1.56B by count"),
}
UNITS = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
GPT2_WIDTHS = (768, 1024, 1280, 1600)
LAYERS, WIDTHS = range(1, 97), range(32, 4097, 32)


@dataclass(frozen=True)
class Label:
    """A size as people write it: 458M is anything from 457.5 to 458.5 million."""

    text: str
    value: float
    half: float  # how far from value still rounds to it; 0: a number said to the last digit


def label(text: str) -> Label:
    """458M, 1.5B, 1895722, 1,895,722. Refuses what is neither a label nor a whole number above 0."""
    plain = text.replace(",", "").replace("_", "").strip()
    found = re.fullmatch(r"(\d{1,15})(?:\.(\d{1,9}))?([kKmMbBtT]?)", plain)
    if not found or not (found[3] or not found[2]) or float(plain.rstrip("kKmMbBtT")) <= 0:
        raise refuse("--find", text, "is neither a label such as 458M nor a whole number", "give 458M, 1.5B or 1895722")
    if not found[3]:
        return Label(text, int(found[1]), 0)
    unit = UNITS[found[3].lower()]
    digits = len(found[2] or "")
    return Label(text, float(f"{found[1]}.{found[2] or 0}") * unit, unit / 10**digits / 2)


def gpt2_shape(n_layers: int, d_model: int) -> Spec:
    """GPT-2 in any width; how many heads does not change the count."""
    from plainformer.families.decoders import gpt2

    return gpt2(vocab_size=50257, max_seq_len=1024, d_model=d_model, n_layers=n_layers, n_heads=1)


def gpt_presets() -> Iterator[tuple[str, int, int]]:
    """The published presets of GPT-2's vocabulary and context, each shape once: name, layers, width."""
    seen = set()
    for name, (builder, sizes) in PUBLISHED.items():
        shape = (sizes.get("n_layers", 0), sizes.get("d_model", 0))
        same = (sizes.get("vocab_size"), sizes.get("max_seq_len")) == (50257, 1024)
        if builder == "decoders.gpt2" and same and shape not in seen:
            seen.add(shape)
            yield name, *shape


@dataclass(frozen=True)
class Found:
    """One shape under one convention. ppm: how far the number asked for lies above its count."""

    name: str  # a preset, or "20 x 1280"
    n_layers: int
    d_model: int
    convention: str
    total: int
    ppm: float


def published(asked: Label, names: Sequence[str]) -> list[Found]:
    """Every published shape under each of these conventions, the nearest first."""
    found = []
    for name in names:
        total = totals(name)
        for preset, n, width in gpt_presets():
            at = total(n, width)
            found.append(Found(preset, n, width, name, at, 1e6 * (asked.value / at - 1)))
    return sorted(found, key=lambda one: abs(one.ppm))


def rounds_to(total: int, asked: Label) -> bool:
    return abs(total - asked.value) <= asked.half


def behind(asked: Label, by: str) -> dict[str, list[tuple[int, int]]]:
    """All (layers, width) that round to a label under a convention: at GPT-2's widths, at multiples of 64 from 64 to
    4,096, and those of 64 a layer among them."""
    wide = shapes(asked, by, range(64, 4097, 64))
    return {
        "gpt2_widths": [one for one in wide if one[1] in GPT2_WIDTHS],
        "multiples_of_64": wide,
        "64_a_layer": [one for one in wide if one[1] == 64 * one[0]],
    }


def shapes(asked: Label, by: str, widths: Sequence[int]) -> list[tuple[int, int]]:
    """As conventions.candidates, for a label of any unit."""
    total = totals(by)
    return [(n, d) for d in widths for n in LAYERS if rounds_to(total(n, d), asked)]


@cache
def totals(by: str) -> Callable[[int, int], int]:
    """The count of every GPT-2 shape as a function: a line in the layers, a square in the width, from six counts."""
    known = {(n, d): count(gpt2_shape(n, d), by).total for n in (1, 2) for d in (64, 128, 192)}

    def at(n: int, d: int) -> int:
        x = d / 64 - 1  # 0, 1, 2 at the widths counted
        ends = []
        for m in (1, 2):
            a, b, c = (known[m, width] for width in (64, 128, 192))
            second = c - 2 * b + a
            ends.append(a + x * (b - a) + x * (x - 1) / 2 * second)
        return round(ends[0] + (n - 1) * (ends[1] - ends[0]))

    return at


def nearest(asked: Label, names: Sequence[str], most: int = 5) -> list[Found]:
    """Of all shapes of up to 96 layers and widths in steps of 32: the nearest to a number."""
    found = []
    for name in names:
        total = totals(name)
        for width in WIDTHS:
            first, step = total(1, width), total(2, width) - total(1, width)
            guess = round((asked.value - first) / step) + 1
            n = min(max(guess, LAYERS[0]), LAYERS[-1])
            at = first + (n - 1) * step
            found.append(Found(f"{n} x {width}", n, width, name, at, 1e6 * (asked.value / at - 1)))
    return sorted(found, key=lambda one: (abs(one.ppm), one.name))[:most]


def search(text: str, by: str | None = None) -> dict[str, object]:
    """What a label or a number may stand for, as plain data. by: a convention's name; None: all of them for numbers
    and published shapes, nanoGPT's for shapes behind a label."""
    asked = label(text)
    names = [convention(by).name] if by else list(CONVENTIONS)
    known = published(asked, names)
    answer: dict[str, object] = {"asked": text, "value": asked.value, "convention": by}
    if not asked.half:
        answer["published"] = known[:5]
        answer["nearest"] = nearest(asked, names)
        return answer
    answer["published"] = [one for one in known if rounds_to(one.total, asked)]
    if (mislabel := MISLABELS.get(text.strip().upper())) and not answer["published"]:
        preset, words = mislabel
        answer["label"] = words
        answer["counts"] = [one for one in known if one.name == preset]
        return answer
    answer["convention"] = by or "nanogpt"
    answer["shapes"] = behind(asked, by or "nanogpt")
    return answer

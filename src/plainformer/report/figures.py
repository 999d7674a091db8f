"""Numbers as people read them, and bars of characters."""

from __future__ import annotations

EIGHTHS = " ▏▎▍▌▋▊▉█"
NAMES = {
    "embedding": "token tables",
    "position": "positions",
    "feed_forward": "feed-forward",
    "expert": "experts",
    "norm": "norms",
}


def part_name(part: str) -> str:
    """A key of `parameters.by_part` as sheets and pictures call it."""
    return NAMES.get(part, part)


def label(count: int) -> str:
    """A size as models are called by it: 124M, 8.03B, 671B."""
    return short(count).replace(" ", "").replace("G", "B")


def short(value: float, unit: str = "") -> str:
    """Three digits and a decimal prefix: 124439808 -> "124 M", 248879616 with "B" -> "249 MB" (1 GB = 1e9 B)."""
    prefixes = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"]
    at = 0
    scaled = float(value)
    while abs(scaled) >= 999.5 and at < len(prefixes) - 1:
        scaled /= 1000
        at += 1
    digits = 0 if at == 0 and scaled == int(scaled) else max(0, 3 - len(f"{abs(scaled):.0f}"))
    return f"{scaled:.{digits}f} {prefixes[at]}{unit}".rstrip()


def percent(part: float, whole: float) -> str:
    """31.02 %; more digits where it would read as nothing: 0.031 %."""
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.001:
        return "< 0.001 %"
    return f"{share:.2f} %" if share == 0 or share >= 0.1 else f"{share:.2g} %"


def bar(share: float, width: int = 20, plain: bool = False) -> str:
    """A share of 0 to 1 as a bar of `width` characters at most, in eighths; plain: whole '#' only."""
    if plain:
        return "#" * round(share * width)
    full, rest = divmod(round(share * width * 8), 8)
    return ("█" * full + EIGHTHS[rest]).rstrip()

"""Regular expressions over names of modules, matched in a time that their own length bounds.

Python's own matcher goes back and tries again: a pattern of twenty characters can take it hours. This one holds all
places at once, as the bits of a number: bit i is set where what went before can end just before character i.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import inf

CLASS = r"\\[.dwsDWS-]"
TOKEN = re.compile(
    rf"\((?:\?:)?|\)\??|[|^$]|({CLASS}|\[\^?(?:{CLASS}|\w-\w|[\w.])+-?\]|[\w.-])"
    r"(?:([*+?]|\{\d{1,3}(?:,\d{0,3})?\})\??)?"
)
LETTER = re.compile(r"\\[.-]|[\w.-]")
PLAIN = re.compile(rf"\^?(?:{LETTER.pattern}){{0,200}}\$?")
TIMES = {"": (1, 1), "?": (0, 1), "*": (0, inf), "+": (1, inf)}  # at least and at most
MOST_PATTERNS = 5000  # of a file; the deepest models have some 1,000 modules
MOST_CHARACTERS = 5000  # of those among them that are more than a name


def is_plain(pattern: str) -> bool:
    """Whether it is a name as it stands, also where a ^ or a $ says that it is whole; its dots take any character
    unless they are escaped."""
    return PLAIN.fullmatch(pattern) is not None


@lru_cache(maxsize=2 * MOST_PATTERNS)
def plainly(pattern: str) -> tuple[re.Pattern[str], int] | None:
    """A plain pattern for Python's own matcher, which has nothing to try again there, and of how many letters it is."""
    return (re.compile(pattern), len(LETTER.findall(pattern))) if is_plain(pattern) else None


def readable(pattern: str) -> bool:
    """Whether it is made of what is matched here: characters, classes of them, each repeated or not; groups and
    alternatives, not repeated."""
    if sum(len(token[0]) for token in TOKEN.finditer(pattern)) != len(pattern):
        return False
    try:
        re.compile(pattern)
    except (re.error, RecursionError):
        return False
    return True


@lru_cache(maxsize=4096)
def places(atom: str, name: str) -> int:
    """Where in the name a character is one of this class, as bits."""
    return sum(1 << i for i, letter in enumerate(name) if re.fullmatch(atom, letter))


def ends_with(name: str, pattern: str) -> bool:
    """Whether the pattern takes all of the name, or all after one of its dots: re.match(rf"(.*\\.)?({pattern})$")."""
    if plain := plainly(pattern):
        begin = len(name) - plain[1]
        whole = begin == 0 or (begin > 0 and name[begin - 1] == ".")
        return whole and plain[0].fullmatch(name, begin) is not None
    at = 1 | places(r"\.", name) << 1
    begun, found, outer = at, 0, list[tuple[int, int]]()
    for token in TOKEN.finditer(pattern):
        atom, times = token.groups()
        match token[0]:
            case "(" | "(?:":
                outer.append((begun, found))
                begun, found = at, 0
            case "|":
                at, found = begun, found | at
            case ")" | ")?":
                at |= found | (begun if token[0] == ")?" else 0)
                begun, found = outer.pop()
            case "^":
                at &= 1
            case "$":
                at &= 1 << len(name)
            case _:
                here = places(atom, name)
                least, most = bounds(times or "")
                for _ in range(min(least, len(name) + 1)):
                    at = (at & here) << 1
                while most > least and (more := at | (at & here) << 1) != at:
                    at, most = more, most - 1
    return bool((at | found) >> len(name) & 1)


def bounds(times: str) -> tuple[int, float]:
    """How often at least and at most, of what stands behind an atom."""
    if times in TIMES:
        return TIMES[times]
    least, several, most = times.strip("{}").partition(",")
    return int(least), int(most) if most else inf if several else int(least)

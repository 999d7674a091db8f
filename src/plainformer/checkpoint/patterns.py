"""Regular expressions over names of modules, matched in a time that their own length bounds.

Python's own matcher goes back and tries again: a pattern of twenty characters can take it hours. This one holds all
places at once, as the bits of a number: bit i is set where what went before can end just before character i.
"""

from __future__ import annotations

import re
from functools import lru_cache

TOKEN = re.compile(r"\((?:\?:)?|\)\??|[|^$]|(\\[.dwDW-]|\[\^?(?:\w-\w|[\w.])+-?\]|[\w.-])(?:([*+?])\??)?")
PLAIN = re.compile(r"[\w.-]{0,200}")
MOST_PATTERNS = 5000  # of a file; the deepest models have some 1,000 modules
MOST_CHARACTERS = 5000  # of those among them that are more than a name


def is_plain(pattern: str) -> bool:
    """Whether it is a name as it stands; its dots take any character."""
    return PLAIN.fullmatch(pattern) is not None


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
    if is_plain(pattern):
        begin = len(name) - len(pattern)
        whole = begin == 0 or (begin > 0 and name[begin - 1] == ".")
        return whole and all(said in (there, ".") for said, there in zip(pattern, name[begin:], strict=True))
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
                at = (at if times in ("*", "?") else 0) | (at & here) << 1
                while times in ("*", "+") and (more := at | (at & here) << 1) != at:
                    at = more
    return bool((at | found) >> len(name) & 1)

"""What a GGUF file says of itself: its keys, and where its tensors lie. Read with every length held against the file.

A file: "GGUF", a version, how many tensors and keys; the keys, each with its type; for each tensor a name, its sides
from the innermost, a type and an offset; then the tensors, from the next multiple of the alignment.
"""

from __future__ import annotations

import mmap
import os
import struct
from math import prod
from typing import Any

from plainformer.faults import refuse
from plainformer.records import dataclass

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MOST_SIDES = 4
MOST_VALUES = 2_000_000  # keys, tensors, what lists hold; the largest vocabularies with their merges are 1.3 million


@dataclass(frozen=True)
class Held:
    """A tensor: its kind by GGML's number, its shape as (rows, ..., columns), and where its bytes begin."""

    kind: int
    shape: tuple[int, ...]
    begin: int


@dataclass(frozen=True)
class File:
    keys: dict[str, Any]
    tensors: dict[str, Held]
    size: int


class Walk:
    """Forward through a file's bytes; what would lead past their end is refused."""

    def __init__(self, path: str, data: mmap.mmap) -> None:
        self.path, self.data, self.at, self.left = path, data, 0, MOST_VALUES

    def take(self, n: int) -> int:
        """Where the next n bytes begin."""
        begin, self.at = self.at, self.at + n
        if self.at > len(self.data):
            raise refuse(self.path, len(self.data), "is cut short, or says lengths that it does not have")
        return begin

    def count(self, n: int) -> int:
        """So many values more; refused past what any model says."""
        self.left -= n
        if self.left < 0:
            raise refuse(self.path, n, f"says over {MOST_VALUES:,} values: no model does")
        return n

    def number(self, code: str) -> Any:
        return struct.unpack_from(f"<{code}", self.data, self.take(struct.calcsize(f"<{code}")))[0]

    def text(self) -> str:
        size = self.number("Q")
        begin = self.take(size)
        return bytes(self.data[begin : begin + size]).decode("utf-8", "replace")

    def value(self, kind: int, inside: bool = False) -> Any:
        if kind in NUMBERS:
            return self.number(NUMBERS[kind])
        if kind == STRING:
            return self.text()
        if kind != ARRAY or inside:
            raise refuse(self.path, kind, "is no type of a value that is known here")
        kind, n = self.number("I"), self.number("Q")
        each = struct.calcsize(f"<{NUMBERS[kind]}") if kind in NUMBERS else 8
        if n * each > len(self.data) - self.at:
            raise refuse(self.path, n, "is more than the file holds")
        self.count(n)
        if kind in NUMBERS:
            return list(struct.unpack_from(f"<{n}{NUMBERS[kind]}", self.data, self.take(n * each)))
        return [self.value(kind, inside=True) for _ in range(n)]


def read_gguf(path: str) -> File:
    """The keys and tensors of a file. Refuses what is cut short or says what it does not hold."""
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as opened:
            if size < 24 or opened.read(4) != b"GGUF":
                raise refuse(path, size, "is no GGUF file")
            data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as fault:
        raise refuse(path, fault.strerror, "cannot be read") from None
    with data:
        return walked(Walk(path, data), size)


def walked(walk: Walk, size: int) -> File:
    walk.at = 4
    version, n_tensors, n_keys = walk.number("I"), walk.number("Q"), walk.number("Q")
    if version not in (2, 3):
        raise refuse(walk.path, version, "is a version that is not known here", "versions 2 and 3 are")
    keys: dict[str, Any] = {}
    for _ in range(min(n_keys, size)):
        walk.count(1)
        name = walk.text()
        keys[name] = walk.value(walk.number("I"))
    found: dict[str, tuple[int, tuple[int, ...], int]] = {}
    for _ in range(min(n_tensors, size)):
        walk.count(1)
        name, n_sides = walk.text(), walk.number("I")
        if n_sides > MOST_SIDES or name in found:
            raise refuse(f"{walk.path}: {name}", n_sides, "has too many sides, or stands twice")
        shape = tuple(walk.number("Q") for _ in range(n_sides))[::-1]
        if prod(shape) > 8 * size * 8:  # no kind holds more than eight numbers in a byte
            raise refuse(f"{walk.path}: {name}", shape, "is more than the file holds")
        found[name] = (walk.number("I"), shape, walk.number("Q"))
    by = keys.get("general.alignment", 32)
    if not isinstance(by, int) or by < 1:
        raise refuse(f"{walk.path}: general.alignment", by, "must be a whole number above 0")
    start = -(-walk.at // by) * by
    return File(keys, {name: Held(kind, shape, start + at) for name, (kind, shape, at) in found.items()}, size)

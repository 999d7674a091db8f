"""Is it right? If not: which known mistake gives the same numbers?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from plainformer.check import comparing
from plainformer.check.case import Case, Said
from plainformer.check.catalogue import CATALOGUE, Entry, both
from plainformer.check.steps import Array, Doing
from plainformer.check.topic import Inputs

EXTREME = 2e5  # roundings that an answer to extreme inputs may be off: a hundredth of its row in float32
PAIRS_FOR = 6.0  # seconds that two mistakes at once are looked for
DTYPES = {"float64": np.float64, "float32": np.float32}


@dataclass(frozen=True)
class Found:
    """What their numbers are: right, one mistake, two, or none that is known."""

    kind: str  # "right", "named", "two", "unknown"
    reading: Inputs
    entries: tuple[Entry, ...] = ()
    also: tuple[Entry, ...] = ()  # other mistakes that would give the same numbers
    gap: float = 0.0  # the largest difference from the formula
    at: str = ""  # where
    nearest: Entry | None = None
    to_digits: int = 15  # right to so many digits
    on_plain_alone: bool = False  # extreme inputs show something more


@dataclass
class Search:
    """Their answers to all draws under one way of passing the inputs, held against ours."""

    case: Case
    said: dict[str, list[Said]]  # by how a mask is passed
    precision: str
    numbers: Sequence[int]
    cache: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    # --- ours ---------------------------------------------------------------------------------------------------------

    def inputs(self, number: int, reading: Inputs) -> Inputs:
        key = ("inputs", number, frozen(reading))
        if key not in self.cache:
            self.cache[key] = self.case.inputs(number, reading)
        found: Inputs = self.cache[key]
        return found

    def truth(self, number: int, reading: Inputs) -> Array:
        key = ("truth", number, frozen(reading))
        if key not in self.cache:
            self.cache[key] = self.case.ours(Doing(), self.inputs(number, reading))
        return self.cache[key]

    def tolerance(self, number: int, reading: Inputs, ours: Array, doing: Callable[[], Doing] | None = None) -> Array:
        if self.case.topic.judged == "chances":
            return comparing.chances_tolerance(ours, self.theirs(reading)[number].n_drawn)
        if self.case.topic.judged == "dropout":
            share = float(ours[0])
            return np.array([6 * np.sqrt(share * (1 - share) / 20_000), 1e-5])
        if self.case.topic.loose:
            return np.full(np.shape(ours), self.case.topic.loose * float(np.abs(ours).max(initial=1e-3)))
        unit = comparing.UNIT[self.precision]
        key = ("bound", number, frozen(reading))
        if key not in self.cache:
            inputs = self.inputs(number, reading)
            self.cache[key] = comparing.bound(lambda i: self.case.ours(Doing(), i), inputs, self.truth(number, reading))
        most = self.cache[key]
        if number >= self.case.topic.n_plain:  # extreme inputs ask whether numbers survive, not how many digits do
            most = np.maximum(most, EXTREME * comparing.by_row(np.abs(np.where(np.isfinite(ours), ours, 0))))
        if doing is not None:
            own = comparing.bound(lambda i: self.case.ours(doing(), i), self.inputs(number, reading), ours)
            most = np.maximum(np.where(np.isfinite(most), most, 0), own) if np.shape(most) == np.shape(own) else own
        return unit * most + 1e-300

    def run(self, doing: Doing, number: int, reading: Inputs) -> Array | None:
        try:
            return self.case.ours(doing, self.inputs(number, reading))
        except (ValueError, IndexError, TypeError, ZeroDivisionError):
            return None

    # --- held against theirs ------------------------------------------------------------------------------------------

    def theirs(self, reading: Inputs) -> list[Said]:
        return self.said[reading.get("mask_as", "")]

    def is_right(self, reading: Inputs, numbers: Sequence[int] | None = None) -> bool:
        said = self.theirs(reading)
        for n in self.numbers if numbers is None else numbers:
            ours, out = self.truth(n, reading), said[n].out
            if out is None or not comparing.same(out, ours, self.tolerance(n, reading, ours)):
                return False
        return True

    def is_like(self, doing: Callable[[], Doing], reading: Inputs, numbers: Sequence[int]) -> bool:
        """Whether a wrong formula gives their numbers on all of these draws, and not the right ones on some."""
        differs = some_finite = False
        for n in numbers:
            ours, said = self.run(doing(), n, reading), self.theirs(reading)[n]
            if ours is None or said.out is None:
                if ours is None and said.out is None and said.trouble is not None and said.trouble.kind == "error":
                    continue  # it cannot be done on these inputs, and theirs could not either
                return False
            if np.shape(ours) != np.shape(said.out) or not roughly(said.out, ours):
                return False
            if not comparing.same(said.out, ours, self.tolerance(n, reading, ours, doing)):
                return False
            truth = self.truth(n, reading)
            some_finite = some_finite or bool(np.isfinite(ours).any())
            differs = differs or not comparing.same(ours, truth, self.tolerance(n, reading, truth))
        return differs and some_finite  # where all is nan, every mistake that gives nan would fit

    def met(self, reading: Inputs) -> set[str]:
        key = ("met", frozen(reading))
        if key not in self.cache:
            steps: set[str] = set()
            for n in self.numbers:
                do = Doing()
                self.case.ours(do, self.inputs(n, reading))
                steps |= set(do.met)
            self.cache[key] = steps
        found: set[str] = self.cache[key]
        return found

    def entries(self, reading: Inputs) -> Iterator[Entry]:
        met = self.met(reading)
        slopes = bool(self.case.topic.loose)  # a gradient is the answer: what it leaves out counts
        return (
            e
            for e in CATALOGUE.values()
            if set(e.changes) <= met and (slopes or not e.frozen) and (e.changes or set(e.frozen) <= met)
        )

    def doing(self, entry: Entry, other: Entry | None = None) -> Callable[[], Doing]:
        dtype = DTYPES.get(self.precision, np.float32)
        return (lambda: entry.doing(dtype)) if other is None else (lambda: both(entry, other, dtype))


def frozen(reading: Inputs) -> tuple[Any, ...]:
    return tuple(sorted((name, str(value)) for name, value in reading.items()))


def roughly(a: Array, b: Array) -> bool:
    """A cheap test before the exact one."""
    ok = np.isfinite(b)
    if not np.array_equal(ok, np.isfinite(a)):
        return False
    scale = np.abs(b[ok]).max(initial=0.0)
    return bool(np.all(np.abs(a[ok] - b[ok]) <= 0.3 * scale + 1e-9)) if ok.any() else True


def look(search: Search, readings: Sequence[Inputs], until: float | None = None) -> Found:
    """Right under some reading; else one mistake, else two, on all draws; else one on the plain draws; else unknown."""
    readings = [r for r in readings if r.get("mask_as", "") in search.said]
    for reading in readings:
        if search.is_right(reading):
            return Found("right", reading)
    for reading in readings if search.precision == "float64" else ():
        if replace(search, precision="float32").is_right(reading):
            return Found("right", reading, to_digits=7)
    plain = [n for n in search.numbers if n < search.case.topic.n_plain]
    for numbers in (list(search.numbers), plain):
        for reading in readings:
            fits = [e for e in search.entries(reading) if search.is_like(search.doing(e), reading, numbers)]
            if fits:
                part = len(numbers) < len(search.numbers)
                return Found(
                    "named", reading, (fits[0],), tuple(fits[1:]), *gap_of(search, reading), on_plain_alone=part
                )
        if len(numbers) < len(search.numbers) or not answered(search, readings):
            break
        if found := two(search, readings, numbers, until or time.monotonic() + PAIRS_FOR):
            return found
    if found := to_seven_digits(search, readings):
        return found
    for reading in readings:
        if plain != list(search.numbers) and search.is_right(reading, plain):
            return Found(
                "unknown", reading, gap=gap_of(search, reading)[0], at=gap_of(search, reading)[1], on_plain_alone=True
            )
    reading = min(answered(search, readings) or readings[:1], key=lambda r: gap_of(search, r)[0])
    gap, at = gap_of(search, reading)
    return Found("unknown", reading, gap=gap, at=at, nearest=nearest(search, reading))


def to_seven_digits(search: Search, readings: Sequence[Inputs]) -> Found | None:
    """One mistake whose numbers are theirs but for a small constant of their own: 1e-10 in the place of 0. Not asked
    of whole models, where it takes long."""
    if search.precision != "float64" or search.case.topic.name in ("gpt", "block"):
        return None
    coarse = replace(search, precision="float32")
    for reading in readings:
        fits = [e for e in search.entries(reading) if coarse.is_like(search.doing(e), reading, search.numbers)]
        if fits:
            return Found("named", reading, (fits[0],), tuple(fits[1:]), *gap_of(search, reading), to_digits=7)
    return None


def answered(search: Search, readings: Sequence[Inputs]) -> list[Inputs]:
    """The readings in which theirs gave an answer to every draw."""
    return [r for r in readings if all(one.out is not None for one in search.theirs(r))]


def two(search: Search, readings: Sequence[Inputs], numbers: Sequence[int], until: float) -> Found | None:
    """Two mistakes in different steps that together give their numbers."""
    for reading in readings:
        entries = list(search.entries(reading))
        for one, other in combinations(entries, 2):
            if time.monotonic() > until:
                return None
            if set(one.changes) & set(other.changes):
                continue
            doing = search.doing(one, other)
            if search.is_like(doing, reading, numbers[:1]) and search.is_like(doing, reading, numbers):
                return Found("two", reading, (one, other), (), *gap_of(search, reading))
    return None


def gap_of(search: Search, reading: Inputs) -> tuple[float, str]:
    """The largest difference from the formula on the plain draws (else on any), and where it is."""
    worst, where = 0.0, ""
    plain = [n for n in search.numbers if n < search.case.topic.n_plain]
    for numbers in (plain, search.numbers):
        for n in numbers:
            said, truth = search.theirs(reading)[n], search.truth(n, reading)
            if said.out is None or np.shape(said.out) != np.shape(truth):
                continue
            gap = comparing.distance(said.out, truth)
            if gap > worst and not comparing.same(said.out, truth, search.tolerance(n, reading, truth)):
                worst, where = gap, place_of(said.out, truth, n)
        if worst:
            break
    return worst, where


def place_of(out: Array, truth: Array, number: int) -> str:
    if not np.ndim(truth):
        return f"draw {number}: {float(out):.6g}, the formula says {float(truth):.6g}"
    gap = np.abs(np.where(out == truth, 0, out - truth))
    at = np.unravel_index(np.argmax(np.where(np.isnan(gap), np.inf, gap)), np.shape(truth))
    index = ", ".join(map(str, map(int, at)))
    return f"draw {number}, at [{index}]: {float(out[at]):.6g}, the formula says {float(truth[at]):.6g}"


def nearest(search: Search, reading: Inputs) -> Entry | None:
    """The mistake whose numbers come nearest, where it explains most of the gap; a hint, no name."""
    n = search.numbers[0]
    out, truth = search.theirs(reading)[n].out, search.truth(n, reading)
    if out is None or not np.isfinite(out).all():
        return None
    norm = float(np.linalg.norm(out - truth))
    best, entry = 0.5 * norm, None
    for one in search.entries(reading):
        ours = search.run(search.doing(one)(), n, reading)
        if ours is None or np.shape(ours) != np.shape(out) or not np.isfinite(ours).all():
            continue
        far = float(np.linalg.norm(out - ours))
        if far < best:
            best, entry = far, one
    return entry

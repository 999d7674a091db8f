"""A whole model of theirs walked beside ours: the first place that differs, and the catalogue applied there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plainformer.check.answer import Answer, Mistake
from plainformer.check.case import Case
from plainformer.check.catalogue import Entry
from plainformer.check.comparing import fitted
from plainformer.check.judging import Found, Search
from plainformer.check.process import Reply, packed
from plainformer.check.steps import Array, Doing, Step

WATCHED = {
    "embed.tokens": "the token rows", "embed.sum": "tokens plus positions", "heads": "attention",
    "ff": "the feed-forward", "block": "the end", "gpt.last": "the last norm", "gpt.head": "the head",
}  # fmt: skip
NORMS = ("the norm before attention", "the norm before the feed-forward")


class Walking(Doing):
    """A right run that keeps what each place gives: (words, block or None, values), in order."""

    def __init__(self) -> None:
        super().__init__()
        self.places: list[tuple[str, int | None, Array]] = []
        self.block, self.n_norms, self.inside = -1, 0, False

    def __call__(self, name: str, *args: Any) -> Any:
        if name == "block":
            self.block, self.n_norms, self.inside = self.block + 1, 0, True
        given = super().__call__(name, *args)
        words = WATCHED.get(name, "")
        if name == "norm" and self.inside:
            words = NORMS[min(self.n_norms, 1)]
            self.n_norms += 1
        if words:
            block = self.block if self.inside else None
            self.places.append((words if block is None else f"{words} of block {block}", block, np.asarray(given)))
        if name == "block":
            self.inside = False
        return given


class OnlyIn(Doing):
    """A wrong run whose mistake is in one block alone."""

    def __init__(self, entry: Entry, block: int, dtype: Any) -> None:
        super().__init__(dtype=dtype)
        self.wrong: dict[str, Step] = dict(entry.changes)
        self.only, self.block = block, -1

    def __call__(self, name: str, *args: Any) -> Any:
        if name == "block":
            self.block += 1
        self.changed = self.wrong if self.block == self.only else {}
        return super().__call__(name, *args)


@dataclass(frozen=True)
class Place:
    """The last place at which theirs gives our numbers, and the next of ours, which none of theirs gives."""

    reading: dict[str, Any]
    number: int
    right: str
    differs: str
    block: int | None


def place_of_difference(case: Case, readings: Sequence[dict[str, Any]]) -> Place | None:
    """Under the reading that goes furthest; None where nothing differs on these inputs, and where theirs cannot be
    walked: it is no torch module, or has no parts."""
    inputs = case.inputs(0, readings[0])
    if case.kind != "torch" or case.assign(0, case.precision, inputs):
        return None
    kwargs = {case.plan.places["ids"]: packed(inputs["ids"])}
    reply = case.theirs.ask(do="walk", name=case.plan.thing, kwargs=kwargs, args=[], precision=case.precision)
    if not isinstance(reply, Reply) or not isinstance(reply.out, list) or len(reply.out) < 2:
        return None
    theirs = [one for one in reply.out if isinstance(one, np.ndarray)]
    furthest = max((place_in(case, reading, theirs) for reading in readings), key=lambda place: place.number)
    return furthest if furthest.differs else None


def place_in(case: Case, reading: dict[str, Any], theirs: Sequence[Array]) -> Place:
    """Under one reading; `differs` is empty where all places and the answer are right."""
    do, found = Walking(), -1
    case.ours(do, case.inputs(0, reading))
    close = 1e-8 if case.precision == "float64" else 1e-4
    for at, (_, _, ours) in enumerate(do.places):
        if any(is_near(fitted(one, ours.shape), ours, close) for one in theirs):
            found = at
    if found + 1 < len(do.places):
        words, block, _ = do.places[found + 1]
    else:
        right = is_near(case.answer(0, reading).out, do.places[-1][2], close)
        words, block = "" if right else "what follows the head", None
    return Place(reading, found, do.places[found][0] if found >= 0 else "", words, block)


def is_near(theirs: Array | None, ours: Array, close: float) -> bool:
    return theirs is not None and bool(np.abs(theirs - ours).max() <= close * np.abs(ours).max())


def walked(
    case: Case, search: Search, place: Place, found: Found, answer: Callable[..., Answer], file: str, **more: Any
) -> Answer:
    """What is told of a whole model that no mistake made everywhere explains."""
    said = f"the first place that differs is {place.differs}"
    at = f"right up to {place.right}; then {place.differs} is not" if place.right else f"{place.differs}, the first"
    if place.block is not None:
        for entry in search.entries(place.reading):
            doing = make(entry, place.block, search)
            if search.is_like(doing, place.reading, search.numbers):
                mistake, words = Mistake.of(entry, case.plan, file), f"in block {place.block} alone: {entry.said}"
                return answer("wrong", words, mistakes=(mistake,), confident=True, at=at, gap=found.gap, **more)
    like = f"{found.nearest.said}  [{found.nearest.key}]; something else differs too" if found.nearest else ""
    return answer("wrong", said, at=at, looks_like=like, gap=found.gap, **more)


def make(entry: Entry, block: int, search: Search) -> Callable[[], Doing]:
    dtype = np.float64 if search.precision == "float64" else np.float32
    return lambda: OnlyIn(entry, block, dtype)

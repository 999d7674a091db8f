"""One known mistake: the formula with one thing wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plainformer.check.steps import Doing, Step


@dataclass(frozen=True, kw_only=True)
class Entry:
    """`changes`: what is done in the place of which step; the first is the one whose line is shown. It applies to
    whatever does these steps. `frozen`: steps that its gradients take for constants."""

    key: str
    said: str  # what is wrong, one sentence
    change: str  # what to do in their code
    changes: Mapping[str, Step] = field(default_factory=dict)
    frozen: tuple[str, ...] = ()
    example: Mapping[str, Any] = field(default_factory=dict)  # in the place of some of the example's inputs
    where: str = ""  # the topic whose example shows it; "": the first that does the step
    slight: bool = False  # a note beside "right": nothing that a reader must mend

    @property
    def step(self) -> str:
        return next(iter(self.changes), "") or self.frozen[0]

    @property
    def steps(self) -> tuple[str, ...]:
        return (*self.changes, *self.frozen)

    def doing(self, dtype: Any) -> Doing:
        return Doing(self.changes, self.frozen, dtype)


def both(one: Entry, other: Entry, dtype: Any) -> Doing:
    """Two mistakes at once, in different steps."""
    return Doing({**one.changes, **other.changes}, (*one.frozen, *other.frozen), dtype)

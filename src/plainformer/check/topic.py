"""A thing that can be checked: its documented signature, what may stand open in it, fresh inputs, its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from plainformer.check.steps import Array, Doing

Inputs = dict[str, Any]  # arguments by name; a name with a dot in it is a weight
REQUIRED = object()


@dataclass(frozen=True)
class Argument:
    """One argument of the documented signature; `without`: what stands for it in code that does not take it."""

    name: str
    aliases: tuple[str, ...] = ()
    without: Any = REQUIRED


@dataclass(frozen=True)
class Open:
    """Something that a signature may leave open: each choice is right, and the one that theirs makes is told.

    `unless`: arguments that settle it; `given`: an argument without which it does not arise."""

    name: str
    choices: tuple[Any, ...]
    unless: tuple[str, ...] = ()
    given: str = ""
    told: str | Mapping[Any, str] = "{}"

    def says(self, value: Any) -> str:
        return self.told.format(value) if isinstance(self.told, str) else self.told[value]


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A thing that can be checked. `run`: its formula on inputs; `draw(rng, number, rank)`: inputs of a kind."""

    name: str
    about: str
    run: Callable[[Doing, Inputs], Array]
    draw: Callable[[np.random.Generator, int, int], Inputs]
    arguments: tuple[Argument, ...]
    example: Inputs  # small enough for a hand
    aliases: tuple[str, ...] = ()
    open: tuple[Open, ...] = ()
    ranks: tuple[int, ...] = (0,)  # how many axes the first array has; of several, the first that theirs takes
    n_plain: int = 5
    n_draws: int = 6  # those past the plain ones are extreme
    slopes: tuple[str, ...] = ()  # the inputs whose gradient can be asked
    weights: bool = False  # a class of theirs holds weights that we set
    draw_module: Callable[[np.random.Generator, int, int], Inputs] | None = None  # for a class of fixed sizes
    draw_without: Mapping[str, Callable[[np.random.Generator, int, int], Inputs]] = field(default_factory=dict)
    joined: bool = False  # several arrays of theirs are one answer, one after the other
    loose: float = 0.0  # what our own answer may be off, as a share of the largest of its row: slopes are numerical
    judged: str = "values"  # or "chances", "dropout": theirs draws at random, and is judged by what comes how often

    @property
    def signature(self) -> str:
        said = [a.name.replace(".", "_") + ("" if a.without is REQUIRED else f"={a.without!r}") for a in self.arguments]
        return f"{self.name}({', '.join(said)})"

    def readings(self, bound: Sequence[str]) -> list[Inputs]:
        """Every way to read what their signature leaves open, the documented one first."""
        left = [o for o in self.open if not set(o.unless) & set(bound) and (not o.given or o.given in bound)]
        return [dict(zip((o.name for o in left), each, strict=True)) for each in product(*(o.choices for o in left))]

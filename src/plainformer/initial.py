"""First weights, by name, for the reference and the model alike: the same seed gives both the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plainformer import spec as s
from plainformer.faults import refuse
from plainformer.ledger import Ledger, Weight, weights

Array = NDArray[Any]
Named = Iterator[tuple[str, Array]]

ONTO_STREAM = {  # the last projection of each branch, by kind: what it adds to the stream
    "attention": ".out.weight",
    "mixer": ".out.weight",
    "feed_forward": ".down.weight",
    "expert": ".down.weight",
}


def onto_stream(w: Weight) -> bool:
    return w.name.endswith(ONTO_STREAM.get(w.kind, "none"))


def drawn(spec: s.Spec, seed: int, draw: Callable[[np.random.Generator, Weight], Array]) -> Named:
    rng = np.random.default_rng(seed)
    for w in Ledger.of(spec).rows:
        if not w.same_as:  # buffers too: they draw nothing
            yield w.name, draw(rng, w) if w.begins is None else np.full(w.shape, w.begins)


def gpt2(spec: s.Spec, seed: int = 0) -> Named:
    """Normal, 0.02 wide; projections onto the stream 0.02 / sqrt(2 n_layers) (Radford et al. 2019, section 2.3)."""
    n_layers = len(spec.main.passes or spec.main.layers)

    def draw(rng: np.random.Generator, w: Weight) -> Array:
        return rng.normal(0, 0.02 / np.sqrt(2 * n_layers) if onto_stream(w) else 0.02, w.shape)

    return drawn(spec, seed, draw)


def zero_out(spec: s.Spec, seed: int = 0) -> Named:
    """Every branch says 0 at first, and every token is as likely: `out`, `down` and the head begin at 0.

    Other linears 0.5 / sqrt(n_in) wide, the token table 0.5; 0.02 where it is the head, too, and position tables.
    """
    tied = spec.head is not None and spec.head.tied

    def draw(rng: np.random.Generator, w: Weight) -> Array:
        if onto_stream(w) or w.name == "head.weight":
            return np.zeros(w.shape)
        if w.kind == "position" or (w.kind == "embedding" and tied):
            return rng.normal(0, 0.02, w.shape)
        return rng.normal(0, 0.5 if w.kind == "embedding" else 0.5 * w.shape[-1] ** -0.5, w.shape)

    return drawn(spec, seed, draw)


@singledispatch
def lesson_part(part: object, seed: int) -> Named:
    raise refuse("initial", type(part).__name__, "the lesson's initialisation has no rule for this part", "use gpt2")


def lesson_linears(part: object, names: tuple[str, ...], seed: int) -> Named:
    """Each in turn from one generator, 1 / sqrt(n_in) wide; drawn as x W, so turned for x W^T. Biases 0."""
    rng = np.random.default_rng(seed)
    for name in names:
        linear = getattr(part, name)
        if not isinstance(linear, s.Linear):
            raise refuse(f"initial.{name}", type(linear).__name__, "the lesson's initialisation draws plain linears")
        yield f"{name}.weight", rng.normal(0, linear.n_in**-0.5, (linear.n_in, linear.n_out)).T
        if linear.bias:
            yield f"{name}.bias", np.zeros(linear.n_out)


@lesson_part.register
def _(part: s.Attention, seed: int) -> Named:
    yield from lesson_linears(part, ("q", "k", "v", "out"), seed)


@lesson_part.register
def _(part: s.FeedForward, seed: int) -> Named:
    yield from lesson_linears(part, ("up", "down"), seed)


@lesson_part.register
def _(part: s.ChosenSoftmaxRouter, seed: int) -> Named:
    yield from lesson_linears(part, ("scores",), seed)


@lesson_part.register
def _(part: s.Experts, seed: int) -> Named:
    yield from ((f"router.{name}", array) for name, array in lesson_part(part.router, seed))
    each = [dict(lesson_part(part.expert, seed + 100 + e)) for e in range(part.n_experts)]
    yield from ((f"experts.{name}", np.stack([expert[name] for expert in each])) for name in each[0])


@lesson_part.register
def _(part: s.Spec, seed: int) -> Named:
    rng = np.random.default_rng(seed)
    if part.decoder is None or not isinstance(part.decoder.positions, s.Table) or not (part.head and part.head.tied):
        raise refuse("initial", "lesson", "is for decoders with learned positions and a tied head", "use gpt2")
    for name, table in (("embedding", part.embedding.table), ("decoder.positions", part.decoder.positions)):
        yield f"{name}.weight", rng.normal(0, 0.02, (table.n_rows, table.width))
    for i, layer in enumerate(part.decoder.layers):
        for j, branch in enumerate(branch for residual in layer for branch in residual.branches):
            place = f"decoder.layers.{i}.{branch.name}"
            yield from ((f"{place}.{name}", array) for name, array in lesson_part(branch.part, seed + 10 * i + j))


def lesson(part: s.Spec | s.Part, seed: int = 0) -> Named:
    """The lesson's: tables 0.02 wide, linears 1 / sqrt(n_in); block i from seed + 10 i, its feed-forward one more."""
    named = dict(lesson_part(part, seed))
    for w in Ledger.of(part).weights if isinstance(part, s.Spec) else weights(part):
        yield w.name, named[w.name] if w.begins is None else np.full(w.shape, w.begins)


RECIPES: dict[str, Callable[[s.Spec, int], Named]] = {"gpt2": gpt2, "lesson": lesson, "zero_out": zero_out}


def draws(spec: s.Spec, recipe: str = "gpt2", seed: int = 0) -> Named:
    """First weights of every row of the ledger but aliases: (name, float64 array), one at a time."""
    if recipe not in RECIPES:
        raise refuse("initial", recipe, f"must be one of {', '.join(RECIPES)}")
    return RECIPES[recipe](spec, seed)


def initial(spec: s.Spec, recipe: str = "gpt2", seed: int = 0) -> dict[str, Array]:
    """All of them by name, as the reference takes them."""
    return dict(draws(spec, recipe, seed))

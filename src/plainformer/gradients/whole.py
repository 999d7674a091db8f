"""The slopes of a whole model's loss. One row of tokens at a time; the loss is of all rows together.

B rows, T positions of a row, S of a source, E experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from plainformer import formulas as f
from plainformer import reference
from plainformer import spec as s
from plainformer.faults import refuse
from plainformer.formulas import Array
from plainformer.gradients.formulas import cross_entropy_back
from plainformer.gradients.parts import Slopes, chain, forward
from plainformer.reference import Weights, Where


def through(
    spec: s.Spec,
    arrays: Mapping[str, Array],
    tokens_T: Array,
    d_answer: Array,
    to: Slopes,
    source_S: Array | None = None,
    types_T: Array | None = None,
) -> None:
    """Adds the slopes of all weights, from that of what reference.logits answers to the same. A model is three parts in
    a row; an encoder is two more, read by every layer of the decoder at once."""
    w, place = Weights(arrays), "decoder" if spec.decoder else "encoder"
    memory_SD = None
    heard = (spec.embedding, w.at("embedding")), (spec.encoder, w.at("encoder"))
    if source_S is not None and spec.encoder is not None:
        there = Where(np.arange(len(source_S)), spec.encoder.causal)
        memory_SD = forward(heard, source_S, there)
        to.memory_SD = np.zeros_like(memory_SD)
    here = Where(np.arange(len(tokens_T)), spec.main.causal, types_T, memory_SD)
    model = (spec.embedding, w.at("embedding")), (spec.main, w.at(place)), (spec.head, w.at("head"))
    chain(model, tokens_T, here, d_answer, to)
    if memory_SD is not None and source_S is not None:
        chain(heard, source_S, there, np.asarray(to.memory_SD), to)


@dataclass(frozen=True)
class Row:
    """A row of a batch: what is read, what should be answered."""

    tokens_T: Array
    targets: Array
    source_S: Array | None
    types_T: Array | None


def rows_of(tokens: ArrayLike, targets: ArrayLike, source: ArrayLike | None, types: ArrayLike | None) -> list[Row]:
    """One row or several of the same length."""
    tokens_BT = np.atleast_2d(tokens)
    others: list[list[Any]] = []
    for name, given in (("targets", targets), ("source", source), ("types", types)):
        each = [None] * len(tokens_BT) if given is None else list(np.atleast_2d(given))
        if len(each) != len(tokens_BT):
            raise refuse(name, len(each), f"must be as many rows as tokens ({len(tokens_BT)})")
        others.append(each)
    return [Row(*row) for row in zip(tokens_BT, *others, strict=True)]


def loss_and_gradients(
    spec: s.Spec,
    arrays: Mapping[str, Array],
    tokens: ArrayLike,
    targets: ArrayLike,
    source: ArrayLike | None = None,
    types: ArrayLike | None = None,
    to: Slopes | None = None,
) -> tuple[float, dict[str, Array]]:
    """(the loss in nats, its slope along every weight of the ledger).

    The loss is the mean of -ln p(target) over the targets that are not -1; a mixture whose spec says so adds its
    balance loss (Experts.balance), over the tokens that have a target. tokens, targets: (T,), or (B, T) for a batch.
    `targets` are what each position should say: of a GPT, the tokens one further on. `source`, `types`: as in
    reference.logits, a row for each row. `to`: Slopes.along(spec), to see more of the way back than its end: the slopes
    along what attention and routers keep (`trace`, of the last row), and every part with what it read (`met`).

    Raises PlainformerError: arrays, tokens or targets that do not fit, a part that no rule runs.
    """
    reference.check_arrays(spec, arrays)
    rows = rows_of(tokens, targets, source, types)
    n_targets = sum(int((row.targets >= 0).sum()) for row in rows)
    to, total, answers = to or Slopes.along(spec), 0.0, []
    choices: dict[str, Array] = {}
    for row in rows:
        kept: dict[str, Array] = {}
        answers.append(reference.logits(spec, arrays, row.tokens_T, None, kept, row.source_S, row.types_T))
        check_targets(row.targets, answers[-1])
        total += float(f.cross_entropy(answers[-1], row.targets)[row.targets >= 0].sum())
        for router, chosen_E in counted(kept, "decoder" if spec.decoder else "encoder", has_target(row)):
            choices[router] = choices.get(router, 0) + chosen_E
    to.shares = {router: chosen_E / max(1, chosen_E.sum()) for router, chosen_E in choices.items()}
    n_real = sum(int(has_target(row).sum()) for row in rows)
    for row, answer in zip(rows, answers, strict=True):
        to.real_T = has_target(row) / max(1, n_real)
        d_answer = cross_entropy_back(answer, row.targets) / max(1, n_targets)
        through(spec, arrays, row.tokens_T, d_answer, to, row.source_S, row.types_T)
    return total / max(1, n_targets) + to.balance, to.of


def has_target(row: Row) -> Array:
    """(T,), True for tokens that count in a balance loss: those with a target; all, where one answer is of them all."""
    if len(row.targets) != len(row.tokens_T):
        return np.ones(len(row.tokens_T), bool)
    return row.targets >= 0


def counted(kept: Mapping[str, Array], stack: str, real_T: Array) -> Iterator[tuple[str, Array]]:
    """How many of these tokens chose each expert, by each router of a stack."""
    for place, chosen_TE in kept.items():
        if place.startswith(stack) and place.endswith(".chosen"):
            yield place.removesuffix(".chosen"), chosen_TE[real_T].sum(0)


def check_targets(targets: Array, answer: Array) -> None:
    if targets.shape != answer.shape[:-1]:
        raise refuse("targets", list(targets.shape), f"must be one for each answer ({len(answer)} in a row)")
    if wrong := [int(t) for t in targets if not -1 <= t < answer.shape[-1]]:
        raise refuse("targets", wrong[0], f"must be of what is scored (0 to {answer.shape[-1] - 1}), or -1: ignored")


def nudged(
    loss: Callable[[Mapping[str, Array]], float],
    arrays: Mapping[str, Array],
    name: str,
    at: tuple[int, ...],
    by: float = 1e-5,
) -> float:
    """The slope of a loss along one entry, found by moving that alone: what every rule can be held against. Two points
    on either side, so that the error falls with by^4; below about 1e-6 rounding has eaten the difference."""

    def moved(steps: int) -> float:
        other = np.array(arrays[name])
        other[at] += steps * by
        return loss({**arrays, name: other})

    return (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * by)

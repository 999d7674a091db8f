"""How a token is drawn from scores: in float64 on the CPU, whatever the model computes in. V vocabulary, N kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plainformer.faults import Fault, PlainformerError, refuse

Array = NDArray[Any]

COLD = 1e-20  # at or below this temperature only the best token is left: 0 or more underflow to it


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What narrows the choice of a token, applied in this order. Refuses settings that cannot be, all at once.

    temperature: scores are divided by it; 0 takes the best token always.
    top_k: only the k best; None: all. Of equal scores the lower id counts as better.
    top_p: the smallest set of likeliest tokens that holds this much, the one that crosses it included (Holtzman et al.
    2020, section 3.1).
    min_p: none less likely than this share of the likeliest (Nguyen et al. 2024, section 3).
    seed: of the draws, 0 or more.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if faults := list(self._faults()):
            raise PlainformerError(faults)

    @property
    def greedy(self) -> bool:
        return self.temperature <= COLD

    def _faults(self) -> Iterator[Fault]:
        if not (isfinite(self.temperature) and self.temperature >= 0):
            yield Fault("temperature", self.temperature, "must be a finite number of at least 0")
        if self.top_k is not None and not (isinstance(self.top_k, Integral) and self.top_k >= 1):
            yield Fault(
                "top_k", self.top_k, "must be a whole number of at least 1", "leave it out to allow every token"
            )
        if not 0 < self.top_p <= 1:
            yield Fault("top_p", self.top_p, "must be above 0 and at most 1")
        if not 0 <= self.min_p <= 1:
            yield Fault("min_p", self.min_p, "must be at least 0 and at most 1")
        if not isinstance(self.seed, Integral) or self.seed < 0:
            yield Fault("seed", self.seed, "must be a whole number of at least 0")


def need_number(best: float) -> None:
    """Refuse scores of which the best is none."""
    if not isfinite(best):
        raise refuse("logits", best, "no token can be drawn from these", "the weights hold NaN or infinity")


def choices(logits_V: Array, sampling: Sampling) -> tuple[Array, Array]:
    """(ids_N, p_N): the tokens that may be drawn, ids rising, and how likely each is. Scores must be float64."""
    best = int(logits_V.argmax())  # the first NaN, if there is one
    need_number(float(logits_V[best]))
    if sampling.greedy:
        return np.array([best]), np.ones(1)
    ids_N, top_k = np.arange(len(logits_V)), sampling.top_k
    narrowed = sampling.top_p < 1
    if top_k is not None and top_k < len(ids_N):
        worst = np.partition(logits_V, -top_k)[-top_k]
        ids_N, narrowed = np.flatnonzero(logits_V >= worst), True  # more than k where scores are equal
    if narrowed:  # best first
        ids_N = ids_N[np.argsort(-logits_V[ids_N], kind="stable")][:top_k]
    p_N = np.exp((logits_V[ids_N] - logits_V[best]) / sampling.temperature)
    p_N /= p_N.sum()
    if sampling.top_p < 1:
        n_kept = int(np.count_nonzero(p_N.cumsum() - p_N < sampling.top_p))  # those before it hold less
        ids_N, p_N = ids_N[:n_kept], p_N[:n_kept]
    if sampling.min_p > 0:
        likely = p_N >= sampling.min_p * p_N.max()
        ids_N, p_N = ids_N[likely], p_N[likely]
    if narrowed:  # by id again: limits that cut nothing change no token
        by_id = np.argsort(ids_N)
        ids_N, p_N = ids_N[by_id], p_N[by_id]
    return ids_N, p_N / p_N.sum()


def probabilities(logits_V: Array, sampling: Sampling) -> Array:
    """p_V: how likely each token is to be drawn. Exactly 0 for those that cannot be."""
    logits_V = np.asarray(logits_V, np.float64)
    ids, p = choices(logits_V, sampling)
    p_V = np.zeros_like(logits_V)
    p_V[ids] = p
    return p_V


def log_probabilities(logits_V: Array) -> Array:
    """ln p_V by the scores alone, in float64."""
    off_V = logits_V - logits_V.max()
    ln_p_V: Array = off_V - np.log(np.exp(off_V).sum())
    return ln_p_V


def draw(logits_V: Array, sampling: Sampling, rng: np.random.Generator) -> int:
    """One token. Takes one number from `rng`, none where the best token is taken."""
    ids_N, p_N = choices(logits_V, sampling)
    if len(ids_N) == 1 and sampling.greedy:
        return int(ids_N[0])
    sums_N = p_N.cumsum()
    # u < 1 times the last sum stays below it in float64, and a token of probability 0 raises no sum: neither is found.
    return int(ids_N[np.searchsorted(sums_N, rng.random() * sums_N[-1], side="right")])

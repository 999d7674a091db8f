"""What is forced and forbidden before a token is chosen, by chance, as the best, or by beams. V vocabulary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.generation.sampling import log_probabilities

Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Changes of a row's scores by what the row holds, in this order, as transformers has them.

    repetition_penalty: what the row holds has its score divided by this if above 0, else multiplied (Keskar et al.
    2019, section 4.1). no_repeat: no run of so many tokens comes twice (`no_repeat_ngram_size`); 0: any may.
    min_length: no row ends before it has so many tokens, its prompt counted; min_new: its new ones alone
    (`min_new_tokens`). never: ids that are not chosen (`suppress_tokens`), and runs of ids that do not come
    (`bad_words_ids`). not_first: ids that begin no text (`begin_suppress_tokens`). first, last: the token after a
    prompt of one token, and the last one that there is room for (`forced_bos_token_id`, `forced_eos_token_id`).
    renormalised: what is left sums to 1 again, which beams notice (`renormalize_logits`).
    """

    repetition_penalty: float = 1.0
    no_repeat: int = 0
    min_length: int = 0
    min_new: int = 0
    first: int | None = None
    last: int | None = None
    never: tuple[int | tuple[int, ...], ...] = ()
    not_first: tuple[int, ...] = ()
    renormalised: bool = False

    def __post_init__(self) -> None:
        if faults := list(self._faults()):
            raise PlainformerError(faults)

    def _faults(self) -> Iterator[Fault]:
        if not (isfinite(self.repetition_penalty) and self.repetition_penalty > 0):
            yield Fault("repetition_penalty", self.repetition_penalty, "must be a finite number above 0")
        for name in ("no_repeat", "min_length", "min_new"):
            if getattr(self, name) < 0:
                yield Fault(name, getattr(self, name), "must be at least 0")

    def apply(self, scores_V: Array, tokens: Sequence[int], n_new: int, n_left: int, stop_ids: Iterable[int]) -> Array:
        """The scores of the token after `tokens`, a row with its prompt. n_new: how many of them came after the prompt;
        n_left: how many tokens the row has room for."""
        if self == NONE:
            return scores_V
        scores_V, n = scores_V.copy(), self.no_repeat
        if self.repetition_penalty != 1:
            held = np.unique([token for token in tokens if token < len(scores_V)])
            was, by = scores_V[held], self.repetition_penalty
            scores_V[held] = np.where(was < 0, was * by, was / by)
        barred = {one for one in self.never if isinstance(one, int)}
        runs = (one for one in self.never if isinstance(one, tuple))
        barred |= {run[-1] for run in runs if run and tuple(tokens[len(tokens) - len(run) + 1 :]) == run[:-1]}
        if 0 < n <= len(tokens):
            end = list(tokens[len(tokens) - n + 1 :])
            barred |= {tokens[i + n - 1] for i in range(len(tokens) - n + 1) if list(tokens[i : i + n - 1]) == end}
        if len(tokens) < self.min_length or n_new < self.min_new:
            barred |= set(stop_ids)
        n_prompt = len(tokens) - n_new
        if n_new == (n_prompt == 1 and self.first is not None):
            barred |= set(self.not_first)
        scores_V[[token for token in barred if token < len(scores_V)]] = -np.inf
        forced = self.last if n_left == 1 and self.last is not None else self.first if len(tokens) == 1 else None
        if forced is not None:
            if forced >= len(scores_V):
                raise refuse("token id", forced, f"is forced, and outside the vocabulary (0 to {len(scores_V) - 1})")
            scores_V[:] = -np.inf
            scores_V[forced] = 0
        return log_probabilities(scores_V) if self.renormalised else scores_V


NONE = Rules()

"""What counting predicts of a text: after each run of a few tokens, what came next how often."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Array = NDArray[Any]


def windows(tokens: Ids, length: int, n_kinds: int) -> Ids:
    """A number for each run of `length` tokens, in order; equal runs have equal numbers. It must fit in 64 bits."""
    if n_kinds**length >= 2**63:
        raise ValueError(f"runs of {length} tokens of {n_kinds} kinds do not fit in 64 bits")
    n = len(tokens) - length + 1
    runs = np.zeros(n, np.int64)
    for i in range(length):
        runs = runs * n_kinds + tokens[i : n + i]
    return runs


def counts(keys: Ids, asked: Ids) -> Ids:
    """How often each of `asked` stands among `keys`."""
    seen, n = np.unique(keys, return_counts=True)
    at = np.minimum(np.searchsorted(seen, asked), len(seen) - 1)
    return np.where(seen[at] == asked, n[at], 0)


def surprisal_by_counts(train: Ids, valid: Ids, n_kinds: int, longest: int) -> list[Array]:
    """-ln p of each token of `valid` but the first, by counts in `train` of 0, 1, ... longest tokens before it.

    A context that was seen n times, with u different tokens after it, says (count + u * what a context one token
    shorter says) / (n + u): so the more kinds it was followed by, the less it is believed (Witten and Bell 1991, method
    C). The shortest, none at all, says the shares of tokens, each counted once more than it was seen.
    """
    p = (np.bincount(train, minlength=n_kinds) + 1)[valid[1:]] / (len(train) + n_kinds)
    found = [-np.log(p)]
    for length in range(1, longest + 1):
        seen, asked = windows(train, length + 1, n_kinds), windows(valid, length + 1, n_kinds)
        n, u = counts(seen // n_kinds, asked // n_kinds), counts(np.unique(seen) // n_kinds, asked // n_kinds)
        shorter = p[length - 1 :]
        longer = (counts(seen, asked) + u * shorter) / np.maximum(n + u, 1)
        p = np.concatenate((p[: length - 1], np.where(n > 0, longer, shorter)))
        found.append(-np.log(p))
    return found

"""Attention on three tokens, small enough to check by hand: every number printed is computed by the reference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from plainformer import reference

# Three queries, keys and values, two numbers each.
Q_TK = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
K_SK = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
V_SK = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
D_HEAD = 2


def row(numbers: NDArray[np.float64], see: NDArray[np.bool_] | None = None) -> str:
    """Numbers in columns; a dot where a query may not look."""
    return " ".join(f"{x:6.3f}" if see is None or see[i] else "     ." for i, x in enumerate(numbers))


def lines() -> Iterator[str]:
    """The story, a line at a time. Vaswani et al. 2017, section 3.2.1; causal as in GPT."""
    causal_TS = np.tril(np.ones((3, 3), bool))
    raw_TS = reference.scaled_scores(Q_TK, K_SK, 1.0)
    scores_TS = reference.scaled_scores(Q_TK, K_SK, D_HEAD**-0.5)
    out_TK, weights_TS = reference.attention(Q_TK, K_SK, V_SK, causal_TS, D_HEAD**-0.5)
    yield "Three tokens ask (q), offer (k) and say (v), two numbers each. A token may look at itself and back."
    yield ""
    yield "  token    query            key              value"
    for i in range(3):
        yield f"    {i + 1}    {row(Q_TK[i])}    {row(K_SK[i])}    {row(V_SK[i])}"
    yield ""
    yield f"  token    q.k of each key         / sqrt({D_HEAD})               softmax: where it looks"
    for i in range(3):
        see = causal_TS[i]
        yield f"    {i + 1}    {row(raw_TS[i], see)}    {row(scores_TS[i], see)}    {row(weights_TS[i], see)}"
    yield ""
    yield "  token    what it takes: the values it looked at, mixed by those weights"
    for i in range(3):
        mix = " + ".join(f"{weights_TS[i, j]:.3f} * ({V_SK[j, 0]:g}, {V_SK[j, 1]:g})" for j in range(i + 1))
        yield f"    {i + 1}    {row(out_TK[i])}    = {mix}"
    open_TS = reference.softmax(scores_TS)
    yield ""
    yield f"  Without the mask token 1 would look at all three, {row(open_TS[0]).strip()}: it would see the future."

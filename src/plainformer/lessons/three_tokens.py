"""Attention on three tokens, small enough to check by hand: every number printed is computed by the formulas.

H heads (one), T queries, S keys, K numbers of each.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from plainformer import formulas

# One head: three queries, keys and values, two numbers each.
Q_HTK = np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
K_HSK = np.array([[[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]])
V_HSK = np.array([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]])
D_HEAD = 2
CAUSAL_TS = np.tril(np.ones((3, 3), bool))


def row(numbers: NDArray[np.float64], see: NDArray[np.bool_] | None = None) -> str:
    """Numbers in columns; a dot where a query may not look."""
    return " ".join(f"{x:6.3f}" if see is None or see[i] else "     ." for i, x in enumerate(numbers))


def lines() -> Iterator[str]:
    """The story, a line at a time. Vaswani et al. 2017, section 3.2.1; causal as in GPT."""
    raw_HTS = formulas.scaled_scores(Q_HTK, K_HSK, 1.0)
    scores_HTS = formulas.scaled_scores(Q_HTK, K_HSK, D_HEAD**-0.5)
    out_HTK, weights_HTS = formulas.attention(Q_HTK, K_HSK, V_HSK, CAUSAL_TS, D_HEAD**-0.5)
    yield "Three tokens ask (query), offer (key) and say (value). A token may look at itself and back, never ahead."
    yield ""
    yield "  token    query            key              value"
    for i in range(3):
        yield f"    {i + 1}    {row(Q_HTK[0, i])}    {row(K_HSK[0, i])}    {row(V_HSK[0, i])}"
    yield ""
    yield f"  token    query . key             / sqrt({D_HEAD})               softmax: where it looks"
    for i in range(3):
        three = (row(numbers_HTS[0, i], CAUSAL_TS[i]) for numbers_HTS in (raw_HTS, scores_HTS, weights_HTS))
        yield f"    {i + 1}    {'    '.join(three)}"
    yield ""
    yield "  token    what it takes: the values it looked at, mixed by those weights"
    for i in range(3):
        mix = " + ".join(f"{weights_HTS[0, i, j]:.3f} ({V_HSK[0, j, 0]:g}, {V_HSK[0, j, 1]:g})" for j in range(i + 1))
        yield f"    {i + 1}    {row(out_HTK[0, i])}    = {mix}"
    open_S = formulas.softmax(scores_HTS)[0, 0]
    yield ""
    yield f"  Had token 1 been free to look ahead, it would have looked at {row(open_S).strip()}."

"""Tokens -> what an encoder learns from: some of them hidden, and those as targets.

Shapes: B rows, T positions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from plainformer.faults import Fault, PlainformerError

Block = npt.NDArray[np.int64]
MASKED, OTHER = 0.8, 0.1  # of the chosen: hidden, or another token in their place; the rest stay as they are


def mask_tokens(
    tokens_BT: npt.NDArray[np.integer],
    mask_id: int,
    n_tokens: int,
    seed: int,
    step: int,
    *,
    share: float = 0.15,
    lengths: Collection[int] | None = None,
    never: Collection[int] = (),
) -> tuple[Block, Block]:
    """(x_BT, y_BT) of masked-language modelling (Devlin et al. 2019, section 3.1): a pure function of seed and step.

    In each row round(share * its candidates), at least one if there is any, are chosen. A chosen token reads as
    `mask_id` 8 times of 10, as any of the n_tokens once, as itself once; y_BT holds what it was, and -1 everywhere
    else. lengths: how many tokens of each row are real, None: all. never: tokens that are never chosen, as [CLS] is.
    Refuses a share outside 0 to 1, and a mask_id that is no token.
    """
    faults = []
    if not 0 < share <= 1:
        faults.append(Fault("share", share, "must be above 0 and at most 1"))
    if not 0 <= mask_id < n_tokens:
        faults.append(Fault("mask_id", mask_id, f"outside the vocabulary (0 to {n_tokens - 1})"))
    if lengths is not None and len(lengths) != len(tokens_BT):
        faults.append(Fault("lengths", list(lengths), f"must be one for each of the {len(tokens_BT)} rows"))
    if faults:
        raise PlainformerError(faults)
    was_BT = tokens_BT.astype(np.int64)  # a token file's own type has no -1
    may_BT = ~np.isin(was_BT, list(never))
    if lengths is not None:
        may_BT &= np.arange(tokens_BT.shape[1]) < np.array(list(lengths))[:, None]
    order_BT, fate_BT, other_BT = evenly(f"plainformer masks {seed} {step}", (3, *tokens_BT.shape))
    n_may_B = may_BT.sum(1)
    n_chosen_B = np.minimum(n_may_B, np.maximum(1, np.rint(share * n_may_B).astype(np.int64)))
    rank_BT = np.where(may_BT, order_BT, 2.0).argsort(1).argsort(1)  # the rest come last
    chosen_BT = rank_BT < n_chosen_B[:, None]
    x_BT = np.where(chosen_BT & (fate_BT < MASKED), mask_id, was_BT)
    swapped_BT = chosen_BT & (fate_BT >= MASKED) & (fate_BT < MASKED + OTHER)
    x_BT = np.where(swapped_BT, (other_BT * n_tokens).astype(np.int64), x_BT)
    return x_BT, np.where(chosen_BT, was_BT, -1)


def evenly(words: str, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Numbers from 0 to 1 that these words say: the same with every version of NumPy, whose own draws may change."""
    seed = int.from_bytes(hashlib.shake_256(words.encode()).digest(16), "little")
    raw = np.random.PCG64(seed).random_raw(int(np.prod(shape)))
    share: npt.NDArray[np.float64] = (np.asarray(raw, np.uint64) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return share.reshape(shape)

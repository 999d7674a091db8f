"""What an encoder is given to learn from: masks as Devlin et al. 2019 (section 3.1) say, by seed and step alone.

B rows, T positions.
"""

from __future__ import annotations

import numpy as np
import pytest

from plainformer.faults import PlainformerError
from plainformer.text import mask_tokens

MASK, N = 3, 50
TOKENS_BT = np.random.default_rng(0).integers(4, N, (400, 60))  # no token is the mask


def test_fifteen_of_a_hundred_are_chosen_in_every_row_and_only_they_are_targets() -> None:
    x_BT, y_BT = mask_tokens(TOKENS_BT, MASK, N, seed=0, step=0)
    chosen_BT = y_BT >= 0
    assert (chosen_BT.sum(1) == 9).all()  # 15 % of 60
    assert (y_BT[chosen_BT] == TOKENS_BT[chosen_BT]).all()
    assert (x_BT[~chosen_BT] == TOKENS_BT[~chosen_BT]).all()
    assert {x_BT.dtype, y_BT.dtype} == {np.dtype(np.int64)}


def test_of_the_chosen_eight_of_ten_are_hidden_one_is_another_one_stays() -> None:
    """3,600 chosen tokens: a share is off by 0.03 with odds below 1 in 100,000."""
    x_BT, y_BT = mask_tokens(TOKENS_BT, MASK, N, seed=0, step=0)
    read, was = x_BT[y_BT >= 0], y_BT[y_BT >= 0]
    other = read[(read != MASK) & (read != was)]
    assert np.mean(read == MASK) == pytest.approx(0.8, abs=0.03)
    assert np.mean(read == was) == pytest.approx(0.1, abs=0.03)
    assert len(other) / len(read) == pytest.approx(0.1, abs=0.03)
    assert len(set(other.tolist())) > N / 2  # any of the vocabulary


def test_where_the_masks_fall_has_no_favourite_place() -> None:
    _, y_BT = mask_tokens(TOKENS_BT, MASK, N, seed=0, step=0)
    share_T = (y_BT >= 0).mean(0)
    assert 0.08 < share_T.min() < share_T.max() < 0.23  # 0.15, four deviations either way


def test_masks_hang_on_seed_and_step_alone() -> None:
    first = mask_tokens(TOKENS_BT, MASK, N, seed=1, step=2)
    np.random.default_rng(5).random(9)
    again = mask_tokens(TOKENS_BT.astype(np.uint8), MASK, N, seed=1, step=2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    for other in ((1, 3), (2, 2)):
        assert not np.array_equal(first[0], mask_tokens(TOKENS_BT, MASK, N, *other)[0])
    few_x_BT, _ = mask_tokens(np.arange(4, 14)[None], MASK, N, seed=0, step=0)
    assert few_x_BT.tolist() == [[4, 5, 3, 7, 8, 9, 10, 11, 3, 13]]  # for ever


def test_padding_and_tokens_that_hold_a_place_are_never_chosen() -> None:
    tokens_BT = TOKENS_BT.copy()
    tokens_BT[:, 0] = 2
    lengths = [1 + b % 60 for b in range(len(tokens_BT))]
    x_BT, y_BT = mask_tokens(tokens_BT, MASK, N, seed=0, step=0, lengths=lengths, never=[2])
    real_BT = np.arange(60) < np.array(lengths)[:, None]
    assert (y_BT[~real_BT] == -1).all()
    assert (x_BT[~real_BT] == tokens_BT[~real_BT]).all()
    assert (y_BT[:, 0] == -1).all()
    n_B = (y_BT >= 0).sum(1)
    assert n_B[0] == 0  # one token, and that may not be chosen
    assert (n_B[np.array(lengths) > 1] >= 1).all()


@pytest.mark.parametrize(
    "given, where",
    [({"share": 0.0}, "share"), ({"share": 1.5}, "share"), ({"mask_id": 50}, "mask_id"), ({"lengths": [3]}, "lengths")],
)
def test_what_cannot_be_is_refused_by_name(given: dict[str, object], where: str) -> None:
    with pytest.raises(PlainformerError) as error:
        mask_tokens(**{"tokens_BT": TOKENS_BT, "mask_id": MASK, "n_tokens": N, "seed": 0, "step": 0} | given)
    assert [fault.where for fault in error.value.faults] == [where]

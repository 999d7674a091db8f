"""What a token is drawn from and how: the reference's odds, limits that hold, draws that know no neighbour."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from automata import COIN, automaton, coin
from plainformer import PlainformerError, reference
from plainformer.generation import Decoding, Sampling, decoding, generate, probabilities
from plainformer.generation.sampling import draw
from plainformer.model import Transformer
from specs import TINY, arrays_of


@given(
    st.lists(st.one_of(st.floats(-30, 30, width=32), st.sampled_from([0.0, 1.0])), min_size=1, max_size=12),
    st.sampled_from([0.0, 1e-30, 0.3, 1.0, 2.0]),
    st.sampled_from([None, 1, 2, 3, 50]),
    st.sampled_from([1.0, 0.999, 0.9, 0.41, 1e-9]),
)
def test_probabilities_are_the_reference_s(z: list[float], t: float, k: int | None, p: float) -> None:
    logits_V = np.array(z)
    mine = probabilities(logits_V, Sampling(temperature=t, top_k=k, top_p=p))
    theirs = reference.probabilities(logits_V, temperature=t, top_k=k, top_p=p)
    if not np.allclose(mine, theirs, rtol=0, atol=1e-12):
        # A sum that meets top_p to the last bit may fall on either side of it, by the order of adding.
        assert p < 1
        order = np.argsort(-logits_V, kind="stable")
        sums = reference.probabilities(logits_V, temperature=t, top_k=k)[order].cumsum()
        assert np.abs(sums - p).min() < 1e-12


def test_probabilities_are_softmax_of_logits_over_temperature() -> None:
    for t, want in (
        (1.0, [0.66524, 0.24473, 0.09003]),
        (0.5, [0.86681, 0.11731, 0.01588]),
        (2.0, [0.50648, 0.3072, 0.18632]),
    ):
        assert np.allclose(probabilities(np.array([2.0, 1, 0]), Sampling(temperature=t)), want, atol=1e-5)
    assert np.allclose(probabilities(np.array([2.0, 1, 0]), Sampling(temperature=1e-30)), [1, 0, 0])
    assert np.allclose(probabilities(np.array([1e4, 0.0]), Sampling()), [1, 0])


def test_min_p_keeps_what_is_at_least_that_share_of_the_likeliest() -> None:
    logits_V = np.log([0.5, 0.3, 0.15, 0.05])
    assert np.allclose(probabilities(logits_V, Sampling(min_p=0.29)), np.array([0.5, 0.3, 0.15, 0]) / 0.95)
    assert np.allclose(probabilities(logits_V, Sampling(min_p=1.0)), [1, 0, 0, 0])
    assert np.allclose(probabilities(logits_V, Sampling()), [0.5, 0.3, 0.15, 0.05])


SETTINGS = [
    ({}, [0.45, 0.30, 0.17, 0.08]),
    ({"top_k": 2}, [0.6, 0.4, 0, 0]),
    ({"top_k": 50}, [0.45, 0.30, 0.17, 0.08]),
    ({"top_p": 0.4}, [1, 0, 0, 0]),
    ({"top_p": 0.6}, [0.6, 0.4, 0, 0]),
    ({"top_p": 0.8}, [0.45 / 0.92, 0.30 / 0.92, 0.17 / 0.92, 0]),
    ({"top_p": 0.95}, [0.45, 0.30, 0.17, 0.08]),
    ({"temperature": 0.0}, [1, 0, 0, 0]),
    ({"temperature": 0.5}, [0.618, 0.275, 0.088, 0.020]),
    ({"top_k": 3, "top_p": 0.7, "min_p": 0.5}, [0.6, 0.4, 0, 0]),
]


@pytest.mark.parametrize("settings, odds", SETTINGS)
def test_the_limits_of_sampling_hold_in_what_is_drawn(settings: dict[str, Any], odds: list[float]) -> None:
    """4,000 draws: a count is further than 130 from its mean once in 10^4 (4 standard deviations and more)."""
    drawn_tokens = np.concatenate([generate(coin(max_seq_len=128), [[0]] * 40, 100, seed=3, **settings).new]).ravel()
    counts = np.bincount(drawn_tokens, minlength=len(COIN))
    assert counts[[0, 5, 6, 7, 8]].sum() == 0, "a token was drawn that cannot come"
    assert np.abs(counts[1:5] - 4000 * np.array(odds)).max() <= 130
    assert [int(n) for n in counts[1:5] if n == 0] == [0] * odds.count(0)


def test_a_limit_that_cuts_nothing_changes_no_token() -> None:
    model = Transformer(TINY["llama"], initial=None)
    model.take(arrays_of(TINY["llama"]).items())
    want = generate(model, [1, 2], 12, seed=2).new
    assert generate(model, [1, 2], 12, seed=2, top_k=50).new == want
    assert generate(model, [1, 2], 12, seed=2, top_k=13).new == want
    assert generate(model, [1, 2], 12, seed=2, top_k=50, top_p=1 - 1e-12, min_p=1e-12).new == want


@given(
    st.lists(st.sampled_from([0.0, 1e-300, 1e-9, 1.0, 3.0]), min_size=1, max_size=9), st.floats(0, 1, exclude_max=True)
)
def test_what_has_probability_0_is_never_drawn(odds: list[float], u: float) -> None:
    class Fixed:
        def random(self) -> float:
            return u

    with np.errstate(divide="ignore"):
        logits_V = np.log(np.array([*odds, 1.0])) * 3
    token = draw(logits_V, Sampling(), Fixed())  # type: ignore[arg-type]
    assert probabilities(logits_V, Sampling())[token] > 0


def test_the_largest_draw_gives_the_last_token_that_may_come() -> None:
    class Largest:
        def random(self) -> float:
            return float(np.nextafter(1.0, 0.0))

    for n in range(1, 60):
        logits_V = np.append(np.random.default_rng(n).normal(size=n), [-np.inf, -1e9])
        assert draw(logits_V, Sampling(), Largest()) == n - 1  # type: ignore[arg-type]


def test_rows_of_the_head_beyond_the_tokenizer_are_never_drawn() -> None:
    scores_VV = np.zeros((5, 5))
    model = automaton(scores_VV, n_rows=8)
    assert set(generate(model, [0], 40, n_tokens=5, temperature=0).new[0]) == {0}
    assert set(generate(model, [[0]] * 20, 40, n_tokens=5, temperature=9.0).new[0]) <= set(range(5))
    assert generate(model, [0], 3, temperature=0).new[0] != [0, 0, 0], "they would be the best"
    run = Decoding(model, [0], 40, Sampling(temperature=5.0), n_tokens=5, never=[1, 3])
    while run.step():
        pass
    assert set(run.rows[0].new) == {0, 2, 4}


def test_an_id_outside_the_vocabulary_stops_generation_by_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "draw", lambda *_: -9223372036854775808)
    with pytest.raises(PlainformerError, match="-9223372036854775808: drawn from outside the vocabulary"):
        generate(coin(), [0], 3)


@pytest.mark.parametrize("way", [{"temperature": 0.0}, {"temperature": 1.0}, {"n_beams": 3}])
@pytest.mark.parametrize("score", ["nan", "inf"])
def test_scores_that_are_no_numbers_are_refused(way: dict[str, Any], score: str) -> None:
    model = coin()
    with torch.no_grad():
        model.head.weight[3, 0] = float(score)
    with pytest.raises(PlainformerError, match=f"logits = {score}"):
        generate(model, [0], 3, **way)


# --- the seed ---------------------------------------------------------------------------------------------------------


def test_the_first_of_four_samples_is_the_only_one_of_one_and_not_all_are_alike() -> None:
    four, one = generate(coin(), [[0]] * 4, 40, seed=7).new, generate(coin(), [[0]], 40, seed=7).new
    assert four[0] == one[0]
    assert len({tuple(row) for row in four}) == 4


def test_a_row_s_draws_depend_on_no_neighbour() -> None:
    alone = generate(coin(), [[1, 2]], 30, seed=7).new[0]
    for company in ([[0]], [[0], [3], [4]], [[2, 1], [0, 0, 0]]):
        assert generate(coin(), [*company, [1, 2]], 30, seed=7).new[-1] == alone
    different = generate(coin(), [[0], [1], [2]], 30, seed=7).new
    assert len({tuple(row) for row in different}) == 3, "different prompts, different draws"

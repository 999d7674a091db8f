"""Behaviours that any GPT must show, by short ids, each a function of an adapter that raises where it is not so.

LN layer norm, GE the activation, FF feed-forward, AT attention, BL block, GP whole model, GR gradients, TR training,
GN generation, KV its cache, MO experts. The oracle at the top is from the papers' formulas, apart from the product.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

Array = np.ndarray
CHECKS: dict[str, tuple[frozenset[str], Callable[[Any], None]]] = {}
SHAPE = {"vocab": 23, "width": 24, "layers": 3, "heads": 4, "context": 32}


def check(*needs: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a function under the first word of its name, with what an adapter must offer for it."""

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        CHECKS[function.__name__.partition("_")[0].upper()] = frozenset(needs), function
        return function

    return register


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- the oracle -------------------------------------------------------------------------------------------------------


def share(z: Array) -> Array:
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normed(x: Array, gain: Array, bias: Array | float, eps: float = 1e-5) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * gain + bias


def bump(x: Array, kind: str) -> Array:
    if kind == "tanh":
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def expected_logits(p: dict[str, Array], ids: Array, layers: int, heads: int, kind: str) -> Array:
    """(T, V) of a pre-norm decoder from its parameters by role, one row of ids."""
    n, stream = len(ids), p["wte"][ids] + p["wpe"][: len(ids)]
    for block in (f"block{i}." for i in range(layers)):

        def times(x: Array, role: str, block: str = block) -> Array:
            return x @ p[f"{block}{role}.w"] + p.get(f"{block}{role}.b", 0.0)

        u = normed(stream, p[f"{block}ln1.gain"], p[f"{block}ln1.bias"])
        q, k, v = (times(u, f"attn.{name}").reshape(n, heads, -1).transpose(1, 0, 2) for name in "qkv")
        scores = np.einsum("htd,hsd->hts", q, k) / math.sqrt(q.shape[-1])
        scores[:, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        mixed = np.einsum("hts,hsd->thd", share(scores), v).reshape(n, -1)
        stream = stream + times(mixed, "attn.o")
        u = normed(stream, p[f"{block}ln2.gain"], p[f"{block}ln2.bias"])
        stream = stream + times(bump(times(u, "mlp.up"), kind), "mlp.down")
    stream = normed(stream, p["ln_f.gain"], p["ln_f.bias"])
    return stream @ (p["head.w"] if "head.w" in p else p["wte"].T)


def nats(logits: Array, targets: Array) -> float:
    """Mean surprisal."""
    z = np.asarray(logits, np.float64)
    p = np.take_along_axis(share(z), np.asarray(targets)[..., None], -1)
    return float(-np.log(p).mean())


def spread(ad: Any, model: Any, scale: float = 0.4) -> Any:
    """Every parameter large enough that a wrong formula cannot hide."""
    r = rng(5)
    for role, array in ad.params(model).items():
        ad.assign(model, role, role.endswith("gain") + scale * r.standard_normal(array.shape))
    return model


def made(ad: Any, scale: float = 0.4, **more: Any) -> Any:
    return spread(ad, ad.make(**SHAPE, **more), scale)


# --- layer norm, activation, feed-forward -----------------------------------------------------------------------------


@check()
def ln1_rows_have_mean_0_and_a_variance_just_below_1(ad: Any) -> None:
    x = 3 + 7 * rng(0).standard_normal((2, 3, 16))
    y, v = ad.layer_norm(x, np.ones(16), np.zeros(16), 1e-5), x.var(-1)
    assert np.abs(y.mean(-1)).max() < ad.atol
    assert np.abs(y.var(-1) - v / (v + 1e-5)).max() < 10 * ad.atol


@check()
def ln2_gain_and_bias_come_last(ad: Any) -> None:
    x, gain, bias = rng(1).standard_normal((4, 8)), np.arange(1.0, 9), np.linspace(-1, 1, 8)
    assert np.allclose(ad.layer_norm(x, gain, bias, 1e-5), normed(x, gain, bias), atol=20 * ad.atol)


@check()
def ln3_a_constant_row_gives_the_bias_and_disturbs_nobody(ad: Any) -> None:
    bias = np.array([0.1, 0.2, 0.3, 0.4])
    y = ad.layer_norm(np.array([[5.0] * 4, [1, 2, 3, 4], [0] * 4]), np.ones(4), bias, 1e-5)
    assert np.allclose(y[::2], bias, atol=1e-3)
    assert np.allclose(y[1] - bias, [-1.3416354, -0.4472118, 0.4472118, 1.3416354], atol=1e-4)


@check()
def ln4_a_row_is_the_same_alone_and_beside_others(ad: Any) -> None:
    x = rng(2).standard_normal((3, 8)) * [[1], [1e3], [1]]
    together, alone = (ad.layer_norm(y, np.ones(8), np.zeros(8), 1e-5)[0] for y in (x, x[:1]))
    assert np.allclose(together, alone, atol=ad.atol)


@check()
def ln5_only_the_epsilon_knows_the_scale(ad: Any) -> None:
    x, one, none = np.array([[1.0, 2, 3, 4]]), np.ones(4), np.zeros(4)
    gap = np.abs(ad.layer_norm(100 * x, one, none, 1e-5) - ad.layer_norm(x, one, none, 1e-5)).max()
    assert 0 < gap < 1e-5


@check("grad")
def ln6_gradients_flow_through_mean_and_spread(ad: Any) -> None:
    x, gain, up = rng(3).standard_normal((2, 6)), rng(4).standard_normal(6), rng(5).standard_normal((2, 6))
    dx, _, dbias = ad.layer_norm_grad(x, gain, np.zeros(6), 1e-5, up)
    slope = np.empty_like(x)
    for at in np.ndindex(x.shape):
        nudge = np.zeros_like(x)
        nudge[at] = 1e-6
        slope[at] = ((normed(x + nudge, gain, 0) - normed(x - nudge, gain, 0)) * up).sum() / 2e-6
    assert np.allclose(dx, slope, atol=max(1e-6, 50 * ad.atol))
    assert np.abs(dx.sum(-1)).max() < 50 * ad.atol  # a constant shift is invisible
    assert np.allclose(dbias, up.sum(0), atol=50 * ad.atol)
    assert all(np.isfinite(g).all() for g in ad.layer_norm_grad(np.full((2, 6), 3.0), gain, np.zeros(6), 1e-5, up))


@check()
def ln7_another_width_is_refused(ad: Any) -> None:
    with pytest.raises((ValueError, RuntimeError)):
        ad.layer_norm(np.ones((1, 3)), np.ones(2), np.zeros(2), 1e-5)


GELU = {
    "exact": [-0.00404969, -0.04550026, -0.15865525, 0, 0.84134475, 1.95449974],
    "tanh": [-0.00363739, -0.04540231, -0.15880801, 0, 0.84119199, 1.95459769],
}


@check("gelu_exact", "gelu_tanh")
def ge1_values_of_both_forms(ad: Any) -> None:
    for kind, want in GELU.items():
        assert np.allclose(ad.gelu(np.array([-3.0, -2, -1, 0, 1, 2]), kind), want, atol=1e-6)


@check("gelu_exact", "gelu_tanh")
def ge2_what_it_does_to_x_and_to_minus_x_differs_by_x(ad: Any) -> None:
    x = np.linspace(-8, 8, 161)
    assert all(np.allclose(ad.gelu(x, kind) - ad.gelu(-x, kind), x, atol=20 * ad.atol) for kind in GELU)


@check()
def ff1_width_8_has_32_hidden_units_and_552_weights(ad: Any) -> None:
    p = ad.params(ad.make(vocab=5, width=8, layers=1, heads=1, context=4))
    assert (p["block0.mlp.up.w"].shape, p["block0.mlp.down.w"].shape) == ((8, 32), (32, 8))
    assert sum(array.size for role, array in p.items() if ".mlp." in role) == 552


@check()
def ff2_it_never_mixes_tokens(ad: Any) -> None:
    model, x = made(ad), rng(1).standard_normal((5, 24))
    y = x.copy()
    y[2] += rng(2).standard_normal(24)
    gap = np.abs(ad.mlp(model, 0, x) - ad.mlp(model, 0, y)).max(-1)
    assert gap[[0, 1, 3, 4]].max() < ad.atol
    assert gap[2] > 1e-3


# --- attention and block ----------------------------------------------------------------------------------------------


@check()
def at1_three_tokens_by_hand(ad: Any) -> None:
    q, k = np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([[1.0, 0], [0, 2], [1, 1]])
    out, weights = ad.attention(q, k, q, np.tril(np.ones((3, 3), bool)))
    assert np.allclose(weights, [[1, 0, 0], [0.19557, 0.80443, 0], [0.19777, 0.40112, 0.40112]], atol=1e-5)
    assert np.allclose(out, [[1, 0], [0.19557, 0.80443], [0.59888, 0.80223]], atol=1e-5)
    assert np.allclose(ad.attention(q, k, q, np.ones((3, 3), bool))[1][0], [0.40112, 0.19777, 0.40112], atol=1e-5)


@check()
def at2_scores_are_divided_by_the_root_of_the_width(ad: Any) -> None:
    weights = ad.attention(np.ones((1, 16)), np.eye(2, 1) * np.ones(16), np.eye(2, 16), np.ones((1, 2), bool))[1]
    assert np.allclose(weights[0], share(np.array([4.0, 0])), rtol=1e-4)


@check()
def at3_no_score_buys_its_way_past_the_mask(ad: Any) -> None:
    for keys in ([[0.0], [1e5]], [[-1e5], [0.0]]):
        see = np.tril(np.ones((2, 2), bool))
        out, weights = ad.attention(np.full((2, 1), 1e5), np.array(keys), np.array([[1.0], [99.0]]), see)
        assert weights[0].tolist() == [1.0, 0.0]
        assert out[0, 0] == 1.0
        assert np.isfinite(out).all()


@check()
def at4_a_query_that_may_see_nothing_gets_nothing(ad: Any) -> None:
    """The contract leaves refusal open; ours is weights of exactly 0, and an output of 0."""
    one = np.ones((2, 3))
    out, weights = ad.attention(one, one, one, np.array([[False, False], [True, True]]))
    assert np.isfinite(out).all()
    assert (weights[0] == 0).all()
    assert (out[0] == 0).all()


@check()
def at5_one_token_sees_itself(ad: Any) -> None:
    v = rng(0).standard_normal((1, 4))
    out, weights = ad.attention(v, v, v, np.ones((1, 1), bool))
    assert weights.tolist() == [[1.0]]
    assert np.allclose(out, v, atol=ad.atol)


@check()
def at6_weights_depend_on_what_is_said(ad: Any) -> None:
    for weights in ad.attention_weights(made(ad), rng(1).integers(0, 23, 12)):
        assert np.allclose(weights.sum(-1), 1, atol=1e-5)
        assert (np.triu(weights, 1) == 0).all()
        bits = -(weights * np.log(np.clip(weights, 1e-30, 1))).sum(-1)[:, 1:] / np.log(np.arange(2, 13))
        assert bits.mean() < 0.95  # 1 where content is ignored


@check()
def at7_an_impossible_split_is_refused(ad: Any) -> None:
    for width, heads in ((10, 4), (8, 0), (8, -2), (2, 4)):
        with pytest.raises(ValueError):
            ad.make(vocab=5, width=width, layers=1, heads=heads, context=4)


@check()
def bl1_with_both_parts_silent_the_input_comes_out(ad: Any) -> None:
    model = made(ad)
    for role, array in ad.params(model).items():
        if role.startswith(("block0.attn.o", "block0.mlp.down")):
            ad.assign(model, role, np.zeros(array.shape))
    x = rng(1).standard_normal((6, 24)).astype(ad.dtype)
    assert np.array_equal(ad.block(model, 0, x, True), x)


@check("encoder")
def bl2_the_last_token_reaches_back_in_an_encoder_alone(ad: Any) -> None:
    model, x = made(ad), rng(2).standard_normal((5, 24))
    y = x.copy()
    y[4] += rng(3).standard_normal(24)
    said = {
        (causal, which): ad.block(model, 0, z, causal) for causal in (True, False) for which, z in enumerate((x, y))
    }
    assert np.array_equal(said[True, 0][:4], said[True, 1][:4])
    assert np.abs(said[False, 0][0] - said[False, 1][0]).max() > 1e-3
    assert np.allclose(said[False, 0][4], said[True, 0][4], atol=10 * ad.atol)


@check("encoder")
def bl3_without_positions_order_is_invisible(ad: Any) -> None:
    model, x, order = made(ad), rng(4).standard_normal((6, 24)), rng(5).permutation(6)
    assert np.allclose(ad.block(model, 0, x[order], False), ad.block(model, 0, x, False)[order], atol=100 * ad.atol)


# --- whole model ------------------------------------------------------------------------------------------------------


@check()
def gp1_logits_are_the_formula(ad: Any) -> None:
    model, ids = made(ad), rng(1).integers(0, 23, (2, 11))
    want = np.stack([expected_logits(ad.params(model), row, 3, 4, ad.gelu_kind) for row in ids])
    got = ad.logits(model, ids)
    assert got.shape == (2, 11, 23)
    assert np.abs(got - want).max() < 300 * ad.atol


@check()
def gp2_the_future_moves_no_bit(ad: Any) -> None:
    model, ids = made(ad), rng(2).integers(0, 23, 16)
    before = ad.logits(model, ids[None])[0]
    for cut in (0, 4, 8, 14):
        other = np.where(np.arange(16) > cut, (ids + 1) % 23, ids)
        after = ad.logits(model, other[None])[0]
        assert np.array_equal(after[: cut + 1], before[: cut + 1])
        assert np.abs(after - before)[cut + 1 :].max(-1).min() > 0


@check()
def gp3_one_token_repeated_differs_by_position_alone(ad: Any) -> None:
    model, ids = made(ad), np.full((1, 12), 3)
    for floor, ceiling in ((1e-3, np.inf), (-1, 1e3 * ad.atol)):
        said = ad.logits(model, ids)[0]
        assert floor < np.abs(said - said[0]).max() < ceiling
        ad.assign(model, "wpe", np.zeros((32, 24)))


@check("tied")
def gp4_a_tied_head_is_the_token_table(ad: Any) -> None:
    model, ids = made(ad, tied=True), np.array([[1, 2, 3]])
    assert "head.w" not in ad.params(model)
    before, table = ad.logits(model, ids)[0, -1, 7], ad.params(model)["wte"].copy()
    table[7] *= 2
    ad.assign(model, "wte", table)
    assert np.isclose(ad.logits(model, ids)[0, -1, 7], 2 * before, atol=300 * ad.atol)


@check("tied", "attn_bias_option")
def gp5_weights_of_the_tiny_gpt(ad: Any) -> None:
    for attn_bias, want in ((False, 27_328), (True, 27_584)):
        model = ad.make(vocab=50, width=32, layers=2, heads=4, context=16, tied=True, attn_bias=attn_bias)
        assert ad.param_count(model) == want == sum(array.size for array in ad.params(model).values())


@check()
def gp6_heads_cost_nothing(ad: Any) -> None:
    counts = {ad.param_count(ad.make(vocab=50, width=32, layers=2, heads=n, context=16)) for n in (1, 2, 4, 8)}
    assert len(counts) == 1


@check()
def gp7_bad_input_is_refused_in_words(ad: Any) -> None:
    model = ad.make(**SHAPE)
    for ids in (np.zeros((1, 33), int), np.array([[23]]), np.array([[-1]]), np.zeros((1, 0), int)):
        with pytest.raises(ValueError, match=r"\w"):
            ad.logits(model, ids)


@check()
def gp8_untrained_is_as_good_as_a_guess(ad: Any) -> None:
    model, ids = ad.make(vocab=400, width=32, layers=2, heads=4, context=32), rng(1).integers(0, 400, (4, 32))
    assert abs(nats(ad.logits(model, ids)[:, :-1], ids[:, 1:]) - math.log(400)) < 0.1


@check()
def gp9_rows_do_not_see_each_other(ad: Any) -> None:
    model, ids = made(ad), rng(3).integers(0, 23, (3, 9))
    assert np.allclose(ad.logits(model, ids)[1], ad.logits(model, ids[1:2])[0], atol=300 * ad.atol)


# --- learning ---------------------------------------------------------------------------------------------------------


@check("grad")
def gr1_every_gradient_is_a_slope(ad: Any) -> None:
    model, ids, r = made(ad), rng(1).integers(0, 23, (2, 10)), rng(9)
    loss, grads = ad.loss_and_grads(model, ids[:, :-1], ids[:, 1:])
    p = ad.params(model)

    def at(q: dict[str, Array]) -> float:
        return float(np.mean([nats(expected_logits(q, row[:-1], 3, 4, ad.gelu_kind), row[1:]) for row in ids]))

    assert set(grads) == set(p)
    dead = [role for role, g in grads.items() if np.abs(g).max() <= 1e-10 and not role.endswith("attn.k.b")]
    assert not dead  # softmax cancels a key's bias
    assert abs(at(p) - loss) < 1e3 * ad.atol
    for role, array in p.items():
        place = tuple(r.integers(0, n) for n in array.shape)
        ends = []
        for nudge in (1e-5, -1e-5):
            moved = array.copy()
            moved[place] += nudge
            ends.append(at(p | {role: moved}))
        assert abs((ends[0] - ends[1]) / 2e-5 - grads[role][place]) < max(2e-6, 2e3 * ad.atol), role


@check("grad")
def gr2_the_loss_reported_is_the_loss(ad: Any) -> None:
    model, ids = made(ad), rng(2).integers(0, 23, (3, 12))
    loss, _ = ad.loss_and_grads(model, ids[:, :-1], ids[:, 1:])
    assert abs(loss - nats(ad.logits(model, ids[:, :-1]), ids[:, 1:])) < 1e-3


SNIPPETS = (
    "def add(a, b):\n    return a + b",
    "for i in range(9):\n    print(i)",
    "if x > 0:\n    say('yes')",
    "n = [1, 2, 3, 4]",
    "while True:\n    break",
)


@check("train")
def tr1_it_learns_five_snippets_by_heart(ad: Any) -> None:
    characters = sorted({"\0", *"".join(SNIPPETS)})
    data = np.array([[characters.index(c) for c in text.ljust(48, "\0")] for text in SNIPPETS])
    model = ad.make(vocab=len(characters), width=32, layers=1, heads=4, context=48)
    history = ad.fit(model, data, steps=400, lr=3e-3, batch=5)
    assert np.isfinite(history).all()
    assert np.mean(history[-20:]) < 0.2 * history[0]
    assert nats(ad.logits(model, data[:, :-1]), data[:, 1:]) < 1.0


@check("train")
def tr2_it_learns_to_copy_from_three_back(ad: Any) -> None:
    """No bigram can, and no average: guessing costs ln 12."""

    def copies(n: int, seed: int) -> Array:
        return np.tile(rng(seed).integers(0, 12, (n, 3)), 6)

    model, new = ad.make(vocab=12, width=32, layers=2, heads=4, context=18), copies(64, 2)
    ad.fit(model, copies(512, 1), steps=400, lr=3e-3, batch=32)
    assert nats(ad.logits(model, new[:, :-1])[:, 5:], new[:, 6:]) < 0.5 < math.log(12)


# --- generation -------------------------------------------------------------------------------------------------------


@check()
def gn1_temperature_0_takes_the_best_and_keeps_the_prompt(ad: Any) -> None:
    model = made(ad)
    out, _ = ad.generate(model, np.array([[3, 1, 4]]), 5, temperature=0, seed=0, cache=False)
    assert out.shape == (1, 8)
    assert out[0, :3].tolist() == [3, 1, 4]
    assert all(out[0, t] == ad.logits(model, out[:, :t])[0, -1].argmax() for t in range(3, 8))


@check()
def gn2_a_temperature_that_means_nothing_is_refused(ad: Any) -> None:
    for temperature in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError):
            ad.generate(ad.make(**SHAPE), np.array([[1]]), 2, temperature=temperature, seed=0, cache=False)


@check()
def gn3_chances_are_softmax_of_scores_over_temperature(ad: Any) -> None:
    known = {1.0: [0.66524, 0.24473, 0.09003], 0.5: [0.86681, 0.11731, 0.01588], 2.0: [0.50648, 0.30720, 0.18632]}
    for temperature, want in known.items():
        assert np.allclose(ad.probs(np.array([2.0, 1, 0]), temperature), want, atol=1e-5)
    assert np.allclose(ad.probs(np.array([2.0, 1, 0]), 1e-30), [1, 0, 0])
    assert np.allclose(ad.probs(np.array([1e4, 0.0]), 1.0), [1, 0])


@check()
def gn4_what_cannot_be_is_refused(ad: Any) -> None:
    for prompt, n in ((np.zeros((1, 0), int), 1), (np.array([[1]]), -1), (np.zeros((1, 30), int), 3)):
        with pytest.raises(ValueError):
            ad.generate(ad.make(**SHAPE), prompt, n, temperature=0, seed=0, cache=False)


@check("batch_generate")
def gn5_each_row_goes_its_own_way(ad: Any) -> None:
    model, prompts = made(ad), np.array([[1, 2], [9, 4], [0, 7]])
    for cache in (False, True):
        together, _ = ad.generate(model, prompts, 6, temperature=0, seed=0, cache=cache)
        for row, prompt in zip(together, prompts, strict=True):
            assert np.array_equal(row, ad.generate(model, prompt[None], 6, temperature=0, seed=0, cache=cache)[0][0])


@check()
def gn6_a_seed_repeats_and_no_new_tokens_are_the_prompt(ad: Any) -> None:
    model, prompt = ad.make(**SHAPE), np.array([[5, 6]])
    one, two, other = (ad.generate(model, prompt, 8, temperature=1.0, seed=n, cache=False)[0] for n in (4, 4, 5))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
    assert np.array_equal(ad.generate(model, prompt, 0, temperature=1.0, seed=4, cache=False)[0], prompt)


@check("kv")
def kv1_the_text_is_the_same_with_and_without_a_cache(ad: Any) -> None:
    """Request after request, and at a temperature where a small error changes the text."""
    model = made(ad, scale=0.25)
    for temperature, prompt in ((0, [3, 1, 4, 1, 5, 9, 2, 6]), (2.0, [3, 1, 4]), (2.0, [7, 7, 0, 2]), (2.0, [3, 1, 4])):
        plain, cached = (
            ad.generate(model, np.array([prompt]), 16, temperature=temperature, seed=8, cache=cache)[0]
            for cache in (False, True)
        )
        assert np.array_equal(plain, cached), (temperature, prompt)


@check("kv")
def kv2_token_by_token_gives_the_logits_of_one_pass(ad: Any) -> None:
    model, ids = made(ad), rng(1).integers(0, 23, 9)
    assert np.abs(ad.stepwise_logits(model, ids) - ad.logits(model, ids[None])[0]).max() < 300 * ad.atol


@check("kv", "counts")
def kv3_positions_that_pass_through_the_layers(ad: Any) -> None:
    for n_prompt, n_new, full, cached in ((8, 16, 248, 23), (2, 4, 14, 5)):
        model, prompt = ad.make(**SHAPE), np.zeros((1, n_prompt), int)
        for cache, want in ((False, full), (True, cached)):
            assert ad.generate(model, prompt, n_new, temperature=0, seed=0, cache=cache)[1] == want


@check("kv")
def kv4_the_last_place_can_be_used_and_no_other(ad: Any) -> None:
    model, prompt = ad.make(**SHAPE), np.zeros((1, 30), int)
    assert ad.generate(model, prompt, 2, temperature=0, seed=0, cache=True)[0].shape == (1, 32)
    with pytest.raises(ValueError):
        ad.generate(model, prompt, 3, temperature=0, seed=0, cache=True)


BYTES = {
    (1, 64, 2, 4, 16, 4): 65_536,
    (1, 128, 4, 8, 32, 4): 1_048_576,
    (2, 256, 6, 12, 64, 4): 18_874_368,
    (1, 2048, 96, 96, 128, 2): 9_663_676_416,
}


@check("kv_bytes")
def kv5_bytes_of_a_cache(ad: Any) -> None:
    names = ("batch", "tokens", "layers", "kv_heads", "head", "bytes_per")
    for sizes, want in BYTES.items():
        assert ad.kv_bytes(**dict(zip(names, sizes, strict=True))) == want
    assert all(a < b for a, b in pairwise(BYTES.values()))


# --- experts ----------------------------------------------------------------------------------------------------------


@check("moe")
def mo1_gates_are_shared_by_the_best(ad: Any) -> None:
    assert np.allclose(ad.gates(np.array([[2.0, 1, 0.5, -1]]), 2), [[0.731059, 0.268941, 0, 0]], atol=1e-6)
    assert ad.gates(np.zeros((1, 4)), 2)[0].tolist() == [0.5, 0.5, 0, 0]  # of equal scores the lower expert's wins


@check("moe")
def mo2_the_balance_loss_and_its_ends(ad: Any) -> None:
    assert abs(ad.balance_loss(10 * np.eye(4), 1) - 1) < 1e-3
    assert abs(ad.balance_loss(np.array([[10.0, 0, 0, 0]] * 4), 1) - 4) < 1e-2
    probabilities = np.array([[0.9, 0.1], [0.45, 0.55], [0.45, 0.55]])
    assert abs(ad.balance_loss(np.log(probabilities), 1) - 14 / 15) < 1e-6  # even traffic is no floor
    assert abs(ad.balance_loss(np.array([[30.0, 15, *[0] * 6]] * 8), 2) - 4) < 1e-2  # n / k, not n

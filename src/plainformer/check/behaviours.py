"""Behaviours that any GPT must show, by short ids, each a function of an adapter that raises where it is not so.

LN layer norm, GE the activation, FF feed-forward, AT attention, BL block, GP whole model, GR gradients, TR training,
GN generation, KV its cache, MO experts. The oracle at the top is from the papers' formulas, apart from the product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

Array = Any
CHECKS: dict[str, tuple[frozenset[str], Callable[[Any], None]]] = {}
SHAPE = {"vocab": 23, "width": 24, "layers": 3, "heads": 4, "context": 32}


def check(*needs: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Register a function under the first word of its name, with what an adapter must offer for it."""

    def register(function: Callable[[Any], None]) -> Callable[[Any], None]:
        CHECKS[function.__name__.partition("_")[0].upper()] = frozenset(needs), function
        return function

    return register


class Differs(AssertionError):
    """A behaviour is not shown."""


def must(so: object, words: object = "") -> None:
    """What a behaviour demands; kept when Python leaves asserts out."""
    if not so:
        raise Differs(str(words))


@contextmanager
def refused(*kinds: type[Exception], words: bool = False) -> Iterator[None]:
    """A request inside must be refused by an error of these kinds, in words where it is said."""
    try:
        yield
    except kinds as error:
        must(not words or str(error), "refused without a word")
        return
    raise Differs("was not refused")


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
    must(np.abs(y.mean(-1)).max() < ad.atol)
    must(np.abs(y.var(-1) - v / (v + 1e-5)).max() < 10 * ad.atol)


@check()
def ln2_gain_and_bias_come_last(ad: Any) -> None:
    x, gain, bias = rng(1).standard_normal((4, 8)), np.arange(1.0, 9), np.linspace(-1, 1, 8)
    must(np.allclose(ad.layer_norm(x, gain, bias, 1e-5), normed(x, gain, bias), atol=20 * ad.atol))


@check()
def ln3_a_constant_row_gives_the_bias_and_disturbs_nobody(ad: Any) -> None:
    bias = np.array([0.1, 0.2, 0.3, 0.4])
    y = ad.layer_norm(np.array([[5.0] * 4, [1, 2, 3, 4], [0] * 4]), np.ones(4), bias, 1e-5)
    must(np.allclose(y[::2], bias, atol=1e-3))
    must(np.allclose(y[1] - bias, [-1.3416354, -0.4472118, 0.4472118, 1.3416354], atol=1e-4))


@check()
def ln4_a_row_is_the_same_alone_and_beside_others(ad: Any) -> None:
    x = rng(2).standard_normal((3, 8)) * [[1], [1e3], [1]]
    together, alone = (ad.layer_norm(y, np.ones(8), np.zeros(8), 1e-5)[0] for y in (x, x[:1]))
    must(np.allclose(together, alone, atol=ad.atol))


@check()
def ln5_only_the_epsilon_knows_the_scale(ad: Any) -> None:
    x, one, none = np.array([[1.0, 2, 3, 4]]), np.ones(4), np.zeros(4)
    gap = np.abs(ad.layer_norm(100 * x, one, none, 1e-5) - ad.layer_norm(x, one, none, 1e-5)).max()
    must(0 < gap < 1e-5)


@check("grad")
def ln6_gradients_flow_through_mean_and_spread(ad: Any) -> None:
    x, gain, up = rng(3).standard_normal((2, 6)), rng(4).standard_normal(6), rng(5).standard_normal((2, 6))
    dx, _, dbias = ad.layer_norm_grad(x, gain, np.zeros(6), 1e-5, up)
    slope = np.empty_like(x)
    for at in np.ndindex(x.shape):
        nudge = np.zeros_like(x)
        nudge[at] = 1e-6
        slope[at] = ((normed(x + nudge, gain, 0) - normed(x - nudge, gain, 0)) * up).sum() / 2e-6
    must(np.allclose(dx, slope, atol=max(1e-6, 50 * ad.atol)))
    must(np.abs(dx.sum(-1)).max() < 50 * ad.atol)  # a constant shift is invisible
    must(np.allclose(dbias, up.sum(0), atol=50 * ad.atol))
    must(all(np.isfinite(g).all() for g in ad.layer_norm_grad(np.full((2, 6), 3.0), gain, np.zeros(6), 1e-5, up)))


@check()
def ln7_another_width_is_refused(ad: Any) -> None:
    with refused(ValueError, RuntimeError):
        ad.layer_norm(np.ones((1, 3)), np.ones(2), np.zeros(2), 1e-5)


GELU: dict[str, list[float]] = {
    "exact": [-0.00404969, -0.04550026, -0.15865525, 0, 0.84134475, 1.95449974],
    "tanh": [-0.00363739, -0.04540231, -0.15880801, 0, 0.84119199, 1.95459769],
}


@check("gelu_exact", "gelu_tanh")
def ge1_values_of_both_forms(ad: Any) -> None:
    for kind, want in GELU.items():
        must(np.allclose(ad.gelu(np.array([-3.0, -2, -1, 0, 1, 2]), kind), want, atol=1e-6))


@check("gelu_exact", "gelu_tanh")
def ge2_what_it_does_to_x_and_to_minus_x_differs_by_x(ad: Any) -> None:
    x = np.linspace(-8, 8, 161)
    must(all(np.allclose(ad.gelu(x, kind) - ad.gelu(-x, kind), x, atol=20 * ad.atol) for kind in GELU))


@check()
def ff1_width_8_has_32_hidden_units_and_552_weights(ad: Any) -> None:
    p = ad.params(ad.make(vocab=5, width=8, layers=1, heads=1, context=4))
    must((p["block0.mlp.up.w"].shape, p["block0.mlp.down.w"].shape) == ((8, 32), (32, 8)))
    must(sum(array.size for role, array in p.items() if ".mlp." in role) == 552)


@check()
def ff2_it_never_mixes_tokens(ad: Any) -> None:
    model, x = made(ad), rng(1).standard_normal((5, 24))
    y = x.copy()
    y[2] += rng(2).standard_normal(24)
    gap = np.abs(ad.mlp(model, 0, x) - ad.mlp(model, 0, y)).max(-1)
    must(gap[[0, 1, 3, 4]].max() < ad.atol)
    must(gap[2] > 1e-3)


# --- attention and block ----------------------------------------------------------------------------------------------


@check()
def at1_three_tokens_by_hand(ad: Any) -> None:
    q, k = np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([[1.0, 0], [0, 2], [1, 1]])
    out, weights = ad.attention(q, k, q, np.tril(np.ones((3, 3), bool)))
    must(np.allclose(weights, [[1.0, 0, 0], [0.19557, 0.80443, 0], [0.19777, 0.40112, 0.40112]], atol=1e-5))
    must(np.allclose(out, [[1.0, 0.0], [0.19557, 0.80443], [0.59888, 0.80223]], atol=1e-5))
    must(np.allclose(ad.attention(q, k, q, np.ones((3, 3), bool))[1][0], [0.40112, 0.19777, 0.40112], atol=1e-5))


@check()
def at2_scores_are_divided_by_the_root_of_the_width(ad: Any) -> None:
    weights = ad.attention(np.ones((1, 16)), np.eye(2, 1) * np.ones(16), np.eye(2, 16), np.ones((1, 2), bool))[1]
    must(np.allclose(weights[0], share(np.array([4.0, 0])), rtol=1e-4))


@check()
def at3_no_score_buys_its_way_past_the_mask(ad: Any) -> None:
    for keys in ([[0.0], [1e5]], [[-1e5], [0.0]]):
        see = np.tril(np.ones((2, 2), bool))
        out, weights = ad.attention(np.full((2, 1), 1e5), np.array(keys), np.array([[1.0], [99.0]]), see)
        must(weights[0].tolist() == [1.0, 0.0])
        must(out[0, 0] == 1.0)
        must(np.isfinite(out).all())


@check()
def at4_a_query_that_may_see_nothing_gets_nothing(ad: Any) -> None:
    """The contract leaves refusal open; ours is weights of exactly 0, and an output of 0."""
    one = np.ones((2, 3))
    out, weights = ad.attention(one, one, one, np.array([[False, False], [True, True]]))
    must(np.isfinite(out).all())
    must((weights[0] == 0).all())
    must((out[0] == 0).all())


@check()
def at5_one_token_sees_itself(ad: Any) -> None:
    v = rng(0).standard_normal((1, 4))
    out, weights = ad.attention(v, v, v, np.ones((1, 1), bool))
    must(weights.tolist() == [[1.0]])
    must(np.allclose(out, v, atol=ad.atol))


@check()
def at6_weights_depend_on_what_is_said(ad: Any) -> None:
    for weights in ad.attention_weights(made(ad), rng(1).integers(0, 23, 12)):
        must(np.allclose(weights.sum(-1), 1, atol=1e-5))
        must((np.triu(weights, 1) == 0).all())
        bits = -(weights * np.log(np.clip(weights, 1e-30, 1))).sum(-1)[:, 1:] / np.log(np.arange(2, 13))
        must(bits.mean() < 0.95)  # 1 where content is ignored


@check()
def at7_an_impossible_split_is_refused(ad: Any) -> None:
    for width, heads in ((10, 4), (8, 0), (8, -2), (2, 4)):
        with refused(ValueError):
            ad.make(vocab=5, width=width, layers=1, heads=heads, context=4)


@check()
def bl1_with_both_parts_silent_the_input_comes_out(ad: Any) -> None:
    model = made(ad)
    for role, array in ad.params(model).items():
        if role.startswith(("block0.attn.o", "block0.mlp.down")):
            ad.assign(model, role, np.zeros(array.shape))
    x = rng(1).standard_normal((6, 24)).astype(ad.dtype)
    must(np.array_equal(ad.block(model, 0, x, True), x))


@check("encoder")
def bl2_the_last_token_reaches_back_in_an_encoder_alone(ad: Any) -> None:
    model, x = made(ad), rng(2).standard_normal((5, 24))
    y = x.copy()
    y[4] += rng(3).standard_normal(24)
    said = {
        (causal, which): ad.block(model, 0, z, causal) for causal in (True, False) for which, z in enumerate((x, y))
    }
    must(np.array_equal(said[True, 0][:4], said[True, 1][:4]))
    must(np.abs(said[False, 0][0] - said[False, 1][0]).max() > 1e-3)
    must(np.allclose(said[False, 0][4], said[True, 0][4], atol=10 * ad.atol))


@check("encoder")
def bl3_without_positions_order_is_invisible(ad: Any) -> None:
    model, x, order = made(ad), rng(4).standard_normal((6, 24)), rng(5).permutation(6)
    must(np.allclose(ad.block(model, 0, x[order], False), ad.block(model, 0, x, False)[order], atol=100 * ad.atol))


# --- experts ----------------------------------------------------------------------------------------------------------


@check("moe")
def mo1_gates_are_shared_by_the_best(ad: Any) -> None:
    must(np.allclose(ad.gates(np.array([[2.0, 1, 0.5, -1]]), 2), [[0.731059, 0.268941, 0, 0]], atol=1e-6))
    must(ad.gates(np.zeros((1, 4)), 2)[0].tolist() == [0.5, 0.5, 0, 0])  # of equal scores the lower expert's wins


@check("moe")
def mo2_the_balance_loss_and_its_ends(ad: Any) -> None:
    must(abs(ad.balance_loss(10 * np.eye(4), 1) - 1) < 1e-3)
    must(abs(ad.balance_loss(np.array([[10.0, 0, 0, 0]] * 4), 1) - 4) < 1e-2)
    probabilities = np.array([[0.9, 0.1], [0.45, 0.55], [0.45, 0.55]])
    must(abs(ad.balance_loss(np.log(probabilities), 1) - 14 / 15) < 1e-6)  # even traffic is no floor
    must(abs(ad.balance_loss(np.array([[30.0, 15, *[0] * 6]] * 8), 2) - 4) < 1e-2)  # n / k, not n

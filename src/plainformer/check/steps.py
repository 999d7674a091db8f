"""The formulas of a transformer as named steps, so that one of them can be done wrongly and the rest stay as they are.

The leaves are those of `formulas`; tests hold each whole to its formula there. Leading axes are free: (..., T, K).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from plainformer import formulas as f

Array = Any  # of any rank: what leads the last axes is free
Step = Callable[..., Any]
STEPS: dict[str, Step] = {}
LINES: dict[str, str] = {}  # of a step: its line of the formula, as it is shown to people


def step(name: str, line: str) -> Callable[[Step], Step]:
    """Register a step and its line of the formula."""

    def register(function: Step) -> Step:
        STEPS[name], LINES[name] = function, line
        return function

    return register


class Doing:
    """A run of the formulas. `changed`: what is done in the place of a step. `frozen`: steps whose values stay those
    of the first run in every later one: what code that detaches them believes, so that a slope leaves them out."""

    def __init__(
        self, changed: Mapping[str, Step] | None = None, frozen: Iterable[str] = (), dtype: Any = np.float64
    ) -> None:
        self.changed, self.frozen, self.dtype = dict(changed or {}), frozenset(frozen), dtype
        self.met: dict[str, None] = {}  # the steps done, in order, each once
        self.kept: dict[tuple[str, int], Any] = {}
        self.counts: dict[str, int] = {}

    def __call__(self, name: str, *args: Any) -> Any:
        self.met[name] = None
        if name not in self.frozen:
            return self.changed.get(name, STEPS[name])(self, *args)
        place = (name, self.counts.get(name, 0))
        self.counts[name] = place[1] + 1
        if place not in self.kept:
            self.kept[place] = self.changed.get(name, STEPS[name])(self, *args)
        return self.kept[place]

    def right(self, name: str, *args: Any) -> Any:
        """A step as it should be, whatever is said to be done in its place."""
        return STEPS[name](self, *args)

    def again(self) -> Doing:
        """Ready for one more run: what is frozen comes in the same order."""
        self.counts.clear()
        return self


def last(x: Array, how: str = "mean", axis: Any = -1) -> Array:
    """The mean (or sum, max) along an axis that is kept; None: over all."""
    return getattr(x, how)(axis, keepdims=True)


# --- norms -----------------------------------------------------------------------------------------------------------


@step("norm", "y = (x - mean) / sqrt(variance + eps) * gain + bias")
def _(do: Doing, x: Array, gain: Array, bias: Array, eps: float) -> Array:
    centred = do("norm.centre", x, do("norm.mean", x))
    normed = do("norm.divide", centred, do("norm.spread", do("norm.variance", x), eps))
    return do("norm.affine", normed, gain, bias)


@step("norm.mean", "mean = sum(x) / n, along the last axis")
def _(do: Doing, x: Array) -> Array:
    return last(x)


@step("norm.centre", "centred = x - mean")
def _(do: Doing, x: Array, mean: Array) -> Array:
    return x - mean


@step("norm.variance", "variance = sum((x - mean)^2) / n, along the last axis")
def _(do: Doing, x: Array) -> Array:
    return last((x - last(x)) ** 2)


@step("norm.spread", "spread = sqrt(variance + eps)")
def _(do: Doing, variance: Array, eps: float) -> Array:
    return np.sqrt(variance + eps)


@step("norm.divide", "normed = centred / spread")
def _(do: Doing, centred: Array, spread: Array) -> Array:
    return centred / spread


@step("norm.affine", "y = normed * gain + bias")
def _(do: Doing, normed: Array, gain: Array, bias: Array) -> Array:
    return normed * gain + bias


@step("rms", "y = x / sqrt(mean(x^2) + eps) * gain")
def _(do: Doing, x: Array, gain: Array, eps: float) -> Array:
    x = do("rms.read", x)
    return do("rms.gain", x / do("rms.spread", do("rms.square", x), eps), gain)


@step("rms.read", "x is not centred: no mean is taken away")
def _(do: Doing, x: Array) -> Array:
    return x


@step("rms.square", "square = sum(x^2) / n, along the last axis")
def _(do: Doing, x: Array) -> Array:
    return last(x**2)


@step("rms.spread", "spread = sqrt(square + eps)")
def _(do: Doing, square: Array, eps: float) -> Array:
    return np.sqrt(square + eps)


@step("rms.gain", "y = x / spread * gain")
def _(do: Doing, normed: Array, gain: Array) -> Array:
    return normed * gain


# --- activations -----------------------------------------------------------------------------------------------------


@step("act", "gelu(x) = x * Phi(x) = x / 2 * (1 + erf(x / sqrt(2))), or x / 2 * (1 + tanh(sqrt(2 / pi) * "
      "(x + 0.044715 x^3)))")  # fmt: skip
def _(do: Doing, x: Array, kind: str) -> Array:
    return f.ACTIVATIONS[kind](np.asarray(x, np.float64))


# --- softmax ---------------------------------------------------------------------------------------------------------


@step("softmax", "softmax(x)_i = exp(x_i) / sum over j of exp(x_j)")
def _(do: Doing, x: Array) -> Array:
    return do("softmax.share", do("softmax.exp", do("softmax.shift", np.asarray(x).astype(do.dtype))))


@step("softmax.shift", "x - max(x), along the last axis, so that no exp overflows")
def _(do: Doing, x: Array) -> Array:
    return x - do("softmax.max", x)


@step("softmax.max", "e = exp(x - max(x)), the max along the last axis")
def _(do: Doing, x: Array) -> Array:
    return last(x, "max")


@step("softmax.sum", "softmax = e / sum(e), the sum along the last axis")
def _(do: Doing, e: Array) -> Array:
    return last(e, "sum")


@step("softmax.exp", "e = exp(x)")
def _(do: Doing, x: Array) -> Array:
    return np.exp(x)


@step("softmax.share", "softmax = e / sum(e), along the last axis")
def _(do: Doing, e: Array) -> Array:
    return e / do("softmax.sum", e)


# --- attention: q (..., T, K), k (..., S, K), v (..., S, J), allowed (T, S) ------------------------------------------


@step("attention", "attention(q, k, v) = softmax(q k^T / sqrt(d_head)) v")
def _(do: Doing, q: Array, k: Array, v: Array, allowed: Array, n_heads: int = 1) -> Array:
    scores = do("attn.scale", do("attn.scores", q, k), q.shape[-1], n_heads, k.shape[-2])
    weights = do("attn.weights", do("softmax", do("attn.mask", scores, allowed)), allowed, q.shape[-1])
    return do("attn.mix", weights, v)


@step("attn.scores", "scores = q k^T: one for each query and key")
def _(do: Doing, q: Array, k: Array) -> Array:
    return q @ k.swapaxes(-1, -2)


@step("attn.scale", "scores / sqrt(d_head), d_head the width of one head")
def _(do: Doing, scores: Array, d_head: int, n_heads: int, n_keys: int) -> Array:
    return scores / np.sqrt(d_head)


@step("attn.see", "token i may see the tokens j <= i")
def _(do: Doing, n_queries: int, n_keys: int, causal: Any) -> Array:
    if isinstance(causal, np.ndarray):  # a mask that was given
        return causal
    if not causal:
        return np.ones((n_queries, n_keys), bool)
    return do("attn.causal", n_queries, n_keys)


@step("attn.causal", "token i may see the tokens j <= i; the last query stands at the last key")
def _(do: Doing, n_queries: int, n_keys: int) -> Array:
    return np.tril(np.ones((n_queries, n_keys), bool), n_keys - n_queries)


@step("attn.mask", "before the softmax, a score that may not be seen becomes -infinity")
def _(do: Doing, scores: Array, allowed: Array) -> Array:
    return np.where(allowed, scores, -np.inf)


@step("attn.weights", "weights = softmax(scores): as they are, nothing done to them after")
def _(do: Doing, weights: Array, allowed: Array, d_head: int) -> Array:
    return weights


@step("attn.mix", "out = weights v")
def _(do: Doing, weights: Array, v: Array) -> Array:
    return weights @ v


# --- many heads: x (..., T, D) ---------------------------------------------------------------------------------------


@step("heads", "out = concat(head_1 .. head_h) W_o, head_i = attention(x W_q_i, x W_k_i, x W_v_i)")
def _(do: Doing, x: Array, w: Mapping[str, Array], n_heads: int, n_kv_heads: int, causal: Any) -> Array:
    q, k, v = (do("linear", x, w[f"{one}.w"], w.get(f"{one}.b", 0.0)) for one in "qkv")
    q, k, v = do("heads.roles", q, k, v, n_heads)
    q, k, v = (do("heads.split", y, n) for y, n in ((q, n_heads), (k, n_kv_heads), (v, n_kv_heads)))
    if n_heads != n_kv_heads:
        k, v = (do("heads.repeat", y, n_heads // n_kv_heads) for y in (k, v))
    allowed = do("attn.see", q.shape[-2], k.shape[-2], causal)
    out = do("heads.join", do("attention", q, k, v, allowed, n_heads))
    return do("heads.out", out, w["o.w"], w.get("o.b", 0.0))


@step("linear", "y = x W + b")
def _(do: Doing, x: Array, w: Array, b: Array) -> Array:
    return x @ w + b


@step("heads.roles", "q = x W_q, k = x W_k, v = x W_v")
def _(do: Doing, q: Array, k: Array, v: Array, n_heads: int) -> Array:
    return q, k, v


@step("heads.split", "(T, D) -> (T, heads, d_head) -> (heads, T, d_head): reshape, then swap the two first axes")
def _(do: Doing, x: Array, n_heads: int) -> Array:
    return x.reshape(*x.shape[:-1], n_heads, -1).swapaxes(-2, -3)


@step(
    "heads.repeat", "query heads 0 .. g-1 read kv head 0, the next g read kv head 1: repeat each, g = heads / kv heads"
)
def _(do: Doing, x: Array, times: int) -> Array:
    return x.repeat(times, -3)


@step("heads.join", "(heads, T, d_head) -> (T, heads, d_head) -> (T, D): swap back, then reshape")
def _(do: Doing, x: Array) -> Array:
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


@step("heads.out", "out = concat(heads) W_o")
def _(do: Doing, x: Array, w: Array, b: Array) -> Array:
    return x @ w + b


# --- a cache: past keys and values before the new ones ---------------------------------------------------------------


@step("cached", "keys = past keys, then the new ones; values likewise; new token i sees all past ones and new j <= i")
def _(do: Doing, q: Array, k: Array, v: Array, past_k: Array, past_v: Array) -> Array:
    k, v = do("cache.keys", past_k, k), do("cache.values", past_v, v)
    return do("attention", q, k, v, do("attn.see", q.shape[-2], k.shape[-2], True))


@step("cache.keys", "keys = concat(past keys, new keys), along the tokens")
def _(do: Doing, past: Array, new: Array) -> Array:
    return np.concatenate((past, new), -2)


@step("cache.values", "values = concat(past values, new values), along the tokens")
def _(do: Doing, past: Array, new: Array) -> Array:
    return np.concatenate((past, new), -2)


# --- rotary: x (..., T, K) -------------------------------------------------------------------------------------------


@step("rotary", "pair p of token t turns by the angle t * theta^(-2p / d_head): (a cos - b sin, b cos + a sin)")
def _(do: Doing, x: Array, start: int, theta: float, interleaved: bool) -> Array:
    positions = do("rotary.positions", x.shape[-2], start)
    angle = positions[:, None] * do("rotary.frequencies", x.shape[-1], theta)
    return do("rotary.turn", x, *do("rotary.wave", angle), interleaved)


@step("rotary.positions", "positions start, start + 1, ..., one for each token, from 0 without a start")
def _(do: Doing, n_tokens: int, start: int) -> Array:
    return start + np.arange(n_tokens)


@step("rotary.frequencies", "frequency of pair p = theta^(-2p / d_head), p = 0 .. d_head / 2 - 1, in radians a token")
def _(do: Doing, width: int, theta: float) -> Array:
    return theta ** (-np.arange(0, width, 2) / width)


@step("rotary.wave", "cos(angle), sin(angle)")
def _(do: Doing, angle: Array) -> Array:
    return np.cos(angle), np.sin(angle)


@step("rotary.turn", "(a, b) -> (a cos - b sin, b cos + a sin); halves: a = x[i], b = x[i + d/2]; interleaved: "
      "a = x[2i], b = x[2i + 1]")  # fmt: skip
def _(do: Doing, x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    a, b = do("rotary.pairs", x, interleaved)
    turned = (a * cos - b * sin, b * cos + a * sin)
    return np.stack(turned, -1).reshape(x.shape) if interleaved else np.concatenate(turned, -1)


@step("rotary.pairs", "a and b of each pair, all of them")
def _(do: Doing, x: Array, interleaved: bool) -> Array:
    half = x.shape[-1] // 2
    return (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])

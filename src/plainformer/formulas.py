"""The formulas of a transformer on plain arrays: NumPy, float64, each once, with its source.

T new positions, S all positions, H heads, G kv heads, K d_head, J d_value, E experts, C chosen experts, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, erf, floor, isfinite, log, log2, pi
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plainformer import spec as s
from plainformer.faults import PlainformerError, refuse

Array = NDArray[Any]


def softmax(x: ArrayLike, allowed: Array | None = None) -> Array:
    """exp(x) / sum exp(x) along the last axis, over the allowed alone; a row with nothing allowed is all 0."""
    x = np.asarray(x, np.float64)
    x = x if allowed is None else np.where(allowed, x, -np.inf)
    top = x.max(-1, keepdims=True)
    e = np.exp(x - np.where(np.isfinite(top), top, 0))
    return np.asarray(e / np.maximum(e.sum(-1, keepdims=True), np.finfo(np.float64).tiny))


def log_softmax(x: ArrayLike) -> Array:
    x = np.asarray(x, np.float64)
    x = x - x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def layer_norm(x: ArrayLike, gain: ArrayLike = 1.0, bias: ArrayLike = 0.0, eps: float = 1e-5) -> Array:
    """(x - mean) / sqrt(variance + eps) * gain + bias along the last axis (Ba et al. 2016)."""
    x = np.asarray(x, np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return rms_norm(centred, gain, eps) + bias


def rms_norm(x: ArrayLike, gain: ArrayLike = 1.0, eps: float = 1e-5) -> Array:
    """x / sqrt(mean x^2 + eps) * gain along the last axis (Zhang and Sennrich 2019)."""
    x = np.asarray(x, np.float64)
    return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * gain)


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def relu_squared(x: Array) -> Array:
    """So et al. 2021 (Primer)."""
    return relu(x) ** 2


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), safe for any x."""
    return np.asarray((1 + np.tanh(x / 2)) / 2)


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return np.asarray(x * sigmoid(x))


def gelu(x: ArrayLike) -> Array:
    """x * Phi(x), Phi the standard normal distribution function (Hendrycks and Gimpel 2016)."""
    x = np.asarray(x, np.float64)
    return np.asarray(x * (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2))) / 2)


def gelu_tanh(x: ArrayLike) -> Array:
    """The tanh approximation of the same paper, as in GPT-2's code."""
    x = np.asarray(x, np.float64)
    return np.asarray(x * (1 + np.tanh(np.sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2)


def swiglu_clamped(gate: Array, up: Array) -> Array:
    """gpt-oss's gated activation: both clamped at 7, the gate's slope 1.702, one added to the other."""
    gate, up = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0)
    return np.asarray(gate * sigmoid(1.702 * gate) * (up + 1))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": relu,
    "relu_squared": relu_squared,
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "tanh": np.tanh,
}


def scaled_scores(q_HTK: Array, k_HSK: Array, scale: float) -> Array:
    """scale * q.k for each query and key: (heads, T, S) from (heads, T, K) and (heads, S, K)."""
    return np.asarray(q_HTK @ k_HSK.swapaxes(-1, -2) * scale)


def attention(
    q_HTK: Array,
    k_HSK: Array,
    v_HSJ: Array,
    allowed_TS: Array,
    scale: float,
    bias_HTS: Array | float = 0.0,
    softcap: float | None = None,
    sinks_H: Array | None = None,
) -> tuple[Array, Array]:
    """(softmax(scale * q k^T + bias) v, the weights). True in `allowed_TS`: this query may see this key.

    A query that may see nothing gets weights 0 and output 0. Vaswani et al. 2017, section 3.2.1. softcap: scores become
    cap * tanh(score / cap). sinks: one more score a head that takes its share of the weight and gives no value.
    """
    scores_HTS = scaled_scores(q_HTK, k_HSK, scale)
    scores_HTS = (scores_HTS if softcap is None else softcap * np.tanh(scores_HTS / softcap)) + bias_HTS
    if sinks_H is not None:
        sinks_HT1 = np.broadcast_to(sinks_H[:, None, None], (*scores_HTS.shape[:2], 1))
        with_sinks = np.concatenate((np.where(allowed_TS, scores_HTS, -np.inf), sinks_HT1), -1)
        weights_HTS = softmax(with_sinks)[..., :-1]
    else:
        weights_HTS = softmax(scores_HTS, allowed_TS)
    return weights_HTS @ v_HSJ, weights_HTS


def alibi_slopes(n_heads: int) -> Array:
    """How fast each head forgets: 2^(-8 i / n) for a power of two, else its own and every other of the next one's
    (Press et al. 2021, section 3, and its code)."""
    power = 2 ** floor(log2(n_heads))
    slopes = 2.0 ** (-8 * np.arange(1, power + 1) / power)
    return np.concatenate((slopes, 2.0 ** (-4 * np.arange(1, 2 * (n_heads - power), 2) / power)))


def relative_buckets(ago_TS: Array, n_buckets: int, max_distance: int, causal: bool) -> Array:
    """Which bucket each distance (query's position less key's) falls into: near ones have their own, far ones share one
    by their logarithm; where both directions count each has half. Raffel et al. 2020, section 2.1."""
    ahead_TS = np.zeros_like(ago_TS)
    if not causal:
        n_buckets //= 2
        ahead_TS = n_buckets * (ago_TS < 0)
    far_TS = np.maximum(ago_TS, 0) if causal else np.abs(ago_TS)
    exact = n_buckets // 2
    share_TS = np.log(np.maximum(far_TS, exact) / exact) / log(max_distance / exact)
    shared_TS = np.minimum(exact + (share_TS * (n_buckets - exact)).astype(np.int64), n_buckets - 1)
    return np.asarray(ahead_TS + np.where(far_TS < exact, far_TS, shared_TS))


def sinusoids(positions_T: Array, width: int, layout: str = "pairs") -> Array:
    """(T, width): the sine and cosine of position / 10000^(2i / width), side by side (Vaswani et al. 2017, 3.5), or all
    sines first (halves). tensor2tensor divides by 10000^(i / (width / 2 - 1))."""
    n = width - 2 if layout == "tensor2tensor" else width
    angle = positions_T[:, None] / 10000.0 ** (np.arange(0, width, 2) / n)
    return np.stack((np.sin(angle), np.cos(angle)), -1 if layout == "pairs" else 1).reshape(len(positions_T), width)


def frequencies(rotary: s.Rotary, n_tokens: int = 0) -> Array:
    """Radians a position for each pair, (n_dims / 2,): theta^(-2i / n_dims) (Su et al. 2021, section 3.4.2), stretched.

    `n_tokens`: how long the row is; asked by dynamic scaling and LongRoPE.
    """
    n, scaling = rotary.n_dims, rotary.scaling
    turn: Array = rotary.theta ** (-np.arange(0, n, 2) / n)
    if scaling is None:
        return turn
    if scaling.kind == "other":
        raise refuse("Rotary.scaling", scaling.kind, "no rule runs this scaling yet", "it can be sized")
    told = dict(scaling.settings)
    if scaling.kind == "linear":  # positions pressed together (Chen et al. 2023)
        return np.asarray(turn / told["factor"])
    first = told["original_max_position_embeddings"]
    if scaling.kind == "dynamic":  # a larger base as the row grows
        grown = told["factor"] * max(n_tokens, first) / first - (told["factor"] - 1)
        return np.asarray((rotary.theta * grown ** (n / (n - 2))) ** (-np.arange(0, n, 2) / n))
    if (
        scaling.kind == "longrope"
    ):  # found by search, one divisor a pair, others past the first context (Ding et al. 2024)
        which = "long_factor" if n_tokens > first else "short_factor"
        return np.asarray(turn / [told[f"{which}.{i}"] for i in range(n // 2)])
    rounds = first * turn / (2 * pi)  # how often each pair goes round in the first context
    if scaling.kind == "llama3":  # many rounds: left alone; few: slowed; between: mixed
        share: Array = (rounds - told["low_freq_factor"]) / (told["high_freq_factor"] - told["low_freq_factor"])
    else:  # YaRN: the same, mixed along the pairs' numbers (Peng et al. 2023, section 3.2)
        low, high = (
            n * log(first / (told[beta] * 2 * pi)) / (2 * log(rotary.theta)) for beta in ("beta_fast", "beta_slow")
        )
        if told.get("truncate", 1.0):
            low, high = floor(low), ceil(high)
        low, high = max(low, 0), min(high, n - 1)
        share = 1 - (np.arange(n // 2) - low) / max(high - low, 0.001)
    share = np.clip(share, 0, 1)
    return np.asarray((1 - share) * turn / told["factor"] + share * turn)


def stretch(rotary: s.Rotary) -> float:
    """What turned queries and keys are multiplied by: YaRN sharpens attention as contexts grow (its section 3.4)."""
    if rotary.scaling is None or rotary.scaling.kind not in ("yarn", "longrope"):
        return 1.0
    told = dict(rotary.scaling.settings)

    def grown(by: float) -> float:
        return 0.1 * by * log(told["factor"]) + 1 if told["factor"] > 1 else 1.0

    if "attention_factor" in told:
        return told["attention_factor"]
    if told.get("mscale") and told.get("mscale_all_dim"):
        return grown(told["mscale"]) / grown(told["mscale_all_dim"])
    return grown(1.0)


def rotate(x_GTK: Array, positions_T: Array, rotary: s.Rotary) -> Array:
    """Turn each pair of the first n_dims by position * frequency; the rest stays as it is."""
    n = rotary.n_dims
    angle = positions_T[:, None] * frequencies(rotary, int(positions_T.max()) + 1)
    cos, sin = np.cos(angle) * stretch(rotary), np.sin(angle) * stretch(rotary)
    turned = np.array(x_GTK, np.float64)
    pair = (slice(0, n, 2), slice(1, n, 2)) if rotary.interleaved else (slice(0, n // 2), slice(n // 2, n))
    a, b = (x_GTK[..., one] for one in pair)
    turned[..., pair[0]] = a * cos - b * sin
    turned[..., pair[1]] = b * cos + a * sin
    return turned


def choose(scores_TE: ArrayLike, n_chosen: int) -> Array:
    """True (T, E) at each token's best n_chosen scores; of equal scores the lower expert's wins."""
    scores_TE = np.asarray(scores_TE, np.float64)
    best_TC = np.argsort(-scores_TE, -1, kind="stable")[:, :n_chosen]
    chosen_TE = np.zeros(scores_TE.shape, bool)
    np.put_along_axis(chosen_TE, best_TC, True, -1)
    return chosen_TE


def top_k_gates(scores_TE: ArrayLike, n_chosen: int) -> Array:
    """Gates (T, E): softmax over each token's best n_chosen scores (Jiang et al. 2024, section 2.1)."""
    return softmax(scores_TE, choose(scores_TE, n_chosen))


def balance_loss(scores_TE: ArrayLike, n_chosen: int, real_T: ArrayLike | None = None) -> float:
    """E * sum over experts of (share of the choices it gets) * (mean probability it is given): 1 for even traffic.

    Fedus et al. 2021, section 2.2, shares divided by n_chosen. `real_T`: False for padding, which counts nowhere.
    """
    scores_TE = np.asarray(scores_TE, np.float64)
    scores_TE = scores_TE if real_T is None else scores_TE[np.asarray(real_T, bool)]
    share_E = choose(scores_TE, n_chosen).mean(0) / n_chosen
    return float(scores_TE.shape[1] * (share_E * softmax(scores_TE).mean(0)).sum())


def cross_entropy(logits_TV: ArrayLike, targets_T: ArrayLike) -> Array:
    """-ln p(target) at each position, (T,), in nats. Its mean is the loss; divided by ln 2 it is surprisal in bits."""
    return np.asarray(-np.take_along_axis(log_softmax(logits_TV), np.asarray(targets_T)[..., None], -1)[..., 0])


def probabilities(logits_V: ArrayLike, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0) -> Array:
    """What a token is drawn from: softmax(logits / temperature) over the best top_k, then over the smallest set of
    likeliest tokens that holds top_p (Holtzman et al. 2020). Temperature 0: the best token alone."""
    logits_V = np.asarray(logits_V, np.float64)
    faults = []
    if not (isfinite(temperature) and temperature >= 0):
        faults.append(refuse("temperature", temperature, "must be a finite number of at least 0"))
    if top_k is not None and top_k < 1:
        faults.append(refuse("top_k", top_k, "must be at least 1", "leave it out to allow every token"))
    if not 0 < top_p <= 1:
        faults.append(refuse("top_p", top_p, "must be above 0 and at most 1"))
    if faults:
        raise PlainformerError(fault for each in faults for fault in each.faults)
    order = np.argsort(-logits_V, kind="stable")
    in_order = logits_V[order] - logits_V[order[0]]
    p = softmax(in_order / temperature) if temperature > 1e-20 else (np.arange(len(order)) == 0).astype(float)
    p[top_k or len(p) :] = 0
    p = p / p.sum()
    p[(p.cumsum() - p) >= top_p] = 0  # a token stays if those before it hold less than top_p
    out_V = np.empty_like(p)
    out_V[order] = p / p.sum()
    return np.asarray(out_V)

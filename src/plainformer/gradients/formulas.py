"""The formulas backwards, on plain arrays: NumPy, float64, each once, with the line of calculus that it is.

At the end of a pass stands one number, the loss L. The slope of L along an array x is an array of x's shape, written
d_x: by how much L grows for each unit that an entry of x grows. Where y = f(x), each function here takes d_y and gives
d_x, entry j of which is, by the chain rule, the sum over i of d_y_i * (how fast y_i grows with x_j). So the whole
Jacobian, as many rows as y and as many columns as x, is never written down.

T new positions, S all positions, H heads, G kv heads, K d_head, J d_value, V vocabulary, E experts, I inputs,
O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import erf, pi

import numpy as np

from plainformer import formulas as f
from plainformer import spec as s
from plainformer.formulas import Array


def rows(x: Array) -> Array:
    """All axes but the last made one: what is summed where one weight meets many tokens."""
    return x.reshape(-1, x.shape[-1])


def linear_back(x: Array, weight_OI: Array, d_y: Array) -> tuple[Array, Array]:
    """(d_x, d_weight) of y = x W^T. y_o = sum_i W_oi x_i, so x_i moves every y_o by W_oi, and W_oi moves y_o by x_i:
    d_x = d_y W; d_W = d_y^T x, summed over the tokens, for all of them met the same W."""
    return d_y @ weight_OI, rows(d_y).T @ rows(x)


def rms_norm_back(x: Array, gain: Array | float, eps: float, d_y: Array) -> tuple[Array, Array]:
    """(d_x, d_gain) of y = gain * n, n = x r, r = (mean x^2 + eps)^(-1/2).

    x_j moves n_j by r and, through the spread, every n_i: dr/dx_j = -r^3 x_j / width moves it by -r n_i n_j / width.
    Together d_x = r (d_n - n mean(n d_n)): what points along n is taken out, for a longer x has the same n.
    """
    r = 1 / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
    n, d_n = x * r, d_y * gain
    return r * (d_n - n * (n * d_n).mean(-1, keepdims=True)), rows(d_y * n).sum(0)


def layer_norm_back(x: Array, gain: Array | float, eps: float, d_y: Array) -> tuple[Array, Array, Array]:
    """(d_x, d_gain, d_bias). LayerNorm is RMSNorm of c = x - mean x, and a bias. x_j moves c_j by 1 and every c_i by
    -1 / width: d_x = d_c - mean d_c. Adding one number to all of x changes nothing, and d_x sums to 0."""
    d_c, d_gain = rms_norm_back(x - x.mean(-1, keepdims=True), gain, eps, d_y)
    return d_c - d_c.mean(-1, keepdims=True), d_gain, rows(d_y).sum(0)


# How fast each activation grows: f'(x), to be multiplied by d_y.


def silu_slope(x: Array) -> Array:
    """(x p)' = p + x p (1 - p), for a sigmoid p has the slope p (1 - p)."""
    p = f.sigmoid(x)
    return np.asarray(p + x * p * (1 - p))


def gelu_slope(x: Array) -> Array:
    """(x Phi(x))' = Phi(x) + x phi(x), phi the bell curve exp(-x^2 / 2) / sqrt(2 pi), whose integral Phi is."""
    Phi = (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2))) / 2
    return np.asarray(Phi + x * np.exp(-(x**2) / 2) / np.sqrt(2 * pi))


def gelu_tanh_slope(x: Array) -> Array:
    """(x (1 + t) / 2)' = (1 + t) / 2 + x t' / 2, where t = tanh u has the slope (1 - t^2) u'."""
    t = np.tanh(np.sqrt(2 / pi) * (x + 0.044715 * x**3))
    u_slope = np.sqrt(2 / pi) * (1 + 3 * 0.044715 * x**2)
    return np.asarray((1 + t) / 2 + x * (1 - t**2) * u_slope / 2)


def tanh_slope(x: Array) -> Array:
    """1 - tanh^2."""
    return np.asarray(1 - np.tanh(x) ** 2)


SLOPES: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.asarray(x > 0, np.float64),  # at the corner, 0: any number between 0 and 1 would do
    "relu_squared": lambda x: 2 * f.relu(x),
    "silu": silu_slope,
    "gelu": gelu_slope,
    "gelu_tanh": gelu_tanh_slope,
    "tanh": tanh_slope,
}


def gated_back(activation: str, gate: Array, up: Array, d_y: Array) -> tuple[Array, Array]:
    """(d_gate, d_up) of y = act(gate) * up: in a product each factor's slope is the other. What is clamped stands
    still, so its slope is 0."""
    if activation == "swiglu_clamped":
        low, high, p = np.minimum(gate, 7.0), np.clip(up, -7.0, 7.0), f.sigmoid(1.702 * np.minimum(gate, 7.0))
        d_gate = d_y * (high + 1) * p * (1 + 1.702 * low * (1 - p)) * (gate <= 7)
        return d_gate, d_y * low * p * (np.abs(up) <= 7)
    return d_y * up * SLOPES[activation](gate), d_y * f.ACTIVATIONS[activation](gate)


def softcap_back(x: Array, cap: float, d_y: Array) -> Array:
    """d_x of y = cap tanh(x / cap): the cap and its inverse cancel, and 1 - tanh^2 is left."""
    return d_y * tanh_slope(x / cap)


def softmax_back(p: Array, d_p: Array) -> Array:
    """d_x of p = softmax(x). dp_i/dx_j = p_i ((i is j) - p_j), so d_x = p * (d_p - sum p d_p): what counts is whether
    an entry pays more than the average does. Where p is 0, nothing comes back: so a mask needs no rule."""
    return np.asarray(p * (d_p - (p * d_p).sum(-1, keepdims=True)))


def normalised_back(x: Array, d_y: Array, least: float = 0.0) -> Array:
    """d_x of y = x / (sum x + least). dy_i/dx_j = ((i is j) - y_i) / sum, so d_x = (d_y - sum y d_y) / sum."""
    total = x.sum(-1, keepdims=True) + least
    return np.asarray((d_y - (x / total * d_y).sum(-1, keepdims=True)) / total)


def rotate_back(d_y_GTK: Array, positions_T: Array, rotary: s.Rotary) -> Array:
    """d_x of y = R x, R a turn: d_x = R^T d_y, and a turn transposed is the turn the other way round. In a mirror it is
    the same turn: so the second of each pair changes its sign, all is turned, and the sign changes back."""
    n = rotary.n_dims
    mirror_K = np.ones(d_y_GTK.shape[-1])
    mirror_K[slice(1, n, 2) if rotary.interleaved else slice(n // 2, n)] = -1
    return np.asarray(mirror_K * f.rotate(mirror_K * d_y_GTK, positions_T, rotary))


@dataclass(frozen=True)
class AttentionSlopes:
    """The slopes of everything in attention, last first, as they are found. `scores` are those that softmax reads,
    distances' bias in them; `products` the raw q.k."""

    v_HSJ: Array
    weights_HTS: Array
    scores_HTS: Array
    sinks_H: Array | None
    products_HTS: Array
    q_HTK: Array
    k_HSK: Array

    def named(self) -> Iterator[tuple[str, Array]]:
        """Each by its name without the letters of its shape."""
        return ((name.partition("_")[0], array) for name, array in vars(self).items() if array is not None)


def attention_back(
    q_HTK: Array,
    k_HSK: Array,
    v_HSJ: Array,
    allowed_TS: Array,
    scale: float,
    bias_HTS: Array | float,
    softcap: float | None,
    sinks_H: Array | None,
    d_out_HTJ: Array,
) -> AttentionSlopes:
    """Three products and a softmax, in turn from the last. out = P V is bilinear: d_V = P^T d_out, d_P = d_out V^T.
    Then softmax; the cap; and scores = scale Q K^T: d_Q = scale d_scores K, d_K = scale d_scores^T Q.

    A sink's weight is what the others leave, p = 1 - sum P. It gives no value, so its own d_p is 0, and softmax's rule
    has -p sum(P d_P) left of it. The others' rule needs no change: the sink adds 0 to their sum.
    """
    _, weights_HTS = f.attention(q_HTK, k_HSK, v_HSJ, allowed_TS, scale, bias_HTS, softcap, sinks_H)
    d_v_HSJ = weights_HTS.swapaxes(-1, -2) @ d_out_HTJ
    d_weights_HTS = d_out_HTJ @ v_HSJ.swapaxes(-1, -2)
    d_scores_HTS = softmax_back(weights_HTS, d_weights_HTS)
    d_sinks_H = None
    if sinks_H is not None:
        d_sinks_H = -((1 - weights_HTS.sum(-1)) * (weights_HTS * d_weights_HTS).sum(-1)).sum(-1)
    scores_HTS = f.scaled_scores(q_HTK, k_HSK, scale)
    d_products_HTS = scale * (d_scores_HTS if softcap is None else softcap_back(scores_HTS, softcap, d_scores_HTS))
    d_q_HTK, d_k_HSK = d_products_HTS @ k_HSK, d_products_HTS.swapaxes(-1, -2) @ q_HTK
    return AttentionSlopes(d_v_HSJ, d_weights_HTS, d_scores_HTS, d_sinks_H, d_products_HTS, d_q_HTK, d_k_HSK)


def shared_back(d_HSK: Array, n_groups: int) -> Array:
    """From heads that read the same keys or values to those: what is copied gets the sum of its copies' slopes."""
    return np.asarray(d_HSK.reshape(n_groups, -1, *d_HSK.shape[1:]).sum(1))


def table_back(shape: tuple[int, ...], rows: Array, d_y: Array) -> Array:
    """d_table of y = table[rows]: a row gets the sum over the places where it was read, and 0 where it never was."""
    d_table = np.zeros(shape)
    np.add.at(d_table, rows, d_y)
    return d_table


def cross_entropy_back(logits_TV: Array, targets_T: Array) -> Array:
    """d_logits of the sum of -ln p(target). -ln p_t = ln(sum exp x) - x_t, so d_x = softmax(x), less 1 at the target:
    what was said less what should have been. A target of -1 is ignored: 0."""
    d_logits_TV = f.softmax(logits_TV)
    d_logits_TV[np.arange(len(targets_T)), targets_T] -= 1
    return d_logits_TV * (np.asarray(targets_T) >= 0)[:, None]

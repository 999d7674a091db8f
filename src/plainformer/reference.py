"""The definition of a transformer: NumPy, float64, each formula once. One row of tokens at a time.

T new positions, S all positions, D d_model, H heads, G kv heads, K d_head, F d_ff, V vocabulary, E experts.
It takes a spec and arrays named as in the ledger, and decides from the part, never from which names are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatch
from math import erf, isfinite, pi
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plainformer import spec as s
from plainformer.faults import PlainformerError, refuse
from plainformer.ledger import Ledger

Array = NDArray[Any]


class Weights:
    """The arrays whose names begin with one place."""

    def __init__(self, arrays: Mapping[str, Array], place: str = "", expert: int | None = None) -> None:
        self.arrays, self.place, self.expert = arrays, place, expert

    def __getitem__(self, name: str) -> Array:
        array = self.arrays[f"{self.place}.{name}".lstrip(".")]
        return array if self.expert is None else array[self.expert]

    def at(self, name: str, expert: int | None = None) -> Weights:
        return Weights(self.arrays, f"{self.place}.{name}".lstrip("."), self.expert if expert is None else expert)


@dataclass
class State:
    """The keys and values of the tokens read so far, by the attention's place: keys (G, S, K), already turned."""

    kept: dict[str, tuple[Array, Array]] = field(default_factory=dict)

    @property
    def n_tokens(self) -> int:
        return max((keys.shape[1] for keys, _ in self.kept.values()), default=0)

    def append(self, place: str, k_GTK: Array, v_GTK: Array) -> tuple[Array, Array]:
        """All keys and values, the new ones last."""
        if place in self.kept:
            k_GTK, v_GTK = (np.concatenate(pair, 1) for pair in zip(self.kept[place], (k_GTK, v_GTK), strict=True))
        self.kept[place] = k_GTK, v_GTK
        return k_GTK, v_GTK

    def truncate(self, n_tokens: int) -> None:
        """Forget all but the first n_tokens."""
        self.kept = {place: (k[:, :n_tokens], v[:, :n_tokens]) for place, (k, v) in self.kept.items()}


@dataclass(frozen=True)
class Where:
    """What a part may ask beyond its input. Built once a pass; only attention opens it."""

    positions_T: Array
    causal: bool = True
    state: State | None = None  # generation: what came before
    trace: dict[str, Array] | None = None  # asked for: attention weights and the stream, by place
    n_pass: int = 0  # where layers are shared: which pass this is, from 1

    def at(self, place: str) -> str:
        return f"{place}.pass.{self.n_pass}" if self.n_pass else place

    def keep(self, place: str, array: Array) -> None:
        if self.trace is not None:
            self.trace[place] = array


def only(part: object, **ready: object) -> None:
    """Refuse a part whose fields ask for more than its rule does: it can be sized, not run."""
    for name, value in ready.items():
        if getattr(part, name) != value:
            raise refuse(
                f"{type(part).__name__}.{name}", getattr(part, name), "no rule runs this yet", "it can be sized"
            )


# Formulas on plain arrays


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


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return np.asarray(x * 0.5 * (1 + np.tanh(x / 2)))


def gelu(x: ArrayLike) -> Array:
    """x * Phi(x), Phi the standard normal distribution function (Hendrycks and Gimpel 2016)."""
    x = np.asarray(x, np.float64)
    return np.asarray(x * (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2))) / 2)


def gelu_tanh(x: ArrayLike) -> Array:
    """The tanh approximation of the same paper, as in GPT-2's code."""
    x = np.asarray(x, np.float64)
    return np.asarray(x * (1 + np.tanh(np.sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2)


ACTIVATIONS = {"relu": relu, "relu_squared": relu_squared, "silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh}


def scaled_scores(q_HTK: Array, k_HSK: Array, scale: float) -> Array:
    """scale * q.k for each query and key: (heads, T, S) from (heads, T, K) and (heads, S, K)."""
    return np.asarray(q_HTK @ k_HSK.swapaxes(-1, -2) * scale)


def attention(q_HTK: Array, k_HSK: Array, v_HSK: Array, allowed_TS: Array, scale: float) -> tuple[Array, Array]:
    """(softmax(scale * q k^T) v, the weights). True in `allowed_TS`: this query may see this key.

    A query that may see nothing gets weights 0 and output 0. Vaswani et al. 2017, section 3.2.1.
    """
    weights_HTS = softmax(scaled_scores(q_HTK, k_HSK, scale), allowed_TS)
    return weights_HTS @ v_HSK, weights_HTS


def frequencies(rotary: s.Rotary) -> Array:
    """Radians a position for each pair, (n_dims / 2,). Su et al. 2021, section 3.4.2; scaled as in Llama 3.1's code."""
    turn = rotary.theta ** (-np.arange(0, rotary.n_dims, 2) / rotary.n_dims)
    if rotary.scaling is None:
        return turn
    known, settings = rotary.scaling.kind, dict(rotary.scaling.settings)
    if known == "linear":
        return turn / settings["factor"]
    if known == "llama3":
        wavelength = 2 * pi / turn
        low, high = settings["low_freq_factor"], settings["high_freq_factor"]
        share = (settings["original_max_position_embeddings"] / wavelength - low) / (high - low)
        share = np.clip(share, 0, 1)  # 0: long waves, slowed by the factor; 1: short waves, left alone
        return (1 - share) * turn / settings["factor"] + share * turn
    raise refuse("Rotary.scaling", known, "no rule runs this scaling yet", "it can be sized")


def rotate(x_GTK: Array, positions_T: Array, rotary: s.Rotary) -> Array:
    """Turn each pair of the first n_dims by position * frequency; the rest stays as it is."""
    n = rotary.n_dims
    angle = positions_T[:, None] * frequencies(rotary)
    cos, sin = np.cos(angle), np.sin(angle)
    turned = np.array(x_GTK, np.float64)
    pair = (slice(0, n, 2), slice(1, n, 2)) if rotary.interleaved else (slice(0, n // 2), slice(n // 2, n))
    a, b = (x_GTK[..., one] for one in pair)
    turned[..., pair[0]] = a * cos - b * sin
    turned[..., pair[1]] = b * cos + a * sin
    return turned


def top_k_gates(scores_TE: ArrayLike, n_chosen: int) -> Array:
    """Gates (T, E): softmax over each token's best n_chosen scores, else 0; of equal scores the lower expert's wins."""
    scores_TE = np.asarray(scores_TE, np.float64)
    chosen = np.argsort(-scores_TE, -1, kind="stable")[:, :n_chosen]
    gates_TE = np.zeros_like(scores_TE)
    np.put_along_axis(gates_TE, chosen, softmax(np.take_along_axis(scores_TE, chosen, -1)), -1)
    return gates_TE


def allowed(part: s.Attention, where: Where, n_keys: int) -> Array:
    """(T, S), True where a query may see a key: no later one in a causal stack, none beyond the window."""
    ago_TS = where.positions_T[:, None] - np.arange(n_keys)
    see_TS = np.ones_like(ago_TS, bool)
    if where.causal:
        see_TS &= ago_TS >= 0
    if part.window is not None:
        see_TS &= np.abs(ago_TS) < part.window
    return see_TS


# One rule for each part


@singledispatch
def run(part: object, w: Weights, x: Array, where: Where) -> Array:
    raise refuse("part", type(part).__name__, "no rule runs this part yet", "it can be sized")


@run.register
def _(part: None, w: Weights, x: Array, where: Where) -> Array:
    return x  # an absent norm


def linear(part: s.Linear, weight: Array, w: Weights, x: Array) -> Array:
    """x W^T + b, with the low-rank correction if there is one."""
    y = x @ weight.T
    if part.bias:
        y = y + w["bias"]
    if part.lora:
        y = y + x @ w["lora_a"].T @ w["lora_b"].T * (part.lora.alpha / part.lora.rank)
    return y


@run.register
def _(part: s.Linear, w: Weights, x: Array, where: Where) -> Array:
    return linear(part, w["weight"], w, x)


@run.register
def _(part: s.Norm, w: Weights, x: Array, where: Where) -> Array:
    gain: ArrayLike = w["weight"] + part.plus_one if part.gain else 1.0
    y = layer_norm(x, gain, 0.0, part.eps) if part.kind == "layer" else rms_norm(x, gain, part.eps)
    return y + w["bias"] if part.bias else y


@run.register
def _(part: s.NormedLinear, w: Weights, x: Array, where: Where) -> Array:
    y = run(part.linear, w, x, where)
    return run(part.norm, w.at("norm"), y.reshape(*y.shape[:-1], -1, part.norm.width), where).reshape(y.shape)


@run.register
def _(part: s.Attention, w: Weights, x_TD: Array, where: Where) -> Array:
    only(part, cross=False)
    only(part.scores, softcap=None, sinks=False, alibi=False)
    if part.v is None:
        raise refuse("Attention.v", None, "no rule runs shared keys and values yet", "it can be sized")
    q_HTK, k_GTK, v_GTK = (
        run(projection, w.at(name), x_TD, where).reshape(len(x_TD), -1, part.d_head).swapaxes(0, 1)
        for name, projection in (("q", part.q), ("k", part.k), ("v", part.v))
    )
    if part.scores.rotary:
        q_HTK, k_GTK = (rotate(y, where.positions_T, part.scores.rotary) for y in (q_HTK, k_GTK))
    k_GSK, v_GSK = where.state.append(where.at(w.place), k_GTK, v_GTK) if where.state else (k_GTK, v_GTK)
    k_HSK, v_HSK = (y.repeat(part.n_heads // part.n_kv_heads, 0) for y in (k_GSK, v_GSK))
    out_HTK, weights_HTS = attention(q_HTK, k_HSK, v_HSK, allowed(part, where, k_HSK.shape[1]), part.scores.scale)
    where.keep(f"{where.at(w.place)}.weights", weights_HTS)
    return run(part.out, w.at("out"), out_HTK.swapaxes(0, 1).reshape(len(x_TD), -1), where)


@run.register
def _(part: s.FeedForward, w: Weights, x: Array, where: Where) -> Array:
    if part.activation not in ACTIVATIONS:
        raise refuse("FeedForward.activation", part.activation, "no rule runs this yet", "it can be sized")
    act, up = ACTIVATIONS[part.activation], run(part.up, w.at("up"), x, where)
    hidden = act(run(part.gate, w.at("gate"), x, where)) * up if part.gate else act(up)
    return run(part.down, w.at("down"), hidden, where)


@run.register
def _(part: s.ChosenSoftmaxRouter, w: Weights, x_TD: Array, where: Where) -> Array:
    return top_k_gates(run(part.scores, w.at("scores"), x_TD, where), part.n_chosen)


@run.register
def _(part: s.Experts, w: Weights, x_TD: Array, where: Where) -> Array:
    only(part, shared=None, shared_gate=None)
    gates_TE = run(part.router, w.at("router"), x_TD, where)
    where.keep(f"{where.at(w.place)}.gates", gates_TE)
    out_TD = np.zeros_like(x_TD)
    for e in range(part.n_experts):
        meets = gates_TE[:, e] > 0  # an expert runs only on its tokens
        out_TD[meets] += gates_TE[meets, e, None] * run(part.expert, w.at("experts", expert=e), x_TD[meets], where)
    return out_TD


@run.register
def _(part: s.Residual, w: Weights, x: Array, where: Where) -> Array:
    first = part.branches[0].name
    read, said = run(part.norm_in, w.at(f"{first}_norm_shared"), x, where), np.zeros_like(x)
    for branch in part.branches:
        y = run(branch.norm_in, w.at(f"{branch.name}_norm"), read, where)
        y = run(branch.part, w.at(branch.name), y, where)
        said = said + run(branch.norm_out, w.at(f"{branch.name}_norm_out"), y, where)
    said = run(part.norm_out, w.at(f"{first}_norm_together"), said, where)
    return run(part.norm_sum, w.at(f"{first}_norm_sum"), x + said if part.add else said, where)


@run.register
def _(part: s.Stack, w: Weights, x: Array, where: Where) -> Array:
    only(part, relative=None)
    if part.positions:
        x = x + w.at("positions")["weight"][where.positions_T + part.positions.offset]
    x = run(part.norm_first, w.at("norm_first"), x, where)
    where.keep(f"{w.place}.stream.0", x)
    for n_done, i in enumerate(part.passes or range(len(part.layers)), start=1):
        for residual in part.layers[i]:
            x = run(residual, w.at(f"layers.{i}"), x, replace(where, n_pass=n_done) if part.passes else where)
        where.keep(f"{w.place}.stream.{n_done}", x)
    return run(part.norm_last, w.at("norm_last"), x, where)


@run.register
def _(part: s.Tokens, w: Weights, tokens_T: Array, where: Where) -> Array:
    only(part, types=None, positions=None)
    x_TD = w["weight"][tokens_T] * part.scale
    x_TD = run(part.norm, w.at("norm"), x_TD, where)
    return run(part.project, w.at("project"), x_TD, where)


@run.register
def _(part: s.Head, w: Weights, x: Array, where: Where) -> Array:
    x = run(part.transform, w.at("transform"), x, where)
    x = ACTIVATIONS[part.activation](x) if part.activation else x
    x = run(part.norm, w.at("norm"), x, where) * part.scale
    weight = w.arrays["embedding.weight"] if part.tied else w["weight"]
    logits = linear(part.linear, weight, w, x)
    return part.softcap * np.tanh(logits / part.softcap) if part.softcap else logits


# A whole decoder


def check_tokens(spec: s.Spec, tokens_T: ArrayLike, n_before: int = 0) -> Array:
    """Token numbers as an array, or a refusal: none, too many for the context, or outside the vocabulary."""
    tokens_T = np.asarray(tokens_T)
    if tokens_T.ndim != 1 or not len(tokens_T):
        raise refuse("tokens", list(tokens_T.shape), "must be a row of at least one token")
    if n_before + len(tokens_T) > spec.max_seq_len:
        raise refuse("tokens", n_before + len(tokens_T), f"more than max_seq_len ({spec.max_seq_len})")
    if outside := [int(t) for t in tokens_T if not 0 <= t < spec.vocab_size]:
        raise refuse("tokens", outside[0], f"outside the vocabulary (0 to {spec.vocab_size - 1})")
    return tokens_T


def hidden(
    spec: s.Spec,
    arrays: Mapping[str, Array],
    tokens_T: ArrayLike,
    state: State | None = None,
    trace: dict[str, Array] | None = None,
) -> Array:
    """The stream (T, D) after the last norm. With a state, the tokens go on from those it has read."""
    if spec.decoder is None or spec.encoder is not None:
        raise refuse("Spec", "encoder", "no rule runs encoders yet", "it can be sized")
    only(spec, towers=())
    if state and not spec.decoder.causal:
        raise refuse("state", "a stack that is not causal", "each token would change what was said before")
    n_before = state.n_tokens if state else 0
    tokens_T = check_tokens(spec, tokens_T, n_before)
    w, where = Weights(arrays), Where(n_before + np.arange(len(tokens_T)), spec.decoder.causal, state, trace)
    return run(spec.decoder, w.at("decoder"), run(spec.embedding, w.at("embedding"), tokens_T, where), where)


def logits(
    spec: s.Spec,
    arrays: Mapping[str, Array],
    tokens_T: ArrayLike,
    state: State | None = None,
    trace: dict[str, Array] | None = None,
) -> Array:
    """Scores (T, V): row i scores every token as the one after tokens_T[i]."""
    x_TD = hidden(spec, arrays, tokens_T, state, trace)
    return run(spec.head, Weights(arrays).at("head"), x_TD, Where(np.arange(len(x_TD)))) if spec.head else x_TD


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


def generate(
    spec: s.Spec,
    arrays: Mapping[str, Array],
    prompt_T: ArrayLike,
    max_new_tokens: int,
    temperature: float = 1.0,
    seed: int = 0,
    state: State | None = None,
) -> Array:
    """The prompt and max_new_tokens more. With a fresh state each token is read once; without, all are read again."""
    tokens = check_tokens(spec, prompt_T).tolist()
    if max_new_tokens < 0 or len(tokens) + max_new_tokens > spec.max_seq_len:
        raise refuse(
            "max_new_tokens", max_new_tokens, f"prompt and new tokens must fit max_seq_len ({spec.max_seq_len})"
        )
    probabilities(np.zeros(spec.vocab_size), temperature)
    rng = np.random.default_rng(seed)
    for _ in range(max_new_tokens):
        new = tokens[state.n_tokens :] if state else tokens
        p_V = probabilities(logits(spec, arrays, new, state)[-1], temperature)
        drawn = min(int(np.searchsorted(p_V.cumsum(), rng.random(), side="right")), len(p_V) - 1)
        tokens.append(drawn)
    return np.array(tokens)


def check_arrays(spec: s.Spec, arrays: Mapping[str, Array]) -> None:
    """Refuse arrays that are not the ledger's: absent names, wrong shapes, all at once."""
    faults = [
        refuse(w.name, arrays[w.name].shape if w.name in arrays else None, f"must have shape {w.shape}").faults[0]
        for w in Ledger.of(spec).weights
        if w.name not in arrays or arrays[w.name].shape != w.shape
    ]
    if faults:
        raise PlainformerError(faults)

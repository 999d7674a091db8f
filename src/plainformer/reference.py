"""The definition of a transformer: NumPy, float64, one rule for each part. One row of tokens at a time.

T new positions, S all positions, D d_model, H heads, G kv heads, K d_head, F d_ff, V vocabulary, E experts, L latent,
J d_value, P d_rope.
It takes a spec and arrays named as in the ledger, and decides from the part, never from which names are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import singledispatch

import numpy as np
from numpy.typing import ArrayLike

from plainformer import formulas as f
from plainformer import mixers
from plainformer import spec as s
from plainformer.faults import PlainformerError, refuse
from plainformer.formulas import Array
from plainformer.formulas import cross_entropy as cross_entropy
from plainformer.formulas import probabilities as probabilities
from plainformer.ledger import Ledger


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
    """What was read so far, by the attention's place: keys (G, S, K), already turned, and values; or latents."""

    kept: dict[str, tuple[Array, Array]] = field(default_factory=dict)

    @property
    def n_tokens(self) -> int:
        return max((first.shape[1] for first, _ in self.kept.values()), default=0)

    def append(self, place: str, k_GTK: Array, v_GTJ: Array) -> tuple[Array, Array]:
        """All keys and values, the new ones last."""
        if place in self.kept:
            k_GTK, v_GTJ = (np.concatenate(pair, 1) for pair in zip(self.kept[place], (k_GTK, v_GTJ), strict=True))
        self.kept[place] = k_GTK, v_GTJ
        return k_GTK, v_GTJ

    def truncate(self, n_tokens: int) -> None:
        """Forget all but the first n_tokens."""
        self.kept = {place: (k[:, :n_tokens], v[:, :n_tokens]) for place, (k, v) in self.kept.items()}


@dataclass(frozen=True)
class Where:
    """What a part may ask beyond its input. Built once a forward; feed-forwards and norms never open it."""

    positions_T: Array
    causal: bool = True
    types_T: Array | None = None  # which of two sentences each token is of; None: the first
    memory_SD: Array | None = None  # what the encoder said
    relative: Array | None = None  # the stack's table of bias by bucket, and how it was made
    buckets: s.RelativeBias | None = None
    state: State | None = None  # generation: what came before
    trace: dict[str, Array] | None = None  # asked for: attention weights and the stream, by place
    n_pass: int = 0  # where layers are shared: which pass this is, from 1

    def at(self, place: str) -> str:
        return f"{place}.pass.{self.n_pass}" if self.n_pass else place

    def keep(self, place: str, array: Array) -> None:
        if self.trace is not None:
            self.trace[place] = array

    def ago(self, n_keys: int) -> Array:
        """(T, S): how many positions back each key is."""
        return np.asarray(self.positions_T[:, None] - np.arange(n_keys))

    def allowed(self, window: int | None, n_keys: int) -> Array:
        """(T, S), True where a query may see a key: no later one in a causal stack, none beyond the window."""
        ago_TS = self.ago(n_keys)
        see_TS = ago_TS >= 0 if self.causal else np.ones_like(ago_TS, bool)
        return see_TS if window is None else see_TS & (np.abs(ago_TS) < window)

    def bias(self, n_keys: int, alibi_heads: int | None) -> Array | float:
        """What positions add to scores, (H, T, S): ALiBi's slopes or the stack's relative bias; 0 without."""
        if alibi_heads:
            return -f.alibi_slopes(alibi_heads)[:, None, None] * np.abs(self.ago(n_keys))
        if self.relative is None or self.buckets is None:
            return 0.0
        buckets, far = self.buckets.n_buckets, self.buckets.max_distance
        return self.relative[f.relative_buckets(self.ago(n_keys), buckets, far, self.causal)].transpose(2, 0, 1)


def only(part: object, **ready: object) -> None:
    """Refuse a part whose fields ask for more than its rule does: it can be sized, not run."""
    for name, value in ready.items():
        if (asked := getattr(part, name)) != value:
            raise refuse(f"{type(part).__name__}.{name}", asked, "no rule runs this yet", "it can be sized")


@singledispatch
def run(part: object, w: Weights, x: Array, where: Where) -> Array:
    raise refuse("part", type(part).__name__, "no rule runs this part yet", "it can be sized")


@run.register
def _(part: None, w: Weights, x: Array, where: Where) -> Array:
    return x  # an absent part


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
    y = f.layer_norm(x, gain, 0.0, part.eps) if part.kind == "layer" else f.rms_norm(x, gain, part.eps)
    return y + w["bias"] if part.bias else y


@run.register
def _(part: s.NormedLinear, w: Weights, x: Array, where: Where) -> Array:
    y = run(part.linear, w, x, where)
    return run(part.norm, w.at("norm"), y.reshape(*y.shape[:-1], -1, part.norm.width), where).reshape(y.shape)


@run.register
def _(part: s.Bottleneck, w: Weights, x: Array, where: Where) -> Array:
    narrow = run(part.norm, w.at("norm"), run(part.down, w.at("down"), x, where), where)
    return run(part.up, w.at("up"), narrow, where)


def heads(x_TN: Array, width: int) -> Array:
    """(heads, T, width) from the heads side by side."""
    return x_TN.reshape(len(x_TN), -1, width).swapaxes(0, 1)


def together(x_HTK: Array) -> Array:
    """The heads side by side again."""
    return x_HTK.swapaxes(0, 1).reshape(x_HTK.shape[1], -1)


def asked(part: s.Attention, w: Weights, x_TD: Array, where: Where) -> tuple[Array, Array, Array, Array, Array | float]:
    """Queries (H, T, K), keys and values (G, S, K), who may see whom (T, S), and what positions add to the scores."""
    if part.v is None:
        raise refuse("Attention.v", None, "no rule runs shared keys and values yet", "it can be sized")
    source = where.memory_SD if part.cross else x_TD
    if source is None:
        raise refuse("Where.memory_SD", None, "cross-attention reads what an encoder said")
    q_HTK = heads(run(part.q, w.at("q"), x_TD, where), part.d_head)
    k_GSK, v_GSK = (
        heads(run(projection, w.at(name), source, where), part.d_head)
        for name, projection in (("k", part.k), ("v", part.v))
    )
    if part.cross:  # it sees all, in no order
        return q_HTK, k_GSK, v_GSK, np.ones((len(x_TD), len(source)), bool), 0.0
    if part.scores.rotary:
        q_HTK, k_GSK = (f.rotate(y, where.positions_T, part.scores.rotary) for y in (q_HTK, k_GSK))
    if where.state:
        k_GSK, v_GSK = where.state.append(where.at(w.place), k_GSK, v_GSK)
    n_keys = k_GSK.shape[1]
    bias_HTS = where.bias(n_keys, part.n_heads if part.scores.alibi else None)
    return q_HTK, k_GSK, v_GSK, where.allowed(part.window, n_keys), bias_HTS


@run.register
def _(part: s.Attention, w: Weights, x_TD: Array, where: Where) -> Array:
    q_HTK, k_GSK, v_GSK, allowed_TS, bias_HTS = asked(part, w, x_TD, where)
    k_HSK, v_HSK = (y.repeat(part.n_heads // part.n_kv_heads, 0) for y in (k_GSK, v_GSK))
    sinks_H = w["sinks"] if part.scores.sinks else None
    out_HTK, weights_HTS = f.attention(
        q_HTK, k_HSK, v_HSK, allowed_TS, part.scores.scale, bias_HTS, part.scores.softcap, sinks_H
    )
    where.keep(f"{where.at(w.place)}.weights", weights_HTS)
    return run(part.out, w.at("out"), together(out_HTK), where)


@run.register
def _(part: mixers.LatentAttention, w: Weights, x_TD: Array, where: Where) -> Array:
    """The expanded form: keys and values are made from the latents, then attention is as everywhere."""
    only(part.scores, softcap=None, sinks=False, alibi=False)
    rotary, n_latent = part.scores.rotary, part.kv_norm.width
    q_HTK = heads(run(part.q, w.at("q"), x_TD, where), part.d_nope + part.d_rope)
    down = run(part.kv_down, w.at("kv_down"), x_TD, where)
    latent_1TL = run(part.kv_norm, w.at("kv_norm"), down[None, :, :n_latent], where)
    turned_1TP, q_turned_HTP = down[None, :, n_latent:], q_HTK[..., part.d_nope :]
    if rotary:
        turned_1TP, q_turned_HTP = (f.rotate(y, where.positions_T, rotary) for y in (turned_1TP, q_turned_HTP))
    latent_1SL, turned_1SP = (
        where.state.append(where.at(w.place), latent_1TL, turned_1TP) if where.state else (latent_1TL, turned_1TP)
    )
    both = heads(run(part.kv_up, w.at("kv_up"), latent_1SL[0], where), part.d_nope + part.d_value)
    k_HSK = np.concatenate((both[..., : part.d_nope], turned_1SP.repeat(part.n_heads, 0)), -1)
    q_HTK = np.concatenate((q_HTK[..., : part.d_nope], q_turned_HTP), -1)
    allowed_TS = where.allowed(None, k_HSK.shape[1])
    out_HTJ, weights_HTS = f.attention(q_HTK, k_HSK, both[..., part.d_nope :], allowed_TS, part.scores.scale)
    where.keep(f"{where.at(w.place)}.weights", weights_HTS)
    return run(part.out, w.at("out"), together(out_HTJ), where)


@run.register
def _(part: s.FeedForward, w: Weights, x: Array, where: Where) -> Array:
    up = run(part.up, w.at("up"), x, where)
    gate = run(part.gate, w.at("gate"), x, where) if part.gate else None
    if part.activation == "swiglu_clamped" and gate is not None:
        hidden = f.swiglu_clamped(gate, up)
    else:
        act = f.ACTIVATIONS[part.activation]
        hidden = act(up) if gate is None else act(gate) * up
    return run(part.down, w.at("down"), hidden, where)


def keep_chosen(w: Weights, where: Where, scores_TE: Array, chosen_TE: Array) -> None:
    """A router's scores and choices, if asked for: loads and balance are counted by choices, not by gates."""
    where.keep(f"{where.at(w.place)}.scores", scores_TE)
    where.keep(f"{where.at(w.place)}.chosen", chosen_TE)


@run.register
def _(part: s.ChosenSoftmaxRouter, w: Weights, x_TD: Array, where: Where) -> Array:
    scores_TE = run(part.scores, w.at("scores"), x_TD, where)
    chosen_TE = f.choose(scores_TE, part.n_chosen)
    keep_chosen(w, where, scores_TE, chosen_TE)
    return f.softmax(scores_TE, chosen_TE)


@run.register
def _(part: s.SoftmaxRouter, w: Weights, x_TD: Array, where: Where) -> Array:
    only(part, scaled=False)
    scores_TE = run(part.scores, w.at("scores"), x_TD, where)
    each = scores_TE.reshape(len(x_TD), part.n_groups, -1)  # DeepSeek-V2, section 2.1.3
    open_TE = f.choose(each.max(-1), part.n_chosen_groups).repeat(each.shape[-1], 1)
    chosen_TE = f.choose(np.where(open_TE, scores_TE, -np.inf), part.n_chosen)
    keep_chosen(w, where, scores_TE, chosen_TE)
    gates_TE = f.softmax(scores_TE) * chosen_TE
    return (gates_TE / gates_TE.sum(-1, keepdims=True) if part.normalised else gates_TE) * part.factor


@run.register
def _(part: s.SigmoidRouter, w: Weights, x_TD: Array, where: Where) -> Array:
    """DeepSeek-V3, section 2.1.2: a group is worth its two best corrected scores; gates are the scores uncorrected."""
    scores_TE = run(part.scores, w.at("scores"), x_TD, where)
    p_TE = f.sigmoid(scores_TE)
    corrected_TE = p_TE + w["correction"]
    each = corrected_TE.reshape(len(x_TD), part.n_groups, -1)
    best = f.choose(np.sort(each, -1)[..., -2:].sum(-1), part.n_chosen_groups)
    open_TE = best.repeat(each.shape[-1], 1)
    chosen_TE = f.choose(np.where(open_TE, corrected_TE, -np.inf), part.n_chosen)
    keep_chosen(w, where, scores_TE, chosen_TE)
    gates_TE = p_TE * chosen_TE
    gates_TE = gates_TE / (gates_TE.sum(-1, keepdims=True) + 1e-20) if part.normalised else gates_TE
    return gates_TE * part.factor


@run.register
def _(part: s.Experts, w: Weights, x_TD: Array, where: Where) -> Array:
    gates_TE = run(part.router, w.at("router"), x_TD, where)
    where.keep(f"{where.at(w.place)}.gates", gates_TE)
    out_TD = np.zeros_like(x_TD)
    for e in range(part.n_experts):
        meets = gates_TE[:, e] > 0  # an expert runs only on its tokens; a gate that underflows adds nothing
        out_TD[meets] += gates_TE[meets, e, None] * run(part.expert, w.at("experts", expert=e), x_TD[meets], where)
    if part.shared:
        said_TD = run(part.shared, w.at("shared"), x_TD, where)
        gate_T1 = f.sigmoid(run(part.shared_gate, w.at("shared_gate"), x_TD, where)) if part.shared_gate else 1.0
        out_TD = out_TD + gate_T1 * said_TD
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
def _(part: s.Table, w: Weights, rows: Array, where: Where) -> Array:
    return np.asarray(w["weight"][rows + part.offset])


@run.register
def _(part: s.Sinusoid, w: Weights, rows: Array, where: Where) -> Array:
    return f.sinusoids(rows + part.offset, part.width, part.layout)


@run.register
def _(part: s.Stack, w: Weights, x: Array, where: Where) -> Array:
    if part.positions:
        x = x + run(part.positions, w.at("positions"), where.positions_T, where)
    if part.relative:
        where = replace(where, relative=w.at("relative")["weight"], buckets=part.relative)
    x = run(part.norm_first, w.at("norm_first"), x, where)
    where.keep(f"{w.place}.stream.0", x)
    for n_done, i in enumerate(part.passes or range(len(part.layers)), start=1):
        for residual in part.layers[i]:
            x = run(residual, w.at(f"layers.{i}"), x, replace(where, n_pass=n_done) if part.passes else where)
        where.keep(f"{w.place}.stream.{n_done}", x)
    return run(part.norm_last, w.at("norm_last"), x, where)


@run.register
def _(part: s.Tokens, w: Weights, tokens_T: Array, where: Where) -> Array:
    x_TD = run(part.table, w, tokens_T, where) * part.scale
    if part.types:
        types_T = np.zeros_like(tokens_T) if where.types_T is None else where.types_T
        x_TD = x_TD + run(part.types, w.at("types"), types_T, where)
    if part.positions:
        x_TD = x_TD + run(part.positions, w.at("positions"), where.positions_T, where)
    x_TD = run(part.norm, w.at("norm"), x_TD, where)
    return run(part.project, w.at("project"), x_TD, where)


@run.register
def _(part: s.Head, w: Weights, x: Array, where: Where) -> Array:
    x = {"no": x, "first": x[..., :1, :], "mean": x.mean(-2, keepdims=True)}[part.pool]
    x = run(part.transform, w.at("transform"), x, where)
    x = f.ACTIVATIONS[part.activation](x) if part.activation else x
    x = run(part.norm, w.at("norm"), x, where) * part.scale
    weight = w.arrays["embedding.weight"] if part.tied else w["weight"]
    scores = linear(part.linear, weight, w, x)
    return part.softcap * np.tanh(scores / part.softcap) if part.softcap else scores


# A whole model


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
    source_S: ArrayLike | None = None,
    types_T: ArrayLike | None = None,
) -> Array:
    """The stream (T, D) after the last norm. With a state, the tokens go on from those it has read.

    `source_S`: the text that an encoder-decoder's encoder reads; `types_T`: which of two sentences each token is of.
    """
    if spec.towers:
        raise refuse("Spec.towers", len(spec.towers), "no rule runs towers yet", "it can be sized")
    if state and not spec.main.causal:
        raise refuse("state", "a stack that is not causal", "each token would change what was said before")
    if (spec.encoder is not None and spec.decoder is not None) != (source_S is not None):
        raise refuse("source", source_S, "is what the encoder of an encoder-decoder reads, and no other")
    n_before, w = state.n_tokens if state else 0, Weights(arrays)
    tokens_T, memory_SD = check_tokens(spec, tokens_T, n_before), None
    if source_S is not None and spec.encoder is not None:
        source_S = check_tokens(spec, source_S)
        there = Where(np.arange(len(source_S)), spec.encoder.causal, trace=trace)
        memory_SD = run(spec.encoder, w.at("encoder"), run(spec.embedding, w.at("embedding"), source_S, there), there)
    types_T = None if types_T is None else np.asarray(types_T)
    here = Where(n_before + np.arange(len(tokens_T)), spec.main.causal, types_T, memory_SD, state=state, trace=trace)
    x_TD = run(spec.embedding, w.at("embedding"), tokens_T, here)
    return run(spec.main, w.at("decoder" if spec.decoder else "encoder"), x_TD, here)


def logits(
    spec: s.Spec,
    arrays: Mapping[str, Array],
    tokens_T: ArrayLike,
    state: State | None = None,
    trace: dict[str, Array] | None = None,
    source_S: ArrayLike | None = None,
    types_T: ArrayLike | None = None,
) -> Array:
    """Scores (T, V): in a decoder row i scores every token as the one after tokens_T[i], in an encoder as its own;
    one row where the head pools, the stream where there is none."""
    x_TD = hidden(spec, arrays, tokens_T, state, trace, source_S, types_T)
    return run(spec.head, Weights(arrays).at("head"), x_TD, Where(np.arange(len(x_TD)))) if spec.head else x_TD


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
    f.probabilities(np.zeros(spec.vocab_size), temperature)
    rng = np.random.default_rng(seed)
    for _ in range(max_new_tokens):
        new = tokens[state.n_tokens :] if state else tokens
        p_V = f.probabilities(logits(spec, arrays, new, state)[-1], temperature)
        drawn = min(int(np.searchsorted(p_V.cumsum(), rng.random(), side="right")), len(p_V) - 1)
        tokens.append(drawn)
    return np.array(tokens)


def check_arrays(spec: s.Spec, arrays: Mapping[str, Array]) -> None:
    """Refuse where one of the ledger's arrays is absent or of another shape, all at once; others are ignored."""
    faults = [
        refuse(w.name, arrays[w.name].shape if w.name in arrays else None, f"must have shape {w.shape}").faults[0]
        for w in Ledger.of(spec).rows
        if not w.same_as and (w.name not in arrays or arrays[w.name].shape != w.shape)
    ]
    if faults:
        raise PlainformerError(faults)

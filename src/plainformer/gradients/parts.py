"""The reference backwards: one rule for each part. Given a part's input and the slope along its output, a rule adds the
slopes along its weights to what has been found and hands back the slope along its input.

A rule is given nothing from the way forward: what it needs it computes again from the input, by the reference. So each
can be read, and run, alone. (It is what libraries call checkpointing: Chen et al. 2016.)

T new positions, S all positions, D d_model, H heads, G kv heads, K d_head, J d_value, P d_rope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch

import numpy as np

from plainformer import formulas as f
from plainformer import mixers
from plainformer import spec as s
from plainformer.faults import refuse
from plainformer.formulas import Array
from plainformer.gradients import formulas as b
from plainformer.ledger import weights
from plainformer.reference import Weights, Where, asked, heads, linear, only, run, together


@dataclass(frozen=True)
class Met:
    """A part on the way back: where it stands, what it read, the slope along what it said, that along what it read."""

    place: str
    part: object
    x: Array
    d_y: Array
    d_x: Array


@dataclass
class Slopes:
    """What has been found on the way back. A weight that is met twice (by two tokens, in two passes, as table and as
    head) gets the sum: `add` adds."""

    of: dict[str, Array]  # along each weight, by its name in the ledger
    memory_SD: Array | float = 0.0  # along what the encoder said: every cross-attention adds to it
    bias_HTS: Array | float = 0.0  # along what distances add to scores: every attention of a stack adds to it
    shares: dict[str, Array] = field(default_factory=dict)  # of all choices, each expert's (E,), by its router's place
    real_T: Array | float = 0.0  # 1 / how many tokens of the batch have a target, 0 where this one has none
    balance: float = 0.0  # the balance losses that were met, each by its weight
    trace: dict[str, Array] = field(default_factory=dict)  # along what the reference's trace keeps, by the same places
    met: list[Met] = field(default_factory=list)  # every part, in the order of the way back: a part after those in it

    @classmethod
    def along(cls, part: object) -> Slopes:
        """Nothing found yet: 0 along each weight of a part or a spec."""
        return cls({w.name: np.zeros(w.shape) for w in weights(part) if not w.same_as and not w.buffer})

    def add(self, w: Weights, name: str, d_weight: Array) -> None:
        array = self.of[f"{w.place}.{name}".lstrip(".")]
        array[... if w.expert is None else w.expert] += d_weight


def backward(part: object, w: Weights, x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    """d_x, of the shape of x, from a part's input and d_y; the slopes of its weights are added to `to`.

    Any part alone: to = Slopes.along(part); backward(part, Weights(arrays), x, Where(np.arange(len(x))), d_y, to).
    """
    d_x = rule(part, w, x, where, d_y, to)
    if part is not None:
        to.met.append(Met(where.at(w.place), part, x, d_y, d_x))
    return d_x


@singledispatch
def rule(part: object, w: Weights, x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    raise refuse("part", type(part).__name__, "no rule takes slopes back through this part yet", "it can be sized")


@rule.register
def _(part: None, w: Weights, x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    return d_y  # an absent part


Step = tuple[object, Weights]  # a part and its weights


def forward(steps: Sequence[Step], x: Array, where: Where) -> Array:
    """Parts in a row."""
    for part, w in steps:
        x = run(part, w, x, where)
    return x


def chain(steps: Sequence[Step], x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    """The chain rule, for parts in a row: their inputs on the way there, their slopes on the way back."""
    inputs = [x]
    for part, w in steps[:-1]:
        inputs.append(run(part, w, inputs[-1], where))
    for (part, w), met in zip(reversed(steps), reversed(inputs), strict=True):
        d_y = backward(part, w, met, where, d_y, to)
    return d_y


def through_linear(part: s.Linear, matrix: Weights, w: Weights, x: Array, d_y: Array, to: Slopes) -> Array:
    """`matrix`: where the weight stands: with the bias, or, where a head is tied, in the token table.

    x A^T B^T is two linears in a row; both paths read x, so their slopes add up."""
    d_x, d_weight = b.linear_back(x, matrix["weight"], d_y)
    to.add(matrix, "weight", d_weight)
    if part.bias:
        to.add(w, "bias", b.rows(d_y).sum(0))
    if part.lora:
        d_narrow, d_b = b.linear_back(x @ w["lora_a"].T, w["lora_b"], d_y * (part.lora.alpha / part.lora.rank))
        d_too, d_a = b.linear_back(x, w["lora_a"], d_narrow)
        to.add(w, "lora_a", d_a)
        to.add(w, "lora_b", d_b)
        d_x = d_x + d_too
    return d_x


@rule.register
def _(part: s.Linear, w: Weights, x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    return through_linear(part, w, w, x, d_y, to)


@rule.register
def _(part: s.Norm, w: Weights, x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    gain = w["weight"] + part.plus_one if part.gain else 1.0
    if part.kind == "layer":
        d_x, d_gain, _ = b.layer_norm_back(x, gain, part.eps, d_y)
    else:
        d_x, d_gain = b.rms_norm_back(x, gain, part.eps, d_y)
    if part.gain:
        to.add(w, "weight", d_gain)
    if part.bias:
        to.add(w, "bias", b.rows(d_y).sum(0))
    return d_x


@rule.register
def _(part: s.NormedLinear, w: Weights, x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    y = run(part.linear, w, x, where)
    runs = (*y.shape[:-1], -1, part.norm.width)
    d_y = backward(part.norm, w.at("norm"), y.reshape(runs), where, d_y.reshape(runs), to).reshape(y.shape)
    return backward(part.linear, w, x, where, d_y, to)


@rule.register
def _(part: s.Bottleneck, w: Weights, x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    steps = (part.down, w.at("down")), (part.norm, w.at("norm")), (part.up, w.at("up"))
    return chain(steps, x, where, d_y, to)


def turned(x_GTK: Array, rotary: s.Rotary | None, where: Where) -> Array:
    return f.rotate(x_GTK, where.positions_T, rotary) if rotary else x_GTK


def turned_back(d_y_GTK: Array, rotary: s.Rotary | None, where: Where) -> Array:
    return b.rotate_back(d_y_GTK, where.positions_T, rotary) if rotary else d_y_GTK


@rule.register
def _(part: s.Attention, w: Weights, x_TD: Array, where: Where, d_y_TD: Array, to: Slopes) -> Array:
    q_HTK, k_GSK, v_GSK, allowed_TS, bias_HTS = asked(part, w, x_TD, where)
    k_HSK, v_HSK = (y.repeat(part.n_heads // part.n_kv_heads, 0) for y in (k_GSK, v_GSK))
    sinks_H = w["sinks"] if part.scores.sinks else None
    read = q_HTK, k_HSK, v_HSK, allowed_TS, part.scores.scale, bias_HTS, part.scores.softcap, sinks_H
    d_out_HTK = heads(backward(part.out, w.at("out"), together(f.attention(*read)[0]), where, d_y_TD, to), part.d_head)
    d = b.attention_back(*read, d_out_HTK)
    to.trace |= {f"{where.at(w.place)}.{name}": array for name, array in d.named()}
    if d.sinks_H is not None:
        to.add(w, "sinks", d.sinks_H)
    if where.buckets and not part.cross and not part.scores.alibi:
        to.bias_HTS = to.bias_HTS + d.scores_HTS

    rotary = None if part.cross else part.scores.rotary
    d_k_GSK, d_v_GSK = (b.shared_back(y, part.n_kv_heads) for y in (d.k_HSK, d.v_HSJ))
    d_q_HTK, d_k_GSK = (turned_back(y, rotary, where) for y in (d.q_HTK, d_k_GSK))
    source = where.memory_SD if part.cross and where.memory_SD is not None else x_TD
    d_x_TD = backward(part.q, w.at("q"), x_TD, where, together(d_q_HTK), to)
    d_source = backward(part.k, w.at("k"), source, where, together(d_k_GSK), to)
    d_source = d_source + backward(part.v, w.at("v"), source, where, together(d_v_GSK), to)
    if part.cross:
        to.memory_SD = to.memory_SD + d_source
        return d_x_TD
    return d_x_TD + d_source


@rule.register
def _(part: mixers.LatentAttention, w: Weights, x_TD: Array, where: Where, d_y_TD: Array, to: Slopes) -> Array:
    """The expanded form, as in the reference. The turned key is one for all heads: it gets the sum of theirs."""
    only(part.scores, softcap=None, sinks=False, alibi=False)
    n_latent, n, rotary = part.kv_norm.width, part.d_nope, part.scores.rotary
    q_HTK = heads(run(part.q, w.at("q"), x_TD, where), n + part.d_rope)
    q_HTK = np.concatenate((q_HTK[..., :n], turned(q_HTK[..., n:], rotary, where)), -1)
    down = run(part.kv_down, w.at("kv_down"), x_TD, where)
    steps = (part.kv_norm, w.at("kv_norm")), (part.kv_up, w.at("kv_up"))
    both = heads(forward(steps, down[:, :n_latent], where), n + part.d_value)
    key_1TP = turned(down[None, :, n_latent:], rotary, where)
    k_HSK = np.concatenate((both[..., :n], key_1TP.repeat(part.n_heads, 0)), -1)
    read = q_HTK, k_HSK, both[..., n:], where.allowed(None, len(x_TD)), part.scores.scale, 0.0, None, None
    d_out_HTJ = heads(backward(part.out, w.at("out"), together(f.attention(*read)[0]), where, d_y_TD, to), part.d_value)
    d = b.attention_back(*read, d_out_HTJ)
    to.trace |= {f"{where.at(w.place)}.{name}": array for name, array in d.named()}

    d_key_1TP = turned_back(d.k_HSK[..., n:].sum(0, keepdims=True), rotary, where)
    d_both = together(np.concatenate((d.k_HSK[..., :n], d.v_HSJ), -1))
    d_down = np.concatenate((chain(steps, down[:, :n_latent], where, d_both, to), d_key_1TP[0]), -1)
    d_q = together(np.concatenate((d.q_HTK[..., :n], turned_back(d.q_HTK[..., n:], rotary, where)), -1))
    d_x_TD = backward(part.q, w.at("q"), x_TD, where, d_q, to)
    return d_x_TD + backward(part.kv_down, w.at("kv_down"), x_TD, where, d_down, to)


@rule.register
def _(part: s.FeedForward, w: Weights, x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    up = run(part.up, w.at("up"), x, where)
    if part.gate is None:
        hidden = f.ACTIVATIONS[part.activation](up)
        d_hidden = backward(part.down, w.at("down"), hidden, where, d_y, to)
        return backward(part.up, w.at("up"), x, where, d_hidden * b.SLOPES[part.activation](up), to)
    gate = run(part.gate, w.at("gate"), x, where)
    clamped = part.activation == "swiglu_clamped"
    hidden = f.swiglu_clamped(gate, up) if clamped else f.ACTIVATIONS[part.activation](gate) * up
    d_hidden = backward(part.down, w.at("down"), hidden, where, d_y, to)
    d_gate, d_up = b.gated_back(part.activation, gate, up, d_hidden)
    d_x = backward(part.gate, w.at("gate"), x, where, d_gate, to)
    return d_x + backward(part.up, w.at("up"), x, where, d_up, to)


@rule.register
def _(part: s.Residual, w: Weights, x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    """y = x + said: the sum hands its slope to both. Through x it comes back as it is, however deep the stack."""
    first = part.branches[0].name
    shared, joint, last = (w.at(f"{first}_norm_{name}") for name in ("shared", "together", "sum"))
    read = run(part.norm_in, shared, x, where)
    ways = [
        (
            (each.norm_in, w.at(f"{each.name}_norm")),
            (each.part, w.at(each.name)),
            (each.norm_out, w.at(f"{each.name}_norm_out")),
        )
        for each in part.branches
    ]
    said = sum((forward(way, read, where) for way in ways), np.zeros_like(x))
    summed = run(part.norm_out, joint, said, where)
    d_sum = backward(part.norm_sum, last, x + summed if part.add else summed, where, d_y, to)
    d_said = backward(part.norm_out, joint, said, where, d_sum, to)
    d_read = sum((chain(way, read, where, d_said, to) for way in ways), np.zeros_like(x))
    d_x = backward(part.norm_in, shared, x, where, d_read, to)
    return d_x + d_sum if part.add else d_x


@rule.register
def _(part: s.Table, w: Weights, rows: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    to.add(w, "weight", b.table_back(w["weight"].shape, rows + part.offset, d_y))
    return np.zeros(rows.shape)  # a row's number is no quantity: it has no slope


@rule.register
def _(part: s.Sinusoid, w: Weights, rows: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    return np.zeros(rows.shape)


@rule.register
def _(part: s.Stack, w: Weights, x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    kept: dict[str, Array] = {}
    run(part, w, x, replace(where, trace=kept))
    stream = [kept[f"{w.place}.stream.{n}"] for n in range(1 + len(part.passes or part.layers))]
    if part.relative:
        where = replace(where, relative=w.at("relative")["weight"], buckets=part.relative)
        to.bias_HTS = np.zeros((part.relative.n_heads, len(x), len(x)))
    d_x = backward(part.norm_last, w.at("norm_last"), stream[-1], where, d_y, to)
    for n, i in reversed(list(enumerate(part.passes or range(len(part.layers)), start=1))):
        to.trace[f"{w.place}.stream.{n}"] = d_x
        layer = [(residual, w.at(f"layers.{i}")) for residual in part.layers[i]]
        d_x = chain(layer, stream[n - 1], replace(where, n_pass=n) if part.passes else where, d_x, to)
    to.trace[f"{w.place}.stream.0"] = d_x
    if part.relative:
        far = part.relative.max_distance
        buckets_TS = f.relative_buckets(where.ago(len(x)), part.relative.n_buckets, far, where.causal)
        table = w.at("relative")["weight"]
        d_bias = np.moveaxis(np.asarray(to.bias_HTS), 0, -1)
        to.add(w.at("relative"), "weight", b.table_back(table.shape, buckets_TS, d_bias))
    places = run(part.positions, w.at("positions"), where.positions_T, where) if part.positions else 0.0
    d_x = backward(part.norm_first, w.at("norm_first"), x + places, where, d_x, to)
    if part.positions:
        backward(part.positions, w.at("positions"), where.positions_T, where, d_x, to)
    return d_x


@rule.register
def _(part: s.Tokens, w: Weights, tokens_T: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    """A sum of rows of tables: each of them gets the whole slope; the token's own, times the scale."""
    alone = replace(part, norm=None, project=None)
    steps = (part.norm, w.at("norm")), (part.project, w.at("project"))
    d_row_TD = chain(steps, run(alone, w, tokens_T, where), where, d_y, to)
    if part.types:
        types_T = np.zeros_like(tokens_T) if where.types_T is None else where.types_T
        backward(part.types, w.at("types"), types_T, where, d_row_TD, to)
    if part.positions:
        backward(part.positions, w.at("positions"), where.positions_T, where, d_row_TD, to)
    return backward(part.table, w, tokens_T, where, d_row_TD * part.scale, to)


@rule.register
def _(part: s.Head, w: Weights, x: Array, where: Where, d_y: Array, to: Slopes) -> Array:
    pooled = {"no": x, "first": x[..., :1, :], "mean": x.mean(-2, keepdims=True)}[part.pool]
    dense = run(part.transform, w.at("transform"), pooled, where)
    bent = f.ACTIVATIONS[part.activation](dense) if part.activation else dense
    read = run(part.norm, w.at("norm"), bent, where) * part.scale
    matrix = Weights(w.arrays, "embedding") if part.tied else w
    scores = linear(part.linear, matrix["weight"], w, read)
    d_scores = b.softcap_back(scores, part.softcap, d_y) if part.softcap else d_y
    d_read = through_linear(part.linear, matrix, w, read, d_scores, to) * part.scale
    d_bent = backward(part.norm, w.at("norm"), bent, where, d_read, to)
    d_dense = d_bent * b.SLOPES[part.activation](dense) if part.activation else d_bent
    d_pooled = backward(part.transform, w.at("transform"), pooled, where, d_dense, to)
    if part.pool == "first":
        return np.concatenate((d_pooled, np.zeros_like(x[..., 1:, :])), -2)
    return np.broadcast_to(d_pooled / len(x), x.shape) if part.pool == "mean" else d_pooled

"""What a forward pass keeps for the backward one. One rule for each part: the operations that its module does.

Exact where torch runs the model as it is, eagerly and without dropout: `tests/test_cost_measured.py` holds every rule
to what autograd saves. By a tape (see there): a rule takes a value and gives the next, as the module's forward does.
"""

from __future__ import annotations

from functools import singledispatch

from plainformer import mixers
from plainformer import spec as s
from plainformer.cost.attention import Heads, attended, bias_of, turned
from plainformer.cost.tape import FLAG, INDEX, SINGLE, Pass, Tape, Value
from plainformer.faults import refuse


@singledispatch
def keeps(part: object, x: Value, tape: Tape) -> Value:
    """What one part makes of x; what it keeps goes on the tape."""
    raise refuse("activations", type(part).__name__, "no rule says what this part keeps for its backward pass")


@keeps.register(type(None))
def _(part: None, x: Value, tape: Tape) -> Value:
    return x


@keeps.register(s.Linear)
def _(part: s.Linear, x: Value, tape: Tape) -> Value:
    return tape.linear(x, part)


@keeps.register(s.Norm)
def _(part: s.Norm, x: Value, tape: Tape) -> Value:
    return tape.norm(x, part)


@keeps.register(s.NormedLinear)
def _(part: s.NormedLinear, x: Value, tape: Tape) -> Value:
    return tape.norm(tape.linear(x, part.linear), part.norm)


@keeps.register(s.Bottleneck)
def _(part: s.Bottleneck, x: Value, tape: Tape) -> Value:
    return tape.linear(tape.norm(tape.linear(x, part.down), part.norm), part.up)


# --- attention --------------------------------------------------------------------------------------------------------


@keeps.register(s.Attention)
def _(part: s.Attention, x: Value, tape: Tape) -> Value:
    return tape.linear(looked(part, x, tape), part.out)


@keeps.register(mixers.GatedAttention)
def _(part: mixers.GatedAttention, x: Value, tape: Tape) -> Value:
    gate = tape.shaped(tape.linear(x, part.gate), "sigmoid")
    return tape.linear(tape.times(looked(part.attention, x, tape), gate), part.attention.out)


def looked(part: s.Attention, x: Value, tape: Tape) -> Value:
    """What the heads say, before they are put together."""
    if part.v is None:
        raise refuse("activations", "Attention.v", "no rule says what keys that are values too keep")
    source = tape.memory if part.cross and tape.memory else x
    q, k = keeps(part.q, x, tape), keeps(part.k, source, tape)
    v, bias = keeps(part.v, source, tape), None
    if not part.cross:
        q, k = (turned(y, part.scores.rotary, q.size, tape, tape.of.steps) for y in (q, k))
        bias = bias_of(part, q.size, tape)
    n_keys = tape.of.n_source if part.cross else tape.n_tokens
    sizes = (part.n_heads, part.n_kv_heads, part.d_head, part.d_head)
    turns = tape.of.steps and part.scores.rotary is not None and not part.cross  # their step writes heads first
    of = Heads(*sizes, part.scores, n_keys, part.window, part.cross, head_first=turns, steps=tape.of.steps)
    return attended(of, q, k, v, bias, tape)


@keeps.register(mixers.LatentAttention)
def _(part: mixers.LatentAttention, x: Value, tape: Tape) -> Value:
    """With the latent expanded, as in training."""
    rotary, n_heads = part.scores.rotary, tape.rows * part.n_heads
    q = keeps(part.q, x, tape)
    q_turned = turned(q.view(n_heads * part.d_rope), rotary, q.size, tape)
    down = tape.linear(x, part.kv_down)
    latent = tape.norm(down.view(tape.rows * part.kv_norm.width), part.kv_norm)
    k_turned = turned(down.view(tape.rows * part.d_rope), rotary, q.size, tape)
    up = tape.linear(latent, part.kv_up)
    d_key = part.d_nope + part.d_rope
    q = tape.new(n_heads * d_key, q, q_turned)
    k = tape.new(n_heads * d_key, up, k_turned)
    of = Heads(part.n_heads, part.n_heads, d_key, part.d_value, part.scores, tape.n_tokens, head_first=True)
    return tape.linear(attended(of, q, k, up.view(n_heads * part.d_value), None, tape), part.out)


# --- feed-forwards, experts -------------------------------------------------------------------------------------------


@keeps.register(s.FeedForward)
def _(part: s.FeedForward, x: Value, tape: Tape) -> Value:
    return forward(part, x, tape)


STEPS = ("relu", "relu_squared", "silu", "gelu", "gelu_tanh")  # activations that `plainformer.fused` has


def forward(part: s.FeedForward, x: Value, tape: Tape, n_met: int | None = None) -> Value:
    """n_met: how many experts the rows of x are shared out among."""
    gate = tape.linear(x, part.gate, n_met) if part.gate else None
    up = tape.linear(x, part.up, n_met)
    if tape.of.steps and part.activation in STEPS:
        both = [gate, up] if gate else [up]
        hidden = tape.new(up.n, *both)
        if hidden.grad:
            tape.keep(*both)
    elif gate is None:
        hidden = tape.shaped(up, part.activation)
    elif part.activation == "swiglu_clamped":
        gate, up = tape.shaped(gate, "clamp"), tape.shaped(up, "clamp")
        hidden = tape.times(tape.times(gate, tape.shaped(gate, "sigmoid")), tape.new(up.n, up))
    else:
        hidden = tape.times(tape.shaped(gate, part.activation), up)
    return tape.linear(hidden, part.down, n_met)


@singledispatch
def gates(router: object, scores: Value, tape: Tape) -> Value:
    """How much each expert weighs for each token."""
    raise refuse("activations", type(router).__name__, "no rule says what this router keeps")


@gates.register(s.ChosenSoftmaxRouter)
def _(router: s.ChosenSoftmaxRouter, scores: Value, tape: Tape) -> Value:
    return tape.shaped(tape.masked(scores, tape.constant(scores.n, FLAG)), "softmax")


@gates.register(s.SoftmaxRouter)
@gates.register(s.SigmoidRouter)
def _(router: s.SoftmaxRouter | s.SigmoidRouter, scores: Value, tape: Tape) -> Value:
    if isinstance(router, s.SoftmaxRouter) and router.scaled:
        raise refuse("activations", "SoftmaxRouter.scaled", "no rule says what its learned scales keep")
    by = "softmax" if isinstance(router, s.SoftmaxRouter) else "sigmoid"
    chosen = tape.masked(tape.shaped(scores, by), tape.constant(scores.n, FLAG))
    return tape.over(chosen, tape.new(scores.n // router.scores.n_out, chosen)) if router.normalised else chosen


@keeps.register(s.Experts)
def _(part: s.Experts, x: Value, tape: Tape) -> Value:
    """Each choice a copy of its token, its expert's steps, and the weighted answer."""
    n_choices = tape.rows * part.router.n_chosen
    gate = gates(part.router, tape.linear(x, part.router.scores), tape)
    indices = tape.constant(2 * n_choices, INDEX)  # whose token, which expert
    met = tape.picked(x, indices, n_choices * part.expert.up.n_in)
    said = forward(part.expert, met, tape, part.n_experts)
    said = tape.times(tape.picked(gate, indices, n_choices), said)
    said = said if said.size == x.size else tape.new(said.n, said, size=x.size)
    if said.grad:
        tape.keep(indices, said)  # torch's index_add keeps what it adds
    out = Value(x.n, x.size, said.grad)
    if part.shared:
        always = forward(part.shared, x, tape)
        if part.shared_gate:
            always = tape.times(tape.shaped(tape.linear(x, part.shared_gate), "sigmoid"), always)
        out = tape.new(x.n, out, always)
    return out


# --- whole ------------------------------------------------------------------------------------------------------------


def layer(part: tuple[s.Residual, ...], x: Value, tape: Tape) -> Value:
    for residual in part:
        x = keeps(residual, x, tape)
    return x


@keeps.register(s.Residual)
def _(part: s.Residual, x: Value, tape: Tape) -> Value:
    read = keeps(part.norm_in, x, tape)
    said = []
    for branch in part.branches:
        y = normed(branch.norm_in, read, tape, isinstance(branch.part, (s.Attention, s.FeedForward)))
        said.append(keeps(branch.norm_out, keeps(branch.part, y, tape), tape))
    together = keeps(part.norm_out, tape.new(x.n, *said) if len(said) > 1 else said[0], tape)
    return keeps(part.norm_sum, tape.new(x.n, x, together) if part.add else together, tape)


def normed(part: s.Norm | None, x: Value, tape: Tape, read_by_products: bool) -> Value:
    return tape.norm(x, part, read_by_products) if part and tape.of.steps else keeps(part, x, tape)


@keeps.register(s.Stack)
def _(part: s.Stack, x: Value, tape: Tape) -> Value:
    """With full recomputation a layer keeps what it reads alone."""
    if isinstance(part.positions, s.Table):
        x = tape.new(x.n, x, positions(part.positions, tape), size=x.size)
    elif isinstance(part.positions, mixers.Distances):
        raise refuse("activations", "Distances", "no rule says what this part keeps for its backward pass")
    tape.relative = part.relative
    x, done = keeps(part.norm_first, x, tape), set()
    for i in part.passes or range(len(part.layers)):
        tape.cast_before = i in done
        done.add(i)
        if tape.of.recompute == "full":
            read = [x, *([tape.memory] if tape.memory else [])]
            x = tape.again(read, lambda inner, i=i, x=x: layer(part.layers[i], x, inner))  # type: ignore[misc]
        else:
            x = layer(part.layers[i], x, tape)
    tape.cast_before = False
    return normed(part.norm_last, x, tape, read_by_products=True)


def positions(part: s.Table, tape: Tape) -> Value:
    """One row for each position, for all sequences; numbers that count from elsewhere are made anew."""
    where = tape.constant(tape.n_tokens, INDEX)
    where = where if part.offset else tape.once("positions", lambda: where)
    return tape.looked_up(tape.n_tokens * part.width, where, tape.trains)


@keeps.register(s.Tokens)
def _(part: s.Tokens, x: Value, tape: Tape) -> Value:
    """x: the tokens' numbers."""
    stream = tape.looked_up(tape.rows * part.table.width, x, tape.trains)
    if part.types:
        stream = tape.new(stream.n, stream, tape.looked_up(stream.n, tape.constant(tape.rows, INDEX), tape.trains))
    if part.positions:
        stream = tape.new(stream.n, stream, positions(part.positions, tape))
    stream = keeps(part.norm, stream, tape)
    return keeps(part.project.linear if isinstance(part.project, mixers.Patches) else part.project, stream, tape)


@keeps.register(s.Head)
def _(part: s.Head, x: Value, tape: Tape) -> Value:
    width = x.n // tape.rows
    if part.pool == "first":
        x = x.view(tape.of.batch_size * width)
    elif part.pool == "mean":
        x = tape.times(x, tape.constant(tape.n_tokens, FLAG)).view(tape.of.batch_size * width)
        x = tape.over(tape.new(x.n, x), tape.constant(1, INDEX))
    x = keeps(part.transform, x, tape)
    x = tape.shaped(x, part.activation) if part.activation else x
    x = keeps(part.norm, x, tape)
    logits = tape.linear(x if part.scale == 1 else tape.new(x.n, x), part.linear)
    return tape.shaped(logits, "tanh") if part.softcap else logits


@keeps.register(s.Spec)
def _(part: s.Spec, x: Value, tape: Tape) -> Value:
    """x: the tokens' numbers. Text alone: towers are asked by themselves."""
    if part.encoder is not None and part.decoder is not None:
        n_tokens, tape.n_tokens = tape.n_tokens, tape.of.n_source
        read = tape.constant(tape.rows, INDEX)
        tape.memory = keeps(part.encoder, keeps(part.embedding, read, tape), tape)
        tape.n_tokens, tape.made = n_tokens, {}
    answer = keeps(part.main, keeps(part.embedding, x, tape), tape)
    answer = keeps(part.head, answer, tape)
    tape.most = max(tape.most, tape.n_bytes)
    return answer


def taped(spec: s.Spec, of: Pass) -> Tape:
    """The tape of a whole forward pass."""
    tape = Tape(of)
    keeps(spec, tape.constant(of.rows, INDEX), tape)
    return tape


def activations(spec: s.Spec, of: Pass) -> int:
    """Bytes kept of one pass over the whole batch at the worst moment, what is made again included; without the loss.
    Refuses a part that no rule speaks of."""
    return taped(spec, of).most


def logits(spec: s.Spec, of: Pass, at_once: int = 0) -> int:
    """The scores, their logarithms and the gradient of these; the last two in 32 bits, and under autocast, which copies
    what the loss reads, all three. at_once: of so many positions together, and beside them the gradient of all that the
    head reads; 0: of all."""
    if spec.head is None:
        return 0
    rows = of.rows if spec.head.pool == "no" else of.batch_size
    there = min(rows, at_once) if at_once else rows
    stream = of.size * rows * spec.head.linear.n_in if there < rows else 0
    return stream + (of.size + 2 * max(SINGLE, of.size)) * there * spec.head.linear.n_out

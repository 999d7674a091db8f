"""What attention keeps between its projections: by a fused kernel, in pieces, or with its scores in sight.

Sizes are bytes of a number; `pairs` of queries and keys are all T S of them, as in the plain form.
"""

from __future__ import annotations

from plainformer import spec as s
from plainformer.cost.tape import FLAG, INDEX, SINGLE, Tape, Value
from plainformer.records import dataclass


@dataclass(frozen=True)
class Heads:
    """What an attention is to its kernel."""

    n: int
    n_kv: int
    d_key: int
    d_value: int
    scores: s.Scores
    n_keys: int
    window: int | None = None
    cross: bool = False
    head_first: bool = False  # queries lie head by head, not position by position; so does what comes of them
    steps: bool = False  # a reading of the scores between products may take the kernel's place


def turned(x: Value, rotary: s.Rotary | None, size: int, tape: Tape, in_one: bool = False) -> Value:
    """Its pairs turned by a table of cosines and one of sines, which all layers share; `size`: of their numbers.
    in_one: by one step, which reads them in 32 bits."""
    if rotary is None:
        return x
    n_numbers = tape.n_tokens * rotary.n_dims // 2
    if in_one and size != SINGLE:
        if x.grad:
            tape.keep(*(tape.constant(n_numbers, SINGLE) for _ in ("cos", "sin")))
        return tape.new(x.n, x)
    for name in ("cos", "sin"):
        table = tape.once((rotary, size, name), lambda: tape.constant(n_numbers, size))
        if x.grad:
            tape.keep(table)
    return tape.new(x.n, x, size=max(x.size, size))


def bias_of(part: s.Attention, size: int, tape: Tape) -> Value | None:
    """What positions add to scores: ALiBi's slopes, or the stack's table, which learns."""
    n = part.n_heads * tape.n_tokens**2
    if part.scores.alibi:
        return tape.once(("alibi", part.n_heads, size), lambda: tape.constant(n, size))
    if tape.relative is None:
        return None
    which = tape.constant(tape.n_tokens**2, INDEX)
    return tape.once(("relative", size), lambda: tape.new(n, tape.looked_up(n, which, tape.trains), size=size))


def attended(of: Heads, q: Value, k: Value, v: Value, bias: Value | None, tape: Tape) -> Value:
    """By a fused kernel where there is one: on a processor, none for sinks and caps, for values of another width than
    keys, for a bias that learns."""
    if in_steps(of, bias, tape):
        if tape.of.recompute != "selective":
            return by_steps(of, q, k, v, tape)
        return tape.again([q, k, v], lambda inner: by_steps(of, q, k, v, inner))
    plain = not tape.of.fused or (tape.of.processor and (of.scores.softcap is not None or of.scores.sinks))
    pieces = tape.of.processor and (of.d_key != of.d_value or (bias and bias.grad) or tape.of.autocast)
    if not plain and not pieces:
        return in_one(of, q, k, v, bias, tape)
    inside = in_sight if plain else in_pieces
    if tape.of.recompute != "selective":
        return inside(of, q, k, v, bias, tape)
    seen = tape.once(("allowed", of.window, of.cross), lambda: tape.constant(n_mask(of, tape), FLAG))
    return tape.again([q, k, v, seen, *([bias] if bias else [])], lambda inner: inside(of, q, k, v, bias, inner))


MOST_POSITIONS = 512  # of rows that are attended to in steps


def in_steps(of: Heads, bias: Value | None, tape: Tape) -> bool:
    """Whether torch's products stand around one reading of the scores: plain causal rows that are not long."""
    plain = bias is None and of.scores.softcap is None and not of.scores.sinks and not of.cross
    wide = of.window is None or of.n_keys <= of.window
    return of.steps and tape.of.fused and plain and wide and 1 < tape.n_tokens <= MOST_POSITIONS


def by_steps(of: Heads, q: Value, k: Value, v: Value, tape: Tape) -> Value:
    """The weights are kept, in the queries' width, and what the products read: turned heads as they lie, others in
    their order."""
    learns = products(of, q, k, v, None, tape)
    if not (learns or v.grad):
        return Value(tape.rows * of.n * of.d_value, q.size, False)

    def lies(x: Value, n: int, apart: bool) -> Value:
        return x if not apart and 1 in (tape.of.batch_size, n, tape.n_tokens) else tape.new(x.n, x)

    if of.scores.rotary is None:
        q, k = lies(q, of.n, of.n != of.n_kv), lies(k, of.n_kv, False)
    weights = Value(tape.rows * of.n * of.n_keys, q.size, learns)
    tape.keep(q, k, lies(v, of.n_kv, False), weights)
    return Value(tape.rows * of.n * of.d_value, q.size, True)


def n_mask(of: Heads, tape: Tape) -> int:
    return of.n_keys * (1 if of.cross else tape.n_tokens)


def products(of: Heads, q: Value, k: Value, v: Value, bias: Value | None, tape: Tape) -> bool:
    """Counts both products; whether the weights between them have a gradient."""
    learns, each = (
        q.grad or k.grad or (bias is not None and bias.grad) or (of.scores.sinks and tape.trains),
        2 * tape.rows,
    )
    tape.product(each * of.n_keys * of.n * of.d_key, q.grad, k.grad)
    tape.product(each * of.n_keys * of.n * of.d_value, learns, v.grad)
    return learns


def in_one(of: Heads, q: Value, k: Value, v: Value, bias: Value | None, tape: Tape) -> Value:
    """A kernel that makes scores again in its backward pass: its inputs, its output, a sum for each query."""
    grows = products(of, q, k, v, bias, tape) or v.grad
    out = Value(tape.rows * of.n * of.d_value, q.size, grows)
    if not grows:
        return out
    tape.keep(q, k, v, out, tape.constant(tape.rows * of.n, max(SINGLE, q.size)))
    if bias and (bias.grad or tape.of.processor):
        tape.keep(tape.masked(bias, tape.constant(tape.n_tokens * of.n_keys, FLAG)))
    elif tape.of.processor and (of.cross or (of.window is not None and of.n_keys > of.window)):
        tape.keep(tape.constant(n_mask(of, tape), q.size))  # True and False as numbers to be added
    moved = of.head_first and of.n > 1 and tape.n_tokens > 1
    return tape.new(out.n, out) if moved else out


def in_pieces(of: Heads, q: Value, k: Value, v: Value, bias: Value | None, tape: Tape) -> Value:
    """torch's own product where no kernel fits: scaled copies, and one softmax; single precision for narrow numbers."""
    q, k, v = (tape.narrow(x) for x in (q, k, v))
    wide = q.size if tape.of.autocast else max(SINGLE, q.size)
    q_scaled = tape.new(q.n, q, size=wide)
    k_scaled = tape.new(of.n * of.d_key * tape.of.batch_size * of.n_keys, k, size=wide)
    if bias and not of.cross:
        bias = tape.masked(bias, tape.constant(tape.n_tokens * of.n_keys, FLAG))
    learns = products(of, q, k, v, bias, tape)
    weights = Value(tape.rows * of.n * of.n_keys, wide, learns)
    tape.keep(*([k_scaled] if q.grad else []), *([q_scaled] if k.grad else []))
    values = v if v.size == wide else tape.new(v.n, v, size=wide)
    values = as_product(of, values, of.n_kv, of.n_keys, tape)
    tape.keep(*([weights] if learns or v.grad else []), *([values] if learns else []))
    return Value(tape.rows * of.n * of.d_value, q.size, learns or v.grad)


def in_sight(of: Heads, q: Value, k: Value, v: Value, bias: Value | None, tape: Tape) -> Value:
    """The plain product: every step of the scores is a tensor."""

    def kv(x: Value) -> Value:
        return as_product(of, x, of.n_kv, of.n_keys, tape)

    q, k, v = (tape.narrow(x) for x in (q, k, v))
    closed = tape.constant(n_mask(of, tape), FLAG)
    learns = products(of, q, k, v, bias, tape)
    n_scores = tape.rows * of.n * of.n_keys
    keys, queries = (k, q) if of.head_first else (kv(k), as_product(of, q, of.n, tape.n_tokens, tape))
    tape.keep(*([keys] if q.grad else []), *([queries] if k.grad else []))
    scores = Value(n_scores, q.size, q.grad or k.grad)
    if of.scores.softcap is not None:
        scores = tape.shaped(scores, "tanh")
    if bias:
        scores = tape.new(n_scores, scores, bias)
    scores = tape.masked(scores, closed)
    if of.scores.sinks:
        scores = Value(n_scores + tape.rows * of.n, max(scores.size, tape.of.size), learns)
    weights = tape.narrow(tape.masked(tape.shaped(scores, "softmax").view(n_scores), closed))
    if v.grad:
        tape.keep(weights)
    if learns:
        tape.keep(kv(v))
    return Value(tape.rows * of.n * of.d_value, q.size, learns or v.grad)


def as_product(of: Heads, x: Value, n_heads: int, n_positions: int, tape: Tape) -> Value:
    """x as a product takes it: copied for every query head, or into its order; a view where it can be one."""
    as_it_is = n_heads == of.n and 1 in (tape.of.batch_size, of.n, n_positions)
    return x if as_it_is else tape.new(x.n * of.n // n_heads, x)

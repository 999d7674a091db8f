"""Floating-point operations of a forward pass. One rule for each part; a model's are its parts'.

Counted as torch's FlopCounterMode counts: matrix products and convolutions only, a multiply-add as 2. The reading is
the plain (eager) one: every query against every key, no causal or window discount, the head on all positions.
Lookups, norms, activations and softmax count 0.
"""

from __future__ import annotations

from functools import singledispatch

from plainformer import mixers
from plainformer import spec as s
from plainformer.records import dataclass, replace


@dataclass(frozen=True)
class Work:
    """What one pass is asked to do."""

    batch_size: int
    n_new: int  # positions computed in each row
    n_all: int  # positions that a query may see: the new ones and those kept from before
    n_source: int = 0  # positions that the encoder reads in each row

    @property
    def rows(self) -> int:
        return self.batch_size * self.n_new


@singledispatch
def flops(part: object, work: Work) -> int:
    """Operations of one part in one pass."""
    raise TypeError(f"no rule counts the operations of {type(part).__name__}")


@flops.register(type(None))
@flops.register(s.Norm)
@flops.register(s.Table)
@flops.register(mixers.Distances)
@flops.register(s.Sinusoid)
@flops.register(s.RelativeBias)
def _(part: s.Norm | s.Table | mixers.Distances | s.Sinusoid | s.RelativeBias | None, work: Work) -> int:
    return 0


@flops.register(s.Linear)
def _(part: s.Linear, work: Work) -> int:
    lora = part.lora.rank * (part.n_in + part.n_out) if part.lora else 0
    return 2 * work.rows * (part.n_in * part.n_out + lora)


@flops.register(s.NormedLinear)
def _(part: s.NormedLinear, work: Work) -> int:
    return flops(part.linear, work)


@flops.register(s.Bottleneck)
def _(part: s.Bottleneck, work: Work) -> int:
    return flops(part.down, work) + flops(part.up, work)


@flops.register(mixers.Convolution)
def _(part: mixers.Convolution, work: Work) -> int:
    return 2 * work.rows * part.channels * part.kernel


def scores_and_mix(work: Work, n_heads: int, d_key: int, d_value: int) -> int:
    """q.k for every pair, then the weighted values: 4 T S per head and dimension where both are d_head wide."""
    return 2 * work.rows * work.n_all * n_heads * (d_key + d_value)


@flops.register(s.Attention)
def _(part: s.Attention, work: Work) -> int:
    if part.cross:  # keys and values are the encoder's
        there = replace(work, n_new=work.n_source)
        seen = replace(work, n_all=work.n_source)
    else:
        there = seen = work
    projections = flops(part.q, work) + flops(part.k, there) + flops(part.v, there) + flops(part.out, work)
    return projections + scores_and_mix(seen, part.n_heads, part.d_head, part.d_head)


@flops.register(mixers.BorrowedAttention)
def _(part: mixers.BorrowedAttention, work: Work) -> int:
    return flops(part.q, work) + flops(part.out, work) + scores_and_mix(work, part.n_heads, part.d_head, part.d_head)


@flops.register(mixers.GatedAttention)
def _(part: mixers.GatedAttention, work: Work) -> int:
    return flops(part.attention, work) + flops(part.gate, work)


@flops.register(mixers.LatentAttention)
def _(part: mixers.LatentAttention, work: Work) -> int:
    """The latent expanded to keys and values, as in training; a decoder may absorb `kv_up` into its neighbours."""
    projections = sum(flops(inner, work) for inner in (part.q, part.kv_down, part.kv_up, part.out))
    return projections + scores_and_mix(work, part.n_heads, part.d_nope + part.d_rope, part.d_value)


@flops.register(mixers.Patches)
def _(part: mixers.Patches, work: Work) -> int:
    return flops(part.linear, work)


@flops.register(mixers.Sized)
def _(part: mixers.Sized, work: Work) -> int:
    return sum(flops(piece, work) for piece in part.pieces)


@flops.register(mixers.ShortConvolution)
def _(part: mixers.ShortConvolution, work: Work) -> int:
    return sum(flops(inner, work) for inner in (part.inner, part.convolution, part.out))


@flops.register(mixers.Mamba)
def _(part: mixers.Mamba, work: Work) -> int:
    """The recurrence a step at a time: write and read of a state of d_inner x d_state."""
    inside = (part.inner, part.convolution, part.select, part.step, part.out)
    return sum(flops(inner, work) for inner in inside) + 2 * 2 * work.rows * part.d_inner * part.d_state


@flops.register(mixers.Mamba2)
def _(part: mixers.Mamba2, work: Work) -> int:
    """The recurrence a step at a time: write and read of a state of d_head x d_state for each head."""
    projections = sum(flops(inner, work) for inner in (part.inner, part.convolution, part.out))
    return projections + 2 * 2 * work.rows * part.n_heads * part.d_head * part.d_state


@flops.register(mixers.DeltaNet)
def _(part: mixers.DeltaNet, work: Work) -> int:
    """The recurrence a step at a time: recall, write and read of a state of d_key x d_value for each value head."""
    inside = (part.qkv, part.gate, part.rates, part.convolution, part.out)
    projections = sum(flops(inner, work) for inner in inside)
    return projections + 3 * 2 * work.rows * part.n_value_heads * part.d_key * part.d_value


@flops.register(s.FeedForward)
def _(part: s.FeedForward, work: Work) -> int:
    return flops(part.up, work) + flops(part.gate, work) + flops(part.down, work)


@flops.register(s.Experts)
def _(part: s.Experts, work: Work) -> int:
    """Only the experts that a token meets, each on its own tokens."""
    chosen = part.router.n_chosen * flops(part.expert, work)
    return chosen + sum(flops(inner, work) for inner in (part.router.scores, part.shared, part.shared_gate))


@flops.register(s.Residual)
def _(part: s.Residual, work: Work) -> int:
    return sum(flops(inner, work) for _, inner in part.parts())


@flops.register(s.Stack)
def _(part: s.Stack, work: Work) -> int:
    alike = {id(layer): layer for layer in part.layers}  # a layer that stands in several places is read once
    each = {key: sum(flops(residual, work) for residual in layer) for key, layer in alike.items()}
    return sum(each[id(part.layers[i])] for i in part.passes or range(len(part.layers)))


@flops.register(s.Tokens)
def _(part: s.Tokens, work: Work) -> int:
    return flops(part.project, work)


@flops.register(s.Head)
def _(part: s.Head, work: Work) -> int:
    work = work if part.pool == "no" else replace(work, n_new=1)  # one answer a row
    return flops(part.transform, work) + flops(part.linear, work)


@flops.register(s.Tower)
def _(part: s.Tower, work: Work) -> int:
    """work.batch_size pictures, whatever the text is: the tower's own positions are its length, where it has some."""
    n = part.positions.n_rows if part.positions else work.n_new
    own = Work(work.batch_size, n, n)
    between = sum(flops(inner, own) for inner in part.connector)
    return flops(part.patches, own) + flops(part.stack, own) + between


@flops.register(s.Spec)
def _(part: s.Spec, work: Work) -> int:
    """Text alone: towers and second heads are asked by themselves; what else stands beside the stacks is not. An
    encoder reads n_source positions, or n_new where it is all."""
    beside = sum(flops(one, work) for one in part.towers if isinstance(one, mixers.Sized))
    if part.decoder is None or part.encoder is None:
        stacks = flops(part.main, work) + flops(part.embedding, work)
    else:
        source = Work(work.batch_size, work.n_source, work.n_source)
        stacks = sum(flops(inner, source) for inner in (part.embedding, part.encoder))
        stacks += sum(flops(inner, work) for inner in (part.embedding, part.decoder))
    return stacks + beside + flops(part.head, work)

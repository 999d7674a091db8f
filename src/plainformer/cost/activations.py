"""What a forward pass keeps for the backward one. One rule for each part.

Counted as torch keeps it without dropout: each product its input, once for those that share it; norms their input;
attention its queries, keys and values; activations their input. Numbers of the stream are 16 bits (2 bytes), those of
a loss 32. Only the experts that a token meets keep anything. Norms' means, masks and rotations' tables are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

from plainformer import mixers
from plainformer import spec as s
from plainformer.faults import refuse

STREAM = 2  # bytes of a number in mixed precision


@dataclass(frozen=True)
class Pass:
    batch_size: int
    seq_len: int
    n_source: int = 0
    fused: bool = True  # attention never writes its scores down; else it keeps their softmax
    recompute: str = "none"  # "selective": attention's scores are made again (Korthikanti et al. 2022, section 4)

    @property
    def rows(self) -> int:
        return self.batch_size * self.seq_len


@singledispatch
def kept(part: object, of: Pass) -> int:
    """Bytes that one part keeps."""
    raise refuse("activations", type(part).__name__, "no rule says what this part keeps for its backward pass")


@kept.register(type(None))
def _(part: None, of: Pass) -> int:
    return 0


@kept.register(s.Norm)
def _(part: s.Norm, of: Pass) -> int:
    return STREAM * of.rows * part.width


def width(part: object) -> int:
    """How many numbers a projection reads."""
    if isinstance(part, s.Linear):
        return part.n_in
    return width(part.linear) if isinstance(part, s.NormedLinear) else width(getattr(part, "down", part))


def within(part: object, of: Pass) -> int:
    """What a projection keeps besides its input: a narrower step, a norm's input, a correction's narrow middle."""
    if isinstance(part, s.Linear):
        return STREAM * of.rows * part.lora.rank if part.lora else 0
    if isinstance(part, s.NormedLinear):
        return within(part.linear, of) + STREAM * of.rows * part.linear.n_out
    if isinstance(part, s.Bottleneck):
        steps = within(part.down, of) + kept(part.norm, of) + within(part.up, of)
        return steps + STREAM * of.rows * part.up.n_in
    return 0


def scores(of: Pass, n_heads: int, n_keys: int) -> int:
    """The softmax of the scores, or only its sums where a fused kernel makes it again."""
    if of.fused:
        return 4 * of.rows * n_heads
    return 0 if of.recompute == "selective" else STREAM * of.rows * n_heads * n_keys


@kept.register(s.Attention)
def _(part: s.Attention, of: Pass) -> int:
    wide, narrow = part.n_heads * part.d_head, part.n_kv_heads * part.d_head
    keys = of.n_source if part.cross else of.seq_len
    there = of.batch_size * keys
    inputs = STREAM * of.rows * width(part.q) + (STREAM * there * width(part.k) if part.cross else 0)
    projections = within(part.q, of) + within(part.k, of) + within(part.v, of)
    triple = STREAM * (of.rows * wide + 2 * there * narrow)
    out = STREAM * of.rows * width(part.out) + within(part.out, of)
    return inputs + projections + triple + scores(of, part.n_heads, keys) + out


@kept.register(mixers.GatedAttention)
def _(part: mixers.GatedAttention, of: Pass) -> int:
    """The gate, its sigmoid and what it multiplies."""
    return kept(part.attention, of) + 3 * STREAM * of.rows * part.gate.n_out


@kept.register(mixers.LatentAttention)
def _(part: mixers.LatentAttention, of: Pass) -> int:
    """With the latent expanded, as in training."""
    d_key = part.d_nope + part.d_rope
    steps = within(part.q, of) + kept(part.kv_norm, of) + STREAM * of.rows * part.kv_up.n_in
    triple = STREAM * of.rows * part.n_heads * (2 * d_key + part.d_value)
    ends = STREAM * of.rows * (width(part.q) + width(part.out))
    return ends + steps + triple + scores(of, part.n_heads, of.seq_len)


@kept.register(s.FeedForward)
def _(part: s.FeedForward, of: Pass) -> int:
    """Ungated: what is activated, and that activated. Gated: gate and value, the gate activated, their product."""
    wide = 4 if part.gate else 2
    inner = sum(within(each, of) for each in (part.gate, part.up, part.down))
    return STREAM * of.rows * (part.up.n_in + wide * part.up.n_out) + inner


@kept.register(s.Experts)
def _(part: s.Experts, of: Pass) -> int:
    """Each chosen expert its own copy of the token and its weighted answer; the router its softmax in 32 bits."""
    chosen = part.router.n_chosen * (kept(part.expert, of) + STREAM * of.rows * part.expert.down.n_out)
    router = STREAM * of.rows * part.router.scores.n_in + 4 * of.rows * part.n_experts
    return chosen + router + kept(part.shared, of)


@kept.register(s.Residual)
def _(part: s.Residual, of: Pass) -> int:
    return sum(kept(inner, of) for _, inner in part.parts())


def layer(part: tuple[s.Residual, ...], of: Pass) -> int:
    return sum(kept(residual, of) for residual in part)


def stack(part: s.Stack | None, of: Pass, d_model: int) -> int:
    """All layers; with full recomputation each layer's input, and one layer at a time in whole."""
    if part is None:
        return 0
    each = [layer(one, of) for one in part.layers]
    ends = kept(part.norm_first, of) + kept(part.norm_last, of)
    passes = [each[i] for i in part.passes or range(len(each))]
    if of.recompute == "full":
        return ends + STREAM * of.rows * d_model * len(passes) + max(passes, default=0)
    return ends + sum(passes)


def activations(spec: s.Spec, of: Pass) -> int:
    """Bytes kept of one pass over the whole batch, without the head's logits. Text alone: a tower is frozen."""
    source = Pass(of.batch_size, of.n_source, of.n_source, of.fused, of.recompute)
    if spec.encoder is not None and spec.decoder is not None:
        stacks = stack(spec.encoder, source, spec.d_model) + stack(spec.decoder, of, spec.d_model)
    else:
        stacks = stack(spec.main, of, spec.d_model)
    narrow = STREAM * of.rows * spec.embedding.project.n_in if spec.embedding.project else 0
    head = spec.head
    if head is None:
        return stacks + narrow
    rows = of.rows if head.pool == "no" else of.batch_size
    transform = STREAM * rows * (head.transform.n_in + head.transform.n_out) if head.transform else 0
    norm = STREAM * rows * head.norm.width if head.norm else 0
    return stacks + narrow + transform + norm + STREAM * rows * head.linear.n_in


def logits(spec: s.Spec, of: Pass) -> int:
    """The scores in 16 bits, their logarithms in 32, and the gradient of these: 10 bytes a score."""
    if spec.head is None:
        return 0
    rows = of.rows if spec.head.pool == "no" else of.batch_size
    return (STREAM + 4 + 4) * rows * spec.head.linear.n_out

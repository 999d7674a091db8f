"""What a model keeps of each sequence while it writes. One rule for each part that keeps something."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch

from plainformer import mixers
from plainformer import spec as s
from plainformer.records import dataclass


@dataclass(frozen=True)
class Kept:
    """Numbers (not bytes) that one part keeps of one sequence."""

    per_token: int = 0
    window: int | None = None  # of how many tokens at most; None: all
    expanded: int = 0  # per token, if a latent were kept as the keys and values it stands for
    per_source_token: int = 0  # cross-attention: made once from what the encoder said
    fixed: int = 0  # whatever the context: the state of a recurrence

    def tokens(self, context: int) -> int:
        return context if self.window is None else min(context, self.window)


@singledispatch
def kept(part: object) -> Iterator[Kept]:
    """What one part keeps; most keep nothing."""
    yield from ()


@kept.register(s.Attention)
def _(part: s.Attention) -> Iterator[Kept]:
    both = 2 * part.n_kv_heads * part.d_head
    if part.cross:
        yield Kept(per_source_token=both)
    else:
        yield Kept(per_token=both, window=part.window, expanded=both)


@kept.register(mixers.GatedAttention)
def _(part: mixers.GatedAttention) -> Iterator[Kept]:
    yield from kept(part.attention)


@kept.register(mixers.Sized)
def _(part: mixers.Sized) -> Iterator[Kept]:
    for piece in part.pieces:
        yield from kept(piece)
    if part.keeps:
        yield Kept(per_token=part.keeps, expanded=part.keeps)


@kept.register(mixers.LatentAttention)
def _(part: mixers.LatentAttention) -> Iterator[Kept]:
    expanded = part.n_heads * (part.d_nope + part.d_rope + part.d_value)
    yield Kept(per_token=part.kv_norm.width + part.d_rope, expanded=expanded)


@kept.register(mixers.ShortConvolution)
def _(part: mixers.ShortConvolution) -> Iterator[Kept]:
    yield Kept(fixed=part.convolution.channels * part.convolution.kernel)


@kept.register(mixers.Mamba)
def _(part: mixers.Mamba) -> Iterator[Kept]:
    yield Kept(fixed=part.d_inner * part.d_state + part.convolution.channels * part.convolution.kernel)


@kept.register(mixers.Mamba2)
def _(part: mixers.Mamba2) -> Iterator[Kept]:
    state = part.n_heads * part.d_head * part.d_state
    yield Kept(fixed=state + part.convolution.channels * part.convolution.kernel)


@kept.register(mixers.DeltaNet)
def _(part: mixers.DeltaNet) -> Iterator[Kept]:
    state = part.n_value_heads * part.d_key * part.d_value
    yield Kept(fixed=state + part.convolution.channels * part.convolution.kernel)


@kept.register(s.Residual)
def _(part: s.Residual) -> Iterator[Kept]:
    for _, inner in part.parts():
        yield from kept(inner)


@kept.register(s.Stack)
def _(part: s.Stack) -> Iterator[Kept]:
    """A stack that is not causal writes nothing, so keeps nothing. Each pass over shared weights keeps its own."""
    if part.causal:
        alike = {id(layer): layer for layer in part.layers}  # a layer that stands in several places is read once
        made = {key: [one for residual in layer for one in kept(residual)] for key, layer in alike.items()}
        for i in part.passes or range(len(part.layers)):
            yield from made[id(part.layers[i])]


@kept.register(s.Spec)
def _(part: s.Spec) -> Iterator[Kept]:
    yield from kept(part.decoder)


@dataclass(frozen=True)
class Cache:
    """The cache of a spec in numbers: an account of one sequence, asked in bytes by a batch and a context."""

    parts: tuple[Kept, ...]

    @classmethod
    def of(cls, spec: s.Spec) -> Cache:
        return cls(tuple(kept(spec)))

    @property
    def per_token(self) -> int:
        """Growth with each token while the context is inside every window."""
        return sum(part.per_token for part in self.parts)

    @property
    def per_token_beyond_windows(self) -> int:
        """Growth with each token once every window is full."""
        return sum(part.per_token for part in self.parts if part.window is None)

    @property
    def per_source_token(self) -> int:
        return sum(part.per_source_token for part in self.parts)

    @property
    def fixed(self) -> int:
        return sum(part.fixed for part in self.parts)

    @property
    def windows(self) -> tuple[int, ...]:
        return tuple(sorted({part.window for part in self.parts if part.window is not None}))

    def numbers(self, context: int) -> int:
        """Kept of one sequence of `context` tokens, windows held to; without fixed states and what the encoder said."""
        return sum(part.per_token * part.tokens(context) for part in self.parts)

    def numbers_expanded(self, context: int) -> int:
        """The same if every latent were kept as the keys and values it stands for."""
        return sum(part.expanded * part.tokens(context) for part in self.parts)

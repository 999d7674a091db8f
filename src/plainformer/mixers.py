"""What may stand in attention's place: latent attention, which runs, and mixers that are sized and not yet run. Beside
them what else is sized alone: distances that keys are held against, pieces of pictures."""

from __future__ import annotations

from typing import Literal, TypeAlias

from plainformer.records import dataclass
from plainformer.spec import Attention, Experts, FeedForward, Linear, Norm, Projection, Scores, Table


@dataclass(frozen=True, kw_only=True)
class GatedAttention:
    """Each head's output times sigmoid of a projection of the input, before `out` (Qwen3-Next)."""

    attention: Attention
    gate: Linear


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Keys and values from one small latent row a token (DeepSeek-V2, section 2.1)."""

    n_heads: int
    d_nope: int  # of each head, what is not turned
    d_rope: int  # of each head, what is turned; its key is shared by all heads
    d_value: int
    q: Projection
    kv_down: Linear  # to the latent and the turned key
    kv_norm: Norm
    kv_up: Linear  # to d_nope and d_value for each head
    out: Linear
    scores: Scores


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A causal convolution along the tokens, each channel alone."""

    channels: int
    kernel: int
    bias: bool = False


@dataclass(frozen=True, kw_only=True)
class ShortConvolution:
    """Two gates around a short convolution along the tokens (LFM2)."""

    inner: Linear  # to both gates and the values
    convolution: Convolution
    out: Linear


@dataclass(frozen=True, kw_only=True)
class Mamba:
    """A selective state-space mixer (Gu and Dao 2023, section 3): decays of each channel and state."""

    d_inner: int
    d_state: int
    inner: Linear  # to values and gate
    convolution: Convolution
    select: Linear  # to the step's low rank, B and C
    step: Linear
    out: Linear
    norms: tuple[Norm, Norm, Norm] | None = None  # of the step's low rank, B and C (Jamba)


@dataclass(frozen=True, kw_only=True)
class Mamba2:
    """A state-space mixer (Dao and Gu 2024): one decay, step bias and skip a head."""

    n_heads: int
    d_head: int
    d_state: int
    n_groups: int
    inner: Linear  # to gate, values, B and C of each group, step of each head
    convolution: Convolution
    norm: Norm | None
    out: Linear


@dataclass(frozen=True, kw_only=True)
class DeltaNet:
    """A gated linear-attention mixer (Yang et al. 2024): one decay and step bias a value head."""

    n_key_heads: int
    n_value_heads: int
    d_key: int
    d_value: int
    qkv: Linear
    gate: Linear
    rates: Linear  # write strength and decay of each value head
    convolution: Convolution
    norm: Norm
    out: Linear


@dataclass(frozen=True, kw_only=True)
class Distances:
    """One learned row for each distance of two tokens; each layer's queries and keys are held against them too, by the
    layer's own projections (He et al. 2021, DeBERTa, section 3.1)."""

    table: Table
    norm: Norm | None = None

    @property
    def width(self) -> int:
        return self.table.width


@dataclass(frozen=True, kw_only=True)
class Patches:
    """Rows from the pieces of a picture; the rows of the token table stand before them (Dosovitskiy et al. 2021)."""

    linear: Linear

    @property
    def n_in(self) -> int:
        """What the table before them must be wide: they are as wide already."""
        return self.linear.n_out

    @property
    def n_out(self) -> int:
        return self.linear.n_out


Piece: TypeAlias = "Attention | LatentAttention | FeedForward | Experts | Linear | Norm | Table | Convolution"


@dataclass(frozen=True, kw_only=True)
class Sized:
    """Pieces that together make a part, in an order that nothing here says: norms inside attention (BitNet), learned
    numbers of an activation (Apertus), a second set of projections (Longformer). A Table is numbers that multiply
    nothing."""

    width: int
    kind: Literal[
        "attention", "feed_forward", "mixer", "embedding", "position"
    ]  # of pieces without a kind of their own
    pieces: tuple[Piece, ...]
    keeps: int = 0  # numbers of each token, beside what its pieces keep


@dataclass(frozen=True, kw_only=True)
class BorrowedAttention:
    """Queries of its own on the keys and values of an earlier layer, so that it keeps none (Gemma 3n)."""

    n_heads: int
    d_head: int
    q: Projection
    out: Linear
    scores: Scores
    window: int | None = None

"""What may stand in attention's place and keeps less than all keys and values. Sized today; not yet run."""

from __future__ import annotations

from dataclasses import dataclass

from plainformer.spec import Attention, Linear, Norm, Projection, Scores


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
class Mamba2:
    """A state-space mixer (Dao and Gu 2024): one decay, step bias and skip a head."""

    n_heads: int
    d_head: int
    d_state: int
    n_groups: int
    inner: Linear  # to gate, values, B and C of each group, step of each head
    convolution: Convolution
    norm: Norm
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

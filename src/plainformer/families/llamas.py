"""Decoders with RMSNorm, rotary positions and a gated feed-forward: Llama, Mistral, Qwen2, Qwen3, OLMo 2."""

from __future__ import annotations

from plainformer.families.parts import (
    Windows,
    attention,
    by_window,
    decoder,
    dot,
    feed_forward,
    pre_norm_layer,
    rms_norm,
    sublayer,
    turned_width,
)
from plainformer.spec import Activation, Residual, Rotary, Scaling, Spec


def llama(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_ff: int,
    theta: float = 10000.0,
    scaling: Scaling | None = None,
    windows: Windows | None = None,
    activation: Activation = "silu",
    eps: float = 1e-6,
    tied: bool = False,
    qkv_bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
) -> Spec:
    """Touvron et al. 2023, section 2.2. With windows: Mistral. With qkv_bias: Qwen2. With qk_norm: Qwen3.

    windows: for each layer how many keys a query sees, None all; unsaid, every layer sees all.
    """
    head_norm = rms_norm(d_head, eps) if qk_norm else None
    second = feed_forward(d_model, d_ff, activation, gated=True, bias=mlp_bias)
    rotary = Rotary(theta=theta, n_dims=d_head, scaling=scaling)

    def layer(window: int | None) -> tuple[Residual, ...]:
        part = attention(
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            scores=dot(d_head, rotary),
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            q_norm=head_norm,
            k_norm=head_norm,
            window=window,
        )
        return pre_norm_layer(part, second, rms_norm(d_model, eps))

    return decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=by_window(windows or (None,) * n_layers, layer),
        norm_last=rms_norm(d_model, eps),
        tied=tied,
    )


def small(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int | None = None,
    d_ff: int | None = None,
    theta: float = 10000.0,
    tied: bool = True,
) -> Spec:
    """Qwen3's layout at a size to train: what is not said follows from d_model.

    n_kv_heads: as many as n_heads; d_ff: 8/3 of d_model, as SwiGLU's third matrix asks (Shazeer 2020), up to a
    multiple of 16.
    """
    return llama(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads or n_heads,
        d_head=turned_width(d_model, n_heads),
        d_ff=d_ff or -(-8 * d_model // 48) * 16,
        theta=theta,
        tied=tied,
        qk_norm=True,
    )


def olmo2(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_ff: int,
    theta: float = 500000.0,
    scaling: Scaling | None = None,
    windows: Windows | None = None,
    activation: Activation = "silu",
    eps: float = 1e-6,
    tied: bool = False,
    bias: bool = False,
) -> Spec:
    """OLMo et al. 2025, section 3: norms after the parts, and over all queries and all keys of a token.

    With windows: OLMo 3, whose windowed layers turn by the unscaled frequencies.
    """
    second = feed_forward(d_model, d_ff, activation, gated=True)

    def layer(window: int | None) -> tuple[Residual, ...]:
        rotary = Rotary(theta=theta, n_dims=d_head, scaling=None if window else scaling)
        part = attention(
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            scores=dot(d_head, rotary),
            qkv_bias=bias,
            out_bias=bias,
            q_norm=rms_norm(n_heads * d_head, eps),
            k_norm=rms_norm(n_kv_heads * d_head, eps),
            window=window,
        )
        norm = rms_norm(d_model, eps)
        return sublayer("attention", part, norm_out=norm), sublayer("feed_forward", second, norm_out=norm)

    return decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=by_window(windows or (None,) * n_layers, layer),
        norm_last=rms_norm(d_model, eps),
        tied=tied,
    )

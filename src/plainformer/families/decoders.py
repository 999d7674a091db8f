"""Decoders with LayerNorm: GPT-2 and what came of it, OPT, GPT-NeoX."""

from __future__ import annotations

from plainformer.families.parts import (
    attention,
    decoder,
    dot,
    feed_forward,
    head_width,
    layer_norm,
    linear,
    pre_norm_layer,
    sublayer,
)
from plainformer.records import replace
from plainformer.spec import Activation, Branch, Head, Residual, Rotary, Scaling, Spec, Table, Tokens


def gpt2(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    d_ff: int | None = None,
    activation: Activation = "gelu_tanh",
    eps: float = 1e-5,
    tied: bool = True,
    qkv_bias: bool = True,
    out_bias: bool = True,
    mlp_bias: bool = True,
    norm_bias: bool = True,
) -> Spec:
    """Radford et al. 2019, section 2.3: pre-norm, learned positions, a tied head. d_ff: 4 * d_model unless said.

    No bias anywhere: nanoGPT with bias=False. No attention biases: the lesson's. tied=False: the course's layout.
    """
    d_head = head_width(d_model, n_heads)
    part = attention(
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_head,
        scores=dot(d_head),
        qkv_bias=qkv_bias,
        out_bias=out_bias,
    )
    norm = layer_norm(d_model, eps, norm_bias)
    second = feed_forward(d_model, d_ff or 4 * d_model, activation, bias=mlp_bias)
    return decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=(pre_norm_layer(part, second, norm),) * n_layers,
        norm_last=norm,
        tied=tied,
        positions=Table(n_rows=max_seq_len, width=d_model),
    )


def opt(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    d_ff: int,
    d_embed: int,
    activation: Activation = "relu",
    tied: bool = True,
    pre_norm: bool = True,
    norm_last: bool = True,
    bias: bool = True,
    norm_gain: bool = True,
) -> Spec:
    """Zhang et al. 2022. Positions start at row 2; OPT-350m has a narrow token table (d_embed) and post-norm."""
    d_head = head_width(d_model, n_heads)
    norm = layer_norm(d_model, 1e-5, bias=norm_gain)
    norm = replace(norm, gain=norm_gain)
    part = attention(
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_head,
        scores=dot(d_head),
        qkv_bias=bias,
        out_bias=bias,
    )
    second = feed_forward(d_model, d_ff, activation, bias=bias)
    if pre_norm:
        layer = pre_norm_layer(part, second, norm)
    else:
        layer = sublayer("attention", part, norm_sum=norm), sublayer("feed_forward", second, norm_sum=norm)
    whole = decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=(layer,) * n_layers,
        norm_last=norm if pre_norm and norm_last else None,
        tied=tied and d_embed == d_model,
        positions=Table(n_rows=max_seq_len + 2, width=d_model, offset=2),
    )
    if d_embed == d_model:
        return whole
    return replace(
        whole,
        embedding=Tokens(table=Table(n_rows=vocab_size, width=d_embed), project=linear(d_embed, d_model)),
        head=Head(linear=linear(d_embed, vocab_size), tied=tied, transform=linear(d_model, d_embed)),
    )


def gpt_neox(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    d_ff: int,
    rotary_share: float = 0.25,
    theta: float = 10000.0,
    scaling: Scaling | None = None,
    activation: Activation = "gelu",
    eps: float = 1e-5,
    tied: bool = False,
    parallel: bool = True,
    attention_bias: bool = True,
) -> Spec:
    """Black et al. 2022, section 2: attention and feed-forward side by side, a quarter of each head turned."""
    d_head = head_width(d_model, n_heads)
    norm = layer_norm(d_model, eps)
    part = attention(
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_head,
        scores=dot(d_head, Rotary(theta=theta, n_dims=int(d_head * rotary_share), scaling=scaling)),
        qkv_bias=attention_bias,
        out_bias=attention_bias,
    )
    second = feed_forward(d_model, d_ff, activation, bias=True)
    branches = (
        Branch(name="attention", part=part, norm_in=norm),
        Branch(name="feed_forward", part=second, norm_in=norm),
    )
    layer = (Residual(branches=branches),) if parallel else pre_norm_layer(part, second, norm)
    return decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=(layer,) * n_layers,
        norm_last=norm,
        tied=tied,
    )

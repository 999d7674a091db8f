"""Families that each vary one thing: BLOOM's positions, Qwen2-MoE's shared expert, ModernBERT's modern encoder."""

from __future__ import annotations

from collections.abc import Sequence

from plainformer.families.llamas import llama
from plainformer.families.mixtures import with_experts
from plainformer.families.parts import (
    Layer,
    Windows,
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
from plainformer.spec import (
    Activation,
    Experts,
    Head,
    Rotary,
    Scaling,
    Scores,
    SoftmaxRouter,
    Spec,
    Stack,
    Table,
    Tokens,
)


def bloom(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    eps: float = 1e-5,
    tied: bool = True,
) -> Spec:
    """BigScience 2022 (BLOOM, section 3.2): ALiBi instead of positions, a norm on the embedded tokens."""
    norm, d_head = layer_norm(d_model, eps), head_width(d_model, n_heads)
    part = attention(
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_head,
        scores=Scores(scale=d_head**-0.5, alibi=True),
        qkv_bias=True,
        out_bias=True,
    )
    second = feed_forward(d_model, 4 * d_model, "gelu_tanh", bias=True)
    whole = decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=(pre_norm_layer(part, second, norm),) * n_layers,
        norm_last=norm,
        tied=tied,
    )
    assert whole.decoder is not None
    return replace(whole, decoder=replace(whole.decoder, norm_first=norm))


def qwen2_moe(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_ff: int,
    sparse: Sequence[bool],
    n_experts: int,
    n_chosen: int,
    d_expert: int,
    d_shared: int,
    normalised: bool,
    theta: float = 10000.0,
    scaling: Scaling | None = None,
    windows: Windows | None = None,
    activation: Activation = "silu",
    eps: float = 1e-6,
    tied: bool = False,
    qkv_bias: bool = True,
    balance: float = 0.0,
) -> Spec:
    """Qwen team 2024 (Qwen1.5-MoE): Qwen2 with small experts in the layers that `sparse` names, and one more expert,
    d_shared wide, that every token meets through a gate of its own."""
    experts = Experts(
        router=SoftmaxRouter(scores=linear(d_model, n_experts), n_chosen=n_chosen, normalised=normalised),
        expert=feed_forward(d_model, d_expert, activation, gated=True),
        n_experts=n_experts,
        shared=feed_forward(d_model, d_shared, activation, gated=True),
        shared_gate=linear(d_model, 1),
        balance=balance,
    )
    dense = llama(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        n_layers=len(sparse),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        d_ff=d_ff,
        theta=theta,
        scaling=scaling,
        windows=windows,
        activation=activation,
        eps=eps,
        tied=tied,
        qkv_bias=qkv_bias,
    )
    return with_experts(dense, experts, sparse)


def modernbert(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_heads: int,
    d_ff: int,
    windows: Windows,
    rotary: Rotary,
    rotary_in_window: Rotary,
    activation: Activation = "gelu",
    head_activation: Activation = "gelu",
    eps: float = 1e-5,
    norm_bias: bool = False,
    attention_bias: bool = False,
    mlp_bias: bool = False,
    transform_bias: bool = False,
    head_bias: bool = True,
    tied: bool = True,
    head: bool = True,
) -> Spec:
    """Warner et al. 2024, section 2.1: a pre-norm encoder with rotary positions, a gated feed-forward and windows.

    windows: for each layer how far a token sees to either side, itself included; None all. The first layer has no norm
    before attention: the norm on the embedded tokens stands there.
    """
    norm, d_head = layer_norm(d_model, eps, norm_bias), head_width(d_model, n_heads)
    second = sublayer("feed_forward", feed_forward(d_model, d_ff, activation, gated=True, bias=mlp_bias), norm_in=norm)

    def layer(first: bool, window: int | None) -> Layer:
        part = attention(
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_heads,
            d_head=d_head,
            scores=dot(d_head, rotary if window is None else rotary_in_window),
            qkv_bias=attention_bias,
            out_bias=attention_bias,
            window=window,
        )
        return sublayer("attention", part, norm_in=None if first else norm), second

    made = {(first, window): layer(first, window) for first in (True, False) for window in set(windows)}
    masked = Head(
        linear=linear(d_model, vocab_size, head_bias),
        tied=tied,
        transform=linear(d_model, d_model, transform_bias),
        activation=head_activation,
        norm=norm,
    )
    return Spec(
        embedding=Tokens(table=Table(n_rows=vocab_size, width=d_model)),
        encoder=Stack(
            layers=tuple(made[i == 0, window] for i, window in enumerate(windows)),
            causal=False,
            norm_first=norm,
            norm_last=norm,
        ),
        head=masked if head else None,
        max_seq_len=max_seq_len,
    )

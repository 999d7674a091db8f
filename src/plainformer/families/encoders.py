"""Encoders: BERT and ALBERT. Post-norm, every token sees every other."""

from __future__ import annotations

from typing import Literal

from plainformer.families.parts import Layer, attention, dot, feed_forward, head_width, layer_norm, linear, sublayer
from plainformer.spec import Activation, Head, Norm, Spec, Stack, Table, Tokens


def post_norm_layer(d_model: int, n_heads: int, d_ff: int, activation: Activation, norm: Norm) -> Layer:
    d_head = head_width(d_model, n_heads)
    part = attention(
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_head,
        scores=dot(d_head),
        qkv_bias=True,
        out_bias=True,
    )
    second = feed_forward(d_model, d_ff, activation, bias=True)
    return sublayer("attention", part, norm_sum=norm), sublayer("feed_forward", second, norm_sum=norm)


def masked_head(d_model: int, d_embed: int, vocab_size: int, activation: Activation, eps: float, tied: bool) -> Head:
    """A dense step to the token table's width, activation, norm, then the table turned (Devlin et al. 2019)."""
    return Head(
        linear=linear(d_embed, vocab_size, bias=True),
        tied=tied,
        transform=linear(d_model, d_embed, bias=True),
        activation=activation,
        norm=layer_norm(d_embed, eps),
    )


def pooler(d_model: int) -> Head:
    """The dense step of a base class, from a row's first token, through tanh (which is a softcap at 1)."""
    return Head(linear=linear(d_model, d_model, bias=True), tied=False, pool="first", softcap=1.0)


def bert(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    d_ff: int,
    n_types: int = 2,
    activation: Activation = "gelu",
    eps: float = 1e-12,
    tied: bool = True,
    head: Literal["masked", "pooler"] | None = "masked",
) -> Spec:
    """Devlin et al. 2019, section 3, with the head it was trained with, a base class's pooler, or neither."""
    norm = layer_norm(d_model, eps)
    heads = {
        "masked": masked_head(d_model, d_model, vocab_size, activation, eps, tied),
        "pooler": pooler(d_model),
    }
    return Spec(
        embedding=Tokens(
            table=Table(n_rows=vocab_size, width=d_model),
            types=Table(n_rows=n_types, width=d_model),
        ),
        encoder=Stack(
            layers=(post_norm_layer(d_model, n_heads, d_ff, activation, norm),) * n_layers,
            causal=False,
            positions=Table(n_rows=max_seq_len, width=d_model),
            norm_first=norm,
        ),
        head=heads[head] if head else None,
        max_seq_len=max_seq_len,
    )


def albert(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    d_embed: int,
    n_layers: int,
    n_heads: int,
    d_ff: int,
    n_groups: int = 1,
    n_inner: int = 1,
    n_types: int = 2,
    activation: Activation = "gelu_tanh",
    eps: float = 1e-12,
    tied: bool = True,
    head: Literal["masked", "pooler"] | None = "masked",
) -> Spec:
    """Lan et al. 2020, section 3.1: a narrow token table, and n_layers passes through n_groups * n_inner layers."""
    norm = layer_norm(d_model, eps)
    layer = post_norm_layer(d_model, n_heads, d_ff, activation, norm)
    groups = [pass_ * n_groups // n_layers for pass_ in range(n_layers)]
    heads = {
        "masked": masked_head(d_model, d_embed, vocab_size, activation, eps, tied),
        "pooler": pooler(d_model),
    }
    return Spec(
        embedding=Tokens(
            table=Table(n_rows=vocab_size, width=d_embed),
            types=Table(n_rows=n_types, width=d_embed),
            positions=Table(n_rows=max_seq_len, width=d_embed),
            norm=layer_norm(d_embed, eps),
            project=linear(d_embed, d_model, bias=True),
        ),
        encoder=Stack(
            layers=(layer,) * (n_groups * n_inner),
            causal=False,
            passes=tuple(group * n_inner + i for group in groups for i in range(n_inner)),
        ),
        head=heads[head] if head else None,
        max_seq_len=max_seq_len,
    )

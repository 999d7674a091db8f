"""Stacks for pictures: patches in, rows of a decoder's stream out."""

from __future__ import annotations

from plainformer.families.parts import (
    attention,
    dot,
    feed_forward,
    head_width,
    layer_norm,
    linear,
    pre_norm_layer,
    rms_norm,
    sublayer,
)
from plainformer.mixers import Sized
from plainformer.records import replace
from plainformer.spec import Activation, Linear, Norm, NormedLinear, Scores, Stack, Table, Tower

Connector = tuple[Norm | Linear | Sized, ...]


def vision_transformer(
    *,
    d_model: int,
    n_layers: int,
    n_heads: int,
    d_ff: int,
    d_patch: int,
    n_positions: int | None,
    connector: Connector,
    norm_last: bool,
    norm_first: bool = False,
    activation: Activation = "gelu_tanh",
    eps: float = 1e-6,
    patch_bias: bool = True,
    rms: bool = False,
    gated: bool = False,
) -> Tower:
    """Dosovitskiy et al. 2021, section 3.1, without the class token (SigLIP, Qwen). d_patch: numbers in one patch;
    n_positions: None where patches are turned; rms, gated: as in the text's layers (Qwen2.5-VL)."""
    d_head = head_width(d_model, n_heads)
    norm = rms_norm(d_model, eps) if rms else layer_norm(d_model, eps)
    part = attention(
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=d_head,
        scores=dot(d_head),
        qkv_bias=True,
        out_bias=True,
    )
    layer = pre_norm_layer(part, feed_forward(d_model, d_ff, activation, gated=gated, bias=True), norm)
    first, last = norm if norm_first else None, norm if norm_last else None
    return Tower(
        patches=linear(d_patch, d_model, bias=patch_bias),
        positions=None if n_positions is None else Table(n_rows=n_positions, width=d_model),
        stack=Stack(layers=(layer,) * n_layers, causal=False, norm_first=first, norm_last=last),
        connector=connector,
    )


def pooling_head(d_model: int, n_heads: int, d_ff: int, activation: Activation, eps: float) -> Sized:
    """One learned row that reads all patches, then a feed-forward (SigLIP; Zhai et al. 2022, section 3.4)."""
    part = attention(
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_heads,
        d_head=head_width(d_model, n_heads),
        scores=dot(head_width(d_model, n_heads)),
        qkv_bias=True,
        out_bias=True,
    )
    second = feed_forward(d_model, d_ff, activation, bias=True)
    row = Table(n_rows=1, width=d_model)
    return Sized(width=d_model, kind="attention", pieces=(row, part, layer_norm(d_model, eps), second))


def gemma4_vision(
    *,
    d_model: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_ff: int,
    d_patch: int,
    n_positions: int,
    d_out: int,
    activation: Activation = "gelu_tanh",
    eps: float = 1e-6,
    attention_bias: bool = False,
) -> Tower:
    """Gemma 4's encoder of pictures: the text layers' parts, n_positions rows for each of two axes."""
    norm = rms_norm(d_model, eps)
    part = attention(
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        scores=Scores(scale=1.0),
        qkv_bias=attention_bias,
        out_bias=attention_bias,
        q_norm=rms_norm(d_head, eps),
        k_norm=rms_norm(d_head, eps),
    )
    bare = replace(rms_norm(d_head, eps), gain=False)
    part = replace(part, v=NormedLinear(linear=linear(d_model, n_kv_heads * d_head, attention_bias), norm=bare))
    layer = (
        sublayer("attention", part, norm_in=norm, norm_out=norm),
        sublayer("feed_forward", feed_forward(d_model, d_ff, activation, gated=True), norm_in=norm, norm_out=norm),
    )
    return Tower(
        patches=linear(d_patch, d_model),
        positions=Table(n_rows=2 * n_positions, width=d_model),
        stack=Stack(layers=(layer,) * n_layers, causal=False),
        connector=(replace(norm, gain=False), linear(d_model, d_out)),
    )

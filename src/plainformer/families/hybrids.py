"""Stacks in which only some layers attend: Nemotron-H (Mamba-2) and Qwen3.5 (gated delta rule)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from plainformer.families.parts import (
    attention,
    decoder,
    dot,
    feed_forward,
    linear,
    rms_norm,
    sublayer,
)
from plainformer.mixers import Convolution, DeltaNet, GatedAttention, Mamba2
from plainformer.spec import (
    Activation,
    Experts,
    Part,
    Rotary,
    SoftmaxRouter,
    Spec,
    Tower,
)


def mamba2(
    *,
    d_model: int,
    n_heads: int,
    d_head: int,
    d_state: int,
    n_groups: int,
    kernel: int,
    eps: float,
    bias: bool = False,
    convolution_bias: bool = True,
) -> Mamba2:
    """Dao and Gu 2024, section 7.1: gate, values, B and C, steps, all from one projection."""
    d_inner = n_heads * d_head
    channels = d_inner + 2 * n_groups * d_state
    return Mamba2(
        n_heads=n_heads,
        d_head=d_head,
        d_state=d_state,
        n_groups=n_groups,
        inner=linear(d_model, d_inner + channels + n_heads, bias),
        convolution=Convolution(channels=channels, kernel=kernel, bias=convolution_bias),
        norm=rms_norm(d_inner, eps),
        out=linear(d_inner, d_model, bias),
    )


def nemotron_h(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    pattern: str,
    parts: Mapping[str, Part],
    eps: float = 1e-5,
    tied: bool = False,
) -> Spec:
    """NVIDIA 2025 (Nemotron-H, section 2.1): each layer is one part after one norm; attention knows no positions.

    pattern: a letter a layer, M mixer, * attention, - feed-forward, E experts; parts: what each letter stands for.
    """
    norm = rms_norm(d_model, eps)
    names = {"M": "mixer", "*": "attention", "-": "feed_forward", "E": "feed_forward"}
    layers = {letter: (sublayer(names[letter], part, norm_in=norm),) for letter, part in parts.items()}
    return decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=tuple(layers[letter] for letter in pattern),
        norm_last=norm,
        tied=tied,
    )


def delta_net(
    *,
    d_model: int,
    n_key_heads: int,
    n_value_heads: int,
    d_key: int,
    d_value: int,
    kernel: int,
    eps: float,
) -> DeltaNet:
    """Yang et al. 2025 (Gated DeltaNet), as in Qwen3-Next."""
    d_keys, d_values = n_key_heads * d_key, n_value_heads * d_value
    return DeltaNet(
        n_key_heads=n_key_heads,
        n_value_heads=n_value_heads,
        d_key=d_key,
        d_value=d_value,
        qkv=linear(d_model, 2 * d_keys + d_values),
        gate=linear(d_model, d_values),
        rates=linear(d_model, 2 * n_value_heads),
        convolution=Convolution(channels=2 * d_keys + d_values, kernel=kernel),
        norm=rms_norm(d_value, eps),
        out=linear(d_values, d_model),
    )


def qwen3_5(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    mixer: DeltaNet,
    attends: Sequence[bool],
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    rotary: Rotary,
    n_experts: int,
    n_chosen: int,
    d_expert: int,
    d_shared: int,
    activation: Activation = "silu",
    eps: float = 1e-6,
    tied: bool = False,
    attention_bias: bool = False,
    towers: tuple[Tower, ...] = (),
) -> Spec:
    """Qwen team 2026 (Qwen3.5): gated attention in the layers that attend, `mixer` in the others, experts in all."""
    norm, head_norm = rms_norm(d_model, eps, plus_one=True), rms_norm(d_head, eps, plus_one=True)
    inner = attention(
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        scores=dot(d_head, rotary),
        qkv_bias=attention_bias,
        out_bias=attention_bias,
        q_norm=head_norm,
        k_norm=head_norm,
    )
    gated = GatedAttention(attention=inner, gate=linear(d_model, n_heads * d_head, attention_bias))
    experts = Experts(
        router=SoftmaxRouter(scores=linear(d_model, n_experts), n_chosen=n_chosen, normalised=True),
        expert=feed_forward(d_model, d_expert, activation, gated=True),
        n_experts=n_experts,
        shared=feed_forward(d_model, d_shared, activation, gated=True),
        shared_gate=linear(d_model, 1),
    )
    second = sublayer("feed_forward", experts, norm_in=norm)
    full = sublayer("attention", gated, norm_in=norm), second
    other = sublayer("mixer", mixer, norm_in=norm), second
    spec = decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=tuple(full if attend else other for attend in attends),
        norm_last=norm,
        tied=tied,
    )
    return replace(spec, towers=towers)

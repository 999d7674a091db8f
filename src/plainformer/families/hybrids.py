"""Stacks in which only some layers attend: Nemotron-H (Mamba-2) and Qwen3.5 (gated delta rule)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plainformer.families.parts import (
    attention,
    decoder,
    dot,
    linear,
    rms_norm,
    sublayer,
)
from plainformer.mixers import Convolution, DeltaNet, GatedAttention, Mamba, Mamba2
from plainformer.records import replace
from plainformer.spec import Experts, FeedForward, Part, Rotary, Spec, Tower


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
    out_bias: bool | None = None,
    convolution_bias: bool = True,
    normed: bool = True,
) -> Mamba2:
    """Dao and Gu 2024, section 7.1: gate, values, B and C, steps, all from one projection. out_bias: as bias unless
    said; normed: what the gate has let through (Falcon-H1 may leave it out)."""
    d_inner = n_heads * d_head
    channels = d_inner + 2 * n_groups * d_state
    return Mamba2(
        n_heads=n_heads,
        d_head=d_head,
        d_state=d_state,
        n_groups=n_groups,
        inner=linear(d_model, d_inner + channels + n_heads, bias),
        convolution=Convolution(channels=channels, kernel=kernel, bias=convolution_bias),
        norm=rms_norm(d_inner, eps) if normed else None,
        out=linear(d_inner, d_model, bias if out_bias is None else out_bias),
    )


def mamba(
    *,
    d_model: int,
    d_inner: int,
    d_state: int,
    kernel: int,
    step_rank: int,
    eps: float | None = None,
    bias: bool = False,
    convolution_bias: bool = True,
) -> Mamba:
    """Gu and Dao 2023, section 3.4. eps: of norms on the step's low rank, B and C, which Jamba adds; None: no norms."""
    norms = None if eps is None else (rms_norm(step_rank, eps), rms_norm(d_state, eps), rms_norm(d_state, eps))
    return Mamba(
        d_inner=d_inner,
        d_state=d_state,
        inner=linear(d_model, 2 * d_inner, bias),
        convolution=Convolution(channels=d_inner, kernel=kernel, bias=convolution_bias),
        select=linear(d_inner, step_rank + 2 * d_state),
        step=linear(step_rank, d_inner, bias=True),
        out=linear(d_inner, d_model, bias),
        norms=norms,
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
    seconds: Sequence[FeedForward | Experts],
    eps: float = 1e-6,
    tied: bool = False,
    attention_bias: bool = False,
    towers: tuple[Tower, ...] = (),
) -> Spec:
    """Qwen team 2025 (Qwen3-Next, Qwen3.5): gated attention in the layers that attend, `mixer` in the others.

    seconds: of each layer, what comes after: experts or a dense part.
    """
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
    made = {
        (attend, id(second)): (
            sublayer("attention", gated, norm_in=norm) if attend else sublayer("mixer", mixer, norm_in=norm),
            sublayer("feed_forward", second, norm_in=norm),
        )
        for attend, second in zip(attends, seconds, strict=True)
    }
    spec = decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=tuple(made[attend, id(second)] for attend, second in zip(attends, seconds, strict=True)),
        norm_last=norm,
        tied=tied,
    )
    return replace(spec, towers=towers)

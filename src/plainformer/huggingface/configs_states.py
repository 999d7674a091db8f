"""Readers for stacks with states: Mamba, Mamba-2, Jamba, Bamba, Granite hybrid, Falcon-H1, LFM2, OLMo hybrid.

Absent keys take the published class's defaults."""

from __future__ import annotations

from collections.abc import Sequence

from plainformer.families import hybrids
from plainformer.families.parts import Layer, feed_forward, linear, pre_norm_layer, rms_norm, sublayer
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_kin import head_scale, multiplied, per_head, rms
from plainformer.huggingface.configs_parts import Frame, alike, by_kind
from plainformer.mixers import Convolution, Mamba, Mamba2, ShortConvolution
from plainformer.records import replace
from plainformer.spec import Branch, Experts, FeedForward, Norm, Part, Residual, Spec

ATTENDS = {"linear_attention": False, "mamba": False, "conv": False, "full_attention": True, "attention": True}


def bare(keys: Keys) -> Frame:
    """Sizes where no layer attends."""
    return Frame(
        keys=keys,
        d_model=keys.count("hidden_size", "d_model"),
        n_layers=keys.layers("num_hidden_layers", "n_layer"),
        n_heads=1,
        n_kv_heads=1,
        d_head=1,
        max_seq_len=keys.count("max_position_embeddings", default=2048),
    )


def mamba(keys: Keys) -> Spec:
    """Gu and Dao 2023; Falcon Mamba norms the step, B and C by norms that hold nothing."""
    keys.note("A state has no end of positions: 2048 stands for the length unless the file says one.")
    frame = bare(keys)
    d_inner = keys.count("intermediate_size", default=keys.count("expand", default=2) * frame.d_model)
    rank = -(-frame.d_model // 16) if keys.get("time_step_rank") in (None, "auto") else keys.count("time_step_rank")
    mixer = hybrids.mamba(
        d_model=frame.d_model,
        d_inner=d_inner,
        d_state=keys.count("state_size", default=16),
        kernel=keys.count("conv_kernel", default=4),
        step_rank=rank,
        bias=keys.flag("use_bias", False),
        convolution_bias=keys.flag("use_conv_bias", True),
    )
    norm = rms_norm(frame.d_model, keys.real("layer_norm_epsilon", default=1e-5))
    return frame.whole(alike(frame, (sublayer("mixer", mixer, norm_in=norm),)), norm, tied=True)


def mamba2(keys: Keys) -> Spec:
    """Dao and Gu 2024."""
    keys.note("A state has no end of positions: 2048 stands for the length unless the file says one.")
    frame = bare(keys)
    n_heads, d_head = keys.count("num_heads", default=128), keys.count("head_dim", default=64)
    d_inner = keys.count("expand", default=2) * frame.d_model
    if n_heads * d_head != d_inner:
        keys.fault("num_heads", n_heads, f"times head_dim ({d_head}) must be expand times hidden_size ({d_inner})")
    eps = keys.real("layer_norm_epsilon", default=1e-5)
    mixer = hybrids.mamba2(
        d_model=frame.d_model,
        n_heads=n_heads,
        d_head=d_head,
        d_state=keys.count("state_size", default=128),
        n_groups=keys.count("n_groups", default=8),
        kernel=keys.count("conv_kernel", default=4),
        eps=eps,
        bias=keys.flag("use_bias", False),
        convolution_bias=keys.flag("use_conv_bias", True),
    )
    norm = rms_norm(frame.d_model, eps)
    return frame.whole(alike(frame, (sublayer("mixer", mixer, norm_in=norm),)), norm, tied=False)


def hybrid_mixer(keys: Keys, d_model: int, eps: float, *, d_state: int = 256, normed: bool = True) -> Mamba2:
    """Mamba-2 by the names of Bamba and Granite; also of Falcon-H1, whose inner width is a key of its own."""
    d_inner = keys.count("mamba_d_ssm", default=keys.count("mamba_expand", default=2) * d_model)
    n_heads = keys.count("mamba_n_heads", default=128)
    said = keys.get("mamba_d_head")
    d_head = d_inner // n_heads if said in (None, "auto") else keys.count("mamba_d_head")
    if n_heads * d_head != d_inner:
        keys.fault("mamba_n_heads", n_heads, f"times the width of a head ({d_head}) must be {d_inner}")
    bias = keys.flag("mamba_proj_bias", False)
    return hybrids.mamba2(
        d_model=d_model,
        n_heads=n_heads,
        d_head=max(1, d_head),
        d_state=keys.count("mamba_d_state", default=d_state),
        n_groups=keys.count("mamba_n_groups", default=1),
        kernel=keys.count("mamba_d_conv", default=4),
        eps=eps,
        bias=bias,
        out_bias=keys.flag("projectors_bias", bias),
        convolution_bias=keys.flag("mamba_conv_bias", True),
        normed=normed,
    )


def kinds(keys: Keys, n_layers: int, default: Sequence[bool]) -> tuple[bool, ...]:
    """Which layers attend."""
    name = "layers_block_type" if keys.has("layers_block_type") else "layer_types"
    return keys.kinds(name, n_layers, ATTENDS, default)


def bamba(keys: Keys) -> Spec:
    """IBM 2024: Mamba-2, and attention in the layers that are listed."""
    frame = Frame.of(keys, max_seq_len=262144, kv_default=8)
    norm, listed = rms(frame, 1e-5), keys.numbers("attn_layer_indices")
    attends = kinds(keys, frame.n_layers, [i in listed for i in range(frame.n_layers)])
    bias, second = keys.flag("attention_bias", False), frame.dense(bias=keys.flag("mlp_bias", False))
    parts: dict[bool, Part] = {False: hybrid_mixer(keys, frame.d_model, norm.eps)}
    if any(attends):
        parts[True] = frame.attend(frame.rotary(share=0.5), bias=bias)
    return frame.whole(by_kind(attends, lambda attend: mixed(parts[attend], second, norm)), norm, tied=False)


def mixed(part: Part, second: FeedForward | Experts, norm: Norm) -> Layer:
    """pre_norm_layer, named for what stands first."""
    name = "mixer" if isinstance(part, (Mamba, Mamba2, ShortConvolution)) else "attention"
    first, last = pre_norm_layer(part, second, norm)
    return replace(first, branches=(replace(first.branches[0], name=name),)), last


def granitemoehybrid(keys: Keys) -> Spec:
    """IBM 2025 (Granite 4): Mamba-2 or attention, experts and one that every token meets; 0 experts: that alone."""
    multiplied(keys)
    frame = Frame.of(keys, max_seq_len=2048)
    norm = rms(frame)
    attends = kinds(keys, frame.n_layers, [False] * frame.n_layers)
    d_shared = keys.count("shared_intermediate_size", default=1024, least=0)
    turned = frame.rotary() if keys.get("position_embedding_type") == "rope" else None
    if keys.count("num_local_experts", default=8, least=0):
        second: FeedForward | Experts = frame.experts(
            frame.chosen("num_local_experts", experts=8, chosen=2),
            keys.count("intermediate_size"),
            d_shared=d_shared,
            balance=0.001,
        )
    else:
        second = frame.dense(d_shared)
    parts: dict[bool, Part] = {}
    if any(attends):
        parts[True] = frame.attend(
            turned, bias=keys.flag("attention_bias", False), scale=keys.real("attention_multiplier", default=1.0)
        )
    if not all(attends):
        parts[False] = hybrid_mixer(keys, frame.d_model, norm.eps)
    return frame.whole(
        by_kind(attends, lambda attend: mixed(parts[attend], second, norm)),
        norm,
        tied=False,
        scale=keys.real("embedding_multiplier", default=1.0),
        head_scale=head_scale(keys),
    )


def falcon_h1(keys: Keys) -> Spec:
    """Zuo et al. 2025: Mamba-2 and attention side by side after one norm, with multipliers everywhere."""
    keys.leave_unsaid("The multipliers inside each layer are not said: they change no size.")
    frame = Frame.of(keys, max_seq_len=8192, kv_default=8)
    norm = rms(frame, 1e-5)
    mixer = hybrid_mixer(keys, frame.d_model, norm.eps, normed=keys.flag("mamba_rms_norm", False))
    out = keys.flag("projectors_bias", False)
    mixer = replace(mixer, out=replace(mixer.out, bias=out))
    part = frame.attend(frame.rotary(), bias=keys.flag("attention_bias", False))
    branches = Branch(name="mixer", part=mixer), Branch(name="attention", part=part)
    second = frame.dense(bias=keys.flag("mlp_bias", False))
    layer = Residual(branches=branches, norm_in=norm), sublayer("feed_forward", second, norm_in=norm)
    return frame.whole(alike(frame, layer), norm, tied=False, scale=keys.real("embedding_multiplier", default=1.0))


def jamba(keys: Keys) -> Spec:
    """Lieber et al. 2024: attention in one layer of a period, experts in every other, no positions."""
    frame = Frame.of(keys, max_seq_len=262144, kv_default=8)
    norm, n_layers = rms(frame), frame.n_layers
    every, at = keys.count("attn_layer_period", default=8), keys.count("attn_layer_offset", default=4, least=0)
    period, first = keys.count("expert_layer_period", default=2), keys.count("expert_layer_offset", default=1, least=0)
    for name, offset, whole in (("attn_layer_offset", at, every), ("expert_layer_offset", first, period)):
        if offset >= whole:
            keys.fault(name, offset, f"must be below its period ({whole})")
    rank = keys.get("mamba_dt_rank")
    rank = -(-frame.d_model // 16) if rank in (None, "auto") else keys.count("mamba_dt_rank")
    mixer = hybrids.mamba(
        d_model=frame.d_model,
        d_inner=keys.count("mamba_expand", default=2) * frame.d_model,
        d_state=keys.count("mamba_d_state", default=16),
        kernel=keys.count("mamba_d_conv", default=4),
        step_rank=rank,
        eps=norm.eps,
        bias=keys.flag("mamba_proj_bias", False),
        convolution_bias=keys.flag("mamba_conv_bias", True),
    )
    part, dense = frame.attend(None), frame.dense()
    second: FeedForward | Experts = dense
    if keys.count("num_experts", "num_local_experts", default=16) > 1:
        router = replace(
            frame.softmax("num_experts", "num_local_experts", normalised=False, experts=16, chosen=2), normalised=False
        )
        second = frame.experts(router, keys.count("intermediate_size"), balance=0.001)
    which = [(i % every == at, i % period == first) for i in range(n_layers)]
    layers = by_kind(which, lambda kind: mixed(part if kind[0] else mixer, second if kind[1] else dense, norm))
    return frame.whole(layers, norm, tied=False)


def lfm2(keys: Keys) -> Spec:
    """Liquid AI 2025: short convolutions between gates, attention with normed heads in some layers."""
    return lfm_like(keys, sparse=False)


def lfm2_moe(keys: Keys) -> Spec:
    return lfm_like(keys, sparse=True)


def lfm_like(keys: Keys, *, sparse: bool) -> Spec:
    frame = Frame.of(keys, max_seq_len=128000, kv_default=8)
    norm, n_layers = rms_norm(frame.d_model, keys.real("norm_eps", default=1e-5)), frame.n_layers
    listed = keys.numbers("full_attn_idxs") if keys.has("full_attn_idxs") else list(range(n_layers))
    attends = kinds(keys, n_layers, [i in listed for i in range(n_layers)])
    bias, d = keys.flag("conv_bias", False), frame.d_model
    short = ShortConvolution(
        inner=linear(d, 3 * d, bias),
        convolution=Convolution(channels=d, kernel=keys.count("conv_L_cache", default=3), bias=bias),
        out=linear(d, d, bias),
    )
    part = frame.attend(frame.rotary(1000000.0), norms=per_head(frame, norm.eps))
    dense = feed_forward(d, lfm_width(keys) if not sparse else keys.count("intermediate_size"), "silu", gated=True)
    second: FeedForward | Experts = dense
    n_dense = n_layers
    if sparse:
        n_dense = keys.count("num_dense_layers", default=2, least=0)
        router = frame.sigmoid("num_experts", experts=32, chosen=4)
        second = frame.experts(router, keys.count("moe_intermediate_size", default=1792), activation="silu")
    which = [(attend, i >= n_dense) for i, attend in enumerate(attends)]
    layers = by_kind(which, lambda kind: mixed(part if kind[0] else short, second if kind[1] else dense, norm))
    return frame.whole(layers, norm, tied=keys.flag("tie_embedding", True))


def lfm_width(keys: Keys) -> int:
    """The feed-forward's width: two thirds of what is said, rounded up to a multiple, by a switch."""
    said = keys.count("block_ff_dim", "intermediate_size")
    if not keys.flag("block_auto_adjust_ff_dim", True):
        return said
    whole = int(keys.real("block_ffn_dim_multiplier", default=1.0) * int(2 * said / 3))
    multiple = keys.count("block_multiple_of", default=256)
    return max(1, -(-whole // multiple) * multiple)


def olmo_hybrid(keys: Keys) -> Spec:
    """Ai2 2026: three gated delta layers after their norms, then OLMo 2's layer with its norms after it."""
    frame = Frame.of(keys, max_seq_len=65536)
    norm, n_layers = rms(frame), frame.n_layers
    default = [(i + 1) % 4 == 0 for i in range(n_layers)]
    default = default if any(default) else [*default[:-1], True]
    attends = keys.kinds("layer_types", n_layers, {"linear_attention": False, "full_attention": True}, default)
    n_key_heads = keys.count("linear_num_key_heads", default=frame.n_heads)
    mixer = hybrids.delta_net(
        d_model=frame.d_model,
        n_key_heads=n_key_heads,
        n_value_heads=keys.count("linear_num_value_heads", default=n_key_heads),
        d_key=keys.count("linear_key_head_dim", default=max(1, int(0.75 * frame.d_model / n_key_heads))),
        d_value=keys.count("linear_value_head_dim", default=max(1, int(1.5 * frame.d_model / n_key_heads))),
        kernel=keys.count("linear_conv_kernel_dim", default=4),
        eps=1e-5,
    )
    wide = rms_norm(frame.n_heads * frame.d_head, norm.eps), rms_norm(frame.n_kv_heads * frame.d_head, norm.eps)
    rotary = frame.rotary(500000.0) if keys.rope() else None
    part = frame.attend(rotary, bias=keys.flag("attention_bias", False), norms=wide)
    second = frame.dense()

    def layer(attend: bool) -> Layer:
        if attend:
            return sublayer("attention", part, norm_out=norm), sublayer("feed_forward", second, norm_out=norm)
        return sublayer("mixer", mixer, norm_in=norm), sublayer("feed_forward", second, norm_in=norm)

    return frame.whole(by_kind(attends, layer), norm, tied=False)

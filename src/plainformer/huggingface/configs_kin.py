"""Readers for the kin of Llama: a few things differ in each. Absent keys take the published class's defaults."""

from __future__ import annotations

from collections.abc import Sequence

from plainformer.families.parts import Layer, Windows, layer_norm, pre_norm_layer, rms_norm, sublayer
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_parts import Frame, alike, by_kind
from plainformer.records import replace
from plainformer.spec import Experts, FeedForward, Norm, Rotary, Spec


def rms(frame: Frame, default: float = 1e-6) -> Norm:
    return rms_norm(frame.d_model, frame.keys.real("rms_norm_eps", default=default))


def per_head(frame: Frame, eps: float) -> tuple[Norm, Norm]:
    """A norm over each query head and one over each key head."""
    return rms_norm(frame.d_head, eps), rms_norm(frame.d_head, eps)


def llama_like(
    keys: Keys,
    *,
    max_seq_len: int,
    kv_default: int | None = None,
    d_head_default: int | None = None,
    theta: float = 10000.0,
    eps: float = 1e-6,
    tied: bool = False,
    bias: bool = False,
    out_bias: bool | None = None,
    mlp_bias: bool = False,
    windows: Windows | None = None,
    interleaved: bool = False,
    qk_norm: bool = False,
) -> Spec:
    """Llama's layer with the defaults, biases and windows of another class."""
    frame = Frame.of(keys, max_seq_len=max_seq_len, kv_default=kv_default, d_head_default=d_head_default)
    norm, rotary = rms(frame, eps), frame.rotary(theta, interleaved=interleaved)
    second = frame.dense(bias=mlp_bias)
    norms = per_head(frame, norm.eps) if qk_norm else None

    def layer(window: int | None) -> Layer:
        mixer = frame.attend(rotary, bias=bias, out_bias=out_bias, norms=norms, window=window)
        return pre_norm_layer(mixer, second, norm)

    return frame.whole(by_kind(windows or (None,) * frame.n_layers, layer), norm, tied=tied)


def exaone(keys: Keys) -> Spec:
    """EXAONE 3 (LG AI Research 2024), which Llama's class builds; its first files have names of their own."""
    named = "num_hidden_layers" if keys.has("num_hidden_layers") else "num_layers"
    frame = Frame.of(keys, max_seq_len=4096, kv_default=8, layers=named)
    norm = rms_norm(frame.d_model, keys.real("rms_norm_eps", "layer_norm_epsilon", default=1e-5))
    act = keys.activation("hidden_act" if keys.has("hidden_act") else "activation_function")
    mixer = frame.attend(frame.rotary(500000.0), bias=keys.flag("attention_bias", False))
    second = frame.dense(bias=keys.flag("mlp_bias", False), activation=act)
    return frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=False)


def internlm3(keys: Keys) -> Spec:
    """InternLM 3 (2025), which Llama's class builds."""
    bias = keys.flag("qkv_bias" if keys.has("qkv_bias") else "attention_bias", False)
    mlp_bias = keys.flag("bias" if keys.has("bias") else "mlp_bias", False)
    if bias != mlp_bias:
        keys.fault("qkv_bias", bias, f"must be what bias is ({mlp_bias}): the class has one switch")
    return llama_like(keys, max_seq_len=32768, kv_default=2, d_head_default=128, eps=1e-5, bias=bias, mlp_bias=mlp_bias)


def iquestcoder(keys: Keys) -> Spec:
    bias = keys.flag("attention_bias", False)
    mlp_bias = keys.flag("mlp_bias", False)
    return llama_like(keys, max_seq_len=131072, kv_default=8, eps=1e-5, bias=bias, mlp_bias=mlp_bias)


def emu3(keys: Keys) -> Spec:
    """Wang et al. 2024: the text of a model for pictures, which its class for causal text builds alone."""
    if keys.config.get("model_type") == "emu3":
        if not keys.architecture().endswith("ForCausalLM"):
            keys.fault("architectures", keys.architecture(), "its pictures' codes cannot be said: Emu3ForCausalLM can")
        keys = keys.sub("text_config")
    bias = keys.flag("attention_bias", False)
    return llama_like(
        keys, max_seq_len=9216, kv_default=8, theta=1e6, eps=1e-5, bias=bias, mlp_bias=keys.flag("mlp_bias", False)
    )


def helium(keys: Keys) -> Spec:
    """Kyutai 2025: Llama with touching pairs."""
    n_heads, d_head, d_model = (
        keys.count("num_attention_heads"),
        keys.count("head_dim", default=128),
        keys.count("hidden_size"),
    )
    if n_heads * d_head != d_model:
        keys.fault("head_dim", d_head, f"times num_attention_heads ({n_heads}) must be hidden_size ({d_model})")
    return llama_like(
        keys,
        max_seq_len=4096,
        kv_default=20,
        d_head_default=128,
        theta=100000.0,
        eps=1e-8,
        bias=keys.flag("attention_bias", False),
        out_bias=False,
        mlp_bias=keys.flag("mlp_bias", False),
        interleaved=True,
    )


def ernie4_5(keys: Keys) -> Spec:
    """Baidu 2025: tied, touching pairs, one switch for all biases."""
    bias = keys.flag("use_bias", False)
    return llama_like(
        keys,
        max_seq_len=131072,
        kv_default=2,
        d_head_default=128,
        theta=500000.0,
        eps=1e-5,
        tied=True,
        bias=bias,
        mlp_bias=bias,
        interleaved=True,
    )


def seed_oss(keys: Keys) -> Spec:
    """ByteDance Seed 2025: biases of queries, keys and values, of the output by a switch of its own."""
    return llama_like(
        keys,
        max_seq_len=524288,
        kv_default=8,
        d_head_default=128,
        bias=keys.flag("attention_bias", True),
        out_bias=keys.flag("attention_out_bias", False),
        mlp_bias=keys.flag("mlp_bias", False),
    )


def hunyuan_v1_dense(keys: Keys) -> Spec:
    """Tencent 2025: queries and keys normed head by head, after they are turned."""
    keys.leave_unsaid("Queries and keys are normed after they are turned; the spec norms them before.")
    bias = keys.flag("attention_bias", False)
    return llama_like(keys, max_seq_len=2048, eps=1e-5, bias=bias, qk_norm=True)


def ministral3(keys: Keys) -> Spec:
    keys.leave_unsaid("Queries are scaled by their position beyond the first context: the spec does not say so.")
    n_layers = keys.layers("num_hidden_layers")
    windows = (keys.optional("sliding_window"),) * n_layers
    return llama_like(keys, max_seq_len=262144, kv_default=8, d_head_default=128, theta=1e6, eps=1e-5, windows=windows)


def ministral(keys: Keys) -> Spec:
    n_layers = keys.layers("num_hidden_layers")
    window = keys.optional("sliding_window") if "sliding_window" in keys.config else 4096
    windows = keys.windows(n_layers, (window,) * n_layers, window)
    return llama_like(keys, max_seq_len=131072, kv_default=8, windows=windows)


def cwm(keys: Keys) -> Spec:
    """Meta 2025 (Code World Model): one layer in four sees all."""
    n_layers, window = keys.layers("num_hidden_layers"), keys.count("sliding_window", default=8192)
    pattern = [window if i % 4 else None for i in range(n_layers)]
    return llama_like(
        keys,
        max_seq_len=131072,
        kv_default=8,
        d_head_default=128,
        theta=1e6,
        eps=1e-5,
        mlp_bias=keys.flag("mlp_bias", False),
        windows=keys.windows(n_layers, pattern, window),
    )


def arcee(keys: Keys) -> Spec:
    """Arcee 2025 (AFM): Llama with squared ReLU and no gate."""
    frame = Frame.of(keys, max_seq_len=4096)
    norm = rms(frame, 1e-5)
    second = frame.dense(gated=False, bias=keys.flag("mlp_bias", False), activation=keys.activation(default="relu2"))
    mixer = frame.attend(frame.rotary(), bias=keys.flag("attention_bias", False))
    return frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=False)


def turns(frame: Frame) -> Sequence[bool]:
    """Which layers turn their heads: by no_rope_layers, where 1 turns; else all but every so many."""
    every = frame.keys.count("no_rope_layer_interval", default=4)
    found = frame.keys.numbers("no_rope_layers")
    if found and len(found) != frame.n_layers:
        frame.keys.fault("no_rope_layers", found, f"must have one number for each of the {frame.n_layers} layers")
        found = []
    return [bool(n) for n in found] or [(i + 1) % every != 0 for i in range(frame.n_layers)]


def smollm3(keys: Keys) -> Spec:
    """Bakouch et al. 2025: Llama with every fourth layer unturned."""
    frame = Frame.of(keys, max_seq_len=32768, kv_default=4)
    norm, rotary, bias = rms(frame), frame.rotary(2000000.0), keys.flag("attention_bias", False)
    window = keys.optional("sliding_window") if keys.flag("use_sliding_window", False) else None
    turned = turns(frame)
    default = [None if turn else window for turn in turned]  # the class's windows are where nothing turns
    second = frame.dense(bias=keys.flag("mlp_bias", False))

    def layer(kind: tuple[bool, int | None]) -> Layer:
        mixer = frame.attend(rotary if kind[0] else None, bias=bias, window=kind[1])
        return pre_norm_layer(mixer, second, norm)

    kinds = list(zip(turned, keys.windows(frame.n_layers, default, window), strict=True))
    return frame.whole(by_kind(kinds, layer), norm, tied=True)


def olmo(keys: Keys) -> Spec:
    """Groeneveld et al. 2024: norms that hold nothing."""
    if keys.get("clip_qkv") is not None:
        keys.leave_unsaid("Queries, keys and values are clipped (clip_qkv): the spec does not say so.")
    frame = Frame.of(keys, max_seq_len=2048)
    norm = replace(layer_norm(frame.d_model, 1e-5, bias=False), gain=False)
    mixer = frame.attend(frame.rotary(), bias=keys.flag("attention_bias", False))
    return frame.whole(alike(frame, pre_norm_layer(mixer, frame.dense(), norm)), norm, tied=False)


def multiplied(keys: Keys) -> None:
    """Granite's fourth multiplier is of what each part adds."""
    factor = keys.real("residual_multiplier", default=1.0)
    if factor != 1.0:
        keys.leave_unsaid(f"What each part adds is multiplied by {factor} (residual_multiplier): not said.")


def head_scale(keys: Keys) -> float:
    scaling = keys.real("logits_scaling", default=1.0)
    if scaling == 0:
        keys.fault("logits_scaling", scaling, "must not be 0: the head's answers are divided by it")
        return 1.0
    return 1 / scaling


def granite(keys: Keys) -> Spec:
    """IBM 2024: Llama with four multipliers."""
    frame = Frame.of(keys, max_seq_len=2048)
    return granite_like(frame, frame.dense(bias=keys.flag("mlp_bias", False)), rms(frame))


def granite_like(frame: Frame, second: FeedForward | Experts, norm: Norm) -> Spec:
    """The same attention in every layer, and what comes after it; the multipliers."""
    keys = frame.keys
    multiplied(keys)
    mixer = frame.attend(
        frame.rotary(), bias=keys.flag("attention_bias", False), scale=keys.real("attention_multiplier", default=1.0)
    )
    return frame.whole(
        alike(frame, pre_norm_layer(mixer, second, norm)),
        norm,
        tied=False,
        scale=keys.real("embedding_multiplier", default=1.0),
        head_scale=head_scale(keys),
    )


def hyperclovax(keys: Keys) -> Spec:
    """NAVER 2025: Granite's multipliers, and a norm after each part by a switch."""
    multiplied(keys)
    frame = Frame.of(keys, max_seq_len=2048)
    norm = rms(frame)
    after = norm if keys.flag("use_post_norm", True) else None
    scale = keys.real("attention_multiplier", default=frame.d_head**-0.5)
    mixer = frame.attend(frame.rotary(), bias=keys.flag("attention_bias", False), scale=scale)
    second = frame.dense(bias=keys.flag("mlp_bias", False))
    layer = (
        sublayer("attention", mixer, norm_in=norm, norm_out=after),
        sublayer("feed_forward", second, norm_in=norm, norm_out=after),
    )
    return frame.whole(
        alike(frame, layer),
        norm,
        tied=False,
        scale=keys.real("embedding_multiplier", default=1.0),
        head_scale=head_scale(keys),
    )


def glm(keys: Keys) -> Spec:
    return glm_like(keys, sandwich=False)


def glm4(keys: Keys) -> Spec:
    """GLM-4-0414 (2025): GLM-4 with a norm after each part too."""
    return glm_like(keys, sandwich=True)


def glm_like(keys: Keys, *, sandwich: bool) -> Spec:
    """GLM team 2024: half of each head turned, in pairs that touch; biases of queries, keys and values."""
    frame = Frame.of(keys, max_seq_len=131072, kv_default=2, d_head_default=128)
    norm = rms(frame, 1.5625e-07)
    mixer = frame.attend(
        frame.rotary(share=0.5, interleaved=True), bias=keys.flag("attention_bias", True), out_bias=False
    )
    after = norm if sandwich else None
    layer = (
        sublayer("attention", mixer, norm_in=norm, norm_out=after),
        sublayer("feed_forward", frame.dense(), norm_in=norm, norm_out=after),
    )
    return frame.whole(alike(frame, layer), norm, tied=False)


def exaone4(keys: Keys) -> Spec:
    """LG AI Research 2025 (EXAONE 4): norms after the parts, over each head too; layers that see all do not turn."""
    frame = Frame.of(keys, max_seq_len=2048)
    norm, second, turned = rms(frame, 1e-5), frame.dense(), frame.rotary()
    windows, mixed = exaone_windows(frame)

    def layer(window: int | None) -> Layer:
        rotary: Rotary | None = turned if window or not mixed else None
        mixer = frame.attend(rotary, norms=per_head(frame, norm.eps), window=window)
        return sublayer("attention", mixer, norm_out=norm), sublayer("feed_forward", second, norm_out=norm)

    return frame.whole(by_kind(windows, layer), norm, tied=False)


def exaone_windows(frame: Frame) -> tuple[Windows, bool]:
    """For each layer its window, and whether there are any. The last layer sees all."""
    keys, n_layers = frame.keys, frame.n_layers
    window = keys.optional("sliding_window") if "sliding_window" in keys.config else 4096
    said = keys.get("sliding_window_pattern")
    if isinstance(said, str) and said:  # a letter a layer, over and over: G sees all
        sees_all = [said[i % len(said)] == "G" for i in range(n_layers)]
    else:
        every = keys.count("sliding_window_pattern", default=4)
        sees_all = [(i + 1) % every == 0 for i in range(n_layers)]
    pattern = [None if here or i == n_layers - 1 else window for i, here in enumerate(sees_all)]
    return keys.windows(n_layers, pattern, window), window is not None


def nanochat(keys: Keys) -> Spec:
    """Karpathy 2025: norms that hold nothing, after the embedding too; squared ReLU; a softcap on the head."""
    keys.leave_unsaid("Queries and keys are normed after they are turned; the spec norms them before.")
    frame = Frame.of(keys, max_seq_len=2048)
    norm = replace(rms(frame), gain=False)
    bare = replace(rms_norm(frame.d_head, norm.eps), gain=False)
    second: FeedForward = frame.dense(gated=False, activation=keys.activation(default="relu2"))
    mixer = frame.attend(frame.rotary(), bias=keys.flag("attention_bias", False), norms=(bare, bare))
    softcap = keys.capped("final_logit_softcapping", 15.0)
    spec = frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=False, softcap=softcap)
    assert spec.decoder is not None  # a frame's whole is a decoder
    return replace(spec, decoder=replace(spec.decoder, norm_first=norm))

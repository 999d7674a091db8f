"""Readers for decoders with LayerNorm: GPT-1, GPT-Neo, GPT-J, Falcon, MPT, Phi and their kin. Absent keys take the
published class's defaults."""

from __future__ import annotations

from typing import Literal

from plainformer.families.parts import Layer, layer_norm, pre_norm_layer, sublayer
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_parts import Frame, alike
from plainformer.records import replace
from plainformer.spec import Attention, Branch, FeedForward, Norm, Residual, Sinusoid, Spec, Table


def parallel(mixer: Attention, second: FeedForward, norm: Norm) -> Layer:
    """Attention and feed-forward side by side, after one norm that they share (GPT-J)."""
    branches = Branch(name="attention", part=mixer), Branch(name="feed_forward", part=second)
    return (Residual(branches=branches, norm_in=norm),)


def named(
    keys: Keys, d_model: str, n_heads: str, n_layers: str, max_seq_len: int, length: str = "n_positions"
) -> Frame:
    """A frame by other names than the commonest, which are understood too; as many keys as heads."""
    width = keys.count(d_model, "hidden_size")
    heads = keys.count(n_heads, "num_attention_heads")
    if width % heads:
        name = next((name for name in (n_heads, "num_attention_heads") if keys.has(name)), n_heads)
        keys.fault(name, heads, f"must divide {d_model} ({width})")
    return Frame(
        keys=keys,
        d_model=width,
        n_layers=keys.layers(n_layers, "num_hidden_layers"),
        n_heads=heads,
        n_kv_heads=heads,
        d_head=max(1, width // heads),
        max_seq_len=keys.count(length, "max_position_embeddings", default=max_seq_len),
    )


def openai_gpt(keys: Keys) -> Spec:
    """GPT (Radford et al. 2018, section 4.1): post-norm, learned positions."""
    frame = named(keys, "n_embd", "n_head", "n_layer", 512)
    norm = layer_norm(frame.d_model, keys.real("layer_norm_epsilon", default=1e-5))
    act = keys.activation("afn", "gelu")
    second = frame.dense(4 * frame.d_model, gated=False, bias=True, activation="gelu_tanh" if act == "gelu" else act)
    layer = (
        sublayer("attention", frame.attend(None, bias=True), norm_sum=norm),
        sublayer("feed_forward", second, norm_sum=norm),
    )
    return frame.whole(
        alike(frame, layer), None, tied=True, positions=Table(n_rows=frame.max_seq_len, width=frame.d_model)
    )


def gpt_bigcode(keys: Keys) -> Spec:
    """GPT-2 with one key for all queries of a token (SantaCoder, section 4)."""
    keys.refuse_set("add_cross_attention", "cross-attention needs an encoder to read from")
    keys.refuse_set("scale_attn_weights", "unscaled scores cannot be said yet", (None, True))
    frame = named(keys, "n_embd", "n_head", "n_layer", 1024)
    frame = replace(frame, n_kv_heads=1 if keys.flag("multi_query", True) else frame.n_heads)
    norm = layer_norm(frame.d_model, keys.real("layer_norm_epsilon", default=1e-5))
    second = frame.dense(
        keys.count("n_inner", default=4 * frame.d_model),
        gated=False,
        bias=True,
        activation=keys.activation("activation_function", "gelu_pytorch_tanh"),
    )
    layers = alike(frame, pre_norm_layer(frame.attend(None, bias=True), second, norm))
    return frame.whole(layers, norm, tied=True, positions=Table(n_rows=frame.max_seq_len, width=frame.d_model))


def gpt_neo(keys: Keys) -> Spec:
    """Black et al. 2021: unscaled scores, biases at the output only, every other layer near-sighted."""
    frame = named(keys, "hidden_size", "num_heads", "num_layers", 2048, "max_position_embeddings")
    norm = layer_norm(frame.d_model, keys.real("layer_norm_epsilon", default=1e-5))
    if "local" in neo_kinds(keys, frame.n_layers):
        window = keys.count("window_size", default=256)
        keys.leave_unsaid(f"Local layers see {window} keys and keep all, as the class does: the spec says no window.")
    second = frame.dense(
        keys.count("intermediate_size", default=4 * frame.d_model),
        gated=False,
        bias=True,
        activation=keys.activation("activation_function", "gelu_new"),
    )
    layers = alike(frame, pre_norm_layer(frame.attend(None, out_bias=True, scale=1.0), second, norm))
    return frame.whole(layers, norm, tied=True, positions=Table(n_rows=frame.max_seq_len, width=frame.d_model))


def neo_kinds(keys: Keys, n_layers: int) -> list[str]:
    """attention_types: runs of kinds, each a number of times; as many as there are layers."""
    runs = keys.get("attention_types")
    if runs is None:
        return ["local"]
    try:
        kinds = [str(kind) for some, times in runs for _ in range(min(times, n_layers)) for kind in some]
    except (TypeError, ValueError):
        keys.fault("attention_types", runs, 'must be runs such as [["global", "local"], 6]')
        return []
    if len(kinds) != n_layers or set(kinds) - {"global", "local"}:
        keys.fault("attention_types", runs, f"must say global or local for each of the {n_layers} layers")
    return kinds


def gptj(keys: Keys) -> Spec:
    """Wang and Komatsuzaki 2021: side by side after one norm, a share of each head turned in pairs that touch, a head
    with biases. CodeGen is the same in another order of its files."""
    frame = named(keys, "n_embd", "n_head", "n_layer", 2048)
    share = keys.count("rotary_dim", default=64)
    if share > frame.d_head or share % 2:
        keys.fault("rotary_dim", share, f"must be even, and at most the width of a head ({frame.d_head})")
        share = 2
    rotary = replace(frame.rotary(interleaved=True), n_dims=share)
    norm = layer_norm(frame.d_model, keys.real("layer_norm_epsilon", default=1e-5))
    second = frame.dense(
        keys.count("n_inner", default=4 * frame.d_model),
        gated=False,
        bias=True,
        activation=keys.activation("activation_function", "gelu_new"),
    )
    layers = alike(frame, parallel(frame.attend(rotary), second, norm))
    return frame.whole(layers, norm, tied=False, head_bias=True)


def codegen(keys: Keys) -> Spec:
    if keys.count("n_embd", "hidden_size") % 4:
        keys.fault("n_embd", keys.get("n_embd", "hidden_size"), "must be a multiple of 4: it is stored in 4 parts")
    return gptj(keys)


def falcon(keys: Keys) -> Spec:
    """Almazrouei et al. 2023: one key head for all queries or one for each group; one norm for both branches or two."""
    frame = named(keys, "hidden_size", "n_head", "n_layer", 2048, "max_position_embeddings")
    newer = keys.flag("new_decoder_architecture", False)
    n_kv_heads = keys.count("num_kv_heads", "n_head_kv", default=frame.n_heads)
    if newer and frame.n_heads % n_kv_heads:
        keys.fault("num_kv_heads", n_kv_heads, f"must divide num_attention_heads ({frame.n_heads})")
    multi_query = keys.flag("multi_query", True)
    frame = replace(frame, n_kv_heads=n_kv_heads if newer else 1 if multi_query else frame.n_heads)
    bias, alibi = keys.flag("bias", False), keys.flag("alibi", False)
    if alibi:
        keys.leave_unsaid("ALiBi's slopes are divided by sqrt(d_head), as the scores are: the spec does not say so.")
    mixer = frame.attend(None if alibi else frame.rotary(), bias=bias, alibi=alibi)
    second = frame.dense(
        keys.count("ffn_hidden_size", default=4 * frame.d_model),
        gated=False,
        bias=bias,
        activation=keys.activation("activation", "gelu"),
    )
    norm = layer_norm(frame.d_model, keys.real("layer_norm_epsilon", default=1e-5))
    n_norms = keys.count("num_ln_in_parallel_attn", default=2 if newer else 1)
    if not keys.flag("parallel_attn", True):
        layer = pre_norm_layer(mixer, second, norm)
        keys.refuse_set("num_ln_in_parallel_attn", "two norms in parallel need parallel_attn", (None, 1))
        keys.refuse_set("new_decoder_architecture", "parallel_attn is always on in this architecture")
    elif n_norms == 2:
        pair = (
            Branch(name="attention", part=mixer, norm_in=norm),
            Branch(name="feed_forward", part=second, norm_in=norm),
        )
        layer = (Residual(branches=pair),)
    else:
        layer = parallel(mixer, second, norm)
    return frame.whole(alike(frame, layer), norm, tied=True)


def mpt(keys: Keys) -> Spec:
    """MosaicML 2023: ALiBi, no bias anywhere, in the class not even where no_bias is false."""
    frame = named(keys, "d_model", "n_heads", "n_layers", 2048, "max_seq_len")
    inner = keys.sub("attn_config")
    inner.refuse_set("qk_ln", "the class norms neither queries nor keys")
    inner.refuse_set("attn_type", "the class has one key for each query", (None, "multihead_attention"))
    inner.refuse_set("alibi", "the class knows no positions but ALiBi", (None, True))
    inner.refuse_set("clip_qkv", "clipped queries, keys and values cannot be said yet", (None, 0))
    keys.refuse_set("expansion_ratio", "the class's feed-forward is always four times as wide", (None, 4))
    scale = inner.capped("softmax_scale", None)
    norm = layer_norm(frame.d_model, keys.real("layer_norm_epsilon", default=1e-5), bias=False)
    second = frame.dense(4 * frame.d_model, gated=False, activation="gelu")
    mixer = frame.attend(None, alibi=True, scale=scale)
    return frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=True)


def phi(keys: Keys) -> Spec:
    """Phi-1.5 and Phi-2 (Li et al. 2023): GPT-J's layer with biases everywhere and plain pairs."""
    frame = Frame.of(keys, max_seq_len=2048)
    eps = keys.real("layer_norm_eps", default=1e-5)
    norm, head_norm = layer_norm(frame.d_model, eps), layer_norm(frame.d_head, eps)
    norms = (head_norm, head_norm) if keys.flag("qk_layernorm", False) else None
    second = frame.dense(gated=False, bias=True, activation=keys.activation(default="gelu_new"))
    mixer = frame.attend(frame.rotary(share=0.5), bias=True, norms=norms)
    return frame.whole(alike(frame, parallel(mixer, second, norm)), norm, tied=False, head_bias=True)


def persimmon(keys: Keys) -> Spec:
    """Adept 2023: half of each head turned, queries and keys normed, squared ReLU."""
    frame = named(keys, "hidden_size", "num_attention_heads", "num_hidden_layers", 16384, "max_position_embeddings")
    eps = keys.real("layer_norm_eps", default=1e-5)
    norm, head_norm = layer_norm(frame.d_model, eps), layer_norm(frame.d_head, eps)
    norms = (head_norm, head_norm) if keys.flag("qk_layernorm", True) else None
    second = frame.dense(gated=False, bias=True, activation=keys.activation(default="relu2"))
    mixer = frame.attend(frame.rotary(share=0.5), bias=True, norms=norms)
    return frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=False)


def starcoder2(keys: Keys) -> Spec:
    """Lozhkov et al. 2024, section 5: grouped keys, windows, biases, a plain feed-forward."""
    frame = Frame.of(keys, max_seq_len=4096, kv_default=2)
    bias, norm = keys.flag("use_bias", True), layer_norm(frame.d_model, keys.real("norm_epsilon", default=1e-5))
    second = frame.dense(gated=False, bias=bias, activation=keys.activation(default="gelu_pytorch_tanh"))
    mixer = frame.attend(frame.rotary(), bias=bias, window=keys.optional("sliding_window"))
    return frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=True)


def stablelm(keys: Keys) -> Spec:
    """Stability AI 2023: Llama's layer with LayerNorm, a quarter of each head turned."""
    frame = Frame.of(keys, max_seq_len=4096, kv_default=32)
    norm = layer_norm(frame.d_model, keys.real("layer_norm_eps", default=1e-5))
    norms = per_head(frame, norm.eps) if keys.flag("qk_layernorm", False) else None
    mixer = frame.attend(frame.rotary(share=0.25), bias=keys.flag("use_qkv_bias", False), out_bias=False, norms=norms)
    side_by_side = keys.flag("use_parallel_residual", False)
    layer = (parallel if side_by_side else pre_norm_layer)(mixer, frame.dense(), norm)
    return frame.whole(alike(frame, layer), norm, tied=False)


def per_head(frame: Frame, eps: float) -> tuple[Norm, Norm]:
    """Norms of queries and keys whose gains differ from head to head."""
    frame.keys.leave_unsaid(
        "Queries and keys are normed head by head, each head with gains of its own; the spec norms all heads together."
    )
    wide = frame.n_heads * frame.d_head, frame.n_kv_heads * frame.d_head
    return layer_norm(wide[0], eps, bias=False), layer_norm(wide[1], eps, bias=False)


def cohere(keys: Keys) -> Spec:
    """Command R (2024): side by side after one norm without bias, pairs that touch, a scaled head."""
    frame = Frame.of(keys, max_seq_len=8192)
    norm = layer_norm(frame.d_model, keys.real("layer_norm_eps", default=1e-5), bias=False)
    norms = per_head(frame, norm.eps) if keys.flag("use_qk_norm", False) else None
    mixer = frame.attend(frame.rotary(500000.0, interleaved=True), bias=keys.flag("attention_bias", False), norms=norms)
    layers = alike(frame, parallel(mixer, frame.dense(), norm))
    return frame.whole(layers, norm, tied=True, head_scale=keys.real("logit_scale", default=0.0625))


def cohere2(keys: Keys) -> Spec:
    """Command R7B (2024): three windowed layers that turn, then one that sees all and doesn't."""
    frame = Frame.of(keys, max_seq_len=8192)
    norm = layer_norm(frame.d_model, keys.real("layer_norm_eps", default=1e-5), bias=False)
    window, every = keys.count("sliding_window", default=4096), keys.count("sliding_window_pattern", default=4)
    pattern = [window if (i + 1) % every else None for i in range(frame.n_layers)]
    bias, second, turned = keys.flag("attention_bias", False), frame.dense(), frame.rotary(interleaved=True)
    layers = tuple(
        parallel(frame.attend(turned if seen else None, bias=bias, window=seen), second, norm)
        for seen in keys.windows(frame.n_layers, pattern, window)
    )
    return frame.whole(layers, norm, tied=True, head_scale=keys.real("logit_scale", default=0.0625))


def nemotron(keys: Keys) -> Spec:
    """Parmar et al. 2024 (Nemotron-4): gains stored around 0, squared ReLU, half of each head turned."""
    frame = Frame.of(keys, max_seq_len=4096)
    norm = replace(layer_norm(frame.d_model, keys.real("norm_eps", default=1e-5)), plus_one=True)
    second = frame.dense(gated=False, bias=keys.flag("mlp_bias", False), activation=keys.activation(default="relu2"))
    mixer = frame.attend(frame.rotary(share=0.5), bias=keys.flag("attention_bias", False))
    return frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=False)


def jais2(keys: Keys) -> Spec:
    frame = Frame.of(keys, max_seq_len=8192)
    norm = layer_norm(frame.d_model, keys.real("layer_norm_eps", default=1e-5))
    second = frame.dense(gated=False, bias=keys.flag("mlp_bias", True), activation=keys.activation(default="relu2"))
    mixer = frame.attend(frame.rotary(), bias=keys.flag("attention_bias", True))
    return frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=False)


def gpt_neox_japanese(keys: Keys) -> Spec:
    """GPT-NeoX in sequence, without biases but one in the last layer's output."""
    frame = named(keys, "hidden_size", "num_attention_heads", "num_hidden_layers", 2048, "max_position_embeddings")
    norm = layer_norm(frame.d_model, keys.real("layer_norm_eps", default=1e-5))
    d_ff = frame.d_model * keys.count("intermediate_multiple_size", default=4)
    second = frame.dense(d_ff, gated=False, activation=keys.activation(default="gelu"))
    rotary = frame.rotary(share=keys.real("rotary_pct", default=1.0))
    last = pre_norm_layer(frame.attend(rotary, out_bias=True), second, norm)
    layers = (*alike(frame, pre_norm_layer(frame.attend(rotary), second, norm))[:-1], last)
    return frame.whole(layers, norm, tied=True)


def biogpt(keys: Keys) -> Spec:
    """Luo et al. 2022: GPT-2's layer, positions from row 2."""
    frame = Frame.of(keys, max_seq_len=1024)
    frame = replace(frame, n_kv_heads=frame.n_heads)
    norm = layer_norm(frame.d_model, 1e-5)  # the class passes over the layer_norm_eps of its configs
    second = frame.dense(gated=False, bias=True, activation=keys.activation(default="gelu"))
    return frame.whole(
        alike(frame, pre_norm_layer(frame.attend(None, bias=True), second, norm)),
        norm,
        tied=True,
        positions=Table(n_rows=frame.max_seq_len + 2, width=frame.d_model, offset=2),
        scale=frame.d_model**0.5 if keys.flag("scale_embedding", True) else 1.0,
    )


def sinusoidal(frame: Frame, spec: Spec, layout: Literal["halves", "tensor2tensor"], offset: int = 0) -> Spec:
    assert spec.decoder is not None  # a frame's whole is a decoder
    sines = Sinusoid(width=frame.d_model + frame.d_model % 2, layout=layout, offset=offset)
    return replace(spec, decoder=replace(spec.decoder, positions=sines))


def xglm(keys: Keys) -> Spec:
    """Lin et al. 2021: fixed positions, GPT-2's layer."""
    frame = named(keys, "d_model", "attention_heads", "num_layers", 2048, "max_position_embeddings")
    norm = layer_norm(frame.d_model, 1e-5)
    second = frame.dense(
        keys.count("ffn_dim"), gated=False, bias=True, activation=keys.activation("activation_function", "gelu")
    )
    layers = alike(frame, pre_norm_layer(frame.attend(None, bias=True), second, norm))
    scale = frame.d_model**0.5 if keys.flag("scale_embedding", True) else 1.0
    whole = frame.whole(layers, norm, tied=True, scale=scale)
    return sinusoidal(frame, whole, "tensor2tensor", offset=2)


def ctrl(keys: Keys) -> Spec:
    """Keskar et al. 2019: fixed positions, a head with biases."""
    frame = named(keys, "n_embd", "n_head", "n_layer", 256)
    norm = layer_norm(frame.d_model, keys.real("layer_norm_epsilon", default=1e-6))
    second = frame.dense(keys.count("dff"), gated=False, bias=True, activation="relu")
    layers = alike(frame, pre_norm_layer(frame.attend(None, bias=True), second, norm))
    whole = frame.whole(layers, norm, tied=True, scale=frame.d_model**0.5, head_bias=True)
    return sinusoidal(frame, whole, "halves")

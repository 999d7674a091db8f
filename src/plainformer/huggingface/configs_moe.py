"""Readers for mixtures of experts after Mixtral and DeepSeek. Absent keys take the published class's defaults."""

from __future__ import annotations

from collections.abc import Sequence

from plainformer.families.parts import Layer, layer_norm, linear, pre_norm_layer, rms_norm, sublayer
from plainformer.huggingface.configs_gpts import named, parallel
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_kin import exaone_windows, granite_like, per_head, rms, turns
from plainformer.huggingface.configs_parts import Frame, alike, by_kind
from plainformer.records import replace
from plainformer.spec import Experts, FeedForward, Norm, Part, Residual, SoftmaxRouter, Spec

DRAFTS = "The draft layers (multi-token prediction) are in the files, not in the class: they are not counted."


def sparse_layers(frame: Frame, n_dense: int) -> tuple[bool, ...]:
    """Which layers have experts: by mlp_layer_types, else all but the first."""
    n_dense = frame.keys.count("first_k_dense_replace", default=n_dense, least=0)
    default = [i >= n_dense for i in range(frame.n_layers)]
    return frame.keys.kinds("mlp_layer_types", frame.n_layers, {"sparse": True, "dense": False}, default)


def mixed(
    frame: Frame, sparse: Sequence[bool], mixer: Part, experts: Experts, norm: Norm, *, tied: bool = False
) -> Spec:
    """The same attention everywhere, experts in the layers that `sparse` names, a dense part in the others."""
    dense = frame.dense() if not all(sparse) else None

    def layer(here: bool) -> Layer:
        second: FeedForward | Experts = experts if here or dense is None else dense
        return pre_norm_layer(mixer, second, norm)

    return frame.whole(by_kind(sparse, layer), norm, tied=tied)


def olmoe(keys: Keys) -> Spec:
    """Muennighoff et al. 2024: small experts in every layer, queries and keys normed over all heads."""
    return olmo_experts(keys, max_seq_len=4096, after=False, eps=1e-5, experts=64, chosen=8, theta=10000.0)


def flex_olmo(keys: Keys) -> Spec:
    """Shi et al. 2025: OLMo 2 with experts."""
    return olmo_experts(keys, max_seq_len=4096, after=True, eps=1e-6, experts=7, chosen=5, theta=500000.0)


def olmo_experts(
    keys: Keys, *, max_seq_len: int, after: bool, eps: float, experts: int, chosen: int, theta: float
) -> Spec:
    """after: norms after the parts."""
    if keys.get("clip_qkv") is not None:
        keys.leave_unsaid("Queries, keys and values are clipped (clip_qkv): the spec does not say so.")
    frame = Frame.of(keys, max_seq_len=max_seq_len)
    norm = rms(frame, eps)
    wide = rms_norm(frame.n_heads * frame.d_head, norm.eps), rms_norm(frame.n_kv_heads * frame.d_head, norm.eps)
    mixer = frame.attend(frame.rotary(theta), bias=keys.flag("attention_bias", False), norms=wide)
    router = frame.softmax("num_experts", "num_local_experts", normalised=False, experts=experts, chosen=chosen)
    second = frame.experts(router, keys.count("intermediate_size"), balance=0.01)
    layer = pre_norm_layer(mixer, second, norm)
    if after:
        layer = sublayer("attention", mixer, norm_out=norm), sublayer("feed_forward", second, norm_out=norm)
    return frame.whole(alike(frame, layer), norm, tied=False)


def granitemoe(keys: Keys) -> Spec:
    return granitemoeshared(keys)


def granitemoeshared(keys: Keys) -> Spec:
    """IBM 2024: Granite with experts, and perhaps one more that every token meets."""
    frame = Frame.of(keys, max_seq_len=2048)
    shared = keys.config.get("model_type") == "granitemoeshared"
    second = frame.experts(
        frame.chosen("num_local_experts", "num_experts", experts=8, chosen=2),
        keys.count("intermediate_size"),
        d_shared=keys.count("shared_intermediate_size", default=0, least=0) if shared else 0,
        balance=0.001,
    )
    return granite_like(frame, second, rms(frame))


def phimoe(keys: Keys) -> Spec:
    """Abdin et al. 2024 (Phi-3.5-MoE): LayerNorm, two experts chosen one after the other."""
    keys.leave_unsaid("The two experts are chosen one after the other (SparseMixer): the spec says softmax over both.")
    frame = Frame.of(keys, max_seq_len=131072, kv_default=8)
    norm = layer_norm(frame.d_model, keys.real("rms_norm_eps", default=1e-5))
    mixer = frame.attend(
        frame.rotary(1000000.0),
        bias=keys.flag("attention_bias", False),
        window=keys.optional("sliding_window"),
    )
    second = frame.experts(
        frame.chosen("num_local_experts", "num_experts", experts=16, chosen=2),
        keys.count("intermediate_size"),
        balance=0.001,
    )
    layers = alike(frame, pre_norm_layer(mixer, second, norm))
    return frame.whole(layers, norm, tied=False, head_bias=keys.flag("lm_head_bias", False))


def dbrx(keys: Keys) -> Spec:
    """Databricks 2024: LayerNorm without bias, clipped queries, keys and values."""
    frame = named(keys, "d_model", "n_heads", "n_layers", 2048, "max_seq_len")
    inner, ffn = keys.sub("attn_config"), keys.sub("ffn_config")
    n_kv_heads = inner.count("kv_n_heads", default=1)
    if frame.n_heads % n_kv_heads:
        inner.fault("kv_n_heads", n_kv_heads, f"must divide n_heads ({frame.n_heads})")
    if inner.get("clip_qkv") is not None:
        keys.leave_unsaid("Queries, keys and values are clipped (attn_config.clip_qkv): the spec does not say so.")
    frame = replace(frame, n_kv_heads=n_kv_heads)
    norm = layer_norm(frame.d_model, 1e-5, bias=False)
    act = ffn.sub("ffn_act_fn").activation("name", "silu")
    router = replace(frame, keys=ffn).softmax(
        "moe_num_experts", n_chosen="moe_top_k", normalised=True, experts=4, chosen=1
    )
    second = frame.experts(router, ffn.count("ffn_hidden_size", default=3584), activation=act)
    second = replace(second, balance=ffn.real("moe_loss_weight", default=0.01))
    mixer = frame.attend(frame.rotary(inner.real("rope_theta", default=10000.0)))
    return frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=False)


def glm4_moe(keys: Keys) -> Spec:
    return glm_experts(keys, max_seq_len=131072, kv_default=8, n_dense=1, share=0.5)


def sarvam_moe(keys: Keys) -> Spec:
    """Sarvam 2026, which GLM-4.5's class builds."""
    return glm_experts(
        keys, max_seq_len=131072, kv_default=4, n_dense=1, theta=8e6, d_head_default=64, qk_norm=True, factor=2.5
    )


def solar_open(keys: Keys) -> Spec:
    """Upstage 2025: GLM-4.5's layer with experts in all of them."""
    return glm_experts(keys, max_seq_len=131072, kv_default=8, n_dense=0, theta=1e6, d_head_default=128)


def glm_experts(
    keys: Keys,
    *,
    max_seq_len: int,
    kv_default: int,
    n_dense: int,
    share: float = 1.0,
    theta: float = 10000.0,
    d_head_default: int | None = None,
    qk_norm: bool = False,
    factor: float = 1.0,
) -> Spec:
    """GLM-4.5 (2025), section 2.1: sigmoid scores, shared experts, the first layers dense."""
    if keys.get("num_nextn_predict_layers", "num_mtp_layers"):
        keys.note(DRAFTS)
    frame = Frame.of(keys, max_seq_len=max_seq_len, kv_default=kv_default, d_head_default=d_head_default)
    norm = rms(frame, 1e-5)
    norms = per_head(frame, norm.eps) if keys.flag("use_qk_norm", qk_norm) else None
    mixer = frame.attend(
        frame.rotary(theta, share=share), bias=keys.flag("attention_bias", False), out_bias=False, norms=norms
    )
    d_expert = keys.count("moe_intermediate_size")
    second = frame.experts(
        frame.sigmoid("n_routed_experts", "num_local_experts", factor=factor),
        d_expert,
        d_shared=keys.count("n_shared_experts", default=1, least=0) * d_expert,
    )
    sparse = (True,) * frame.n_layers if not n_dense else sparse_layers(frame, n_dense)
    return mixed(frame, sparse, mixer, second, norm)


def hy_v3(keys: Keys) -> Spec:
    """Tencent 2026: GLM-4.5's layer, queries and keys normed head by head."""
    frame = Frame.of(keys, max_seq_len=131072, kv_default=8, d_head_default=128)
    keys.refuse_set("mlp_bias", "biases of dense and shared parts alone cannot be said yet")
    norm, d_expert = rms(frame, 1e-5), keys.count("moe_intermediate_size")
    mixer = frame.attend(
        frame.rotary(11158840.0), bias=keys.flag("attention_bias", False), norms=per_head(frame, norm.eps)
    )
    router = frame.sigmoid("num_experts", "num_local_experts")
    router = replace(router, factor=keys.real("router_scaling_factor", default=2.826))
    experts = frame.experts(router, d_expert, d_shared=keys.count("num_shared_experts", default=1) * d_expert)
    return mixed(frame, sparse_layers(frame, 1), mixer, experts, norm)


def kolibri1(keys: Keys) -> Spec:
    """Norms on both sides, a shared expert in every layer, four windowed layers to each that sees all."""
    frame = Frame.of(keys, max_seq_len=262144, kv_default=4, d_head_default=128)
    norm, rotary, window = rms(frame), frame.rotary(), keys.count("sliding_window", default=513)
    router = frame.softmax("num_local_experts", "num_experts", normalised=False)
    second = frame.experts(
        router, keys.count("moe_intermediate_size"), d_shared=keys.count("shared_expert_intermediate_size", least=0)
    )

    def layer(seen: int | None) -> Layer:
        mixer = frame.attend(rotary, norms=per_head(frame, norm.eps), window=seen)
        return (
            sublayer("attention", mixer, norm_in=norm, norm_out=norm),
            sublayer("feed_forward", second, norm_in=norm, norm_out=norm),
        )

    pattern = [window if (i + 1) % 5 else None for i in range(frame.n_layers)]
    return frame.whole(by_kind(keys.windows(frame.n_layers, pattern, window), layer), norm, tied=False)


def mellum(keys: Keys) -> Spec:
    """JetBrains 2026: Qwen3's mixture with windows in some layers."""
    frame = Frame.of(keys, max_seq_len=131072, kv_default=4, d_head_default=128)
    norm, bias, window = rms(frame), keys.flag("attention_bias", False), keys.count("sliding_window", default=1024)
    by_type = keys.rope_by_type()
    wide = frame.rotary(500000.0, layer_type="full_attention" if by_type else None)
    narrow = frame.rotary(10000.0, layer_type="sliding_attention" if by_type else None)
    router = frame.softmax("num_local_experts", "num_experts", normalised=True)
    experts = frame.experts(router, keys.count("moe_intermediate_size"), balance=0.001)
    sparse = keys.kinds("mlp_layer_types", frame.n_layers, {"sparse": True, "dense": False}, [True] * frame.n_layers)
    dense = None if all(sparse) else frame.dense()

    def layer(kind: tuple[bool, int | None]) -> Layer:
        mixer = frame.attend(narrow if kind[1] else wide, bias=bias, norms=per_head(frame, norm.eps), window=kind[1])
        return pre_norm_layer(mixer, experts if kind[0] or dense is None else dense, norm)

    windows = keys.windows(frame.n_layers, [None] * frame.n_layers, window)
    return frame.whole(by_kind(list(zip(sparse, windows, strict=True)), layer), norm, tied=False)


def dots1(keys: Keys) -> Spec:
    """Huo et al. 2025 (dots.llm1): Qwen3's attention, DeepSeek-V3's experts."""
    frame = Frame.of(keys, max_seq_len=2048, kv_default=32)
    norm, bias = rms(frame), keys.flag("attention_bias", False)
    window = keys.optional("sliding_window") if "sliding_window" in keys.config else 4096
    first = keys.count("max_window_layers", default=62, least=0)
    pattern = [window if i >= first else None for i in range(frame.n_layers)]
    d_expert, rotary = keys.count("moe_intermediate_size", default=1408), frame.rotary()
    experts = frame.experts(
        frame.sigmoid("n_routed_experts", "num_local_experts"),
        d_expert,
        d_shared=keys.count("n_shared_experts") * d_expert,
    )
    n_dense = keys.count("first_k_dense_replace", default=0, least=0)
    dense = frame.dense(keys.count("intermediate_size", default=10944))
    kinds = [(i >= n_dense, seen) for i, seen in enumerate(keys.windows(frame.n_layers, pattern, window))]

    def layer(kind: tuple[bool, int | None]) -> Layer:
        mixer = frame.attend(rotary, bias=bias, norms=per_head(frame, norm.eps), window=kind[1])
        return pre_norm_layer(mixer, experts if kind[0] else dense, norm)

    return frame.whole(by_kind(kinds, layer), norm, tied=False)


def ernie4_5_moe(keys: Keys) -> Spec:
    """Baidu 2025: experts from one layer to another, shared ones beside them."""
    keys.leave_unsaid("The correction of each expert's score is a parameter here: it stands as the router's bias.")
    keys.refuse_set("use_bias", "biases of experts cannot be said yet")
    frame = Frame.of(keys, max_seq_len=131072, kv_default=4)
    norm, n_layers = rms(frame, 1e-5), frame.n_layers
    router = frame.softmax(
        "moe_num_experts",
        "num_experts",
        n_chosen="moe_k" if keys.has("moe_k") else "num_experts_per_tok",
        normalised=True,
        experts=64,
        chosen=6,
    )
    router = replace(router, scores=replace(router.scores, bias=True))
    d_expert = keys.count("moe_intermediate_size", default=1536)
    experts = frame.experts(
        router, d_expert, d_shared=keys.count("moe_num_shared_experts", default=2, least=0) * d_expert, balance=0.001
    )
    first, step = keys.count("moe_layer_start_index", default=1, least=0), keys.count("moe_layer_interval", default=1)
    last = keys.get("moe_layer_end_index")
    last = n_layers - 1 if last in (None, -1) else keys.count("moe_layer_end_index", least=0)
    sparse = [(i + 1) % step == 0 and first <= i <= last for i in range(n_layers)]
    return mixed(frame, sparse, frame.attend(frame.rotary(500000.0, interleaved=True)), experts, norm, tied=True)


def hunyuan_v1_moe(keys: Keys) -> Spec:
    """Tencent 2025 (Hunyuan-A13B): experts as wide as the one that every token meets."""
    keys.leave_unsaid("Queries and keys are normed after they are turned; the spec norms them before.")
    frame = Frame.of(keys, max_seq_len=2048)
    norm, d_ff = rms(frame, 1e-5), keys.count("intermediate_size")
    scores = linear(frame.d_model, keys.count("num_experts", "num_local_experts", default=1))
    topk = keys.get("moe_topk", "num_experts_per_tok")
    each = sorted({str(n) for n in topk}) if isinstance(topk, list) else []
    if isinstance(topk, list) and (len(each) != 1 or not isinstance(topk[0], int)):
        keys.fault("moe_topk", topk, "must be one number, the same in each layer")
        topk = 1
    one = replace(frame, keys=keys.beside({"moe_topk": topk[0] if isinstance(topk, list) else topk}, ""))
    router = SoftmaxRouter(scores=scores, n_chosen=one.picked(scores.n_out, "moe_topk", 1), normalised=True)
    mixer = frame.attend(frame.rotary(), bias=keys.flag("attention_bias", False), norms=per_head(frame, norm.eps))
    second = frame.experts(router, d_ff, d_shared=d_ff)
    return frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=False)


def minimax_m2(keys: Keys) -> Spec:
    """MiniMax 2025: queries and keys normed over all heads, half of each head turned."""
    frame = Frame.of(keys, max_seq_len=196608, kv_default=8, d_head_default=128)
    norm = rms(frame)
    wide = rms_norm(frame.n_heads * frame.d_head, norm.eps), rms_norm(frame.n_kv_heads * frame.d_head, norm.eps)
    turned = keys.optional("rotary_dim")
    rotary = frame.rotary(5000000.0, share=turned / frame.d_head if turned else 1.0)
    router = frame.sigmoid("num_local_experts", "num_experts", experts=256, chosen=8)
    second = frame.experts(router, keys.count("intermediate_size"), balance=0.001)
    return frame.whole(alike(frame, pre_norm_layer(frame.attend(rotary, norms=wide), second, norm)), norm, tied=False)


def aria_text(keys: Keys) -> Spec:
    """Li et al. 2024 (Aria), section 2.1: the text of a model for pictures, shared experts in every layer."""
    keys.refuse_set("mlp_bias", "biases of shared experts alone cannot be said yet")
    frame = Frame.of(keys, max_seq_len=2048)
    norm, d_ff = rms(frame), keys.count("intermediate_size", default=4096)
    router = frame.chosen("moe_num_experts", n_chosen="moe_topk", experts=8, chosen=2)
    second = frame.experts(router, d_ff, d_shared=d_ff * keys.count("moe_num_shared_experts", default=2, least=0))
    mixer = frame.attend(frame.rotary(), bias=keys.flag("attention_bias", False))
    return frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=False)


def exaone_moe(keys: Keys) -> Spec:
    """LG AI Research 2026 (K-EXAONE): EXAONE 4's attention after its norms, DeepSeek-V3's experts."""
    frame = Frame.of(keys, max_seq_len=2048)
    norm, turned = rms(frame, 1e-5), frame.rotary()
    windows, some = exaone_windows(frame)
    d_expert = keys.count("moe_intermediate_size", default=1024)
    experts = frame.experts(
        frame.sigmoid("num_experts", "num_local_experts", factor=2.5, experts=64, chosen=8),
        d_expert,
        d_shared=keys.count("num_shared_experts", default=1, least=0) * d_expert,
    )
    dense = frame.dense()

    def layer(kind: tuple[bool, int | None]) -> Layer:
        rotary = turned if kind[1] or not some else None
        mixer = frame.attend(rotary, norms=per_head(frame, norm.eps), window=kind[1])
        return pre_norm_layer(mixer, experts if kind[0] else dense, norm)

    kinds = list(zip(sparse_layers(frame, 1), windows, strict=True))
    return frame.whole(by_kind(kinds, layer), norm, tied=False)


def cohere2_moe(keys: Keys) -> Spec:
    """Cohere 2026: Command R7B's layers with experts beside attention."""
    for name in ("num_shared_experts", "prefix_dense_intermediate_size"):
        keys.refuse_set(name, "dense and shared parts beside these experts cannot be said yet")
    keys.refuse_set("rms_norm_eps", "RMSNorm is another layout of this class")
    keys.choice("expert_selection_fn", {"softmax": True}, "softmax")
    frame = Frame.of(keys, max_seq_len=8192, d_head_default=None)
    norm = layer_norm(frame.d_model, keys.real("layer_norm_eps", default=1e-5), bias=False)
    window, every = keys.count("sliding_window", default=4096), keys.count("sliding_window_pattern", default=4)
    pattern = [window if (i + 1) % every else None for i in range(frame.n_layers)]
    if not all(keys.kinds("mlp_layer_types", frame.n_layers, {"sparse": True, "dense": False}, [True])):
        keys.fault("mlp_layer_types", "dense", "dense layers cannot be said yet")
    router = frame.softmax("num_experts", "num_local_experts", normalised=True, experts=8, chosen=2)
    second, turned = frame.experts(router, keys.count("intermediate_size")), frame.rotary(interleaved=True)
    bias = keys.flag("attention_bias", False)

    def layer(seen: int | None) -> Layer:
        whole: Residual = parallel(frame.attend(turned if seen else None, bias=bias, window=seen), frame.dense(), norm)[
            0
        ]
        return (replace(whole, branches=(whole.branches[0], replace(whole.branches[1], part=second))),)

    layers = by_kind(keys.windows(frame.n_layers, pattern, window), layer)
    return frame.whole(layers, norm, tied=True, head_scale=keys.real("logit_scale", default=0.0625))


def llama4(keys: Keys) -> Spec:
    """Meta 2025: experts in some layers, one chosen and one shared; three layers in four see a chunk and turn."""
    text = keys.sub("text_config") if keys.config.get("model_type") == "llama4" else keys
    whole = keys.has("vision_config") or keys.architecture().endswith("ForConditionalGeneration")
    if text is not keys and whole and not keys.architecture().endswith("ForCausalLM"):
        keys.fault("vision_config", "...", "this tower cannot be said yet", "name Llama4ForCausalLM for the text alone")
    text.leave_unsaid("Chunks are said as windows, an expert's input as scaled after it; temperatures are not said.")
    frame = Frame.of(text, max_seq_len=131072, kv_default=8, d_head_default=128)
    norm, chunk = (
        rms(frame, 1e-5),
        text.optional("attention_chunk_size") if "attention_chunk_size" in text.config else 8192,
    )
    turned, rotary = turns(frame), frame.rotary(500000.0, interleaved=True)
    kinds = {"full_attention": None, "chunked_attention": chunk}
    windows = text.kinds("layer_types", frame.n_layers, kinds, [chunk if turn else None for turn in turned])
    bare = replace(rms_norm(frame.d_head, norm.eps), gain=False)
    norms = (bare, bare) if text.flag("use_qk_norm", True) else None
    step = text.count("interleave_moe_layer_step", default=1)
    listed, told = text.numbers("moe_layers"), text.has("moe_layers")  # an empty list: no layer has experts
    sparse = [i in listed if told else (i + 1) % step == 0 for i in range(frame.n_layers)]
    d_ff = text.count("intermediate_size", default=8192)
    router = frame.sigmoid("num_local_experts", experts=16, chosen=1)
    experts = frame.experts(replace(router, normalised=False), d_ff, d_shared=d_ff, balance=0.001)
    dense = frame.dense(text.count("intermediate_size_mlp", default=16384))
    bias = text.flag("attention_bias", False)

    def layer(kind: tuple[bool, bool, int | None]) -> Layer:
        mixer = frame.attend(rotary if kind[1] else None, bias=bias, norms=norms if kind[1] else None, window=kind[2])
        return pre_norm_layer(mixer, experts if kind[0] else dense, norm)

    return frame.whole(by_kind(list(zip(sparse, turned, windows, strict=True)), layer), norm, tied=False)

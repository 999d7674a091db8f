"""Readers for Nemotron-H, Qwen3-Next and Qwen3.5. Absent keys take the published class's defaults."""

from __future__ import annotations

from collections.abc import Callable

from plainformer.families import hybrids, llamas, towers
from plainformer.families.parts import attention, dot, feed_forward, layer_norm, linear
from plainformer.huggingface.configs_keys import Keys
from plainformer.mixers import Mamba2
from plainformer.records import replace
from plainformer.spec import Attention, Experts, FeedForward, Part, SigmoidRouter, SoftmaxRouter, Spec, Tower

LETTERS = {
    "M": "M",
    "*": "*",
    "-": "-",
    "E": "E",
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}


def nemotron_h(keys: Keys) -> Spec:
    words = keys.get("layers_block_type", "layer_types", "hybrid_override_pattern")
    words = words if isinstance(words, (str, list)) and words else "M"
    if words == "M":
        keys.fault("hybrid_override_pattern", None, "is missing: nothing says what the layers are")
    for word in sorted({str(word) for word in words} - LETTERS.keys()):
        keys.fault("hybrid_override_pattern", word, "no such kind of layer is known", f"known: {', '.join(LETTERS)}")
    if keys.layers("num_hidden_layers", default=len(words)) != len(words):
        keys.fault("num_hidden_layers", keys.get("num_hidden_layers"), f"the pattern has {len(words)} layers")
    pattern = "".join(LETTERS.get(str(word), "M") for word in words)
    d_model, eps = keys.count("hidden_size"), keys.real("layer_norm_epsilon", "norm_eps", default=1e-5)
    if keys.get("num_nextn_predict_layers"):
        keys.note("The draft layers (multi-token prediction) are in the files, not in the class: they are not counted.")
    parts: dict[str, Callable[[], Part]] = {
        "M": lambda: nemotron_mixer(keys, d_model, eps),
        "*": lambda: nemotron_attention(keys, d_model),
        "-": lambda: feed_forward(
            d_model,
            keys.count("intermediate_size"),
            keys.activation("mlp_hidden_act", "relu2"),
            bias=keys.flag("mlp_bias", False),
        ),
        "E": lambda: nemotron_experts(keys, d_model),
    }
    return keys.with_head(
        hybrids.nemotron_h(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=keys.count("max_position_embeddings", default=4096),
            d_model=d_model,
            pattern=pattern,
            parts={letter: parts[letter]() for letter in sorted(set(pattern))},
            eps=eps,
            tied=keys.tied(False),
        )
    )


def nemotron_mixer(keys: Keys, d_model: int, eps: float) -> Mamba2:
    return hybrids.mamba2(
        d_model=d_model,
        n_heads=keys.count("mamba_num_heads"),
        d_head=keys.count("mamba_head_dim"),
        d_state=keys.count("ssm_state_size"),
        n_groups=keys.count("mamba_n_groups", "n_groups", default=8),
        kernel=keys.count("mamba_d_conv", "conv_kernel", default=4),
        eps=eps,
        bias=keys.flag("use_bias", False),
        convolution_bias=keys.flag("mamba_conv_bias" if keys.has("mamba_conv_bias") else "use_conv_bias", True),
    )


def nemotron_attention(keys: Keys, d_model: int) -> Attention:
    n_heads, n_kv_heads, d_head = keys.heads(kv_default=8, d_head_default=128, rotary=False)
    window = keys.optional("sliding_window")
    return attention(
        d_model=d_model, n_heads=n_heads, n_kv_heads=n_kv_heads, d_head=d_head, scores=dot(d_head), window=window
    )


def nemotron_experts(keys: Keys, d_model: int) -> Experts:
    keys.refuse_set("moe_latent_size", "experts in a narrower stream cannot be said yet", (None,))
    keys.note(
        "The correction of each expert's score is a buffer, not a parameter: it is in the files, not in the total."
    )
    n_experts = keys.count("n_routed_experts", "num_local_experts")
    activation, bias = keys.activation("mlp_hidden_act", "relu2"), keys.flag("mlp_bias", False)
    router = SigmoidRouter(
        scores=linear(d_model, n_experts),
        n_chosen=keys.count("num_experts_per_tok"),
        n_groups=keys.count("n_group", default=1),
        n_chosen_groups=keys.count("topk_group", default=1),
        factor=keys.real("routed_scaling_factor", default=1.0),
        normalised=keys.flag("norm_topk_prob", True),
    )
    return Experts(
        router=router,
        expert=feed_forward(d_model, keys.count("moe_intermediate_size"), activation),
        n_experts=n_experts,
        shared=feed_forward(d_model, keys.count("moe_shared_expert_intermediate_size"), activation, bias=bias),
    )


def qwen3_5_moe(keys: Keys) -> Spec:
    return qwen3_5(keys, "qwen3_5_moe", kv_default=2, sparse=True)


def qwen3_5_dense(keys: Keys) -> Spec:
    """Qwen3.5 with a dense part in every layer."""
    return qwen3_5(keys, "qwen3_5", kv_default=4, sparse=False)


def qwen3_next(keys: Keys) -> Spec:
    """Qwen3-Next (2025): experts in the layers that decoder_sparse_step and mlp_only_layers leave."""
    return qwen3_5(keys, "", kv_default=2, sparse=True)


def qwen3_5(keys: Keys, wrapper: str, *, kv_default: int, sparse: bool) -> Spec:
    """wrapper: the model_type that also has a tower; sparse: whether there are experts."""
    text = keys.sub("text_config") if keys.config.get("model_type") == wrapper else keys
    whole = text is not keys and not keys.architecture().endswith("ForCausalLM")  # which builds the text alone
    text.refuse_set("attn_output_gate", "attention without its gate is another family", (None, True))
    n_heads, n_kv_heads, d_head = text.heads(kv_default=kv_default, d_head_default=256, rotary=False)
    max_seq_len, n_layers = text.count("max_position_embeddings", default=32768), text.layers("num_hidden_layers")
    d_model, eps = text.count("hidden_size"), text.real("rms_norm_eps", default=1e-6)
    if text.get("mtp_num_hidden_layers"):
        keys.note("The draft layers (multi-token prediction) are in the files, not in the class: they are not counted.")
    mixer = hybrids.delta_net(
        d_model=d_model,
        n_key_heads=text.count("linear_num_key_heads", default=16),
        n_value_heads=text.count("linear_num_value_heads", default=32),
        d_key=text.count("linear_key_head_dim", default=128),
        d_value=text.count("linear_value_head_dim", default=128),
        kernel=text.count("linear_conv_kernel_dim", default=4),
        eps=eps,
    )
    return keys.with_head(
        hybrids.qwen3_5(
            vocab_size=text.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=d_model,
            mixer=mixer,
            attends=attends(text, n_layers),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            rotary=text.rotary(d_head, share=0.25, max_seq_len=max_seq_len),
            seconds=qwen_seconds(text, d_model, n_layers, sparse),
            eps=eps,
            tied=(keys if whole else text).tied(False),
            attention_bias=text.flag("attention_bias", False),
            towers=(qwen_vision(keys.sub("vision_config"), d_model),) if whole else (),
        )
    )


def qwen_seconds(text: Keys, d_model: int, n_layers: int, sparse: bool) -> list[FeedForward | Experts]:
    """What comes after attention in each layer."""
    act = text.activation()
    step, listed = text.count("decoder_sparse_step", default=1), text.numbers("mlp_only_layers")
    here = [sparse and (i + 1) % step == 0 and i not in listed for i in range(n_layers)]
    dense = None if all(here) else feed_forward(d_model, text.count("intermediate_size"), act, gated=True)
    if not sparse:
        return [dense or feed_forward(d_model, 1, act)] * n_layers
    n_experts = text.count("num_experts", "num_local_experts")
    experts = Experts(
        router=SoftmaxRouter(
            scores=linear(d_model, n_experts), n_chosen=text.count("num_experts_per_tok"), normalised=True
        ),
        expert=feed_forward(d_model, text.count("moe_intermediate_size"), act, gated=True),
        n_experts=n_experts,
        shared=feed_forward(d_model, text.count("shared_expert_intermediate_size"), act, gated=True),
        shared_gate=linear(d_model, 1),
        balance=text.real("router_aux_loss_coef", default=0.001),
    )
    return [experts if this or dense is None else dense for this in here]


def attends(text: Keys, n_layers: int) -> list[bool]:
    """By layer_types; else the last of every full_attention_interval layers."""
    every = text.count("full_attention_interval", default=4)
    default = [(i + 1) % every == 0 for i in range(n_layers)]
    return list(text.kinds("layer_types", n_layers, {"full_attention": True, "linear_attention": False}, default))


def qwen3_vl(keys: Keys) -> Spec:
    """Qwen3-VL (2025): Qwen3 under a tower that enters at several layers, each by a connector of its own."""
    whole = keys.config.get("model_type") == "qwen3_vl"
    text = keys.sub("text_config") if whole else keys
    n_heads, n_kv_heads, d_head = text.heads(kv_default=32, d_head_default=128)
    bias, n_layers = text.flag("attention_bias", False), text.layers("num_hidden_layers")
    max_seq_len, d_model = text.count("max_position_embeddings", default=128000), text.count("hidden_size")
    spec = llamas.llama(
        vocab_size=text.count("vocab_size"),
        max_seq_len=max_seq_len,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        d_ff=text.count("intermediate_size"),
        theta=text.theta(),
        scaling=text.scaling(max_seq_len),
        activation=text.activation(),
        eps=text.real("rms_norm_eps", default=1e-6),
        tied=keys.tied(False),  # of a whole the text's own counts for nothing
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=True,
    )
    if whole:
        spec = replace(spec, towers=(qwen_vision(keys.sub("vision_config"), d_model, deep=(8, 16, 24)),))
    return keys.with_head(spec)


def qwen_vision(vision: Keys, d_out: int, deep: tuple[int, ...] = ()) -> Tower:
    """Patches of a few pictures in a row; four neighbours are joined before they enter the stream. deep: by default,
    the layers of the tower that enter it too, each by a connector of its own."""
    listed = vision.numbers("deepstack_visual_indexes") if vision.has("deepstack_visual_indexes") else list(deep)
    if listed and not deep:
        vision.fault("deepstack_visual_indexes", listed, "this class's tower enters the stream once")
    if listed:
        vision.leave_unsaid("The tower enters at several layers; its connectors are counted as one after another.")
    vision.note("The tower's rotation along two axes and its connector's GELU are not said: they change no size.")
    d_model, patch = vision.count("hidden_size", default=1152), vision.count("patch_size", default=16)
    d_joined = d_model * vision.count("spatial_merge_size", default=2) ** 2
    if vision.count("out_hidden_size", default=3584) != d_out:
        vision.fault("out_hidden_size", vision.get("out_hidden_size"), f"must be text_config.hidden_size ({d_out})")
    return towers.vision_transformer(
        d_model=d_model,
        n_layers=vision.layers("depth", "num_hidden_layers", default=27),
        n_heads=vision.count("num_heads", "num_attention_heads", default=16),
        d_ff=vision.count("intermediate_size", default=4304),
        d_patch=vision.count("in_channels", default=3) * vision.count("temporal_patch_size", default=2) * patch**2,
        n_positions=vision.count("num_position_embeddings", default=2304),
        connector=(
            *(layer_norm(d_model, 1e-6), linear(d_joined, d_joined, bias=True), linear(d_joined, d_out, bias=True)),
            *(layer_norm(d_joined, 1e-6), linear(d_joined, d_joined, bias=True), linear(d_joined, d_out, bias=True))
            * len(listed),
        ),
        norm_last=False,
        activation=vision.activation(default="gelu_pytorch_tanh"),
        eps=1e-6,
    )

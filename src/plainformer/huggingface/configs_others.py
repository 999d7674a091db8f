"""Readers for BLOOM, Phi-3, Qwen2-MoE and ModernBERT. Absent keys take the published class's defaults."""

from __future__ import annotations

from plainformer.families import llamas, others
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_llamas import switched_window
from plainformer.records import replace
from plainformer.spec import Rotary, Spec
from plainformer.tree import rewrite


def bloom(keys: Keys) -> Spec:
    keys.refuse_set("apply_residual_connection_post_layernorm", "a residual taken after its norm cannot be said yet")
    d_model, n_heads = keys.count("hidden_size", "n_embed"), keys.count("n_head", "num_attention_heads")
    if n_heads > 0 and d_model % n_heads:
        keys.fault("n_head", n_heads, f"must divide hidden_size ({d_model})")
    keys.note("ALiBi has no end of positions: the length is the one it was trained with (seq_length, else 2048).")
    return keys.with_head(
        others.bloom(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=keys.count("seq_length", default=2048),
            d_model=d_model,
            n_layers=keys.layers("n_layer", "num_hidden_layers"),
            n_heads=n_heads,
            eps=keys.real("layer_norm_epsilon", default=1e-5),
            tied=keys.tied(True),
        )
    )


def phi3(keys: Keys) -> Spec:
    """Llama with two pairs of matrices stored side by side; Phi-4-mini turns a share of each head."""
    n_heads, n_kv_heads, d_head = keys.heads()
    max_seq_len, n_layers = keys.count("max_position_embeddings", default=4096), keys.layers("num_hidden_layers")
    whole = llamas.llama(
        vocab_size=keys.count("vocab_size"),
        max_seq_len=max_seq_len,
        d_model=keys.count("hidden_size"),
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        d_ff=keys.count("intermediate_size"),
        theta=keys.theta(),
        windows=(keys.optional("sliding_window"),) * n_layers,
        activation=keys.activation(),
        eps=keys.real("rms_norm_eps", default=1e-5),
        tied=keys.tied(False),
    )
    n_dims, scaling = max(2, keys.turned(d_head, keys.rotary_share())), keys.scaling(max_seq_len)
    return keys.with_head(
        rewrite(whole, lambda part: replace(part, n_dims=n_dims, scaling=scaling) if isinstance(part, Rotary) else part)
    )


def qwen2_moe(keys: Keys) -> Spec:
    n_heads, n_kv_heads, d_head = keys.heads(kv_default=16)
    max_seq_len, n_layers = keys.count("max_position_embeddings", default=32768), keys.layers("num_hidden_layers")
    step, dense = keys.count("decoder_sparse_step", default=1), keys.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        keys.fault("mlp_only_layers", dense, "must be a list of layers' numbers")
        dense = []
    wide = keys.count("max_window_layers", default=28, least=0)
    window = switched_window(keys)
    pattern = [window if i % 2 == 0 and i < wide else None for i in range(n_layers)]
    return keys.with_head(
        others.qwen2_moe(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=keys.count("hidden_size"),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            d_ff=keys.count("intermediate_size", default=5632),
            sparse=[(i + 1) % step == 0 and i not in dense for i in range(n_layers)],
            n_experts=keys.count("num_experts", default=60),
            n_chosen=keys.count("num_experts_per_tok", default=4),
            d_expert=keys.count("moe_intermediate_size", default=1408),
            d_shared=keys.count("shared_expert_intermediate_size", default=5632),
            normalised=keys.flag("norm_topk_prob", False),
            theta=keys.theta(),
            scaling=keys.scaling(max_seq_len),
            windows=keys.windows(n_layers, pattern, window),
            activation=keys.activation(),
            eps=keys.real("rms_norm_eps", default=1e-6),
            tied=keys.tied(False),
            qkv_bias=keys.flag("qkv_bias", True),
            balance=keys.real("router_aux_loss_coef", default=0.001),
        )
    )


def modernbert(keys: Keys) -> Spec:
    keys.divides("num_attention_heads", "hidden_size")
    d_model, n_heads = keys.count("hidden_size", default=768), keys.count("num_attention_heads", default=12)
    max_seq_len, n_layers = keys.count("max_position_embeddings", default=8192), keys.layers("num_hidden_layers")
    window = keys.count("local_attention", default=128) // 2 + 1  # as many to either side, and the token itself
    every = keys.count("global_attn_every_n_layers", default=3)
    pattern = [window if i % every else None for i in range(n_layers)]
    d_head = max(1, d_model // max(1, n_heads))
    wide, narrow = (
        keys.rotary(d_head, layer_type=kind, theta=keys.real(old, default=theta), max_seq_len=max_seq_len)
        for kind, old, theta in (
            ("full_attention", "global_rope_theta", 160000.0),
            ("sliding_attention", "local_rope_theta", 10000.0),
        )
    )
    spec = others.modernbert(
        vocab_size=keys.count("vocab_size"),
        max_seq_len=max_seq_len,
        d_model=d_model,
        n_heads=n_heads,
        d_ff=keys.count("intermediate_size"),
        windows=keys.windows(n_layers, pattern, window),
        rotary=wide,
        rotary_in_window=narrow,
        activation=keys.activation("hidden_activation", "gelu"),
        head_activation=keys.activation("classifier_activation", "gelu"),
        eps=keys.real("norm_eps", default=1e-5),
        norm_bias=keys.flag("norm_bias", False),
        attention_bias=keys.flag("attention_bias", False),
        mlp_bias=keys.flag("mlp_bias", False),
        transform_bias=keys.flag("classifier_bias", False),
        head_bias=keys.flag("decoder_bias", True),
        tied=keys.tied(True),
        head=keys.answering() or keys.headed(),
    )
    if not keys.answering() or spec.head is None:
        return spec
    answers = keys.answers(d_model, 1 if keys.architecture().endswith("MultipleChoice") else None)
    return replace(spec, head=replace(spec.head, linear=answers.linear, tied=False))

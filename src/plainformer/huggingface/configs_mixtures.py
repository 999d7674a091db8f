"""Readers for Mixtral, Qwen3-MoE, gpt-oss and DeepSeek. Absent keys take the published class's defaults."""

from __future__ import annotations

from plainformer.families import mixtures
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_llamas import switched_window
from plainformer.spec import Linear, Router, Scaling, SigmoidRouter, SoftmaxRouter, Spec

GPT_OSS_YARN = Scaling(
    kind="yarn",
    settings=(
        ("beta_fast", 32.0),
        ("beta_slow", 1.0),
        ("factor", 32.0),
        ("original_max_position_embeddings", 4096.0),
        ("truncate", 0.0),
    ),
)


def mixtral(keys: Keys) -> Spec:
    n_heads, n_kv_heads, d_head = keys.heads(kv_default=8)
    max_seq_len = keys.count("max_position_embeddings", default=131072)
    n_layers = keys.layers("num_hidden_layers")
    return keys.with_head(
        mixtures.mixtral(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=keys.count("hidden_size"),
            n_layers=n_layers,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            d_ff=keys.count("intermediate_size"),
            n_experts=keys.count("num_local_experts"),
            n_chosen=keys.count("num_experts_per_tok"),
            balance=keys.real("router_aux_loss_coef", default=0.001),
            theta=keys.theta(1000000.0),
            scaling=keys.scaling(max_seq_len),
            windows=(keys.optional("sliding_window"),) * n_layers,
            activation=keys.activation(),
            eps=keys.real("rms_norm_eps", default=1e-5),
            tied=keys.tied(False),
        )
    )


def qwen3_moe(keys: Keys) -> Spec:
    n_heads, n_kv_heads, d_head = keys.heads(kv_default=4)
    max_seq_len, n_layers = keys.count("max_position_embeddings", default=32768), keys.layers("num_hidden_layers")
    step, n_experts = keys.count("decoder_sparse_step", default=1), keys.count("num_experts", "num_local_experts")
    dense = keys.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        keys.fault("mlp_only_layers", dense, "must be a list of layers' numbers")
        dense = []
    window = switched_window(keys)
    return keys.with_head(
        mixtures.qwen3_moe(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=keys.count("hidden_size"),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            d_ff=keys.count("intermediate_size"),
            sparse=[(i + 1) % step == 0 and i not in dense for i in range(n_layers)],
            n_experts=n_experts,
            n_chosen=keys.count("num_experts_per_tok"),
            d_expert=keys.count("moe_intermediate_size"),
            normalised=keys.flag("norm_topk_prob", False),
            theta=keys.theta(),
            scaling=keys.scaling(max_seq_len),
            windows=(window,) * n_layers,
            activation=keys.activation(),
            eps=keys.real("rms_norm_eps", default=1e-6),
            tied=keys.tied(False),
            attention_bias=keys.flag("attention_bias", False),
            balance=keys.real("router_aux_loss_coef", default=0.001),
        )
    )


def gpt_oss(keys: Keys) -> Spec:
    n_heads, n_kv_heads, d_head = keys.heads(kv_default=8, d_head_default=64)
    max_seq_len, n_layers = keys.count("max_position_embeddings", default=131072), keys.layers("num_hidden_layers")
    window = keys.count("sliding_window", default=128)
    keys.choice("hidden_act", {"silu": "swiglu_clamped"}, "silu")
    keys.refuse_set("swiglu_limit", "another clamp than 7 cannot be said yet", (None, 7.0))
    return keys.with_head(
        mixtures.gpt_oss(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=keys.count("hidden_size"),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            d_ff=keys.count("intermediate_size"),
            n_experts=keys.count("num_local_experts", "num_experts"),
            n_chosen=keys.count("num_experts_per_tok", "experts_per_token"),
            balance=keys.real("router_aux_loss_coef", default=0.9),
            windows=keys.windows(n_layers, [None if i % 2 else window for i in range(n_layers)], window),
            theta=keys.theta(150000.0),
            scaling=keys.scaling(max_seq_len) if keys.get("rope_scaling", "rope_parameters") else GPT_OSS_YARN,
            eps=keys.real("rms_norm_eps", default=1e-5),
            tied=keys.tied(False),
            attention_bias=keys.flag("attention_bias", True),
        )
    )


def deepseek_v3(keys: Keys) -> Spec:
    d_model, n_experts = keys.count("hidden_size"), keys.count("n_routed_experts", "num_local_experts")
    keys.choice("scoring_func", {"sigmoid": True}, "sigmoid")
    keys.divides("n_group", "n_routed_experts")
    keys.note(
        "The correction of each expert's score is a buffer, not a parameter: it is in the files, not in the total."
    )
    router = SigmoidRouter(
        scores=Linear(n_in=d_model, n_out=n_experts),
        n_chosen=keys.count("num_experts_per_tok"),
        n_groups=keys.count("n_group", default=8),
        n_chosen_groups=keys.count("topk_group", default=4),
        factor=keys.real("routed_scaling_factor", default=2.5),
        normalised=keys.flag("norm_topk_prob", True),
    )
    return deepseek(keys, router, max_seq_len=4096, n_dense=3, n_shared=1)


def deepseek_v2(keys: Keys) -> Spec:
    d_model, n_experts = keys.count("hidden_size"), keys.count("n_routed_experts", "num_experts")
    keys.choice("scoring_func", {"softmax": True}, "softmax")
    keys.refuse_set("mlp_bias", "biases of dense and shared parts alone cannot be said yet")
    in_groups = keys.choice("topk_method", {"greedy": False, "group_limited_greedy": True}, "greedy")
    router = SoftmaxRouter(
        scores=Linear(n_in=d_model, n_out=n_experts),
        n_chosen=keys.count("num_experts_per_tok"),
        normalised=keys.flag("norm_topk_prob", False),
        n_groups=keys.count("n_group", default=1) if in_groups else 1,
        n_chosen_groups=keys.count("topk_group", default=1) if in_groups else 1,
        factor=keys.real("routed_scaling_factor", default=1.0),
    )
    return deepseek(keys, router, max_seq_len=2048, n_dense=0, n_shared=2)


def deepseek(keys: Keys, router: Router, *, max_seq_len: int, n_dense: int, n_shared: int) -> Spec:
    """What both versions say by the same names, with their own defaults."""
    max_seq_len = keys.count("max_position_embeddings", default=max_seq_len)
    keys.refuse_set("moe_layer_freq", "layers that take turns with dense ones cannot be said yet", (None, 1))
    if keys.get("num_nextn_predict_layers", "num_mtp_layers"):
        keys.note("The draft layers (multi-token prediction) are in the files, not in the class: they are not counted.")
    q_rank = keys.optional("q_lora_rank") if "q_lora_rank" in keys.config else 1536
    return keys.with_head(
        mixtures.deepseek(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=keys.count("hidden_size"),
            n_layers=keys.layers("num_hidden_layers"),
            n_dense=keys.count("first_k_dense_replace", default=n_dense, least=0),
            n_heads=keys.count("num_attention_heads"),
            d_nope=keys.count("qk_nope_head_dim", default=128),
            d_rope=keys.count("qk_rope_head_dim", default=64),
            d_value=keys.count("v_head_dim", default=128),
            q_rank=q_rank,
            kv_rank=keys.count("kv_lora_rank", default=512),
            d_ff=keys.count("intermediate_size"),
            router=router,
            d_expert=keys.count("moe_intermediate_size"),
            n_shared=keys.count("n_shared_experts", default=n_shared, least=0),
            theta=keys.theta(),
            scaling=keys.scaling(max_seq_len),
            interleaved=keys.flag("rope_interleave", True),
            activation=keys.activation(),
            eps=keys.real("rms_norm_eps", default=1e-6),
            tied=keys.tied(False),
            attention_bias=keys.flag("attention_bias", False),
        )
    )

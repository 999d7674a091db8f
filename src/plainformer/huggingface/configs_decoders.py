"""Readers for GPT-2, OPT and GPT-NeoX. Absent keys take the published class's defaults."""

from __future__ import annotations

from plainformer.families import decoders
from plainformer.huggingface.configs_keys import Keys
from plainformer.records import replace
from plainformer.spec import Head, Spec


def gpt2(keys: Keys) -> Spec:
    keys.refuse_set("scale_attn_by_inverse_layer_idx", "scores scaled by the layer's number cannot be said yet")
    keys.refuse_set("scale_attn_weights", "unscaled scores cannot be said yet", (None, True))
    keys.refuse_set("add_cross_attention", "cross-attention needs an encoder to read from")
    keys.divides("n_head", "n_embd")
    d_model = keys.count("n_embd", "hidden_size")
    return keys.with_head(
        decoders.gpt2(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=keys.count("n_positions", "max_position_embeddings", "n_ctx", default=1024),
            d_model=d_model,
            n_layers=keys.layers("n_layer", "num_hidden_layers"),
            n_heads=keys.count("n_head", "num_attention_heads"),
            d_ff=keys.count("n_inner", default=4 * d_model),
            activation=keys.activation("activation_function", "gelu_new"),
            eps=keys.real("layer_norm_epsilon", default=1e-5),
            tied=keys.tied(True),
        )
    )


def opt(keys: Keys) -> Spec:
    keys.divides("num_attention_heads", "hidden_size")
    d_model = keys.count("hidden_size")
    spec = decoders.opt(
        vocab_size=keys.count("vocab_size"),
        max_seq_len=keys.count("max_position_embeddings", default=2048),
        d_model=d_model,
        n_layers=keys.layers("num_hidden_layers"),
        n_heads=keys.count("num_attention_heads"),
        d_ff=keys.count("ffn_dim"),
        d_embed=keys.count("word_embed_proj_dim", default=d_model),
        activation=keys.activation("activation_function", "relu"),
        tied=keys.tied(True),
        pre_norm=keys.flag("do_layer_norm_before", True),
        norm_last=not keys.flag("_remove_final_layer_norm", False),
        bias=keys.flag("enable_bias", True),
        norm_gain=keys.flag("layer_norm_elementwise_affine", True),
    )
    whole, narrow = keys.with_head(spec), spec.head.transform if spec.head else None
    if narrow is None:
        return whole
    if whole.head is None:  # a base class narrows what it gives, too
        return replace(whole, head=Head(linear=narrow, tied=False))
    last = replace(whole.head.linear, n_in=narrow.n_out)
    return replace(whole, head=replace(whole.head, linear=last, transform=narrow))


def gpt_neox(keys: Keys) -> Spec:
    keys.divides("num_attention_heads", "hidden_size")
    max_seq_len = keys.count("max_position_embeddings", default=2048)
    d_model, n_heads, share = keys.count("hidden_size"), keys.count("num_attention_heads"), keys.rotary_share(0.25)
    keys.turned(d_model // n_heads, share)
    return keys.with_head(
        decoders.gpt_neox(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=d_model,
            n_layers=keys.layers("num_hidden_layers"),
            n_heads=n_heads,
            d_ff=keys.count("intermediate_size"),
            rotary_share=share,
            theta=keys.theta(keys.real("rotary_emb_base", default=10000.0)),
            scaling=keys.scaling(max_seq_len),
            activation=keys.activation(default="gelu"),
            eps=keys.real("layer_norm_eps", default=1e-5),
            tied=keys.tied(False),
            parallel=keys.flag("use_parallel_residual", True),
            attention_bias=keys.flag("attention_bias", True),
        )
    )

"""Readers for BART, T5 and mT5. Absent keys take the published class's defaults."""

from __future__ import annotations

from plainformer.families import encoder_decoders
from plainformer.huggingface.configs_keys import ACTIVATIONS, Keys
from plainformer.spec import Spec


def bart(keys: Keys) -> Spec:
    d_model = keys.count("d_model", "hidden_size")
    keys.divides("encoder_attention_heads", "d_model")
    keys.divides("decoder_attention_heads", "d_model")
    keys.refuse_set("normalize_before", "pre-norm is another class (mBART)")
    if keys.headed():
        keys.note("The constant added to BART's scores (final_logits_bias) is a buffer of zeros, not counted.")
    return encoder_decoders.bart(
        vocab_size=keys.count("vocab_size"),
        max_seq_len=keys.count("max_position_embeddings", default=1024),
        d_model=d_model,
        n_encoder_layers=keys.layers("encoder_layers", "num_hidden_layers"),
        n_decoder_layers=keys.layers("decoder_layers"),
        n_encoder_heads=keys.count("encoder_attention_heads", "num_attention_heads"),
        n_decoder_heads=keys.count("decoder_attention_heads"),
        d_encoder_ff=keys.count("encoder_ffn_dim"),
        d_decoder_ff=keys.count("decoder_ffn_dim"),
        activation=keys.activation("activation_function", "gelu"),
        scale=d_model**0.5 if keys.flag("scale_embedding", False) else 1.0,
        tied=keys.tied(True),
        head=keys.headed(),
    )


def t5(keys: Keys) -> Spec:
    return t5_like(keys, default="relu", scaled=keys.flag("scale_decoder_outputs", True))


def mt5(keys: Keys) -> Spec:
    return t5_like(keys, default="gated-gelu", scaled=False)


def t5_like(keys: Keys, default: str, scaled: bool) -> Spec:
    """scaled: a tied head reads a smaller stream. Never in mT5; transformers 5 calls T5 1.1 tied, and not scaled."""
    said = str(keys.get("feed_forward_proj") or default)
    gated, _, word = said.rpartition("-")
    if gated not in ("", "gated") or word not in ACTIVATIONS:
        keys.fault("feed_forward_proj", said, "must be an activation, or one after gated-")
    tied = keys.tied(True)
    if not tied:
        keys.note("The head has weights of its own, as in the published files; some library versions tie it by force.")
    n_layers = keys.layers("num_layers", "num_hidden_layers")
    keys.note("T5 has no end of positions: n_positions is the length it was trained with.")
    alone = keys.architecture().endswith("EncoderModel")
    return encoder_decoders.t5(
        vocab_size=keys.count("vocab_size"),
        max_seq_len=keys.count("n_positions", default=512),
        d_model=keys.count("d_model", "hidden_size"),
        n_encoder_layers=n_layers,
        n_decoder_layers=0 if alone else keys.layers("num_decoder_layers", default=n_layers),
        n_heads=keys.count("num_heads", "num_attention_heads"),
        d_head=keys.count("d_kv", "head_dim"),
        d_ff=keys.count("d_ff"),
        # "gelu" after "gated-" has always meant the tanh form in these files
        activation="gelu_tanh" if said == "gated-gelu" else ACTIVATIONS.get(word, "relu"),
        gated=gated == "gated",
        n_buckets=keys.count("relative_attention_num_buckets", default=32),
        max_distance=keys.count("relative_attention_max_distance", default=128),
        eps=keys.real("layer_norm_epsilon", default=1e-6),
        tied=tied,
        head=keys.headed(),
        head_scaled=scaled,
    )

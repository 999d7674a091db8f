"""Readers for BERT and ALBERT. Absent keys take the published class's defaults."""

from __future__ import annotations

from typing import Literal

from plainformer.families import encoders
from plainformer.huggingface.configs_keys import Keys
from plainformer.spec import Spec


def head(keys: Keys) -> Literal["masked", "pooler"] | None:
    """By the class named in `architectures`: its own head, or a base class's pooler."""
    keys.refuse_set("is_decoder", "an encoder's layers with a causal mask cannot be said yet")
    name = keys.architecture()
    if keys.headed():
        if name.endswith("ForPreTraining"):
            keys.note(f"{name} also has a pooler and a sentence head, which are not counted.")
        return "masked"
    if name in ("BertModel", "AlbertModel"):
        keys.note(f"The pooler of {name} stands as its head; that it reads one token, through tanh, is not said.")
        return "pooler"
    return None


def bert(keys: Keys) -> Spec:
    keys.divides("num_attention_heads", "hidden_size")
    keys.refuse_set("position_embedding_type", "relative positions cannot be said yet", (None, "absolute"))
    return encoders.bert(
        vocab_size=keys.count("vocab_size"),
        max_seq_len=keys.count("max_position_embeddings", default=512),
        d_model=keys.count("hidden_size"),
        n_layers=keys.layers("num_hidden_layers"),
        n_heads=keys.count("num_attention_heads"),
        d_ff=keys.count("intermediate_size"),
        n_types=keys.count("type_vocab_size", default=2),
        activation=keys.activation(default="gelu"),
        eps=keys.real("layer_norm_eps", default=1e-12),
        tied=keys.tied(True),
        head=head(keys),
    )


def albert(keys: Keys) -> Spec:
    keys.divides("num_attention_heads", "hidden_size")
    keys.refuse_set("position_embedding_type", "relative positions cannot be said yet", (None, "absolute"))
    return encoders.albert(
        vocab_size=keys.count("vocab_size"),
        max_seq_len=keys.count("max_position_embeddings", default=512),
        d_model=keys.count("hidden_size"),
        d_embed=keys.count("embedding_size", default=128),
        n_layers=keys.layers("num_hidden_layers"),
        n_heads=keys.count("num_attention_heads"),
        d_ff=keys.count("intermediate_size"),
        n_groups=keys.layers("num_hidden_groups", default=1),
        n_inner=keys.layers("inner_group_num", default=1),
        n_types=keys.count("type_vocab_size", default=2),
        activation=keys.activation(default="gelu_new"),
        eps=keys.real("layer_norm_eps", default=1e-12),
        tied=keys.tied(True),
        head=head(keys),
    )

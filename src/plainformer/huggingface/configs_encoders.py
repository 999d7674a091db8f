"""Readers for BERT and ALBERT, and what their kin share: heads by class. Absent keys take the published class's
defaults."""

from __future__ import annotations

from plainformer.families import encoders
from plainformer.families.parts import linear
from plainformer.huggingface.configs_keys import OWN_HEAD, Keys
from plainformer.records import replace
from plainformer.spec import Activation, Head, Spec

POOLED = ("ForSequenceClassification", "ForMultipleChoice", "ForNextSentencePrediction", "ForImageClassification")
ALWAYS_TWO = ("NystromformerForQuestionAnswering", "RoFormerForQuestionAnswering")  # answers, whatever the file says

TWO_BIASES = "untied, the class holds a second bias of the head, which nothing reads: it cannot be said"


def with_task(keys: Keys, spec: Spec, *, pools: bool, activation: Activation = "tanh") -> Spec:
    """The spec with the head of the class named in `architectures`; as it comes it has the one that fills gaps.

    pools: whether the base class has a pooler; activation: between a classifier's two dense steps.
    """
    keys.refuse_set("is_decoder", "an encoder's layers with a causal mask cannot be said yet")
    keys.refuse_set("add_cross_attention", "cross-attention needs an encoder to read from")
    name, d_model = keys.architecture(), spec.d_model
    if not name or name.endswith(("ForMaskedLM", "ForCausalLM", "LMHeadModel", "ForPreTraining")):
        return replace(spec, towers=(sentences(d_model),)) if name.endswith("ForPreTraining") else spec
    if name.endswith(("ForQuestionAnswering", "ForTokenClassification")):
        return replace(spec, head=keys.answers(d_model, 2 if name in ALWAYS_TWO else None))
    if name.endswith(POOLED):
        n = 1 if name.endswith("Choice") else 2 if name.endswith("Prediction") else None
        last = keys.answers(d_model, n)
        step = linear(d_model, d_model, bias=True)
        return replace(spec, head=replace(last, transform=step, activation=activation, pool="first"))
    if name.endswith("Model"):
        return replace(spec, head=encoders.pooler(d_model) if pools else None)
    keys.fault("architectures", name, OWN_HEAD)
    return spec


def sentences(d_model: int) -> Head:
    """The second head of BERT's first training: whether two sentences follow each other, from the first token."""
    step = linear(d_model, d_model, bias=True)
    return Head(linear=linear(d_model, 2, True), tied=False, transform=step, activation="tanh", pool="first")


def bert(keys: Keys) -> Spec:
    keys.divides("num_attention_heads", "hidden_size")
    keys.refuse_set("position_embedding_type", "relative positions cannot be said yet", (None, "absolute"))
    spec = encoders.bert(
        vocab_size=keys.count("vocab_size"),
        max_seq_len=keys.count("max_position_embeddings", default=512),
        d_model=keys.count("hidden_size"),
        n_layers=keys.layers("num_hidden_layers"),
        n_heads=keys.count("num_attention_heads"),
        d_ff=keys.count("intermediate_size"),
        n_types=keys.count("type_vocab_size", default=2),
        activation=keys.activation(default="gelu"),
        eps=keys.real("layer_norm_eps", default=1e-12),
        tied=keys.tied_or_refused(TWO_BIASES),
    )
    return with_task(keys, spec, pools=True)


def albert(keys: Keys) -> Spec:
    keys.divides("num_attention_heads", "hidden_size")
    keys.refuse_set("position_embedding_type", "relative positions cannot be said yet", (None, "absolute"))
    spec = encoders.albert(
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
        tied=keys.tied_or_refused(TWO_BIASES),
    )
    return with_task(keys, spec, pools=True)


def head_of(keys: Keys, d_model: int, vocab_size: int, *, activation: Activation, eps: float, d_embed: int = 0) -> Head:
    """The head that fills gaps, tied where the class's default is (it is in all of BERT's kin) or the file says so."""
    return encoders.masked_head(
        d_model, d_embed or d_model, vocab_size, activation, eps, keys.tied_or_refused(TWO_BIASES)
    )

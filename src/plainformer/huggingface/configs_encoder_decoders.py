"""Readers for BART, T5 and mT5. Absent keys take the published class's defaults."""

from __future__ import annotations

from plainformer.families import encoder_decoders
from plainformer.families.parts import linear
from plainformer.huggingface.configs_keys import ACTIVATIONS, Keys
from plainformer.records import replace
from plainformer.spec import Sinusoid, Spec, Table


def with_answers(keys: Keys, spec: Spec, n_labels: int = 2) -> Spec:
    """The spec with the head of the class named in `architectures`; n_labels: where neither id2label nor num_labels
    says how many."""
    name, d_model = keys.architecture(), spec.d_model
    n = None if keys.has("id2label") or keys.has("num_labels") else n_labels
    if name.endswith("ForSequenceClassification"):
        keys.leave_unsaid(f"{name} answers at the last token of a row; the spec says at every one.")
        step = linear(d_model, d_model, bias=True)
        return replace(spec, head=replace(keys.answers(d_model, n), transform=step, activation="tanh"))
    if name.endswith(("ForQuestionAnswering", "ForTokenClassification")):
        return replace(spec, head=keys.answers(d_model, 2 if name == "BartForQuestionAnswering" else n))
    return spec


def bart(keys: Keys) -> Spec:
    d_model = keys.count("d_model", "hidden_size")
    keys.divides("encoder_attention_heads", "d_model")
    keys.divides("decoder_attention_heads", "d_model")
    alone(keys)
    keys.refuse_set("normalize_before", "pre-norm is another class (mBART)")
    head = not keys.answering() and keys.headed()
    if head:
        keys.note(CONSTANT)
    spec = encoder_decoders.bart(
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
        tied=keys.tied_or_refused(THREE_TABLES),
        head=head,
    )
    return with_answers(keys, spec, n_labels=3)


CONSTANT = "The constant added to the scores (final_logits_bias) is a buffer, not counted; zeros in most files."
THREE_TABLES = "untied, each stack has a token table of its own, which cannot be said yet"


def alone(keys: Keys) -> None:
    if keys.architecture().endswith("ForCausalLM"):
        keys.fault("architectures", keys.architecture(), "a decoder left without its encoder cannot be said yet")


def kin(
    keys: Keys,
    *,
    offset: int = 0,
    rows: int = 1024,
    fixed: int | None = None,
    pre_norm: bool = False,
    norm_first: bool = False,
    norm_last: bool = False,
    activation: str = "gelu",
    scaled: bool = False,
) -> Spec:
    """BART with norms and positions in other places. fixed: the first row of positions that hold
    nothing, tensor2tensor's sines."""
    alone(keys)
    d_model, max_seq_len = keys.count("d_model", "hidden_size"), keys.count("max_position_embeddings", default=rows)
    keys.divides("encoder_attention_heads", "d_model")
    keys.divides("decoder_attention_heads", "d_model")
    if not keys.headed() and not keys.architecture().endswith("Model"):
        keys.fault("architectures", keys.architecture(), "this head cannot be said yet")
    sines = Sinusoid(width=d_model + d_model % 2, layout="tensor2tensor", offset=fixed or 0)
    if keys.headed() and fixed is None:
        keys.note(CONSTANT)
    learned = Table(n_rows=max_seq_len + offset, width=d_model, offset=offset)
    return encoder_decoders.bart_like(
        vocab_size=keys.count("vocab_size"),
        max_seq_len=max_seq_len,
        d_model=d_model,
        n_layers=(keys.layers("encoder_layers"), keys.layers("decoder_layers")),
        n_heads=(keys.count("encoder_attention_heads"), keys.count("decoder_attention_heads")),
        d_ff=(keys.count("encoder_ffn_dim"), keys.count("decoder_ffn_dim")),
        positions=learned if fixed is None else sines,
        pre_norm=pre_norm,
        norm_first=norm_first,
        norm_last=norm_last,
        activation=keys.activation("activation_function", activation),
        scale=d_model**0.5 if keys.flag("scale_embedding", scaled) else 1.0,
        tied=keys.tied_or_refused(THREE_TABLES),
        head=keys.headed(),
    )


def mbart(keys: Keys) -> Spec:
    """Liu et al. 2020: BART with the norms before, and one more at each end."""
    return kin(keys, offset=2, pre_norm=True, norm_first=True, norm_last=True)


def plbart(keys: Keys) -> Spec:
    return kin(keys, offset=2, norm_first=True, scaled=True)


def mvp(keys: Keys) -> Spec:
    keys.refuse_set("use_prompt", "prompts before each layer cannot be said yet")
    return kin(keys, offset=2, norm_first=True)


def pegasus(keys: Keys) -> Spec:
    """Zhang et al. 2020: sines for positions, which the class stores as a table; the norms before."""
    return kin(keys, pre_norm=True, norm_last=True)


def marian(keys: Keys) -> Spec:
    """Junczys-Dowmunt et al. 2018: the layout of 2017, sines stored as a table."""
    keys.refuse_set("share_encoder_decoder_embeddings", "two token tables cannot be said yet", (None, True))
    vocab_size = keys.count("vocab_size")
    keys.refuse_set("decoder_vocab_size", f"must be vocab_size ({vocab_size})", (None, vocab_size))
    return kin(keys)


def m2m_100(keys: Keys) -> Spec:
    """Fan et al. 2021 (and NLLB): sines as tensor2tensor has them, from the row after the padding's; norms before."""
    after = keys.count("pad_token_id", default=1, least=0) + 1
    return kin(keys, fixed=after, pre_norm=True, norm_last=True, activation="relu", scaled=True)


def blenderbot(keys: Keys) -> Spec:
    """Roller et al. 2021."""
    return kin(keys, rows=128, pre_norm=True, norm_last=True)


def blenderbot_small(keys: Keys) -> Spec:
    keys.leave_unsaid("The decoder norms its tokens before their positions are added: the spec says after.")
    return kin(keys, rows=512, norm_first=True)


def longt5(keys: Keys) -> Spec:
    """Guo et al. 2022 with local attention: T5's parts, which see only near."""
    keys.refuse_set("encoder_attention_type", "summaries of blocks cannot be said yet", (None, "local"))
    keys.leave_unsaid("The encoder sees blocks and their neighbours: the spec says all.")
    return t5_like(keys, default="relu", scaled=True)


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
    alone = keys.architecture().endswith(("EncoderModel", "ForTokenClassification"))
    spec = encoder_decoders.t5(
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
        head=not keys.answering() and keys.headed(),
        head_scaled=scaled,
    )
    return with_answers(keys, spec)

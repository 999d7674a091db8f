"""Readers for the kin of BERT that hold more tables, or pieces that no part of their own says: sized, not run.

Absent keys take the published class's defaults."""

from __future__ import annotations

from typing import Any

from plainformer.families import encoders
from plainformer.families.parts import layer_norm, linear
from plainformer.huggingface.configs_bertlike import eps_of, frame_of, roberta_like, stacked, vocabulary_head
from plainformer.huggingface.configs_encoder_decoders import kin
from plainformer.huggingface.configs_encoders import POOLED, with_task
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_parts import alike
from plainformer.huggingface.configs_pieces import joined
from plainformer.mixers import Convolution, Piece, Sized
from plainformer.records import replace
from plainformer.spec import Attention, Linear, Spec, Table
from plainformer.tree import rewrite


def beside(spec: Spec, *pieces: Piece, kind: str = "position") -> Spec:
    """The spec with pieces that stand beside its stacks."""
    made = Sized(width=spec.d_model, kind="position" if kind == "position" else "embedding", pieces=pieces)
    return replace(spec, towers=(*spec.towers, made))


def always_pooled(keys: Keys, spec: Spec, *, pooled: tuple[str, ...] = POOLED) -> Spec:
    """The pooler that some classes build below every head; pooled: the classes whose answer is of the pooler, or which
    bring it themselves."""
    if keys.architecture().endswith(("Model", "ForPreTraining", *pooled)):
        return spec
    return replace(spec, towers=(*spec.towers, encoders.pooler(spec.d_model)))


def big_bird(keys: Keys) -> Spec:
    """Zaheer et al. 2020: BERT's weights; each token sees its neighbours, some at random, and a few that see all."""
    if keys.get("attention_type") != "original_full":
        keys.leave_unsaid("Which tokens see which is not said: operations are those of all pairs.")
    if keys.architecture().endswith("ForQuestionAnswering"):
        keys.fault("architectures", keys.architecture(), "its head, with a feed-forward of its own, cannot be said yet")
    spec = roberta_like(keys, offset=0, rows=4096, own_activation=True)
    spec = always_pooled(keys, spec, pooled=("ForMultipleChoice", "ForNextSentencePrediction"))
    if keys.flag("use_bias", True):
        return spec

    def change(part: Any) -> Any:
        if not isinstance(part, Attention):
            return part
        bare = {name: replace(getattr(part, name), bias=False) for name in ("q", "k", "v")}
        return replace(part, **bare)

    return rewrite(spec, change)


def layoutlm(keys: Keys) -> Spec:
    """Xu et al. 2020, section 2.2: BERT with tables for where a word stands on a page."""
    keys.leave_unsaid("Four tables of places on a page are counted, and not said.")
    spec = always_pooled(keys, roberta_like(keys, offset=0, own_activation=True))
    rows = keys.count("max_2d_position_embeddings", default=1024)
    return beside(spec, *(Table(n_rows=rows, width=spec.d_model),) * 4)


def nystromformer(keys: Keys) -> Spec:
    """Xiong et al. 2021: BERT whose attention goes by landmarks, with a convolution along the tokens of each head."""
    keys.leave_unsaid("Its landmarks are not said: operations are those of all pairs.")
    kernel = keys.optional("conv_kernel_size") if "conv_kernel_size" in keys.config else 65
    spec = roberta_like(keys, offset=0, rows=510, own_activation=True, pools=False)
    assert spec.encoder is not None  # roberta_like gives one
    table = Table(n_rows=spec.max_seq_len + 2, width=spec.d_model, offset=2)
    spec = replace(spec, encoder=replace(spec.encoder, positions=table))
    if kernel is None:
        return spec
    return joined(spec, Attention, lambda part: (Convolution(channels=part.n_heads, kernel=kernel),))


def fnet(keys: Keys) -> Spec:
    """Lee-Thorp et al. 2021: BERT with a Fourier transform, which holds nothing, where attention would be."""
    keys.leave_unsaid("The Fourier transform is not said, and not in the operations.")
    keys = keys.with_also({"num_attention_heads": 1})
    spec = always_pooled(keys, roberta_like(keys, offset=0, n_types=4, own_activation=True))
    mixed = Sized(width=spec.d_model, kind="mixer", pieces=())
    spec = rewrite(spec, lambda part: mixed if isinstance(part, Attention) else part)
    return beside(spec, linear(spec.d_model, spec.d_model, bias=True), kind="embedding")


def longformer(keys: Keys) -> Spec:
    """Beltagy et al. 2020, section 3.1: RoBERTa, with projections of their own for the tokens that see all."""
    keys.leave_unsaid("Which tokens see which is not said: operations are those of all pairs, near and far.")
    spec = roberta_like(keys, offset=keys.count("pad_token_id", default=1, least=0) + 1, pools=True)

    return joined(spec, Attention, plain)


def roformer(keys: Keys) -> Spec:
    """Su et al. 2021: BERT that turns queries and keys; the sines stand in the files as a table."""
    frame, eps = frame_of(keys, rows=1536), eps_of(keys)
    d_embed = keys.count("embedding_size", default=frame.d_model)
    act, norm = keys.activation(default="gelu"), layer_norm(frame.d_model, eps)
    keys.leave_unsaid("The rotation is stored as a table, which is counted, and not said.")
    layer = encoders.post_norm_layer(frame.d_model, frame.n_heads, keys.count("intermediate_size"), act, norm)
    narrow = d_embed != frame.d_model
    spec = stacked(
        frame,
        alike(frame, layer),
        vocabulary_head(frame, eps, act, d_embed),
        n_types=keys.count("type_vocab_size", default=2),
        norm_first=layer_norm(d_embed, eps) if narrow else norm,
        positions=False,
        d_embed=d_embed,
        project=linear(d_embed, frame.d_model, bias=True) if narrow else None,
    )
    spec = with_task(keys, spec, pools=False, activation=act)
    if keys.architecture().endswith("ForMultipleChoice"):
        spec = replace(spec, head=keys.answers(frame.d_model, 1))
    return beside(spec, Table(n_rows=frame.max_seq_len, width=frame.d_head))


def roc_bert(keys: Keys) -> Spec:
    """Su et al. 2022, section 3.1: BERT with tables of how a character sounds and looks."""
    keys.leave_unsaid("Tables of sounds and shapes are counted, and not said.")
    spec = roberta_like(keys, offset=0, own_activation=True)
    if keys.architecture().endswith("ForPreTraining"):
        spec = replace(spec, towers=(encoders.pooler(spec.d_model),))
    pieces, joined_width = list[Piece](), spec.d_model
    for name, rows, width in (("pronunciation", 910, 768), ("shape", 24858, 512)):
        if keys.flag(f"enable_{name}", True):
            d_embed = keys.count(f"{name}_embed_dim", default=width)
            pieces.append(Table(n_rows=keys.count(f"{name}_vocab_size", default=rows), width=d_embed))
            joined_width += d_embed
    if keys.flag("concat_input", True):
        pieces.append(linear(joined_width, spec.d_model, bias=True))
    return beside(spec, *pieces, kind="embedding")


def deberta(keys: Keys) -> Spec:
    """He et al. 2020, section 3.1: scores by content and by distance, each with projections of its own."""
    frame, eps = frame_of(keys), eps_of(keys, 1e-7)
    norm, act = layer_norm(frame.d_model, eps), keys.activation(default="gelu")
    keys.refuse_set("legacy", "the newer head cannot be said yet", (None, True))
    keys.refuse_set("talking_head", "heads that talk cannot be said yet", (None, False))
    keys.refuse_set("padding_idx", "must be 0", (None, 0))
    relative, d_embed = keys.flag("relative_attention", False), keys.count("embedding_size", default=frame.d_model)
    said = keys.get("pos_att_type") or []
    words = said.lower().split("|") if isinstance(said, str) else said if isinstance(said, list) else []
    layer = encoders.post_norm_layer(frame.d_model, frame.n_heads, keys.count("intermediate_size"), act, norm)
    n_types = keys.count("type_vocab_size", default=0, least=0)
    spec = stacked(
        frame,
        alike(frame, layer),
        vocabulary_head(frame, eps, act, d_embed),
        n_types=n_types,
        norm_first=norm,
        positions=keys.flag("position_biased_input", True),
    )
    if d_embed != frame.d_model:
        keys.fault("embedding_size", d_embed, f"must be hidden_size ({frame.d_model})")
    unbiased = linear(frame.d_model, frame.d_model)

    def change(part: Any) -> Any:
        return replace(part, k=unbiased) if isinstance(part, Attention) else part

    spec = rewrite(with_task(keys, spec, pools=False, activation=keys.activation("pooler_hidden_act", "gelu")), change)
    if not relative:
        return spec
    keys.leave_unsaid("Scores by distance are not in the operations: a table of distances stands for them.")
    far = keys.get("max_relative_positions")
    far = far if isinstance(far, int) and far > 0 else frame.max_seq_len
    of_distance = ("c2p" in words, unbiased), ("p2c" in words, replace(unbiased, bias=True))
    spec = joined(spec, Attention, lambda part: tuple(one for here, one in of_distance if here))
    return beside(spec, Table(n_rows=2 * far, width=frame.d_model))


def led(keys: Keys) -> Spec:
    """Beltagy et al. 2020, section 7: BART, whose encoder has projections of their own for the tokens that see all."""
    keys.leave_unsaid("Which tokens see which is not said: operations are those of all pairs, near and far.")
    rows = keys.count("max_decoder_position_embeddings", default=1024)
    spec = kin(keys.with_also({"max_position_embeddings": rows}), rows=rows, norm_first=True)
    assert spec.encoder is not None  # kin gives one

    def far(part: Any) -> Any:
        if not isinstance(part, Attention):
            return part
        return Sized(width=spec.d_model, kind="attention", pieces=(part, *plain(part)))

    table = Table(n_rows=keys.count("max_encoder_position_embeddings", default=16384), width=spec.d_model)
    return replace(spec, encoder=replace(rewrite(spec.encoder, far), positions=table))


def plain(part: Attention) -> tuple[Linear, ...]:
    """The projections of an attention that are linears, as they all are here."""
    return tuple(one for one in (part.q, part.k, part.v) if isinstance(one, Linear))


def without_attention_biases(spec: Spec) -> Spec:
    def change(part: Any) -> Any:
        if not isinstance(part, Attention):
            return part
        bare = {name: replace(getattr(part, name), bias=False) for name in ("q", "k", "v", "out")}
        return replace(part, **bare)

    return rewrite(spec, change)


def bigbird_pegasus(keys: Keys) -> Spec:
    """Zaheer et al. 2020, section 4: Pegasus with BigBird's encoder."""
    if keys.get("attention_type") != "original_full":
        keys.leave_unsaid("Which tokens see which is not said: operations are those of all pairs.")
    spec = kin(keys, rows=4096, pre_norm=True, norm_last=True, activation="gelu_new", scaled=True)
    return spec if keys.flag("use_bias", False) else without_attention_biases(spec)


def pegasus_x(keys: Keys) -> Spec:
    """Phang et al. 2022, section 3: Pegasus, whose encoder sees blocks and a few rows that see all."""
    keys.leave_unsaid("Which tokens see which is not said: operations are those of all pairs.")
    spec = kin(keys, rows=16384, fixed=0, pre_norm=True, norm_last=True, scaled=True)
    spec = without_attention_biases(spec)
    assert spec.encoder is not None  # kin gives one

    def change(part: Any) -> Any:
        if not isinstance(part, Attention):
            return part
        return Sized(width=spec.d_model, kind="attention", pieces=(part, layer_norm(spec.d_model, 1e-5)))

    spec = replace(spec, encoder=rewrite(spec.encoder, change))
    return beside(spec, Table(n_rows=keys.count("num_global_tokens", default=32), width=spec.d_model))

"""Readers for decoders and encoder-decoders with pieces that no part of their own says: sized, not run.

Absent keys take the published class's defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plainformer.families.parts import linear, pre_norm_layer, rms_norm
from plainformer.huggingface.configs_encoder_decoders import THREE_TABLES, t5_like
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_llamas import llama
from plainformer.huggingface.configs_others import modernbert
from plainformer.huggingface.configs_parts import Frame, alike
from plainformer.mixers import Piece, Sized
from plainformer.records import replace
from plainformer.spec import Attention, Experts, FeedForward, SoftmaxRouter, Spec, Stack, Table
from plainformer.tree import rewrite


def joined(spec: Spec, kind: type[Attention] | type[FeedForward], more: Callable[[Any], tuple[Piece, ...]]) -> Spec:
    """The spec with pieces beside each attention (that reads its own stream) or each feed-forward."""

    def change(part: Any) -> Any:
        if not isinstance(part, kind) or getattr(part, "cross", False):
            return part
        if isinstance(part, Attention):
            return Sized(width=part.out.n_out, kind="attention", pieces=(part, *more(part)))
        return Sized(width=part.down.n_out, kind="feed_forward", pieces=(part, *more(part)))

    return rewrite(spec, change)


def bitnet(keys: Keys) -> Spec:
    """Ma et al. 2025 (BitNet b1.58 2B4T), section 2: Llama with a norm before the last product of each part."""
    keys.leave_unsaid("Weights of three values, and the norms inside the parts, are not said: numbers are counted.")
    eps = keys.real("rms_norm_eps", default=1e-5)
    spec = joined(llama(keys), Attention, lambda part: (rms_norm(part.out.n_in, eps),))
    return joined(spec, FeedForward, lambda part: (rms_norm(part.down.n_in, eps),))


def diffllama(keys: Keys) -> Spec:
    """Ye et al. 2024 (Differential Transformer), section 2.1: four vectors weigh one attention against another."""
    keys.leave_unsaid("The difference of two attentions is not said: its four vectors are counted.")
    return joined(llama(keys), Attention, lambda part: (Table(n_rows=4, width=part.d_head),))


def apertus(keys: Keys) -> Spec:
    """Swiss AI 2025 (Apertus), section 2: norms on queries and keys, an activation that learns two numbers a layer."""
    keys.refuse_set("hidden_act", "its activation is xielu", (None, "xielu"))
    keys.leave_unsaid("Its activation (xIELU) is not said: its two numbers a layer are counted.")
    frame, eps = Frame.of(keys, max_seq_len=65536), keys.real("rms_norm_eps", default=1e-5)
    norms = rms_norm(frame.d_head, eps), rms_norm(frame.d_head, eps)
    mixer = frame.attend(frame.rotary(12000000.0), bias=keys.flag("attention_bias", False), norms=norms)
    second = frame.dense(gated=False, activation="relu")
    norm = rms_norm(frame.d_model, eps)
    spec = frame.whole(alike(frame, pre_norm_layer(mixer, second, norm)), norm, tied=False)
    return joined(spec, FeedForward, lambda part: (Table(n_rows=1, width=2),))


def umt5(keys: Keys) -> Spec:
    """Chung et al. 2023: mT5 with a bias by distance in each layer."""
    keys.leave_unsaid("The bias by distance that each layer has of its own is not said: it is counted.")
    spec = t5_like(keys, default="gated-gelu", scaled=False)
    relative = spec.encoder.relative if spec.encoder else None
    assert relative is not None  # t5_like gives one
    spec = rewrite(spec, lambda part: replace(part, relative=None) if isinstance(part, Stack) else part)
    table = Table(n_rows=relative.n_buckets, width=relative.n_heads)
    return joined(spec, Attention, lambda part: (table,))


def switch_transformers(keys: Keys) -> Spec:
    """Fedus et al. 2021, section 2: T5 with experts in the last of every few layers, one met by a token."""
    keys = keys.with_also({"num_decoder_layers": 12})  # the class's default; null is as many as num_layers
    keys.tied_or_refused(THREE_TABLES)
    spec = t5_like(keys, default="relu", scaled=True)
    n_experts = keys.count("num_experts", default=8)
    bias = keys.flag("router_bias", False)
    n_layers = keys.layers("num_layers", "num_hidden_layers")
    n_decoder = keys.layers("num_decoder_layers", default=n_layers)

    def mixed(stack: Stack | None, n_sparse: int, n_layers: int) -> Stack | None:
        step = n_layers // n_sparse if n_sparse else n_layers
        if stack is None or not step:
            return stack

        def sparse(part: Any) -> Any:
            if not isinstance(part, FeedForward):
                return part
            scores = linear(part.up.n_in, n_experts, bias)
            router = SoftmaxRouter(scores=scores, n_chosen=1, normalised=False)
            return Experts(router=router, expert=part, n_experts=n_experts)

        layer = stack.layers[0]
        # of none asked for the class still makes the second layer one
        here = [i % step == 1 or step == 1 for i in range(len(stack.layers))]
        other = rewrite(layer, sparse)
        return replace(stack, layers=tuple(other if this else layer for this in here))

    return replace(
        spec,
        encoder=mixed(spec.encoder, keys.count("num_sparse_encoder_layers", default=3, least=0), n_layers),
        decoder=mixed(spec.decoder, keys.count("num_sparse_decoder_layers", default=3, least=0), n_decoder),
    )


def modernbert_decoder(keys: Keys) -> Spec:
    """Weller et al. 2025 (Ettin), section 3: ModernBERT's parts, each token sees those before it."""
    spec = modernbert(keys)
    assert spec.encoder is not None  # modernbert gives one
    window = keys.count("sliding_window", default=max(1, keys.count("local_attention", default=128) // 2))

    def change(part: Any) -> Any:
        return replace(part, window=window) if isinstance(part, Attention) and part.window is not None else part

    head = spec.head
    if head and keys.architecture().endswith("ForSequenceClassification"):
        head = replace(head, linear=replace(head.linear, bias=keys.flag("classifier_bias", False)))
    return replace(spec, encoder=None, decoder=rewrite(replace(spec.encoder, causal=True), change), head=head)

"""Readers for decoders whose attention is chosen by a small second one, gated and sandwiched mixtures, and XLM: sized,
not run. Absent keys take the published class's defaults."""

from __future__ import annotations

from typing import Any

from plainformer.families import encoders
from plainformer.families.parts import Layer, feed_forward, layer_norm, linear, rms_norm, sublayer
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_mixtures import deepseek_v3
from plainformer.huggingface.configs_parts import Frame, by_kind
from plainformer.mixers import GatedAttention, LatentAttention, Sized
from plainformer.records import replace
from plainformer.spec import Activation, Experts, FeedForward, Head, Spec, Stack, Table, Tokens
from plainformer.tree import rewrite


def indexed(keys: Keys, n_heads: int) -> Spec:
    """DeepSeek-V3 with an indexer in each layer, which keeps a key of its own for each token."""
    keys.leave_unsaid("Which tokens the indexer leaves is not said: operations are those of all pairs.")
    for name, word in (("layer_types", "indexed_attention"), ("indexer_types", "full")):
        words = keys.get(name) or []
        if not isinstance(words, list) or any(one != word for one in words):
            keys.fault(name, words, f"other than {word} in each layer cannot be said yet")
    n_dense, words = keys.count("first_k_dense_replace", default=3, least=0), keys.get("mlp_layer_types")
    n_layers = keys.layers("num_hidden_layers")
    pattern = ["dense"] * min(n_dense, n_layers) + ["sparse"] * max(0, n_layers - n_dense)
    if words is not None and words != pattern:
        keys.fault("mlp_layer_types", words, "must be as first_k_dense_replace has it: other orders cannot be said yet")
    keys.refuse_set("mlp_bias", "biases of dense and shared parts alone cannot be said yet")
    spec = deepseek_v3(keys.with_also({"n_group": 1, "topk_group": 1} if n_heads == 32 else {}))
    n_heads, d_head = keys.count("index_n_heads", default=n_heads), keys.count("index_head_dim", default=128)
    rank = keys.optional("q_lora_rank") if "q_lora_rank" in keys.config else (2048 if n_heads == 32 else 1536)
    if rank is None:
        keys.fault("q_lora_rank", None, "is missing, and the indexer reads the queries' low rank")
    d_model = spec.d_model
    pieces = (linear(rank or 1, n_heads * d_head), linear(d_model, d_head), layer_norm(d_head, 1e-6))

    def change(part: Any) -> Any:
        if not isinstance(part, LatentAttention):
            return part
        every = (part, *pieces, linear(d_model, n_heads))
        return Sized(width=d_model, kind="attention", pieces=every, keeps=d_head)

    return rewrite(spec, change)


def deepseek_v32(keys: Keys) -> Spec:
    """DeepSeek-AI 2025 (V3.2), section 2.1: V3 whose attention reads the tokens that an indexer scores highest."""
    return indexed(keys, 64)


def glm_moe_dsa(keys: Keys) -> Spec:
    """Zhipu 2026 (GLM-5): DeepSeek-V3.2's layers."""
    sizes = {"qk_nope_head_dim": 192, "v_head_dim": 256, "q_lora_rank": 2048, "max_position_embeddings": 202752}
    return indexed(keys.with_also(sizes), 32)


def afmoe(keys: Keys) -> Spec:
    """Arcee 2025 (Trinity): gated attention, windows in a pattern, norms on both sides, experts with a correction that
    counts as a parameter."""
    keys.leave_unsaid("The correction of each expert's score is a parameter of this class, counted and not said.")
    frame, eps = Frame.of(keys, max_seq_len=16384), keys.real("rms_norm_eps", default=1e-5)
    frame = replace(frame, d_head=keys.count("head_dim", default=128))
    norm, head_norm = rms_norm(frame.d_model, eps), rms_norm(frame.d_head, eps)
    bias, window = keys.flag("attention_bias", False), keys.count("sliding_window", default=1024)
    every = keys.count("global_attn_every_n_layers", default=4)
    pattern = [None if (i + 1) % every == 0 else window for i in range(frame.n_layers)]
    windows, d_expert = keys.windows(frame.n_layers, pattern, window), keys.count("moe_intermediate_size", default=1408)
    n_dense = keys.count("num_dense_layers", default=1, least=0)
    act = keys.activation()
    experts: Experts = frame.experts(
        frame.sigmoid("num_experts", experts=64, chosen=6),
        d_expert,
        d_shared=keys.count("num_shared_experts", default=2, least=0) * d_expert,
    )
    pieces = (experts, Table(n_rows=1, width=experts.n_experts))
    sparse = Sized(width=frame.d_model, kind="feed_forward", pieces=pieces)
    dense: FeedForward = feed_forward(frame.d_model, keys.count("intermediate_size", default=6144), act, gated=True)

    def layer(kind: tuple[int | None, bool]) -> Layer:
        near, early = kind
        rotary = frame.rotary() if near else None
        part = frame.attend(rotary, bias=bias, norms=(head_norm, head_norm), window=near)
        gated = GatedAttention(attention=part, gate=linear(frame.d_model, part.out.n_in))
        second = dense if early else sparse
        return (
            sublayer("attention", gated, norm_in=norm, norm_out=norm),
            sublayer("feed_forward", second, norm_in=norm, norm_out=norm),
        )

    layers = by_kind([(near, i < n_dense) for i, near in enumerate(windows)], layer)
    return frame.whole(layers, norm, tied=False)


def xlm(keys: Keys) -> Spec:
    """Lample and Conneau 2019, section 3: BERT's layers, a table of languages where there are several."""
    keys.refuse_set("asm", "a head in clusters cannot be said yet")
    keys.refuse_set("is_encoder", "a decoder of this family cannot be said yet", (None, True))
    keys.refuse_set("causal", "a decoder of this family cannot be said yet")
    d_model, n_heads = keys.count("emb_dim", default=2048), keys.count("n_heads", default=16)
    keys = keys.with_also({"emb_dim": d_model, "n_heads": n_heads})
    keys.divides("n_heads", "emb_dim")
    eps, rows = keys.real("layer_norm_eps", default=1e-12), keys.count("max_position_embeddings", default=512)
    act: Activation = "gelu" if keys.flag("gelu_activation", True) else "relu"
    norm, vocab_size = layer_norm(d_model, eps), keys.count("vocab_size", default=30145)
    name = keys.architecture()
    if name and not name.endswith(("LMHeadModel", "Model")):
        keys.fault("architectures", name, "the head of this class cannot be said yet")
    layer = encoders.post_norm_layer(d_model, n_heads, 4 * d_model, act, norm)
    n_langs = keys.count("n_langs", default=1)
    types = Table(n_rows=n_langs, width=d_model) if n_langs > 1 and keys.flag("use_lang_emb", True) else None
    headed = not name or name.endswith("LMHeadModel")
    keys.leave_unsaid("Languages are said as types of tokens.")
    return Spec(
        embedding=Tokens(table=Table(n_rows=vocab_size, width=d_model), types=types),
        encoder=Stack(
            layers=(layer,) * keys.layers("n_layers", default=12),
            causal=False,
            positions=Table(n_rows=rows, width=d_model),
            norm_first=norm,
        ),
        head=Head(linear=linear(d_model, vocab_size, True), tied=keys.tied(True)) if headed else None,
        max_seq_len=rows,
    )


def flaubert(keys: Keys) -> Spec:
    """Le et al. 2020: XLM, whose norms may stand before the parts."""
    if keys.flag("pre_norm", False):
        keys.leave_unsaid("Its norms stand before the parts: they are counted as if after.")
    return xlm(keys)

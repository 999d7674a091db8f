"""Readers for Llama, Mistral, Qwen2, Qwen3, OLMo 2 and 3. Absent keys take the published class's defaults."""

from __future__ import annotations

from typing import Any

from plainformer.families import llamas
from plainformer.families.parts import Windows
from plainformer.huggingface.configs_keys import Keys
from plainformer.records import replace
from plainformer.spec import Attention, Spec
from plainformer.tree import rewrite


def llama_like(
    keys: Keys,
    *,
    max_seq_len: int,
    heads: tuple[int, int, int],
    windows: Windows | None = None,
    qkv_bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
) -> Spec:
    """What all of these say by the same names."""
    n_heads, n_kv_heads, d_head = heads
    return keys.with_head(
        llamas.llama(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=keys.count("hidden_size"),
            n_layers=keys.layers("num_hidden_layers"),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            d_ff=keys.count("intermediate_size"),
            theta=keys.theta(),
            scaling=keys.scaling(max_seq_len),
            windows=windows,
            activation=keys.activation(),
            eps=keys.real("rms_norm_eps", default=1e-6),
            tied=keys.tied(False),
            qkv_bias=qkv_bias,
            out_bias=out_bias,
            mlp_bias=mlp_bias,
            qk_norm=qk_norm,
        )
    )


def llama(keys: Keys) -> Spec:
    bias = keys.flag("attention_bias", False)
    return llama_like(
        keys,
        max_seq_len=keys.count("max_position_embeddings", default=2048),
        heads=keys.heads(),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=keys.flag("mlp_bias", False),
    )


def mistral(keys: Keys) -> Spec:
    window = keys.optional("sliding_window") if "sliding_window" in keys.config else 4096
    return llama_like(
        keys,
        max_seq_len=keys.count("max_position_embeddings", default=131072),
        heads=keys.heads(kv_default=8),
        windows=(window,) * keys.layers("num_hidden_layers"),
    )


def switched_window(keys: Keys) -> int | None:
    """The window that use_sliding_window switches on: the class's where none is said, none where it is null."""
    if not keys.flag("use_sliding_window", False):
        return None
    return keys.optional("sliding_window") if "sliding_window" in keys.config else 4096


def qwen_windows(keys: Keys) -> Windows:
    """By layer_types; else, where the switch is on, all layers from max_window_layers on."""
    n_layers, window = keys.layers("num_hidden_layers"), switched_window(keys)
    first = keys.count("max_window_layers", default=28, least=0)
    return keys.windows(n_layers, [window if i >= first else None for i in range(n_layers)], window)


def qwen2(keys: Keys) -> Spec:
    return llama_like(
        keys,
        max_seq_len=keys.count("max_position_embeddings", default=32768),
        heads=keys.heads(kv_default=32),
        windows=qwen_windows(keys),
        qkv_bias=True,
    )


def qwen3(keys: Keys) -> Spec:
    bias = keys.flag("attention_bias", False)
    return llama_like(
        keys,
        max_seq_len=keys.count("max_position_embeddings", default=32768),
        heads=keys.heads(kv_default=32, d_head_default=128),
        windows=qwen_windows(keys),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=True,
    )


def olmo2(keys: Keys) -> Spec:
    return olmo_like(keys, None)


def olmo3(keys: Keys) -> Spec:
    n_layers, window = keys.layers("num_hidden_layers"), keys.count("sliding_window", default=4096)
    pattern = [None if i % 4 == 3 else window for i in range(n_layers)]
    spec = olmo_like(keys, keys.windows(n_layers, pattern, window), layer_type="full_attention")
    if not keys.rope_by_type():
        return spec
    theta = keys.theta(layer_type="sliding_attention")
    scaling = keys.scaling(spec.max_seq_len, "sliding_attention")

    def change(part: Any) -> Any:
        if not isinstance(part, Attention) or part.window is None or part.scores.rotary is None:
            return part
        near = replace(part.scores.rotary, theta=theta, scaling=scaling)
        return replace(part, scores=replace(part.scores, rotary=near))

    return rewrite(spec, change)


def olmo_like(keys: Keys, windows: Windows | None, layer_type: str | None = None) -> Spec:
    """layer_type: whose rotary settings count, where each kind of layer has its own."""
    n_heads, n_kv_heads, d_head = keys.heads()
    max_seq_len = keys.count("max_position_embeddings", default=2048)
    return keys.with_head(
        llamas.olmo2(
            vocab_size=keys.count("vocab_size"),
            max_seq_len=max_seq_len,
            d_model=keys.count("hidden_size"),
            n_layers=keys.layers("num_hidden_layers"),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            d_ff=keys.count("intermediate_size"),
            theta=keys.theta(layer_type=layer_type),
            scaling=keys.scaling(max_seq_len, layer_type),
            windows=windows,
            activation=keys.activation(),
            eps=keys.real("rms_norm_eps", default=1e-5),
            tied=keys.tied(False),
            bias=keys.flag("attention_bias", False),
        )
    )

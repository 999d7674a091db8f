"""Models that are one file: GGUF, and llama2.c's. Each is read as the published class of its family would be."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plainformer.checkpoint.sources import Source
from plainformer.faults import refuse
from plainformer.huggingface import headers, read
from plainformer.huggingface.gguf_header import File, Held, read_gguf

Config = dict[str, Any]

# --- GGUF -------------------------------------------------------------------------------------------------------------

LLAMA = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "blk.{i}.attn_norm": "model.layers.{i}.input_layernorm",
    "blk.{i}.attn_q": "model.layers.{i}.self_attn.q_proj",
    "blk.{i}.attn_k": "model.layers.{i}.self_attn.k_proj",
    "blk.{i}.attn_v": "model.layers.{i}.self_attn.v_proj",
    "blk.{i}.attn_q_norm": "model.layers.{i}.self_attn.q_norm",
    "blk.{i}.attn_k_norm": "model.layers.{i}.self_attn.k_norm",
    "blk.{i}.attn_output": "model.layers.{i}.self_attn.o_proj",
    "blk.{i}.ffn_norm": "model.layers.{i}.post_attention_layernorm",
    "blk.{i}.ffn_gate": "model.layers.{i}.mlp.gate_proj",
    "blk.{i}.ffn_up": "model.layers.{i}.mlp.up_proj",
    "blk.{i}.ffn_down": "model.layers.{i}.mlp.down_proj",
}
GPT2 = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "blk.{i}.attn_norm": "transformer.h.{i}.ln_1",
    "blk.{i}.attn_qkv": "transformer.h.{i}.attn.c_attn",
    "blk.{i}.attn_output": "transformer.h.{i}.attn.c_proj",
    "blk.{i}.ffn_norm": "transformer.h.{i}.ln_2",
    "blk.{i}.ffn_up": "transformer.h.{i}.mlp.c_fc",
    "blk.{i}.ffn_down": "transformer.h.{i}.mlp.c_proj",
}
FAMILIES = {"llama": LLAMA, "qwen2": LLAMA, "qwen3": LLAMA, "gpt2": GPT2}
DTYPES = {0: "F32", 1: "F16", 30: "BF16"}  # all others are unpacked, to float32


def gguf_source(path: Path) -> Source:
    """A GGUF file as the folder it was made from, its packed numbers unpacked by the gguf package.

    Raises PlainformerError: damaged, a family without a table here, the package absent.
    """
    file = read_gguf(str(path))
    family = file.keys.get("general.architecture")
    if family not in FAMILIES:
        hint = f"there are {', '.join(FAMILIES)}"
        raise refuse(f"{path}: general.architecture", family, "has no table of tensor names yet", hint)
    config = gguf_config(file, str(family), str(path))
    held = {their_name(FAMILIES[str(family)], name, str(path)): (name, one) for name, one in file.tensors.items()}
    held.pop("", None)
    sizes = sizes_of(path, [one.kind for _, one in held.values()])
    told: dict[str, headers.Tensor] = {}
    for name, (_, one) in held.items():
        per_block, n_bytes = sizes[one.kind]
        whole = prod(one.shape) // per_block * n_bytes
        if (one.shape[-1:] or (0,))[0] % per_block or one.begin + whole > file.size:
            raise refuse(f"{path}: {name}", one.shape, f"is cut short, or does not fit blocks of {per_block}")
        shape = one.shape[::-1] if turned(str(family), name) else one.shape
        told[name] = headers.Tensor(path.name, DTYPES.get(one.kind, "F32"), shape, whole)

    def tensor(name: str) -> Tensor:
        _, one = held[name]
        numbers = unpacked(path, one, sizes[one.kind])
        numbers = numbers.T if turned(str(family), name) else numbers
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        return in_halves(numbers, int(config[heads])) if family == "llama" and heads else numbers

    return Source(str(path), read(config, str(path)), told, tensor)


def turned(family: str, name: str) -> bool:
    """GPT-2's linears are stored (inputs, outputs) by its class, and (outputs, inputs) here."""
    return family == "gpt2" and ".c_" in name and name.endswith(".weight")


def sizes_of(path: Path, kinds: list[int]) -> dict[int, tuple[int, int]]:
    """For each kind how many numbers a block has, and how many bytes."""
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError:
        raise refuse(str(path), "gguf", "needs the gguf package", "pip install 'plainformer[gguf]'") from None
    known = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}
    if unknown := [kind for kind in kinds if kind not in known]:
        raise refuse(str(path), unknown[0], "is no kind of number that the gguf package knows")
    from gguf.quants import _type_traits as unpackable

    plain = {int(GGMLQuantizationType.F32), int(GGMLQuantizationType.F16), int(GGMLQuantizationType.BF16)}
    if left := [kind for kind in kinds if kind not in plain and GGMLQuantizationType(kind) not in unpackable]:
        raise refuse(str(path), GGMLQuantizationType(left[0]).name, "is packed in a way that gguf does not unpack")
    return {kind: known[kind] for kind in kinds}


def unpacked(path: Path, one: Held, sizes: tuple[int, int]) -> Tensor:
    """The numbers of one tensor, from the file's bytes."""
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    per_block, n_bytes = sizes
    if not prod(one.shape):
        return torch.zeros(one.shape)
    row = one.shape[-1] // per_block * n_bytes
    raw = np.memmap(path, np.uint8, "r", one.begin, (prod(one.shape[:-1]), row))
    if one.kind in DTYPES:
        dtype = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}[one.kind]
        numbers: Tensor = torch.from_numpy(np.array(raw)).view(dtype).reshape(one.shape)
        return numbers
    plain = dequantize(np.asarray(raw), GGMLQuantizationType(one.kind))
    floats: Tensor = torch.from_numpy(np.ascontiguousarray(plain, np.float32)).reshape(one.shape)
    return floats


def in_halves(rows: Tensor, n_heads: int) -> Tensor:
    """Rows of each head from pairs side by side, as llama.cpp turns them, to first and second halves."""
    if rows.shape[0] % (2 * n_heads):
        return rows  # of another shape than the config says: told by its shape
    halves: Tensor = rows.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return halves


def their_name(table: Mapping[str, str], name: str, path: str) -> str:
    """A tensor's name in the published class; empty for what is no weight."""
    if name == "rope_freqs.weight":
        return ""
    stem, _, kind = name.rpartition(".")
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    theirs = table.get(f"blk.{{i}}.{found[2]}" if found else stem)
    if theirs is None or kind not in ("weight", "bias"):
        raise refuse(f"{path}: {name}", None, "is no tensor of this family that is known here")
    return f"{theirs.replace('{i}', found[1]) if found else theirs}.{kind}"


def gguf_config(file: File, family: str, path: str) -> Config:
    """The config.json that the file was made from, as far as its keys say it."""

    def said(name: str, default: Any = None) -> Any:
        value = file.keys.get(f"{family}.{name}", default)
        value = float(str(np.float32(value))) if isinstance(value, float) else value  # as it was before it was float32
        if value is None:
            raise refuse(f"{path}: {family}.{name}", None, "is missing")
        return value

    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise refuse(f"{path}: token_embd.weight", None, "is missing")
    if file.keys.get(f"{family}.expert_count"):
        raise refuse(f"{path}: {family}.expert_count", said("expert_count"), "mixtures in GGUF are not read yet")
    tied, d_model, n_heads = "output.weight" not in file.tensors, said("embedding_length"), said("attention.head_count")
    config: Config = {"model_type": family, "vocab_size": table.shape[0], "tie_word_embeddings": tied}
    if family == "gpt2":
        eps = said("attention.layer_norm_epsilon")
        sizes = {
            "n_embd": d_model,
            "n_layer": said("block_count"),
            "n_head": n_heads,
            "n_inner": said("feed_forward_length"),
        }
        return config | sizes | {"n_positions": said("context_length"), "layer_norm_epsilon": eps}
    d_head = said("attention.key_length", d_model // n_heads if isinstance(n_heads, int) and n_heads > 0 else 0)
    config |= {
        "hidden_size": d_model,
        "intermediate_size": said("feed_forward_length"),
        "num_hidden_layers": said("block_count"),
        "num_attention_heads": n_heads,
        "num_key_value_heads": said("attention.head_count_kv", n_heads),
        "head_dim": d_head,
        "max_position_embeddings": said("context_length"),
        "rms_norm_eps": said("attention.layer_norm_rms_epsilon"),
        "rope_theta": said("rope.freq_base", 10000.0),
    }
    if family == "llama":
        config |= {
            "attention_bias": "blk.0.attn_q.bias" in file.tensors,
            "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        }
    return config | ({"rope_scaling": scaling} if (scaling := stretched(file, family, path)) else {})


def stretched(file: File, family: str, path: str) -> Config | None:
    """How rotary frequencies are stretched: by divisors that the file holds (Llama 3.1), or by a rule that it names."""
    if held := file.tensors.get("rope_freqs.weight"):
        if held.kind != 0 or len(held.shape) != 1 or held.begin + 4 * held.shape[0] > file.size:
            raise refuse(f"{path}: rope_freqs.weight", held.shape, "must be one row of float32")
        by = np.fromfile(path, "<f4", held.shape[0], offset=held.begin).tolist()
        first = file.keys.get(f"{family}.context_length")
        told = {"rope_type": "longrope", "short_factor": by, "long_factor": by, "attention_factor": 1.0}
        return told | {"original_max_position_embeddings": first}
    kind, factor = (file.keys.get(f"{family}.rope.scaling.{name}") for name in ("type", "factor"))
    if kind in (None, "none"):
        return None
    if kind not in ("linear", "yarn"):
        raise refuse(f"{path}: {family}.rope.scaling.type", kind, "is not read yet", "linear and yarn are")
    first = file.keys.get(f"{family}.rope.scaling.original_context_length")
    return {"rope_type": kind, "factor": factor} | ({"original_max_position_embeddings": first} if first else {})


# --- llama2.c ---------------------------------------------------------------------------------------------------------

HEADER = struct.Struct("<7i")


def is_llama2c(path: Path) -> bool:
    """Whether a file begins with seven numbers that make a model of just this file's size."""
    return bool(kinds_of(path))


def kinds_of(path: Path) -> dict[str, tuple[int, ...]]:
    """Each kind of tensor and its shape, all layers together, in the file's order; empty where it is no such file."""
    size = os.path.getsize(path)
    with path.open("rb") as opened:
        start = opened.read(HEADER.size)
    if len(start) < HEADER.size:
        return {}
    d_model, d_ff, n_layers, n_heads, n_kv_heads, vocab_size, context = HEADER.unpack(start)
    if min(d_model, d_ff, n_layers, n_heads, n_kv_heads, abs(vocab_size), context) < 1 or d_model % n_heads:
        return {}
    d_head = d_model // n_heads
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens": (1, abs(vocab_size), d_model),
        "model.layers.{i}.input_layernorm": (n_layers, d_model),
        "model.layers.{i}.self_attn.q_proj": (n_layers, d_model, d_model),
        "model.layers.{i}.self_attn.k_proj": (n_layers, n_kv_heads * d_head, d_model),
        "model.layers.{i}.self_attn.v_proj": (n_layers, n_kv_heads * d_head, d_model),
        "model.layers.{i}.self_attn.o_proj": (n_layers, d_model, d_model),
        "model.layers.{i}.post_attention_layernorm": (n_layers, d_model),
        "model.layers.{i}.mlp.gate_proj": (n_layers, d_ff, d_model),
        "model.layers.{i}.mlp.down_proj": (n_layers, d_model, d_ff),
        "model.layers.{i}.mlp.up_proj": (n_layers, d_ff, d_model),
        "model.norm": (1, d_model),
        "": (2, context, d_head // 2),  # rotary tables, which nobody reads
    }
    shapes |= {"lm_head": (1, -vocab_size, d_model)} if vocab_size < 0 else {}
    return shapes if HEADER.size + 4 * sum(map(prod, shapes.values())) == size else {}


def llama2c_source(path: Path) -> Source:
    """llama2.c's first form: seven numbers, then float32 of all layers, kind by kind. A head of its own is told by a
    vocabulary below 0."""
    with path.open("rb") as opened:
        d_model, d_ff, n_layers, n_heads, n_kv_heads, vocab_size, context = HEADER.unpack(opened.read(HEADER.size))
    config = {
        "model_type": "llama",
        "vocab_size": abs(vocab_size),
        "hidden_size": d_model,
        "intermediate_size": d_ff,
        "num_hidden_layers": n_layers,
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv_heads,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": vocab_size > 0,
    }
    told: dict[str, headers.Tensor] = {}
    begins: dict[str, int] = {}
    at = HEADER.size
    for kind, (n, *shape) in kinds_of(path).items():
        for i in range(n):
            if kind:
                name = f"{kind.replace('{i}', str(i))}.weight"
                told[name] = headers.Tensor(path.name, "F32", tuple(shape), 4 * prod(shape))
                begins[name] = at
            at += 4 * prod(shape)

    def tensor(name: str) -> Tensor:
        shape = told[name].shape
        numbers = torch.from_numpy(np.fromfile(path, "<f4", prod(shape), offset=begins[name])).reshape(shape)
        heads = {"q_proj": n_heads, "k_proj": n_kv_heads}.get(name.split(".")[-2])
        return in_halves(numbers, heads) if heads else numbers

    return Source(str(path), read(config, str(path)), told, tensor)

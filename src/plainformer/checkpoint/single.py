"""Models that are one file: GGUF, and llama2.c's. Each is read as the published class of its family would be."""

from __future__ import annotations

import os
import struct
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plainformer.checkpoint.sources import Source
from plainformer.faults import refuse
from plainformer.huggingface import headers, read
from plainformer.huggingface.gguf_files import Form, Piece, read_model

# --- GGUF -------------------------------------------------------------------------------------------------------------

DTYPES = {0: "F32", 1: "F16", 30: "BF16"}  # all others are unpacked, to float32
PLAIN = {0: (torch.float32, 4), 1: (torch.float16, 2), 30: (torch.bfloat16, 2)}


def gguf_source(path: Path) -> Source:
    """A GGUF file as the folder it was made from, its packed numbers unpacked by the gguf package.

    Raises PlainformerError: damaged, a family without a table here, the package absent.
    """
    model = read_model(str(path))
    form, config = model.form, model.reading.config
    sizes = sizes_of(path, [piece.held.kind for piece in model.pieces.values()])
    told: dict[str, headers.Tensor] = {}
    for name, piece in model.pieces.items():
        one, shape = piece.held, piece.shape
        per_block, n_bytes = sizes[one.kind]
        whole = prod(one.shape) // per_block * n_bytes
        if (one.shape[-1:] or (0,))[0] % per_block or one.begin + whole > model.file.size:
            raise refuse(f"{path}: {name}", one.shape, f"is cut short, or does not fit blocks of {per_block}")
        shape = shape[::-1] if turned(form, name) else shape
        told[name] = headers.Tensor(path.name, DTYPES.get(one.kind, "F32"), shape, prod(shape) // per_block * n_bytes)

    def tensor(name: str) -> Tensor:
        piece = model.pieces[name]
        numbers = unpacked(path, piece, sizes[piece.held.kind])
        numbers = numbers.T if turned(form, name) else numbers
        if form.plus_one and name.endswith("norm.weight"):
            numbers = numbers - 1
        heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
        return in_halves(numbers, int(config[heads])) if form.pairs and heads else numbers

    return Source(str(path), model.reading, told, tensor)


def turned(form: Form, name: str) -> bool:
    """GPT-2's linears are stored (inputs, outputs) by its class, and (outputs, inputs) here."""
    return form.turned and ".c_" in name and name.endswith(".weight")


def sizes_of(path: Path, kinds: list[int]) -> dict[int, tuple[int, int]]:
    """For each kind how many numbers a block has, and how many bytes. Packed ones are told by the gguf package."""
    plain = {kind: (1, n_bytes) for kind, (_, n_bytes) in PLAIN.items()}
    if not set(kinds) - plain.keys():
        return plain
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    except ImportError:
        raise refuse(str(path), "gguf", "needs the gguf package", "pip install 'plainformer[gguf]'") from None
    known = {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}
    if unknown := [kind for kind in kinds if kind not in known]:
        raise refuse(str(path), unknown[0], "is no kind of number that the gguf package knows")
    from gguf.quants import _type_traits as unpackable

    if left := [kind for kind in kinds if kind not in plain and GGMLQuantizationType(kind) not in unpackable]:
        raise refuse(str(path), GGMLQuantizationType(left[0]).name, "is packed in a way that gguf does not unpack")
    return {kind: known[kind] for kind in kinds}


def unpacked(path: Path, piece: Piece, sizes: tuple[int, int]) -> Tensor:
    """The numbers of one tensor, from the file's bytes."""
    one, shape, (per_block, n_bytes) = piece.held, piece.shape, sizes
    if not prod(shape):
        return torch.zeros(shape)
    row, n_rows = shape[-1] // per_block * n_bytes, prod(shape[:-1])
    begin = one.begin + (piece.expert or 0) * n_rows * row
    raw = np.memmap(path, np.uint8, "r", begin, (n_rows, row))
    if one.kind in PLAIN:
        numbers: Tensor = torch.from_numpy(np.array(raw)).view(PLAIN[one.kind][0]).reshape(shape)
        return numbers
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    plain = dequantize(np.asarray(raw), GGMLQuantizationType(one.kind))
    floats: Tensor = torch.from_numpy(np.ascontiguousarray(plain, np.float32)).reshape(shape)
    return floats


def in_halves(rows: Tensor, n_heads: int) -> Tensor:
    """Rows of each head from pairs side by side, as llama.cpp turns them, to first and second halves."""
    if rows.shape[0] % (2 * n_heads):
        return rows  # of another shape than the config says: told by its shape
    halves: Tensor = rows.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return halves


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

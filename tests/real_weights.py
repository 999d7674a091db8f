"""Weights that others trained, from the shared files: each as (spec, arrays by our names, model in float64).

T tokens, V vocabulary.
"""

from __future__ import annotations

import base64
import json
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

import laws
import specs
from plainformer.checkpoint.hub import load_hub
from plainformer.families import decoders, llamas
from plainformer.huggingface import names
from plainformer.model import Transformer
from plainformer.spec import Spec

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Real:
    """One model, twice: arrays for the reference, and the modules."""

    spec: Spec
    arrays: Arrays
    model: Transformer

    @classmethod
    def of(cls, spec: Spec, arrays: Arrays) -> Real:
        arrays = {name: np.ascontiguousarray(array, np.float64) for name, array in arrays.items()}
        return cls(spec, arrays, laws.double(spec, arrays))


def truth(cases: Path, name: str) -> dict[str, Any]:
    return json.loads((cases / "cases" / "real" / f"{name}_truth.json").read_text(encoding="utf-8"))


def tensors(cases: Path, name: str) -> Arrays:
    return dict(np.load(cases / "cases" / "real" / f"{name}.npz"))


def decoded(file: Path) -> tuple[dict[str, Any], Arrays]:
    """A JSON of llm-viz: its config, and its tensors from base64 of little-endian float32."""
    held = json.loads(file.read_text(encoding="utf-8"))
    config = held.pop("config")
    return config, {
        name: np.frombuffer(base64.b64decode(one["data"]), "<f4").reshape(one["shape"]) for name, one in held.items()
    }


def sorter(cases: Path) -> Real:
    """minGPT's sorter of six digits: GPT-2's names, its linears lying as x W^T reads them."""
    config, theirs = decoded(cases / "data" / "gpt-nano-sort-model.json")
    spec = decoders.gpt2(
        vocab_size=config["vocab_size"],
        max_seq_len=config["block_size"],
        d_model=config["n_embd"],
        n_layers=config["n_layer"],
        n_heads=config["n_head"],
        tied=False,
    )
    theirs = {name: a.T if ".c_" in name and a.ndim == 2 else a for name, a in theirs.items()}
    return Real.of(spec, names.to_ours("gpt2", spec, theirs, np))


def stories(cases: Path) -> Real:
    """llama2.c's file: seven numbers, then the tensors of all layers, kind by kind; pairs lie side by side."""
    data = (cases / "data" / "stories260K.bin").read_bytes()
    d_model, d_ff, n_layers, n_heads, n_kv_heads, vocab_size, max_seq_len = struct.unpack("<7i", data[:28])
    d_head, rest = d_model // n_heads, np.frombuffer(data[28:], "<f4")

    def take(*shape: int) -> Iterator[np.ndarray]:
        nonlocal rest
        size = int(np.prod(shape))
        array, rest = rest[:size].reshape(shape), rest[size:]
        return iter(array)

    plain = llamas.llama(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        d_ff=d_ff,
        eps=1e-5,
        tied=True,
    )
    spec = specs.turned(plain, interleaved=True)
    arrays: Arrays = {"embedding.weight": np.stack(list(take(vocab_size, d_model)))}
    for name, shape in {
        "attention_norm": (d_model,),
        "attention.q": (d_model, d_model),
        "attention.k": (n_kv_heads * d_head, d_model),
        "attention.v": (n_kv_heads * d_head, d_model),
        "attention.out": (d_model, d_model),
        "feed_forward_norm": (d_model,),
        "feed_forward.gate": (d_ff, d_model),
        "feed_forward.down": (d_model, d_ff),
        "feed_forward.up": (d_ff, d_model),
    }.items():
        for i, array in enumerate(take(n_layers, *shape)):
            arrays[f"decoder.layers.{i}.{name}.weight"] = array
    arrays["decoder.norm_last.weight"] = np.array(list(take(d_model)))
    assert len(rest) == max_seq_len * d_head, "what is left are rotary tables, which the file keeps and nobody reads"
    return Real.of(spec, arrays)


def pieces(cases: Path) -> list[bytes]:
    """llama2.c's tokens: for each a score, a length and its bytes."""
    data, found = (cases / "data" / "tok512.bin").read_bytes()[4:], []
    while data:
        (length,) = struct.unpack("<i", data[4:8])
        piece = data[8 : 8 + length]
        found.append(bytes([int(piece[3:5], 16)]) if piece.startswith(b"<0x") else piece)
        data = data[8 + length :]
    return found


def from_folder(folder: Path, config: dict[str, Any], weights: Path) -> Real:
    """As published: a config.json beside a model.safetensors, opened as any folder of the hub."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    shutil.copy(weights, folder / "model.safetensors")
    model = load_hub(folder, torch.float64)  # its spec: a head of its own if the tensors say so
    ours = names.to_ours(config["model_type"], model.spec, load_file(weights), np)
    return Real(model.spec, {name: np.asarray(array, np.float64) for name, array in ours.items()}, model)


def letters_to_sounds(cases: Path, folder: Path) -> Real:
    """BART, one layer in each stack, trained to spell English in phonemes."""
    config = json.loads((cases / "data" / "us_bart_config.json").read_text(encoding="utf-8"))
    return from_folder(folder / "bart", config, cases / "data" / "us_bart.safetensors")


def t5(cases: Path, folder: Path, variant: str, rewritten: bool = False) -> Real:
    """T5 in small; version 1.1 with a head of its own, as its published configs say.

    rewritten: its config as transformers 5 writes it, tied for all, with a key of its own for what 1.1 is.
    """
    told = truth(cases, "t5_tiny")["variants"][variant]
    scaled = {"scale_decoder_outputs": told["scale_decoder_outputs"]}
    published = {"tie_word_embeddings": told["scale_decoder_outputs"]}
    config = {"model_type": "t5"} | told["config"] | (scaled if rewritten else published)
    return from_folder(folder / variant, config, cases / "cases" / "real" / f"t5_tiny_{variant}.safetensors")


def log_softmax(logits_TV: np.ndarray) -> np.ndarray:
    top = logits_TV.max(-1, keepdims=True)
    return logits_TV - top - np.log(np.exp(logits_TV - top).sum(-1, keepdims=True))


def nats(logits_TV: np.ndarray, targets_T: Any) -> np.ndarray:
    """-ln p of each target."""
    return -log_softmax(logits_TV)[np.arange(len(logits_TV)), np.asarray(targets_T)]

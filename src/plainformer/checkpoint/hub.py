"""Folders as published on the hub: config.json, safetensors, tokenizer.json. In and out, named as transformers does."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from plainformer.checkpoint.atomic import folder_beside, unwritable
from plainformer.checkpoint.runs import tensors_in
from plainformer.conventions import untie
from plainformer.faults import refuse
from plainformer.huggingface import Reading, read_file, write
from plainformer.huggingface.names import own_head, to_ours, to_theirs
from plainformer.model import Transformer

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def files_of(folder: Path) -> list[Path]:
    """The safetensors files of a folder, by its index where it is sharded. Refuses absent ones by name."""
    index = folder / INDEX
    names = {WEIGHTS}
    if index.is_file():
        try:
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (ValueError, KeyError, AttributeError):
            raise refuse(str(index), "weight_map", "is not an index of safetensors files") from None
    files = [folder / name for name in sorted(names)]
    if missing := [file for file in files if not file.is_file()]:
        raise refuse(str(missing[0]), None, "the file is missing", "weights are read from safetensors alone")
    return files


def tensors_of(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of a folder by its published name, one at a time."""
    for file in files_of(folder):
        yield from tensors_in(file)


def load_hub(folder: str | Path, dtype: torch.dtype | None = None) -> Transformer:
    """The model in a published folder, in its own dtype or the one asked for.

    Raises PlainformerError: files absent or damaged, tensors absent or of other shapes, a family without a table,
    weights that are quantised.
    """
    folder = Path(folder)
    reading = read_file(folder)
    if reading.quantization is not None:
        method = reading.quantization.get("quant_method")
        where = f"{folder / 'config.json'}: quantization_config.quant_method"
        raise refuse(where, method, "no rule unpacks quantised weights yet", "it can be sized")
    if reading.unsaid:
        raise refuse(f"{folder / 'config.json'}: model_type", reading.model_type, reading.unsaid[0], "it can be sized")
    theirs, spec = dict(tensors_of(folder)), reading.spec
    spec = untie(spec) if own_head(reading.model_type, spec, theirs) else spec
    ours = to_ours(reading.model_type, spec, theirs, torch)
    model = Transformer(spec, initial=None).to(dtype or next(iter(theirs.values())).dtype)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            tensor.copy_(ours[name])
    return model.eval()


def export(model: Transformer, folder: str | Path, tokenizer_json: Path | None = None) -> Reading:
    """Write a folder that the family's class in transformers loads strictly; the reading of its config.json.

    The folder appears whole or not at all. Raises PlainformerError: it is not empty, or no stock class holds the spec.
    """
    folder = Path(folder)
    if os.path.exists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise refuse(str(folder), "exists", "an export goes into a new or empty folder")
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    dtype = next(iter(weights.values())).dtype
    config: dict[str, Any] = write(model.spec, dtype=str(dtype).removeprefix("torch."))
    theirs = to_theirs(config["model_type"], model.spec, weights, torch)
    context = model.spec.max_seq_len
    with folder_beside(folder) as part:
        try:
            save_file({name: t.contiguous() for name, t in theirs.items()}, part / WEIGHTS, metadata={"format": "pt"})
        except SafetensorError as error:  # what the system says reaches us in its words
            raise unwritable(folder, error) from None
        dump(part / "config.json", config)
        dump(part / "generation_config.json", {"do_sample": True, "max_length": context})
        (part / WEIGHTS).chmod((part / "config.json").stat().st_mode)  # safetensors gives it to its owner alone
        if tokenizer_json:
            (part / "tokenizer.json").write_bytes(tokenizer_json.read_bytes())
            said = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context}
            dump(part / "tokenizer_config.json", said | {"clean_up_tokenization_spaces": False})
    return read_file(folder)


def dump(file: Path, data: dict[str, Any]) -> None:
    file.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")

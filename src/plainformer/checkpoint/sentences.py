"""What a folder of sentence-transformers says of its vectors: modules.json names what a text goes through, one after
another (Reimers and Gurevych 2019, section 3): its model, the pooling of its tokens, and what is done to the vector.

N texts, D numbers of each, E numbers that a dense layer makes of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from plainformer.checkpoint.sources import DTYPES, tensors_of
from plainformer.faults import refuse
from plainformer.huggingface.json_files import read_object

Step = Callable[[Tensor], Tensor]
MODULE = ("config.json", "model.safetensors", "pytorch_model.bin")  # what one is kept in
POOLS = {"cls": "first", "mean": "mean", "lasttoken": "last"}
POOLS |= {"cls_token": "first", "mean_tokens": "mean"}  # as older files have them, each a key of its own
CURVES: Mapping[str, Step] = {
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": F.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "Sigmoid": torch.sigmoid,
}


@dataclass(frozen=True)
class Sentences:
    """folder: where the model lies. pools: the ways of pooling that are said, none or several where it is not one that
    is known. most: tokens that are read, None where it is not said. lower: texts are read in small letters. prompt:
    what each begins with. steps: what each vector goes through after that; normalized: whether the last gives it the
    length 1."""

    folder: str
    pools: tuple[str, ...] = ()
    most: int | None = None
    lower: bool = False
    prompt: str = ""
    steps: tuple[Step, ...] = ()
    normalized: bool = False


def sentences_of(folder: str | Path) -> Sentences:
    """Read it; any other folder or file says nothing. Refuses, by file, a module that is not known."""
    at, folder = folder, Path(folder)
    said = beside(folder / "config_sentence_transformers.json")
    name, prompts = said.get("default_prompt_name"), said.get("prompts") or {}
    prompt = "" if name is None else prompts.get(name) if isinstance(prompts, dict) else None
    if not isinstance(prompt, str):
        raise refuse(f"{folder / 'config_sentence_transformers.json'}: default_prompt_name", name, "is none of prompts")
    pools, steps, last = tuple[str, ...](), list[Step](), ""
    for kind, place in modules_of(folder):
        if kind == "Transformer":
            at = at if place == folder else place
        elif kind == "Pooling":
            said = beside(place / "config.json")
            pools = pools_of(said)
            if prompt and said.get("include_prompt") is False:
                raise refuse(f"{place / 'config.json'}: include_prompt", False, "a prompt is read and pooled here")
        elif kind == "Dense":
            steps.append(dense_of(place))
        elif kind == "Normalize":
            steps.append(unit)
        elif kind != "Dropout":
            raise refuse(f"{folder / 'modules.json'}", kind, "is no module that is known here")
        last = last if kind == "Dropout" else kind
    said = beside(Path(at) / "sentence_bert_config.json")
    most = said.get("max_seq_length")
    most = most if isinstance(most, int) and most > 2 else None
    lower = said.get("do_lower_case") is True
    return Sentences(str(at), pools, most, lower, prompt, tuple(steps), last == "Normalize")


def beside(path: Path) -> dict[str, Any]:
    return read_object(str(path), str(path)) if os.path.isfile(path) else {}


def modules_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """(class, folder) of each module; of a folder without the list, the two that it may have by their usual names."""
    path = folder / "modules.json"
    if not os.path.isfile(path):
        if os.path.isfile(folder / "1_Pooling" / "config.json"):
            yield "Pooling", folder / "1_Pooling"
        if os.path.isdir(folder / "2_Normalize"):
            yield "Normalize", folder / "2_Normalize"
        return
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise refuse(str(path), str(error)[:120], "cannot be read as JSON") from None
    if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
        raise refuse(str(path), type(said).__name__, "must be a list of modules")
    for one in said:
        kind, place = one.get("type"), one.get("path", "")
        if not isinstance(kind, str) or not isinstance(place, str):
            raise refuse(str(path), one, "must say type and path")
        if os.path.isabs(place) or ".." in Path(place).parts or "\0" in place:
            raise refuse(f"{path}: path", place, "leads out of the folder")
        yield kind.rpartition(".")[2], folder / place


def sentence_files(folder: Path) -> Iterator[str]:
    """What a folder of sentence-transformers holds besides its model, by names inside it; some may be absent."""
    yield from ("modules.json", "config_sentence_transformers.json", "sentence_bert_config.json")
    for _, place in modules_of(folder):
        if place != folder:
            yield from (str((place / name).relative_to(folder)) for name in MODULE)


def pools_of(said: Mapping[str, Any]) -> tuple[str, ...]:
    """By one key or by a key each; a way that is not known keeps the name that it has there."""
    named = said.get("pooling_mode")
    ways = named if isinstance(named, list) else [named] if named is not None else []
    ways += [
        key.removeprefix("pooling_mode_") for key, on in said.items() if key[:13] == "pooling_mode_" and on is True
    ]
    return tuple(dict.fromkeys(POOLS.get(str(way), str(way)) for way in ways))


def unit(x_ND: Tensor) -> Tensor:
    """Each of length 1."""
    return F.normalize(x_ND, dim=-1)


def dense_of(folder: Path) -> Step:
    """A dense layer with its curve, its weights read as any others are."""
    config = beside(folder / "config.json")
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if name not in CURVES:
        raise refuse(f"{folder / 'config.json'}: activation_function", name, f"must be one of {', '.join(CURVES)}")
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise refuse(f"{folder / 'config.json'}: {key}", config[key], "must be sentence_embedding")
    told, read = tensors_of(folder)
    n_in, n_out = config.get("in_features"), config.get("out_features")
    wanted: dict[str, tuple[Any, ...]] = {"linear.weight": (n_out, n_in)}
    wanted |= {"linear.bias": (n_out,)} if config.get("bias", True) else {}
    for each, shape in wanted.items():
        if each not in told:
            raise refuse(f"{folder}: {each}", None, "is not in the checkpoint")
        if told[each].shape != shape or told[each].dtype not in DTYPES:
            said = (told[each].dtype, told[each].shape)
            raise refuse(f"{folder}: {each}", said, f"must be numbers of shape {shape}, by its config.json")
    weight_ED, bias_E = read("linear.weight"), read("linear.bias") if len(wanted) > 1 else None

    def step(x_ND: Tensor) -> Tensor:
        if x_ND.shape[1] != n_in:
            raise refuse(f"{folder / 'config.json'}: in_features", n_in, f"vectors have {x_ND.shape[1]} numbers here")
        return CURVES[name](F.linear(x_ND, weight_ED.to(x_ND), None if bias_E is None else bias_E.to(x_ND)))

    return step

"""Weights and logits as they came: a safetensors or torch file read by a model's config, a folder, an .npz."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plainformer.checkpoint import load
from plainformer.checkpoint.hub import Plan, load_source
from plainformer.checkpoint.sources import Source, pickles_of, safetensors_of
from plainformer.faults import refuse
from plainformer.huggingface import read_file
from plainformer.huggingface.checking import shape_of
from plainformer.huggingface.names import plain
from plainformer.model import Transformer
from plainformer.porting.conventions import Ported

N_ROWS, N_TOKENS = 2, 32


@dataclass(frozen=True)
class Theirs:
    """Weights from elsewhere, in the model that they are held to be; `notes`: what was done to read them."""

    ported: Ported
    notes: tuple[str, ...] = ()


def ported(model: Transformer) -> Ported:
    return model.spec, {name: w.detach() for name, w in model.state_dict().items()}


def read_weights(theirs: Path, like: Path) -> Theirs:
    """A folder of its own, or a file read by the config of `like`. Matrices that stand transposed are turned, and told.

    Raises PlainformerError: what is absent, of other shapes, without a config.
    """
    if theirs.is_dir():
        return Theirs(ported(load(theirs, torch.float32)))
    if not theirs.is_file():
        raise refuse("--weights", str(theirs), "there is no such file or folder")
    folder = like if like.is_dir() else like.parent
    if not (folder / "config.json").is_file():
        raise refuse("--like", str(like), "has no config.json to read the weights by",
                     "give a folder with one, or its config.json")  # fmt: skip
    source, names = upright(file_source(theirs, folder))
    notes = (f"{len(names)} matrices stand transposed (out, in exchanged): {', '.join(names[:3])}",) if names else ()
    return Theirs(ported(load_source(source, torch.float32)), notes)


def file_source(file: Path, folder: Path) -> Source:
    """A file's tensors by another folder's config."""
    if file.suffix not in (".safetensors", ".bin", ".pt", ".pth"):
        hint = "a .safetensors, .bin, .pt or .pth file, or a folder"
        raise refuse("--weights", str(file), "is no file of weights", hint)
    tensors, read = safetensors_of(file.parent, file.name) if file.suffix == ".safetensors" else pickles_of([file])
    masks = {name for name, one in tensors.items() if len(one.shape) == 4 and one.shape[:2] == (1, 1)}  # (1, 1, T, T)
    return Source(str(file), read_file(folder), {n: one for n, one in tensors.items() if n not in masks}, read)


def upright(source: Source) -> tuple[Source, list[str]]:
    """The source with every matrix whose transposed shape is the one asked for turned."""
    plan = Plan(source, source.reading.spec, plain(source.reading.model_type, source.tensors))
    wrong: list[str] = []
    for row, _, ours, found in plan.rows:
        if found is not None:
            shape, want = plan.told[found].shape, shape_of(row, plan.shapes, ours)
            if shape != want and len(shape) == 2 and shape[::-1] == want:
                wrong.append(plan.stored[found])
    if not wrong:
        return source, []
    turned = set(wrong)
    tensors = {
        name: replace(one, shape=one.shape[::-1]) if name in turned else one for name, one in source.tensors.items()
    }

    def read(name: str) -> Tensor:
        return source.read(name).T if name in turned else source.read(name)

    return replace(source, tensors=tensors, read=read), wrong


def read_logits(file: Path) -> tuple[Tensor, Tensor]:
    """(tokens (B, T), logits (B, T, V)) from an .npz or a .safetensors file, under these names (or input_ids)."""
    try:
        if file.suffix == ".safetensors":
            from safetensors.numpy import load_file

            told = load_file(file)
        else:
            with np.load(file, allow_pickle=False) as kept:
                told = {name: kept[name] for name in kept.files}
    except (OSError, ValueError) as fault:
        raise refuse("--logits", str(file), f"cannot be read: {fault}", "an .npz or .safetensors file") from None
    except Exception as fault:  # safetensors has an error of its own
        raise refuse("--logits", str(file), f"is no such file: {fault}", "an .npz or .safetensors file") from None
    tokens = told.get("tokens", told.get("input_ids"))
    logits = told.get("logits")
    if tokens is None or logits is None:
        raise refuse("--logits", str(file), f"holds {', '.join(told) or 'nothing'}", "it must hold tokens and logits")
    tokens, logits = np.atleast_2d(tokens), logits[None] if logits.ndim == 2 else logits
    if logits.ndim != 3 or logits.shape[:2] != tokens.shape or tokens.dtype.kind not in "iu":
        raise refuse("--logits", str(file), f"has tokens {tokens.shape} and logits {logits.shape}",
                     "tokens (B, T), whole numbers, and logits (B, T, V)")  # fmt: skip
    if not np.isfinite(logits.astype(np.float64)).all():
        raise refuse("--logits", str(file), "has logits that are no finite numbers")
    return torch.from_numpy(tokens.astype(np.int64)), torch.from_numpy(logits.astype(np.float64))


@torch.no_grad()
def both_folders(like: Path, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Without logits of theirs: tokens at random, and what the weights of `like` say of them through our model."""
    model = load(like, torch.float32).double()
    n_tokens = min(N_TOKENS, model.spec.max_seq_len)
    made = torch.Generator().manual_seed(seed)
    tokens = torch.randint(model.spec.vocab_size, (N_ROWS, n_tokens), generator=made)
    return tokens, model(tokens)

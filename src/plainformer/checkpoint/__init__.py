"""The checkpoint room: models in and out of run folders and of folders as published on the hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from plainformer.checkpoint.runs import is_run, is_step, load_run, newest, save_step, tokenizer_of
from plainformer.faults import refuse

if TYPE_CHECKING:
    import torch

    from plainformer.model import Transformer

__all__ = ["is_run", "is_step", "load", "newest", "save_step", "tokenizer_of"]


def load(
    path: str | Path, dtype: torch.dtype | None = None, mapped: bool = True, base: str | Path | None = None
) -> Transformer:
    """The model in a run folder (its newest whole step), in a step's folder, in a folder as published on the hub, or in
    one file: GGUF, llama2.c's .bin, or a weights file beside its config.json. A folder of peft's adapters is loaded
    onto `base`, or onto the folder that it names as its base.

    dtype: of the weights; None: as stored. mapped: a safetensors file's tensors are taken as they lie in it where dtype
    and order allow: read when first used, and never written (what is changed is changed in memory alone). Others may
    remove or replace such a file, but not shorten it: the system ends a process that reads what is gone. False copies
    every tensor, each row by row. A run's own are always copied. Raises PlainformerError by file: absent, damaged, of
    other shapes.
    """
    path = Path(path)
    if is_run(path) or is_step(path):
        return load_run(path, dtype)
    if os.path.isfile(path / "config.json"):
        from plainformer.checkpoint.hub import load_hub

        return load_hub(path, dtype, mapped)
    if os.path.isfile(path / "adapter_config.json"):
        from plainformer.checkpoint.peft import load_adapted

        return load_adapted(path, dtype, mapped, base)
    if os.path.isfile(path) and path.suffix in (".gguf", ".bin", ".pt", ".pth", ".safetensors"):
        from plainformer.checkpoint.hub import load_file

        return load_file(path, dtype, mapped)
    rule = "holds no model" if os.path.exists(path) else "there is no such folder"
    raise refuse("MODEL", str(path), rule, "give a run folder, a step in it, or a folder with a config.json")

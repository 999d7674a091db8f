"""What MODEL stands for where weights are needed: a run, a step's folder in it, a folder as published on the hub."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from plainformer.cli.model_argument import resolve
from plainformer.faults import refuse

if TYPE_CHECKING:
    from plainformer.model import Transformer
    from plainformer.text import Tokenizer

WEIGHTS: tuple[str, ...] = ("model.safetensors", "model.safetensors.index.json", "checkpoints")
WEIGHTS += ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "pytorch_model.pt")
FILES = (".gguf", ".bin", ".pt", ".pth", ".safetensors")


def wait_asleep() -> None:
    """A thread that waits for another sleeps: spinning, two threads on a busy machine took ten times as long as one.

    Read once, when torch is loaded: to be called before that."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def has_weights(text: str) -> bool:
    """Whether weights may lie at this path: `load` then says what is wrong with them, if anything is."""
    return (os.path.isfile(text) and text.endswith(FILES)) or any(os.path.exists(Path(text) / name) for name in WEIGHTS)


def trained(text: str) -> tuple[Transformer, Tokenizer]:
    """The model and the tokenizer at MODEL. A preset or a config is refused: it is a shape, and has no weights."""
    from plainformer.presets import TRAINABLE

    if not has_weights(text):
        name = resolve(text).name  # refuses what is no model at all, offering the nearest names
        preset = f" --preset {name}" if name in TRAINABLE else ""
        hint = f"train one: plainformer train TEXT{preset} --out RUN, then give RUN"
        raise refuse("MODEL", text, "is a shape and has no weights", hint)
    from plainformer.checkpoint import load, tokenizer_of

    return load(text), tokenizer_of(text)

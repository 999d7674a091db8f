"""What MODEL stands for where weights are needed: a run, a step's folder in it, a folder as published on the hub."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plainformer.cli.asking import tell
from plainformer.cli.model_argument import resolve
from plainformer.faults import refuse

if TYPE_CHECKING:
    import torch

    from plainformer.model import Transformer
    from plainformer.text import Tokenizer

WEIGHTS: tuple[str, ...] = ("model.safetensors", "model.safetensors.index.json", "checkpoints")
WEIGHTS += ("pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "pytorch_model.pt", "adapter_config.json")
FILES = (".gguf", ".bin", ".pt", ".pth", ".safetensors")


def wait_asleep() -> None:
    """A thread that waits for another sleeps: spinning, two threads on a busy machine took ten times as long as one.

    Read once, when torch is loaded: to be called before that."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def has_weights(text: str) -> bool:
    """Whether weights may lie at this path: `load` then says what is wrong with them, if anything is."""
    return (os.path.isfile(text) and text.endswith(FILES)) or any(os.path.exists(Path(text) / name) for name in WEIGHTS)


def home(text: str, base: str | None = None) -> str:
    """Where the config and what else says how a model writes stand: at MODEL, or of adapters alone at their base.

    base: the folder asked for, instead of the one that the adapters name. Refused where MODEL holds no adapters.
    """
    adapters = os.path.isfile(Path(text) / "adapter_config.json") and not os.path.isfile(Path(text) / "config.json")
    if not adapters:
        if base is not None:
            raise refuse("--base", base, f"is for a folder of adapters, and {text} is none", "leave it out")
        return text
    from plainformer.checkpoint.peft import base_of

    return str(base_of(Path(text), base))


def trained(text: str, base: str | None = None) -> tuple[Transformer, Tokenizer]:
    """The model and the tokenizer at MODEL; adapters stand on `base`, or on the folder that they name. A preset or a
    config is refused: it is a shape, and has no weights."""
    from plainformer.presets import TRAINABLE

    if not has_weights(text):
        name = resolve(text).name  # refuses what is no model at all, offering the nearest names
        preset = f" --preset {name}" if name in TRAINABLE else ""
        hint = f"train one: plainformer train TEXT{preset} --out RUN, then give RUN"
        raise refuse("MODEL", text, "is a shape and has no weights", hint)
    from plainformer.checkpoint import load, tokenizer_of

    if (under := home(text, base)) == text:
        return load(text), tokenizer_of(text)
    from plainformer.checkpoint.peft import load_adapted

    print(f"adapters of {text} on {under}", file=sys.stderr, flush=True)
    own = any(os.path.isfile(Path(text) / name) for name in ("tokenizer.json", "vocab.json", "tokenizer.model"))
    return load_adapted(Path(text), base=under), tokenizer_of(text if own else under)


def device_at(name: str, dtype: str | None) -> torch.device:
    """The device of this name. Refuses one that is not here, and weights in 8 bits anywhere but on a processor."""
    import torch

    there = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    there += ["mps"] if torch.backends.mps.is_available() else []
    full = "cuda:0" if name == "cuda" else name
    if full not in there:
        raise refuse("--device", name, f"is not here; what is: {', '.join(there)}", "leave it out for the CPU")
    if dtype == "int8" and full != "cpu":
        raise refuse("--dtype", dtype, f"is multiplied by processors alone, not by {full}", "--dtype bfloat16")
    return torch.device(full)


def quick(model: Transformer, dtype: str | None, device: torch.device) -> None:
    """Weights in the form that is asked for, read as fast as this machine can."""
    import torch

    from plainformer.rows import quicken

    if dtype in ("float32", "bfloat16"):
        model.to(getattr(torch, dtype))
    if device.type != "cpu":
        model.to(device)
        return
    _, reason, error = quicken(model, "int8" if dtype == "int8" else None)
    if reason:
        tell(f"{reason}: torch's own products are used, which read more slowly")
    if error:
        tell(f"weights in 8 bits: off by {error:.2%} (root mean square, of that of the weights)")

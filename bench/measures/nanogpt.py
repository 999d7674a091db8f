"""nanoGPT beside us: its own train.py from a clone, on our text, with any settings; its model scored by our measure."""

from __future__ import annotations

import importlib.util
import pickle
import shutil
import subprocess
import sys
from collections.abc import Mapping
from math import ceil
from pathlib import Path
from time import perf_counter
from types import ModuleType

import numpy as np
import torch

from measures import processor_seconds
from measures.runs import Result
from plainformer.text import eval_blocks

Settings = Mapping[str, object]
CONFIG, OUT = "config/train_shakespeare_char.py", "out-shakespeare-char"

# Their README's command for a CPU, beyond CONFIG.
RECIPE: Settings = {
    "device": "cpu",
    "compile": False,
    "eval_iters": 20,
    "log_interval": 1,
    "block_size": 64,
    "batch_size": 12,
    "n_layer": 4,
    "n_head": 4,
    "n_embd": 128,
    "max_iters": 2000,
    "lr_decay_iters": 2000,
    "dropout": 0.0,
}


def words(settings: Settings) -> list[str]:
    """The command line of their train.py."""
    return [CONFIG, *(f"--{name}={value}" for name, value in settings.items())]


def train(clone: Path, text: Path, folder: Path, seed: int, settings: Settings = RECIPE) -> Result:
    """Their train.py in a copy of the clone, its seed alone changed, on token files as their prepare.py makes them."""
    work = folder / "nanoGPT"
    shutil.copytree(clone, work, ignore=shutil.ignore_patterns(".git", "*.bin", "out-*"))
    script = work / "train.py"
    said = script.read_text(encoding="utf-8")
    assert "torch.manual_seed(1337 +" in said, "another nanoGPT than this was written for"
    script.write_text(said.replace("torch.manual_seed(1337 +", f"torch.manual_seed({1337 + seed} +"), encoding="utf-8")
    held_out_N = tokenised(text, work / "data" / "shakespeare_char")
    begun, used = perf_counter(), processor_seconds()
    subprocess.run(
        [sys.executable, "-W", "ignore", "train.py", *words(settings)],
        cwd=work,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    taken, used = perf_counter() - begun, processor_seconds() - used
    return Result(taken, used, *score(work, held_out_N))


def tokenised(text: Path, data: Path) -> np.ndarray:
    """Write their token files, nine tenths to train; the ids of the last tenth."""
    whole = text.read_text(encoding="utf-8")
    characters = sorted(set(whole))
    number = {character: i for i, character in enumerate(characters)}
    ids_N = np.array([number[character] for character in whole], np.uint16)
    at = int(len(ids_N) * 0.9)
    ids_N[:at].tofile(data / "train.bin")
    ids_N[at:].tofile(data / "val.bin")
    with (data / "meta.pkl").open("wb") as file:
        pickle.dump({"vocab_size": len(characters), "stoi": number, "itos": dict(enumerate(characters))}, file)
    return ids_N[at:].astype(np.int64)


def model_module(clone: Path) -> ModuleType:
    """Their model.py."""
    found = importlib.util.spec_from_file_location("nanogpt_model", clone / "model.py")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    sys.modules["nanogpt_model"] = module
    found.loader.exec_module(module)
    return module


@torch.inference_mode()
def score(work: Path, ids_N: np.ndarray) -> tuple[float, int, int]:
    """Nats a character of their saved model over the whole validation part: side-by-side blocks of its context, each
    target once, as `plainformer train` measures its own. Then its parameters and its context."""
    module = model_module(work)
    saved = torch.load(work / OUT / "ckpt.pt", map_location="cpu", weights_only=True)
    model = module.GPT(module.GPTConfig(**saved["model_args"]))
    model.load_state_dict({name.removeprefix("_orig_mod."): tensor for name, tensor in saved["model"].items()})
    model.eval()
    nats, n_targets, context = 0.0, 0, saved["model_args"]["block_size"]
    for x_T, y_T, first in eval_blocks(ids_N, context):
        assert first == 0
        x_BT, y_BT = torch.from_numpy(np.stack([x_T])), torch.from_numpy(np.stack([y_T]))
        _, loss = model(x_BT, y_BT)
        nats += loss.double().item() * len(y_T)
        n_targets += len(y_T)
    assert n_targets == len(ids_N) - 1
    assert n_targets <= context * ceil(n_targets / context)
    return nats / n_targets, sum(p.numel() for p in model.parameters()), context

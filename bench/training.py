"""Training on a text with every default, beside nanoGPT's recipe for CPUs (--nanogpt CLONE), by one measure."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pickle
import shutil
import subprocess
import sys
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import NamedTuple

import numpy as np
import torch
from measures import ROOT, load, processor_seconds, spread, tell

from plainformer.text import eval_blocks

# Their README's command for a CPU.
RECIPE = (
    "config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=20 --log_interval=1 --block_size=64 "
    "--batch_size=12 --n_layer=4 --n_head=4 --n_embd=128 --max_iters=2000 --lr_decay_iters=2000 --dropout=0.0"
)


class Result(NamedTuple):
    seconds: float  # of the whole process, from its start to its end
    processor_seconds: float  # of all cores together: what a busy machine changes less
    nats: float  # a character
    parameters: int
    context: int


def ours(text: Path, folder: Path, seed: int) -> Result:
    """`plainformer train TEXT --out RUN`: nothing else said but the seed."""
    words = ["train", str(text), "--out", str(folder / "run"), "--seed", str(seed), "--json", "--quiet"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    begun, used = perf_counter(), processor_seconds()
    ran = subprocess.run(
        [sys.executable, "-m", "plainformer", *words], env=environment, check=True, capture_output=True, text=True
    )
    taken, used = perf_counter() - begun, processor_seconds() - used
    run = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))
    return Result(taken, used, json.loads(ran.stdout)["val_loss"], run["parameters"], run["settings"]["context"])


def theirs(clone: Path, text: Path, folder: Path, seed: int) -> Result:
    """nanoGPT's recipe on the same text: its own train.py, on token files as its prepare.py makes them."""
    work = folder / "nanoGPT"
    shutil.copytree(clone, work, ignore=shutil.ignore_patterns(".git", "*.bin", "out-*"))
    script = work / "train.py"
    said = script.read_text(encoding="utf-8")
    assert "torch.manual_seed(1337 +" in said, "another nanoGPT than this was written for"
    script.write_text(said.replace("torch.manual_seed(1337 +", f"torch.manual_seed({1337 + seed} +"), encoding="utf-8")
    whole = text.read_text(encoding="utf-8")
    characters = sorted(set(whole))
    number = {character: i for i, character in enumerate(characters)}
    ids_N = np.array([number[character] for character in whole], np.uint16)
    at = int(len(ids_N) * 0.9)
    data = work / "data" / "shakespeare_char"
    ids_N[:at].tofile(data / "train.bin")
    ids_N[at:].tofile(data / "val.bin")
    with (data / "meta.pkl").open("wb") as file:
        pickle.dump({"vocab_size": len(characters), "stoi": number, "itos": dict(enumerate(characters))}, file)
    begun, used = perf_counter(), processor_seconds()
    subprocess.run(
        [sys.executable, "-W", "ignore", "train.py", *RECIPE.split()],
        cwd=work,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    taken, used = perf_counter() - begun, processor_seconds() - used
    return Result(taken, used, *score(work, ids_N[at:].astype(np.int64)))


@torch.inference_mode()
def score(work: Path, ids_N: np.ndarray) -> tuple[float, int, int]:
    """Nats a character of their saved model over the whole validation part: side-by-side blocks of its context, each
    target once, as `plainformer train` measures its own."""
    found = importlib.util.spec_from_file_location("nanogpt_model", work / "model.py")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    sys.modules["nanogpt_model"] = module
    found.loader.exec_module(module)
    saved = torch.load(work / "out-shakespeare-char" / "ckpt.pt", map_location="cpu", weights_only=True)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("--nanogpt", type=Path, metavar="CLONE", help="a clone of nanoGPT (it is copied, not changed)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="seeds 0 to N - 1 (3)")
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args = parser.parse_args()
    before = load()
    ways = {"plainformer train, every default": ours}
    if args.nanogpt:
        ways["nanoGPT, its recipe for CPUs"] = lambda text, folder, seed: theirs(args.nanogpt, text, folder, seed)
    results: dict[str, list[Result]] = {name: [] for name in ways}
    for seed in range(args.runs):  # in turns, so that a slow hour is everybody's
        for name, way in ways.items():
            with TemporaryDirectory() as folder:
                results[name].append(way(args.text.resolve(), Path(folder), seed))
            print(f"{name}, seed {seed}: {results[name][-1]}", file=sys.stderr)
    rows = [
        {
            "what": name,
            "parameters": f"{some[0].parameters:,}",
            "context": some[0].context,
            "seconds, start to end": spread([one.seconds for one in some], 1),
            "of all cores": spread([one.processor_seconds for one in some], 1),
            "nats a character": spread([one.nats for one in some], 4),
        }
        for name, some in results.items()
    ]
    note = (
        f"Median of {args.runs} seeds; in brackets the least and the most. The loss is over the whole validation part "
        "(the last tenth), in side-by-side blocks of the model's own context, each target once."
    )
    command = "python bench/training.py TEXT --nanogpt CLONE --save"
    raw = {name: [one._asdict() for one in some] for name, some in results.items()}
    tell("training", command, rows, note, before, args.save, runs=raw, seeds=list(range(args.runs)))


if __name__ == "__main__":
    main()

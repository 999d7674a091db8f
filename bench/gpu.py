"""Training and decoding on one GPU: speed, memory, how much of the GPU it is; `--device cpu --tiny` tries the way."""

from __future__ import annotations

import argparse
import os
import random
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from measures import load, machine, tell

from plainformer.faults import PlainformerError, refuse
from plainformer.generation import generate
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.report.figures import short
from plainformer.training import passing, start
from plainformer.training.loop import exact
from plainformer.training.peak import SECONDS, peak, step_flops, wait_for
from plainformer.training.processes import joined
from plainformer.training.run import Run

LETTERS = "abcdefghijklmnopqrstuvwxyz ,.\n"


@dataclass(frozen=True)
class Shape:
    """Of the model and of what is asked of it. Its text is drawn: speed does not hang on what it says."""

    asked: dict[str, Any]
    n_letters: int
    warm: int  # steps before those that are timed, compilation among them
    timed: int
    n_prompt: int
    n_new: int
    rows: tuple[int, ...]  # decoded at once


# GPT-2 small's layers and width, in the recipe's layout; and the same way in seconds on a processor.
WHOLE = Shape(
    {"d_model": 768, "n_layers": 12, "n_heads": 12, "context": 1024, "batch_size": 16},
    4_000_000,
    5,
    20,
    32,
    256,
    (1, 32),
)
TINY = Shape(
    {"preset": "tiny", "d_model": 16, "n_layers": 2, "n_heads": 2, "context": 16, "batch_size": 4},
    4_000,
    1,
    2,
    4,
    8,
    (1, 2),
)
TRAINED: dict[str, dict[str, Any]] = {  # what is asked for beside the shape
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "bfloat16, layers made again": {"dtype": "bfloat16", "recompute": "full"},
    "bfloat16, compiled": {"dtype": "bfloat16", "compile": True},
    "bfloat16, in shares (FSDP2)": {"dtype": "bfloat16", "shard": True},
}
DECODED = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@contextmanager
def alone_in_shares(shard: bool) -> Iterator[Any]:
    """One process as torchrun would start it, where shares are asked for."""
    told = {}
    if shard:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = str(sock.getsockname()[1])
        told = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    before = {name: os.environ.get(name) for name in told}
    os.environ.update(told)
    try:
        with joined(shard) as processes:
            yield processes
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def trained(text: Path, folder: Path, shape: Shape, asked: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Steps of a run as `train` takes them: begun one after another, each loss read when the next is on its way."""
    asked, shard = {name: value for name, value in asked.items() if name != "shard"}, "shard" in asked
    out = start([text], folder / "run", shape.asked | asked | {"steps": shape.warm + shape.timed, "validation": 0.1})
    with alone_in_shares(shard) as processes:
        run = Run(out, processes)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with exact(run.settings.threads, run.settings.compile):
            for n in range(shape.warm + shape.timed):
                if n == shape.warm:
                    wait_for(device)
                    begun = time.perf_counter()
                run.begin()
                if len(run.unread) > int(run.late):
                    run.outcome()
            while run.unread:
                run.outcome()
            wait_for(device)
            seconds = (time.perf_counter() - begun) / shape.timed
            flops, most = step_flops(run.model.spec, run.settings), peak(run.settings.dtype, device)
        del run
    return told(run_tokens(shape), seconds, flops / seconds / most, memory(device))


def run_tokens(shape: Shape) -> int:
    return int(shape.asked["batch_size"] * shape.asked["context"])


def decoded(
    model: Transformer, dtype: torch.dtype, n_rows: int, shape: Shape, device: torch.device, read: float
) -> dict[str, Any]:
    """New tokens of so many rows at once, the reading of the prompts included. read: bytes a second of the memory: each
    step reads all weights."""
    model = model.to(device, dtype)
    prompts = [[(row + i) % model.spec.vocab_size for i in range(shape.n_prompt)] for row in range(n_rows)]
    for n_new in (2, shape.n_new):  # the first is not timed
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        wait_for(device)
        begun = time.perf_counter()
        generate(model, prompts, n_new, temperature=0.0)
        wait_for(device)
        seconds = time.perf_counter() - begun
    n_bytes = Ledger.of(model.spec).total * dtype.itemsize
    each = seconds / shape.n_new
    return told(n_rows, each, n_bytes / each / read, memory(device))


def told(n_tokens: int, seconds: float, share: float, held: int | None) -> dict[str, Any]:
    """A row's columns. A share above 1 is no share: something else was at work when the peak was measured."""
    return {
        "tokens/s": f"{n_tokens / seconds:,.0f}",
        "ms": f"{1000 * seconds:,.2f}",
        "of the peak": f"{share:.0%}" if share <= 1 else "unknown",
        "memory": "-" if held is None else short(held, "B"),
    }


def memory(device: torch.device) -> int | None:
    """The most that was held on the GPU."""
    return torch.cuda.max_memory_allocated() if device.type == "cuda" else None


def read_speed(device: torch.device, n_bytes: int) -> float:
    """Bytes a second that the memory gives to a sum, the fastest of several."""
    x_N = torch.ones(n_bytes // 4, device=device)
    least, begun = float("inf"), time.perf_counter()
    while time.perf_counter() - begun < SECONDS or least == float("inf"):
        wait_for(device)
        at = time.perf_counter()
        x_N.sum()
        wait_for(device)
        least = min(least, time.perf_counter() - at)
    return x_N.nbytes / least


def device_of(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise refuse("--device", name, "there is no GPU here", "--device cpu --tiny tries the way without one")
    return torch.device(name)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a model of nothing: to try the way, not to measure")
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args = parser.parse_args(argv)
    if args.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a run takes the GPU that it sees
    try:
        device = device_of(args.device)
        if args.save and (args.tiny or device.type == "cpu"):
            raise refuse("--save", True, "keeps what a GPU did, nothing else", "leave it out")
    except PlainformerError as refused:
        print(f"bench/gpu.py: {refused}", file=sys.stderr)
        return 2
    shape, before, rows = TINY if args.tiny else WHOLE, load(), []
    if args.tiny:
        passing.BACKEND = "aot_eager"  # what is traced is run as it is: no code is made
    read = read_speed(device, 1 << (22 if args.tiny else 32))
    with TemporaryDirectory() as name:
        text = Path(name) / "text.txt"
        text.write_text("".join(random.Random(0).choices(LETTERS, k=shape.n_letters)), encoding="utf-8")
        for what, asked in TRAINED.items():
            with TemporaryDirectory() as folder:
                rows.append({"what": f"a step in {what}"} | trained(text, Path(folder), shape, asked, device))
        spec = Run(start([text], Path(name) / "run", shape.asked | {"steps": 1})).model.spec
        for (what, dtype), n_rows in ((one, n) for one in DECODED.items() for n in shape.rows):
            model = Transformer(spec, initial="gpt2")
            row = decoded(model, dtype, n_rows, shape, device, read)
            rows.append({"what": f"a token in {what}, {n_rows} row{'s' * (n_rows > 1)} at once"} | row)
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else machine()
    note = (
        f"{gpu}. {Ledger.of(spec).total:,} parameters, {run_tokens(shape):,} tokens a step; {shape.n_new} new tokens "
        f"after {shape.n_prompt}. The peak of a step is the fastest product of matrices in its dtype, measured "
        f"here; that of a token the {short(read, 'B')}/s that the memory gives to a sum, all weights read for each."
    )
    tell("gpu", "python bench/gpu.py --save", rows, note, before, args.save)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

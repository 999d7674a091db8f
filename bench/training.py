"""Training on a text with every default, beside nanoGPT's recipe for CPUs (--nanogpt CLONE), by one measure."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from measures import load, tell
from measures.nanogpt import train
from measures.runs import Result, told, trained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("--nanogpt", type=Path, metavar="CLONE", help="a clone of nanoGPT (it is copied, not changed)")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="seeds 0 to N - 1 (3)")
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args = parser.parse_args()
    before = load()
    ways = {"plainformer train, every default": trained}
    if args.nanogpt:
        ways["nanoGPT, its recipe for CPUs"] = lambda text, folder, seed: train(args.nanogpt, text, folder, seed)
    results: dict[str, list[Result]] = {name: [] for name in ways}
    for seed in range(args.runs):  # in turns, so that a slow hour is everybody's
        for name, way in ways.items():
            with TemporaryDirectory() as folder:
                results[name].append(way(args.text.resolve(), Path(folder), seed))
            print(f"{name}, seed {seed}: {results[name][-1]}", file=sys.stderr)
    rows = [told(name, some) for name, some in results.items()]
    note = (
        f"Median of {args.runs} seeds; in brackets the least and the most. The loss is over the whole validation part "
        "(the last tenth), in side-by-side blocks of the model's own context, each target once."
    )
    command = "python bench/training.py TEXT --nanogpt CLONE --save"
    raw = {name: [one._asdict() for one in some] for name, some in results.items()}
    tell("training", command, rows, note, before, args.save, runs=raw, seeds=list(range(args.runs)))


if __name__ == "__main__":
    main()

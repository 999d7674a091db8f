"""How soon `size` answers, beside a Python that does nothing."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from time import perf_counter

from measures import ROOT, load, spread, tell

WAYS = {
    "python that does nothing": ["-c", "pass"],
    "size gpt2 --json": ["-m", "plainformer", "size", "gpt2", "--json"],
    "size gpt2 (a table)": ["-m", "plainformer", "size", "gpt2"],
    "size deepseek-v3 --json": ["-m", "plainformer", "size", "deepseek-v3", "--json"],
}


def seconds(words: list[str]) -> float:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    begun = perf_counter()
    subprocess.run([sys.executable, *words], env=environment, check=True, stdout=subprocess.DEVNULL)
    return perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args = parser.parse_args()
    before = load()
    for words in WAYS.values():
        seconds(words)  # the first reads files that the others find in memory
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(args.repeats):  # in turns, so that a slow moment is everybody's
        for name, words in WAYS.items():
            times[name].append(1000 * seconds(words))
    bare = sorted(times["python that does nothing"])[args.repeats // 2]
    rows = [
        {"what": name, "ms": spread(some), "ms above a bare Python": f"{sorted(some)[args.repeats // 2] - bare:.1f}"}
        for name, some in times.items()
    ]
    note = f"Median of {args.repeats} processes each, in turns; in brackets the fastest and the slowest."
    tell("startup", "python bench/startup.py --save", rows, note, before, args.save, repeats=args.repeats)


if __name__ == "__main__":
    main()

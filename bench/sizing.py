"""How `size` stands beside a Python that does nothing, and beside the calculator vramcalc where it is installed."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

from measures import ROOT, load, spread, tell

CONFIG = {  # Llama 3 8B's, which every calculator takes
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}


def ways(config: Path) -> dict[str, list[str]]:
    ours = [sys.executable, "-m", "plainformer", "size"]
    found = {
        "python that does nothing": [sys.executable, "-c", "pass"],
        "size config.json --json": [*ours, str(config), "--json"],
        "size gpt2 --json": [*ours, "gpt2", "--json"],
        "size deepseek-v3 --json": [*ours, "deepseek-v3", "--json"],
    }
    beside = Path(sys.executable).parent / "vramcalc"
    if calculator := str(beside) if beside.is_file() else shutil.which("vramcalc"):
        found["vramcalc config.json"] = [calculator, str(config)]
    return found


def once(command: list[str]) -> tuple[float, int]:
    """Milliseconds, and the most memory it held in kB (0 where the system doesn't say)."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    begun = perf_counter()
    running = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    if not hasattr(os, "wait4"):
        running.wait()
        return 1000 * (perf_counter() - begun), 0
    _, status, used = os.wait4(running.pid, 0)
    spent = 1000 * (perf_counter() - begun)
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise SystemExit(f"{command} ended with {running.returncode}")
    return spent, used.ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args = parser.parse_args()
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(CONFIG), encoding="utf-8")
        every = ways(config)
        for command in every.values():
            once(command)  # the first reads files that the others find in memory
        times: dict[str, list[float]] = {name: [] for name in every}
        memory: dict[str, int] = dict.fromkeys(every, 0)
        for _ in range(args.repeats):  # in turns, so that a slow moment is everybody's
            for name, command in every.items():
                spent, held = once(command)
                times[name].append(spent)
                memory[name] = max(memory[name], held)
    bare = median(times["python that does nothing"])
    rows = [
        {"what": name, "ms": spread(some), "x bare": f"{median(some) / bare:.1f}", "MB": f"{memory[name] / 1000:.0f}"}
        for name, some in times.items()
    ]
    note = f"Median of {args.repeats} processes each, in turns; in brackets the fastest and the slowest."
    tell("sizing", "python bench/sizing.py --save", rows, note, before, args.save, repeats=args.repeats)


if __name__ == "__main__":
    main()

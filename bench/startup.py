"""How soon `size` answers, installed as a user has it: beside a Python that does nothing, and beside the calculator
vramcalc where its command is named."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
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
PIP = ("-m", "pip", "--disable-pip-version-check", "install", "-qq", "--compile", "-c", str(ROOT / "constraints.txt"))
ENVIRONMENT = {
    name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
}


def install(folder: Path) -> Path:
    """A fresh environment with this project's wheel in it, compiled; where its programs are."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "python"), *PIP, str(ROOT)], check=True, env=ENVIRONMENT)
    return folder / "bin"


def ways(programs: Path, config: Path, calculator: str | None) -> dict[str, list[str]]:
    ours = [str(programs / "plainformer"), "size"]
    found = {"python that does nothing": [str(programs / "python"), "-c", "pass"]}
    if calculator:
        found["vramcalc config.json"] = [calculator, str(config)]
    return found | {
        "size config.json --json": [*ours, str(config), "--json"],
        "size gpt2 --json": [*ours, "gpt2", "--json"],
        "size deepseek-v3 --json": [*ours, "deepseek-v3", "--json"],
        "size gpt2 (a table)": [*ours, "gpt2"],
    }


def once(command: list[str]) -> tuple[float, float, int]:
    """Milliseconds, those of the processor alone, and the most memory held in kB."""
    begun = perf_counter()
    running = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(running.pid, 0)
    spent = 1000 * (perf_counter() - begun)
    running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode:
        raise SystemExit(f"{command} ended with {running.returncode}")
    return spent, 1000 * (used.ru_utime + used.ru_stime), used.ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vramcalc", metavar="COMMAND", help="the command of the calculator to stand beside")
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args = parser.parse_args()
    before = load()
    with TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(CONFIG), encoding="utf-8")
        every = ways(install(Path(folder) / "fresh"), config, args.vramcalc)
        for command in every.values():
            once(command)  # the first reads files that the others find in memory
        runs: dict[str, list[tuple[float, float, int]]] = {name: [] for name in every}
        for _ in range(args.repeats):  # in turns, so that a slow moment is everybody's
            for name, command in every.items():
                runs[name].append(once(command))
    bare = median(spent for spent, _, _ in runs["python that does nothing"])
    rows = []
    for name, some in runs.items():
        spent, busy, held = zip(*some, strict=True)
        above, memory = f"{median(spent) - bare:.1f}", f"{max(held) / 1000:.0f}"
        rows.append(
            {"what": name, "ms": spread(spent, 1), "above": above, "CPU ms": f"{median(busy):.1f}", "MB": memory}
        )
    note = (
        f"Median of {args.repeats} processes each, in turns; in brackets the fastest and the slowest. Above: more than "
        "a Python that does nothing. MB: the most memory held."
    )
    tell(
        "startup",
        "python bench/startup.py --vramcalc vramcalc --save",
        rows,
        note,
        before,
        args.save,
        repeats=args.repeats,
    )


if __name__ == "__main__":
    main()

"""From a folder to the first logits: plainformer beside transformers, in turns, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from measures import load, spread, tell

OURS = """
import plainformer as pf, torch
pf.load
import plainformer.checkpoint.hub
def whole(folder):
    model = pf.load(folder)
    return model, model(tokens)
"""
THEIRS = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
import torch, transformers
transformers.utils.logging.disable_progress_bar()
transformers.AutoModelForCausalLM, transformers.GPT2LMHeadModel
def whole(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    return model, model(tokens).logits
"""
TIMED = """
import json, sys, time
def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) * 1024
tokens = torch.arange(32)[None]
with torch.no_grad():
    whole(sys.argv[2])  # a tiny one: what is loaded once
    before, begun, used = anonymous(), time.perf_counter(), time.process_time()
    kept = whole(sys.argv[1])
    print(json.dumps([time.perf_counter() - begun, time.process_time() - used, anonymous() - before]))
"""


def once(code: str, folder: Path, tiny: Path) -> tuple[float, float, int]:
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code + TIMED, str(folder), str(tiny)], capture_output=True, check=True
    )
    seconds, used, held = json.loads(ran.stdout.splitlines()[-1])
    return seconds, used, held


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    asked.add_argument("--turns", type=int, default=7)
    args, before = asked.parse_args(), load()
    import plainformer as pf
    from plainformer.checkpoint.exporting import export
    from plainformer.families import decoders

    spec = pf.presets["gpt2"]
    tiny = decoders.gpt2(vocab_size=64, max_seq_len=64, d_model=16, n_layers=1, n_heads=2)
    with TemporaryDirectory() as room:
        folder, small = Path(room) / "gpt2", Path(room) / "tiny"
        export(pf.Transformer(spec), folder)
        export(pf.Transformer(tiny), small)
        n_bytes = (folder / "model.safetensors").stat().st_size
        ways = {"plainformer": OURS, "transformers": THEIRS}
        found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ways}
        for turn in range(args.turns):
            for name in ways if turn % 2 else reversed(ways):
                found[name].append(once(ways[name], folder, small))
    rows = [
        {
            "what": name,
            "seconds": spread([seconds for seconds, _, _ in times], 2),
            "of all cores": spread([used for _, used, _ in times], 2),
            "anonymous memory, of the weights": f"{median(held for _, _, held in times) / n_bytes:.2f}",
        }
        for name, times in found.items()
    ]
    note = (
        f"GPT-2 small in float32 ({n_bytes:,} bytes), 32 tokens; imports and a tiny model before. {args.turns} "
        "processes each, in turns: the median, and the least and the most."
    )
    tell("loading", "python bench/loading.py --save", rows, note, before, args.save)


if __name__ == "__main__":
    main()

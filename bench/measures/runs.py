"""Runs of ours: by the command, timed; and as the command makes them, then with what it cannot be asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from measures import ROOT, Row, processor_seconds, spread
from plainformer.checkpoint.runs import CHECKPOINTS, spec_of, write_step
from plainformer.model import Transformer
from plainformer.spec import Spec
from plainformer.training.recipe import Settings
from plainformer.training.starting import dump, settings_of, start
from plainformer.tree import to_json

Change = Callable[[Spec, Settings], tuple[Spec, Settings]]


class Result(NamedTuple):
    """One run of a trainer, ours or another."""

    seconds: float  # of the whole process, from its start to its end
    processor_seconds: float  # of all cores together: what a busy machine changes less
    nats: float  # a character
    parameters: int
    context: int


def told(name: str, some: Sequence[Result]) -> Row:
    """A table's row: what was run, with several seeds."""
    return {
        "what": name,
        "parameters": f"{some[0].parameters:,}",
        "context": some[0].context,
        "seconds, start to end": spread([one.seconds for one in some], 1),
        "of all cores": spread([one.processor_seconds for one in some], 1),
        "nats a character": spread([one.nats for one in some], 4),
    }


def trained(text: Path, folder: Path, seed: int, words: Sequence[str] = ()) -> Result:
    """`plainformer train TEXT --out RUN`: nothing else said but the seed and these words."""
    said = ["train", str(text), "--out", str(folder / "run"), "--seed", str(seed), *words, "--json", "--quiet"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    begun, used = perf_counter(), processor_seconds()
    ran = subprocess.run(
        [sys.executable, "-m", "plainformer", *said], env=environment, check=True, capture_output=True, text=True
    )
    taken, used = perf_counter() - begun, processor_seconds() - used
    run = json.loads((folder / "run" / "run.json").read_text(encoding="utf-8"))
    return Result(taken, used, json.loads(ran.stdout)["val_loss"], run["parameters"], run["settings"]["context"])


def run_folder(text: Path, folder: Path, asked: Mapping[str, Any], change: Change) -> None:
    """The run folder that these arguments make, changed before its first step."""
    start([text], folder, asked)
    rewrite(folder, *change(spec_of(folder), settings_of(folder)))


def rewrite(folder: Path, spec: Spec, settings: Settings) -> None:
    """Put another spec, other settings and the first weights that they say into a run that has taken no step."""
    file = folder / "run.json"
    facts = json.loads(file.read_text(encoding="utf-8"))
    dump(folder / "spec.json", to_json(spec))
    dump(file, facts | {"settings": settings.to_json()})
    model = Transformer(spec, settings.initial, settings.seed)
    write_step(folder / CHECKPOINTS / "step-0", model, {}, {"step": 0, "tokens": 0, "seconds": 0.0})

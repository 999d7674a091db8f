"""What the lessons have measured, measured again: each runs PyTorch for seconds to minutes, with its seeds.

A measurement is a module here with `measure() -> Measured`, or `measure(text)` if it is one of a text; the lesson that
tells of it prints what `lessons/measured` keeps of it. It ships with the package, so that `plainformer learn LESSON
--measure` can do it on any machine.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from plainformer.faults import refuse

Row = dict[str, Any]
Job = TypeVar("Job")

# A measurement's name, and where its module lies. The first line of the module's docstring says what it measures.
MEASUREMENTS: dict[str, str] = {
    "residuals": "plainformer.measuring.residuals",
    "norms": "plainformer.measuring.norms",
    "untrained": "plainformer.measuring.untrained",
    "families": "plainformer.measuring.families",
    "depths": "plainformer.measuring.depths",
    "scores": "plainformer.measuring.scores",
    "caches": "plainformer.measuring.caches",
    "checkpoints": "plainformer.measuring.checkpoints",
    "training": "plainformer.measuring.training",
    "curves": "plainformer.measuring.curves",
    "ngrams": "plainformer.measuring.ngrams",
    "optimisers": "plainformer.measuring.optimisers",
    "shapes": "plainformer.measuring.shapes",
    "tying": "plainformer.measuring.tying",
    "precisions": "plainformer.measuring.precisions",
    "temperatures": "plainformer.measuring.temperatures",
    "balances": "plainformer.measuring.balances",
}
# Whose `measure` takes a text.
OF_TEXT = frozenset(
    ("training", "curves", "ngrams", "optimisers", "shapes", "tying", "precisions", "temperatures", "balances")
)


@dataclass(frozen=True)
class Measured:
    """Rows of a table, the seeds that made them, and what a reader must know of how."""

    rows: Sequence[Row]
    seeds: Sequence[int]
    note: str


def measure(name: str, text: Path | None = None) -> Row:
    """Measure now: what lessons/measured/NAME.json would hold. Refuses a name that is none; needs torch.

    text: for those that need one; None: Python's own documentation.
    """
    if name not in MEASUREMENTS:
        raise refuse("measurement", name, "is none", f"there are {', '.join(MEASUREMENTS)}")
    before = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    module = import_module(MEASUREMENTS[name])
    if name in OF_TEXT:
        found: Measured = module.measure(import_module("plainformer.measuring.texts").text_of(text))
    else:
        found = module.measure()
    return {
        "command": f"python bench/lessons.py {name}" + " --text TEXT" * (name in OF_TEXT and text is not None),
        "machine": with_torch(),
        "date": datetime.date.today().isoformat(),
        "load_before": before,
        "seeds": ", ".join(map(str, found.seeds)),
        "note": found.note,
        "columns": list(found.rows[0]),
        "rows": list(found.rows),
    }


def jobs(each: Sequence[Job]) -> Iterator[Job]:
    """Each in turn, and to stderr how many are done and the time that is left."""
    began = time.monotonic()
    for n_done, job in enumerate(each):
        left = (time.monotonic() - began) / n_done * (len(each) - n_done) if n_done else None
        said = "" if left is None else f", {int(left) // 60}:{int(left) % 60:02} left"
        print(f"{n_done} of {len(each)} done{said}", file=sys.stderr, flush=True)
        yield job


def machine() -> str:
    """The processor, its cores, the system and Python; no name of a host."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(encoding="utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return f"{name}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"


def with_torch() -> str:
    """The machine, and torch's version."""
    import torch

    return f"{machine()}, torch {torch.__version__.partition('+')[0]}"


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median, and the least and the most of several."""
    middle = f"{median(values):,.{digits}f}"
    return middle if len(values) < 2 else f"{middle} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"

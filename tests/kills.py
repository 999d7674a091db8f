"""Runs that are killed where it hurts: at a moment by chance, or just before or after a write, an fsync or a rename."""

from __future__ import annotations

import errno
import os
import pathlib
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plainformer.checkpoint import newest, runs
from plainformer.training import carry_on
from plainformer.training.journal import Journal, rows
from together import started

Hurt = tuple[str, int, str]  # what happens: "kill before", "kill after" or "full"; at which call; in words

PLACES: list[tuple[Any, str]] = [
    (os, "fsync"),
    (os, "rename"),
    (os, "replace"),
    (runs, "save_file"),
    (pathlib.Path, "write_text"),
    (Journal, "write"),
]


def hurting(hurt: Hurt | None) -> list[str]:
    """Let the nth of all writes, fsyncs and renames of this process end as `hurt` says; the calls made, as a list."""
    calls: list[str] = []

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            calls.append(name)
            here = hurt is not None and len(calls) == hurt[1]
            if here and hurt[0] == "kill before":
                os.kill(os.getpid(), signal.SIGKILL)
            if here and hurt[0] == "full":
                raise OSError(errno.ENOSPC, "No space left on device")
            made = real(*args, **more)
            if here and hurt[0] == "kill after":
                os.kill(os.getpid(), signal.SIGKILL)
            return made

        return call

    for owner, name in PLACES:
        setattr(owner, name, wrapped(name, getattr(owner, name)))
    return calls


def carried(run: str, hurt: Hurt | None = None) -> None:
    hurting(hurt)
    carry_on(run, quiet=True)


def killed(run: Path, rng: random.Random, n_kills: int) -> tuple[int, int]:
    """Kill and resume, every second time inside a write; (how many kills met a run, how many of them hit a save)."""
    n_killed = n_hit = step = 0
    for n in range(n_kills):
        hurt = None
        if n % 2 == 0:
            hurt = (rng.choice(("kill before", "kill after")), rng.randint(1, 40), "")
        (process,) = started(1, carried, str(run), hurt, alone=True)
        if hurt is None:
            while process.is_alive() and last_row(run) <= step + 1:
                time.sleep(0.003)
            time.sleep(rng.uniform(0, 0.08))
            process.kill()
        process.join()
        n_killed += process.exitcode == -signal.SIGKILL
        n_hit += any(path.name.endswith((".part", ".old")) for path in (run / "checkpoints").iterdir())
        saved = runs.step_of(newest(run))
        assert saved >= step  # nothing that was whole is ever lost
        assert saved >= last_row(run) - 2  # one save is being written while the next step is done
        step = saved
    return n_killed, n_hit


def last_row(run: Path) -> int:
    return max((int(row["step"]) for row in rows(run / "metrics.jsonl")), default=0)

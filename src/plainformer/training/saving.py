"""Steps put on the disk while training goes on."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from plainformer.checkpoint.atomic import beside, folder_beside, remove
from plainformer.checkpoint.runs import (
    CHECKPOINTS,
    OPTIMIZER_SHARES,
    SHARES,
    damage,
    dump_state,
    forget,
    save_step,
    sealed,
)
from plainformer.checkpoint.shards import write_shards
from plainformer.training.processes import Processes

State = Mapping[str, Any]


class Saving:
    """A thread that writes one step at a time, from a copy made when it was asked for.

    The next save waits for the one before it, so what a kill can cost is what was done since the save before the last,
    and a step that was asked for is on the disk once `wait` returns. What goes wrong in the thread is raised by the
    next call. Shares of several processes are written at once, by all of them, while training waits.
    """

    def __init__(self, run: Path, processes: Processes) -> None:
        self.run, self.processes = run, processes
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="plainformer-saving")
        self.last: Future[Path] | None = None

    def __enter__(self) -> Saving:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Lets a write that was begun end. Its own failure is told where nothing else went wrong."""
        with suppress(BaseException) if error is not None else ExitStack():
            self.wait()
        self.pool.shutdown()

    def save(self, step: int, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: State) -> None:
        """Ask for a step to be written. Every process asks; the first writes, or each its share."""
        self.wait()
        if self.processes.shard:
            self.share(step, weights, optimizer, state)
        elif self.processes.first:
            held, averages = copied(weights), copied(optimizer)
            self.last = self.pool.submit(save_step, self.run, step, held, averages, dict(state))

    def look(self) -> None:
        """Raise what went wrong in a write that has ended."""
        if self.last is not None and self.last.done():
            self.wait()

    def wait(self) -> None:
        """Until the step asked for last is on the disk."""
        last, self.last = self.last, None
        if last is not None:
            last.result()

    def share(self, step: int, weights: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: State) -> None:
        """A step in shares: a folder that the first process makes, all fill, and the first gives its name."""
        path = self.run / CHECKPOINTS / f"step-{step}"
        there = self.processes.first and path.exists() and damage(path) is None
        if self.processes.any(there):
            return
        with ExitStack() as filling:

            def begin() -> None:
                if path.exists():
                    remove(path)
                part = filling.enter_context(folder_beside(path))
                for name in (SHARES, OPTIMIZER_SHARES):
                    (part / name).mkdir()

            def end() -> None:
                dump_state(beside(path), state)
                sealed(beside(path))
                filling.close()
                forget(self.run, path)

            self.processes.led(begin)
            write_shards(beside(path) / SHARES, weights)
            write_shards(beside(path) / OPTIMIZER_SHARES, optimizer)
            self.processes.led(end)


@torch.no_grad()
def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What the tensors hold now, wherever they are."""
    return {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}

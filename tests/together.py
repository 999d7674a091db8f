"""Several processes at once, as torchrun starts them, from one that has loaded everything: a start takes no seconds."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

import torch

PRELOADED = [
    "torch.distributed.fsdp",
    "torch.nn.parallel",
    "plainformer.training",
    "plainformer.checkpoint",
    "plainformer.cli",
    "specs",
]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def begun(rank: int, world: int, port: int, work: Callable[..., None], args: tuple[Any, ...]) -> None:
    if port:
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    work(*args)


def started(world: int, work: Callable[..., None], *args: Any, alone: bool = False) -> list[Any]:
    """`world` processes at `work(*args)`, each told its rank as torchrun tells it; alone: not told anything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    port = 0 if alone else free_port()
    made = [context.Process(target=begun, args=(rank, world, port, work, args)) for rank in range(world)]
    for process in made:
        process.start()
    return made


def together(world: int, work: Callable[..., None], *args: Any, seconds: float = 60) -> None:
    """The same, until all have ended well."""
    made = started(world, work, *args)
    for process in made:
        process.join(seconds)
        if process.is_alive():
            process.kill()
    assert [process.exitcode for process in made] == [0] * world

"""The processes that train one model together: which of them this one is, and what all of them agree on.

One process alone is the same as many with a world of 1: each question below then has its own answer back, unchanged.

M rows at once, T positions.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from plainformer.faults import PlainformerError, refuse
from plainformer.model import Transformer
from plainformer.training.balance import Routed
from plainformer.training.loss import Targets, nats

TIMEOUT = 45.0  # seconds that a process waits for the others inside a step: one that hangs ends all
COMPILING = 1800.0  # the same of the first step of a run that is compiled: no two processes take as long
Result = TypeVar("Result")
LOST = ("gloo", "nccl", "connection", "timed out", "timeout", "peer", "store")


class Scores(nn.Module):
    """A model's logits and what its routers said, as one module's forward: what torch's engines are put around."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens_MT: Tensor, first: int = 0, routing: bool = False, targets: Targets | None = None
    ) -> tuple[Tensor, Routed]:
        """(logits of the positions from `first` on, or the loss of their targets, each router's scores and choices
        where `routing`)."""
        routed = deque[tuple[Tensor, Tensor]]()  # no list: FSDP2 hands each layer a copy of every list it is given
        hidden = self.model.hidden(tokens_MT, routed=cast(Routed, routed) if routing else None)
        hidden = hidden[:, first:] if first else hidden
        return self.model.logits(hidden) if targets is None else nats(self.model, hidden, targets), list(routed)

    def all_through(self, do: Callable[[Transformer], Result]) -> Result:
        """What is more than a pass, with the weights outside the layers there all the while. Of weights in shares all
        processes must do the same."""
        return do(self.model)


@dataclass(frozen=True)
class Processes:
    """This process among those of a run. rank: its number, from 0; world: how many there are.

    shard: each keeps its share of every weight, gradient and average (FSDP2), not all of them (DDP).
    """

    rank: int = 0
    world: int = 1
    shard: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    host: Any = None  # the group that speaks of what the processors hold; None: the group of all, by gloo
    patient: Any = None  # the same, of those who wait for as long as it takes
    parent: int | None = None  # the process that started these

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and speaks."""
        return self.rank == 0

    @property
    def shares(self) -> int:
        """Among how many processes each weight, with its gradient and averages, is shared."""
        return self.world if self.shard else 1

    @property
    def orphaned(self) -> bool:
        """Whether the process that started this one is gone."""
        return self.parent is not None and os.getppid() != self.parent

    def rows(self, n_rows: int) -> tuple[range, int]:
        """Which rows of a batch are this process's, and how many rows of nothing make up each one's equal share."""
        share = -(-n_rows // self.world)
        mine = range(min(n_rows, self.rank * share), min(n_rows, (self.rank + 1) * share))
        return mine, share - len(mine)

    def sums(self, *values: float, patient: bool = False) -> tuple[float, ...]:
        """Each value summed over all processes, in float64."""
        if self.world == 1:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        torch.distributed.all_reduce(total, group=self.patient if patient else self.host)
        return tuple(total.tolist())

    def added(self, value: Tensor) -> Tensor:
        """A number of every process, added up where it is, without waiting for it."""
        if self.world > 1:
            value = value.clone()
            torch.distributed.all_reduce(value)
        return value

    def any(self, flag: object) -> bool:
        """Whether it is so for one of them at least."""
        return bool(flag) if self.world == 1 else self.sums(float(bool(flag)))[0] > 0

    def counted(self, counts: list[Tensor]) -> list[Tensor]:
        """Whole numbers of every process, added up."""
        if self.world > 1:
            counts = [count.clone() for count in counts]
            for count in counts:
                torch.distributed.all_reduce(count)
        return counts

    def wait_at_most(self, seconds: float) -> None:
        """How long each waits for the others from now on, inside a step."""
        if self.world > 1:
            from torch.distributed.distributed_c10d import _set_pg_timeout

            for group in {None, self.host}:
                _set_pg_timeout(timedelta(seconds=seconds), group)

    def led(self, do: Callable[[], None]) -> None:
        """The first does it while the others wait. Where it fails, all end: the others without a word."""
        failed: BaseException | None = None
        if self.first:
            try:
                do()
            except BaseException as error:  # handed on below, once the others know
                failed = error
        (n_failed,) = self.sums(float(failed is not None), patient=True)
        if failed is not None:
            raise failed
        if n_failed:
            raise SystemExit(2)

    def wrapped(self, model: Transformer) -> nn.Module:
        """What a step calls: the model's scores, in DDP where every process holds all weights, else in FSDP2.

        FSDP2 gathers one layer's weights at a time, and those outside the layers for the whole pass.
        """
        scores = Scores(model)
        if self.shard:
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

            mesh = init_device_mesh(self.device.type, (self.world,))
            for stack in (stack for stack in (model.spec.encoder and model.encoder, model.decoder) if stack):
                for layer in stack.layers:
                    fully_shard(layer, mesh=mesh)
            fully_shard(scores, mesh=mesh)
            register_fsdp_forward_method(scores, Scores.all_through.__name__)
        elif self.world > 1:
            from torch.nn.parallel import DistributedDataParallel

            return DistributedDataParallel(scores)
        return scores

    def quiet(self, scores: nn.Module, last: bool) -> AbstractContextManager[None]:
        """Around the backward pass of a part of a batch: gradients meet at the last one alone."""
        if self.shard:
            cast(Any, scores).set_requires_gradient_sync(last)
        elif self.world > 1 and not last:
            return cast(AbstractContextManager[None], cast(Any, scores).no_sync())
        return nullcontext()

    @contextmanager
    def together(self) -> Iterator[None]:
        """What torch says when another process is gone or hangs, as a refusal."""
        try:
            yield
        except RuntimeError as error:
            if self.world == 1 or not any(word in str(error).lower() for word in LOST):
                raise
            rule = "another process of this run is gone, or has not answered in time"
            raise refuse("torchrun", f"process {self.rank} of {self.world}", rule, "go on with --resume") from error


ALONE = Processes()


@contextmanager
def joined(shard: bool = False) -> Iterator[Processes]:
    """The processes that torchrun started, met; without torchrun, this one alone.

    Gloo where there is no GPU, else NCCL. Refused: --shard without torchrun, whose processes share what is cut.
    """
    environment = os.environ
    device = torch.device("cuda", int(environment.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else None
    if device is not None:  # before its first product: then sums are in one order
        environment.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if "RANK" not in environment or "WORLD_SIZE" not in environment:
        if shard:
            raise refuse("--shard", True, "there is nobody to share with", "torchrun -m plainformer train ... --shard")
        yield Processes(device=device or torch.device("cpu"))
        return
    import torch.distributed as dist

    if device is not None:
        torch.cuda.set_device(device)
    backend = "nccl" if device is not None else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=TIMEOUT))
    try:
        patient = dist.new_group(timeout=timedelta(days=30), backend="gloo")
        host = dist.new_group(timeout=timedelta(seconds=TIMEOUT), backend="gloo") if device is not None else None
        rank, world = dist.get_rank(), dist.get_world_size()
        yield Processes(rank, world, shard, device or torch.device("cpu"), host, patient, os.getppid())
        dist.destroy_process_group()
    except (PlainformerError, SystemExit, KeyboardInterrupt):
        raise  # the group ends with the process: to take leave of those who are gone would wait for them


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor of which each process may hold a share. Asked by all of them, or by none."""
    return cast(Tensor, cast(Any, tensor).full_tensor()) if hasattr(tensor, "full_tensor") else tensor

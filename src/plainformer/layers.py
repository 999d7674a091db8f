"""The small modules of which the model is made: one for each part, its weights named as in the ledger.

B batch, T new positions, D d_model, F d_ff, E experts, N tokens of all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import TYPE_CHECKING, TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plainformer import kernels
from plainformer import spec as s
from plainformer.faults import refuse

if TYPE_CHECKING:
    from plainformer.model import Head
    from plainformer.states import Where


@singledispatch
def build(part: object) -> nn.Module:
    """The module of a part, with empty weights named as in the ledger."""
    raise refuse("part", type(part).__name__, "no rule builds this part yet", "it can be sized")


def add(module: nn.Module, part: object, *names: str) -> None:
    """The modules of the parts that stand in these fields, under the fields' names."""
    for name in names:
        if (inner := getattr(part, name)) is not None:
            module.add_module(name, build(inner))


def through(module: nn.Module, name: str, x: Tensor) -> Tensor:
    """x through the part of this name; an absent one, a norm that is not there, hands it on."""
    inner = module._modules.get(name)
    return x if inner is None else cast(Tensor, inner(x))


def own_linear(module: nn.Module, part: s.Linear, *stacked: int) -> None:
    """A linear's weights as the module's own."""
    module.weight = nn.Parameter(torch.empty(*stacked, part.n_out, part.n_in))
    if part.bias:
        module.bias = nn.Parameter(torch.empty(*stacked, part.n_out))
    if part.lora:
        module.lora_a = nn.Parameter(torch.empty(*stacked, part.lora.rank, part.n_in))
        module.lora_b = nn.Parameter(torch.empty(*stacked, part.n_out, part.lora.rank))


Product: TypeAlias = Callable[[Tensor, Tensor, "Tensor | None"], Tensor]  # x, W, b -> x W^T + b


def apply_linear(
    module: Linear | NormedLinear | Head, part: s.Linear, x: Tensor, weight: Tensor, expert: int | None = None
) -> Tensor:
    """x W^T + b, with the low-rank correction if there is one; of one expert where they are stacked."""

    def own(name: str) -> Tensor:
        tensor = cast(Tensor, getattr(module, name))
        return tensor if expert is None else tensor[expert]

    y = module.product(x, weight, own("bias") if part.bias else None)
    if part.lora:
        y = y + F.linear(F.linear(x, own("lora_a")), own("lora_b")) * (part.lora.alpha / part.lora.rank)
    return y


@build.register(s.Linear)
class Linear(nn.Module):
    weight: Tensor
    product: Product = staticmethod(F.linear)  # another with the same answer may take its place: `rows`

    def __init__(self, part: s.Linear, *stacked: int) -> None:
        super().__init__()
        self.part = part
        own_linear(self, part, *stacked)

    def forward(self, x: Tensor, expert: int | None = None) -> Tensor:
        return apply_linear(self, self.part, x, self.weight if expert is None else self.weight[expert], expert)


@build.register(s.Norm)
class Norm(nn.Module):
    normed = staticmethod(kernels.normed)  # another with the same answer may take its place: `fused`

    def __init__(self, part: s.Norm) -> None:
        super().__init__()
        self.part = part
        self.weight = nn.Parameter(torch.empty(part.width)) if part.gain else None
        self.bias = nn.Parameter(torch.empty(part.width)) if part.bias else None

    def forward(self, x: Tensor) -> Tensor:
        gain = self.weight + 1 if self.part.plus_one and self.weight is not None else self.weight
        return self.normed(self.part, x, gain, self.bias)


@build.register(s.NormedLinear)
class NormedLinear(nn.Module):
    weight: Tensor
    product: Product = staticmethod(F.linear)

    def __init__(self, part: s.NormedLinear) -> None:
        super().__init__()
        self.part = part
        own_linear(self, part.linear)
        self.norm = Norm(part.norm)

    def forward(self, x: Tensor) -> Tensor:
        y = apply_linear(self, self.part.linear, x, self.weight)
        return cast(Tensor, self.norm(y.unflatten(-1, (-1, self.part.norm.width)))).flatten(-2)


@build.register(s.Bottleneck)
class Bottleneck(nn.Module):
    down: nn.Module
    norm: nn.Module
    up: nn.Module

    def __init__(self, part: s.Bottleneck) -> None:
        super().__init__()
        add(self, part, "down", "norm", "up")

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.up(self.norm(self.down(x))))


@build.register(s.Table)
class Table(nn.Module):
    def __init__(self, part: s.Table) -> None:
        super().__init__()
        self.part = part
        self.weight = nn.Parameter(torch.empty(part.n_rows, part.width))

    def forward(self, rows: Tensor) -> Tensor:
        return F.embedding(rows + self.part.offset if self.part.offset else rows, self.weight)


@build.register(s.Sinusoid)
class Sinusoid(nn.Module):
    def __init__(self, part: s.Sinusoid) -> None:
        super().__init__()
        self.part = part

    def forward(self, positions_RT: Tensor) -> Tensor:
        return kernels.sinusoids(positions_RT, self.part)


@build.register(s.RelativeBias)
class RelativeBias(nn.Module):
    """The table alone: what a pass makes of it, `Where.bias` says."""

    def __init__(self, part: s.RelativeBias) -> None:
        super().__init__()
        self.part = part
        self.weight = nn.Parameter(torch.empty(part.n_buckets, part.n_heads))


@build.register(s.FeedForward)
class FeedForward(nn.Module):
    activated = staticmethod(kernels.activated)  # as with a norm's rule
    gate: nn.Module
    up: nn.Module
    down: nn.Module

    def __init__(self, part: s.FeedForward, *stacked: int) -> None:
        super().__init__()
        self.part = part
        for name in ("gate", "up", "down"):
            if linear := getattr(part, name):
                self.add_module(name, Linear(linear, *stacked))

    def forward(self, x: Tensor, where: Where | None = None, expert: int | None = None) -> Tensor:
        gate = self.gate(x, expert) if self.part.gate else None
        return cast(Tensor, self.down(self.activated(self.part.activation, gate, self.up(x, expert)), expert))

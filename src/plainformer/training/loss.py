"""The loss of a batch's rows from the stream that the head reads: all logits at once, or never more than a few.

M rows at once, T positions, D d_model, V vocabulary, N positions of all rows, C of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from plainformer.model import Transformer, cross_entropy

Scored = Callable[[Tensor, Tensor], Tensor]  # stream (1, C, D), targets (1, C) -> nats, summed


@dataclass(frozen=True)
class Targets:
    """What is to be said at each position, -1 where nothing is; tokens from n_tokens on are never scored.

    at_once: positions whose logits are there together; 0: all.
    """

    ids_MT: Tensor
    n_tokens: int
    at_once: int = 0


def nats(model: Transformer, x_MTD: Tensor, targets: Targets) -> Tensor:
    """The loss of all targets, summed. In pieces it is the same within rounding, and its gradients too. Where nothing
    learns from it, it is summed in float64."""
    if not torch.is_grad_enabled():
        return read(model, x_MTD, targets)
    if not targets.at_once or targets.at_once >= targets.ids_MT.numel():
        return scored(model, x_MTD, targets.ids_MT, targets.n_tokens)
    weights = [*model.head.parameters(), *([model.embedding.weight] if model.head.part.tied else [])]

    def some(x_1CD: Tensor, ids_1C: Tensor) -> Tensor:
        return scored(model, x_1CD, ids_1C, targets.n_tokens)

    apply = cast(Any, Pieces.apply)
    return cast(Tensor, apply(some, targets.at_once, x_MTD.flatten(0, 1), targets.ids_MT.flatten(), *weights))


def read(model: Transformer, x_MTD: Tensor, targets: Targets) -> Tensor:
    """The loss that an evaluation asks for: a piece's logits are gone before the next one's are made."""
    if not targets.at_once or targets.at_once >= targets.ids_MT.numel():
        return each(model, x_MTD, targets.ids_MT, targets.n_tokens).double().sum()
    pieces = zip(
        x_MTD.flatten(0, 1).split(targets.at_once), targets.ids_MT.flatten().split(targets.at_once), strict=True
    )
    sums = [each(model, x_CD[None], ids_C[None], targets.n_tokens).double().sum() for x_CD, ids_C in pieces]
    return torch.stack(sums).sum()


def scored(model: Transformer, x_MTD: Tensor, ids_MT: Tensor, n_tokens: int) -> Tensor:
    return each(model, x_MTD, ids_MT, n_tokens).sum()


def each(model: Transformer, x_MTD: Tensor, ids_MT: Tensor, n_tokens: int) -> Tensor:
    """nats_MT, in float32 at least."""
    logits_MTV = model.logits(x_MTD)[..., :n_tokens]
    exact_MTV = logits_MTV if logits_MTV.dtype == torch.float64 else logits_MTV.float()
    return cross_entropy(exact_MTV, ids_MT)


class Pieces(torch.autograd.Function):
    """The loss a few positions at a time, and with it at once its gradient: of the stream, and of the head's weights.

    The logits of a piece and their gradient are gone before the next one's are made, so the largest tensors of a step
    with many tokens in its vocabulary are never whole; no product is done twice (Wijmans et al. 2024, "Cut your losses
    in large-vocabulary language models", has a kernel for the same).
    """

    @staticmethod
    def forward(ctx: Any, score: Scored, at_once: int, x_ND: Tensor, ids_N: Tensor, *weights: Tensor) -> Tensor:
        total = torch.zeros((), dtype=torch.promote_types(x_ND.dtype, torch.float32), device=x_ND.device)
        grad_ND = torch.zeros_like(x_ND) if ctx.needs_input_grad[2] else None
        wanted = [weight for weight in weights if weight.requires_grad]
        grads = [torch.zeros_like(weight) for weight in wanted]
        for first in range(0, len(ids_N), at_once):
            piece = slice(first, first + at_once)
            with torch.enable_grad():
                x_1CD = x_ND[None, piece].detach().requires_grad_()
                said = score(x_1CD, ids_N[None, piece])
            total += said.detach()
            if grad_ND is None and not wanted:
                continue
            grad_1CD, *more = torch.autograd.grad(said, [x_1CD, *wanted])
            if grad_ND is not None:
                grad_ND[piece] = grad_1CD[0]
            for grad, part in zip(grads, more, strict=True):
                grad += part
            del said, more
        ctx.grads = grad_ND, dict(zip((id(weight) for weight in wanted), grads, strict=True))
        ctx.order = [id(weight) for weight in weights]
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        grad_ND, grads = ctx.grads
        del ctx.grads  # handed on: nobody else holds them
        for grad in (grad_ND, *grads.values()):
            if grad is not None:
                grad.mul_(slope)
        return None, None, grad_ND, None, *(grads.get(weight) for weight in ctx.order)

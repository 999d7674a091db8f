"""Rows of a batch side by side, each lane on a thread of its own.

A small model's products are too short to be shared by threads: to wake one takes as long as its half of the work. Whole
rows are not. What lanes give is added in their order, so the bits do not hang on which of them was done first.

M rows at once, T positions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from plainformer.ledger import Ledger
from plainformer.spec import Spec
from plainformer.training.balance import mixtures

MOST_LANES = 4  # Python itself runs one of them at a time
MOST_WEIGHTS = 1 << 24  # beyond, products are long enough to be shared, and each lane's own gradient is a burden
Item = TypeVar("Item")
Result = TypeVar("Result")


def lanes_for(spec: Spec, n_rows: int, n_threads: int) -> int:
    """How many there are of rows of this model: one where each row's loss hangs on others' choices (mixtures)."""
    apart = not torch.cuda.is_available() and not mixtures(spec) and Ledger.of(spec).total <= MOST_WEIGHTS
    return max(1, min(n_threads, n_rows, MOST_LANES)) if apart else 1


@contextmanager
def threads(n: int) -> Iterator[None]:
    """As many of torch's own for each product."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(MOST_LANES, os.cpu_count() or 1), "lane")


def side_by_side(do: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Each item's answer, the first by the caller's thread. What one of them raises is raised when all are done."""
    others = [workers().submit(do, item) for item in items[1:]]
    try:
        first = do(items[0])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]


def gradients_of(
    loss_of: Callable[[Tensor, Tensor], Tensor], weights: Sequence[Tensor], x_MT: Tensor, y_MT: Tensor, n: int
) -> Tensor:
    """Add to each weight's gradient that of loss_of(rows, targets), summed over n lanes; the sum of their losses."""

    def lane(rows: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        loss = loss_of(*rows)
        return loss.detach(), torch.autograd.grad(loss, list(weights), allow_unused=True)

    parts = list(zip(x_MT.tensor_split(n), y_MT.tensor_split(n), strict=True))
    losses, grads = zip(*side_by_side(lane, parts), strict=True)
    for weight, *found in zip(weights, *grads, strict=True):
        for grad in (grad for grad in found if grad is not None):
            weight.grad = grad if weight.grad is None else weight.grad + grad
    return torch.stack(losses).sum(dtype=torch.float64)

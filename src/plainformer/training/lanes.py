"""Rows of a batch side by side, each lane on a thread of its own.

A small model's products are too short to be shared by threads: to wake one takes as long as its half of the work. Whole
rows are not. What lanes give is added in their order, so the bits do not hang on which of them was done first.
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

MOST_LANES = 4  # Python itself runs one of them at a time
MOST_WEIGHTS = 1 << 24  # beyond, products are long enough to be shared, and each lane's own gradient is a burden
Item = TypeVar("Item")
Result = TypeVar("Result")


def lanes_for(spec: Spec, n_rows: int, n_threads: int) -> int:
    """How many there are of so many rows of this model."""
    short = not torch.cuda.is_available() and Ledger.of(spec).total <= MOST_WEIGHTS
    return max(1, min(n_threads, n_rows, MOST_LANES)) if short else 1


@contextmanager
def threads(n: int) -> Iterator[None]:
    """As many of torch's own for each product."""
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def reading(spec: Spec, n_threads: int) -> Iterator[int]:
    """The lanes of an evaluation, which all share the threads: one number for a model and a machine, whatever the rows
    of its training."""
    lanes = lanes_for(spec, MOST_LANES, n_threads)
    with threads(n_threads // lanes):
        yield lanes


@cache
def workers(process: int) -> ThreadPoolExecutor:
    """A process's own: one that was forked has none of its parent's threads."""
    return ThreadPoolExecutor(max(MOST_LANES, os.cpu_count() or 1), "lane")


def side_by_side(do: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Each item's answer, the first by the caller's thread; all with as many threads for each product as the caller
    has. What one of them raises is raised when all are done."""
    n_threads = torch.get_num_threads()

    def beside(item: Item) -> Result:
        if torch.get_num_threads() != n_threads:  # a thread keeps the number that it was begun with
            torch.set_num_threads(n_threads)
        return do(item)

    others = [workers(os.getpid()).submit(beside, item) for item in items[1:]]
    try:
        first = do(items[0])
    finally:
        wait(others)
    return [first, *(other.result() for other in others)]


def add_gradients(weights: Sequence[Tensor], losses: Sequence[Tensor]) -> None:
    """Add to each weight's gradient those of all losses, one after another, each found in a lane of its own."""

    def of(loss: Tensor) -> tuple[Tensor | None, ...]:
        return torch.autograd.grad(loss, list(weights), allow_unused=True)

    for weight, *found in zip(weights, *side_by_side(of, losses), strict=True):
        for grad in (grad for grad in found if grad is not None):
            if weight.grad is None:  # it lies as its weight does: optimisers read both side by side
                weight.grad = grad if grad.stride() == weight.stride() else torch.empty_like(weight).copy_(grad)
            else:
                weight.grad = weight.grad + grad

"""Writing tokens on a device: what it must hold, what each step must read, and the bounds that follow."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from plainformer.cost import Cost, rules
from plainformer.cost.devices import DEVICES, Device, needed
from plainformer.cost.flops import Work, flops
from plainformer.ledger import Weight
from plainformer.mixers import BorrowedAttention, Sized
from plainformer.records import dataclass
from plainformer.spec import Attention, Residual
from plainformer.tree import walk


@dataclass(frozen=True)
class Serving:
    """One step of decoding and one prompt, for cost.batch_size sequences of cost.seq_len tokens."""

    memory_bytes: int  # weights, cache and fixed states: without activations and what a driver takes
    weights_read: int  # bytes of weights that one step reads
    cache_read: int  # bytes of cache that one step reads
    step_flops: int
    prompt_flops: int

    @classmethod
    def of(cls, cost: Cost, stored: Sequence[int] | None = None) -> Serving:
        """stored: bytes of each of cost.ledger.weights as its files hold it, where known; else all in cost.dtype."""
        rows = cost.ledger.weights
        sizes = stored or [rules.n_bytes(row.count, cost.dtype) for row in rows]
        read = sum(size * read_in_a_step(row, cost) / (row.count or 1) for row, size in zip(rows, sizes, strict=True))
        kept = cost.cache_bytes + cost.cross_cache_bytes + cost.state_bytes
        step = Work(cost.batch_size, 1, cost.seq_len, cost.source_len)
        return cls(
            memory_bytes=(sum(stored) if stored else cost.weights_bytes()) + kept,
            weights_read=ceil(read),
            cache_read=kept,
            step_flops=decoding(cost, step),
            prompt_flops=least_for_a_prompt(cost),
        )

    def step_seconds(self, device: Device) -> float:
        """The longer of the two: reading its bytes, doing its operations."""
        return max((self.weights_read + self.cache_read) / device.bandwidth, self.step_flops / device.flops)

    def is_bound_by_memory(self, device: Device) -> bool:
        return (self.weights_read + self.cache_read) / device.bandwidth >= self.step_flops / device.flops

    def prompt_seconds(self, device: Device) -> float:
        return self.prompt_flops / device.flops

    def needed(self, device: Device) -> int:
        return needed(self.memory_bytes, device)

    def fits(self) -> dict[str, int]:
        """For each device that is known, how many of it are needed."""
        return {name: self.needed(device) for name, device in DEVICES.items()}


def least_for_a_prompt(cost: Cost) -> int:
    """Operations that no program can do without: scores of what a query may see alone (half of all pairs, windows held
    to), and the head at the last position."""
    spec, length = cost.spec, cost.seq_len
    if spec.decoder is None or spec.encoder is not None:
        return cost.forward_flops
    one, two = (Work(cost.batch_size, length, n) for n in (0, 1))
    total = flops(spec.embedding, one) + flops(spec.head, Work(cost.batch_size, 1, 1))
    for i in spec.decoder.passes or range(len(spec.decoder.layers)):
        for residual in spec.decoder.layers[i]:
            bare = flops(residual, one)
            total += bare + (flops(residual, two) - bare) * pairs(length, window_of(residual)) // length
    return total


def window_of(residual: Residual) -> int | None:
    kinds = Attention, BorrowedAttention
    return next((part.window for _, part in walk(residual) if isinstance(part, kinds)), None)


def pairs(length: int, window: int | None) -> int:
    """How many pairs of a query and a key that it may see."""
    w = length if window is None else min(window, length)
    return w * (w + 1) // 2 + (length - w) * w


def decoding(cost: Cost, step: Work) -> int:
    """Operations of one step: what the encoder said is there already, and of a window its own keys alone."""
    spec = cost.spec
    if spec.decoder is None or spec.encoder is None:
        return flops(spec, step) - beyond_windows(cost, step)
    whole = sum(flops(part, step) for part in (spec.embedding, spec.decoder, spec.head))
    return whole - made_once(cost, step) - beyond_windows(cost, step)


def beyond_windows(cost: Cost, step: Work) -> int:
    """Scores of keys that no window reaches, which the rule of a whole pass counts and a step's cache has not."""
    stack, total = cost.spec.main, 0
    for i in stack.passes or range(len(stack.layers)):
        for residual in stack.layers[i]:
            window = window_of(residual)
            if window is not None and window < step.n_all and stack.causal:
                seen = Work(step.batch_size, step.n_new, window, step.n_source)
                total += flops(residual, step) - flops(residual, seen)
    return total


def made_once(cost: Cost, step: Work) -> int:
    """Cross-attention's keys and values, which the rule of a whole pass counts and a step finds in the cache."""
    once = sum(row.count for row in cost.ledger.weights if is_of_the_source(row) and row.name.endswith(".weight"))
    return 2 * cost.batch_size * step.n_source * once


def is_of_the_source(row: Weight) -> bool:
    return ".cross_attention.k." in row.name or ".cross_attention.v." in row.name


def read_in_a_step(row: Weight, cost: Cost) -> float:
    """Numbers of one tensor that a step reads. A table that only looks up: a row for each sequence; an encoder, a
    tower, cross-attention's keys and values: nothing; experts: those that the batch is expected to meet, evenly
    routed."""
    beside, _, inside = row.name.partition(".")
    tower = beside == "towers" and not isinstance(cost.spec.towers[int(inside.partition(".")[0])], Sized)
    if beside == "encoder" or tower or is_of_the_source(row):
        return 0
    tied = any(alias.same_as == row.name for alias in cost.ledger.rows)
    if row.kind in ("embedding", "position") and len(row.shape) == 2 and not tied and "project" not in row.name:
        return min(row.shape[0], cost.batch_size) * row.shape[1]
    chosen, every = row.met
    missed: float = (1 - chosen / every) ** cost.batch_size
    return row.count * (1 - missed) if every > 1 else row.count

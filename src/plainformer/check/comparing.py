"""When two answers are the same: a bound that a correct implementation keeps in its precision, however it adds up.

A formula's own answer moves when its inputs are moved by a rounding error. Code that is right is off by some such
moves; each row of an answer may be off by as much as 200 of them, and by 50 roundings of its largest value.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from plainformer.check.steps import Array

UNIT = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-9, "float16": 2.0**-11}
NUDGE = 1e-9


def bound(run: Callable[[dict[str, Any]], Array], inputs: dict[str, Any], truth: Array) -> Array:
    """For each row of the answer, what one unit of rounding may do to it: times UNIT it is the tolerance."""
    rng = np.random.default_rng(7)
    size = by_row(np.abs(np.where(np.isfinite(truth), truth, 0)))
    moved = np.zeros_like(size)
    for _ in range(3):
        nudged = {
            name: value * (1 + NUDGE * rng.standard_normal(value.shape))
            if isinstance(value, np.ndarray) and value.dtype.kind == "f"
            else value
            for name, value in inputs.items()
        }
        with np.errstate(invalid="ignore"):
            gap = np.abs(run(nudged) - truth)
        gap = by_row(np.where(np.isfinite(gap), gap, 0)) / NUDGE
        moved = np.maximum(moved, np.where(gap * NUDGE > 1e-3 * (size + 1e-300), 0, gap))  # a jump: another was chosen
    return np.broadcast_to(200 * moved + 50 * size, np.shape(truth))


def by_row(x: Array) -> Array:
    return x.max(-1, keepdims=True) if np.ndim(x) and np.size(x) else np.asarray(x)


def fitted(theirs: Any, shape: tuple[int, ...]) -> Array | None:
    """Their answer in the shape of ours: of a tuple the first array that fits; axes of 1 do not count."""
    if isinstance(theirs, (bool, int, float)):
        theirs = np.asarray(float(theirs))
    if isinstance(theirs, list):
        return next((found for one in theirs if (found := fitted(one, shape)) is not None), None)
    if not isinstance(theirs, np.ndarray):
        return None
    flattened = len(shape) > 2 and theirs.shape == (int(np.prod(shape[:-1])), shape[-1])  # (B * T, V)
    if not flattened and [n for n in theirs.shape if n != 1] != [n for n in shape if n != 1]:
        return None
    return theirs.reshape(shape).astype(np.float64)


def same(a: Array, b: Array, tolerance: Array) -> bool:
    """Equal to the tolerance, and not a number or infinite at the same places."""
    if np.shape(a) != np.shape(b):
        return False
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(np.isnan(a), np.isnan(b)):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return bool(np.all(np.where(finite, np.abs(a - b) <= tolerance, (a == b) | np.isnan(a))))


def distance(a: Array, b: Array) -> float:
    """The largest gap; infinite where only one is a number."""
    if np.shape(a) != np.shape(b):
        return float("inf")
    with np.errstate(invalid="ignore"):
        gap = np.abs(np.where(a == b, 0.0, a - b))
    gap = np.where(np.isnan(a) & np.isnan(b), 0.0, gap)
    return float(np.where(np.isnan(gap), np.inf, gap).max(initial=0.0))


def chances_tolerance(p: Array, n: int) -> Array:
    """Six standard deviations of a share of n draws; none at all for what cannot come."""
    return 6 * np.sqrt(np.clip(p, 0, 1) * np.clip(1 - p, 0, 1) / n) + (p > 0) * 3.0 / n

"""The learning rate by step: warm-up, then steady, then decay."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi
from typing import Literal

Shape = Literal["linear", "cosine", "constant"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A share of the peak for every step, counted from 0. Any combination of its numbers is a schedule.

    Let b = max(warmup, decay_from):

        step >= steps     floor
        step < warmup     (step + 1) / (warmup + 1)                 never 0, not even at the first step
        step < b          1
        else              floor + (1 - floor) * d((step - b) / (steps - b))

    with d(z) = 1 - z (linear), (1 + cos(pi z)) / 2 (cosine; Loshchilov and Hutter 2017, section 3) or 1 (constant).
    Linear with decay_from > warmup is "warmup, stable, decay" (Hu et al. 2024, section 4).
    """

    shape: Shape
    steps: int  # the decay ends here
    warmup: int = 0
    decay_from: int = 0
    floor: float = 0.0  # a share of the peak

    def at(self, step: int) -> float:
        begin = max(self.warmup, self.decay_from)
        if step >= self.steps:
            return 1.0 if self.shape == "constant" else self.floor
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        if step < begin or self.shape == "constant":
            return 1.0
        z = (step - begin) / (self.steps - begin)
        return self.floor + (1 - self.floor) * (1 - z if self.shape == "linear" else (1 + cos(pi * z)) / 2)

"""How much of what this machine can do goes into the model: against a product of matrices, measured here."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from plainformer.cost import Cost
from plainformer.cost.training import Plan, operations
from plainformer.spec import Spec
from plainformer.training.lanes import threads
from plainformer.training.recipe import Settings

SECONDS = 0.1  # that the measuring takes for each width, at least
WIDTHS = {"cpu": (512, 1024), "cuda": (4096, 8192)}  # of the matrices: products that nothing else counts beside


def peak(dtype: str, device: torch.device) -> float:
    """Operations a second of the fastest of many products of two square matrices, in a run's dtype, on as many threads
    as the run has."""
    return max(products_a_second(n, dtype, device) * 2 * n**3 for n in WIDTHS[device.type])


def products_a_second(n: int, dtype: str, device: torch.device) -> float:
    a_NN, b_NN = (torch.ones(n, n, dtype=getattr(torch, dtype), device=device) for _ in range(2))
    out_NN, least = a_NN @ b_NN, float("inf")  # the first one is not timed: it loads what the others run
    begun = time.perf_counter()
    while time.perf_counter() - begun < SECONDS or least == float("inf"):
        wait_for(device)
        at = time.perf_counter()
        torch.mm(a_NN, b_NN, out=out_NN)
        wait_for(device)
        least = min(least, time.perf_counter() - at)
    return 1 / least


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def step_flops(spec: Spec, settings: Settings) -> float:
    """The model's operations of a step, forward and backward, none of them twice."""
    cost = Cost.of(spec, settings.batch_size, settings.context)
    plan = Plan(lora=1) if settings.trained == "adapters" else Plan()  # the spec has the adapters already
    return float(sum(operations(cost, spec, plan)))


@dataclass(frozen=True)
class Use:
    """Operations of the model a second, and the most that this machine did of them, for n devices together."""

    done: float
    most: float

    @property
    def share(self) -> float | None:
        """None where more was done than what was measured as the most: something else was at work then."""
        return self.done / self.most if self.done <= self.most else None

    def to_json(self) -> dict[str, Any]:
        return {"flops_per_second": self.done, "peak_flops_per_second": self.most, "utilisation": self.share}


def use_of(spec: Spec, settings: Settings, seconds_a_step: float, device: torch.device, n_devices: int = 1) -> Use:
    """Of steps that took so long each. The peak is measured now."""
    done = step_flops(spec, settings) / seconds_a_step
    with threads(settings.threads):
        return Use(done, n_devices * peak(settings.dtype, device))

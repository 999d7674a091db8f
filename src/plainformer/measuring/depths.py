"""Norm before the part or after the sum, as stacks grow deeper: the loss after some steps, at two rates."""

from __future__ import annotations

from itertools import product

from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.stacks import HALF, LAYOUTS, VOCAB, WIDTH, stack, trained

DEPTHS, RATES, SEEDS, STEPS = (6, 24), (1e-3, 1e-2), (0, 1, 2), 100


def measure() -> Measured:
    rows = []
    for n_layers, lr in jobs(list(product(DEPTHS, RATES))):
        row = {"layers": f"{n_layers}", "rate": f"{lr:g}"}
        for name in ("added, norm before", "added, norm after"):
            spec = LAYOUTS[name](stack(n_layers))
            row[name.removeprefix("added, ")] = spread([trained(spec, seed, STEPS, lr) for seed in SEEDS], 2)
        rows.append(row)
    note = (
        f"Task: say {HALF} random tokens of {VOCAB} again. Width {WIDTH}, AdamW, {STEPS} steps, no warm-up: the loss "
        f"of the last ten in nats; the median of the seeds, and the least and most. Guessing is a loss of ln {VOCAB}."
    )
    return Measured(rows, SEEDS, note)

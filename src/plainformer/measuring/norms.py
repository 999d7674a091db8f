"""Norm before the part or after the sum: the loss after some steps at three rates, with a warm-up and without."""

from __future__ import annotations

from itertools import product

from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.stacks import HALF, LAYOUTS, VOCAB, WIDTH, stack, trained

LAYERS, SEEDS, STEPS = 6, (0, 1, 2), 200
RATES, WARMUPS = (3e-3, 1e-2, 3e-2), (1, 100)


def measure() -> Measured:
    rows = []
    for lr, warmup in jobs(list(product(RATES, WARMUPS))):
        row = {"rate": f"{lr:g}", "warm-up": "none" if warmup == 1 else f"{warmup} steps"}
        for name in ("added, norm before", "added, norm after"):
            spec = LAYOUTS[name](stack(LAYERS))
            row[name.removeprefix("added, ")] = spread([trained(spec, seed, STEPS, lr, warmup) for seed in SEEDS], 2)
        rows.append(row)
    note = (
        f"Task: say {HALF} random tokens of {VOCAB} again. {LAYERS} layers of width {WIDTH}, AdamW, {STEPS} steps: the "
        "loss of the last ten in nats; the median of the seeds, and the least and most. Guessing is a loss of "
        f"ln {VOCAB}."
    )
    return Measured(rows, SEEDS, note)

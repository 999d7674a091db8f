"""Depth against width at the same number of weights: the loss after as many steps, and after as much time."""

from __future__ import annotations

from time import process_time
from typing import Any

from plainformer.families import decoders
from plainformer.ledger import Ledger
from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.texts import CONTEXT, Text, nats, note, steps_of

SHAPES, SEEDS, STEPS = ((1, 128), (2, 88), (4, 64), (8, 44)), (0, 1, 2), 150


def measure(text: Text) -> Measured:
    specs = {
        shape: decoders.gpt2(
            vocab_size=len(text.letters), max_seq_len=CONTEXT, d_model=shape[1], n_layers=shape[0], n_heads=4
        )
        for shape in SHAPES
    }
    each_step: dict[tuple[int, int], float] = {}
    for shape, spec in specs.items():
        list(steps_of(spec, text, 0, 3))  # the first steps are slower than others
        began = process_time()
        list(steps_of(spec, text, 0, 10))
        each_step[shape] = (process_time() - began) / 10
    fastest, found = min(each_step.values()), dict[tuple[int, int], tuple[list[float], list[float]]]()
    for shape, seed in jobs([(shape, seed) for shape in SHAPES for seed in SEEDS]):
        in_time = max(1, round(STEPS * fastest / each_step[shape]))
        after = found.setdefault(shape, ([], []))
        for step, _, model in steps_of(specs[shape], text, seed, STEPS, initial="gpt2", decay=False):
            if step == STEPS:
                after[0].append(nats(model, text))
            if step == in_time:
                after[1].append(nats(model, text))
    rows: list[dict[str, Any]] = []
    for shape, (in_steps, in_time_too) in found.items():
        ledger = Ledger.of(specs[shape])
        rows.append(
            {
                "layers": shape[0],
                "width": shape[1],
                "weights in layers": f"{sum(w.count for w in ledger.weights if '.layers.' in w.name):,}",
                "ms a step": f"{1000 * each_step[shape]:.0f}",
                f"nats after {STEPS} steps": spread(in_steps, 3),
                "nats in equal time": spread(in_time_too, 3),
            }
        )
    words = (
        f"GPT-2's layout, {STEPS} steps of 16 rows of {CONTEXT}, Muon at a constant rate; ms of processor time. Equal "
        f"time: that of {STEPS} steps of the fastest. The median of the seeds, and the least and most."
    )
    return Measured(rows, SEEDS, note(text, words))

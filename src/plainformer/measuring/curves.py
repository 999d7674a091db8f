"""Two runs watched, a tiny one and a larger: the loss step by step, and the rate."""

from __future__ import annotations

from statistics import fmean

from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.texts import Text, nats, note, steps_of
from plainformer.presets import presets
from plainformer.training.recipe import MUON
from plainformer.training.schedule import Schedule

SEEDS, STEPS, MARKS = (0, 1, 2), 300, (1, 10, 25, 50, 100, 150, 200, 250, 300)


def measure(text: Text) -> Measured:
    spec = presets.trainable("tiny", vocab_size=len(text.letters))
    schedule = Schedule(shape="linear", steps=STEPS, warmup=MUON.warmup, decay_from=int(STEPS * MUON.steady))
    batch: dict[int, list[float]] = {step: [] for step in MARKS}
    valid: dict[int, list[float]] = {step: [] for step in MARKS}
    for seed in jobs(SEEDS):
        losses = []
        for step, loss, model in steps_of(spec, text, seed, STEPS):
            losses.append(loss)
            if step in MARKS:
                batch[step].append(fmean(losses[-10:]))
                valid[step].append(nats(model, text))
    whole = {}
    spec = presets.trainable("small", vocab_size=len(text.letters))
    run = steps_of(spec, text, SEEDS[0], STEPS, dtype="bfloat16")
    for mark in jobs(MARKS):
        _, _, model = next(one for one in run if one[0] == mark)
        whole[mark] = nats(model, text)
    rows = [
        {
            "step": step,
            "rate, of its peak": f"{schedule.at(step - 1):.2f}",
            "batches": spread(batch[step], 3),
            "validation": spread(valid[step], 3),
            "default, validation": f"{whole[step]:.3f}",
        }
        for step in MARKS
    ]
    words = (
        "`--preset tiny`; in the last column the default's shape, the first seed alone. Nats a character: of "
        "the last ten batches, or as many as there are, and of 20,000 characters of the validation part; the median of "
        "the seeds, and the least and most."
    )
    return Measured(rows, SEEDS, note(text, words))

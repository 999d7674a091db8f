"""What additions and norms are for: the first gradient, and the loss after some steps; five layouts, two depths."""

from __future__ import annotations

from statistics import median

from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.stacks import HALF, LAYOUTS, VOCAB, WIDTH, first_over_last, stack, trained

DEPTHS, SEEDS, STEPS, LR = (2, 12), (0, 1, 2), 150, 3e-3


def measure() -> Measured:
    rows = []
    drawn = [(name, "gpt2") for name in LAYOUTS] + [("replaced, norm before", "lesson")]
    for n_layers, (name, recipe) in jobs([(n_layers, one) for n_layers in DEPTHS for one in drawn]):
        spec = LAYOUTS[name](stack(n_layers))
        ratios = [first_over_last(spec, seed, recipe) for seed in SEEDS]
        losses = [trained(spec, seed, STEPS, LR, recipe=recipe) for seed in SEEDS]
        rows.append(
            {
                "layers": n_layers,
                "layout": name + ", drawn wide" * (recipe == "lesson"),
                "gradient, first layer / last": f"{median(ratios):.2g}",
                "loss in nats": spread(losses, 2),
            }
        )
    note = (
        f"Task: say {HALF} random tokens of {VOCAB} again. Width {WIDTH}, AdamW at {LR:g}, {STEPS} steps, no warm-up; "
        f"the median of the seeds, and the least and most. Guessing is a loss of ln {VOCAB}. A gradient of 0 is below "
        "what float32 can hold. Weights are drawn as GPT-2 draws them; wide: by one over the root of the width."
    )
    return Measured(rows, SEEDS, note)

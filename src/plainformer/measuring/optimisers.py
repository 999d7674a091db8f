"""AdamW and Muon after as many steps, each at three rates: which is ahead, and how much the rate has to do with it."""

from __future__ import annotations

from plainformer.families import llamas
from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.texts import CONTEXT, Text, nats, note, trained
from plainformer.records import replace
from plainformer.training.recipe import MUON, Rates

SEEDS, STEPS = (0, 1, 2), 150
ADAMW_RATES, MUON_RATES = (1e-3, 3e-3, 1e-2), (0.01, 0.03, 0.1)


def tried() -> list[tuple[str, float, Rates]]:
    """The optimiser's name, its rate for the matrices inside the layers, and all rates."""
    adamw = [replace(MUON.rates, optimizer="adamw", matrices=lr, embedding=lr, head=lr, rest=lr) for lr in ADAMW_RATES]
    muon = [replace(MUON.rates, matrices=lr) for lr in MUON_RATES]
    return [
        *(("AdamW", rates.matrices, rates) for rates in adamw),
        *(("Muon, AdamW for the rest", rates.matrices, rates) for rates in muon),
    ]


def measure(text: Text) -> Measured:
    spec = llamas.small(vocab_size=len(text.letters), max_seq_len=CONTEXT, d_model=64, n_layers=2, n_heads=4)
    rows = []
    for name, lr, rates in jobs(tried()):
        losses = [nats(trained(spec, text, seed, STEPS, rates=rates), text) for seed in SEEDS]
        rows.append({"optimiser": name, "rate of matrices": f"{lr:g}", "nats a character": spread(losses, 3)})
    words = (
        f"2 layers of width 64, {STEPS} steps of 16 rows of {CONTEXT}; warm-up, steady, then a straight line down. "
        f"AdamW has one rate for all weights, Muon's others are {MUON.rates.embedding:g} for the table and "
        f"{MUON.rates.rest:g} for the rest. The median of the seeds, and the least and most."
    )
    return Measured(rows, SEEDS, note(text, words))

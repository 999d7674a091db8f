"""A head that is the token table, or its own: weights, and the loss after as many steps."""

from __future__ import annotations

from plainformer.families import decoders
from plainformer.ledger import Ledger
from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.texts import CONTEXT, Text, nats, note, trained

SEEDS, STEPS = (0, 1, 2), 200


def measure(text: Text) -> Measured:
    rows = []
    for tied in jobs((True, False)):
        spec = decoders.gpt2(
            vocab_size=len(text.letters), max_seq_len=CONTEXT, d_model=64, n_layers=2, n_heads=4, tied=tied
        )
        losses = [nats(trained(spec, text, seed, STEPS, initial="gpt2"), text) for seed in SEEDS]
        rows.append(
            {
                "head": "the token table" if tied else "its own",
                "weights": f"{Ledger.of(spec).total:,}",
                "nats a character": spread(losses, 3),
            }
        )
    words = (
        f"GPT-2's layout, 2 layers of width 64, {STEPS} steps of 16 rows of {CONTEXT}, Muon; the median of the seeds, "
        "and the least and most."
    )
    return Measured(rows, SEEDS, note(text, words))

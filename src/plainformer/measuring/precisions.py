"""Products in bfloat16: what a step keeps, what the weights and their optimiser hold, and the loss."""

from __future__ import annotations

import torch

from plainformer.families import llamas
from plainformer.ledger import Ledger
from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.scores import kept_bytes
from plainformer.measuring.texts import BATCH, CONTEXT, Text, nats, note, steps_of
from plainformer.model import Transformer, cross_entropy
from plainformer.training.recipe import ADAMW
from plainformer.training.step import products_in

DTYPES, SEEDS, STEPS = ("float32", "bfloat16"), (0, 1, 2), 150


def kept(model: Transformer, text: Text, dtype: str) -> int:
    """Bytes that autograd saves for one step, weights left out."""
    tokens_BT = torch.from_numpy(text.train_N[: BATCH * (CONTEXT + 1)].reshape(BATCH, CONTEXT + 1))

    def run() -> None:
        with products_in(dtype, CONTEXT):
            logits_BTV = model(tokens_BT[:, :-1])
        losses.append(cross_entropy(logits_BTV.float(), tokens_BT[:, 1:]).mean())

    losses: list[torch.Tensor] = []
    return kept_bytes(run, model.parameters())


def measure(text: Text) -> Measured:
    spec = llamas.small(vocab_size=len(text.letters), max_seq_len=CONTEXT, d_model=64, n_layers=2, n_heads=4)
    rows, first, count = [], 0, Ledger.of(spec).total
    for dtype in jobs(DTYPES):
        losses, bytes_kept, held = [], 0, 0
        for seed in SEEDS:
            *_, (_, _, model) = steps_of(
                spec, text, seed, STEPS, rates=ADAMW.rates, initial="gpt2", dtype=dtype, decay=False
            )
            losses.append(nats(model, text))
            bytes_kept = kept(model, text, dtype)
            weights = list(model.parameters())
            held = sum(
                w.element_size() * w.numel() + w.grad.element_size() * w.numel() for w in weights if w.grad is not None
            )
        held += 8 * count  # AdamW's two running means, float32
        first = first or bytes_kept
        rows.append(
            {
                "products in": dtype,
                "bytes kept for the way back": f"{bytes_kept:,}",
                "of float32's": f"{100 * bytes_kept / first:.0f} %",
                "weights, gradients, AdamW": f"{held:,}",
                "nats a character": spread(losses, 3),
            }
        )
    words = (
        f"A transformer of 2 layers of width 64, {count:,} weights, after {STEPS} steps of {BATCH} rows of {CONTEXT}, "
        "AdamW; the median of the seeds, and the least and most."
    )
    return Measured(rows, SEEDS, note(text, words))

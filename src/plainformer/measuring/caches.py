"""A cache's work and time: positions that the model reads, seconds, bytes, and whether the tokens are the same."""

from __future__ import annotations

from plainformer.families import decoders
from plainformer.generation import generate
from plainformer.measuring import Measured, jobs, spread
from plainformer.model import Transformer

CASES, SEEDS = ((1, 100), (50, 100), (8, 200)), (0, 1, 2)
WIDTH, LAYERS, VOCAB = 128, 4, 256


def measure() -> Measured:
    rows = []
    spec = decoders.gpt2(vocab_size=VOCAB, max_seq_len=256, d_model=WIDTH, n_layers=LAYERS, n_heads=4)
    for n_prompt, n_new in jobs(CASES):
        ratios, speeds, same, work = [], [], True, (0, 0)
        for seed in SEEDS:
            model = Transformer(spec, initial="lesson", seed=seed).eval()
            prompt = [(7 * i + seed) % VOCAB for i in range(n_prompt)]
            plain = generate(model, prompt, n_new, temperature=0.0, cached=False)
            kept = generate(model, prompt, n_new, temperature=0.0)
            same = same and plain.tokens == kept.tokens
            work = plain.n_positions, kept.n_positions
            ratios.append(plain.seconds / kept.seconds)
            speeds.append(kept.tokens_per_second)
        rows.append(
            {
                "prompt": n_prompt,
                "new tokens": n_new,
                "positions read, no cache": f"{work[0]:,}",
                "with one": f"{work[1]:,}",
                "work": f"{work[0] / work[1]:.1f} x",
                "time": spread(ratios, 1) + " x",
                "same tokens": "yes" if same else "no",
            }
        )
    note = (
        f"GPT-2's layout, {LAYERS} layers of width {WIDTH}, random weights, one row, greedy. Work and time: without a "
        "cache over with one; the median of the seeds, and the least and most. Positions are the same on every machine."
    )
    return Measured(rows, SEEDS, note)

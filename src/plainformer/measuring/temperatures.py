"""Temperature by bands: how uncertain each draw is, and whether what is drawn are words.

B rows, T positions, N of them drawn, V letters.
"""

from __future__ import annotations

import re

import torch

from plainformer.families import llamas
from plainformer.generation import generate
from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.texts import CONTEXT, Text, note, trained
from plainformer.model import Transformer

TEMPERATURES, SEEDS, STEPS, ROWS, BEFORE = (0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0), (0, 1, 2), 300, 16, 8
WORD = re.compile(r"(?<=[^\w'])[A-Za-z]+(?=[^\w'])")  # whole ones: not those that a row's ends may have cut


@torch.no_grad()
def drawn(model: Transformer, text: Text, temperature: float, seed: int, known: set[str]) -> tuple[float, float, float]:
    """(mean entropy of the distributions that were drawn from, in bits; the share of words that the text has; the share
    of words that differ)."""
    starts = [text.valid_N[1000 * i : 1000 * i + BEFORE].tolist() for i in range(ROWS)]
    made = generate(model, starts, CONTEXT - BEFORE, temperature=temperature, seed=seed)
    rows_BT = torch.tensor(made.tokens)
    p_BNV = (model(rows_BT)[:, BEFORE - 1 : -1].double() / temperature).softmax(-1)
    entropy = torch.special.entr(p_BNV).sum(-1).mean().item() / torch.log(torch.tensor(2.0)).item()
    words = [word for row in made.new for word in WORD.findall("".join(text.letters[i] for i in row))]
    return entropy, sum(word in known for word in words) / max(1, len(words)), len(set(words)) / max(1, len(words))


def measure(text: Text) -> Measured:
    spec = llamas.small(vocab_size=len(text.letters), max_seq_len=CONTEXT, d_model=64, n_layers=2, n_heads=4)
    known = set(WORD.findall("".join(text.letters[i] for i in text.train_N)))
    found: dict[float, list[tuple[float, float, float]]] = {}
    for seed in jobs(SEEDS):
        model = trained(spec, text, seed, STEPS).eval()
        for temperature in TEMPERATURES:
            found.setdefault(temperature, []).append(drawn(model, text, temperature, seed, known))
    rows = [
        {
            "temperature": f"{temperature:g}",
            "entropy, bits a draw": spread([one[0] for one in each]),
            "words that the text has": spread([100 * one[1] for one in each], 0) + " %",
            "different ones of all words": spread([100 * one[2] for one in each], 0) + " %",
        }
        for temperature, each in found.items()
    ]
    words = (
        f"A transformer of 2 layers of width 64 after {STEPS} steps, {ROWS} rows of {CONTEXT - BEFORE} characters "
        "drawn; the median of the seeds, and the least and most."
    )
    return Measured(rows, SEEDS, note(text, words))

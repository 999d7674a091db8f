"""How evenly experts are used after some steps, with the balance loss and without."""

from __future__ import annotations

import torch

from plainformer.families import mixtures
from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.texts import BATCH, CONTEXT, Text, nats, note, trained
from plainformer.model import Transformer
from plainformer.training.balance import choices

COEFFICIENTS, SEEDS, STEPS, EXPERTS, CHOSEN = (0.0, 0.01), (0, 1, 2), 100, 8, 2


@torch.no_grad()
def shares(model: Transformer, text: Text) -> tuple[float, float]:
    """(the busiest expert's tokens, the idlest's), of an even share, in the layer where they lie furthest apart."""
    tokens_BT = torch.from_numpy(text.valid_N[: BATCH * CONTEXT].reshape(BATCH, CONTEXT))
    routed: list[tuple[torch.Tensor, torch.Tensor]] = []
    model.hidden(tokens_BT, routed=routed)
    even = tokens_BT.numel() * CHOSEN / EXPERTS
    loads = [count_E.double() / even for count_E in choices(routed, tokens_BT)]
    return max(load.max().item() for load in loads), min(load.min().item() for load in loads)


def measure(text: Text) -> Measured:
    rows = []
    for coefficient in jobs(COEFFICIENTS):
        spec = mixtures.small_moe(
            vocab_size=len(text.letters),
            max_seq_len=CONTEXT,
            d_model=64,
            n_layers=2,
            n_heads=4,
            n_experts=EXPERTS,
            n_chosen=CHOSEN,
            balance=coefficient,
        )
        models = [trained(spec, text, seed, STEPS) for seed in SEEDS]
        each = [shares(model, text) for model in models]
        rows.append(
            {
                "coefficient": f"{coefficient:g}",
                "busiest expert, of an even share": spread([busy for busy, _ in each]),
                "idlest": spread([idle for _, idle in each]),
                "nats a character": spread([nats(model, text) for model in models], 3),
            }
        )
    words = (
        f"2 layers of width 64, {EXPERTS} experts of which a token meets {CHOSEN}, {STEPS} steps of {BATCH} rows of "
        f"{CONTEXT}, Muon; of the layers the worst; the median of the seeds, and the least and most."
    )
    return Measured(rows, SEEDS, note(text, words))

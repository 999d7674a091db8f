"""Layers made again on the way back instead of kept: bytes that autograd saves, the time of a step, the gradients."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from plainformer.families import decoders
from plainformer.measuring import Measured, jobs, spread
from plainformer.measuring.scores import kept_bytes
from plainformer.model import Transformer, cross_entropy

LAYERS, SEEDS, WIDTH, LENGTH, BATCH, VOCAB = (4, 12), (0, 1, 2), 64, 128, 4, 64


def again(layer: nn.Module) -> None:
    """From now on this layer keeps what it reads alone, and runs once more on the way back."""
    forward: Callable[..., Tensor] = layer.forward
    layer.forward = lambda *inputs: checkpoint(forward, *inputs, use_reentrant=True)


def step(model: Transformer, tokens_BT: Tensor) -> tuple[Tensor, int, float]:
    """(all slopes in a row, bytes saved on the way there, processor seconds there and back)."""
    model.zero_grad()
    losses: list[Tensor] = []
    began = process_time()
    saved = kept_bytes(
        lambda: losses.append(cross_entropy(model(tokens_BT[:, :-1]), tokens_BT[:, 1:]).mean()), model.parameters()
    )
    losses[0].backward()
    took = process_time() - began
    return torch.cat([w.grad.flatten() for w in model.parameters() if w.grad is not None]), saved, took


def measure() -> Measured:
    rows = []
    for n_layers in jobs(LAYERS):
        spec = decoders.gpt2(vocab_size=VOCAB, max_seq_len=LENGTH, d_model=WIDTH, n_layers=n_layers, n_heads=4)
        gaps, times, bytes_kept = [], [], (0, 0)
        for seed in SEEDS:
            model = Transformer(spec, seed=seed).double()
            tokens_BT = torch.randint(VOCAB, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(seed))
            step(model, tokens_BT)  # the first is slower than others
            plain, plain_bytes, plain_time = min((step(model, tokens_BT) for _ in range(3)), key=lambda one: one[2])
            for layer in model.decoder.layers:
                again(layer)
            made, made_bytes, made_time = min((step(model, tokens_BT) for _ in range(3)), key=lambda one: one[2])
            gaps.append((plain - made).abs().max().item())
            times.append(made_time / plain_time)
            bytes_kept = plain_bytes, made_bytes
        rows.append(
            {
                "layers": n_layers,
                "bytes kept": f"{bytes_kept[0]:,}",
                "layers made again": f"{bytes_kept[1]:,}",
                "saved": f"{100 * (1 - bytes_kept[1] / bytes_kept[0]):.1f} %",
                "time": spread(times) + " x",
                "largest change of a slope": "below 1e-12" if max(gaps) < 1e-12 else f"{max(gaps):.1e}",
            }
        )
    note = (
        f"GPT-2's layout of width {WIDTH}, {BATCH} rows of {LENGTH} tokens, float64, scores of attention fused. Bytes: "
        "saved by autograd for one step, weights left out. Time: of a step, the least of three, over that of one that "
        "keeps all; the median of the seeds, and the least and most."
    )
    return Measured(rows, SEEDS, note)

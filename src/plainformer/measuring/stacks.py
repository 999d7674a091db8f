"""Small stacks with one habit changed, on a task that attention must solve: say the first half of a row again."""

from __future__ import annotations

from collections.abc import Callable

import torch

from plainformer.families import decoders
from plainformer.families.variants import post_norm, without_residual
from plainformer.model import Transformer, cross_entropy
from plainformer.records import replace
from plainformer.spec import Residual, Spec, Stack
from plainformer.tree import rewrite

VOCAB, HALF, WIDTH, BATCH = 64, 8, 32, 32


def stack(n_layers: int) -> Spec:
    """A decoder with pre-norm and residuals, small enough to train in seconds."""
    return decoders.gpt2(vocab_size=VOCAB, max_seq_len=2 * HALF, d_model=WIDTH, n_layers=n_layers, n_heads=4)


def without_norms(spec: Spec) -> Spec:
    """The same without the norms of its layers; the last one, before the head, stays."""

    def change(part: object) -> object:
        if isinstance(part, Residual):
            return replace(part, branches=tuple(replace(branch, norm_in=None) for branch in part.branches))
        return part

    return rewrite(spec, change)


def bare(spec: Spec) -> Spec:
    return without_norms(without_residual(spec))


LAYOUTS: dict[str, Callable[[Spec], Spec]] = {
    "added, norm before": lambda spec: spec,
    "added, norm after": post_norm,
    "added, no norm": without_norms,
    "replaced, norm before": without_residual,
    "replaced, no norm": bare,
}


def rows(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that say their first half again, and targets of the second half alone."""
    first = torch.randint(VOCAB, (BATCH, HALF), generator=generator)
    tokens_BT = torch.cat((first, first), 1)
    targets_BT = torch.cat((torch.full((BATCH, HALF - 1), -1), first, torch.full((BATCH, 1), -1)), 1)
    return tokens_BT, targets_BT


def loss_of(model: Transformer, tokens_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
    return cross_entropy(model(tokens_BT), targets_BT).sum() / (targets_BT >= 0).sum()


def first_over_last(spec: Spec, seed: int, recipe: str = "gpt2") -> float:
    """At the start: the size of the gradient of the first layer's weights over that of the last layer's."""
    model = Transformer(spec, initial=recipe, seed=seed)
    loss_of(model, *rows(torch.Generator().manual_seed(seed))).backward()
    sizes = []
    assert isinstance(spec.decoder, Stack)
    for i in (0, len(spec.decoder.layers) - 1):
        named = model.named_parameters()
        found = [p.grad for name, p in named if name.startswith(f"decoder.layers.{i}.") and p.grad is not None]
        sizes.append(torch.stack([grad.norm() for grad in found]).norm().item())
    return sizes[0] / sizes[1] if sizes[1] else 0.0


def trained(spec: Spec, seed: int, n_steps: int, lr: float, warmup: int = 1, recipe: str = "gpt2") -> float:
    """The mean loss of the last ten steps, in nats; infinite if it ever was no number."""
    model = Transformer(spec, initial=recipe, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.95), weight_decay=0.0)
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for step in range(n_steps):
        optimizer.param_groups[0]["lr"] = lr * min(1.0, (step + 1) / warmup)
        loss = loss_of(model, *rows(generator))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    mean = sum(losses[-10:]) / 10
    return mean if mean == mean else float("inf")

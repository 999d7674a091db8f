"""How evenly a mixture spreads its tokens over its experts, and what its unevenness costs in training.

M rows at once, T positions, E experts, N tokens of all rows.
"""

from __future__ import annotations

import torch
from torch import Tensor

from plainformer.kernels import balance_loss
from plainformer.spec import Experts, Spec

Routed = list[tuple[Tensor, Tensor]]  # each router's scores and choices, (N, E), in the order of a pass
Traffic = dict[str, Tensor]  # how many tokens chose each expert, (E,), by the mixture's place


def mixtures(spec: Spec) -> list[tuple[str, Experts]]:
    """The mixtures of the stack that the head reads, by place, in the order in which a pass meets them."""
    stack, found = spec.main, []
    for n_pass, i in enumerate(stack.passes or range(len(stack.layers)), start=1):
        place = f"{'decoder' if spec.decoder else 'encoder'}.layers.{i}"
        for branch in (branch for residual in stack.layers[i] for branch in residual.branches):
            if isinstance(branch.part, Experts):
                shared = f".pass.{n_pass}" if stack.passes else ""
                found.append((f"{place}.{branch.name}{shared}", branch.part))
    return found


def choices(routed: Routed, targets_MT: Tensor) -> list[Tensor]:
    """How many of the tokens with a real target chose each expert, (E,) for each router."""
    real_N = targets_MT.flatten() >= 0
    return [chosen_NE[real_N].sum(0) for _, chosen_NE in routed]


def unevenness(mixed: list[tuple[str, Experts]], routed: Routed, targets_MT: Tensor, counts: list[Tensor]) -> Tensor:
    """These rows' share in the batch's balance losses, each times its coefficient, summed over the mixtures.

    counts: the choices of the whole batch. They hold no gradient: it flows through the probabilities alone, whose mean
    over the batch is the sum of its parts' (Fedus et al. 2021, section 2.2). Padding (a target of -1) counts nowhere.
    """
    real_N = targets_MT.flatten() >= 0
    total = torch.zeros((), dtype=torch.float64 if routed[0][0].dtype == torch.float64 else torch.float32)
    total = total.to(routed[0][0].device)
    n_here = int(real_N.sum())
    for (_, part), (scores_NE, chosen_NE), count_E in zip(mixed, routed, counts, strict=True):
        if part.balance and n_here:
            exact = scores_NE[real_N].to(total.dtype)
            n_choices = int(count_E.sum())
            share_E = count_E.to(total.dtype) / n_choices
            weight = part.balance * n_here * part.router.n_chosen / n_choices  # n_here of all tokens
            total = total + weight * balance_loss(exact, chosen_NE[real_N], share_E)
    return total

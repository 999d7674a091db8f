"""From slopes to other weights: one step of AdamW, one of Muon, and a slope that is cut before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from plainformer.formulas import Array

Named = Mapping[str, Array]
QUINTIC = (3.4445, -4.7750, 2.0315)  # Jordan et al. 2024


@dataclass(frozen=True)
class Moments:
    """What AdamW remembers of the steps before, by a weight's name: running means of the slope and of its square."""

    n_steps: int = 0
    mean: Named = field(default_factory=dict)
    square: Named = field(default_factory=dict)


def adamw_step(
    weights: Named,
    gradients: Named,
    moments: Moments,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    decay: float = 0.01,
) -> tuple[dict[str, Array], Moments]:
    """(the weights after one step, what to remember) (Loshchilov and Hutter 2019, algorithm 2; as torch computes it).

        mean   <- beta1 mean + (1 - beta1) g            where the slope has pointed of late
        square <- beta2 square + (1 - beta2) g^2        how large it has been
        w <- w - lr decay w - lr (mean / c1) / (sqrt(square / c2) + eps),    c = 1 - beta^n

    Both means begin at 0, so after n steps they hold the share c of what they will: they are divided by it. An entry
    moves by about lr whatever its slope's size. A weight without a gradient stays as it is.
    """
    n = moments.n_steps + 1
    c1, c2 = (1 - beta**n for beta in betas)
    moved, mean, square = dict(weights), dict(moments.mean), dict(moments.square)
    for name, g in gradients.items():
        mean[name] = betas[0] * mean.get(name, 0.0) + (1 - betas[0]) * g
        square[name] = betas[1] * square.get(name, 0.0) + (1 - betas[1]) * g**2
        step = mean[name] / c1 / (np.sqrt(square[name] / c2) + eps)
        moved[name] = (1 - lr * decay) * weights[name] - lr * step
    return moved, Moments(n, mean, square)


def orthogonal(matrices: Array, n_steps: int = 5) -> Array:
    """Matrices (..., R, C), R <= C, with the same singular vectors and singular values near 1, 0.7 to 1.2.

    x <- a x + b (x x^T) x + c (x x^T)^2 x takes each singular value s to a s + b s^3 + c s^5, and none is ever computed
    (Jordan et al. 2024).
    """
    a, b, c = QUINTIC
    x = matrices / (np.sqrt((matrices**2).sum((-2, -1), keepdims=True)) * 1.02 + 1e-7)
    for _ in range(n_steps):
        xx = x @ x.swapaxes(-1, -2)
        x = a * x + (b * xx + c * xx @ xx) @ x
    return np.asarray(x)


def muon_step(
    weights: Named, gradients: Named, kept: Named, lr: float, momentum: float = 0.95, decay: float = 0.0
) -> tuple[dict[str, Array], dict[str, Array]]:
    """(the weights after one step, the momentum to remember), for matrices and stacks of them (Jordan et al. 2024).

        m <- momentum m + (1 - momentum) g
        w <- (1 - lr decay) w - lr sqrt(max(1, n_out / n_in)) orthogonal((1 - momentum) g + momentum m)

    AdamW makes every entry's step alike; Muon every direction's: all singular values of a step are near 1.
    """
    moved, now = dict(weights), dict(kept)
    for name, g in gradients.items():
        n_out, n_in = g.shape[-2:]
        now[name] = momentum * now.get(name, 0.0) + (1 - momentum) * g
        ahead = (1 - momentum) * g + momentum * now[name]
        step = orthogonal(ahead) if n_out <= n_in else orthogonal(ahead.swapaxes(-1, -2)).swapaxes(-1, -2)
        moved[name] = (1 - lr * decay) * weights[name] - lr * max(1.0, n_out / n_in) ** 0.5 * step
    return moved, now


def clipped(gradients: Named, longest: float) -> tuple[dict[str, Array], float]:
    """(the gradients, all times one number if together they are longer than `longest`; how long they were) (Pascanu et
    al. 2013, algorithm 1; with torch's 1e-6 beside the length)."""
    length = float(np.sqrt(sum((g**2).sum() for g in gradients.values())))
    share = min(1.0, longest / (length + 1e-6))
    return {name: share * g for name, g in gradients.items()}, length

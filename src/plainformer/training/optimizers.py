"""How gradients move weights: Muon for the matrices inside the layers, AdamW for all else.

N matrices of one shape, side by side; R rows and C columns of each, R <= C.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer
from torch.optim.adamw import adamw

from plainformer.checkpoint.runs import share_of
from plainformer.faults import refuse
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.training.lanes import side_by_side
from plainformer.training.processes import whole
from plainformer.training.recipe import Rates, Settings
from plainformer.training.uncompiled import left_alone

# Newton-Schulz: x <- a x + b (x x^T) x + c (x x^T)^2 x takes every singular value near 1 (Jordan et al. 2024).
QUINTIC = (3.4445, -4.7750, 2.0315)
MATRICES = ("attention", "feed_forward", "expert")  # kinds of the ledger whose weights mix the stream


left_alone(Optimizer.add_param_group)


def orthogonal(g_NRC: Tensor, n_steps: int = 5) -> Tensor:
    """Matrices with the singular vectors of these and singular values near 1 (0.7 to 1.2), in their dtype."""
    a, b, c = QUINTIC
    x_NRC = g_NRC / (g_NRC.norm(dim=(-2, -1), keepdim=True) * 1.02 + 1e-7)  # 1.02: bfloat16 rounds norms up, too
    for _ in range(n_steps):
        xx_NRR = x_NRC @ x_NRC.mT
        x_NRC = torch.baddbmm(x_NRC, torch.baddbmm(xx_NRR, xx_NRR, xx_NRR, beta=b, alpha=c), x_NRC, beta=a)
    return cast(Tensor, x_NRC)


class Muon(Optimizer):
    """Momentum, then each matrix of it made orthogonal (Jordan et al. 2024, "Muon").

        m <- momentum m + (1 - momentum) g
        w <- (1 - lr decay) w - lr sqrt(max(1, n_out / n_in)) orthogonal((1 - momentum) g + momentum m)

    Weights with more axes than two are stacks of matrices (experts). Matrices of one shape, turned or not, are made
    orthogonal together: one batched product in place of many, in `lanes` side by side. `dtype` is that of the
    orthogonalisation; None: of the weights. `found_inf`, set on the optimiser as torch's scalers set it: a number that
    is 1 where the gradients are not to be followed; nothing is then moved or remembered, and nobody waits to see it. Of
    weights that processes keep in shares each process gathers every matrix, makes all of them orthogonal, and moves its
    own share: the momentum is shared, the products are done by each.
    """

    def __init__(
        self,
        weights: Iterable[Tensor],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        dtype: torch.dtype | None = None,
        lanes: int = 1,
    ) -> None:
        self.dtype, self.lanes = dtype, lanes
        self.found_inf: Tensor | None = None
        super().__init__(weights, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every weight that has a gradient."""
        for group in self.param_groups:
            weights = [w for w in group["params"] if w.grad is not None]
            if not weights:
                continue
            for w in weights:
                if "momentum" not in self.state[w]:
                    self.state[w]["momentum"] = torch.zeros_like(w)
            grads = [cast(Tensor, w.grad) for w in weights]
            kept = [self.state[w]["momentum"] for w in weights]
            if self.found_inf is not None:  # towards itself: no move
                bad = self.found_inf > 0
                grads = [torch.where(bad, momentum, grad) for momentum, grad in zip(kept, grads, strict=True)]
            torch._foreach_lerp_(kept, grads, 1 - group["momentum"])
            ahead = torch._foreach_lerp(grads, kept, group["momentum"])  # Nesterov's look ahead
            self.move(group, weights, list(ahead))

    def move(self, group: Mapping[str, Any], weights: list[Tensor], ahead: list[Tensor]) -> None:
        """Add the orthogonal matrices, those of one shape computed together, every lane's own share of them."""
        alike: dict[tuple[int, int], list[int]] = {}
        for i, w in enumerate(weights):
            alike.setdefault((min(w.shape[-2:]), max(w.shape[-2:])), []).append(i)

        @torch.no_grad()  # each thread says it for itself
        def some(lane: int) -> None:
            for (n_short, n_long), all_members in alike.items():
                if not (members := all_members[lane :: self.lanes]):
                    continue
                full = (whole(ahead[i]) for i in members)
                wide = (x if x.shape[-1] == n_long else x.mT for x in full)
                stack_NRC = torch.cat([x.reshape(-1, n_short, n_long) for x in wide])
                done_NRC = orthogonal(stack_NRC.to(self.dtype or stack_NRC.dtype))
                sizes = [weights[i].numel() // (n_short * n_long) for i in members]
                for i, part in zip(members, done_NRC.split(sizes), strict=True):
                    turned = part if weights[i].shape[-1] == n_long else part.mT
                    self.add(group, weights[i], turned.reshape(weights[i].shape))

        side_by_side(some, range(self.lanes))

    def add(self, group: Mapping[str, Any], w: Tensor, matrix: Tensor) -> None:
        n_out, n_in = w.shape[-2:]
        before = None if self.found_inf is None else w.clone()
        w.mul_(1 - group["lr"] * group["weight_decay"])
        w.add_(share_of(matrix, w), alpha=-group["lr"] * max(1.0, n_out / n_in) ** 0.5)
        if before is not None and self.found_inf is not None:
            w.copy_(torch.where(self.found_inf > 0, before, w))


class Adam(AdamW):
    """torch's AdamW, its step taken by the function that it is made of: the method would load torch.compile."""

    found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of every weight that has a gradient."""
        for group in self.param_groups:
            lists: list[list[Tensor]] = [[] for _ in range(6)]
            self._init_group(group, *lists)  # type: ignore[no-untyped-call]
            weights, grads, averages, squares, greatest, steps = lists
            beta1, beta2 = group["betas"]
            if weights:
                adamw(
                    weights,
                    grads,
                    averages,
                    squares,
                    greatest,
                    steps,
                    fused=True,
                    found_inf=self.found_inf,
                    amsgrad=False,
                    beta1=beta1,
                    beta2=beta2,
                    lr=group["lr"],
                    weight_decay=group["weight_decay"],
                    eps=group["eps"],
                    maximize=False,
                )


class Optimizers:
    """The optimisers of one model, as one: their rates by step, their tensors by name.

    Which weight goes where is decided by its kind in the ledger and its number of axes, never by its name. Weights that
    ask for no gradient, as those beside adapters, are in none of them.
    """

    def __init__(self, model: Transformer, rates: Rates, dtype: torch.dtype | None = None, lanes: int = 1) -> None:
        """dtype: of Muon's orthogonalisation; lanes: that share it."""
        self.rates = rates
        self.named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        groups: dict[str, list[Tensor]] = {}
        for w in (w for w in Ledger.of(model.spec).weights if w.name in self.named):
            groups.setdefault(self.group_of(w.kind, len(w.shape)), []).append(self.named[w.name])
        self.inner: list[Optimizer] = []
        if matrices := groups.pop("muon", []):
            self.inner.append(Muon(matrices, rates.matrices, rates.momentum, rates.decay, dtype, lanes))
        plain = [
            {"params": members, "lr": rates.of(name), "weight_decay": rates.decay if name == "matrices" else 0.0}
            for name, members in groups.items()
        ]
        if plain:
            self.inner.append(Adam(plain, betas=rates.betas, eps=rates.eps, fused=True))
        self.peaks = [[group["lr"] for group in inner.param_groups] for inner in self.inner]

    def group_of(self, kind: str, n_axes: int) -> str:
        if kind in MATRICES and n_axes >= 2:
            return "muon" if self.rates.optimizer == "muon" else "matrices"
        return kind if kind in ("embedding", "head") and n_axes >= 2 else "rest"

    def set(self, share: float, step: int) -> None:
        """The rates of this step, as a share of their peaks, and Muon's momentum."""
        for inner, peaks in zip(self.inner, self.peaks, strict=True):
            for group, peak in zip(inner.param_groups, peaks, strict=True):
                group["lr"] = peak * share
                if isinstance(inner, Muon):
                    group["momentum"] = self.rates.momentum_at(step)

    @property
    def lr(self) -> float:
        """The first group's rate: the matrices', where there are any."""
        return float(self.inner[0].param_groups[0]["lr"])

    def step(self, bad: Tensor | None = None) -> None:
        """Move the weights; nothing where `bad` is 1 (see `step.watched`)."""
        for inner in self.inner:
            cast(Any, inner).found_inf = bad
            inner.step()

    def clear(self) -> None:
        """Forget the gradients."""
        for weight in self.named.values():
            weight.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """All that the optimisers remember, as "what.weight's name"."""
        return {f"{key}.{name}": tensor for name, key, tensor in self._remembered()}

    def _remembered(self) -> Iterator[tuple[str, str, Tensor]]:
        names: dict[Tensor, str] = {weight: name for name, weight in self.named.items()}
        for inner in self.inner:
            for weight, state in inner.state.items():
                yield from ((names[weight], key, tensor) for key, tensor in state.items())

    def restore(self, tensors: Iterable[tuple[str, Tensor]], where: str) -> None:
        """Take back what `tensors` gave, one at a time. Refuses what is of no weight here, naming the file `where`."""
        owner = {weight: inner for inner in self.inner for group in inner.param_groups for weight in group["params"]}
        for full, tensor in tensors:
            key, _, name = full.partition(".")
            if name not in self.named:
                raise refuse(f"{where}: {full}", None, "is of no weight of this model")
            weight = self.named[name]
            owner[weight].state[weight][key] = tensor.to(weight.device, copy=True)  # not the file's own bytes


def optimizers_for(model: Transformer, settings: Settings, lanes: int | None = None) -> Optimizers:
    """lanes: None: the settings' own."""
    dtype = torch.bfloat16 if settings.dtype == "bfloat16" else None
    return Optimizers(model, settings.rates, dtype, settings.lanes if lanes is None else lanes)

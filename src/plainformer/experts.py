"""Mixtures of experts in PyTorch: who meets which expert, and what the experts say.

B batch, T new positions, D d_model, E experts, N tokens of all rows (routing knows no rows), C choices of them all.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from plainformer import spec as s
from plainformer.kernels import choose
from plainformer.layers import FeedForward, Linear, add, build
from plainformer.states import Where

Routed = tuple[Tensor, Tensor, Tensor]  # scores (N, E); the choices as booleans, since a gate may underflow; gates


@build.register(s.ChosenSoftmaxRouter)
class ChosenSoftmaxRouter(nn.Module):
    def __init__(self, part: s.ChosenSoftmaxRouter) -> None:
        super().__init__()
        self.part = part
        self.scores = Linear(part.scores)

    def forward(self, x_ND: Tensor) -> Routed:
        scores_NE = cast(Tensor, self.scores(x_ND))
        chosen_NE = choose(scores_NE, self.part.n_chosen)
        return scores_NE, chosen_NE, scores_NE.masked_fill(~chosen_NE, -torch.inf).softmax(-1)


@build.register(s.SoftmaxRouter)
class SoftmaxRouter(nn.Module):
    def __init__(self, part: s.SoftmaxRouter) -> None:
        super().__init__()
        self.part = part
        if part.scaled:
            self.input_scale = nn.Parameter(torch.empty(part.scores.n_in))
            self.expert_scale = nn.Parameter(torch.empty(part.scores.n_out))
        self.scores = Linear(part.scores)

    def forward(self, x_ND: Tensor) -> Routed:
        part, scores_NE = self.part, cast(Tensor, self.scores(x_ND))
        open_NE = scores_NE
        if part.n_groups > 1:
            in_groups = scores_NE.unflatten(-1, (part.n_groups, -1))
            best = choose(in_groups.amax(-1), part.n_chosen_groups)
            open_NE = scores_NE.masked_fill(~best.repeat_interleave(in_groups.shape[-1], -1), -torch.inf)
        chosen_NE = choose(open_NE, part.n_chosen)
        gates_NE = scores_NE.softmax(-1).masked_fill(~chosen_NE, 0)
        gates_NE = gates_NE / gates_NE.sum(-1, keepdim=True) if part.normalised else gates_NE
        return scores_NE, chosen_NE, gates_NE if part.factor == 1 else gates_NE * part.factor


@build.register(s.SigmoidRouter)
class SigmoidRouter(nn.Module):
    correction: Tensor

    def __init__(self, part: s.SigmoidRouter) -> None:
        super().__init__()
        self.part = part
        self.register_buffer("correction", torch.zeros(part.scores.n_out))
        self.scores = Linear(part.scores)

    def forward(self, x_ND: Tensor) -> Routed:
        part, scores_NE = self.part, cast(Tensor, self.scores(x_ND))
        p_NE = scores_NE.sigmoid()
        corrected_NE = p_NE + self.correction
        in_groups = corrected_NE.unflatten(-1, (part.n_groups, -1))
        best = choose(in_groups.topk(2, -1).values.sum(-1), part.n_chosen_groups)
        closed_NE = ~best.repeat_interleave(in_groups.shape[-1], -1)
        chosen_NE = choose(corrected_NE.masked_fill(closed_NE, -torch.inf), part.n_chosen)
        gates_NE = p_NE.masked_fill(~chosen_NE, 0)
        gates_NE = gates_NE / (gates_NE.sum(-1, keepdim=True) + 1e-20) if part.normalised else gates_NE
        return scores_NE, chosen_NE, gates_NE * part.factor


@build.register(s.Experts)
class Experts(nn.Module):
    place = ""
    router: nn.Module
    shared: nn.Module
    shared_gate: nn.Module

    def __init__(self, part: s.Experts) -> None:
        super().__init__()
        self.part = part
        add(self, part, "router")
        self.experts = FeedForward(part.expert, part.n_experts)
        add(self, part, "shared", "shared_gate")

    def forward(self, x_BTD: Tensor, where: Where) -> Tensor:
        x_ND = x_BTD.flatten(0, -2)
        scores_NE, chosen_NE, gates_NE = cast(Routed, self.router(x_ND))
        router = where.at(f"{self.place}.router")
        where.keep(f"{router}.scores", scores_NE)
        where.keep(f"{router}.chosen", chosen_NE)
        where.keep(f"{where.at(self.place)}.gates", gates_NE)
        if where.routed is not None:
            where.routed.append((scores_NE, chosen_NE))
        out_ND = self.grouped(x_ND, chosen_NE, gates_NE)
        if self.part.shared:
            said_ND = self.shared(x_ND)
            out_ND = out_ND + (self.shared_gate(x_ND).sigmoid() * said_ND if self.part.shared_gate else said_ND)
        return out_ND.view_as(x_BTD)

    def grouped(self, x_ND: Tensor, chosen_NE: Tensor, gates_NE: Tensor) -> Tensor:
        """Tokens sorted by expert, so that each runs once, on its own tokens alone."""
        experts_C, tokens_C = chosen_NE.T.nonzero(as_tuple=True)  # by expert, within each by token
        sizes = chosen_NE.sum(0).tolist()
        met = [(e, rows) for e, rows in enumerate(x_ND[tokens_C].split(sizes)) if len(rows)]
        said_CD = torch.cat([self.experts(rows, None, e) for e, rows in met])
        said_CD = gates_NE[tokens_C, experts_C, None] * said_CD
        return torch.zeros_like(x_ND).index_add(0, tokens_C, said_CD.to(x_ND.dtype))  # autocast's are bfloat16

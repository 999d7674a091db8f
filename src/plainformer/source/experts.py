"""Mixtures of experts: the router, and each token through the experts that it was sent to."""

from __future__ import annotations

from plainformer import spec as s
from plainformer.faults import refuse
from plainformer.source.page import Page, size
from plainformer.source.parts import code, method

ROUTED = "forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor]"


def choose(page: Page) -> str:
    text = '''(scores_NE: Tensor, n: int) -> Tensor:
    """True (N, E) at each token's best n scores; of equal scores the first wins."""
    best = scores_NE.sort(dim=-1, descending=True, stable=True).indices[:, :n]
    return torch.zeros_like(scores_NE, dtype=torch.bool).scatter(1, best, True)
'''
    return page.a_function("choose", text)


def scores_of(part: s.Router, page: Page) -> str:
    n_experts = size("n_experts", part.scores.n_out)
    return f"self.scores = {code(part.scores, page, size('d_model', part.scores.n_in), n_experts)}\n"


@code.register(s.ChosenSoftmaxRouter)
def _(part: s.ChosenSoftmaxRouter, page: Page, *_: str) -> str:
    lines = [
        "scores_NE = self.scores(x_ND)",
        f"chosen_NE = {choose(page)}(scores_NE, {size('n_chosen', part.n_chosen)})",
        "chosen_NE, scores_NE.masked_fill(~chosen_NE, -torch.inf).softmax(-1)",
    ]
    doc = "Which experts each token is sent to, and how much each counts: a softmax over the scores of those alone."
    return page.a_class("Router", doc, scores_of(part, page), method(ROUTED, *lines))


@code.register(s.SoftmaxRouter)
def _(part: s.SoftmaxRouter, page: Page, *_: str) -> str:
    if part.scaled:
        raise refuse("SoftmaxRouter.scaled", True, "no rule writes this code yet", "it can be sized")
    n_groups, opened, lines = size("n_groups", part.n_groups), "scores_NE", ["scores_NE = self.scores(x_ND)"]
    if part.n_groups > 1:
        opened = "open_NE"
        lines += [
            f"groups = scores_NE.unflatten(-1, ({n_groups}, -1))  # a group is worth its best score",
            f"best = {choose(page)}(groups.amax(-1), {size('n_chosen_groups', part.n_chosen_groups)})",
            "open_NE = scores_NE.masked_fill(~best.repeat_interleave(groups.shape[-1], -1), -torch.inf)",
        ]
    by = "" if part.factor == 1 else f" * {size('factor', part.factor)}"
    lines += [
        f"chosen_NE = {choose(page)}({opened}, {size('n_chosen', part.n_chosen)})",
        "gates_NE = scores_NE.softmax(-1).masked_fill(~chosen_NE, 0)",
        f"chosen_NE, gates_NE{' / gates_NE.sum(-1, keepdim=True)' if part.normalised else ''}{by}",
    ]
    doc = "Which experts each token is sent to, and how much each counts: its share of all"
    doc += ", made to sum to 1." if part.normalised else "."
    return page.a_class("Router", doc, scores_of(part, page), method(ROUTED, *lines))


@code.register(s.SigmoidRouter)
def _(part: s.SigmoidRouter, page: Page, *_: str) -> str:
    n_chosen, n_groups = size("n_chosen", part.n_chosen), size("n_groups", part.n_groups)
    init = f'self.register_buffer("correction", torch.zeros({size("n_experts", part.scores.n_out)}))\n'
    lines = [
        "p_NE = self.scores(x_ND).sigmoid()",
        "corrected_NE = p_NE + self.correction  # steers the choice, not how much a choice counts",
        f"groups = corrected_NE.unflatten(-1, ({n_groups}, -1))",
        f"best = {choose(page)}(groups.topk(2, -1).values.sum(-1), {size('n_chosen_groups', part.n_chosen_groups)})",
        "closed_NE = ~best.repeat_interleave(groups.shape[-1], -1)",
        f"chosen_NE = {choose(page)}(corrected_NE.masked_fill(closed_NE, -torch.inf), {n_chosen})",
        "gates_NE = p_NE.masked_fill(~chosen_NE, 0)",
    ]
    if part.normalised:
        lines.append("gates_NE = gates_NE / (gates_NE.sum(-1, keepdim=True) + 1e-20)")
    lines.append(f"chosen_NE, gates_NE * {size('factor', part.factor)}")
    doc = "Which experts each token is sent to, and how much each counts: the best experts of the best groups."
    return page.a_class("Router", doc, init + scores_of(part, page), method(ROUTED, *lines))


@code.register(s.Experts)
def _(part: s.Experts, page: Page, d_model: str = "", *_: str) -> str:
    n_experts = size("n_experts", part.n_experts)
    init = f"self.router = {code(part.router, page)}\n"
    init += f"self.experts = {code(part.expert, page, d_model, n_experts, 'd_expert')}\n"
    lines = [
        "x_ND = x_BTD.flatten(0, -2)  # routing knows no rows",
        "chosen_NE, gates_NE = self.router(x_ND)",
        "# C: every choice of every token, sorted by expert, so that each expert runs once, on its own tokens alone.",
        "experts_C, tokens_C = chosen_NE.T.nonzero(as_tuple=True)",
        "sent = x_ND[tokens_C].split(chosen_NE.sum(0).tolist())",
        "said_CD = torch.cat([self.experts(rows, e) for e, rows in enumerate(sent) if len(rows)])",
        "said_CD = gates_NE[tokens_C, experts_C, None] * said_CD",
        "out_ND = torch.zeros_like(x_ND).index_add(0, tokens_C, said_CD)",
    ]
    doc = "Each token through the few experts that its router chose"
    if part.shared:
        doc += ", and through one that all tokens meet"
        init += f"self.shared = {code(part.shared, page, d_model)}\n"
        said = "self.shared(x_ND)"
        if part.shared_gate:
            init += f"self.shared_gate = {code(part.shared_gate, page, d_model, '1')}\n"
            said = f"self.shared_gate(x_ND).sigmoid() * {said}"
        lines.append(f"out_ND = out_ND + {said}")
    forward = method("forward(self, x_BTD: Tensor) -> Tensor", *lines, "out_ND.view_as(x_BTD)")
    return page.a_class("Mixture", f"{doc}.", init, forward)

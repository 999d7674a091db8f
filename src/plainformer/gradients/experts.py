"""Slopes back through a mixture of experts: what the experts say, who met whom, and how even the traffic was.

The choice itself has no slope, for a small change of the scores changes no choice. The gates have.
T positions, D d_model, E experts.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plainformer import formulas as f
from plainformer import spec as s
from plainformer.formulas import Array
from plainformer.gradients import formulas as b
from plainformer.gradients.parts import Slopes, backward, rule
from plainformer.reference import Weights, Where, run


def through_router(part: s.Router, w: Weights, x_TD: Array, where: Where, d_scores_TE: Array, to: Slopes) -> Array:
    to.trace[f"{where.at(w.place)}.scores"] = d_scores_TE
    return backward(part.scores, w.at("scores"), x_TD, where, d_scores_TE, to)


def routed(part: s.Router, w: Weights, x_TD: Array, where: Where) -> tuple[Array, Array, Array]:
    """Scores, choices and gates, (T, E) each, by the router's own rule."""
    kept: dict[str, Array] = {}
    gates_TE = run(part, w, x_TD, replace(where, trace=kept))
    place = where.at(w.place)
    return kept[f"{place}.scores"], kept[f"{place}.chosen"], gates_TE


@rule.register
def _(part: s.ChosenSoftmaxRouter, w: Weights, x_TD: Array, where: Where, d_gates_TE: Array, to: Slopes) -> Array:
    _, _, gates_TE = routed(part, w, x_TD, where)
    return through_router(part, w, x_TD, where, b.softmax_back(gates_TE, d_gates_TE), to)


@rule.register
def _(part: s.SoftmaxRouter, w: Weights, x_TD: Array, where: Where, d_gates_TE: Array, to: Slopes) -> Array:
    scores_TE, chosen_TE, _ = routed(part, w, x_TD, where)
    p_TE, d_gates_TE = f.softmax(scores_TE), d_gates_TE * part.factor
    if part.normalised:
        d_gates_TE = b.normalised_back(p_TE * chosen_TE, d_gates_TE)
    return through_router(part, w, x_TD, where, b.softmax_back(p_TE, d_gates_TE * chosen_TE), to)


@rule.register
def _(part: s.SigmoidRouter, w: Weights, x_TD: Array, where: Where, d_gates_TE: Array, to: Slopes) -> Array:
    """The correction steers the choice alone: no slope along it."""
    scores_TE, chosen_TE, _ = routed(part, w, x_TD, where)
    p_TE, d_gates_TE = f.sigmoid(scores_TE), d_gates_TE * part.factor
    if part.normalised:
        d_gates_TE = b.normalised_back(p_TE * chosen_TE, d_gates_TE, 1e-20)
    return through_router(part, w, x_TD, where, d_gates_TE * chosen_TE * p_TE * (1 - p_TE), to)


@rule.register
def _(part: s.Experts, w: Weights, x_TD: Array, where: Where, d_y_TD: Array, to: Slopes) -> Array:
    """y = sum of gate * what its expert says: a product, so the gate's slope is what the expert says along d_y."""
    router = w.at("router")
    gates_TE = run(part.router, router, x_TD, where)
    d_gates_TE, d_x_TD = np.zeros_like(gates_TE), np.zeros_like(x_TD)
    for e in range(part.n_experts):
        meets, own = gates_TE[:, e] > 0, w.at("experts", expert=e)
        d_gates_TE[meets, e] = (run(part.expert, own, x_TD[meets], where) * d_y_TD[meets]).sum(-1)
        d_x_TD[meets] += backward(part.expert, own, x_TD[meets], where, gates_TE[meets, e, None] * d_y_TD[meets], to)
    to.trace[f"{where.at(w.place)}.gates"] = d_gates_TE
    d_x_TD += backward(part.router, router, x_TD, where, d_gates_TE, to)
    d_x_TD += through_balance(part, router, x_TD, where, to)
    if part.shared:
        d_said_TD = d_y_TD
        if part.shared_gate:
            said_TD = run(part.shared, w.at("shared"), x_TD, where)
            gate_T1 = f.sigmoid(run(part.shared_gate, w.at("shared_gate"), x_TD, where))
            d_gate_T1 = (said_TD * d_y_TD).sum(-1, keepdims=True) * gate_T1 * (1 - gate_T1)
            d_x_TD += backward(part.shared_gate, w.at("shared_gate"), x_TD, where, d_gate_T1, to)
            d_said_TD = gate_T1 * d_y_TD
        d_x_TD += backward(part.shared, w.at("shared"), x_TD, where, d_said_TD, to)
    return d_x_TD


def through_balance(part: s.Experts, router: Weights, x_TD: Array, where: Where, to: Slopes) -> Array | float:
    """The balance loss: E * sum over experts of share * mean probability, by its weight. Shares are counts, without a
    slope; probabilities have the slope weight * E * share / tokens, and the loss is their product with it."""
    if not part.balance or where.at(router.place) not in to.shares:
        return 0.0
    p_TE = f.softmax(run(part.router.scores, router.at("scores"), x_TD, where))
    real_T1 = np.broadcast_to(to.real_T, len(x_TD))[:, None]
    d_p_TE = part.balance * part.n_experts * to.shares[where.at(router.place)] * real_T1
    to.balance += float((p_TE * d_p_TE).sum())
    d_scores_TE = b.softmax_back(p_TE, d_p_TE)
    place = f"{where.at(router.place)}.scores"
    to.trace[place] = to.trace[place] + d_scores_TE
    return backward(part.router.scores, router.at("scores"), x_TD, where, d_scores_TE, to)

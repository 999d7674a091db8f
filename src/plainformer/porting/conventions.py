"""What strangers do otherwise: each a change of the spec, or of the weights, that leaves the shapes as they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from plainformer import spec as s
from plainformer.faults import PlainformerError
from plainformer.spec import Spec
from plainformer.tree import rewrite, walk

State = Mapping[str, Tensor]
Ported = tuple[Spec, State]
Change = Callable[[Spec, State], Ported | None]
GATED = (s.SoftmaxRouter, s.SigmoidRouter)


@dataclass(frozen=True)
class Convention:
    """`apply` gives None where it changes nothing here: another part, or it is done so already."""

    key: str
    said: str
    apply: Change


# --- changes of the spec ---------------------------------------------------------------------------------------------


def on_parts(kind: Any, change: Callable[[Any], Any]) -> Change:
    """A change of every part of a kind; None where it changes nothing, or what comes of it does not fit."""

    def apply(spec: Spec, state: State) -> Ported | None:
        try:
            changed = rewrite(spec, lambda part: change(part) if isinstance(part, kind) else part)
        except (PlainformerError, ValueError):
            return None
        return None if changed == spec else (changed, state)

    return apply


def given(**fields: Any) -> Callable[[Any], Any]:
    """Other values for the fields of a part."""
    return lambda part: replace(part, **fields)


def scores(change: Callable[[s.Attention, s.Scores], s.Scores]) -> Change:
    return on_parts(s.Attention, lambda part: replace(part, scores=change(part, part.scores)))


def rotary(change: Callable[[s.Attention, s.Rotary], s.Rotary | None]) -> Change:
    return scores(
        lambda part, one: one if one.rotary is None else replace(one, rotary=change(part, one.rotary))
    )  # fmt: skip


def other_kind(norm: s.Norm) -> s.Norm:
    if norm.bias:
        return norm
    return replace(norm, kind="rms" if norm.kind == "layer" else "layer")


def own_window(by: int) -> Callable[[s.Attention], s.Attention]:
    return lambda part: part if part.window is None else replace(part, window=max(1, part.window + by))


def over_all(router: s.ChosenSoftmaxRouter) -> s.SoftmaxRouter:
    return s.SoftmaxRouter(scores=router.scores, n_chosen=router.n_chosen, normalised=False)


def by_width(power: float) -> Change:
    """The token rows times a power of the width."""
    return lambda spec, state: on_parts(s.Tokens, given(scale=spec.d_model**power))(spec, state)


def in_layers(state: State, ending: str) -> State:
    """The layers' norms under another name."""
    return {name.replace("_norm.", ending) if ".layers." in name else name: w for name, w in state.items()}


def by_model(spec: Spec, state: State) -> Ported | None:
    return scores(lambda _, one: replace(one, scale=spec.d_model**-0.5))(spec, state)


def head_by_root(spec: Spec, state: State) -> Ported | None:
    return on_parts(s.Head, given(scale=1 / math.sqrt(spec.d_model)))(spec, state)


def after(spec: Spec, state: State) -> Ported | None:
    """Post-norm: each norm on the sum, with the weights that it had before its part."""

    def changed(residual: s.Residual) -> s.Residual:
        branch, *more = residual.branches
        if more or branch.norm_in is None or residual.norm_sum is not None:
            return residual
        return replace(residual, branches=(replace(branch, norm_in=None),), norm_sum=branch.norm_in)

    made = on_parts(s.Residual, changed)(spec, state)
    if made is None:
        return None
    return made[0], in_layers(state, "_norm_sum.")


def out_norms(spec: Spec, state: State) -> Ported | None:
    """Each norm on what its part says, not on what it reads (OLMo 2)."""

    def changed(branch: s.Branch) -> s.Branch:
        return branch if branch.norm_out else replace(branch, norm_in=None, norm_out=branch.norm_in)

    made = on_parts(s.Branch, changed)(spec, state)
    if made is None:
        return None
    return made[0], in_layers(state, "_norm_out.")


def side_by_side(spec: Spec, state: State) -> Ported | None:
    """Attention and feed-forward read the same stream."""

    def changed(stack: s.Stack) -> s.Stack:
        def one(layer: tuple[s.Residual, ...]) -> tuple[s.Residual, ...]:
            if len(layer) < 2 or any(r.norm_in or r.norm_out or r.norm_sum for r in layer):
                return layer
            return (s.Residual(branches=tuple(branch for r in layer for branch in r.branches)),)

        return replace(stack, layers=tuple(map(one, stack.layers)))

    return on_parts(s.Stack, changed)(spec, state)


def one_after_the_other(spec: Spec, state: State) -> Ported | None:
    """The feed-forward reads what attention has left."""

    def changed(stack: s.Stack) -> s.Stack:
        def one(layer: tuple[s.Residual, ...]) -> tuple[s.Residual, ...]:
            if len(layer) != 1 or len(layer[0].branches) < 2 or layer[0] != s.Residual(branches=layer[0].branches):
                return layer
            return tuple(s.Residual(branches=(branch,)) for branch in layer[0].branches)

        return replace(stack, layers=tuple(map(one, stack.layers)))

    return on_parts(s.Stack, changed)(spec, state)


def no_last_norm(spec: Spec, state: State) -> Ported | None:
    made = on_parts(s.Stack, given(norm_last=None))(spec, state)
    return made and (made[0], {name: w for name, w in state.items() if ".norm_last." not in name})


def tied(spec: Spec, state: State) -> Ported | None:
    """The head is the token table, whatever weights were stored for it."""
    if spec.head is None or spec.head.tied or spec.head.linear.bias:
        return None
    changed = replace(spec, head=replace(spec.head, tied=True))
    return changed, {name: w for name, w in state.items() if not name.startswith("head.")}


# --- changes of the weights ------------------------------------------------------------------------------------------


def places(state: State) -> Iterator[str]:
    """Where attentions with three projections stand."""
    for name in state:
        if name.endswith(".q.weight") and f"{name[:-8]}k.weight" in state and f"{name[:-8]}v.weight" in state:
            yield name[:-8]


def head_width(spec: Spec) -> int:
    return next((part.d_head for _, part in walk(spec.main) if isinstance(part, s.Attention)), 1)


def on_weights(change: Callable[[Spec, dict[str, Tensor]], None]) -> Change:
    """A change of arrays; None where it changes none."""

    def apply(spec: Spec, state: State) -> Ported | None:
        made = dict(state)
        try:
            change(spec, made)
        except RuntimeError:  # shapes that do not split so
            return None
        same = all(made[name] is w or torch.equal(made[name], w) for name, w in state.items())
        return None if same else (spec, made)

    return apply


def fused(order: tuple[int, ...], view: str) -> Callable[[Spec, dict[str, Tensor]], None]:
    """Queries, keys and values that lay in one array in another order than it was read in."""

    def change(spec: Spec, state: dict[str, Tensor]) -> None:
        d_head = head_width(spec)
        for at in list(places(state)):
            for leaf in ("weight", "bias"):
                names = [f"{at}{one}.{leaf}" for one in "qkv"]
                parts = [state[name] for name in names if name in state]
                if len(parts) < 3 or len({part.shape for part in parts}) > 1:
                    continue
                whole, more = torch.cat(parts), parts[0].shape[1:]
                if view == "by head":
                    whole = whole.reshape(-1, 3, d_head, *more).transpose(0, 1)
                elif view == "by role":
                    whole = whole.reshape(3, -1, d_head, *more).transpose(0, 1)
                three = whole.reshape(3, *parts[0].shape)
                state.update(zip(names, (three[i] for i in order), strict=True))

    return change


def turned(*leaves: str) -> Callable[[Spec, dict[str, Tensor]], None]:
    """Square matrices, transposed."""

    def change(spec: Spec, state: dict[str, Tensor]) -> None:
        for name, w in state.items():
            if any(name.endswith(f".{leaf}.weight") for leaf in leaves) and w.ndim == 2 and w.shape[0] == w.shape[1]:
                state[name] = w.T

    return change


def exchanged(one: str, other: str) -> Callable[[Spec, dict[str, Tensor]], None]:
    def change(spec: Spec, state: dict[str, Tensor]) -> None:
        for name in list(state):
            twin = name.replace(f".{one}.", f".{other}.")
            if f".{one}." in name and twin in state:
                state[name], state[twin] = state[twin], state[name]

    return change


def silent(where: str) -> Callable[[Spec, dict[str, Tensor]], None]:
    def change(spec: Spec, state: dict[str, Tensor]) -> None:
        for name, w in state.items():
            if name.endswith(".bias") and where in name and "norm" not in name:
                state[name] = torch.zeros_like(w)

    return change


def groups(spec: Spec, state: dict[str, Tensor]) -> None:
    """Query heads that lay by their place in a group, not group by group."""
    part = next((one for _, one in walk(spec.main) if isinstance(one, s.Attention)), None)
    if part is None or part.n_kv_heads in (1, part.n_heads):
        return
    g, r = part.n_kv_heads, part.n_heads // part.n_kv_heads
    for at in list(places(state)):
        for leaf in ("weight", "bias"):
            if (w := state.get(f"{at}q.{leaf}")) is not None:
                more = w.shape[1:]
                state[f"{at}q.{leaf}"] = w.reshape(r, g, part.d_head, *more).transpose(0, 1).reshape(w.shape)
        out = state[f"{at}out.weight"]
        split = out.reshape(out.shape[0], r, g, part.d_head).transpose(1, 2)
        state[f"{at}out.weight"] = split.reshape(out.shape)


def moved(by: int) -> Callable[[Spec, dict[str, Tensor]], None]:
    """Position p reads row p + by."""

    def change(spec: Spec, state: dict[str, Tensor]) -> None:
        for name, w in state.items():
            if "positions" in name and w.ndim == 2:
                state[name] = torch.roll(w, -by, 0)

    return change


# --- the table -------------------------------------------------------------------------------------------------------


def conventions() -> Iterator[Convention]:
    for act in ("gelu", "gelu_tanh", "silu", "relu", "relu_squared"):
        said = {"gelu": "GELU in its erf form", "gelu_tanh": "GELU in its tanh form"}.get(
            act, f"the activation is {act}"
        )
        yield Convention(f"activation-{act}", said, on_parts(s.FeedForward, given(activation=act)))
    for eps in (1e-3, 1e-5, 1e-6, 1e-8, 1e-12):
        yield Convention(f"eps-{eps:g}", f"the norms' epsilon is {eps:g}", on_parts(s.Norm, given(eps=eps)))
    yield Convention("gain-plus-one", "a norm's stored gain is added to 1, or no longer is",
                     on_parts(s.Norm, lambda norm: replace(norm, plus_one=not norm.plus_one)))  # fmt: skip
    yield Convention("norm-kind", "the norms are of the other kind, LayerNorm or RMSNorm", on_parts(s.Norm, other_kind))
    yield Convention("post-norm", "each norm stands after the addition, not before its part", after)
    yield Convention("norm-out", "each norm stands on what its part says, before the addition", out_norms)
    yield Convention("parallel", "attention and feed-forward read the same stream, side by side", side_by_side)
    yield Convention("sequential", "the feed-forward reads what attention has left", one_after_the_other)
    yield Convention("no-last-norm", "there is no norm before the head", no_last_norm)
    yield Convention("rotary-pairs", "rotary pairs: neighbours (2i, 2i + 1) and halves (i, i + d / 2) are exchanged",
                     rotary(lambda _, one: replace(one, interleaved=not one.interleaved)))  # fmt: skip
    for theta in (1e2, 1e3, 1e4, 1e5, 5e5, 1e6, 1e7):
        yield Convention(f"theta-{theta:g}", f"the rotary base is {theta:g}",
                         rotary(lambda _, one, theta=theta: replace(one, theta=theta)))  # type: ignore[misc] # fmt: skip
    yield Convention("no-rotary-scaling", "rotary frequencies are not stretched",
                     rotary(lambda _, one: replace(one, scaling=None)))  # fmt: skip
    for factor in (2.0, 4.0, 8.0):
        scaling = s.Scaling(kind="linear", settings=(("factor", factor),))
        yield Convention(f"rotary-stretched-{factor:g}", f"rotary positions are divided by {factor:g}",
                         rotary(lambda _, one, scaling=scaling: replace(one, scaling=scaling)))  # type: ignore[misc] # fmt: skip
    for part in (1, 2, 4):
        yield Convention(f"rotary-dims-{part}", "the whole head turns" if part == 1 else f"1 / {part} of a head turns",
                         rotary(lambda a, one, part=part: replace(one, n_dims=a.d_head // part)))  # type: ignore[misc] # fmt: skip
    yield Convention("no-rotary", "nothing turns: positions are not in queries and keys", rotary(lambda _, one: None))
    for key, power, said in (("head", -0.5, "1 / sqrt(d_head)"), ("whole", -1.0, "1 / d_head"), ("one", 0.0, "1")):
        yield Convention(f"scale-{key}", f"scores are multiplied by {said}",
                         scores(lambda a, one, p=power: replace(one, scale=a.d_head**p)))  # type: ignore[misc] # fmt: skip
    yield Convention("scale-model", "scores are multiplied by 1 / sqrt(d_model)",
                     by_model)  # fmt: skip
    yield Convention("no-score-cap", "scores are not capped", scores(lambda _, one: replace(one, softcap=None)))
    yield Convention("no-logit-cap", "logits are not capped", on_parts(s.Head, given(softcap=None)))
    yield Convention("rows-by-root", "token rows are multiplied by sqrt(d_model)", by_width(0.5))
    yield Convention("rows-as-they-are", "token rows are taken as they are", by_width(0.0))
    yield Convention("head-by-root", "the head's input is divided by sqrt(d_model)", head_by_root)
    yield Convention("head-as-it-is", "the head's input is taken as it is", on_parts(s.Head, given(scale=1.0)))
    for by in (-1, 1):
        said = f"the window is one {'wider' if by > 0 else 'narrower'}: whether a token counts itself"
        yield Convention(f"window{by:+}", said, on_parts(s.Attention, own_window(by)))
    yield Convention("no-window", "there is no window", on_parts(s.Attention, given(window=None)))
    yield Convention("not-causal", "every token sees all, or no longer does",
                     on_parts(s.Stack, lambda one: replace(one, causal=not one.causal)))  # fmt: skip
    yield Convention("gates-normalised", "the chosen experts' gates are made to sum to 1, or no longer are",
                     on_parts(GATED, lambda one: replace(one, normalised=not one.normalised)))  # fmt: skip
    yield Convention("gates-over-all", "the gates' softmax is over all experts, not over the chosen",
                     on_parts(s.ChosenSoftmaxRouter, over_all))  # fmt: skip
    yield Convention("gates-factor", "gates are not multiplied", on_parts(GATED, given(factor=1.0)))
    yield Convention("tied", "the head is the token table, not the weights stored for it", tied)
    for order in list(permutations(range(3)))[1:]:
        names = ", ".join("qkv"[i] for i in order)
        yield Convention(f"roles-{names.replace(', ', '')}", f"read as q, k, v, it lay as {names}",
                         on_weights(fused(order, "")))  # fmt: skip
    yield Convention("fused-by-head", "in the fused projection q, k and v lay head by head", on_weights(
        fused((0, 1, 2), "by head")))  # fmt: skip
    yield Convention("fused-by-role", "in the fused projection all of q lay first, then k, then v", on_weights(
        fused((0, 1, 2), "by role")))  # fmt: skip
    yield Convention("groups", "query heads lay by their place in a group, not group by group", on_weights(groups))
    for key, leaves, words in (
        ("qkvo", ("q", "k", "v", "out"), "all of attention's square matrices stand"),
        ("qkv", ("q", "k", "v"), "attention's three input matrices stand"),
        ("out", ("out",), "attention's output matrix stands"),
    ):
        yield Convention(f"transposed-{key}", f"{words} transposed", on_weights(turned(*leaves)))
    yield Convention("gate-up", "gate and up are in each other's place", on_weights(exchanged("gate", "up")))
    yield Convention("no-attention-bias", "attention's biases are not used", on_weights(silent(".attention.")))
    yield Convention("no-bias", "no projection's bias is used", on_weights(silent("")))
    for by in (-2, -1, 1, 2):
        yield Convention(f"positions{by:+}", f"position p reads row p {'+' if by > 0 else '-'} {abs(by)} of the table",
                         on_weights(moved(by)))  # fmt: skip


CONVENTIONS: tuple[Convention, ...] = tuple(conventions())

"""The behaviours of a GPT, asked of someone's file: their class and functions as the checks see a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from plainformer.check import binding, layouts
from plainformer.check.behaviours_whole import CHECKS
from plainformer.check.binding import Plan, Sizes, Thing
from plainformer.check.case import MASKS
from plainformer.check.process import Reply, Theirs, Trouble, packed
from plainformer.check.steps import Array
from plainformer.check.topics import TOPICS

OF_MODEL = {"GP1", "GP2", "GP3", "GP6", "GP7", "GP8", "GP9", "FF1", "AT7"}
OF_ATTENTION = {"AT1", "AT2", "AT3", "AT4", "AT5"}


@dataclass(frozen=True)
class Shown:
    """Whether theirs shows a behaviour; why not."""

    name: str
    words: str
    shown: bool
    why: str = ""


@dataclass
class Made:
    """A model of theirs, by the sizes that it was made with, and its weights by role."""

    sizes: Sizes
    weights: dict[str, Array]


NO_PLAN = Plan(TOPICS["attention"], "", 0, False, {})


class OfTheirs:
    """Their file as the checks see it. A refusal of theirs, by whatever error, is a ValueError here."""

    name, dtype, atol, gelu_kind = "theirs", np.float64, 1e-9, "exact"
    caps: frozenset[str] = frozenset()

    def __init__(self, theirs: Theirs, things: list[Thing]) -> None:
        self.theirs, self.things = theirs, things
        self.plans: dict[str, Plan] = {}
        for topic, thing in binding.find(things):
            plan = binding.plan_of(topic, thing, things)
            if not plan.unbound and (topic.name == "gpt") == plan.is_class:
                self.plans.setdefault(topic.name, plan)
        self.placed: list[layouts.Placed] = []
        self.mask_as = next((way for way in MASKS if self.masks_so(way)), "true may be seen")

    # --- the whole model ----------------------------------------------------------------------------------------------

    def asked(self, **words: Any) -> Reply:
        reply = self.theirs.ask(precision="float64", **words)
        if isinstance(reply, Trouble):
            raise ValueError(reply.says)
        return reply

    def make(self, vocab: int, width: int, layers: int, heads: int, context: int, **_: Any) -> Made:
        sizes = Sizes(width=width, n_heads=heads, d_ff=4 * width, vocab=vocab, context=context, n_layers=layers)
        plan = self.plans["gpt"]
        thing = next(one for one in self.things if one["name"] == plan.thing)
        plan = binding.plan_of(plan.topic, thing, self.things, sizes)
        made = self.asked(do="make", name=plan.thing, kwargs=plan.kwargs, config=plan.config)
        parameters = made.facts["parameters"]
        self.placed = layouts.place("gpt", parameters, sizes)
        self.asked(do="assign", name=plan.thing, values={})  # in float64 from here on
        arrays = self.asked(do="values", name=plan.thing).out
        weights: dict[str, Array] = {}
        for one, array in zip(self.placed, arrays, strict=True):
            for role, part in one.to_roles(np.asarray(array, np.float64)).items():
                weights[role] = np.concatenate((weights[role], part), -1) if one.part and role in weights else part
        return Made(sizes, weights)

    def params(self, model: Made) -> dict[str, Array]:
        return {role: array.copy() for role, array in model.weights.items()}

    def assign(self, model: Made, role: str, array: Array) -> None:
        model.weights[role] = np.asarray(array, np.float64)
        whole = [one for one in self.placed if role in one.roles]
        values = {one.path: packed(one.from_roles(model.weights)) for one in whole}
        self.asked(do="assign", name=self.plans["gpt"].thing, values=values)

    def param_count(self, model: Made) -> int:
        return sum(array.size for array in model.weights.values())

    def logits(self, model: Made, ids: Array) -> Array:
        plan = self.plans["gpt"]
        said = self.asked(do="forward", name=plan.thing, args=[], kwargs={plan.places["ids"]: packed(ids)})
        shape = (*np.shape(ids), model.sizes.vocab)
        out = first_of(said.out, shape)
        if out is None:
            raise ValueError(f"no logits of shape {shape}")
        return out

    # --- functions ----------------------------------------------------------------------------------------------------

    def called(self, name: str, inputs: Mapping[str, Any]) -> Any:
        plan = self.plans[name]
        kwargs = {at: packed(inputs[own]) for own, at in plan.places.items() if own in inputs}
        return self.asked(do="call", name=plan.thing, args=[], kwargs=kwargs).out

    def layer_norm(self, x: Array, gain: Array, bias: Array, eps: float) -> Array:
        return self.called("layer_norm", {"x": x, "gain": gain, "bias": bias, "eps": eps})

    def attention(self, q: Array, k: Array, v: Array, allowed: Array) -> tuple[Array, Array]:
        """Their output; the weights are what they make of the unit vectors."""
        mask = MASKS[self.mask_as](allowed)

        def out_of(values: Array) -> Array:
            inputs = {"q": q, "k": k, "v": values, "allowed": mask}
            found = first_of(self.called("attention", inputs), (len(q), values.shape[1]))
            if found is None:
                raise ValueError("no output of the right shape")
            return found

        return out_of(v), out_of(np.eye(len(k)))

    def masks_so(self, way: str) -> bool:
        """Whether three tokens come out as by hand when their mask is passed in this way."""
        self.mask_as = way
        if "allowed" not in self.plans.get("attention", NO_PLAN).bound:
            return False
        try:
            CHECKS["AT1"][1](self)
        except (AssertionError, ValueError):
            return False
        return True

    def gates(self, scores: Array, k: int) -> Array:
        return self.called("top_k_gates", {"scores": scores, "k": k})

    def balance_loss(self, scores: Array, k: int) -> float:
        return float(self.called("balance_loss", {"scores": scores, "k": k}))

    # --- which checks -------------------------------------------------------------------------------------------------

    def names(self) -> Iterator[str]:
        """The checks that what they offer can be asked."""
        norm = self.plans.get("layer_norm")
        attention = self.plans.get("attention")
        for name in CHECKS:
            if (
                (name in OF_MODEL and "gpt" in self.plans)
                or (
                    name in ("LN1", "LN2", "LN3", "LN4", "LN5", "LN7")
                    and norm
                    and {"gain", "bias", "eps"} <= {*norm.bound}
                )
                or (name in OF_ATTENTION and attention and "allowed" in attention.bound)
                or (name == "MO1" and "top_k_gates" in self.plans)
                or (name == "MO2" and "balance_loss" in self.plans)
            ):
                yield name


def first_of(out: Any, shape: tuple[int, ...]) -> Array | None:
    """Of an answer the first array of a shape."""
    if isinstance(out, list):
        return next((found for one in out if (found := first_of(one, shape)) is not None), None)
    return out if isinstance(out, np.ndarray) and out.shape == shape else None


def behaviours(theirs: Theirs, things: list[Thing], told: Callable[[Shown], None] = lambda shown: None) -> list[Shown]:
    """Ask their file every check that it can be asked."""
    ad, found = OfTheirs(theirs, things), []
    for name in ad.names():
        function = CHECKS[name][1]
        words = function.__name__.partition("_")[2].replace("_", " ")
        try:
            function(ad)
            one = Shown(name, words, True)
        except layouts.Unplaced as lost:
            one = Shown(name, words, False, f"what these weights are for is not known: {lost}")
        except (AssertionError, ValueError, TypeError, KeyError) as fault:
            one = Shown(name, words, False, str(fault))
        found.append(one)
        told(one)
    return found

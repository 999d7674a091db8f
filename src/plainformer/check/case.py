"""A thing under test: their function or class, what it is given, what it answered."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from plainformer.check import draws as d
from plainformer.check.binding import Plan, Sizes
from plainformer.check.comparing import fitted
from plainformer.check.layouts import Placed, place, shapes_of
from plainformer.check.process import Reply, Theirs, Trouble, packed
from plainformer.check.steps import Array, Doing
from plainformer.check.topic import REQUIRED, Inputs

N_DRAWN, DRAWING_FOR = 3000, 0.6  # times that something random is asked, and for how many seconds at most
MASKS: dict[str, Callable[[Array], Array]] = {
    "true may be seen": lambda allowed: allowed,
    "added": lambda allowed: np.where(allowed, 0.7, -np.inf),  # not 0: what is added to a whole row changes nothing
    "1 may be seen": lambda allowed: allowed.astype(np.float64),
}


@dataclass
class Said:
    """Their answer to one draw: an array in the shape of ours, or why there is none."""

    out: Array | None
    reply: Reply | Trouble
    n_drawn: int = 1  # of something random, how often it was asked

    @property
    def trouble(self) -> Trouble | None:
        return self.reply if isinstance(self.reply, Trouble) else None

    @property
    def dtype(self) -> str:
        return self.reply.dtypes[0] if isinstance(self.reply, Reply) and self.reply.dtypes else ""


class Case:
    """Their thing, bound; it makes inputs, asks the child, and runs our formula on the same."""

    def __init__(self, theirs: Theirs, plan: Plan, seed: int = 0) -> None:
        self.theirs, self.plan, self.topic, self.seed = theirs, plan, plan.topic, seed
        self.placed: list[Placed] = []
        self.kind = ""  # what their code takes, as the child guesses it
        self.forced: str | None = None  # what it is given against that guess
        self.assigned: tuple[int, str] | None = None
        self.rank = self.topic.ranks[0]
        self.precision = "float64"
        self.unmet: Trouble | None = None  # how it broke on more axes than `rank`

    # --- making -------------------------------------------------------------------------------------------------------

    def make(self) -> Trouble | None:
        """Of a class an object, and a role for each of its weights; may raise Unplaced."""
        if not self.plan.is_class:
            return None
        made = self.theirs.ask(do="make", name=self.plan.thing, kwargs=self.plan.kwargs, config=self.plan.config,
                                globals=self.plan.globals)  # fmt: skip
        if isinstance(made, Trouble):
            return made
        self.kind, self.assigned = made.facts["kind"], None
        self.placed = place(self.topic.name, made.facts["parameters"], Sizes())
        return None

    # --- inputs -------------------------------------------------------------------------------------------------------

    def inputs(self, number: int, reading: Inputs, rank: int | None = None) -> Inputs:
        """What the formula is run on: the draw's value for what theirs takes, what stands for it where it does not."""
        topic, bound = self.topic, set(self.plan.bound)
        rng = np.random.default_rng((self.seed, number, zlib.crc32(topic.name.encode())))
        lacking = (drawing for name, drawing in topic.draw_without.items() if name not in bound)
        drawing = topic.draw_module if self.plan.is_class and topic.draw_module else next(lacking, topic.draw)
        draw = drawing(rng, number, self.rank if rank is None else rank)
        found: Inputs = {a.name: None if a.without is REQUIRED else a.without for a in topic.arguments}
        if self.plan.is_class:
            roles = shapes_of(self.placed)
            draw = {name: value for name, value in draw.items() if not is_weight(name)} | d.drawn(rng, roles)
            bound |= set(roles)
            draw |= {
                name: value for name, value in (self.plan.sizes or {}).items() if name in ("n_heads", "n_kv_heads")
            }
            bound |= {"n_heads", "n_kv_heads"}
        found |= {name: value for name, value in draw.items() if name in bound}
        if "allowed" in bound and "causal" in bound:
            found["causal"] = False  # one of the two: what is given is the mask
        return {**found, **{name: value for name, value in reading.items() if name not in bound or name == "mask_as"}}

    def ours(self, do: Doing, inputs: Inputs) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(self.topic.run(do, inputs), np.float64)

    # --- asking -------------------------------------------------------------------------------------------------------

    def answer(self, number: int, reading: Inputs, precision: str | None = None, **more: Any) -> Said:
        """Their answer to a draw, in the shape of the formula's."""
        truth = self.ours(Doing(), self.inputs(number, reading))
        return self.ask(number, reading, precision or self.precision, truth.shape, **more)

    def ask(self, number: int, reading: Inputs, precision: str, shape: tuple[int, ...], **more: Any) -> Said:
        inputs = self.inputs(number, reading)
        args, kwargs, named = [], {}, {}
        for own, at in self.plan.places.items():
            value = inputs[own]
            if own == "allowed":
                value = MASKS[reading.get("mask_as", "true may be seen")](value)
            if own == "n_kv_heads" and value is None and own not in self.plan.optional:
                value = inputs["n_heads"]  # theirs wants a number: as many as heads
            if own == "rng":
                value = {"rng": number}
            if own == "seed":
                value, named = number, {"each": at}
            sent = value if own == "rng" else packed(value)
            if isinstance(at, int):
                args.append((at, sent))
            else:
                kwargs[at] = sent
        if self.topic.judged == "chances":
            more |= {"repeat": N_DRAWN, "within": DRAWING_FOR, "seed": self.seed, **named}
        if self.plan.is_class and (trouble := self.assign(number, precision, inputs)):
            return Said(None, trouble)
        reply = self.theirs.ask(
            do="forward" if self.plan.is_class else "call",
            name=self.plan.thing,
            args=[sent for _, sent in sorted(args, key=lambda one: one[0])],
            kwargs=kwargs,
            precision=precision,
            kind=self.forced,
            **more,
        )
        if isinstance(reply, Trouble):
            if self.plan.is_class and reply.kind != "error":
                self.make()  # the child is a new one
            return Said(None, reply)
        self.kind = reply.facts.get("kind", self.kind)
        n_drawn = len(reply.out) if self.topic.judged == "chances" and isinstance(reply.out, list) else 1
        return Said(fitted(self.counted(reply.out, inputs), shape), reply, n_drawn)

    def assign(self, number: int, precision: str, inputs: Inputs) -> Trouble | None:
        if self.assigned == (number, precision):
            return None
        values = {one.path: packed(one.from_roles(inputs)) for one in self.placed}
        reply = self.theirs.ask(do="assign", name=self.plan.thing, values=values, precision=precision)
        if isinstance(reply, Trouble):
            return reply
        self.assigned = (number, precision)
        return None

    def counted(self, out: Any, inputs: Inputs) -> Any:
        """Of what was drawn at random, how often each came; of dropout, the share of zeros and what the others are."""
        if self.topic.judged == "dropout" and isinstance(out, list):
            out = out[0]
        if self.topic.judged == "dropout" and isinstance(out, np.ndarray) and out.size:
            kept = out[out != 0]
            return np.array([1 - kept.size / out.size, kept.mean() if kept.size else 1.0])
        if self.topic.joined and isinstance(out, list) and all(isinstance(one, np.ndarray) for one in out):
            return np.concatenate([np.ravel(one) for one in out])
        if self.topic.judged != "chances" or not isinstance(out, list):
            return out
        n_rows, n = np.atleast_2d(inputs["logits"]).shape
        try:
            ids = np.array(
                [np.ravel(one)[:n_rows] if np.size(one) >= n_rows else np.full(n_rows, -1) for one in out]
            ).astype(int)
        except (ValueError, TypeError):
            return out
        if (ids < 0).any() or (ids >= n).any():
            return "a token that does not exist"
        shares = np.stack([np.bincount(ids[:, row], minlength=n) / len(ids) for row in range(n_rows)])
        return shares.reshape(np.shape(inputs["logits"]))


def is_weight(name: str) -> bool:
    return "." in name or name in ("wte", "wpe", "gain", "bias")

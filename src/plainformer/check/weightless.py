"""What needs no weights of a GPT of theirs: asked of anything that takes token numbers and gives logits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from plainformer.check import draws as d
from plainformer.check.answer import Answer, broke
from plainformer.check.case import Case
from plainformer.check.comparing import fitted
from plainformer.check.process import Reply, Trouble, packed
from plainformer.check.steps import Array
from plainformer.check.training_judged import nats

N_STEPS, LR = 150, 3e-3
KEY_BIAS = re.compile(r"(^|[._])(w?_?k|key|keys|k_proj|key_proj|b_k)([._]?(bias|b))?$")  # softmax cancels it
CUT = 4


class Silent(Exception):
    """Theirs gave no logits."""

    def __init__(self, trouble: Trouble | str) -> None:
        super().__init__(str(trouble))
        self.trouble = trouble


@dataclass
class Asked:
    """A model of theirs as it was made, in evaluation mode and float32."""

    case: Case

    def kwargs(self, ids: Array) -> dict[str, Any]:
        places = self.case.plan.places
        return {str(places[one]): packed(ids) for one in ("ids", "targets") if one in places}

    def logits(self, ids: Array) -> Array:
        said = self.case.theirs.ask(
            do="forward", name=self.case.plan.thing, args=[], kwargs=self.kwargs(ids), precision="float32"
        )
        if isinstance(said, Trouble):
            raise Silent(said)
        out = fitted(said.out, (*ids.shape, d.VOCAB))
        if out is None:
            raise Silent(f"no logits of shape {(*ids.shape, d.VOCAB)} came of ids of shape {ids.shape}")
        return out

    def learn(self, ids: Array) -> Reply | None:
        said = self.case.theirs.ask(
            seconds=60.0, do="learn", name=self.case.plan.thing, args=[], kwargs=self.kwargs(ids), ids=packed(ids),
            vocab=d.VOCAB, steps=N_STEPS, lr=LR, precision="float32",
        )  # fmt: skip
        return said if isinstance(said, Reply) else None


def gap(a: Array, b: Array) -> float:
    return float(np.abs(a - b).max() / max(1e-6, float(np.abs(a).max())))


def faults(asked: Asked, seed: int) -> Iterator[tuple[str, str]]:
    """(what is not shown, why that is known); a note where the first word is `note`."""
    rng = np.random.default_rng((seed, 77))
    ids = rng.permutation(d.VOCAB)[: 2 * 8].reshape(2, 8)
    said = asked.logits(ids)
    if not np.isfinite(said).all():
        yield "its logits are not finite", ""
        return
    if gap(said, asked.logits(ids)) > 1e-5:
        yield "evaluation is not repeatable", "the same tokens give other logits each time: dropout in evaluation?"
        return
    if (far := gap(said[1:], asked.logits(ids[1:]))) > 1e-3:
        yield "a row depends on the others of its batch", f"alone its logits move by {far:.2g} of their size"
    other = ids.copy()
    other[:, CUT:] = (other[:, CUT:] + 1) % d.VOCAB
    if (far := gap(said[:, :CUT], asked.logits(other)[:, :CUT])) > 1e-4:
        yield (
            "it sees the future",
            f"other tokens from place {CUT} on move the logits before it by {far:.2g} of their size",
        )
    other = ids.copy()
    other[:, 0] = (other[:, 0] + 1) % d.VOCAB
    if gap(said[:, -1], asked.logits(other)[:, -1]) < 1e-7:
        yield (
            "a token does not see the first one",
            "another first token leaves the last logits as they are: no attention?",
        )
    same = np.full((1, 8), int(ids[0, 0]))
    alike = asked.logits(same)[0]
    if gap(alike[0], alike[-1]) < 1e-6:
        why = "positions are not used, or they are in queries and keys alone (rotary)"
        yield "note", f"one token repeated gets the same logits everywhere: {why}"
    swapped = ids[:, [1, 0, *range(2, 8)]]
    if gap(said[:, -1], asked.logits(swapped)[:, -1]) < 1e-7:
        yield "the order of earlier tokens does not count", "the first two exchanged leave the last logits as they are"
    untrained = nats(said, ids)
    if abs(untrained - math.log(d.VOCAB)) > 1.0:
        near = f"not near ln {d.VOCAB} = {math.log(d.VOCAB):.2f}: are the first weights too large?"
        yield "note", f"untrained, its loss is {untrained:.2f}, {near}"
    yield from untaught(asked, ids)


def untaught(asked: Asked, ids: Array) -> Iterator[tuple[str, str]]:
    """What learning one batch shows; only torch models can be taught."""
    if asked.case.kind != "torch" or (taught := asked.learn(ids)) is None:
        return
    losses, dead = taught.facts["losses"], taught.facts["dead"]
    if taught.facts.get("detached"):
        yield (
            "its logits have no gradient",
            "they are detached from its weights: detach(), .data or no_grad() on the way",
        )
        return
    if lost := [name for name in dead if not KEY_BIAS.search(name)]:
        more = f" and {len(lost) - 4} more" if len(lost) > 4 else ""
        yield f"{len(lost)} of its parameters get no gradient", ", ".join(lost[:4]) + more + \
            ": not used, detached, or (queries and keys) attention is uniform"  # fmt: skip
    if losses and (losses[-1] is None or losses[-1] > 0.6 * losses[0]):
        end = "nan" if losses[-1] is None else f"{losses[-1]:.3f}"
        yield (
            "one batch is not learnt by heart",
            f"in {N_STEPS} steps of AdamW the loss goes from {losses[0]:.3f} to {end}",
        )


SHOWN = "causal, rows apart, order used, repeatable"


def judge_without_weights(case: Case, answer: Callable[..., Answer], lost: str = "") -> Answer:
    """A fault that needs no weights to be seen; else what is known although `lost` has no role, or that it is right."""
    try:
        found = list(faults(Asked(case), case.seed))
    except Silent as silent:
        return broke(answer, silent.trouble) if isinstance(silent.trouble, Trouble) else answer("broke", str(silent))
    notes = tuple(why for what, why in found if what == "note")
    wrong = [(what, why) for what, why in found if what != "note"]
    taught = ", every parameter learns, one batch by heart" if case.kind == "torch" else ""
    held = f"what needs no weights: {SHOWN}{taught}"
    if wrong:
        (what, why), *more = wrong
        return answer("wrong", what, at=why, notes=(*(f"{a}: {b}" for a, b in more), *notes), held=held)
    if lost:
        names = "its numbers are not held against the formula: name its weights as nanoGPT, torch.nn or Hugging Face do"
        return answer("unclear", f"what these weights are for is not known: {lost}", notes=(names, *notes), held=held)
    return answer("right", case.topic.about, notes=notes, held=held)

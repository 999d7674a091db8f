"""The gradients of their functions and modules in PyTorch, against slopes of the formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from plainformer.check import draws as d
from plainformer.check.answer import Answer, Mistake, broke
from plainformer.check.case import Case
from plainformer.check.catalogue import CATALOGUE, Entry
from plainformer.check.process import Reply, packed
from plainformer.check.steps import Array, Doing
from plainformer.check.topic import Inputs


def slopes_checked(
    case: Case, reading: Inputs, answer: Callable[..., Answer], file: str, notes: Sequence[str]
) -> Answer | None:
    """Of torch's functions and modules: gradients of inputs against slopes of the formula. None: not asked."""
    names = [name for name in case.topic.slopes if name in case.plan.bound]
    if case.kind != "torch" or not names or case.precision != "float64":
        return None
    for number in (0, 2):
        inputs = case.inputs(number, reading)
        names = [name for name in names if isinstance(inputs[name], np.ndarray)]
        truth = case.ours(Doing(), inputs)
        rng = np.random.default_rng(number)
        along = rng.standard_normal(truth.shape)
        places = {name: rng.permutation(inputs[name].size)[:10] for name in names}
        grads = {"of": [case.plan.places[name] for name in names], "along": packed(np.asarray(along))}
        said = case.answer(number, reading, grads=grads)
        if said.trouble is not None or not isinstance(said.reply, Reply):
            trouble = said.trouble
            return broke(answer, trouble) if trouble is not None else None
        if said.reply.grads is None:
            note = "no detach(), .data, .item(), numpy() or no_grad() on the way from input to output"
            return answer("wrong", "its output has no gradient: it is detached from its input", notes=(note,))
        theirs = [np.zeros(inputs[n].shape) if g is None else g for n, g in zip(names, said.reply.grads, strict=True)]

        def slopes(do: Doing) -> Array:
            with np.errstate(all="ignore"):
                found = d.slopes(case.topic.run, do, inputs, tuple(names), along, places)  # noqa: B023
            return np.concatenate([g.ravel()[places[n]] for n, g in zip(names, found, strict=True)])  # noqa: B023

        ours, got = slopes(Doing()), np.concatenate([g.ravel()[places[n]] for n, g in zip(names, theirs, strict=True)])
        close = 1e-5 * max(1e-3, float(np.abs(ours).max()))
        if np.abs(ours - got).max() <= close:
            continue
        met = Doing()
        case.ours(met, inputs)
        for entry in slope_entries(met):
            wrong_slopes = slopes(entry.doing(np.float64))
            if np.abs(wrong_slopes - got).max() <= close and np.abs(wrong_slopes - ours).max() > close:
                return answer("wrong", entry.said, mistakes=(Mistake.of(entry, case.plan, file),), confident=True,
                              notes=(*notes, "its output is right, its gradient is not"))  # fmt: skip
        worst = int(np.abs(ours - got).argmax())
        owner = [n for n in names for _ in places[n]][worst]
        numbers = f"{got[worst]:.6g}, the slope is {ours[worst]:.6g}"
        words = f"its output is right, its gradient by {owner} is not: {numbers}"
        return answer("wrong", words, notes=tuple(notes), gap=float(np.abs(ours - got).max()))
    return answer("right", "right")


def slope_entries(met: Doing) -> Iterator[Entry]:
    for entry in CATALOGUE.values():
        if entry.frozen and set(entry.changes) <= set(met.met) and (entry.changes or set(entry.frozen) <= set(met.met)):
            yield entry

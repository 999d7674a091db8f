"""Hold everything in a file against the formulas: what is found there, called, compared, named."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from plainformer.check import binding, comparing, judging
from plainformer.check.answer import Answer, Mistake, broke, line_said
from plainformer.check.binding import Plan, Thing
from plainformer.check.blank import is_blank
from plainformer.check.case import Case, Said
from plainformer.check.catalogue import CATALOGUE
from plainformer.check.catalogue.positions import bfloat16
from plainformer.check.judging import Found, Search
from plainformer.check.layouts import Unplaced, shapes_of
from plainformer.check.process import MEMORY, Reply, Theirs, Trouble
from plainformer.check.slopes import slopes_checked
from plainformer.check.steps import Array, Doing
from plainformer.check.topic import Inputs, Topic
from plainformer.check.training_judged import judge_training
from plainformer.check.walking import place_of_difference, walked
from plainformer.check.weightless import judge_without_weights
from plainformer.faults import refuse

NAMED_AXIS = re.compile(r"\b(?:axis|dim)\s*=|\.(?:sum|max|mean|std|var)\(-1\b")  # code that means more axes than one


@dataclass(frozen=True)
class Report:
    """All answers about one file."""

    file: str
    seed: int
    answers: tuple[Answer, ...]

    @property
    def is_fine(self) -> bool:
        return all(one.is_fine for one in self.answers)


def check_file(
    path: Path,
    only: Sequence[str] = (),
    seed: int = 0,
    seconds: float = 10.0,
    memory: int = MEMORY,
    told: Callable[[Answer], None] = lambda answer: None,
    asked: Mapping[str, Topic] | None = None,
) -> Report:
    """Check all that a file offers, or `only` the things and topics of these names; `told` hears each answer at once.

    seconds: for one call of theirs; memory: bytes; asked: of things by name, a topic that leaves less open. Refuses
    what is no file, and names that nothing bears.
    """
    if not path.is_file():
        raise refuse("FILE", str(path), "is no file", "give a Python file")
    with Theirs(path, memory, seconds) as theirs:
        return check_within(theirs, path, only, seed, told, asked)


def check_within(
    theirs: Theirs,
    path: Path,
    only: Sequence[str] = (),
    seed: int = 0,
    told: Callable[[Answer], None] = lambda answer: None,
    asked: Mapping[str, Topic] | None = None,
) -> Report:
    """The same in a process that is there already: for several files, one after the other."""
    described = theirs.open(path)
    if isinstance(described, Trouble):
        lost = unloaded(path, described)
        told(lost)
        return Report(path.name, seed, (lost,))
    answers: list[Answer] = []
    for plan in plans(described.facts["things"], path, only):
        start = time.monotonic()
        plan = replace(plan, topic=(asked or {}).get(plan.thing, plan.topic))
        answer = check_thing(theirs, plan, path, seed) if not is_blank(plan.source) else not_begun(plan, path)
        answers.append(replace(answer, seconds=round(time.monotonic() - start, 3)))
        told(answers[-1])
    return Report(path.name, seed, tuple(answers))


def plans(things: Sequence[Thing], path: Path, only: Sequence[str]) -> list[Plan]:
    """How to call each thing of theirs that is known, in the order of the file."""
    best: dict[str, Plan] = {}
    for topic, thing in binding.find(things):  # a name may be that of two: the one whose arguments are met
        plan = binding.plan_of(topic, thing, things)
        if thing["name"] not in best or (best[thing["name"]].unbound and not plan.unbound):
            best[thing["name"]] = plan
    found = sorted(best.values(), key=lambda plan: plan.line)
    if not found:
        names = f" ({', '.join(thing['name'] for thing in things[:8])})" if things else ": no function and no class"
        hint = "check --list names what is known; --adapter OUT.py writes them beside yours"
        raise refuse("FILE", path.name, f"holds nothing with a known name{names}", hint)
    if only:
        asked = {binding.short(one) for one in only}
        known = {binding.short(name) for plan in found for name in (plan.topic.name, plan.thing)}
        if lost := [one for one in only if binding.short(one) not in known]:
            hint = "check --list names what is known"
            raise refuse("--only", lost[0], f"nothing in {path.name} bears this name", hint)
        found = [plan for plan in found if {binding.short(plan.topic.name), binding.short(plan.thing)} & asked]
    return found


def unloaded(path: Path, trouble: Trouble) -> Answer:
    said = {"hang": f"importing it gives {trouble.says}: put what runs below `if __name__ == '__main__':`"}
    words = said.get(trouble.kind, f"it cannot be imported: {trouble.says}")
    return Answer("file", path.name, path.name, trouble.line or 1, "broke", words, trouble_line=line_said(trouble))


def not_begun(plan: Plan, path: Path) -> Answer:
    return Answer(plan.topic.name, plan.thing, path.name, plan.line, "blank", "not begun")


# --- one thing -------------------------------------------------------------------------------------------------------


def check_thing(theirs: Theirs, plan: Plan, path: Path, seed: int) -> Answer:
    """The answer about one function or class."""
    file, topic = path.name, plan.topic

    def answer(verdict: str, said: str, **more: Any) -> Answer:
        return Answer(topic.name, plan.thing, file, plan.line, verdict, said, **more)

    if plan.unbound:
        note = f"the documented signature is {topic.signature}; --adapter OUT.py writes a file to say it in"
        return answer("unclear", f"how to call it is not known: {', '.join(plan.unbound)}", notes=(note,))
    case = Case(theirs, plan, seed)
    try:
        trouble = case.make()
    except Unplaced as lost:
        if topic.name == "gpt":
            return judge_without_weights(case, answer, str(lost))
        note = "name them as nanoGPT, torch.nn or Hugging Face do, or write a function in an adapter"
        return answer("unclear", f"what these weights are for is not known: {lost}", notes=(note,))
    if trouble:
        return answer("broke", f"it cannot be made: {trouble.says}", trouble_line=line_said(trouble))
    if topic.judged == "training":
        return judge_training(case, answer)
    said = answer("unclear", "")
    for case.plan in variants(plan):
        said = judge(case, answer, file)
        if said.verdict == "wrong" or (said.verdict == "broke" and "targets" not in plan.bound):
            return said
    return said


def variants(plan: Plan) -> list[Plan]:
    """What may be left out is left out first, then given: with and without a mask it must be right. A model that gives
    the last logits alone without targets gives all of them with."""
    found = [plan.without(name) for name in ("allowed", "targets") if plan.is_class and name in plan.optional]
    return [*found[:1], plan] if found else [plan]


def judge(case: Case, answer: Callable[..., Answer], file: str) -> Answer:
    topic, readings = case.topic, case.topic.readings((*case.plan.bound, *shapes_of(case.placed)))
    try:
        first = fitting_rank(case, readings[0])
    except KeyError as lost:
        if topic.name == "gpt" and case.make() is None:  # a rotary one has no position table
            return judge_without_weights(case, answer, f"none is known to be {lost}")
        return answer("unclear", f"no weight of it is known to be {lost}")
    if first.trouble is not None:
        return broke(answer, first.trouble)
    truth = case.ours(Doing(), case.inputs(0, readings[0]))
    if first.out is None:
        return answer("broke", shape_said(first, truth.shape, case))
    if case.rank == 1 and case.unmet is not None and NAMED_AXIS.search(case.plan.source):
        return broke(
            answer, case.unmet, notes=("with one axis alone it answers: keepdims=True where an axis is summed?",)
        )
    if problem := repeated(case, readings[0], first, truth, answer, file):
        return problem
    masks = list(dict.fromkeys(r.get("mask_as", "") for r in readings))
    numbers = range(topic.n_draws)
    said = {
        mask: [case.answer(n, {**readings[0], **({"mask_as": mask} if mask else {})}) for n in numbers]
        for mask in masks
    }
    search = Search(case, said, case.precision, numbers)
    place = None
    if topic.name == "gpt":  # two mistakes at once take long: first, is it one block alone?
        found = judging.look(search, readings, time.monotonic())
        place = place_of_difference(case, readings) if found.kind == "unknown" else None
        if place is not None and (local := walked(case, search, place, found, answer, file)).confident:
            return local
        if found.kind == "unknown" and judging.answered(search, readings):
            found = judging.two(search, readings, numbers, time.monotonic() + judging.PAIRS_FOR) or found
    else:
        found = judging.look(search, readings)
    notes = list(notes_of(case, found, readings))
    held = f"{topic.n_draws} draws, seed {case.seed}, {case.precision}"
    if found.kind != "right":
        for n in numbers:
            trouble = said[found.reading.get("mask_as", "")][n].trouble
            if trouble is not None and found.kind == "unknown":
                return broke(answer, trouble, notes=tuple(notes), held=held)
        if place is not None and found.kind == "unknown":
            return walked(case, search, place, found, answer, file, notes=tuple(notes), held=held)
        return wrong(case, search, found, answer, file, notes, held)
    if any(one.slight for one in found.entries):
        notes += [one.said for one in found.entries]
    if case.precision == "float64" and topic.judged == "values":
        single = in_single(case, found, numbers)
        if single is not None:
            return replace(
                wrong(case, single[0], single[1], answer, file, notes, held),
                notes=(*notes, "in float64 it is right: this is float32"),
            )
        held += " and float32"
    if slope := slopes_checked(case, found.reading, answer, file, notes):
        if not slope.is_fine:
            return slope
        held += ", gradients too"
    if topic.name == "gpt" and case.kind == "torch" and case.make() is None:  # as it was made, untrained
        taught = judge_without_weights(case, answer)
        if not taught.is_fine:
            return taught
        notes += taught.notes
        held += "; it learns"
    return answer("right", topic.about, notes=tuple(notes), held=held)


def fitting_rank(case: Case, reading: Inputs) -> Said:
    """The first number of axes, and the first precision, in which theirs answers in our shape."""
    tried: list[tuple[Said, int]] = []
    for rank in case.topic.ranks:
        case.rank = rank
        said = case.answer(0, reading)
        if said.trouble is not None and about_dtype(said.trouble):
            case.precision = "float32"
            said = case.answer(0, reading)
        if said.out is not None:
            if said.dtype in ("float32", "float16", "bfloat16") and case.precision == "float64":
                case.precision = "float32"
            case.unmet = tried[0][0].trouble if tried else None
            return said
        tried.append((said, rank))
        if said.trouble is not None and said.trouble.kind != "error":
            return said
    if case.forced is None and not case.plan.is_class and all(one.trouble is not None for one, _ in tried):
        for case.forced in ("numpy", "torch", "lists"):  # what it takes was guessed wrongly?
            said = fitting_rank(case, reading)
            if said.out is not None:
                return said
        case.forced = None
    said, case.rank = next((one for one in tried if one[0].trouble is None), tried[-1])
    return said


def about_dtype(trouble: Trouble) -> bool:
    return any(
        word in trouble.says.lower()
        for word in ("dtype", "float and double", "double and float", "same type", "doubletensor")
    )


def shape_said(said: Said, shape: tuple[int, ...], case: Case) -> str:
    out = said.reply.out if isinstance(said.reply, Reply) else None
    wanted = f"shape {shape}" if shape else "one number"
    if out is None:
        return f"it returns None, not {wanted}: is a return missing?"
    if isinstance(out, np.ndarray):
        return f"it returns shape {out.shape}, the formula gives {wanted}"
    if isinstance(out, list):
        shapes = [one.shape if isinstance(one, np.ndarray) else one for one in out]
        return f"it returns {len(out)} things ({', '.join(map(str, shapes[:4]))}), none of {wanted}"
    return f"it returns {out}, not {wanted}"


def repeated(
    case: Case, reading: Inputs, first: Said, truth: Array, answer: Callable[..., Answer], file: str
) -> Answer | None:
    """The same input again: the same answer, and the input as it was."""
    if case.topic.judged != "values":
        return None
    again = case.answer(0, reading, watch=True)
    if again.out is None or first.out is None:
        return None
    if not np.array_equal(again.out, first.out, equal_nan=True) and comparing.distance(again.out, first.out) > 1e-6:
        gap = comparing.distance(again.out, first.out)
        if "drop" in case.plan.source.lower():
            mistake = Mistake.of(CATALOGUE["dropout-in-evaluation"], case.plan, file)
            words = "the same input gives another answer each time: dropout is active in evaluation"
            return answer("wrong", words, mistakes=(mistake,), confident=True, gap=gap)
        return answer("wrong", "the same input gives another answer each time", gap=gap)
    if isinstance(again.reply, Reply) and (changed := again.reply.facts.get("changed")):
        names = [name_at(case, at) for at in changed]
        return answer("wrong", f"it changes its input in place: {', '.join(names)}",
                      notes=("work on a copy: x = x - mean, not x -= mean; no masked_fill_, no out=",))  # fmt: skip
    return None


def name_at(case: Case, at: int | str) -> str:
    if isinstance(at, str):
        return at
    return next((own for own, place in case.plan.places.items() if place == at), str(at))


def notes_of(case: Case, found: Found, readings: Sequence[Inputs]) -> Iterator[str]:
    """What their code decided where the signature leaves it open, if it is not the documented way."""
    for one in {one.name: one for one in case.topic.open}.values():
        value = found.reading.get(one.name)
        if one.name in found.reading and found.kind != "unknown" and value != readings[0].get(one.name):
            yield one.says(value)
    if found.to_digits < 15:
        yield f"it agrees to about {found.to_digits} digits: a constant is rounded, or something computes in float32"
    if case.precision == "float32":
        yield "it computes in float32"
    if case.rank < max(case.topic.ranks):
        yield f"held for arrays of {case.rank} ax{'is' if case.rank == 1 else 'es'}: with more the shape is another"


def wrong(
    case: Case, search: Search, found: Found, answer: Callable[..., Answer], file: str, notes: Sequence[str], held: str
) -> Answer:
    notes = list(notes)
    said = search.theirs(found.reading)
    if found.kind in ("named", "two"):
        mistakes = tuple(
            Mistake.of(e, case.plan, file, found.also if found.kind == "named" else ()) for e in found.entries
        )
        notes += [e.said for e in found.entries if e.slight and len(found.entries) > 1]
        mistakes = tuple(m for m in mistakes if not CATALOGUE[m.key].slight) or mistakes
        if all(e.slight for e in found.entries):
            return answer("right", "right, with a note", notes=(*notes, *(e.said for e in found.entries)), held=held)
        if found.on_plain_alone:
            notes.append("on extreme inputs there is something more")
        words = mistakes[0].said if len(mistakes) == 1 else "two mistakes at once"
        return answer("wrong", words, mistakes=mistakes, confident=True, gap=found.gap, notes=tuple(notes), held=held)
    if half := in_half(said, search, found):
        return answer("wrong", half, gap=found.gap, notes=tuple(notes), held=held, confident=True)
    if any(one.out is not None and np.isnan(one.out).any() for one in said) and not found.on_plain_alone:
        where = next(n for n, one in enumerate(said) if one.out is not None and np.isnan(one.out).any())
        return answer("wrong", "there is nan in its answer", at=f"draw {where}", notes=tuple(notes), held=held)
    words = f"off by up to {found.gap:.3g}, and by no one mistake, nor two, that is known"
    if found.on_plain_alone:
        words = f"right on ordinary inputs, off by {found.gap:.3g} on extreme ones"
    if rough := as_if_half(said, search, found):
        words = f"{words}: {rough}"
    like = f"{found.nearest.said}  [{found.nearest.key}]; something else differs too" if found.nearest else ""
    return answer("wrong", words, looks_like=like, at=found.at, gap=found.gap, notes=tuple(notes), held=held)


def float16(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float64)


def in_half(said: Sequence[Said], search: Search, found: Found) -> str:
    """Whether every number is one that half precision can hold, as near the formula as that allows."""
    outs = [one.out for one in said if one.out is not None]
    for name, cast in (("float16", float16), ("bfloat16", bfloat16)):
        with np.errstate(all="ignore"):
            held = all(np.array_equal(cast(np.nan_to_num(x)), np.nan_to_num(x)) for x in outs)
        near = all(
            comparing.distance(one.out, truth) <= 100 * comparing.UNIT[name] * (1 + np.abs(truth).max(initial=0))
            for n, one in enumerate(said)
            if one.out is not None and n < search.case.topic.n_plain
            for truth in [search.truth(n, found.reading)]
        )
        if outs and held and near and any((x != np.round(x)).any() for x in outs):
            digits = {"float16": "3 digits, and infinity above 65504", "bfloat16": "2 to 3 digits"}[name]
            return f"it computes in {name}, whatever it is given: {digits}"
    return ""


def as_if_half(said: Sequence[Said], search: Search, found: Found) -> str:
    """Whether it is off nowhere by more than half precision is: a hint, no name."""
    worst = 0.0
    for n, one in enumerate(said[: search.case.topic.n_plain]):
        truth = search.truth(n, found.reading)
        if one.out is None or search.case.topic.judged != "values":
            return ""
        worst = max(worst, comparing.distance(one.out, truth) / (float(np.abs(truth).max(initial=0)) + 1e-9))
    for name in ("float16", "bfloat16"):
        if 0.2 * comparing.UNIT[name] < worst < 8 * comparing.UNIT[name]:
            return f"about as much as {name} rounds; is something computed in half precision?"
    return ""


def in_single(case: Case, found: Found, numbers: Sequence[int]) -> tuple[Search, Found] | None:
    """The same in float32: None where it is right there too."""
    mask = found.reading.get("mask_as", "")
    said = {mask: [case.answer(n, found.reading, "float32") for n in numbers]}
    if any(one.trouble is not None for one in said[mask]):
        return None  # it takes float64 alone: its right
    if all(one.dtype not in ("float32", "float16", "bfloat16") for one in said[mask]):
        return None  # it computes in float64 whatever it is given
    search = Search(case, said, "float32", numbers)
    seen = judging.look(search, [found.reading], time.monotonic() + 2)
    return None if seen.kind == "right" else (search, seen)

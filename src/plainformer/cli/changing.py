"""`--what-if n_kv_heads=8,tied=false`: the same model with some sizes changed, exact or refused by key."""

from __future__ import annotations

import os

from plainformer.cli.model_argument import config_of, resolve
from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.huggingface.changing import NAMES, change_spec, changed
from plainformer.records import replace
from plainformer.report.sheet import Subject
from plainformer.spec import Spec

Changes = dict[str, object]


def changes_in(text: str) -> Changes:
    """ "n_kv_heads=8,tied=false" -> {"n_kv_heads": 8, "tied": False}. Refuses what is no such list."""
    changes: Changes = {}
    for pair in text.split(","):
        name, sign, value = (word.strip() for word in pair.partition("="))
        if not (name and sign and value):
            raise refuse("--what-if", pair, "is no change", "say NAME=VALUE, as n_kv_heads=8,tied=false")
        if name in changes:
            raise refuse(f"--what-if {name}", value, "is said twice")
        changes[name] = value_of(value)
    return changes


def value_of(text: str) -> object:
    words: dict[str, object] = {"true": True, "false": False, "null": None, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def what_if(text: str, changes: Changes, family: str | None = None) -> Subject:
    """The model of this name with changes: by its config's keys, by its builder's sizes, or in the spec itself."""
    subject = resolve(text, family)
    said = ",".join(f"{name}={str(value).lower()}" for name, value in changes.items())
    name = f"{subject.name} with {said}"
    config, where = config_of(text)
    if config is not None:
        reading, left = changed(config, changes, where, None if where.endswith(".gguf") else family)
        spec = reading.spec
        for key, value in left.items():
            spec = change_spec(spec, key, value)
        new = replace(subject, name=name, spec=spec, notes=reading.notes, n_stored=None)  # of the file as it is
        return replace(new, dtype=reading.dtype, quantization=reading.quantization)
    spec, left = subject.spec, changes
    if not os.path.isfile(where):
        spec, left = by_builder(text, changes)
    for key, value in left.items():
        spec = change_spec(spec, key, value)
    return replace(subject, name=name, spec=spec)


def by_builder(preset: str, changes: Changes) -> tuple[Spec, Changes]:
    """The preset built again with those changes that are its builder's sizes; the others are left for the spec."""
    from difflib import get_close_matches
    from importlib import import_module

    from plainformer.presets import BYTES, PUBLISHED, TRAINABLE, build

    recipe = (PUBLISHED | TRAINABLE)[preset]
    room, _, function = recipe[0].partition(".")
    builder = getattr(import_module(f"plainformer.families.{room}"), function)
    known = {name for name in builder.__annotations__ if name != "return"}
    ours = {theirs: name for name, several in NAMES.items() for theirs in several}
    named = {name if name in known else ours.get(name, name): value for name, value in changes.items()}
    faults = []
    for name, value in named.items():
        if name not in known and name not in NAMES:
            near = get_close_matches(name, sorted(known | set(NAMES)), n=3, cutoff=0.4) or sorted(known)
            rule = f"{function} has no such size"
            faults.append(Fault(f"--what-if {name}", value, rule, f"near to it: {', '.join(near)}"))
        elif name in known and not fits(value, str(builder.__annotations__[name])):
            kind = str(builder.__annotations__[name])
            rule = "must be at least 1" if type(value) is int and fits(1, kind) else f"must be {kind}"
            faults.append(Fault(f"--what-if {name}", value, rule))
        elif isinstance(value, int) and not isinstance(value, bool) and name == "n_layers" and value > 10_000:
            faults.append(Fault(f"--what-if {name}", value, "must be at most 10,000"))
    if faults:
        raise PlainformerError(faults)
    first = {"vocab_size": BYTES} if preset in TRAINABLE else {}
    spec = build(recipe, first | {name: value for name, value in named.items() if name in known})
    return spec, {name: value for name, value in named.items() if name not in known}


def fits(value: object, annotation: str) -> bool:
    """Whether a value on the command line may be what a builder asks for."""
    kinds = [word.strip() for word in annotation.split("|")]
    if value is None:
        return "None" in kinds
    if isinstance(value, bool):
        return "bool" in kinds
    if isinstance(value, int):
        return ("int" in kinds and value >= 1) or "float" in kinds
    return ("float" in kinds) if isinstance(value, float) else kinds == ["Activation"]

"""A spec is a tree: walk it, change it, write it down, read it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from plainformer import mixers, spec
from plainformer.faults import refuse
from plainformer.records import fields_of, is_dataclass, replace
from plainformer.spec import Spec

VERSION = 1
PARTS: dict[str, Any] = {
    name: part for room in (spec, mixers) for name, part in vars(room).items() if is_dataclass(part)
}
P = TypeVar("P")


def children(part: object) -> Iterator[tuple[str, object]]:
    """What stands directly inside a part, each with its field's name; tuples count from 0."""
    if isinstance(part, tuple):
        yield from ((str(i), item) for i, item in enumerate(part))
    else:
        yield from ((name, getattr(part, name)) for name in fields_of(part))


def walk(part: object, where: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, object]]:
    """Every part of a tree, outermost first, with the fields that lead to it ("decoder.layers.0.0.branches.0").

    `seen`: filled with what was walked; an object that stands in several places is then given at its first alone.
    """
    if seen is not None:
        if id(part) in seen:
            return
        seen.add(id(part))
    if is_dataclass(part):
        yield where, part
    for name, child in children(part):
        if (is_dataclass(child) or isinstance(child, tuple)) and (seen is None or id(child) not in seen):
            yield from walk(child, f"{where}.{name}" if where else name, seen)


def rewrite(part: P, change: Callable[[Any], Any]) -> P:
    """The same tree with change(part) in place of every part, innermost first."""
    if isinstance(part, tuple):
        return cast(P, tuple(rewrite(item, change) for item in part))
    if not is_dataclass(part):
        return part
    new = {name: rewrite(child, change) for name, child in children(part)}
    return cast(P, change(replace(cast(Any, part), **new)))


def to_json(part: object) -> Any:
    """Plain lists, dicts and numbers; each part carries its class's name."""
    if isinstance(part, tuple):
        return [to_json(item) for item in part]
    if not is_dataclass(part):
        return part
    tag = {"is": type(part).__name__} | ({"version": VERSION} if isinstance(part, Spec) else {})
    return tag | {name: to_json(child) for name, child in children(part)}


def from_json(data: Any, where: str = "spec.json") -> Any:
    """The inverse of to_json. Refuses parts and fields that this version does not know, by name."""
    if isinstance(data, list):
        return tuple(from_json(item, f"{where}[{i}]") for i, item in enumerate(data))
    if not isinstance(data, dict):
        return data
    name = data.get("is")
    if not isinstance(name, str) or name not in PARTS:
        raise refuse(f"{where}.is", name, "there is no such part")
    if name == "Spec" and data.get("version") != VERSION:
        raise refuse(f"{where}.version", data.get("version"), f"this plainformer reads version {VERSION}")
    inner = {key: from_json(value, f"{where}.{key}") for key, value in data.items() if key not in ("is", "version")}
    known = set(fields_of(PARTS[name]))
    if unknown := sorted(inner.keys() - known):
        raise refuse(f"{where}.{unknown[0]}", data[unknown[0]], f"{name} has no such field")
    try:
        return PARTS[name](**inner)
    except (AttributeError, TypeError) as misfit:  # a field is missing, or holds what has no fields
        raise refuse(where, name, f"cannot be made of what stands here: {misfit}") from None

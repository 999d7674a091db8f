"""The sheet of a model as plain data: the keys of `size --json`, documented in the design."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from plainformer.cost import Cost, rules
from plainformer.ledger import Ledger, Weight
from plainformer.records import dataclass
from plainformer.spec import Spec

if TYPE_CHECKING:
    from plainformer.conventions import Count
    from plainformer.cost.devices import Device
    from plainformer.cost.training import Plan

PARTS = ("embedding", "position", "attention", "feed_forward", "expert", "router", "norm", "head", "other")


@dataclass(frozen=True)
class Subject:
    """A model to be sized, and what its source says besides the spec."""

    name: str  # as asked for
    spec: Spec
    family: str
    model_type: str | None = None
    dtype: str | None = None  # of the stored weights, where the source says
    quantization: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()  # the notes on what the model does and the spec does not say
    n_stored: int | None = None  # bytes of the weights, where a file's own header says them


def by_part(rows: Iterable[Weight]) -> dict[str, int]:
    """Parameters by part; their sum is the total. "other": mixers that are not attention, adapters, towers."""
    parts = dict.fromkeys(PARTS, 0)
    for row in rows:
        if count := row.count:
            parts[row.kind if row.kind in parts else "other"] += count
    return parts


def parameters(rows: Sequence[Weight]) -> dict[str, Any]:
    """Counts of a ledger's rows. Active: what one token meets, with both tables, without the input table (where the
    head is a matrix of its own), without both."""
    named = {row.name: row for row in rows}
    table, head, bias = (
        named[name].count if name in named else 0 for name in ("embedding.weight", "head.weight", "head.bias")
    )
    bias = bias if head else 0
    total, active = sum(row.count for row in rows), sum(row.active for row in rows)
    tied = any(row.same_as == "embedding.weight" for row in rows)
    return {
        "total": total,
        "non_embedding": total - table - head - bias,
        "active": active,
        "active_without_input_table": active if tied else active - table,
        "active_without_tables": active - table - head,
        "by_part": by_part(rows),
        "by_layers": by_layers(rows),
    }


def by_layers(rows: Iterable[Weight]) -> list[dict[str, Any]]:
    """Layers whose weights have the same shapes, taken together: which, how many, parameters of each."""
    shapes: dict[tuple[str, int], list[tuple[str, tuple[int, ...]]]] = {}
    counts: dict[tuple[str, int], int] = {}
    for row in rows:
        stack, found, rest = row.name.partition(".layers.")
        if found and (count := row.count):
            number, _, place = rest.partition(".")
            key = (f"{stack}.layers", int(number))
            shapes.setdefault(key, []).append((place, row.shape))
            counts[key] = counts.get(key, 0) + count
    alike: dict[tuple[str, tuple[Any, ...]], list[int]] = {}
    for (stack, layer), inside in shapes.items():
        alike.setdefault((stack, tuple(inside)), []).append(layer)
    return [
        {"layers": stack, "numbers": numbers, "each": counts[stack, numbers[0]]}
        for (stack, _), numbers in alike.items()
    ]


def facts(
    subject: Subject,
    cost: Cost,
    *,
    convention: str | None = None,
    tokens: float | None = None,
    sustained: float | None = None,
    price: float | None = None,
    device: Device | None = None,
    plan: Plan | None = None,
    watts: float | None = None,
    told_dtype: bool = False,
) -> dict[str, Any]:
    """The sheet. convention: its name, or "all"; tokens: to train on; sustained: operations a second of one device;
    price: dollars of one device for an hour; watts: of one device. device, plan: a section of their own each.
    told_dtype: a device holds the weights in the cost's dtype, not as the source stores them. What is not known is
    None, with a note where that surprises."""
    rows, by_convention = counted_as(convention, cost)
    stored, stored_note = as_stored(subject, cost)
    exact = cost.training_flops(tokens) if tokens is not None else None
    asked: dict[str, Any] = {}
    if device is not None:
        from plainformer.report.asked import serving

        asked |= serving(cost, None if told_dtype else stored, device)
        asked["notes"] += [] if told_dtype else taken_for_granted(subject, stored, cost.dtype)
    if plan is not None:
        from plainformer.report.asked import training

        asked |= training(cost, plan)
        exact = asked["training_memory"]["flops_per_token"] * tokens if tokens is not None else None
    hours = rules.device_hours(exact, sustained) if exact is not None and sustained else None
    causal, total = bool(cost.cache.parts), cost.ledger.total
    sheet: dict[str, Any] = {
        "family": subject.family,
        "model_type": subject.model_type,
        "parameters": parameters(rows),
        "weights_bytes": {
            **{dtype: rules.n_bytes(total, dtype) for dtype in ("float32", "bfloat16", "fp8", "int8", "int4")},
            "as_stored": None if stored is None else sum(stored),
        },
        "kv_cache": {
            "bytes_per_token": cost.cache_bytes_per_token if causal else None,
            "bytes": cost.cache_bytes if causal else None,
            "bytes_as_expanded": cost.cache_bytes_as_expanded if causal else None,
        },
        "flops": {
            "forward_per_token": cost.forward_flops_per_token,
            "rule_2n": cost.rule_2n,
            "context": cost.seq_len,
        },
        "training": {
            "flops_6nd": cost.training_flops_6nd(tokens) if tokens is not None else None,
            "flops_exact": exact,
            "device_hours": hours,
            "dollars": hours * price if hours is not None and price is not None else None,
            "bytes": asked["training_memory"]["before_activations"] if plan else cost.optimizer_bytes,
        },
        "notes": [*subject.notes, *stored_note, *cost.notes, *asked.pop("notes", [])],
    }
    if hours is not None and watts is not None:
        asked["energy_kwh"] = hours * watts / 1000
    return sheet | by_convention | asked


def counted_as(convention: str | None, cost: Cost) -> tuple[tuple[Weight, ...], dict[str, Any]]:
    """The rows that count under a convention, aliases among them (they say what is tied), and what the sheet says of
    it. None, and "all": every tensor."""
    if convention is None:
        return cost.ledger.rows, {}
    from plainformer.conventions import CONVENTIONS, count

    if convention == "all":
        return cost.ledger.rows, {"conventions": {name: count(cost.spec, name).total for name in CONVENTIONS}}
    counted = count(cost.spec, convention)
    left_out = {row.name for row in counted.left_out}
    rows = tuple(row for row in Ledger.of(counted.spec).rows if row.name not in left_out)
    return rows, {"convention": under(counted)}


def under(counted: Count) -> dict[str, Any]:
    """What a convention does, in numbers: every tensor + changes - left out = total."""
    return {
        "name": counted.convention.name,
        "says": counted.convention.says,
        "every_tensor": counted.plain,
        "changes": sum(gap for _, gap in counted.changes),
        "left_out": {row.name: row.count for row in counted.left_out},
        "total": counted.total,
    }


def as_stored(subject: Subject, cost: Cost) -> tuple[list[int] | None, list[str]]:
    """Bytes of each of the ledger's weights as the source says that it is stored, and a note where it doesn't say
    enough. Of a file whose header says the bytes of all: each its share by count."""
    rows = cost.ledger.weights
    if subject.n_stored is not None:
        counts = accumulate((row.count for row in rows), initial=0)
        ends = [subject.n_stored * n // (cost.ledger.total or 1) for n in counts]
        return [end - begin for begin, end in pairwise(ends)], []
    if not subject.quantization:
        if subject.dtype in rules.BITS:
            return [rules.n_bytes(row.count, subject.dtype) for row in rows], []
        unsaid = "the config does not say in which dtype the weights are stored"
        if subject.dtype is not None:
            unsaid = f"the config's dtype, {subject.dtype}, is not known here: bytes as stored are not worked out"
        return None, [unsaid] if subject.model_type else []
    from plainformer.cost.stored import stored_bytes

    return stored_bytes(cost.spec, cost.ledger.weights, subject.dtype, subject.quantization, subject.model_type)


def taken_for_granted(subject: Subject, stored: Sequence[int] | None, dtype: str) -> list[str]:
    """What a device's figures are reckoned with where the source does not say how each weight is stored."""
    if subject.n_stored is not None:
        return ["what a step reads is taken at the file's mean width, though its tensors have several"]
    if stored is None and subject.model_type:
        return [f"memory and bounds take the weights in {dtype}: --dtype says another"]
    return []


def ledger_rows(rows: Iterable[Weight]) -> list[dict[str, Any]]:
    """Every row of a ledger for `--explain --json`; counts sum to the total."""
    listed = []
    for row in rows:
        one: dict[str, Any] = {"name": row.name, "shape": list(row.shape), "kind": row.kind, "count": row.count}
        if row.same_as:
            one["same_as"] = row.same_as
        if row.buffer:
            one["buffer"] = True
        listed.append(one)
    return listed


def describe(spec: Spec) -> str:
    """A model in a line: what kind, how deep, how wide, how long."""
    kinds = [name for name, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)) if stack]
    depth = [len(stack.passes or stack.layers) for stack in (spec.encoder, spec.decoder) if stack]
    layers = " + ".join(f"{n}" for n in depth)
    said = f"{'-'.join(kinds)}, {layers} layers, {spec.d_model:,} wide, {spec.vocab_size:,} tokens"
    return f"{said}, context {spec.max_seq_len:,}"


def flat(sheet: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}; lists are left out. The columns of `--csv`."""
    row: dict[str, Any] = {}
    for key, value in sheet.items():
        if isinstance(value, Mapping):
            row |= flat(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            row[prefix + key] = value
    return row

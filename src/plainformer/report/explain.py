"""The formula behind each number of the sheet, with its values: what stands in `values` is arithmetic that gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from plainformer.cost import Cost, rules
from plainformer.cost.flops import Work, flops
from plainformer.records import dataclass


@dataclass(frozen=True)
class Formula:
    what: str
    formula: str  # in words
    values: str  # with numbers: + - x / and brackets, thousands set off
    result: float


def formulas(sheet: Mapping[str, Any], cost: Cost) -> Iterator[Formula]:
    """One for each number that the sheet has."""
    yield from counted(sheet)
    yield from bytes_of(sheet, cost)
    yield from kept(sheet, cost)
    yield from work(sheet, cost)
    yield from trained(sheet, cost)
    yield from served(sheet, cost)


def n(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}" if value == int(value) else repr(value)


def counted(sheet: Mapping[str, Any]) -> Iterator[Formula]:
    said = sheet["parameters"]
    parts = [part for part in said["by_part"].values() if part]
    names = " + ".join(name.replace("_", "-") for name, part in said["by_part"].items() if part)
    yield Formula("parameters", names, " + ".join(map(n, parts)) or "0", said["total"])
    tables = said["total"] - said["non_embedding"]
    values = f"{n(said['total'])} - {n(tables)}"
    yield Formula("without token tables", "parameters - token table - a head of its own", values, said["non_embedding"])
    if said["active"] != said["total"]:
        unmet = f"{n(said['total'])} - {n(said['total'] - said['active'])}"
        yield Formula("met by one token", "parameters - experts that it does not meet", unmet, said["active"])
    for key, words in (
        ("active_without_input_table", "met by one token - the input table where the head is a matrix of its own"),
        ("active_without_tables", "met by one token - the input table - the head"),
    ):
        values = f"{n(said['active'])} - {n(said['active'] - said[key])}"
        yield Formula(key.replace("_", " "), words, values, said[key])


def bytes_of(sheet: Mapping[str, Any], cost: Cost) -> Iterator[Formula]:
    total = cost.ledger.total
    for dtype in ("float32", "bfloat16", "fp8", "int8", "int4"):
        values = f"{n(total)} x {rules.bits(dtype)} / 8"
        yield Formula(f"weights, {dtype}", "every tensor once x bits / 8", values, sheet["weights_bytes"][dtype])


def kept(sheet: Mapping[str, Any], cost: Cost) -> Iterator[Formula]:
    cache = sheet["kv_cache"]
    if cache["bytes"] is None:
        return
    bits = rules.bits(cost.kv_dtype)
    groups: dict[tuple[int, int | None], int] = {}
    for part in cost.cache.parts:
        if part.per_token:
            groups[part.per_token, part.window] = groups.get((part.per_token, part.window), 0) + 1
    each = " + ".join(f"{times} x {n(numbers)}" for (numbers, _), times in groups.items()) or "0"
    words = "(layers x numbers that each keeps) x bits / 8"
    yield Formula("cache of one token", words, f"({each}) x {bits} / 8", cache["bytes_per_token"])
    tokens = {window: cost.seq_len if window is None else min(window, cost.seq_len) for _, window in groups}
    whole = " + ".join(f"{times} x {n(m)} x {n(tokens[window])}" for (m, window), times in groups.items()) or "0"
    words = "batch x (layers x numbers x tokens, windows held to) x bits / 8"
    yield Formula("cache", words, f"{n(cost.batch_size)} x ({whole}) x {bits} / 8", cache["bytes"])


def work(sheet: Mapping[str, Any], cost: Cost) -> Iterator[Formula]:
    said, spec = sheet["flops"], cost.spec
    if spec.encoder is None or spec.decoder is None:
        one = Work(1, cost.seq_len, cost.seq_len)
        every = flops(spec, one)
        bare = flops(spec, Work(1, cost.seq_len, 0))
        if bare % (2 * cost.seq_len) == 0 and (every - bare) % cost.seq_len == 0:
            matrices, scores = bare // (2 * cost.seq_len), (every - bare) // cost.seq_len
            words = "2 x weights that multiply + scores and mixing (4 x context x heads x width of a head, all layers)"
            yield Formula("forward, one token", words, f"2 x {n(matrices)} + {n(scores)}", said["forward_per_token"])
    else:
        values = f"{n(cost.forward_flops)} / {n(cost.batch_size * cost.seq_len)}"
        yield Formula("forward, one token", "of the batch / its tokens, rounded up", values, said["forward_per_token"])
    yield Formula(
        "by the rule 2N", "2 x parameters that a token meets", f"2 x {n(cost.ledger.active)}", said["rule_2n"]
    )


def trained(sheet: Mapping[str, Any], cost: Cost) -> Iterator[Formula]:
    said, memory = sheet["training"], sheet.get("training_memory")
    if memory is None:
        values = f"{rules.ADAMW} x {n(cost.ledger.total)}"
        yield Formula("to train, AdamW", "(2 + 2 + 4 + 4 + 4) bytes x parameters", values, said["bytes"])
    else:
        parts: tuple[str, ...] = ("weights", "gradients", "optimizer_state")
        values = " + ".join(n(memory[part]) for part in parts)
        yield Formula("before activations", "weights + gradients + optimiser", values, memory["before_activations"])
        if memory["total"] is not None:
            parts += ("activations", "logits")
            values = " + ".join(n(memory[part]) for part in parts)
            words = "weights + gradients + optimiser + activations + logits"
            yield Formula("memory of one device", words, values, memory["total"])
        optimal = memory["compute_optimal_tokens"]
        values = f"20 x {n(cost.ledger.active)}"
        yield Formula("compute-optimal tokens", "20 x parameters (Hoffmann et al. 2022)", values, optimal)
    if said["flops_6nd"] is not None:
        tokens = said["flops_6nd"] / (6 * cost.ledger.active)
        values = f"6 x {n(cost.ledger.active)} x {n(tokens)}"
        yield Formula("training, 6ND", "6 x parameters met x tokens", values, said["flops_6nd"])
    if said["device_hours"] is not None:
        rate = said["flops_exact"] / said["device_hours"] / 3600
        values = f"{n(said['flops_exact'])} / {n(rate)} / 3,600"
        yield Formula("device hours", "exact operations / sustained rate / 3,600 s", values, said["device_hours"])
        if said["dollars"] is not None:
            price = said["dollars"] / said["device_hours"]
            values = f"{n(said['device_hours'])} x {n(price)}"
            yield Formula("dollars", "device hours x price", values, said["dollars"])
        if "energy_kwh" in sheet:
            watts = 1000 * sheet["energy_kwh"] / said["device_hours"]
            values = f"{n(said['device_hours'])} x {n(watts)} / 1,000"
            yield Formula("energy, kWh", "device hours x watts / 1,000", values, sheet["energy_kwh"])


def served(sheet: Mapping[str, Any], cost: Cost) -> Iterator[Formula]:
    if (said := sheet.get("device")) is None:
        return
    kept = cost.cache_bytes + cost.cross_cache_bytes + cost.state_bytes
    values = f"{n(said['memory_needed'] - kept)} + {n(kept)}"
    yield Formula("memory needed", "weights + cache", values, said["memory_needed"])

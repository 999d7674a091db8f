"""Models in, from folders as published on the hub: config.json beside safetensors or torch files; each tensor is put in
its place, one at a time: as it lies in the file where that will do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from plainformer.checkpoint import single
from plainformer.checkpoint.packed import unpacked
from plainformer.checkpoint.sources import DTYPES, Source, pickles_of, safetensors_of, tensors_of
from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.huggingface import headers, read_file
from plainformer.huggingface.checking import BUFFERS, is_draft, shape_of
from plainformer.huggingface.names import (
    found_in,
    hold_experts,
    one_in,
    placed,
    plain,
    pooled_in,
    sines,
    table_of,
    unforeseen,
    written,
)
from plainformer.huggingface.tables import Row
from plainformer.ledger import Ledger
from plainformer.model import Transformer, unready
from plainformer.spec import Spec


def load_hub(folder: str | Path, dtype: torch.dtype | None = None, mapped: bool = True) -> Transformer:
    """The model in a published folder, in its own dtype or the one asked for.

    mapped: as `load` has it. Raises PlainformerError: files absent or damaged, tensors absent or of other shapes, a
    family without a table, weights packed in a way without a rule.
    """
    return load_source(source_of(Path(folder)), dtype, mapped)


def load_file(path: Path, dtype: torch.dtype | None = None, mapped: bool = True) -> Transformer:
    """The model in one file: all of it (GGUF, llama2.c), or its weights alone, with its config.json beside it."""
    if path.suffix == ".gguf":
        return load_source(single.gguf_source(path), dtype, mapped)
    if path.suffix == ".bin" and single.is_llama2c(path):
        return load_source(single.llama2c_source(path), dtype, mapped)
    return load_source(source_of(path.parent, path), dtype, mapped)


def source_of(folder: Path, file: Path | None = None) -> Source:
    """What a published folder holds, packed weights as if they were plain. file: the one to take of several."""
    if file is not None and file.suffix != ".safetensors":
        pickles_of([file])  # what would run code is refused as that, whatever else is missing
    reading = read_file(folder)
    if reading.unsaid:
        raise refuse(f"{folder / 'config.json'}: model_type", reading.model_type, reading.unsaid[0], "it can be sized")
    table_of(reading.model_type)  # a family without one is refused before its files are opened
    if file is None:
        tensors, read = tensors_of(folder)
    else:
        tensors, read = safetensors_of(folder, file.name) if file.suffix == ".safetensors" else pickles_of([file])
    if reading.quantization is not None:
        tensors, read = unpacked(reading, tensors, read, str(folder))
    apart = all(one.file.endswith(".safetensors") for one in tensors.values())
    return Source(str(folder), reading, tensors, read, apart)


@dataclass(frozen=True)
class Plan:
    """Which tensor of a source goes where; checked whole before a number is read."""

    source: Source
    spec: Spec
    stored: Mapping[str, str]  # by the names that the class writes: the names as stored

    @property
    def model_type(self) -> str:
        return self.source.reading.model_type

    @cached_property
    def told(self) -> dict[str, headers.Tensor]:
        return {name: self.source.tensors[at] for name, at in self.stored.items()}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {w.name: w.shape for w in Ledger.of(self.spec).rows}

    @cached_property
    def rows(self) -> tuple[tuple[Row, str, tuple[str, ...], str | None], ...]:
        """Each tensor to read: its row, its expected name, ours, and the name it has here."""
        return tuple(self._rows())

    def _rows(self) -> Iterator[tuple[Row, str, tuple[str, ...], str | None]]:
        for row, name, ours in placed(table_of(self.model_type), self.spec):
            experts = range(self.shapes[ours[0]][0]) if row.lies == "stacked" else (0,)
            for e in experts:
                expected = name.replace("{e}", str(e))
                yield row, expected, ours, written(expected, self.stored)

    def faults(self) -> Iterator[Fault]:
        where, seen = self.source.where, set[str]()
        for row, name, ours, found in self.rows:
            if found is None and row.made:
                continue
            if found is None:
                yield Fault(f"{where}: {name}", None, "is not in the checkpoint")
                continue
            seen.add(found)
            one, want = self.told[found], shape_of(row, self.shapes, ours)
            at = f"{one.file}: {self.stored[found]}"
            if one.shape != want:
                yield Fault(at, one.shape, f"must be {want}, by the config")
            if one.dtype not in DTYPES:
                yield Fault(at, one.dtype, f"must be one of {', '.join(DTYPES)}")
        yield from unforeseen(self.model_type, self.spec, self.told)
        yield from self.strangers(seen)

    def strangers(self, seen: set[str]) -> Iterator[Fault]:
        """Tensors that stand in a layer and that no row has a place for: an adapter, a scale, a layer too many."""
        starts = {r.theirs.partition("{i}")[0] for r in table_of(self.model_type) if "{i}" in r.theirs}
        layer = re.compile(
            "|".join(rf"(?:{re.escape(s)}|{re.escape(s.partition('.')[2])})\d+\." for s in sorted(starts))
        )
        known = {found for name in self.rest() if (found := written(name, self.stored))}
        for name in self.stored.keys() - seen - known:
            draft = self.source.reading.config.get("num_nextn_predict_layers") and is_draft(name, self.spec)
            if layer.match(name) and not name.endswith((*BUFFERS, *UNUSED)) and not draft:
                yield Fault(
                    self.stored[name], self.told[name].shape, "stands in a layer, and the config has no place for it"
                )

    def rest(self) -> Iterator[str]:
        """Names that the table knows and `unforeseen` tells of."""
        for r in table_of(self.model_type):
            for i in range(len(self.spec.main.layers)) if "{i}" in r.theirs else ():
                yield r.theirs.replace("{i}", str(i))

    def dtype(self) -> torch.dtype:
        """In which all weights are stored; of several dtypes the one that the config names, which transformers takes
        too, or else the one that most bytes have."""
        n_bytes: Counter[str] = Counter()
        buffers = {w.name for w in Ledger.of(self.spec).rows if w.buffer}
        for _, _, ours, found in self.rows:
            if found is not None and ours[0] not in buffers:
                n_bytes[self.told[found].dtype] += self.told[found].n_bytes
        named = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES.values()}
        if len(n_bytes) > 1 and self.source.reading.dtype in named:
            return named[self.source.reading.dtype]
        return DTYPES[n_bytes.most_common(1)[0][0]]


# Of classes that once held them and hold them no more: read by none.
UNUSED = (".EncDecAttention.relative_attention_bias.weight", ".k_scale", ".v_scale", ".attn.rotary_emb.cos_cached")


MOST_FAULTS = 40  # told one by one
MOST_ABSENT = 10_000  # tensors of single experts that are looked for in vain


class Lazy(dict[str, Any]):
    """Tensors by name, read when asked for."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.stored)
        self.plan = plan

    def __getitem__(self, name: str) -> Tensor:
        return self.plan.source.read(self.plan.stored[name])


def plan_of(source: Source) -> Plan:
    """Where everything goes. Refuses, all at once, what is absent, of another shape or dtype, or has no place."""
    reading = source.reading
    n_layers = sum(len(stack.layers) for stack in (reading.spec.encoder, reading.spec.decoder) if stack)
    if n_layers > len(source.tensors):  # told at once, not layer by layer
        raise refuse(source.where, f"{len(source.tensors)} tensors", f"are too few for {n_layers:,} layers.")
    hold_experts(source.where, reading.model_type, reading.spec, len(source.tensors), MOST_ABSENT)
    stored = plain(reading.model_type, source.tensors)
    plan = Plan(source, pooled_in(reading.model_type, reading.spec, stored), stored)
    faults = list(plan.faults())
    if not faults and (spec := found_in(reading.model_type, plan.spec, Lazy(plan))) != plan.spec:
        plan = Plan(source, spec, plan.stored)
        faults = list(plan.faults())
    if faults:
        more = [Fault(source.where, len(faults), "faults in all")] if len(faults) > MOST_FAULTS else []
        raise PlainformerError(faults[:MOST_FAULTS] + more)
    return plan


@torch.no_grad()
def load_source(source: Source, dtype: torch.dtype | None = None, mapped: bool = True) -> Transformer:
    """The model, each tensor put in its place: never is more than one held beside it. mapped: as `load` has it."""
    plan = plan_of(source)
    if faults := list(unready(plan.spec)):
        raise PlainformerError(faults)
    with torch.device("meta"):  # shapes alone: what is read takes their places
        model = Transformer(plan.spec, initial=None)
    model.to(dtype or plan.dtype())
    expert, as_it_lies = Counter[str](), mapped and source.apart
    kept = {name for name, _ in model.named_buffers()} if dtype is None else set()
    modules = dict(model.named_modules())
    for row, _, ours, found in plan.rows:
        if found is None:  # of a table that is made: plan_of refuses any other
            put(modules, ours[0], torch.from_numpy(sines(plan.shapes[ours[0]], np)).to(held(modules, ours[0]).dtype))
            continue
        tensor = source.read(plan.stored[found])
        if row.lies == "stacked":
            stack = held(modules, ours[0])
            if stack.is_meta:
                stack = put(modules, ours[0], torch.empty_like(stack, device="cpu"))
            stack[expert[ours[0]]].copy_(tensor)
            expert[ours[0]] += 1
            continue
        for name, part in one_in(row, [tensor], ours, plan.shapes, plan.spec, torch).items():
            its_own = name in kept  # a correction is kept finer than the weights
            dtype_here = part.dtype if its_own else held(modules, name).dtype
            if not (as_it_lies and part.dtype is dtype_here and products_read(part)):
                part = torch.empty(part.shape, dtype=dtype_here).copy_(part)
            put(modules, name, part)
    return model.eval()


def products_read(part: Tensor) -> bool:
    """Whether products take a tensor as it lies: rows or columns in one piece, numbers at multiples of their size."""
    in_order = part.is_contiguous() or (part.ndim > 1 and 1 in part.stride()[-2:])
    return in_order and part.data_ptr() % part.element_size() == 0


def held(modules: Mapping[str, nn.Module], name: str) -> Tensor:
    """The weight or buffer of this name."""
    place, _, leaf = name.rpartition(".")
    return cast(Tensor, getattr(modules[place], leaf))


def put(modules: Mapping[str, nn.Module], name: str, tensor: Tensor) -> Tensor:
    """A tensor as the weight or buffer of this name."""
    place, _, leaf = name.rpartition(".")
    tensor = nn.Parameter(tensor) if isinstance(held(modules, name), nn.Parameter) else tensor
    setattr(modules[place], leaf, tensor)
    return tensor

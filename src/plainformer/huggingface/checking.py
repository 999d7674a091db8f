"""A folder of safetensors held against its config: what the config asks for, and what the files say that they hold."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from math import prod

from plainformer.huggingface.configs import Reading
from plainformer.huggingface.headers import read_folder
from plainformer.huggingface.names import counts, hold_experts, placed, plain, written
from plainformer.huggingface.tables import TABLES, Row
from plainformer.ledger import Ledger
from plainformer.records import dataclass
from plainformer.spec import Spec

Shape = tuple[int, ...]
SCALES: tuple[str, ...] = (
    "_scale_inv",
    "_scale",
    "_scales",
    "_blocks",
    ".qweight",
    ".qzeros",
    ".scales",
    ".g_idx",
    "_packed",
    "_shape",
)
# Buffers that older files hold and their classes do not ask for.
BUFFERS: tuple[str, ...] = (
    ".attn.bias",
    ".attn.masked_bias",
    ".rotary_emb.inv_freq",
    ".attention.bias",
    ".attention.masked_bias",
)
BUFFERS += ("position_ids", ".e_score_correction_bias", "final_logits_bias")
MOST_ABSENT = 80_000  # tensors of single experts that are told by name: the largest models have fewer in all


def shape_of(row: Row, shapes: dict[str, Shape], ours: tuple[str, ...]) -> Shape:
    """Their tensor's shape from ours, by how it lies (see tables.Row)."""
    each = [shapes[name] for name in ours]
    first = each[0]
    if row.lies in ("stacked", "one row"):
        return first[1:] if row.lies == "stacked" else (1, *first)
    if "pairs" in row.lies:
        wide = first[-2:-1] if "turned" in row.lies else first[-1:]
        kept = (*first[:-2], first[-1]) if "turned" in row.lies else first[:-1]
        return (*kept, len(each) * wide[0])
    if "split" in row.lies:
        together = (sum(one[0] for one in each), *first[1:])
        return together[::-1] if "turned" in row.lies else together
    return (*first[:-2], first[-1], first[-2]) if "turned" in row.lies else first


def asked(model_type: str, spec: Spec) -> Iterator[tuple[str, Shape, bool]]:
    """Every tensor that the class asks for: its name, its shape, whether it is tied to another."""
    rows = Ledger.of(spec).rows
    shapes = {row.name: row.shape for row in rows}
    for row, name, ours in placed(TABLES[model_type], spec):
        shape = shape_of(row, shapes, ours)
        numbers = range(shapes[ours[0]][0]) if row.lies == "stacked" else (0,)
        for e in numbers:
            yield name.replace("{e}", str(e)), shape, False
    tied = {row.name for row in rows if row.same_as}
    for row in TABLES[model_type]:
        if row.ours[0] in tied and counts(row, 0, set(shapes)):
            yield row.theirs, shapes[row.ours[0]], True


@dataclass(frozen=True)
class Checked:
    folder: str
    files: tuple[str, ...]
    n_tensors: int
    n_bytes: int
    n_numbers: int  # that the files hold; those of packed tensors are not unpacked
    dtypes: dict[str, int]  # bytes of each
    expected: int  # parameters by the config
    named: bool  # whether the family has a table of names
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    misshaped: tuple[str, ...]
    tied: str  # "stored", "not stored", "no"
    faults: tuple[str, ...]  # of the files themselves
    notes: tuple[str, ...]

    @property
    def whole(self) -> bool:
        return not (self.missing or self.misshaped or self.faults)


def check(folder: str, reading: Reading) -> Checked:
    """Hold the headers of a folder against the reading of its config. Refuses a folder without safetensors."""
    held = read_folder(folder)
    notes = []
    dtypes: Counter[str] = Counter()
    for tensor in held.tensors.values():
        dtypes[tensor.dtype] += tensor.n_bytes
    left, stored = set(held.tensors), dict[str, str]()
    missing, misshaped = [], []
    tied, named = "no", reading.model_type in TABLES
    if named:
        hold_experts(folder, reading.model_type, reading.spec, len(held.tensors), MOST_ABSENT)
        stored = plain(reading.model_type, held.tensors)
        made = {row.theirs for row in TABLES[reading.model_type] if row.made}
        for name, shape, is_tied in asked(reading.model_type, reading.spec):
            found = stored.get(written(name, stored) or "")
            if is_tied:
                tied = "stored" if found else "not stored"
            elif found is None and name not in made and not (reading.quantization and packed(name, left)):
                missing.append(name)
            if found is None:
                continue
            left.discard(found)
            if held.tensors[found].shape != shape and not (reading.quantization and "U8" in dtypes):
                misshaped.append(f"{found}: {held.tensors[found].shape}, the config asks for {shape}")
        beside = {name for name in left if name.endswith(SCALES)} if reading.quantization else set()
        if beside:
            notes.append(f"{len(beside):,} tensors of packed numbers and their scales are not held against the config")
        buffers = {name for name in left if name.endswith(BUFFERS)}
        if buffers:
            notes.append(f"{len(buffers):,} buffers are in the files, which hold no parameter")
        left -= beside | buffers
        drafts = reading.config.get("num_nextn_predict_layers")
        deeper = {name for name in left if drafts and is_draft(name, reading.spec)}
        if deeper:
            notes.append(f"{len(deeper):,} tensors of draft layers (multi-token prediction) are not in the class")
        left -= deeper
    else:
        notes.append(f"{reading.model_type} has no table of names: bytes and dtypes are told, names are not compared")
        left = set()
    return Checked(
        folder=folder,
        files=held.files,
        n_tensors=len(held.tensors),
        n_bytes=sum(dtypes.values()),
        n_numbers=sum(prod(tensor.shape) for tensor in held.tensors.values()),
        dtypes=dict(dtypes.most_common()),
        expected=Ledger.of(reading.spec).total,
        named=named,
        missing=tuple(missing),
        unexpected=tuple(sorted(left)),
        misshaped=tuple(misshaped),
        tied=tied,
        faults=held.faults,
        notes=tuple(notes),
    )


def packed(name: str, left: set[str]) -> bool:
    """Whether a quantised checkpoint holds this weight in another form."""
    stem = name.removesuffix(".weight")
    return any(f"{stem}{end}" in left or f"{name}{end}" in left for end in SCALES)


def is_draft(name: str, spec: Spec) -> bool:
    found = re.search(r"\.layers\.(\d+)\.", name)
    return bool(found) and int(found[1] if found else 0) >= len(spec.main.layers)

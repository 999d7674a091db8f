"""What a folder's safetensors files say that they hold, from their headers alone. No number of theirs is read.

A file: 8 bytes, the header's length n; n bytes of JSON {name: {dtype, shape, data_offsets}}; the tensors.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from math import prod
from typing import Any

from plainformer.faults import PlainformerError, refuse
from plainformer.huggingface.json_files import MOST_BYTES, MOST_VALUES, n_values
from plainformer.records import dataclass

MOST_SIDES = 16  # of a tensor: their product is reckoned and told
MOST_HEADER = 100_000_000  # bytes, as the format's own library allows
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16}
BITS |= {"BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "F4": 4, "F6_E2M3": 6}
BITS |= {"F6_E3M2": 6, "C64": 64}


@dataclass(frozen=True)
class Tensor:
    file: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no key stands twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice in it")
    return found


def read_header(path: str) -> dict[str, Tensor]:
    """The tensors that one file says it holds. Refuses a file whose header is cut short, too long, no JSON, or says
    what cannot be: unknown dtypes, sizes that do not fit shapes, tensors that overlap or lie outside the file."""
    file = os.path.basename(path)
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as opened:
            start = opened.read(8)
            if len(start) < 8:
                raise refuse(path, size, "is too short to be a safetensors file")
            (length,) = struct.unpack("<Q", start)
            if length > MOST_HEADER or 8 + length > size:
                much = "longer than the file" if 8 + length > size else f"over {MOST_HEADER:,} bytes"
                raise refuse(path, length, f"its header is {much}")
            text = opened.read(length)
    except OSError as fault:
        raise refuse(path, fault.strerror, "cannot be read") from None
    if n_values(text) > MOST_VALUES:
        raise refuse(path, length, f"its header holds over {MOST_VALUES:,} values: no model has so many tensors")
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=once)
    except RecursionError:
        raise refuse(path, length, "header is nested too deep") from None
    except ValueError as fault:
        raise refuse(path, length, f"header is not JSON: {fault}") from None
    if not isinstance(header, dict):
        raise refuse(path, type(header).__name__, "header is no object")
    spans, tensors = [], {}
    for name, said in header.items():
        if name == "__metadata__":
            continue
        tensor, begin = tensor_of(path, file, name, said)
        spans.append((begin, begin + tensor.n_bytes, name))
        tensors[name] = tensor
    last = 0
    for begin, end, name in sorted(spans):
        if begin < last:
            raise refuse(f"{path}: {name}", begin, "overlaps another tensor")
        last = end
    if 8 + length + last > size:
        raise refuse(path, size, f"is cut short: its header asks for {8 + length + last:,} bytes")
    return tensors


def tensor_of(path: str, file: str, name: str, said: object) -> tuple[Tensor, int]:
    """One entry of a header, and where its bytes begin."""
    where = f"{path}: {name}"
    if not isinstance(said, Mapping) or not {"dtype", "shape", "data_offsets"} <= said.keys():
        raise refuse(where, said, "must say dtype, shape and data_offsets")
    dtype, shape, offsets = said["dtype"], said["shape"], said["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise refuse(where, dtype, "is no dtype that is known here")
    if not isinstance(shape, list) or len(shape) > MOST_SIDES or not all(whole(n) for n in shape):
        raise refuse(where, shape, f"is no shape of at most {MOST_SIDES} sides")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(whole(n) for n in offsets):
        raise refuse(where, offsets, "are no two offsets")
    begin, end = offsets
    n_bytes = -(-prod(shape) * BITS[dtype] // 8)
    if end - begin != n_bytes:
        raise refuse(where, offsets, f"must span the {n_bytes:,} bytes of {dtype} {tuple(shape)}")
    return Tensor(file, dtype, tuple(shape), n_bytes), begin


def whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


INDEX = "model.safetensors.index.json"
MOST_FILES = 10_000


@dataclass(frozen=True)
class Folder:
    """What a folder's files hold, and what is wrong with the files themselves."""

    tensors: dict[str, Tensor]
    files: tuple[str, ...]
    faults: tuple[str, ...]


def read_folder(folder: str) -> Folder:
    """All tensors of a folder: by its index where it has one, else of every safetensors file in it. A shard that is
    missing or broken is a fault in words, for the rest can still be told. Refuses a folder that holds none."""
    faults: list[str] = []
    index = os.path.join(folder, INDEX)
    promised: dict[str, str] = {}
    if os.path.isfile(index):
        promised = read_index(index)
        files = sorted(set(promised.values()))
    else:
        files = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
        files = ["model.safetensors"] if "model.safetensors" in files else files  # what stands beside it is not of it
    if not files:
        raise refuse("--check", folder, "the folder holds no safetensors file")
    tensors: dict[str, Tensor] = {}
    broken = set()
    for file in files:
        path = os.path.join(folder, file)
        if not os.path.isfile(path):
            faults.append(f"{file}: is missing")
            broken.add(file)
            continue
        try:
            held = read_header(path)
        except PlainformerError as error:
            faults.append(str(error).removeprefix(f"{folder}{os.sep}"))
            broken.add(file)
            continue
        for name in sorted(held.keys() & tensors.keys()):
            faults.append(f"{name}: stands in {tensors[name].file} and in {file}")
        tensors |= held
    for name, file in promised.items():
        if file not in broken and (name not in tensors or tensors[name].file != file):
            faults.append(f"{name}: the index says {file}, which does not hold it")
    if promised:
        beside = [name for name in tensors if name not in promised]
        faults += [f"{name}: is in {tensors[name].file}, and the index lacks it" for name in beside]
    return Folder(tensors, tuple(files), tuple(faults))


def read_index(path: str) -> dict[str, str]:
    """{tensor: file} of an index. Refuses names of files that lead out of the folder."""
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES or n_values(text) > MOST_VALUES:
            raise refuse(path, os.path.getsize(path), f"is over {MOST_BYTES:,} bytes or {MOST_VALUES:,} values")
        data = json.loads(text.decode("utf-8"))
    except OSError as fault:
        raise refuse(path, fault.strerror, "cannot be read") from None
    except PlainformerError:
        raise
    except (ValueError, RecursionError) as fault:
        raise refuse(path, str(fault), "is not JSON") from None
    named = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(named, dict) or not all(isinstance(file, str) for file in named.values()):
        raise refuse(f"{path}: weight_map", named, "must be an object of file names")
    if (n_files := len(set(named.values()))) > MOST_FILES:
        raise refuse(f"{path}: weight_map", n_files, f"is over {MOST_FILES:,} files")
    for file in named.values():
        if os.path.basename(file) != file or file in ("", ".", "..") or "\\" in file or "\0" in file:
            raise refuse(f"{path}: weight_map", file, "leads out of the folder")
    return named

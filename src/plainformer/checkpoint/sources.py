"""Where weights come from: files whose headers are read first, and whose tensors are read one at a time after that."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from plainformer.faults import PlainformerError, refuse
from plainformer.huggingface import Reading, headers

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES, PICKLE_INDEX = ("pytorch_model.bin", "model.pt", "pytorch_model.pt"), "pytorch_model.bin.index.json"
MOST_PICKLE = 64_000_000  # bytes of names and shapes in a torch file, its numbers not counted
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Source:
    """What a model is read from: its config, what its files say that they hold, and a way to one tensor."""

    where: str
    reading: Reading
    tensors: Mapping[str, headers.Tensor]  # by their names as stored
    read: Callable[[str], Tensor]
    apart: bool = True  # no two tensors share numbers: those of a torch file may


def tensors_of(folder: Path) -> tuple[Mapping[str, headers.Tensor], Callable[[str], Tensor]]:
    """The tensors of a folder: of its safetensors, else of its torch files. Refuses by file what is absent, damaged or
    leads elsewhere; no torch file is opened where there are safetensors."""
    if os.path.isfile(folder / INDEX) or any(name.endswith(".safetensors") for name in os.listdir(folder)):
        return safetensors_of(folder)
    if os.path.isfile(folder / PICKLE_INDEX):
        promised = headers.read_index(str(folder / PICKLE_INDEX))
        return pickles_of([folder / name for name in sorted(set(promised.values()))])
    found = [folder / name for name in PICKLES if os.path.isfile(folder / name)]
    if not found:
        raise refuse(str(folder / WEIGHTS), None, "the file is missing", "weights are safetensors, or torch's .bin")
    return pickles_of(found[:1])


def safetensors_of(
    folder: Path, file: str | None = None
) -> tuple[Mapping[str, headers.Tensor], Callable[[str], Tensor]]:
    """The tensors of a folder's safetensors, by its index where there is one; or of one file alone."""
    held = headers.read_folder(str(folder)) if file is None else one_file(folder / file)
    if held.faults:
        file, _, rule = held.faults[0].partition(": ")
        if os.path.isfile(path := folder / file.partition(" = ")[0]):
            headers.read_header(str(path))  # which says it with its value
        raise refuse(str(folder / file), None, rule)
    opened: dict[str, Any] = {}

    def read(name: str) -> Tensor:
        file = held.tensors[name].file
        try:
            if file not in opened:
                opened[file] = safe_open(folder / file, framework="pt")
            tensor: Tensor = opened[file].get_tensor(name)
        except (OSError, SafetensorError) as error:
            raise refuse(f"{folder / file}: {name}", str(error), "this file is damaged or absent") from None
        return tensor

    return held.tensors, read


def one_file(path: Path) -> headers.Folder:
    return headers.Folder(headers.read_header(str(path)), (path.name,), ())


def pickles_of(files: list[Path]) -> tuple[Mapping[str, headers.Tensor], Callable[[str], Tensor]]:
    """Torch's own files, read as data alone: a pickle that would run anything is refused unread."""
    tensors: dict[str, Tensor] = {}
    told: dict[str, headers.Tensor] = {}
    for file in files:
        for name, tensor in pickled(file).items():
            if name in tensors:
                raise refuse(f"{file}: {name}", told[name].file, "stands in another file too")
            tensors[name] = tensor
            dtype = NAMES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch."))
            told[name] = headers.Tensor(file.name, dtype, tuple(tensor.shape), tensor.nbytes)
    return told, tensors.__getitem__


def pickled(file: Path) -> dict[str, Tensor]:
    """{name: tensor} of one torch file, mapped into memory where its form allows it."""
    if not os.path.isfile(file):
        raise refuse(str(file), None, "the file is missing")
    mapped = zipfile.is_zipfile(file)
    try:
        if mapped:
            check_zip(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a pickle's age: it is read or refused
            held = torch.load(file, map_location="cpu", mmap=mapped, weights_only=True)
    except PlainformerError:
        raise
    except UnpicklingError as error:
        said = str(error)
        if "Unsupported" in said or "WeightsUnpickler" in said or "Weights only" in said:
            rule = "would run code of its own or is damaged: it was not opened"
            raise refuse(str(file), None, rule, "ask whoever made it for safetensors") from None
        raise refuse(str(file), None, "this file is damaged") from None
    except (OSError, RuntimeError, ValueError, KeyError, EOFError, IndexError, TypeError, AttributeError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise refuse(str(file), said[:120], "this file is damaged or no file of torch's") from None
    except (MemoryError, RecursionError, AssertionError, zipfile.BadZipFile) as error:
        raise refuse(str(file), type(error).__name__, "this file is damaged or no file of torch's") from None
    for name in ("state_dict", "model_state_dict", "model"):
        held = held[name] if isinstance(held, Mapping) and isinstance(held.get(name), Mapping) else held
    if not isinstance(held, Mapping):
        raise refuse(str(file), type(held).__name__, "holds no tensors by name")
    tensors = {name: tensor for name, tensor in held.items() if isinstance(name, str) and isinstance(tensor, Tensor)}
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
            raise refuse(f"{file}: {name}", str(tensor.layout), "is no plain tensor")
        spans = tensor.untyped_storage().nbytes()
        if tensor.nbytes > max(spans, 1):  # a few numbers that say they are many
            raise refuse(f"{file}: {name}", tuple(tensor.shape), f"has more numbers than its {spans:,} bytes hold")
    return tensors


def check_zip(file: Path) -> None:
    """Torch stores its tensors plainly. Refuses packed entries, which unpack to any size, and entries that together say
    to be larger than the file."""
    with zipfile.ZipFile(file) as opened:
        entries = opened.infolist()
    size = os.path.getsize(file)
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise refuse(f"{file}: {entry.filename}", entry.file_size, "is packed; torch's own files are not")
        if entry.filename.endswith("data.pkl") and entry.file_size > MOST_PICKLE:
            raise refuse(f"{file}: {entry.filename}", entry.file_size, f"is over {MOST_PICKLE:,} bytes")
    if (total := sum(entry.file_size for entry in entries)) > size:
        raise refuse(str(file), size, f"its entries say that they are {total:,} bytes")

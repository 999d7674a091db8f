"""Tensors that several processes hold in shares: written by torch's distributed checkpoint, each process its own file.

The files are safetensors, which torch's own format is not (its index is a pickle); where each share belongs stands in
their headers. They are read back in full or in shares of any other number of processes.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plainformer.checkpoint.atomic import FULL_WORDS, unwritable
from plainformer.faults import PlainformerError, refuse


def write_shards(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """This process's shares into a folder; asked by all processes at once. A full disk of one is a refusal of all."""
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    held = {name: tensor.detach() for name, tensor in tensors.items()}
    try:
        save(dict(held), storage_writer=HuggingFaceStorageWriter(str(folder), save_distributed=True))
    except CheckpointException as error:
        said = "; ".join(sorted({str(inner[0]) for inner in error.failures.values()}))
        if any(words in said for words in FULL_WORDS):
            raise unwritable(folder, OSError(said)) from None
        raise refuse(str(folder), said, "the processes could not write their shares") from None


def sizes_in(folder: Path) -> dict[str, tuple[torch.Size, torch.dtype]]:
    """Each tensor's whole size and its dtype, by name."""
    with read_alone(folder) as reader:
        found: dict[str, Any] = reader.read_metadata().state_dict_metadata
    return {name: (entry.size, entry.properties.dtype) for name, entry in found.items()}


def read_shards(folder: Path, into: Mapping[str, Tensor]) -> None:
    """Fill tensors, whole ones or shares, with what lies in a folder under their names and sizes."""
    from torch.distributed.checkpoint.state_dict_loader import load

    targets = {name: tensor.detach() for name, tensor in into.items()}
    with read_alone(folder) as reader:
        load(targets, storage_reader=reader, no_dist=True)


@contextmanager
def read_alone(folder: Path) -> Iterator[Any]:
    """torch's reader, for a process that asks no other; a damaged file is refused by its folder."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    logger = logging.getLogger("torch.distributed.checkpoint")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # it is not asked for
            yield HuggingFaceStorageReader(str(folder))
    except PlainformerError:
        raise
    except Exception as error:  # torch wraps what safetensors and the system say in classes of many kinds
        raise refuse(str(folder), str(error).strip().splitlines()[-1], "its files are damaged or absent") from None
    finally:
        logger.setLevel(level)

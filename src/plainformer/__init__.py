"""Transformers in plain sight: a model is data, and everything else is a reading of that data.

Names are loaded when they are first used: sizing needs neither torch nor numpy.
"""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING

# At once, unlike the rest: were the room `presets` loaded later, it would take the place of what is in it.
from plainformer.presets import presets

if TYPE_CHECKING:
    from plainformer import gradients, reference
    from plainformer.checkpoint import load
    from plainformer.conventions import CONVENTIONS, Convention, count
    from plainformer.cost import Cost
    from plainformer.faults import PlainformerError
    from plainformer.generation import generate
    from plainformer.ledger import Ledger
    from plainformer.model import Transformer, build
    from plainformer.rows import quicken
    from plainformer.spec import Spec
    from plainformer.tree import from_json, to_json

# A public name and the room that it comes from; a room that is its own name is public as a whole.
ROOMS = {
    "CONVENTIONS": "conventions",
    "Convention": "conventions",
    "Cost": "cost",
    "Ledger": "ledger",
    "PlainformerError": "faults",
    "Spec": "spec",
    "Transformer": "model",
    "build": "model",
    "count": "conventions",
    "from_json": "tree",
    "generate": "generation",
    "gradients": "gradients",
    "load": "checkpoint",
    "quicken": "rows",
    "reference": "reference",
    "to_json": "tree",
}

__all__ = [
    "CONVENTIONS",
    "Convention",
    "Cost",
    "Ledger",
    "PlainformerError",
    "Spec",
    "Transformer",
    "build",
    "count",
    "from_json",
    "generate",
    "gradients",
    "load",
    "presets",
    "quicken",
    "read_spec",
    "reference",
    "to_json",
]


def read_spec(path: str | PathLike[str]) -> Spec:
    """The spec of a published config.json, or of the one in a folder.

    Raises PlainformerError: nothing there, no JSON, or a config that no reader takes.
    """
    from plainformer.huggingface import read_file

    return read_file(str(path)).spec


def __getattr__(name: str) -> object:
    if name not in ROOMS:
        raise AttributeError(f"module 'plainformer' has no attribute {name!r}")
    room = import_module(f"plainformer.{ROOMS[name]}")
    value = room if ROOMS[name] == name else getattr(room, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

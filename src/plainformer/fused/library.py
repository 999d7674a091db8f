"""`fused.c` as a library of this machine, its functions with their arguments' kinds."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from plainformer import compiled


@lru_cache(maxsize=1)
def library() -> tuple[ctypes.CDLL | None, str]:
    """The compiled library, or None with the reason in one line."""
    loaded, reason = compiled.library("plainformer.fused", "fused.c")
    if loaded is None:
        return None, reason
    kind, place, number, real = ctypes.c_int, ctypes.c_void_p, ctypes.c_long, ctypes.c_float
    arguments = {
        "norm": [kind, kind, kind, *[place] * 6, number, number, real, kind],
        "norm_back": [kind, kind, kind, *[place] * 8, number, number, kind],
        "norm_pieces": [number, number],
        "turn": [kind, *[place] * 4, kind, *[number] * 11, kind],
        "gate": [kind, kind, *[place] * 3, *[number] * 4, kind],
        "gate_back": [kind, kind, *[place] * 5, *[number] * 4, kind],
        "weights": [kind, place, number, number, real, kind],
        "weights_back": [kind, place, place, number, number, real, kind],
        "keep_memory": [],
    }
    for name, kinds in arguments.items():
        function = getattr(loaded, name)
        function.argtypes, function.restype = kinds, number if name == "norm_pieces" else None
    return loaded, ""

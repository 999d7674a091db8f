"""`rows.c` as a library of this machine, its functions with their arguments' kinds."""

from __future__ import annotations

import ctypes
from functools import lru_cache

from plainformer import compiled


@lru_cache(maxsize=1)
def library() -> tuple[ctypes.CDLL | None, str]:
    """The compiled library, or None with the reason in one line."""
    loaded, reason = compiled.library("plainformer.rows", "rows.c")
    if loaded is not None:
        kind, place, number = ctypes.c_int, ctypes.c_void_p, ctypes.c_long
        loaded.rows.argtypes = [kind, kind, *[place] * 5, *[number] * 3, ctypes.c_int]
        loaded.attend.argtypes = [kind, *[place] * 5, *[number] * 10, ctypes.c_float, ctypes.c_int]
        loaded.stack.argtypes = [place, number, place, place, kind, *[number] * 4, place, place, number, number, kind]
        loaded.rows.restype = loaded.attend.restype = loaded.stack.restype = ctypes.c_int
    return loaded, reason

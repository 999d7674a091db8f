"""JSON files that others wrote: one object, read as it stands or refused."""

from __future__ import annotations

import sys
from typing import Any

from plainformer.faults import PlainformerError, refuse

MOST_BYTES = 32_000_000  # of one object
MOST_VALUES = 800_000  # each takes up to some 250 bytes as it is read, whatever it took in the file


class Twice(ValueError):
    """A key that an object holds twice: which of its values counts is anybody's guess."""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs. Refuses a key that is said twice with two values."""
    found = dict(pairs)
    if len(found) < len(pairs):
        for name, value in pairs:
            if value != found[name]:
                raise Twice(name)
    return found


def n_values(text: bytes) -> int:
    """About how many values a JSON text holds, before it is read: at most one begins at each of these signs, and one
    more; some may stand in strings."""
    return sum(map(text.count, (b",", b"[", b"{")))


def finite(value: object) -> bool:
    """Whether a value is a number that a float can hold: JSON has whole ones of thousands of digits, and infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def read_object(path: str, where: str) -> dict[str, Any]:
    """The JSON object in a file. Refuses a file that cannot be read, is not JSON, or holds something else.

    where: what the fault is to name: a flag, or the path itself.
    """
    import json

    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES or n_values(text) > MOST_VALUES:
            raise refuse(where, path, f"is over {MOST_BYTES:,} bytes or {MOST_VALUES:,} values: no config")
        data = json.loads(text.decode("utf-8-sig"), object_pairs_hook=once)
    except OSError as fault:
        raise refuse(where, path, "cannot be read", fault.strerror or str(fault)) from None
    except UnicodeDecodeError as fault:
        raise refuse(where, path, f"is not UTF-8 (byte {fault.start:,}), so no JSON") from None
    except RecursionError:
        raise refuse(where, path, "is nested too deep to be a config") from None
    except Twice as fault:
        raise refuse(
            where, path, f"says {str(fault)!r} twice, with two values", "leave the one that is meant"
        ) from None
    except PlainformerError:
        raise
    except ValueError as fault:  # what json raises for text that is not JSON
        raise refuse(where, path, f"is not JSON: {fault}") from None
    if not isinstance(data, dict):
        raise refuse(where, path, f"holds a JSON {type(data).__name__}, not an object")
    return data

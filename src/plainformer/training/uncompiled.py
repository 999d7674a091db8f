"""Keeping torch.compile's machinery out of runs that compile nothing: it takes as long to load as torch itself.

Some of torch's functions ask that machinery, at their first call, to be left alone by it, and load all of it to ask.
The answer is kept on the function within; where it is there already, nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def left_alone(function: Callable[..., Any]) -> None:
    """torch.compile leaves this function alone, and need not be asked. One that never asks stays as it is."""
    inner = getattr(function, "__wrapped__", None)
    if inner is not None:
        vars(inner).setdefault("__dynamo_disable", inner)

"""Hugging Face's files: config.json to a Spec and back. `read`, `read_file`, `write`; nothing is fetched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from plainformer.huggingface.configs import Reading, read, read_file

if TYPE_CHECKING:
    from plainformer.spec import Spec


def write(spec: Spec, *, dtype: str = "float32") -> dict[str, Any]:
    """The config.json of a stock class that holds exactly this spec: see `configs_writing.write`."""
    from plainformer.huggingface import configs_writing

    return configs_writing.write(spec, dtype=dtype)


__all__ = ["Reading", "read", "read_file", "write"]

"""The rows of metrics.jsonl for TensorBoard, as they come: RUN/tensorboard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plainformer.faults import refuse

FOLDER = "tensorboard"


class Board:
    """Writes each number of a row under its column's name. After a resume what lay beyond the step is not shown."""

    def __init__(self, run: Path, step: int) -> None:
        self.writer = writer_class()(str(run / FOLDER), purge_step=step + 1)

    def show(self, row: Mapping[str, Any]) -> None:
        for name, value in row.items():
            if name != "step" and isinstance(value, (int, float)):
                self.writer.add_scalar(name, value, row["step"])

    def close(self) -> None:
        self.writer.close()


def writer_class() -> Any:
    """torch's own writer; refused where the package that it needs is absent."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        hint = "pip install 'plainformer[tensorboard]'"
        raise refuse("--tensorboard", True, "needs the tensorboard package", hint) from None
    return SummaryWriter

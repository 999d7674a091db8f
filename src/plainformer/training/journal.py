"""What a run tells of itself: metrics.jsonl, a line for each step, and the picture of the loss."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from plainformer.checkpoint.atomic import unwritable
from plainformer.report.svg import line_chart
from plainformer.text.files import written_beside
from plainformer.training.board import Board

Row = dict[str, Any]
POINTS = 400


class Journal:
    """metrics.jsonl, open at its end. `step` counts the updates done; `loss` is that of the batch of the last one."""

    def __init__(self, run: Path, step: int, writing: bool = True, board: bool = False) -> None:
        """Cut back to `step`: the rows after it are made again. writing: False: another process keeps it.

        board: whether each row is also written for TensorBoard.
        """
        self.path = run / "metrics.jsonl"
        self.board = Board(run, step) if board and writing else None
        if not writing:
            self.path = Path(os.devnull)
            self.file = self.path.open("ab")
            return
        kept = b"".join(line(row) for row in rows(self.path) if row["step"] <= step)
        if not self.path.is_file() or kept != self.path.read_bytes():
            with written_beside(self.path) as file:
                file.write(kept)
        self.file = self.path.open("ab")

    def append(self, row: Mapping[str, Any]) -> None:
        try:
            self.write(line(row))
        except OSError as error:
            raise unwritable(self.path, error) from None
        if self.board is not None:
            self.board.show(row)

    def complete(self, row: Row, more: Mapping[str, Any]) -> None:
        """Write the newest row again with what it had not got."""
        kept = [one for one in rows(self.path) if one["step"] < row["step"]]
        self.file.close()
        with written_beside(self.path) as file:
            file.write(b"".join(map(line, [*kept, row | dict(more)])))
        self.file = self.path.open("ab")
        if self.board is not None:
            self.board.show({"step": row["step"], **more})

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.file.flush()

    def settle(self) -> None:
        """Wait until all rows are on the disk."""
        try:
            if self.path != Path(os.devnull):
                os.fsync(self.file.fileno())
        except OSError as error:
            raise unwritable(self.path, error) from None

    def close(self) -> None:
        self.file.close()
        if self.board is not None:
            self.board.close()


def line(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def rows(path: Path) -> Iterator[Row]:
    """The rows of a metrics.jsonl, up to the first that is not whole."""
    if not path.is_file():
        return
    for text in path.read_bytes().splitlines():
        try:
            row = json.loads(text)
        except ValueError:
            return
        yield row


def draw(run: Path) -> None:
    """loss.svg from metrics.jsonl: the batches' loss, smoothed where there are many, and the validation's."""
    found = [row for row in rows(run / "metrics.jsonl") if "loss" in row]
    width = max(1, len(found) // POINTS)
    groups = (found[i : i + width] for i in range(0, len(found), width))
    train = [(float(some[-1]["step"]), sum(row["loss"] for row in some) / len(some)) for some in groups]
    measured = [row for row in rows(run / "metrics.jsonl") if "val_loss" in row]
    series = {"training": train, "validation": [(float(row["step"]), row["val_loss"]) for row in measured]}
    with written_beside(run / "loss.svg") as file:
        file.write(line_chart({k: v for k, v in series.items() if v}, "loss", "step", "nats a token").encode())

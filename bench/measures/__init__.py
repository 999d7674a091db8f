"""What every measurement needs: the machine in words, spreads, a table to read, a file that the pages show."""

from __future__ import annotations

import datetime
import json
import os
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plainformer.measuring import machine as machine
from plainformer.measuring import spread as spread

ROOT = Path(__file__).resolve().parent.parent.parent
Row = dict[str, Any]


def load() -> float | None:
    """How many processes wanted a core in the last minute; None where the system does not say."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None


def processor_seconds() -> float:
    """Seconds of all cores together in the processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(rows: Sequence[Row]) -> str:
    """Rows under their columns, for a terminal."""
    columns = list(rows[0])
    widths = {c: max(len(c), *(len(str(row[c])) for row in rows)) for c in columns}
    lines = [columns, *([str(row[c]) for c in columns] for row in rows)]
    return "\n".join("  ".join(f"{cell:<{widths[c]}}" for c, cell in zip(columns, line, strict=True)) for line in lines)


def tell(
    name: str, command: str, rows: Sequence[Row], note: str, before: float | None, save: bool, **more: Any
) -> None:
    """Print the table; with `save`, keep it in docs/measured, where `make docs` finds it.

    before: the load when the measuring began, without its own.
    """
    print(table(rows))
    print(f"\n{machine()}; load before: {before}. {note}")
    if save:
        facts = {
            "command": command,
            "machine": machine(),
            "date": datetime.date.today().isoformat(),
            "load_before": before,
            "note": note,
            "columns": list(rows[0]),
            "rows": list(rows),
            **more,
        }
        to = ROOT / "docs" / "measured" / f"{name}.json"
        to.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"kept: docs/measured/{name}.json; `make docs` shows it")

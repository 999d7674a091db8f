"""Results that outlive the measuring: a line of JSON each, so that what was stopped goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

Key = tuple[object, ...]
SAID = 3  # parts of a key that are told; the rest is what all of a measuring have in common


class Kept:
    """Results by key in a file; None: in memory alone."""

    def __init__(self, file: Path | None) -> None:
        self.file, self.found, self.lock = file, dict[str, Any](), Lock()
        if file is not None and file.is_file():
            for line in file.read_text(encoding="utf-8").splitlines():
                try:
                    one = json.loads(line)
                except ValueError:  # cut where the measuring was stopped
                    continue
                self.found[json.dumps(one["key"])] = one["result"]

    def has(self, key: Key) -> bool:
        return json.dumps(key) in self.found

    def of(self, key: Key) -> Any:
        return self.found[json.dumps(key)]

    def put(self, key: Key, result: object) -> None:
        with self.lock:
            self.found[json.dumps(key)] = result
            if self.file is not None:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                before = self.file.read_bytes() if self.file.is_file() else b""
                cut = b"\n" if before and not before.endswith(b"\n") else b""
                with self.file.open("ab") as file:
                    file.write(cut + json.dumps({"key": key, "result": result}).encode() + b"\n")


def measure_all(keys: Sequence[Key], measure: Callable[[Key], object], kept: Kept, at_once: int = 1) -> None:
    """Measure what is not kept yet, in this order, some side by side; say what came out and the time that is left."""
    wanted, began = [key for key in keys if not kept.has(key)], time.monotonic()
    done: list[Key] = []

    def one(key: Key) -> None:
        result = measure(key)
        kept.put(key, result)
        done.append(key)
        left = (time.monotonic() - began) / len(done) * (len(wanted) - len(done))
        name = ", ".join(map(str, key[:SAID]))
        said = f"{len(done)} of {len(wanted)}, {int(left) // 60}:{int(left) % 60:02} left: {name}: {result}"
        print(said, file=sys.stderr, flush=True)

    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(one, wanted))  # the first fault ends all

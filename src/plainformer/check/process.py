"""Someone's code in a process of its own: limits on time and memory, no access to ours, a line for each trouble."""

from __future__ import annotations

import base64
import json
import linecache
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from plainformer.check.steps import Array

MEMORY = 4 << 30  # bytes of data that their code may hold
LOADING, CALLING = 60.0, 10.0  # seconds for importing their file, and for one call
CPU_SECONDS, LARGEST = 300, 1 << 28


@dataclass(frozen=True)
class Trouble:
    """Their code did not answer: what happened, and at which line of theirs."""

    kind: str  # "crash", "hang", "killed", "error"
    says: str
    file: str | None = None
    line: int | None = None
    text: str = ""
    loading: bool = False

    @property
    def place(self) -> str:
        return f"{Path(self.file).name}:{self.line}" if self.file and self.line else ""


@dataclass(frozen=True)
class Reply:
    """What came back: arrays in float64 or int64, with the dtypes that they had."""

    facts: dict[str, Any]
    out: Any = None
    dtypes: tuple[str, ...] = ()
    grads: list[Array] | None = None


def packed(value: Any) -> Any:
    """Arrays as bytes; what JSON says by itself as it is."""
    if isinstance(value, np.ndarray):
        code = {"f": "d", "i": "q", "u": "q", "b": "?"}[value.dtype.kind]
        raw = np.ascontiguousarray(value.astype({"d": "<f8", "q": "<i8", "?": "?"}[code])).tobytes()
        return {"bytes": base64.b64encode(raw).decode(), "shape": list(value.shape), "code": code}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return {"list": [packed(one) for one in value]}
    return value


def unpacked(value: Any, dtypes: list[str]) -> Any:
    """Arrays again; of trees a list; what is no number, its name in words."""
    if not isinstance(value, dict):
        return value
    if "bytes" in value:
        dtypes.append(value["dtype"])
        array = np.frombuffer(base64.b64decode(value["bytes"]), "<f8" if value["code"] == "d" else "<i8")
        return array.reshape(value["shape"])
    if "tree" in value:
        return [unpacked(one, dtypes) for one in value["tree"]]
    return f"{'an' if value['other'].startswith(('a', 'e', 'i', 'o')) else 'a'} {value['other']}"


class Theirs:
    """Their file, loaded in a child; started again if it dies. A context: at its end nothing is left behind."""

    def __init__(self, path: Path, memory: int = MEMORY, seconds: float = CALLING) -> None:
        self.path, self.memory, self.seconds = path.resolve(), memory, seconds
        self.child: subprocess.Popen[bytes] | None = None
        self.to: IO[bytes] | None = None
        self.come: int | None = None
        self.held = b""
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed when the context ends
        self.loaded = False

    def __enter__(self) -> Theirs:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.errors.close()

    def start(self) -> None:
        asks_read, asks_write = os.pipe()
        tells_read, tells_write = os.pipe()
        script = str(Path(__file__).with_name("child.py"))
        numbers = [str(fd) for fd in (asks_read, tells_write, self.errors.fileno())]
        words = [sys.executable, script, str(self.path), *numbers, str(self.memory), str(CPU_SECONDS)]
        quiet = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg"}
        self.child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(asks_read, tells_write, self.errors.fileno()),
            env={**os.environ, **quiet},
            start_new_session=True,
        )
        os.close(asks_read)
        os.close(tells_write)
        self.to, self.come, self.held, self.loaded = os.fdopen(asks_write, "wb"), tells_read, b"", False

    def open(self, path: Path) -> Reply | Trouble:
        """Load a file, in the child that is there if there is one; what it defines."""
        self.path, self.loaded = path.resolve(), False
        return self.ask(do="load", path=str(self.path))

    def end(self) -> None:
        """Kill the child and all that it started."""
        if self.child is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        if self.to is not None:
            with suppress(OSError):
                self.to.close()
        if self.come is not None:
            os.close(self.come)
        self.child = self.to = self.come = None

    def ask(self, seconds: float | None = None, **asked: Any) -> Reply | Trouble:
        """One question to the child; a Trouble where no answer came in time, or none can come."""
        if self.child is None:
            self.start()
        assert self.to is not None
        wait = (seconds or self.seconds) + (0 if self.loaded else LOADING)
        try:
            self.to.write(json.dumps(asked).encode() + b"\n")
            self.to.flush()
        except BrokenPipeError:
            return self.ended()
        line = self.line_within(wait)
        if not isinstance(line, bytes):
            return line
        try:
            told = json.loads(line)
        except ValueError:
            self.end()
            return Trouble("error", "something of theirs wrote into the pipe of the answers")
        if "fault" in told:
            fault = told["fault"]
            says = f"{fault['error']}: {fault['says']}" if fault["says"] else fault["error"]
            return Trouble("error", says, fault["file"], fault["line"], fault["text"], told["loading"])
        self.loaded = True
        dtypes: list[str] = []
        out = unpacked(told.pop("out", None), dtypes)
        sent = told.pop("grads", None)
        grads = None if sent is None else [unpacked(one, []) for one in sent]
        return Reply(told, out, tuple(dtypes), grads)

    def line_within(self, seconds: float) -> bytes | Trouble:
        assert self.come is not None
        until = time.monotonic() + seconds
        with selectors.DefaultSelector() as ready:
            ready.register(self.come, selectors.EVENT_READ)
            while b"\n" not in self.held:
                if not ready.select(max(0.0, until - time.monotonic())):
                    return self.hung(seconds)
                part = os.read(self.come, 1 << 20)
                if not part:
                    return self.ended()
                self.held += part
                if len(self.held) > LARGEST:
                    self.end()
                    return Trouble("error", "its answer is too large to be sent")
        line, _, self.held = self.held.partition(b"\n")
        return line

    def hung(self, seconds: float) -> Trouble:
        """Ask the child where it is, then kill it."""
        assert self.child is not None
        loading = not self.loaded
        if hasattr(signal, "SIGUSR1"):
            with suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGUSR1)
                time.sleep(0.5)
        place = self.place()
        self.end()
        return Trouble("hang", f"no answer in {seconds:.0f} s", *place, loading)

    def ended(self) -> Trouble:
        """The child is gone: by a signal, by exit(), by the system for its memory."""
        assert self.child is not None
        try:
            status = self.child.wait(timeout=2)
        except subprocess.TimeoutExpired:
            status = 0
        place, loading = self.place(), not self.loaded
        self.end()
        if status < 0:
            name = signal.Signals(-status).name
            more = {"SIGKILL": ": out of memory?", "SIGXCPU": ": too much time"}.get(name, "")
            return Trouble("crash", f"the process was ended by {name}{more}", *place, loading)
        return Trouble("crash", f"the process ended itself with status {status}", *place, loading)

    def place(self) -> tuple[str | None, int | None, str]:
        """The innermost line of theirs in what the fault handler wrote."""
        self.errors.seek(0)
        said = self.errors.read()
        self.errors.seek(0)
        self.errors.truncate()
        folder = str(self.path.parent)
        found = [(f, int(n)) for f, n in re.findall(r'File "([^"]+)", line (\d+)', said) if f.startswith(folder)]
        if not found:
            return None, None, ""
        file, line = found[0]
        return file, line, linecache.getline(file, line).strip()

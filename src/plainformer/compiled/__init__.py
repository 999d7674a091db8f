"""C sources of other rooms as libraries of this machine: compiled where that has not been done yet, kept in the user's
cache. `pool.h` shares work between threads, `numbers.h` says what a bfloat16 is."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from importlib.resources import files
from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")
WAY = ("-std=c11", "-D_GNU_SOURCE", "-O3", "-fopenmp-simd", "-ffp-contract=fast")  # a product and a sum may be one step
# This machine's instructions, the widest that it has, where the compiler knows how.
FLAGS = (("-march=native", "-mprefer-vector-width=512"), ("-march=native",), ("-mcpu=native",), ())
HEADERS = ("pool.h", "numbers.h")
SECONDS = 60.0


def machine() -> str:
    """What a compiled library depends on: instructions differ between processors of one kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    told = [line for line in lines if line.startswith(("flags", "Features", "model name"))]
    return "\n".join([platform.platform(), platform.machine(), *sorted(set(told))])


def cache() -> Path:
    """The folder for what is compiled here; only its owner may write there, since what lies there is run."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plainformer"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        raise PermissionError(f"{folder} may be written by others")
    return folder


def made(package: str, source: str, compiler: str, folder: Path) -> Path | None:
    """The library at its own name in `folder`, made if it is not there; None where the compiler fails."""
    sources = {source: files(package).joinpath(source).read_bytes()}
    sources |= {name: files(__name__).joinpath(name).read_bytes() for name in HEADERS}
    beside = sorted((one for one in files(package).iterdir() if one.name.endswith(".h")), key=lambda one: one.name)
    sources |= {one.name: one.read_bytes() for one in beside}
    asked = (*sources.values(), compiler.encode(), repr((WAY, FLAGS)).encode(), machine().encode())
    key = hashlib.sha256(b"\n".join(asked)).hexdigest()[:16]
    to = folder / f"{Path(source).stem}-{key}.so"
    if to.exists():
        return to
    with tempfile.TemporaryDirectory(dir=folder) as work:
        half = Path(work) / "half.so"
        for name, text in sources.items():
            Path(work, name).write_bytes(text)
        for flags in FLAGS:
            way = (*WAY, *flags, "-fPIC", "-shared", "-pthread")
            command = [compiler, *way, str(Path(work, source)), "-o", str(half), "-lm"]
            if subprocess.run(command, capture_output=True, timeout=SECONDS).returncode == 0:
                os.replace(half, to)  # whole or not at all, whoever else compiles it now
                return to
    return None


def library(package: str, source: str) -> tuple[ctypes.CDLL | None, str]:
    """The C file `source` of a package as a library, or None with the reason in one line."""
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if compiler is None or os.name != "posix":
        return None, "no C compiler is here"
    try:
        try:
            folder = cache()
        except (OSError, RuntimeError):
            folder = Path(tempfile.mkdtemp(prefix="plainformer-"))
        found = made(package, source, compiler, folder)
        return (None, f"{compiler} could not compile {source}") if found is None else (ctypes.CDLL(str(found)), "")
    except (OSError, subprocess.SubprocessError) as fault:
        return None, f"{source} could not be compiled ({type(fault).__name__})"

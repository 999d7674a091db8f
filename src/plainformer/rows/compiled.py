"""`rows.c` as a library of this machine: compiled where that has not been done yet, kept in the user's cache."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

COMPILERS = ("cc", "gcc", "clang")
FLAGS = (("-march=native",), ("-mcpu=native",), ())  # this machine's instructions, where the compiler knows how
SOURCES = ("rows.c", "pool.h")
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


def compiled(compiler: str, folder: Path) -> Path | None:
    """The library at its own name in `folder`, made if it is not there; None where the compiler fails."""
    sources = {name: files("plainformer.rows").joinpath(name).read_bytes() for name in SOURCES}
    key = hashlib.sha256(b"\n".join((*sources.values(), compiler.encode(), machine().encode()))).hexdigest()[:16]
    made = folder / f"rows-{key}.so"
    if made.exists():
        return made
    with tempfile.TemporaryDirectory(dir=folder) as work:
        half = Path(work) / "rows.so"
        for name, source in sources.items():
            Path(work, name).write_bytes(source)
        for flags in FLAGS:
            way = ("-std=c11", "-D_GNU_SOURCE", "-O3", "-fopenmp-simd", *flags, "-fPIC", "-shared", "-pthread")
            command = [compiler, *way, str(Path(work, SOURCES[0])), "-o", str(half), "-lm"]
            if subprocess.run(command, capture_output=True, timeout=SECONDS).returncode == 0:
                os.replace(half, made)  # whole or not at all, whoever else compiles it now
                return made
    return None


@lru_cache(maxsize=1)
def library() -> tuple[ctypes.CDLL | None, str]:
    """The compiled library, or None with the reason in one line."""
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if compiler is None or os.name != "posix":
        return None, "no C compiler is here"
    try:
        try:
            folder = cache()
        except (OSError, RuntimeError):
            folder = Path(tempfile.mkdtemp(prefix="plainformer-"))
        made = compiled(compiler, folder)
        if made is None:
            return None, f"{compiler} could not compile rows.c"
        loaded = ctypes.CDLL(str(made))
    except (OSError, subprocess.SubprocessError) as fault:
        return None, f"rows.c could not be compiled ({type(fault).__name__})"
    kind, place, number = ctypes.c_int, ctypes.c_void_p, ctypes.c_long
    loaded.rows.argtypes = [kind, kind, *[place] * 5, *[number] * 3, ctypes.c_int]
    loaded.attend.argtypes = [kind, *[place] * 5, *[number] * 10, ctypes.c_float, ctypes.c_int]
    loaded.rows.restype = loaded.attend.restype = ctypes.c_int
    return loaded, ""

"""Folders that are whole or not there: filled beside, put on disk, renamed into place."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from plainformer.faults import PlainformerError, refuse

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL_WORDS = ("No space left", "quota exceeded", "File too large")


def unwritable(path: Path, error: BaseException) -> PlainformerError:
    """What the system says of a place that cannot be written, as a refusal."""
    said = getattr(error, "strerror", None) or str(error)
    if getattr(error, "errno", None) in FULL or any(words in said for words in FULL_WORDS):
        return refuse(str(path), said, "the disk is full", "make room; nothing half-written was left")
    return refuse(str(path), said, "cannot be written here", "check the name and its rights")


def beside(path: Path) -> Path:
    """Where a folder is filled before it has its name: hidden, and never taken for a whole one."""
    return path.with_name(f".{path.name}.part")


def on_disk(path: Path) -> None:
    """Wait until a file's bytes, or a folder's names, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def settle(folder: Path) -> None:
    """Put everything in a folder on the disk, innermost first."""
    for path in sorted(folder.rglob("*"), reverse=True):
        on_disk(path)
    on_disk(folder)


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """A new folder to fill, at `path` only once everything in it is on the disk.

    `path` may be absent or an empty folder. On any error, a full disk and Ctrl-C nothing stays, not even the parents
    that had to be made. After a `kill -9` the hidden folder beside is left; the next one takes its place.
    Refused while another process fills the same one, and where nothing can take the place of what is there.
    """
    ours, path = False, Path(os.path.realpath(path))
    part, made = beside(path), [parent for parent in path.parents if not os.path.exists(parent)]
    try:
        if path.is_mount() or (path.exists() and Path.cwd().is_relative_to(path)):
            what = "a mount point" if path.is_mount() else "the current folder"
            rule = "a folder comes to its place whole, and cannot take the place of this one"
            raise refuse(str(path), what, rule, "name a new one in it")
        path.parent.mkdir(parents=True, exist_ok=True)
        if part.exists():
            with held(part):  # one that another process is filling is not what a killed one left
                remove(part)
        part.mkdir()
        ours = True
        with held(part):
            yield part
            settle(part)
            os.rename(part, path)
        on_disk(path.parent)
    except BaseException as error:
        if ours:
            shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):  # what went wrong first is what is told
            for parent in made:
                parent.rmdir()
        if isinstance(error, OSError):
            raise unwritable(path, error) from None
        raise


def remove(folder: Path) -> None:
    """Take a folder away: first its name, so that half of it is never found under that name."""
    if folder.exists():
        hidden = folder if folder.name.startswith(".") else folder.with_name(f".{folder.name}.old")
        if hidden != folder:
            shutil.rmtree(hidden, ignore_errors=True)
            os.rename(folder, hidden)
        shutil.rmtree(hidden)


def sweep(folder: Path, files: Collection[str] = ()) -> None:
    """Remove what killed processes left in a folder: the hidden ones of `beside` and `remove`, and of these files the
    half that lay beside each as NAME.part. What somebody put there under another name stays."""
    halves = {f"{name}.part" for name in files}
    for left in list(folder.iterdir()):
        if left.name in halves or (left.name.startswith(".") and left.suffix in (".part", ".old")):
            shutil.rmtree(left) if left.is_dir() else left.unlink()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other processes from working on a folder; the system lets go of it when this one ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system: two processes on one folder are then not noticed
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise refuse(str(folder), "in use", "another process is at work in it", "wait until it ends") from None
        yield
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hex, in bounded memory."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()

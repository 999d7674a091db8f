"""Files that are whole or not there: written beside, renamed into place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from plainformer.text.reading import unreadable


@contextmanager
def written_beside(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, at `path` only once everything is written and on disk.

    Until then it lies beside, as NAME.part, and is removed on any error and on Ctrl-C. After a `kill -9` the .part is
    left; it is never taken for the file, and the next write takes its place. A full disk is a refusal by file.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException as error:
        with suppress(OSError):  # what went wrong first is what is told
            part.unlink()
        if isinstance(error, OSError):
            raise unreadable(path, error) from None
        raise

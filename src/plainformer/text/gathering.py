"""What TEXT stands for on a command line: files, folders of them, patterns."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from plainformer.faults import refuse
from plainformer.text.reading import PACKED, PAIR, ROWS, Documents, Texts, is_rows, read_rows, unreadable

PLAIN = (".txt", ".text", ".md", ".rst", ".tex", ".csv", ".html", ".py")


def gathered(words: Sequence[str | Path], field: str | None = None, documents: Documents | None = None) -> Texts:
    """The files that the words name, in their order; those of a folder or a pattern by name.

    A folder stands for the files of text under it, hidden ones left out. What a run below it keeps is no text, nor is
    it for a pattern that reaches into the run from outside. documents: None: "pairs" where the first row
    of a .jsonl has a prompt and a completion and not the field, "ended" where there is a .jsonl, else "joined".
    """
    files: list[Path] = []
    for word in words:
        path = Path(word)
        if os.path.isdir(path):
            files += of_folder(path)
        elif not os.path.exists(path) and glob.has_magic(str(word)):
            named = (Path(name) for name in glob.glob(str(word), recursive=True) if os.path.isfile(name))
            outside = Path(*takewhile(lambda part: not glob.has_magic(part), path.parts))
            found = sorted(outside_runs(named, outside))
            if not found:
                raise refuse("TEXT", str(word), "no file has such a name")
            files += found
        else:
            files.append(path)
    rows = [file for file in files if is_rows(file)]
    if documents is None:
        documents = "joined" if not rows else "pairs" if has_pairs(rows[0], field) else "ended"
    if documents == "pairs" and len(rows) < len(files):
        other = next(file for file in files if not is_rows(file))
        raise refuse("TEXT", str(other), "cannot go with rows of prompts and completions", "train on one or the other")
    if field is not None and not rows:
        raise refuse("--field", field, "is of rows of a .jsonl, and there is none")
    return Texts(tuple(files), field or "text", documents)


def of_folder(folder: Path) -> list[Path]:
    """The files of text under a folder, by name."""

    def is_text(path: Path) -> bool:
        name = path.with_suffix("") if path.suffix in PACKED else path
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        return name.suffix in (*PLAIN, *ROWS) and not hidden and path.is_file()

    try:
        found = sorted(outside_runs((path for path in folder.rglob("*") if is_text(path)), folder))
    except OSError as error:
        raise unreadable(folder, error) from None
    if not found:
        known = " ".join((*PLAIN, *ROWS))
        raise refuse(
            "TEXT", str(folder), f"no text in this folder ({known}, and these as .gz or .zst)", "name the files"
        )
    return found


def outside_runs(files: Iterable[Path], folder: Path) -> list[Path]:
    """The files under a folder that no run below it keeps: its metrics.jsonl and sample.txt change while it trains."""
    found = list(files)
    below = {up for file in found for up in file.parents if folder in up.parents}
    runs = {up for up in below if (up / "run.json").is_file() and (up / "checkpoints").is_dir()}
    return [file for file in found if runs.isdisjoint(file.parents)]


def has_pairs(path: Path, field: str | None) -> bool:
    """Whether the first row is a prompt and a completion."""
    first = next((row for _, row in read_rows(path)), {})
    return set(PAIR) <= first.keys() and (field or "text") not in first

"""A text made into tokens once, to be trained on many times: in parts that a killed process does not lose.

    DIR/  tokenizer.json  tokens.bin  tokens.json     .parts/ while it is being made
          tokenizer_config.json where a publisher's tokenizer has a chat template, or names for its control tokens

Shapes: N tokens of a part.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plainformer.faults import refuse
from plainformer.text.encoding import UNIT_CHARACTERS, check_end, encoded, with_end
from plainformer.text.files import written_beside
from plainformer.text.reading import Notice, Texts, total_bytes, unreadable
from plainformer.text.tokenizers import Tokenizer
from plainformer.text.tokens import Progress, TokenFile, width_of, write_ids
from plainformer.text.vocabulary import train_tokenizer

TOKENS, TOKENIZER, FACTS, PARTS = "tokens.bin", "tokenizer.json", "tokens.json", ".parts"
UNITS_A_PART = 16  # units of encoding: about 16 million characters
_HEAD = struct.Struct("<QQ")  # tokens, bytes of text


def is_prepared(folder: str | Path) -> bool:
    """Whether a folder holds tokens that are whole."""
    return all((Path(folder) / name).is_file() for name in (TOKENS, TOKENIZER, FACTS))


def prepare(
    texts: Texts,
    out: Path,
    kind: str,
    notice: Notice,
    progress: Progress | None = None,
    workers: int | None = None,
    given: Tokenizer | None = None,
    lock: Callable[[Path], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> tuple[TokenFile, bool]:
    """Fill a folder with the tokens of the texts; (the file, whether anything was left to do).

    kind: of the tokenizer to be made, where none is `given`. Killed, it goes on after the last whole part, with the
    tokenizer that it had made: the text is read again up to there, and not encoded again. Refused: a folder that holds
    something else, or the parts of other files; documents that `given` cannot end. lock: keeps others from the folder
    meanwhile, also while the tokenizer is made.
    """
    if texts.documents == "pairs":
        raise refuse("TEXT", str(texts.files[0]), "rows of prompts are no one text", "train on them as they are")
    if given is not None:
        check_end(texts.documents, given)
    plan = plan_of(texts, kind if given is None else given.sha256)
    parts, new = out / PARTS, False
    if is_prepared(out):
        there(out, plan)
    elif out.exists() and not parts.is_dir() and any(out.iterdir()):
        raise refuse("--out", str(out), "is there and holds something else", "name a new folder")
    if parts.is_dir() or not is_prepared(out):  # the first also where a process was killed while it took them away
        with folder(out), lock(out):
            if new := not is_prepared(out):
                begin(parts, plan, lambda: given or tokenizer_for(texts, kind, notice))
                tokenizer = Tokenizer.load(parts / TOKENIZER)
                fill(parts, texts, tokenizer, notice, progress, workers)
                made = write_ids(ids_in(parts, tokenizer), tokenizer, out / TOKENS, texts)
                tokenizer.save(out / TOKENIZER)
                dump(out / FACTS, {"version": 1, "plan": plan, "tokens": made.n_tokens, "bytes": made.n_bytes})
            if parts.is_dir():
                shutil.rmtree(parts)
    return there(out, plan), new


@contextmanager
def folder(path: Path) -> Iterator[None]:
    """A folder that is made, and taken away again, its parents too, where nothing has come into it."""
    made = [one for one in (path, *path.parents) if not one.exists()]
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise unreadable(path, error) from None
        yield
    finally:
        with suppress(OSError):
            for one in made:
                one.rmdir()


def there(out: Path, plan: dict[str, Any]) -> TokenFile:
    """The tokens of a folder that is whole. Refused where they are of another text."""
    if facts_of(out)["plan"] != plan:
        raise refuse("--out", str(out), "holds the tokens of another text", "name a new folder")
    return TokenFile.open(out / TOKENS, Tokenizer.load(out / TOKENIZER))


def tokenizer_for(texts: Texts, kind: str, notice: Notice | None) -> Tokenizer:
    """A tokenizer made from the texts, with an end token where documents are to end."""
    made = train_tokenizer(kind, texts, notice)
    return made if texts.documents == "joined" else with_end(made)


def plan_of(texts: Texts, tokenizer: str) -> dict[str, Any]:
    """What the parts hang on: a change of any of it and they are of another text."""
    try:
        files = [{"file": str(f), "bytes": f.stat().st_size, "modified": f.stat().st_mtime_ns} for f in texts.files]
    except OSError as error:
        raise unreadable(Path(error.filename or ""), error) from None
    said = {"field": texts.field, "documents": texts.documents, "tokenizer": tokenizer}
    return {"files": files, **said, "units_a_part": UNITS_A_PART}


def begin(parts: Path, plan: dict[str, Any], make: Callable[[], Tokenizer]) -> None:
    """See that there are parts, with their tokenizer: those that were begun, or new ones."""
    begins = plan | {"characters_a_unit": UNIT_CHARACTERS}  # of the tokens themselves no such thing is asked
    if (parts / FACTS).is_file():
        if json.loads((parts / FACTS).read_text(encoding="utf-8")) != begins:
            rule = "holds the beginning of another text or of another version, or the files have changed since"
            raise refuse("--out", str(parts.parent), rule, "remove it, or name a new folder")
        return
    tokenizer = make()
    parts.mkdir(exist_ok=True)
    tokenizer.save(parts / TOKENIZER)
    dump(parts / FACTS, begins)  # last: with it, the tokenizer is there


def fill(
    parts: Path,
    texts: Texts,
    tokenizer: Tokenizer,
    notice: Notice,
    progress: Progress | None,
    workers: int | None,
) -> None:
    """Write the parts that are not there yet."""
    n_parts, n_bytes = 0, 0
    while (parts / name_of(n_parts)).is_file():
        n_bytes += head_of(parts / name_of(n_parts))[1]
        n_parts += 1
    if n_parts:
        notice(f"going on after {n_parts} parts, {n_bytes:,} bytes of text")
    total, width = total_bytes(texts), width_of(tokenizer)
    made = encoded(texts, tokenizer, notice, workers, skip=n_parts * UNITS_A_PART)
    while some := list(islice(made, UNITS_A_PART)):
        with written_beside(parts / name_of(n_parts)) as file:
            n_read = sum(read for _, read in some)
            file.write(_HEAD.pack(sum(ids_N.size for ids_N, _ in some), n_read))
            for ids_N, _ in some:
                file.write(ids_N.astype(f"<u{width}").data)
        n_parts, n_bytes = n_parts + 1, n_bytes + n_read
        if progress is not None:
            progress(n_bytes, max(total, n_bytes))


def ids_in(parts: Path, tokenizer: Tokenizer) -> Iterator[tuple[npt.NDArray[Any], int]]:
    """The ids of all parts, in their order."""
    width, n_part = width_of(tokenizer), 0
    while (file := parts / name_of(n_part)).is_file():
        n_tokens, n_bytes = head_of(file)
        if not n_tokens:
            yield np.zeros(0, f"<u{width}"), n_bytes
        else:
            yield np.memmap(file, f"<u{width}", "r", _HEAD.size, (n_tokens,)), n_bytes
        n_part += 1


def name_of(n_part: int) -> str:
    return f"{n_part:06}.ids"


def head_of(file: Path) -> tuple[int, int]:
    """(tokens, bytes of text) of a part."""
    with file.open("rb") as opened:
        n_tokens, n_bytes = _HEAD.unpack(opened.read(_HEAD.size))
    return int(n_tokens), int(n_bytes)


def facts_of(folder: Path) -> dict[str, Any]:
    """What is known of prepared tokens: the files and how they were read."""
    try:
        found: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        _ = found["plan"]["documents"], found["plan"]["field"]
        return found
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise refuse(str(folder / FACTS), str(error), "this file is damaged", "make the tokens again") from None


def dump(path: Path, data: object) -> None:
    with written_beside(path) as file:
        file.write(json.dumps(data, indent=1).encode() + b"\n")

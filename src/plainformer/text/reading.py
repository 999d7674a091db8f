"""Text files as a stream: in the order given, joined as they are, strictly UTF-8, in bounded memory.

What is kept: every character. Line ends are not rewritten (CR stays CR), and U+2028, U+2029 and U+0085 are characters
like any other. What is dropped: a byte-order mark at the very start of a file, with a notice; its 3 bytes are then not
part of the text. Files are joined with nothing between them. `.gz` and `.zst` are read as what is in them; of a
`.jsonl` the text is one field of each row, row after row.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Literal, cast

from plainformer.faults import PlainformerError, refuse

Documents = Literal["joined", "ended", "apart", "pairs"]


@dataclass(frozen=True)
class Texts:
    """Files, and how they are read.

    field: of a row of .jsonl, the one that is its text. documents: "joined" with nothing between; "ended", each by an
    end token; "apart", and no token is learned from the document before its own; "pairs", rows of a prompt and what is
    learned after it.
    """

    files: tuple[Path, ...]
    field: str = "text"
    documents: Documents = "joined"


Paths = str | Path | Sequence[str | Path] | Texts
Notice = Callable[[str], None]
ROWS = (".jsonl", ".ndjson")
PACKED = (".gz", ".zst")
PAIR = ("prompt", "completion")

BLOCK_BYTES = 1 << 20
PIECE_CHARACTERS = 1 << 14
LONGEST_PIECE_CHARACTERS = 1 << 20

# A letter or digit, then a space or line feed: no word of a byte-level BPE reaches over such a place, because its
# pattern lets white space start a word but never stand inside one, and looks back at nothing.
_BETWEEN_WORDS = re.compile(r"[^\W_][ \n]")


def as_paths(paths: Paths) -> tuple[Path, ...]:
    """One path or several, as a tuple. At least one is needed."""
    if isinstance(paths, Texts):
        return paths.files
    found = (Path(paths),) if isinstance(paths, (str, Path)) else tuple(Path(path) for path in paths)
    if not found:
        raise refuse("text", [], "at least one file is needed")
    return found


def unreadable(path: Path, error: OSError) -> PlainformerError:
    """What the system says of a file that cannot be read or written, as a refusal."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return refuse(str(path), error.strerror, "the disk is full", "make room; nothing half-written was left")
    if error.errno == errno.ENOENT:
        return refuse("file", str(path), "there is no such file or folder")
    return refuse(str(path), error.strerror or str(error), "this file cannot be used", "check its name and its rights")


def total_bytes(paths: Paths) -> int:
    """Bytes of the files together, byte-order marks included."""
    total = 0
    for path in as_paths(paths):
        try:
            total += path.stat().st_size
        except OSError as error:
            raise unreadable(path, error) from None
    return total


def read_bytes(paths: Paths) -> Iterator[bytes]:
    """The files' bytes in blocks of at most 1 MiB, unpacked, else nothing changed and nothing dropped."""
    for path in as_paths(paths):
        try:
            if path.suffix == ".zst":
                yield from unpacked(path)
                continue
            with cast(IO[bytes], gzip.open(path)) if path.suffix == ".gz" else path.open("rb") as file:
                while block := file.read(BLOCK_BYTES):
                    yield block
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise unpackable(path, error) from None
        except OSError as error:
            raise unreadable(path, error) from None


def unpackable(path: Path, error: object) -> PlainformerError:
    return refuse(str(path), str(error), "this file is damaged: it cannot be unpacked")


def unpacked(path: Path) -> Iterator[bytes]:
    """What is in a .zst, frame after frame. One that is cut short is refused, which the package's own reader passes."""
    try:
        zstandard: Any = import_module("zstandard")
    except ImportError:
        hint = "pip install 'plainformer[zstd]', or unpack it first"
        raise refuse(str(path), path.suffix, "needs the zstandard package", hint) from None
    frame = None
    with path.open("rb") as file:
        while packed := file.read(BLOCK_BYTES >> 4):
            while packed:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                try:
                    block = frame.decompress(packed)
                except zstandard.ZstdError as error:
                    raise unpackable(path, error) from None
                for start in range(0, len(block), BLOCK_BYTES):
                    yield block[start : start + BLOCK_BYTES]
                packed, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise unpackable(path, "it ends inside a frame")


def is_rows(path: Path) -> bool:
    """Whether a file is rows of JSON, packed or not."""
    name = path.with_suffix("") if path.suffix in PACKED else path
    return name.suffix in ROWS


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a .jsonl, each with its line, from 1; empty lines are passed over."""
    for n_line, line in enumerate(lines_of(path), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise refuse(f"{path}: line {n_line}", str(error), "is not one object of JSON in UTF-8") from None
        if not isinstance(row, dict):
            raise refuse(f"{path}: line {n_line}", row, "is not an object of JSON")
        yield n_line, row


def lines_of(path: Path) -> Iterator[bytes]:
    rest = b""
    for block in read_bytes(path):
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
    if rest:
        yield rest


def field_of(path: Path, n_line: int, row: dict[str, Any], name: str) -> str:
    """The text in a row's field; refused by file and line where there is none, or half of a surrogate pair in it."""
    text = row.get(name)
    if not isinstance(text, str):
        known = ", ".join(sorted(map(str, row))) or "none"
        raise refuse(
            f"{path}: line {n_line}: {name}", text, "must be a text", f"its fields: {known}; --field says which"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:  # JSON can say half of a surrogate pair, UTF-8 cannot
        half = text[error.start]
        rule = f"character {error.start} (U+{ord(half):04X}) has no UTF-8 form"
        raise refuse(f"{path}: line {n_line}: {name}", half, rule, "take out what is not text") from None
    return text


def read_documents(path: Path, field: str) -> Iterator[str]:
    """The text of each row of a .jsonl: its field, or its prompt and completion where it has those."""
    for n_line, row in read_rows(path):
        if field in row or not set(PAIR) <= row.keys():
            yield field_of(path, n_line, row, field)
        else:
            yield "".join(field_of(path, n_line, row, name) for name in PAIR)


def read_text(paths: Paths, notice: Notice | None = None) -> Iterator[str]:
    """The files' characters in blocks of about 1 MiB.

    Bytes that are not UTF-8 are refused by file and byte offset (counted from 0). `notice` is told of each byte-order
    mark that is dropped.
    """
    for path in as_paths(paths):
        if is_rows(path):
            yield from read_documents(path, paths.field if isinstance(paths, Texts) else "text")
            continue
        pending, offset = b"", 0  # `pending` starts at byte `offset` of the file
        for block in read_bytes(path):
            data = pending + block
            if offset == 0 and data.startswith(codecs.BOM_UTF8):
                data, offset = data[3:], 3
                if notice is not None:
                    notice(f"{path}: dropped the byte-order mark (3 bytes) at its start")
            text, used = _decode(path, data, offset, final=False)
            pending, offset = data[used:], offset + used
            if text:
                yield text
        _decode(path, pending, offset, final=True)  # anything left is half a character: refused


def _decode(path: Path, data: bytes, offset: int, final: bool) -> tuple[str, int]:
    try:
        return codecs.utf_8_decode(data, "strict", final)
    except UnicodeDecodeError as error:
        at = offset + error.start
        raise refuse(
            str(path),
            data[error.start : error.start + 1],
            f"not UTF-8: bad byte at offset {at}",
            "re-save the file as UTF-8, or use --tokenizer bytes, which keeps every byte as it is",
        ) from None


def word_pieces(
    texts: Iterable[str], size: int = PIECE_CHARACTERS, longest: int = LONGEST_PIECE_CHARACTERS
) -> Iterator[str]:
    """The joined texts cut again, only where a byte-level BPE would start a new word anyway.

    Each piece ends at the first such place at or after `size` characters. Where there is none up to `longest`
    characters (no letter or digit before a space or line feed), it is cut there, between two characters. The cuts
    depend on the characters alone, not on how `texts` was divided.
    """
    rest = ""
    for text in texts:
        rest += text
        start = 0
        while len(rest) - start > size:
            found = _BETWEEN_WORDS.search(rest, start + size - 1, start + longest + 1)
            if found is None and len(rest) - start <= longest:
                break  # the place may be in what is still to come
            cut = start + longest if found is None else found.start() + 1
            yield rest[start:cut]
            start = cut
        rest = rest[start:]
    if rest:
        yield rest

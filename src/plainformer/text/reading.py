"""Text files as a stream: in the order given, joined as they are, strictly UTF-8, in bounded memory.

What is kept: every character. Line ends are not rewritten (CR stays CR), and U+2028, U+2029 and U+0085 are characters
like any other. What is dropped: a byte-order mark at the very start of a file, with a notice; its 3 bytes are then not
part of the text. Files are joined with nothing between them.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from plainformer.faults import PlainformerError, refuse

Paths = str | Path | Sequence[str | Path]
Notice = Callable[[str], None]

BLOCK_BYTES = 1 << 20
PIECE_CHARACTERS = 1 << 14
LONGEST_PIECE_CHARACTERS = 1 << 20

# A letter or digit, then a space or line feed: no word of a byte-level BPE reaches over such a place, because its
# pattern lets white space start a word but never stand inside one, and looks back at nothing.
_BETWEEN_WORDS = re.compile(r"[^\W_][ \n]")


def as_paths(paths: Paths) -> tuple[Path, ...]:
    """One path or several, as a tuple. At least one is needed."""
    found = (Path(paths),) if isinstance(paths, (str, Path)) else tuple(Path(path) for path in paths)
    if not found:
        raise refuse("text", [], "at least one file is needed")
    return found


def unreadable(path: Path, error: OSError) -> PlainformerError:
    """What the system says of a file that cannot be read or written, as a refusal."""
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
    """The files' bytes in blocks of at most 1 MiB, nothing changed and nothing dropped."""
    for path in as_paths(paths):
        try:
            with path.open("rb") as file:
                while block := file.read(BLOCK_BYTES):
                    yield block
        except OSError as error:
            raise unreadable(path, error) from None


def read_text(paths: Paths, notice: Notice | None = None) -> Iterator[str]:
    """The files' characters in blocks of about 1 MiB.

    Bytes that are not UTF-8 are refused by file and byte offset (counted from 0). `notice` is told of each byte-order
    mark that is dropped.
    """
    for path in as_paths(paths):
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

"""Text of any size -> a file of token ids, opened as a memory map.

The file: 64 bytes of header (little-endian), then the ids in 1, 2 or 4 bytes each, the fewest that hold the vocabulary.

| bytes | what |
|---|---|
| 0-7 | `PFTOKENS` |
| 8-11 | version, 1 |
| 12-15 | bytes an id |
| 16-23 | number of tokens |
| 24-31 | bytes of text they stand for |
| 32-63 | SHA-256 of the tokenizer.json |

Shapes: N tokens of a text; V vocabulary.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plainformer.faults import refuse
from plainformer.text.encoding import encoded
from plainformer.text.files import written_beside
from plainformer.text.reading import Notice, Paths, total_bytes, unreadable
from plainformer.text.tokenizers import Ids, Tokenizer
from plainformer.text.vocabulary import no_text

_MAGIC = b"PFTOKENS"
_VERSION = 1
_HEADER = struct.Struct("<8sIIQQ32s")
_TOKENS_AT_ONCE = 1 << 20

Progress = Callable[[int, int], None]  # bytes of text done, bytes of all files


@dataclass(frozen=True)
class TokenFile:
    """A text as token ids on disk.

    n_bytes: bytes of text that the ids stand for (the files' bytes, less 3 for each byte-order mark dropped).
    dtype: uint8, uint16 or uint32.
    """

    path: Path
    n_tokens: int
    n_bytes: int
    dtype: np.dtype[Any]
    tokenizer_sha256: str

    @staticmethod
    def open(path: str | Path, tokenizer: Tokenizer | None = None) -> TokenFile:
        """Read the header and hold it against the file's size. With a tokenizer: also that it made these ids."""
        path = Path(path)
        try:
            with path.open("rb") as file:
                header = file.read(_HEADER.size)
            size = path.stat().st_size
        except OSError as error:
            raise unreadable(path, error) from None
        if header[:8] != _MAGIC:
            raise refuse(str(path), header[:8], f"no token file: it must begin with {_MAGIC.decode()}")
        if len(header) < _HEADER.size:
            raise refuse(str(path), f"{size} bytes", "cut short inside its header", "make it again from the text")
        _, version, width, n_tokens, n_bytes, sha256 = _HEADER.unpack(header)
        if version != _VERSION or width not in (1, 2, 4):
            raise refuse(str(path), f"version {version}, {width} bytes an id", f"only version {_VERSION} can be read")
        if size != _HEADER.size + n_tokens * width:
            rule = f"{_HEADER.size + n_tokens * width:,} bytes by its header ({n_tokens:,} tokens)"
            raise refuse(str(path), f"{size:,} bytes", rule, "make it again from the text")
        if tokenizer is not None and sha256.hex() != tokenizer.sha256:
            raise refuse(str(path), sha256.hex()[:12], f"made by another tokenizer than {tokenizer.sha256[:12]}")
        return TokenFile(path, n_tokens, n_bytes, np.dtype(f"<u{width}"), sha256.hex())

    @property
    def tokens(self) -> npt.NDArray[Any]:
        """tokens_N, a read-only memory map: only what is looked at is read."""
        return np.memmap(self.path, self.dtype, mode="r", offset=_HEADER.size, shape=(self.n_tokens,))

    def slice(self, part: range) -> npt.NDArray[Any]:
        """The tokens of one part of the text, as `split` gives it. Also a memory map."""
        return self.tokens[part.start : part.stop]


def write_tokens(
    paths: Paths,
    tokenizer: Tokenizer,
    out: str | Path,
    progress: Progress | None = None,
    notice: Notice | None = None,
    workers: int | None = None,
) -> TokenFile:
    """Encode the text of `paths` into the file `out`, as a stream: a few MB of memory for a text of any size.

    Until it is whole nothing stands at `out`; on a full disk, Ctrl-C or text that cannot be encoded nothing stays.
    The bytes kind reads the files as they are and keeps every byte, a byte-order mark too; the other kinds read UTF-8.
    workers: as in `encoding.encoded`.
    """
    n_bytes, total = 0, total_bytes(paths)

    def ids() -> Iterator[tuple[Ids, int]]:
        nonlocal n_bytes
        for ids_N, read in encoded(paths, tokenizer, notice, workers):
            yield ids_N, read
            n_bytes += read
            if progress is not None:
                progress(n_bytes, total)

    return write_ids(ids(), tokenizer, out, paths)


def width_of(tokenizer: Tokenizer) -> int:
    """Bytes an id: the fewest that hold the vocabulary."""
    return 1 if tokenizer.n_tokens <= 1 << 8 else 2 if tokenizer.n_tokens <= 1 << 16 else 4


def write_ids(
    made: Iterable[tuple[npt.NDArray[Any], int]], tokenizer: Tokenizer, out: str | Path, paths: Paths
) -> TokenFile:
    """A token file of ids as they come, each lot with the bytes of text it stands for. Refuses a text without any."""
    width, out = width_of(tokenizer), Path(out)
    n_tokens = n_bytes = 0
    with written_beside(out) as file:
        file.write(bytes(_HEADER.size))
        for ids_N, read in made:
            file.write(ids_N.astype(f"<u{width}").data)
            n_tokens, n_bytes = n_tokens + ids_N.size, n_bytes + read
        if not n_tokens:
            raise no_text(paths)
        file.seek(0)
        sha256 = bytes.fromhex(tokenizer.sha256)
        file.write(_HEADER.pack(_MAGIC, _VERSION, width, n_tokens, n_bytes, sha256))
    return TokenFile.open(out, tokenizer)


def split(n_tokens: int, share: float = 0.1) -> tuple[range, range]:
    """Which tokens train and which validate: the last `share` of them validate, the rest train.

    The train part is n_tokens x (1 - share), rounded down, in exact decimals: 1,115,394 tokens give
    1,003,854 and 111,540.
    A share of 0 leaves nothing to validate on.
    """
    if not 0 <= share < 1:
        raise refuse("validation share", share, "must be at least 0 and below 1")
    n_train = int(n_tokens * (1 - Fraction(str(share))))
    return range(n_train), range(n_train, n_tokens)


def text_bytes(tokens: npt.NDArray[Any], length_V: npt.NDArray[np.int64]) -> int:
    """How many bytes of text the tokens stand for, `length_V` from `token_bytes`. Exact, in bounded memory."""
    blocks = range(0, len(tokens), _TOKENS_AT_ONCE)
    return sum(int(length_V[tokens[start : start + _TOKENS_AT_ONCE]].sum()) for start in blocks)

"""Characters, bytes and byte-level BPE: text to token ids and back, every byte of it.

All three are kept in one kind of file, `tokenizer.json` as the tokenizers library and transformers read it:

| kind | in the file | ids |
|---|---|---|
| characters | BPE without merges over the characters; decoder Fuse | code points in rising order |
| bytes | BPE without merges over 256 bytes; ByteLevel in and out, text in one piece | id = byte value |
| bpe | BPE; ByteLevel in and out, text cut into words | ours: the bytes, then the merges in the order made |

No text is ever taken for a control token: a marker such as <|endoftext|> in a text is encoded as its letters.

Shapes: T tokens; U code points up to the vocabulary's largest, and one beyond; V vocabulary.
"""

from __future__ import annotations

import codecs
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from plainformer.faults import PlainformerError, refuse
from plainformer.text.files import written_beside
from plainformer.text.reading import unreadable, word_pieces

if TYPE_CHECKING:
    import tokenizers as library

Kind = Literal["characters", "bytes", "bpe"]
Ids = npt.NDArray[np.int32]

_BLOCK_CHARACTERS = 1 << 18
PIECES_AT_ONCE = 16  # the library takes some 150 bytes a token while it works


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Text to ids and back. Made by `train_tokenizer` or `Tokenizer.load`, never changed afterwards.

    kind: "characters", "bytes" or "bpe".
    pieces: the bytes that each id stands for; b"" for a control token, None where an id is not in use.
    control: control tokens by name, such as {"<|endoftext|>": 256}. `encode` never gives one, `decode` leaves them out.
    file: the text of its tokenizer.json.
    """

    kind: Kind
    pieces: tuple[bytes | None, ...] = field(repr=False)
    control: Mapping[str, int]
    file: str = field(repr=False)

    @property
    def n_tokens(self) -> int:
        """Size of the vocabulary, control tokens included: one more than the largest id."""
        return len(self.pieces)

    @property
    def sha256(self) -> str:
        """The SHA-256 of tokenizer.json, in hex: two tokenizers with the same one are the same."""
        return hashlib.sha256(self.file.encode()).hexdigest()

    @cached_property
    def start_id(self) -> int:
        """What an empty prompt starts from: the newline if the vocabulary has one, else the space, else token 0."""
        return next((self.pieces.index(start) for start in (b"\n", b" ") if start in self.pieces), 0)

    def encode(self, text: str, where: str = "text", offset: int = 0) -> Ids:
        """The ids_T of `text`, int32.

        Refused, by the name `where`: a character that the vocabulary does not hold ("characters" kind), with its place
        counted in characters from `offset`, and half of a surrogate pair, which UTF-8 cannot say (the other kinds).
        """
        if self.kind == "characters":
            return self._encode_characters(text, where, offset)
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            raise refuse(
                where,
                text[error.start],
                f"character {offset + error.start} (U+{ord(text[error.start]):04X}) has no UTF-8 form",
                "take out what is not text",
            ) from None
        if self.kind == "bytes":
            return np.frombuffer(raw, np.uint8).astype(np.int32)
        return self.encode_pieces(word_pieces([text]))

    def encode_pieces(self, pieces: Iterable[str]) -> Ids:
        """The ids_T of the pieces' text, each piece encoded by itself."""
        if self.kind != "bpe":
            return self.encode("".join(pieces))
        left, encoded = iter(pieces), [np.zeros(0, np.int32)]
        while some := list(islice(left, PIECES_AT_ONCE)):
            found = self._library.encode_batch_fast(some, add_special_tokens=False)
            encoded += [np.array(encoding.ids, np.int32) for encoding in found]
        return np.concatenate(encoded)

    def decode_bytes(self, ids: Iterable[int] | npt.ArrayLike) -> bytes:
        """The bytes that the ids stand for, joined. An id that is no token is refused by its value."""
        return b"".join(map(self._piece, np.atleast_1d(np.asarray(ids, dtype=np.int64)).tolist()))

    def decode(self, ids: Iterable[int] | npt.ArrayLike) -> str:
        """The text that the ids stand for.

        Bytes that are no UTF-8 become U+FFFD: that happens where the ids end inside a character, or where a model wrote
        bytes that make none. `decode_bytes` has them as they are.
        """
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def stream(self) -> Decoder:
        """A decoder that takes one id at a time. Its pieces, joined, are what `decode` gives for all the ids."""
        return Decoder(self)

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json, beside and then renamed into place."""
        with written_beside(Path(path)) as file:
            file.write(self.file.encode())

    @staticmethod
    def load(path: str | Path) -> Tokenizer:
        """Read a tokenizer.json: one of ours, or any byte-level BPE as GPT-2's, Llama 3's and Qwen's are.

        `path` is the file, or a folder that holds one. Any other tokenizer is refused by what it is.
        """
        path = Path(path)
        path = path / "tokenizer.json" if path.is_dir() else path
        try:
            text = path.read_bytes().decode()
            return from_file_text(text, str(path))
        except OSError as error:
            raise unreadable(path, error) from None
        except PlainformerError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise refuse(str(path), str(error), "this is no tokenizer.json", "is the file whole?") from None

    def _piece(self, token: int) -> bytes:
        piece = self.pieces[token] if 0 <= token < len(self.pieces) else None
        if piece is None:
            raise refuse("token id", token, f"not in this vocabulary: ids go from 0 to {self.n_tokens - 1}")
        return piece

    @cached_property
    def _id_of_point_U(self) -> Ids:
        points = {ord(piece.decode()): token for token, piece in enumerate(self.pieces) if piece}
        id_of_point_U = np.full(max(points, default=0) + 2, -1, np.int32)  # -1: unknown; the last is for all beyond
        id_of_point_U[list(points)] = list(points.values())
        return id_of_point_U

    def _encode_characters(self, text: str, where: str, offset: int) -> Ids:
        ids_T = np.empty(len(text), np.int32)
        for start in range(0, len(text), _BLOCK_CHARACTERS):
            block = text[start : start + _BLOCK_CHARACTERS]
            points = np.frombuffer(block.encode("utf-32-le", "surrogatepass"), np.uint32)
            self._id_of_point_U.take(points, mode="clip", out=ids_T[start : start + len(block)])
        if len(text) and ids_T.min() < 0:
            unknown = np.flatnonzero(ids_T < 0)
            first = text[int(unknown[0])]
            others = f", nor are {unknown.size - 1:,} more characters of it" if unknown.size > 1 else ""
            raise refuse(
                where,
                first,
                f"U+{ord(first):04X} at character {offset + int(unknown[0])} is not in the vocabulary of "
                f"{self.n_tokens} characters{others}",
                "take it out, or train on text that has it or with --tokenizer bytes",
            )
        return ids_T

    @cached_property
    def _library(self) -> library.Tokenizer:
        """The library's tokenizer, without control tokens: no text can become one."""
        content = json.loads(self.file)
        content["added_tokens"] = [token for token in content.get("added_tokens") or [] if not token["special"]]
        content["model"]["vocab"] = {
            name: token for name, token in content["model"]["vocab"].items() if name not in self.control
        }
        content["post_processor"] = content["truncation"] = content["padding"] = None
        made: library.Tokenizer = import_library().Tokenizer.from_str(json.dumps(content))
        return made


class Decoder:
    """Ids in, one at a time; whole characters out. Half a character is held back until the rest of it comes."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that `token` completes: none, one or several."""
        return self._characters.decode(self._tokenizer.decode_bytes([token]))

    def end(self) -> str:
        """What is left: nothing, or one U+FFFD where the ids ended inside a character."""
        return self._characters.decode(b"", final=True)


def token_bytes(tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """length_V: how many bytes of UTF-8 text each id stands for; 0 for control tokens."""
    return np.array([len(piece or b"") for piece in tokenizer.pieces], np.int64)


def import_library() -> Any:
    """The tokenizers package, which only BPE needs."""
    try:
        import tokenizers
    except ImportError:
        raise refuse(
            "tokenizer", "bpe", "needs the tokenizers package", "pip install 'plainformer[torch]', or use characters"
        ) from None
    return tokenizers


def byte_names() -> tuple[str, ...]:
    """The character that stands for each byte value in a byte-level vocabulary.

    GPT-2's table: printable Latin-1 bytes stand for themselves, the rest for U+0100, U+0101, ... in rising order.
    Source: Radford et al. 2019, their encoder's byte table.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


def file_text(kind: Kind, names: Iterable[str], merges: Iterable[tuple[str, str]] = ()) -> str:
    """The text of a tokenizer.json: `names` in the order of their ids, as the file spells them."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": kind == "bpe"}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {name: token for token, name in enumerate(names)},
        "merges": [list(pair) for pair in merges],
    }
    content: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None if kind == "characters" else byte_level,
        "post_processor": None,
        "decoder": {"type": "Fuse"} if kind == "characters" else byte_level,
        "model": model,
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def from_file_text(text: str, where: str) -> Tokenizer:
    """The tokenizer that a tokenizer.json holds; `where` names it in a refusal."""
    content = json.loads(text)
    model, added = content["model"], content.get("added_tokens") or []
    decoder = (content.get("decoder") or {}).get("type")
    cutter = content.get("pre_tokenizer")
    byte_level = decoder == "ByteLevel" and '"ByteLevel"' in json.dumps(cutter)
    characters = decoder == "Fuse" and not cutter and not model.get("merges")
    if model.get("type", "BPE") != "BPE" or not (byte_level or characters):
        raise refuse(
            where,
            f"{model.get('type')}, decoder {decoder}",
            "not one of the tokenizers that can be read here: characters, bytes and byte-level BPE",
        )
    control = {token["content"]: token["id"] for token in added if token["special"]}
    byte_of = {name: byte for byte, name in enumerate(byte_names())}
    piece_of: dict[int, bytes] = {}
    for name, token in model["vocab"].items():
        if name not in control:
            piece_of[token] = bytes(byte_of[letter] for letter in name) if byte_level else name.encode()
    plain = len(piece_of)
    piece_of |= {token["id"]: b"" if token["special"] else token["content"].encode() for token in added}
    pieces = tuple(piece_of.get(token) for token in range(max(piece_of, default=-1) + 1))

    kind: Kind = "characters"
    if byte_level:
        every_byte = [bytes([byte]) for byte in range(256)]
        if missing := set(every_byte) - set(pieces):
            raise refuse(where, f"{256 - len(missing)} bytes", "a byte-level vocabulary needs all 256 byte values")
        whole = cutter.get("use_regex") is False and not model.get("merges")  # a BPE, merges or none, cuts words
        kind = "bytes" if whole and plain == 256 and list(pieces[:256]) == every_byte else "bpe"
    elif any(len(piece.decode()) != 1 for piece in piece_of.values() if piece):
        raise refuse(where, "a longer token", "a character vocabulary without merges holds single characters")
    return Tokenizer(kind, pieces, MappingProxyType(control), text)

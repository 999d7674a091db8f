"""Characters, bytes, byte-level BPE and what others publish: text to token ids and back.

All are kept in one kind of file, `tokenizer.json` as the tokenizers library and transformers read it:

| kind | in the file | ids |
|---|---|---|
| characters | BPE without merges over the characters; decoder Fuse | code points in rising order |
| bytes | BPE without merges over 256 bytes; ByteLevel in and out, text in one piece | id = byte value |
| bpe | BPE; ByteLevel in and out, text cut into words | ours: the bytes, then the merges in the order made |
| published | SentencePiece's pieces, WordPiece and others, as `published` reads them | theirs |

The first three give every byte of a text back. Published ones give what their decoder makes of it.

No text is ever taken for a control token: a marker such as <|endoftext|> in a text is encoded as its letters.

Shapes: T tokens; U code points up to the vocabulary's largest, and one beyond; V vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from plainformer.faults import PlainformerError, refuse
from plainformer.huggingface.gguf_header import read_gguf
from plainformer.text import beside, published
from plainformer.text.files import written_beside
from plainformer.text.library import library_s, of_the_library
from plainformer.text.one_file import named
from plainformer.text.reading import word_pieces

if TYPE_CHECKING:
    import tokenizers as library

    from plainformer.text.streaming import Decoder

Kind = Literal["characters", "bytes", "bpe", "published"]
Ids = npt.NDArray[np.int32]

_BLOCK_CHARACTERS = 1 << 18
MOST_IDS = 1 << 22  # larger ones are no vocabulary's, and each has a place in `pieces`
PIECES_AT_ONCE = 16  # the library takes some 150 bytes a token while it works
LETTER = "a"  # stands before what goes on inside a text, where a publisher puts a space before every text


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """Text to ids and back. Made by `train_tokenizer` or `Tokenizer.load`, never changed afterwards.

    kind: "characters", "bytes", "bpe" or "published".
    pieces: the bytes that each id stands for; b"" for a control token, None where an id is not in use. Of a published
        kind: about the bytes, for its decoder sees all ids together.
    control: control tokens by name, such as {"<|endoftext|>": 256}. `encode` never gives one, `decode` leaves them out.
    file: the text of its tokenizer.json.
    named: what a published folder calls its control tokens, such as {"bos_token": "<s>"}.
    chat_template: how a published folder writes a chat; see `chat`.
    """

    kind: Kind
    pieces: tuple[bytes | None, ...] = field(repr=False)
    control: Mapping[str, int]
    file: str = field(repr=False)
    named: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    chat_template: str | None = field(default=None, repr=False)

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

    def encode(self, text: str, where: str = "text", offset: int = 0, begins: bool = True) -> Ids:
        """The ids_T of `text`, int32. begins: whether a text begins here; else it goes on, as in `encode_pieces`.

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
        if self.kind == "published":
            return self._encode_words([text], begins)[0]
        if self._missing and (found := self._missing & set(raw)):
            first = next(i for i, letter in enumerate(text) if set(letter.encode()) & found)
            rule = f"character {offset + first} (U+{ord(text[first]):04X}) has bytes that this vocabulary lacks"
            raise refuse(where, text[first], rule, f"it holds {256 - len(self._missing)} of the 256 byte values")
        return self.encode_pieces(word_pieces([text]), begins)

    @cached_property
    def around(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The control tokens that the publisher puts before and after a text, as `frame` does: of BERT [CLS] and [SEP],
        of Llama <s> and nothing."""
        content = json.loads(self.file)
        if not content.get("post_processor"):
            return (), ()
        probe = self._whole.encode("a", add_special_tokens=True)
        inner = [i for i, special in enumerate(probe.special_tokens_mask) if not special]
        first, last = (inner[0], inner[-1] + 1) if inner else (len(probe.ids), len(probe.ids))
        return tuple(probe.ids[:first]), tuple(probe.ids[last:])

    def frame(self, ids: Iterable[int] | npt.ArrayLike) -> Ids:
        """The ids_T of a text between the control tokens that the publisher puts around it."""
        before, after = self.around
        return np.array([*before, *np.asarray(ids).tolist(), *after], np.int32)

    def chat(self, messages: Sequence[Mapping[str, Any]], *, answer: bool = True, **told: object) -> Ids:
        """The ids_T of a chat, written by the publisher's template: see `chats.chat`."""
        from plainformer.text.chats import chat

        return chat(self, messages, answer=answer, **told)

    def encode_pieces(self, pieces: Iterable[str], begins: bool = True) -> Ids:
        """The ids_T of the pieces' text, cut between words. begins: whether a text begins with the first piece: some
        publishers put a space before a text, and none belongs before a piece that goes on."""
        if self.kind in ("characters", "bytes"):
            return self.encode("".join(pieces))
        left, encoded = iter(pieces), [np.zeros(0, np.int32)]
        while some := list(islice(left, PIECES_AT_ONCE)):
            encoded += self._encode_words(some if self.kind == "bpe" else ["".join(some)], begins)
            begins = False
        return np.concatenate(encoded)

    def decode_bytes(self, ids: Iterable[int] | npt.ArrayLike) -> bytes:
        """The bytes that the ids stand for, joined. An id that is no token is refused by its value."""
        if self.kind == "published":
            return self.decode(ids).encode()
        return b"".join(map(self._piece, np.atleast_1d(np.asarray(ids, dtype=np.int64)).tolist()))

    def decode(self, ids: Iterable[int] | npt.ArrayLike) -> str:
        """The text that the ids stand for.

        Bytes that are no UTF-8 become U+FFFD: that happens where the ids end inside a character, or where a model wrote
        bytes that make none. `decode_bytes` has them as they are.
        """
        if self.kind == "published":
            found = np.atleast_1d(np.asarray(ids, dtype=np.int64)).tolist()
            spoken = [token for token in found if self._piece(token)]
            text: str = self._whole.decode(spoken, skip_special_tokens=False)
            return text
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def stream(self) -> Decoder:
        """A decoder that takes one id at a time. Its pieces, joined, are what `decode` gives for all the ids."""
        from plainformer.text.streaming import Decoder

        return Decoder(self)

    def save(self, path: str | Path) -> None:
        """Write it, beside and then renamed into place; with a tokenizer.json what a published folder said besides."""
        with written_beside(Path(path)) as file:
            file.write(self.file.encode())
        beside.keep(Path(path), self.named, self.chat_template)

    @staticmethod
    def load(path: str | Path) -> Tokenizer:
        """Read a tokenizer as it is published; see `published` for its files.

        `path` is one of the files, or a folder that holds some. What it is not is said in a refusal.
        """
        path = Path(path)
        folder = path if os.path.isdir(path) else path.parent
        try:
            text, where = published.content_of(path)
            made = from_file_text(text, where)
            template, names = beside.chat_template(folder), beside.named_tokens(folder)
            if where.endswith(".gguf"):
                keys = read_gguf(where).keys
                template, names = keys.get("tokenizer.chat_template"), named(keys)
            return replace(made, named=MappingProxyType(names), chat_template=template)
        except PlainformerError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise refuse(str(path), str(error)[:200], "this is no tokenizer.json", "is the file whole?") from None

    def is_byte(self, token: int) -> bool:
        """Whether a published kind's id is one byte, written as <0x0A>."""
        name = self._whole.id_to_token(token) or ""
        return len(name) == 6 and name.startswith("<0x")

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

    def _encode_words(self, texts: Sequence[str], begins: bool) -> list[Ids]:
        """The ids_T of each text. Those that go on are encoded after a letter, whose ids are then taken away: a space
        put before them would not be theirs. One that merges with the letter stands alone."""
        before, first = self._before, int(begins) if self._before else len(texts)
        found = self._ids_of([*texts[:first], *(LETTER + text for text in texts[first:])])
        for i, ids in enumerate(found[first:], start=first):
            alone = ids[: len(before)].tolist() != before
            found[i] = self._ids_of(texts[i : i + 1])[0] if alone else ids[len(before) :]
        return found

    def _ids_of(self, texts: Sequence[str]) -> list[Ids]:
        with of_the_library("tokenizer.json"):
            if self.kind == "bpe":
                found = self._library.encode_batch_fast(list(texts), add_special_tokens=False)
            else:
                found = [self._library.encode(text, add_special_tokens=False) for text in texts]
        return [np.array(encoding.ids, np.int32) for encoding in found]

    @cached_property
    def _before(self) -> list[int]:
        """The ids of the letter that stands before what goes on; none where no space is put before a text."""
        spaced = '"add_prefix_space": true' in json.dumps(json.loads(self.file).get("pre_tokenizer"))
        return self._ids_of([LETTER])[0].tolist() if spaced or self.kind == "published" else []

    @cached_property
    def _missing(self) -> set[int]:
        """The byte values that a byte-level vocabulary lacks."""
        return {byte for byte in range(256) if bytes([byte]) not in self._spoken} if self.kind == "bpe" else set()

    @cached_property
    def _spoken(self) -> set[bytes | None]:
        return set(self.pieces)

    @cached_property
    def _whole(self) -> library.Tokenizer:
        """The library's tokenizer as published."""
        return library_s(self.file)

    @cached_property
    def _library(self) -> library.Tokenizer:
        """The library's tokenizer, without control tokens: no text can become one."""
        content = json.loads(self.file)
        content["added_tokens"] = [token for token in content.get("added_tokens") or [] if not token["special"]]
        model = content["model"]
        hidden = self.control.keys() - {model.get("unk_token")}
        if isinstance(model["vocab"], dict):
            model["vocab"] = {name: token for name, token in model["vocab"].items() if name not in hidden}
        else:  # unigrams are numbered by where they stand: one that nobody can write takes the place
            pieces = enumerate(model["vocab"])
            model["vocab"] = [[f"\ue000{i}\ue000" if text in hidden else text, score] for i, (text, score) in pieces]
        content["post_processor"] = content["truncation"] = content["padding"] = None
        return library_s(json.dumps(content))


def token_bytes(tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """length_V: how many bytes of UTF-8 text each id stands for; 0 for control tokens."""
    return np.array([len(piece or b"") for piece in tokenizer.pieces], np.int64)


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
    if not isinstance(model.get("vocab"), (dict, list)):
        raise refuse(where, model.get("type"), "holds no vocabulary")
    decoder = (content.get("decoder") or {}).get("type")
    cutter = content.get("pre_tokenizer")
    byte_level = decoder == "ByteLevel" and '"ByteLevel"' in json.dumps(cutter)
    characters = decoder == "Fuse" and not cutter and not model.get("merges")
    control = {token["content"]: token["id"] for token in added if token["special"]}
    if model.get("type", "BPE") != "BPE" or not (byte_level or characters):
        return published_kind(text, where, model, added, control)
    byte_of = {name: byte for byte, name in enumerate(byte_names())}
    piece_of: dict[int, bytes] = {}
    for name, token in model["vocab"].items():
        if name not in control:
            piece_of[token] = bytes(byte_of[letter] for letter in name) if byte_level else name.encode()
    plain = len(piece_of)
    piece_of |= {token["id"]: b"" if token["special"] else token["content"].encode() for token in added}
    pieces = in_order(piece_of, where)

    kind: Kind = "characters"
    if byte_level:
        every_byte = [bytes([byte]) for byte in range(256)]
        whole = cutter.get("use_regex") is False and not model.get("merges")  # a BPE, merges or none, cuts words
        kind = "bytes" if whole and plain == 256 and list(pieces[:256]) == every_byte else "bpe"
    elif any(len(piece.decode()) != 1 for piece in piece_of.values() if piece):
        raise refuse(where, "a longer token", "a character vocabulary without merges holds single characters")
    return Tokenizer(kind, pieces, MappingProxyType(control), text)


def in_order(piece_of: Mapping[Any, bytes], where: str) -> tuple[bytes | None, ...]:
    """The pieces by their ids, None where there is none. Refuses ids that are none."""
    if wrong := [token for token in piece_of if type(token) is not int or not 0 <= token < MOST_IDS]:
        raise refuse(where, wrong[0], f"an id must be a whole number from 0 to {MOST_IDS - 1:,}")
    return tuple(piece_of.get(token) for token in range(max(piece_of, default=-1) + 1))


def published_kind(
    text: str, where: str, model: Mapping[str, Any], added: list[dict[str, Any]], control: dict[str, int]
) -> Tokenizer:
    """What the library reads and is none of ours. Refused where the library refuses it."""
    library_s(text, where, model.get("type"))
    vocab = model["vocab"]
    numbered = vocab.items() if isinstance(vocab, dict) else ((piece, i) for i, (piece, _) in enumerate(vocab))
    words = model.get("type") == "WordPiece"
    piece_of = {token: b"" if name in control else spelled(name, words) for name, token in numbered}
    piece_of |= {token["id"]: b"" if token["special"] else token["content"].encode() for token in added}
    pieces = in_order(piece_of, where)
    return Tokenizer("published", pieces, MappingProxyType(control), text)


def spelled(name: str, words: bool) -> bytes:
    """About the bytes of a piece: a space is written as U+2581, a byte as <0x0A>, the inside of a word after ##."""
    if words:
        return (name[2:] if name.startswith("##") else f" {name}").encode()
    if len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        return bytes.fromhex(name[3:5])
    return name.replace("\u2581", " ").encode() or b" "

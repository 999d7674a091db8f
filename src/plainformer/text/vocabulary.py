"""Tokenizers made from text.

Byte-level BPE is trained by the tokenizers library, after GPT-2's pattern for words, and numbered by us. The same text
gives the same file, byte for byte, whatever the threads: the library counts words (sums, which have no order), then
merges the pair of neighbours that occurs most often. **The tie rule:** of pairs that occur equally often, the one with
the lowest left token comes first, then the one with the lowest right token, where printable bytes (33 to 126, 161 to
172, 174 to 255) come before all other bytes, bytes in rising order within each group, and merged tokens last, in the
order they were made.

A pair is merged only if it occurs twice or more, so a short text can end with fewer tokens than asked for.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator

import numpy as np

from plainformer.faults import PlainformerError, refuse
from plainformer.text.library import import_library
from plainformer.text.reading import Notice, Paths, as_paths, read_text, word_pieces
from plainformer.text.tokenizers import Tokenizer, byte_names, file_text, from_file_text

_N_CODE_POINTS = 0x110000


MOST = 1_000_000  # tokens of a vocabulary


def train_tokenizer(kind: str, files: Paths, notice: Notice | None = None) -> Tokenizer:
    """A tokenizer for the text of `files`, read as a stream.

    kind: "characters" (the text's own, in rising order), "bytes" (always the same 256; the files are not read) or
    "bpe:N" (N tokens at most: 256 bytes and up to N - 256 merges).
    """
    n_tokens = check_kind(kind)
    if kind == "bytes":
        return from_file_text(file_text("bytes", byte_names()), "bytes")
    if kind == "characters":
        return _characters(files, notice)
    return _bpe(n_tokens, files, notice)


def check_kind(kind: str) -> int:
    """The N of "bpe:N", 256 for "bytes", 0 for "characters"; anything else is refused with the nearest right form."""
    if kind in ("characters", "bytes"):
        return 256 if kind == "bytes" else 0
    name, _, count = kind.partition(":")
    if name != "bpe":
        near = difflib.get_close_matches(name.lower(), ["characters", "chars", "bytes", "bpe"], n=1, cutoff=0.5)
        meant = {"chars": "characters", "bpe": "bpe:1024"}.get(near[0], near[0]) if near else ""
        raise refuse("tokenizer", kind, "must be characters, bytes or bpe:N", f"did you mean {meant}?" if meant else "")
    if not (count.isascii() and count.isdigit()):
        raise refuse("tokenizer", kind, "bpe needs the size of its vocabulary", "write it as bpe:1024")
    if len(count) > len(str(MOST)) or int(count) > MOST:  # the library takes room for N at once, and aborts
        raise refuse("tokenizer", kind, f"N must be at most {MOST:,}", "published vocabularies hold up to 262,144")
    if int(count) < 257:
        raise refuse("tokenizer", kind, "N must be at least 257: 256 bytes and one merge", "or use bytes")
    return int(count)


def _characters(files: Paths, notice: Notice | None) -> Tokenizer:
    seen = np.zeros(_N_CODE_POINTS, bool)
    for text in read_text(files, notice):
        seen[np.frombuffer(text.encode("utf-32-le"), np.uint32)] = True
    points = np.flatnonzero(seen).tolist()
    if not points:
        raise no_text(files)
    return from_file_text(file_text("characters", map(chr, points)), "characters")


def _bpe(n_tokens: int, files: Paths, notice: Notice | None) -> Tokenizer:
    library = import_library()
    learner = library.Tokenizer(library.models.BPE())
    learner.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = library.trainers.BpeTrainer(
        vocab_size=n_tokens,
        min_frequency=2,
        initial_alphabet=list(byte_names()),
        special_tokens=[],  # none: user text never makes a control token
        show_progress=False,
    )
    n_characters = 0

    def pieces() -> Iterator[str]:
        nonlocal n_characters
        for piece in word_pieces(read_text(files, notice)):
            n_characters += len(piece)
            yield piece

    learner.train_from_iterator(pieces(), trainer)
    if not n_characters:
        raise no_text(files)
    merges = [(left, right) for left, right in json.loads(learner.to_str())["model"]["merges"]]
    names = dict.fromkeys([*byte_names(), *(left + right for left, right in merges)])
    if notice is not None and len(names) < n_tokens:
        notice(f"bpe:{n_tokens}: {len(names)} tokens are enough, no other pair occurs twice")
    return from_file_text(file_text("bpe", names, merges), "bpe")


def no_text(files: Paths) -> PlainformerError:
    """The refusal of text that is not there."""
    return refuse("text", [str(path) for path in as_paths(files)], "empty: there is no text in it")

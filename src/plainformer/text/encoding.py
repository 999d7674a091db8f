"""Text -> token ids, a unit at a time, by as many processes as are wanted: the same ids in the same order as by one.

Shapes: N tokens of a unit.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.text.reading import (
    Documents,
    Notice,
    Paths,
    Texts,
    as_paths,
    is_rows,
    read_bytes,
    read_documents,
    read_text,
    total_bytes,
    word_pieces,
)
from plainformer.text.tokenizers import Ids, Tokenizer, from_file_text

END = "<|endoftext|>"
ENDS = (END, "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "</s>")  # what others call it
UNIT_CHARACTERS = 1 << 20
MANY_BYTES = 1 << 26  # below them the start of other processes costs more than it saves
MOST_WORKERS = 8


@dataclass(frozen=True)
class Piece:
    """Some text, and whether a document begins and ends with it.

    where, offset: for a refusal, the file and how many of its characters came before.
    """

    text: str | bytes
    begins: bool = True
    ends: bool = False
    where: str = "text"
    offset: int = 0


Unit = tuple[Piece, ...]  # encoded together


@dataclass(frozen=True)
class Refused:
    """A worker's faults, as a value."""

    faults: tuple[Fault, ...]


def with_end(tokenizer: Tokenizer) -> Tokenizer:
    """The same with an end token after its own; no text is ever taken for it. One that has such a token stays."""
    if end_id(tokenizer) is not None:
        return tokenizer
    content = json.loads(tokenizer.file)
    taken = content["added_tokens"] = list(content.get("added_tokens") or [])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    taken.append({"id": tokenizer.n_tokens, "content": END, **flags})
    return from_file_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", "tokenizer")


def end_id(tokenizer: Tokenizer) -> int | None:
    """The token that ends a document; None where the vocabulary has none."""
    return next((tokenizer.control[name] for name in ENDS if name in tokenizer.control), None)


def check_end(documents: Documents, tokenizer: Tokenizer, hint: str = "use --documents joined") -> None:
    """Refuses documents that are to end where the vocabulary has nothing to end them with."""
    if documents in ("ended", "apart") and end_id(tokenizer) is None:
        raise refuse("--documents", documents, "its tokenizer has no token that ends a document", hint)


# --- units ------------------------------------------------------------------------------------------------------------


def units(paths: Paths, tokenizer: Tokenizer, notice: Notice | None = None) -> Iterator[Unit]:
    """The texts in the order of their files, cut so that each unit can be encoded by itself: as many pieces as make
    about a million characters, whatever files they are of."""
    texts = paths if isinstance(paths, Texts) else Texts(as_paths(paths))
    pieces_of = joined if texts.documents == "joined" else documents
    some, size = list[Piece](), 0
    for piece in pieces_of(texts, tokenizer, notice):
        if some and size + len(piece.text) > UNIT_CHARACTERS:
            yield tuple(some)
            some, size = [], 0
        some.append(piece)
        size += len(piece.text)
    if some:
        yield tuple(some)


def joined(texts: Texts, tokenizer: Tokenizer, notice: Notice | None) -> Iterator[Piece]:
    """All files as one text: cut between words, or as they are read where any place will do."""
    if is_words(tokenizer):
        for n, text in enumerate(word_pieces(read_text(texts, notice))):
            yield Piece(text, begins=n == 0)
        return
    for path in texts.files:
        offset = 0
        for block in blocks_of(path, texts, tokenizer, notice):
            yield Piece(block, where=str(path), offset=offset)
            offset += len(block)


def is_words(tokenizer: Tokenizer) -> bool:
    """Whether a token may be longer than a character, so that a text is cut between words alone."""
    return tokenizer.kind not in ("characters", "bytes")


def blocks_of(path: Path, texts: Texts, tokenizer: Tokenizer, notice: Notice | None) -> Iterator[str | bytes]:
    """A file's text; as it is, byte by byte, where the tokenizer takes bytes and the file is no rows of JSON."""
    if tokenizer.kind == "bytes" and not is_rows(path):
        yield from read_bytes(path)
    else:
        yield from read_text(Texts((path,), texts.field), notice)


def documents(texts: Texts, tokenizer: Tokenizer, notice: Notice | None) -> Iterator[Piece]:
    """Each document in pieces; none without text."""
    for path in texts.files:
        if is_rows(path):
            found: Iterable[Iterable[str | bytes]] = ([text] for text in read_documents(path, texts.field) if text)
        else:
            found = [blocks_of(path, texts, tokenizer, notice)]
        for blocks in found:
            pieces = word_pieces(b for b in blocks if isinstance(b, str)) if is_words(tokenizer) else iter(blocks)
            last: Piece | None = None
            for text in pieces:
                if last is not None:
                    yield last
                offset = 0 if last is None else last.offset + len(last.text)
                last = Piece(text, last is None, False, str(path), offset)
            if last is not None:
                yield replace(last, ends=True)


# --- ids --------------------------------------------------------------------------------------------------------------


def encode_unit(tokenizer: Tokenizer, unit: Unit) -> tuple[Ids, int]:
    """(ids_N, bytes of text that they stand for)."""
    n_bytes = sum(len(p.text) if isinstance(p.text, bytes) else len(p.text.encode()) for p in unit)
    if is_words(tokenizer) and not any(piece.ends for piece in unit):
        words = (piece.text for piece in unit if isinstance(piece.text, str))
        return tokenizer.encode_pieces(words, unit[0].begins), n_bytes
    end, made = end_id(tokenizer), list[Ids]()
    for piece in unit:
        if isinstance(piece.text, bytes):
            made.append(np.frombuffer(piece.text, np.uint8).astype(np.int32))
        else:
            made.append(tokenizer.encode(piece.text, piece.where, piece.offset, piece.begins))
        if piece.ends and end is not None:
            made.append(np.array([end], np.int32))
    return (made[0] if len(made) == 1 else np.concatenate(made)), n_bytes


def encoded(
    paths: Paths, tokenizer: Tokenizer, notice: Notice | None = None, workers: int | None = None, skip: int = 0
) -> Iterator[tuple[Ids, int]]:
    """The text's ids, a unit at a time, each with how many bytes of text it stands for.

    workers: processes that encode; None: as many as there are cores, for a text that is worth it. At most two units a
    worker are in memory. skip: how many units are read and not encoded: they are there already.
    """
    n_workers = workers_for(paths) if workers is None else workers
    wanted = islice(units(paths, tokenizer, notice), skip, None)
    if n_workers <= 1:
        yield from (encode_unit(tokenizer, unit) for unit in wanted)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n_workers, context, initializer=take_tokenizer, initargs=(tokenizer.file,)) as pool:
        waiting: deque[Future[tuple[Ids, int] | Refused]] = deque()
        try:
            for unit in wanted:
                waiting.append(pool.submit(encode_here, unit))
                if len(waiting) >= 2 * n_workers:
                    yield told(waiting.popleft())
            while waiting:
                yield told(waiting.popleft())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def workers_for(paths: Paths) -> int:
    """1 for a text that one process has encoded before others have started."""
    return 1 if total_bytes(paths) < MANY_BYTES else min(MOST_WORKERS, os.cpu_count() or 1)


def told(future: Future[tuple[Ids, int] | Refused]) -> tuple[Ids, int]:
    """What a worker made; its refusal is raised here."""
    try:
        made = future.result()
    except BrokenProcessPool:
        raise refuse(
            "tokenize", "a worker", "ended before its text was encoded", "memory may be short: --workers 1"
        ) from None
    if isinstance(made, Refused):
        raise PlainformerError(made.faults)
    return made


_mine: list[Tokenizer] = []  # of a worker: made once


def take_tokenizer(text: str) -> None:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the workers are the threads
    _mine[:] = [from_file_text(text, "tokenizer")]


def encode_here(unit: Unit) -> tuple[Ids, int] | Refused:
    """A worker's work. Faults come back as values: an exception would lose them on its way."""
    try:
        return encode_unit(_mine[0], unit)
    except PlainformerError as refused:
        return Refused(refused.faults)

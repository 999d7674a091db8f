"""Prompts and completions -> batches in which only the completions are learned.

A row holds one pair: its prompt, its completion, an end token where the vocabulary has one. Nothing of another pair is
before it.

Shapes: B batch, T positions, M rows at once, P pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plainformer.faults import refuse
from plainformer.text.batches import Block, Order, made_up
from plainformer.text.encoding import end_id
from plainformer.text.files import written_beside
from plainformer.text.reading import PAIR, Texts, field_of, read_rows
from plainformer.text.tokenizers import Tokenizer
from plainformer.text.tokens import TokenFile, write_ids

FIELDS = 3  # where a pair begins among the tokens, where its completion does, where it ends


@dataclass(frozen=True)
class Pairs:
    """Pairs as they lie in a token file. places_P3: begin, completion, end of each, among the tokens."""

    tokens: npt.NDArray[Any]
    places_P3: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.places_P3)

    def part(self, part: range) -> Pairs:
        return Pairs(self.tokens, self.places_P3[part.start : part.stop])

    def rows(self, numbers: Sequence[int], seq_len: int) -> tuple[Block, Block]:
        """(x_MT, y_MT) of some pairs."""
        x_MT, y_MT = np.zeros((2, len(numbers), seq_len), np.int64)
        for i, number in enumerate(numbers):
            x_MT[i], y_MT[i] = self.row(number, seq_len)
        return x_MT, y_MT

    def row(self, number: int, seq_len: int) -> tuple[Block, Block]:
        """(x_T, y_T) of one pair, filled up to seq_len: -1 wherever there is nothing to learn.

        A pair that is longer loses the beginning of its prompt, and then the end of its completion.
        """
        begin, completion, end = self.places_P3[number].tolist()
        begin = max(begin, min(end - seq_len - 1, completion - 1))
        ids = np.asarray(self.tokens[begin : min(end, begin + seq_len + 1)]).astype(np.int64)
        x_T, y_T = np.zeros(seq_len, np.int64), np.full(seq_len, -1, np.int64)
        x_T[: len(ids) - 1] = ids[:-1]
        first = max(0, completion - begin - 1)  # what follows the last token of the prompt
        y_T[first : len(ids) - 1] = ids[1 + first :]
        return x_T, y_T


class PairBatches:
    """Batches of pairs, a pure function of (seed, step), as `Batches` of windows are."""

    def __init__(self, pairs: Pairs, seq_len: int, batch_size: int, seed: int) -> None:
        self.pairs, self.seq_len = pairs, seq_len
        self.order = Order(len(pairs), batch_size, seed)

    def at(self, step: int, rows: range | None = None, n_more: int = 0) -> tuple[Block, Block]:
        """(x_BT, y_BT) of one step. rows: those that are wanted; n_more: rows without a real target after them."""
        numbers = [number for _, number in self.order.at(step)]
        wanted = numbers if rows is None else numbers[rows.start : rows.stop]
        x_MT, y_MT = self.pairs.rows(wanted, self.seq_len)
        return made_up(x_MT, y_MT, n_more)


def pair_passes(pairs: Pairs, seq_len: int, at_once: int) -> Iterator[tuple[Block, Block, int]]:
    """All pairs once, some rows at a time, as an evaluation takes them."""
    for begin in range(0, len(pairs), at_once):
        yield *pairs.rows(range(begin, min(begin + at_once, len(pairs))), seq_len), 0


def write_pairs(texts: Texts, tokenizer: Tokenizer, tokens: Path, places: Path) -> TokenFile:
    """The pairs' tokens one after another, and the file of their places. An empty prompt or completion is refused."""
    end, found, n_tokens = end_id(tokenizer), list[tuple[int, int, int]](), 0

    def ids() -> Iterator[tuple[npt.NDArray[Any], int]]:
        nonlocal n_tokens
        for path in texts.files:
            for n_line, row in read_rows(path):
                said = [field_of(path, n_line, row, name) for name in PAIR]
                prompt, completion = (tokenizer.encode(text, f"{path}: line {n_line}") for text in said)
                if not len(prompt) or not len(completion):
                    name = PAIR[0] if not len(prompt) else PAIR[1]
                    raise refuse(f"{path}: line {n_line}: {name}", "", "must not be empty")
                made = np.concatenate([prompt, completion, *([] if end is None else [np.array([end], np.int32)])])
                found.append((n_tokens, n_tokens + len(prompt), n_tokens + len(made)))
                n_tokens += len(made)
                yield made, sum(len(text.encode()) for text in said)

    made = write_ids(ids(), tokenizer, tokens, texts)
    with written_beside(places) as file:
        file.write(np.array(found, "<i8").tobytes())
    return made


def open_pairs(tokens: npt.NDArray[Any], places: Path) -> Pairs:
    """Pairs by their two files; refused where they do not belong together."""
    try:
        found = np.fromfile(places, "<i8")
    except OSError as error:
        raise refuse(str(places), error.strerror, "this file cannot be read", "a run keeps it") from None
    if found.size % FIELDS or not found.size or int(found[-1]) != len(tokens):
        raise refuse(str(places), f"{found.size} numbers", "is not of these tokens", "start the run again")
    return Pairs(tokens, found.reshape(-1, FIELDS).astype(np.int64))

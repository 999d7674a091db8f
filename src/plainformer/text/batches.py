"""Tokens -> batches to train on, and blocks to evaluate on.

Shapes: B batch, M rows of it, R rows beside it, T positions, S one more.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from plainformer.faults import Fault, PlainformerError, refuse

Block = npt.NDArray[np.int64]

_ROUNDS = 8


class Batches:
    """Batches of windows, a pure function of (seed, step): any step can be asked for, in any order, by any process.

    Each epoch lays side-by-side windows of `seq_len` targets over the tokens from a random first token, and goes
    through them in a random order, each window once. So an epoch scores each token once, save fewer than 2 x seq_len at
    the two ends, which another epoch's first token brings in. A batch may hold the end of one epoch and the start of
    the next. The order is computed, never stored: memory and the time for one step do not grow with the text.

    tokens: tokens_N, a memory map will do. n_windows: windows an epoch. end: the token that ends a document, where
    nothing is to be learned from the document before: what follows it is then no target.
    """

    def __init__(
        self, tokens: npt.NDArray[Any], seq_len: int, batch_size: int, seed: int, end: int | None = None
    ) -> None:
        for name, value in (("seq_len", seq_len), ("batch_size", batch_size)):
            if value < 1:
                raise refuse(name, value, "must be at least 1")
        check_lengths(seq_len, train=len(tokens))
        self.tokens, self.seq_len, self.batch_size, self.end = tokens, seq_len, batch_size, end
        self.n_windows = max(1, (len(tokens) - seq_len) // seq_len)
        self._n_firsts = len(tokens) - self.n_windows * seq_len  # how many tokens an epoch could start from
        self.order = Order(self.n_windows, batch_size, seed)

    def at(self, step: int, rows: range | None = None, n_more: int = 0) -> tuple[Block, Block]:
        """(x_BT, y_BT) of one step, counted from 0: int64, y_BT the tokens that follow x_BT's.

        rows: those of the batch that are wanted; None: all. n_more: rows without a real target that follow them.
        """
        if step < 0:
            raise refuse("step", step, "must be at least 0")
        starts = self.starts(step)
        wanted = starts if rows is None else starts[rows.start : rows.stop]
        window_BS = np.empty((len(wanted), self.seq_len + 1), np.int64)
        for row, start in enumerate(wanted):
            window_BS[row] = self.tokens[start : start + self.seq_len + 1]
        x_BT, y_BT = window_BS[:, :-1].copy(), window_BS[:, 1:].copy()
        return made_up(x_BT, apart(x_BT, y_BT, self.end), n_more)

    def starts(self, step: int) -> list[int]:
        """Where the windows of one step's rows start among the tokens."""
        return [(first * self._n_firsts >> 64) + window * self.seq_len for first, window in self.order.at(step)]


class Order:
    """The numbers 0 ... n - 1 in a random order, epoch after epoch, each once an epoch: computed, never stored."""

    def __init__(self, n: int, batch_size: int, seed: int) -> None:
        self.n, self.batch_size, self.seed = n, batch_size, operator.index(seed)
        self._half_bits = max(1, ((n - 1).bit_length() + 1) // 2)

    def at(self, step: int) -> list[tuple[int, int]]:
        """(64 bits by chance of its epoch, number) for each row of one step."""
        found: list[tuple[int, int]] = []
        first = step * self.batch_size
        while len(found) < self.batch_size:
            epoch, begin = divmod(first + len(found), self.n)
            n_rows = min(self.batch_size - len(found), self.n - begin)
            drawn, keys = self._draw(epoch)
            numbers = self._shuffled(np.arange(begin, begin + n_rows, dtype=np.uint64), keys)
            found += [(drawn, number) for number in numbers.tolist()]
        return found

    def _draw(self, epoch: int) -> tuple[int, list[np.uint64]]:
        """64 bits and the keys of an epoch's order, from a hash: the same on every machine, for ever."""
        drawn = hashlib.shake_256(f"plainformer batches {self.seed} {epoch}".encode()).digest(8 * (_ROUNDS + 1))
        words = [int.from_bytes(drawn[8 * i : 8 * i + 8], "little") for i in range(_ROUNDS + 1)]
        return words[0], [np.uint64(word) for word in words[1:]]

    def _shuffled(self, indices: npt.NDArray[np.uint64], keys: list[np.uint64]) -> npt.NDArray[np.uint64]:
        """Each index's place in the epoch's order: a permutation of 0 ... n - 1.

        A Feistel network (Luby and Rackoff 1988) permutes 0 ... 4^h - 1 whatever its round function is; an index that
        lands beyond n goes through again until it lands inside (Black and Rogaway 2002, "cycle walking").
        """
        half = np.uint64(self._half_bits)
        mask = np.uint64((1 << self._half_bits) - 1)
        indices = indices.copy()
        outside = np.ones(len(indices), bool)
        while outside.any():
            left, right = indices[outside] >> half, indices[outside] & mask
            for key in keys:
                left, right = right, left ^ (_mixed(right ^ key) & mask)
            indices[outside] = left << half | right
            outside = indices >= self.n
        return indices


def apart(x_MT: Block, y_MT: Block, end: int | None) -> Block:
    """The targets, without those that follow the end of a document."""
    return y_MT if end is None else np.where(x_MT == end, -1, y_MT)


def made_up(x_MT: Block, y_MT: Block, n_more: int) -> tuple[Block, Block]:
    """The same with rows of token 0 that have no real target after them: a share that is as large as all others."""
    if not n_more:
        return x_MT, y_MT
    more_RT = np.zeros((n_more, x_MT.shape[1]), np.int64)
    return np.concatenate((x_MT, more_RT)), np.concatenate((y_MT, more_RT - 1))


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Every bit of the result hangs on every bit of the word. Source: Steele, Lea, Flood 2014 (SplitMix64's finish)."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def check_lengths(seq_len: int, train: int, validation: int | None = None) -> None:
    """Refuse parts of a text that are shorter than one window and its last target, all of them at once.

    train, validation: tokens in each part; None: there is no validation.
    """
    parts = [("train part", train), ("validation part", validation)]
    faults = [
        Fault(
            name,
            f"{n_tokens:,} tokens",
            f"at least {seq_len + 1:,} tokens are needed (context + 1)",
            "use a longer text or a smaller context",
        )
        for name, n_tokens in parts
        if n_tokens is not None and n_tokens < seq_len + 1
    ]
    if faults:
        raise PlainformerError(faults)


def eval_blocks(
    tokens: npt.NDArray[Any], seq_len: int, stride: int | None = None
) -> Iterator[tuple[Block, Block, int]]:
    """(x_T, y_T, first_scored) over the whole text, each target in exactly one block's y_T[first_scored:].

    Without stride: side-by-side blocks of `seq_len` targets, first_scored 0, the last one shorter where they don't come
    out even. With stride: blocks of `seq_len` start every `stride` tokens, and each scores only the targets that no
    block before it did, so every target but the first block's has at least seq_len - stride tokens of its past before
    it. The first token is never a target: nothing comes before it. Refused at once: fewer than 2 tokens.
    """
    step = seq_len if stride is None else stride
    if seq_len < 1:
        raise refuse("seq_len", seq_len, "must be at least 1")
    if not 1 <= step <= seq_len:
        raise refuse("stride", step, f"must be from 1 to the context, {seq_len}", "else some tokens are never scored")
    if len(tokens) < 2:
        raise refuse("text", f"{len(tokens)} tokens", "at least 2 are needed: one to read and one to predict")
    return _blocks(tokens, seq_len, step)


def _blocks(tokens: npt.NDArray[Any], seq_len: int, step: int) -> Iterator[tuple[Block, Block, int]]:
    n_targets, scored = len(tokens) - 1, 0
    for start in range(0, n_targets, step):
        window = np.asarray(tokens[start : start + seq_len + 1]).astype(np.int64)
        yield window[:-1], window[1:], scored - start
        scored = start + len(window) - 1
        if scored == n_targets:
            return

"""Tokens as they are drawn, given out as text: whole characters, and nothing of a stop text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plainformer.faults import refuse
from plainformer.generation.decoding import Decoding
from plainformer.text import Tokenizer


class TextStream:
    """Ids in, one at a time; text out, up to the first stop text.

    The text that comes out ends right before the stop text that is complete first; of those that end at one place the
    longest counts, however the characters were cut into tokens. What may be the start of one is held back until it is
    decided. The pieces, joined, are the text: half a character never comes out.
    """

    def __init__(self, tokenizer: Tokenizer, stop_texts: Sequence[str] = ()) -> None:
        if "" in stop_texts:
            raise refuse("stop", "", "an empty text would stop before the first character")
        self._decoder, self._stop_texts = tokenizer.stream(), tuple(stop_texts)
        self._held = ""
        self.stopped = False

    def push(self, token: int) -> str:
        """The text that `token` makes certain."""
        return self._give(self._decoder.push(token), last=False)

    def end(self) -> str:
        """What was held back, at the end of the tokens."""
        return self._give(self._decoder.end(), last=True)

    def _give(self, more: str, last: bool) -> str:
        if self.stopped:
            return ""
        self._held += more
        if found := self._first_stop():
            self._held, self.stopped = self._held[: found[1]], True
        n_kept = 0 if last or self.stopped else self._may_begin()
        cut = len(self._held) - n_kept
        given, self._held = self._held[:cut], self._held[cut:]
        return given

    def _first_stop(self) -> tuple[int, int] | None:
        """(end, start) of the stop text that is complete first."""
        at = ((self._held.find(stop), len(stop)) for stop in self._stop_texts)
        return min(((start + length, start) for start, length in at if start >= 0), default=None)

    def _may_begin(self) -> int:
        """How many of the last characters may be the start of a stop text."""
        return max(
            (n for stop in self._stop_texts for n in range(1, len(stop)) if self._held.endswith(stop[:n])), default=0
        )


def pieces(decoding: Decoding, tokenizer: Tokenizer, stop_texts: Sequence[str] = ()) -> Iterator[tuple[int, str]]:
    """Run a decoding to its end and give its text as it comes: (row, piece). A row's pieces, joined, are its new text.

    A row whose text reaches a stop text ends there, with "stop".
    """
    streams = [TextStream(tokenizer, stop_texts) for _ in decoding.rows]
    while drawn := decoding.step():
        for row, token in drawn:
            piece = streams[row].push(token)
            if decoding.rows[row].finish_reason is not None:
                piece += streams[row].end()
            if streams[row].stopped:
                decoding.stop(row)
            if piece:
                yield row, piece

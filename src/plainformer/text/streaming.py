"""Ids in, one at a time; whole characters out."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plainformer.text.tokenizers import Tokenizer

AT_ONCE = 16  # ids decoded together before the newest stands alone


class Decoder:
    """Half a character is held back until the rest of it comes. The pieces joined are what `decode` gives for all ids.

    A published kind's decoder sees its ids together (a first space goes, single bytes make a character only as a
    whole run): what is new is then told by decoding the newest ids anew with each one more.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._together = tokenizer, tokenizer.kind == "published"
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._ids: list[int] = []  # those that are decoded together
        self._told = ""  # what of their text is told

    def push(self, token: int) -> str:
        """The characters that `token` completes: none, one or several."""
        if not self._together:
            return self._characters.decode(self._tokenizer.decode_bytes([token]))
        self._tokenizer.decode([token])  # refuses what is no token
        if not self._tokenizer.pieces[token]:
            return ""
        self._ids.append(token)
        if self._tokenizer.is_byte(token):
            return ""  # what a run of bytes says is known when it ends
        fresh = self._fresh()
        if len(self._ids) > AT_ONCE:
            self._ids = self._ids[-1:]
            self._told = self._tokenizer.decode(self._ids)
        return fresh

    def end(self) -> str:
        """What is left: nothing, or one U+FFFD where the ids ended inside a character."""
        return self._fresh() if self._together else self._characters.decode(b"", final=True)

    def _fresh(self) -> str:
        text = self._tokenizer.decode(self._ids) if self._ids else ""
        fresh, self._told = text[len(self._told) :], text
        return fresh

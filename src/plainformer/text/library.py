"""The tokenizers package: what it cannot read, and what it breaks at, is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from plainformer.faults import refuse

if TYPE_CHECKING:
    import tokenizers as library


def import_library() -> Any:
    """The tokenizers package, which only BPE needs."""
    try:
        import tokenizers
    except ImportError:
        raise refuse(
            "tokenizer", "bpe", "needs the tokenizers package", "pip install 'plainformer[torch]', or use characters"
        ) from None
    return tokenizers


@contextmanager
def of_the_library(where: str, kind: str | None = None) -> Iterator[None]:
    """What the library refuses is refused, and so is what it breaks at: a panic of its own is no Exception."""
    try:
        yield
    except BaseException as error:
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        said = str(error)[:160]
        raise refuse(where, kind, f"the tokenizers library cannot follow it: {said}") from None


def library_s(text: str, where: str = "tokenizer.json", kind: str | None = None) -> library.Tokenizer:
    """The library's tokenizer of a tokenizer.json. Refused where the library refuses it."""
    made = import_library().Tokenizer
    with of_the_library(where, kind):
        read: library.Tokenizer = made.from_str(text)
    return read

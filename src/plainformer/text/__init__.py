"""The text room: tokenizers; text of any size -> token file -> batches."""

from __future__ import annotations

from plainformer.text.batches import Batches, check_lengths, eval_blocks
from plainformer.text.masking import mask_tokens
from plainformer.text.reading import read_bytes, read_text
from plainformer.text.streaming import Decoder
from plainformer.text.tokenizers import Tokenizer, token_bytes
from plainformer.text.tokens import TokenFile, split, text_bytes, write_tokens
from plainformer.text.vocabulary import train_tokenizer

__all__ = [
    "Batches",
    "Decoder",
    "TokenFile",
    "Tokenizer",
    "check_lengths",
    "eval_blocks",
    "mask_tokens",
    "read_bytes",
    "read_text",
    "split",
    "text_bytes",
    "token_bytes",
    "train_tokenizer",
    "write_tokens",
]

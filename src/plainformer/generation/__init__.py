"""The generation room: from tokens to more tokens, and from text to more text."""

from __future__ import annotations

from plainformer.generation.decoding import Decoding, FinishReason, Generation, Row, generate
from plainformer.generation.sampling import Sampling, draw, probabilities
from plainformer.generation.writing import TextStream, pieces

__all__ = [
    "Decoding",
    "FinishReason",
    "Generation",
    "Row",
    "Sampling",
    "TextStream",
    "draw",
    "generate",
    "pieces",
    "probabilities",
]

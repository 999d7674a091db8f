"""The generation room: from tokens to more tokens, and from text to more text."""

from __future__ import annotations

from plainformer.generation.beams import Beams, search
from plainformer.generation.decoding import Decoding, FinishReason, Generation, PastContext, Request, Row, generate
from plainformer.generation.encoders import Filled, fill, vectors
from plainformer.generation.published import Published, published
from plainformer.generation.rules import Rules
from plainformer.generation.sampling import Sampling, draw, probabilities
from plainformer.generation.writing import TextStream, pieces

__all__ = [
    "Beams",
    "Decoding",
    "Filled",
    "FinishReason",
    "Generation",
    "PastContext",
    "Published",
    "Request",
    "Row",
    "Rules",
    "Sampling",
    "TextStream",
    "draw",
    "fill",
    "generate",
    "pieces",
    "probabilities",
    "published",
    "search",
    "vectors",
]

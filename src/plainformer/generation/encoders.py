"""What encoders are asked for: the tokens behind masks, and one vector for a text.

N rows, T positions, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.generation.decoding import in_float64
from plainformer.generation.reading import Prompts, as_rows, padded
from plainformer.generation.sampling import log_probabilities, need_number
from plainformer.model import Transformer

Pool = Literal["mean", "first", "last"]
ROWS_AT_ONCE = 32


@dataclass(frozen=True)
class Filled:
    """One mask: where it stands in its row, and its likeliest tokens as (id, probability), the best first."""

    place: int
    best: tuple[tuple[int, float], ...]


def checked(model: Transformer, tokens: Prompts) -> list[list[int]]:
    """The rows, or a refusal of all that cannot be."""
    rows, room, size = as_rows(tokens), model.spec.max_seq_len, model.spec.vocab_size
    faults = []
    for i, row in enumerate(rows):
        if not 0 < len(row) <= room:
            faults.append(Fault(f"tokens[{i}]", len(row), f"must be 1 to {room} tokens"))
        elif not 0 <= min(row) <= max(row) < size:
            faults.append(Fault(f"tokens[{i}]", (min(row), max(row)), f"outside the vocabulary (0 to {size - 1})"))
    if faults or not rows:
        raise PlainformerError(faults or [Fault("tokens", [], "must be rows of at least one token")])
    return rows


def streams(model: Transformer, rows: Sequence[Sequence[int]]) -> Iterator[Tensor]:
    """x_TD of each row: of an encoder, of an encoder-decoder's encoder, or of a decoder. Padding changes none."""
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[start : start + ROWS_AT_ONCE]
        lengths = list(map(len, some))
        tokens_NT = torch.tensor(padded(some), dtype=torch.long, device=model.device)
        pair = model.spec.encoder is not None and model.spec.decoder is not None
        x_NTD = model.encode(tokens_NT, lengths).said_BSD if pair else model.hidden(tokens_NT, n_new=lengths)
        yield from (x_TD[:length] for x_TD, length in zip(x_NTD, lengths, strict=True))


@torch.inference_mode()
def fill(
    model: Transformer, tokens: Prompts, mask: int, n_best: int = 5, n_tokens: int | None = None
) -> list[list[Filled]]:
    """For each row what stands behind each of its masks. n_tokens: only ids below this are answers.

    Raises PlainformerError: a model that is no encoder with a head for tokens, a row without a mask or too long.
    """
    spec = model.spec
    if spec.decoder is not None or spec.head is None or spec.head.pool != "no":
        raise refuse("model", "no encoder with a head for each token", "cannot fill masks", "a masked language model")
    if spec.head.linear.n_out != spec.vocab_size:
        raise refuse("model", spec.head.linear.n_out, "its head scores something else than tokens")
    if n_best < 1:
        raise refuse("n_best", n_best, "must be at least 1")
    rows, found = checked(model, tokens), []
    if faults := [
        Fault(f"tokens[{i}]", len(row), f"holds no mask (token {mask})")
        for i, row in enumerate(rows)
        if mask not in row
    ]:
        raise PlainformerError(faults)
    for row, x_TD in zip(rows, streams(model, rows), strict=True):
        places = [i for i, token in enumerate(row) if token == mask]
        answers = []
        for place, said_V in zip(places, in_float64(model.logits(x_TD[None, places])[0]), strict=True):
            need_number(float(said_V.max()))
            p = np.exp(log_probabilities(said_V[:n_tokens]))
            best = np.argsort(-p, kind="stable")[:n_best]
            answers.append(Filled(place, tuple((int(i), float(p[i])) for i in best)))
        found.append(answers)
    return found


@torch.inference_mode()
def vectors(model: Transformer, tokens: Prompts, pool: Pool = "mean", normalized: bool = False) -> NDArray[Any]:
    """One vector for each row, (N, D): the mean of the stream over its tokens, or the stream at its first or its last.

    normalized: of length 1. In the model's dtype, bfloat16 as float32. The mean is what sentence-transformers calls
    mean pooling: padding has no part in it (Reimers and Gurevych 2019, section 3).
    """
    if pool not in ("mean", "first", "last"):
        raise refuse("pool", pool, "must be mean, first or last")
    found = []
    for x_TD in streams(model, checked(model, tokens)):
        x_TD = x_TD if x_TD.dtype in (torch.float32, torch.float64) else x_TD.float()
        found.append(x_TD.mean(0) if pool == "mean" else x_TD[0 if pool == "first" else -1])
    vectors_ND = torch.stack(found)
    if normalized:
        vectors_ND = torch.nn.functional.normalize(vectors_ND, dim=-1)
    told_ND: NDArray[Any] = vectors_ND.cpu().numpy()
    return told_ND

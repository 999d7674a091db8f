"""What a model does with a row of tokens: where it looks, what surprises it, whether it sees the future.

T positions, V vocabulary, H heads, L layers passed and the embedding before them, N some of the positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plainformer import spec as s
from plainformer.faults import refuse
from plainformer.layers import through
from plainformer.model import Transformer
from plainformer.tree import rewrite, walk

Array = NDArray[Any]
P = TypeVar("P")

N_CHANGES = 16  # tokens that the verdict on causality changes, one after another, spread over the row


def row_of(model: Transformer, tokens: Tensor | Array | Sequence[int]) -> Tensor:
    """The tokens as a batch of one row on the model's device."""
    row_1T = torch.as_tensor(tokens, dtype=torch.long, device=model.device)[None]
    if row_1T.ndim != 2:
        raise refuse("tokens", tuple(row_1T.shape[1:]), "must be one row of token ids")
    return row_1T


def plain(tensor: Tensor) -> Array:
    """A tensor as an array: its own precision, float32 for the shorter ones that numpy lacks."""
    tensor = tensor.detach().cpu()
    return (tensor if tensor.dtype == torch.float64 else tensor.float()).numpy()


@torch.inference_mode()
def logits_of(model: Transformer, row_1T: Tensor, trace: dict[str, Tensor] | None = None) -> Tensor:
    """Scores (T, V). Refuses a spec without a head, whose stream scores nothing, and weights that give no numbers."""
    if model.spec.head is None:
        raise refuse("model", "no head", "scores no tokens")
    logits_TV = cast(Tensor, model(row_1T, trace=trace))[0]
    if not logits_TV.isfinite().all():
        raise refuse("logits", "NaN or infinity", "nothing can be read from these", "the weights are damaged")
    return logits_TV


def attention_maps(model: Transformer, tokens: Tensor | Array | Sequence[int]) -> dict[str, Array]:
    """For each attention, by its place, the weights (H, T, T): head, query, key. A row adds up to 1; a key that may not
    be seen has exactly 0. Made by the plain form of attention, which changes no logit beyond rounding."""
    trace: dict[str, Tensor] = {}
    with torch.inference_mode():
        model.hidden(row_of(model, tokens), trace=trace)
    ending = ".weights"
    return {name.removesuffix(ending): plain(kept[0]) for name, kept in trace.items() if name.endswith(ending)}


def log2_odds(model: Transformer, tokens: Tensor | Array | Sequence[int], n_tokens: int | None = None) -> Array:
    """log2 of the probability of each next token, float64, (T, V). n_tokens: only ids below it are ever said."""
    logits_TV = logits_of(model, row_of(model, tokens))[:, :n_tokens]
    log2_TV = logits_TV.double().log_softmax(-1) / np.log(2)
    return plain(log2_TV)


def surprisal(model: Transformer, tokens: Tensor | Array | Sequence[int], n_tokens: int | None = None) -> Array:
    """-log2 p(token | those before it), in bits, for every token but the first: entry i is of token i + 1."""
    log2_TV = log2_odds(model, tokens, n_tokens)
    next_N = row_of(model, tokens)[0, 1:].cpu().numpy()
    return np.asarray(-log2_TV[np.arange(len(next_N)), next_N])


def logit_lens(model: Transformer, tokens: Tensor | Array | Sequence[int]) -> Array:
    """(L, T, V): what the head would say of the stream after each layer, the embedding first. The last are the logits.

    nostalgebraist 2020, "interpreting GPT: the logit lens".
    """
    trace: dict[str, Tensor] = {}
    with torch.inference_mode():
        logits_of(model, row_of(model, tokens), trace)
        streams = [kept for name, kept in trace.items() if ".stream." in name]
        normed = [through(model.decoder, "norm_last", x_1TD) for x_1TD in streams]
        return plain(torch.cat([model.logits(x_1TD) for x_1TD in normed]))


@dataclass(frozen=True)
class Causality:
    """What changing tokens showed.

    causal: no earlier logit moved: not by one bit; in a mixture of experts, whose products depend on how many tokens
    an expert meets, not beyond rounding. largest: how far the furthest one moved. n_changes: tokens that were changed.
    uses_positions: whether the logits differ from those of the same weights without position tables and rotation.
    """

    causal: bool
    largest: float
    n_changes: int
    uses_positions: bool


def causality(model: Transformer, tokens: Tensor | Array | Sequence[int]) -> Causality:
    """Change one token after another and look at the logits before it; then take the positions away."""
    row_1T = row_of(model, tokens)
    logits_TV = logits_of(model, row_1T)
    n_tokens = row_1T.shape[1]
    places = np.unique(np.linspace(1, n_tokens - 1, min(N_CHANGES, n_tokens - 1)).round().astype(int)).tolist()
    largest = 0.0
    for j in places:
        changed_1T = row_1T.clone()
        changed_1T[0, j] = (changed_1T[0, j] + 1) % model.spec.vocab_size
        moved_NV = logits_of(model, changed_1T)[:j] - logits_TV[:j]
        largest = max(largest, float(moved_NV.abs().max()))
    rounding = torch.finfo(logits_TV.dtype).eps * max(1.0, float(logits_TV.abs().max()))
    mixture = any(isinstance(part, s.Experts) for _, part in walk(model.spec))
    apart = float((logits_of(without_positions(model), row_1T) - logits_TV).abs().max())
    return Causality(largest <= (4096 * rounding if mixture else 0), largest, len(places), apart > 16 * rounding)


def without_positions(model: Transformer) -> Transformer:
    """A model of the same weights, not copied, in which no part asks where a token stands. Masks and windows stay."""

    def drop(part: P) -> P:
        if isinstance(part, s.Scores):
            return replace(part, rotary=None, alibi=False)
        if isinstance(part, s.Stack):
            return replace(part, positions=None, relative=None)
        return replace(part, positions=None) if isinstance(part, s.Tokens) else part

    with torch.device("meta"):
        bare = Transformer(rewrite(model.spec, drop), initial=None)
    mine = model.state_dict()
    bare.load_state_dict({name: mine[name] for name in bare.state_dict()}, assign=True)
    return bare

"""A small GPT before any training, its weights drawn by torch: what it says of random tokens, and who notices a change.

Four layers of width 32, GPT-2's vocabulary padded. The draws come in the order of a program that builds its layers
first, each with torch's own first weights, and then draws all of them anew: so another seed's numbers are other ones.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from plainformer.conventions import pad_vocabulary
from plainformer.initial import initial
from plainformer.kernels import cross_entropy
from plainformer.measuring import Measured
from plainformer.model import Transformer
from plainformer.presets import presets

SEED, TOKENS, CHANGED, TRUE_ROWS = 0, 12, 8, 50257  # the ninth token is changed
LAYERS, WIDTH = 4, 32


def drawn() -> tuple[Transformer, torch.Tensor]:
    """The model, and a row of random tokens (1, T)."""
    torch.manual_seed(SEED)
    spec = pad_vocabulary(presets["fig3-4x32"])
    n_rows, d = spec.vocab_size, WIDTH
    nn.Embedding(n_rows, d), nn.Embedding(spec.max_seq_len, d)
    for _ in range(LAYERS):
        for n_out, n_in in ((3 * d, d), (d, d), (4 * d, d), (d, 4 * d)):
            nn.Linear(n_in, n_out)  # what torch draws first is thrown away, but moves the seed on
    nn.Linear(d, n_rows, bias=False)

    def draw(n_out: int, n_in: int, std: float = 0.02) -> NDArray[np.float32]:
        return torch.empty(n_out, n_in).normal_(0, std).numpy()

    arrays = {name: array for name, array in initial(spec).items() if array.ndim == 1}
    arrays |= {"embedding.weight": draw(n_rows, d), "decoder.positions.weight": draw(spec.max_seq_len, d)}
    onto_stream = 0.02 / math.sqrt(2 * LAYERS)
    for place in (f"decoder.layers.{i}" for i in range(LAYERS)):
        for part, array in zip("qkv", np.split(draw(3 * d, d), 3), strict=True):
            arrays[f"{place}.attention.{part}.weight"] = array
        arrays[f"{place}.attention.out.weight"] = draw(d, d, onto_stream)
        arrays[f"{place}.feed_forward.up.weight"] = draw(4 * d, d)
        arrays[f"{place}.feed_forward.down.weight"] = draw(d, 4 * d, onto_stream)
    tokens_BT = torch.randint(0, TRUE_ROWS, (TOKENS,))[None]
    model = Transformer(spec, initial=None)
    model.take((name, np.ascontiguousarray(array)) for name, array in arrays.items())
    return model, tokens_BT


def said() -> dict[str, Any]:
    """Shapes of the stream before and after, the scores, the first layer's weights; how far those are from rows of
    one; how far scores move when a token is changed; the mean surprisal in bits; the least and the largest score."""
    model, tokens_BT = drawn()
    other_BT = tokens_BT.clone()
    other_BT[0, CHANGED] = (other_BT[0, CHANGED] + 1) % TRUE_ROWS
    seen: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        scores_BTV = model(tokens_BT, trace=seen)
        moved_T = (model(other_BT, trace={}) - scores_BTV).abs().amax(-1)[0]
        surprisal = cross_entropy(scores_BTV[:, :-1], tokens_BT[:, 1:]).mean().item() / math.log(2)
    weights_HTT = seen["decoder.layers.0.attention.weights"][0]
    shaped = (seen["decoder.stream.0"][0], seen[f"decoder.stream.{LAYERS}"][0], scores_BTV[0], weights_HTT)
    return {
        "shapes": [list(array.shape) for array in shaped],
        "row_sum_error": (weights_HTT.sum(-1) - 1).abs().max().item(),
        "causal": [moved_T[:CHANGED].max().item(), moved_T[CHANGED:].min().item(), moved_T[CHANGED:].max().item()],
        "surprisal_bits": surprisal,
        "logit_spread": [scores_BTV[0, 0].min().item(), scores_BTV[0, 0].max().item()],
    }


def measure() -> Measured:
    now = said()
    before, least, most = now["causal"]
    low, high = now["logit_spread"]
    rows = [
        {"what": "scores before the changed token move by", "value": f"{before:g}"},
        {"what": "from it on, at least", "value": f"{least:.4f}"},
        {"what": "at most", "value": f"{most:.3f}"},
        {"what": "mean surprisal of the next token, bits", "value": f"{now['surprisal_bits']:.3f}"},
        {"what": "least score of the first row", "value": f"{low:.3f}"},
        {"what": "largest score of the first row", "value": f"{high:.3f}"},
    ]
    note = f"{LAYERS} layers of width {WIDTH}, {TOKENS} random tokens; token {CHANGED + 1} is changed."
    return Measured(rows, (SEED,), note)

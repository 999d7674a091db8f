"""A model small enough to follow on paper, all the way there and back: three words, two tokens, two numbers each.

One layer: RMSNorm and attention of one head, RMSNorm and a feed-forward with ReLU, each around the stream.
"""

from __future__ import annotations

import numpy as np

from plainformer import spec as s
from plainformer.formulas import Array
from plainformer.gradients.parts import Slopes
from plainformer.gradients.whole import loss_and_gradients

TOKENS, TARGETS = (0, 1), (1, 2)  # each word is followed by the next
WEIGHTS = {
    "embedding.weight": ((1, 0), (0, 1), (1, 1)),
    "decoder.layers.0.attention_norm.weight": (1, 1),
    "decoder.layers.0.attention.q.weight": ((1, 0), (0, 1)),
    "decoder.layers.0.attention.k.weight": ((1, 1), (0, 1)),
    "decoder.layers.0.attention.v.weight": ((1, 0), (0, 1)),
    "decoder.layers.0.attention.out.weight": ((1, 1), (0, 1)),
    "decoder.layers.0.feed_forward_norm.weight": (1, 1),
    "decoder.layers.0.feed_forward.up.weight": ((1, -1), (-1, 2)),
    "decoder.layers.0.feed_forward.down.weight": ((1, 0), (1, 1)),
    "decoder.norm_last.weight": (1, 1),
    "head.weight": ((1, 0), (0, 1), (1, 1)),
}


def spec() -> s.Spec:
    """The model, as data."""
    square, norm = s.Linear(n_in=2, n_out=2), s.Norm(kind="rms", width=2, eps=1e-5)
    attention = s.Attention(
        n_heads=1, n_kv_heads=1, d_head=2, q=square, k=square, v=square, out=square, scores=s.Scores(scale=2**-0.5)
    )
    feed_forward = s.FeedForward(activation="relu", up=square, down=square)
    branches = (
        s.Branch(name="attention", part=attention, norm_in=norm),
        s.Branch(name="feed_forward", part=feed_forward, norm_in=norm),
    )
    layer = tuple(s.Residual(branches=(branch,)) for branch in branches)
    return s.Spec(
        embedding=s.Tokens(table=s.Table(n_rows=3, width=2)),
        decoder=s.Stack(layers=(layer,), causal=True, norm_last=norm),
        head=s.Head(linear=s.Linear(n_in=2, n_out=3), tied=False),
        max_seq_len=2,
    )


def arrays() -> dict[str, Array]:
    """Its weights, whole numbers all. Each of the two hidden numbers is above 0 for one of the tokens."""
    return {name: np.array(rows, np.float64) for name, rows in WEIGHTS.items()}


def way_back() -> tuple[float, Slopes]:
    """(the loss, all that is found on the way back): `of` each weight, every part `met`, and the `trace` of attention
    and stream."""
    to = Slopes.along(spec())
    loss, _ = loss_and_gradients(spec(), arrays(), TOKENS, TARGETS, to=to)
    return loss, to

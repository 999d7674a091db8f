"""Mistakes in who may see whom, in counting parameters and in AdamW."""

from __future__ import annotations

import numpy as np

from plainformer.check.catalogue.entry import Entry

SEEN = (
    Entry(key="see-inverted", changes={"see": lambda do, t, s: 1 - np.tri(t, s, s - t)},
          said="True stands where a token may not see: the mask is inverted",
          change="True where it may see: the lower triangle, np.tri, with the diagonal"),
    Entry(key="see-all", changes={"see": lambda do, t, s: np.ones((t, s))},
          said="every token sees all, the future too", change="only keys j <= i: np.tri, with the diagonal"),
    Entry(key="see-added", changes={"see": lambda do, t, s: np.where(np.tri(t, s, s - t) == 1, 0.0, -np.inf)},
          said="this is what is added to scores, 0 and -infinity, not True and False",
          change="True where it may see, False where not"),
)  # fmt: skip
COUNTS = (
    Entry(key="count-head-again", changes={"count.tables": lambda do, v, t, d: (2 * v + t) * d},
          said="the head is counted beside the token table: it is tied, one matrix", change="add nothing for the head"),
    Entry(key="count-no-positions", changes={"count.tables": lambda do, v, t, d: v * d},
          said="the position table is not counted", change="add max_seq_len * d_model"),
    Entry(key="count-no-attention-bias", changes={"count.attention": lambda do, d: 4 * d**2},
          said="the biases of attention's four matrices are not counted", change="4 * d_model**2 + 4 * d_model"),
    Entry(key="count-no-output-projection", changes={"count.attention": lambda do, d: 3 * d**2 + 3 * d},
          said="attention's output projection is not counted: queries, keys and values alone are",
          change="four matrices, not three"),
    Entry(key="count-no-feed-forward-bias", changes={"count.feed_forward": lambda do, d, f: 2 * d * f},
          said="the feed-forward's biases are not counted", change="2 * d_model * d_ff + d_ff + d_model"),
    Entry(key="count-no-bias",
          changes={"count.attention": lambda do, d: 4 * d**2, "count.feed_forward": lambda do, d, f: 2 * d * f},
          said="no bias is counted", change="each matrix adds a bias of its output's width"),
    Entry(key="count-gains-alone", changes={"count.norms": lambda do, d: 2 * d, "count.last": lambda do, d: d},
          said="norms are counted without their biases", change="2 * d_model a norm: gain and bias"),
    Entry(key="count-no-norms", changes={"count.norms": lambda do, d: 0, "count.last": lambda do, d: 0},
          said="no norm is counted", change="add 4 * d_model for each block, 2 * d_model for the last norm"),
    Entry(key="count-no-last-norm", changes={"count.last": lambda do, d: 0},
          said="the norm after the last block is not counted", change="add 2 * d_model once"),
    Entry(key="count-one-layer", changes={"count.layers": lambda do, n, block: block},
          said="one block is counted, whatever n_layers says", change="n_layers * block",
          where="count_gpt_parameters", example={"n_layers": 2}),
)  # fmt: skip
UPDATES = (
    Entry(key="adamw-l2", changes={"adamw.gradient": lambda do, g, w, decay: g + decay * w,
                                   "adamw.decay": lambda do, w, lr, decay: w},
          said="the decay is added to the gradient (Adam with L2): AdamW takes it from the weight itself",
          change="w = w * (1 - lr * weight_decay), and the gradient as it is"),
    Entry(key="adamw-no-decay", changes={"adamw.decay": lambda do, w, lr, decay: w},
          said="there is no weight decay", change="w * (1 - lr * weight_decay)"),
    Entry(key="adamw-decay-without-lr", changes={"adamw.decay": lambda do, w, lr, decay: w * (1 - decay)},
          said="the decay is not multiplied by the learning rate", change="w * (1 - lr * weight_decay)"),
    Entry(key="adamw-no-correction", changes={"adamw.correct": lambda do, mean, beta, t: mean},
          said="m and v are not corrected for beginning at 0", change="m / (1 - beta1**t), v / (1 - beta2**t)"),
    Entry(key="adamw-late", changes={"adamw.correct": lambda do, mean, beta, t: mean / (1 - beta ** (t + 1))},
          said="the correction counts one step too many", change="t is 1 at the first step"),
    Entry(key="adamw-eps-inside", changes={"adamw.move": lambda do, m, v, eps: m / np.sqrt(v + eps)},
          said="eps is added under the root", change="m / (sqrt(v) + eps)"),
    Entry(key="adamw-no-root", changes={"adamw.move": lambda do, m, v, eps: m / (v + eps)},
          said="the root of v is not taken", change="m / (sqrt(v) + eps)"),
    Entry(key="adamw-not-squared", changes={"adamw.second": lambda do, v, g, beta: beta * v + (1 - beta) * np.abs(g)},
          said="v is a mean of gradients' sizes, not of their squares", change="v = beta2 * v + (1 - beta2) * g**2"),
    Entry(key="adamw-betas-swapped", changes={"adamw.betas": lambda do, betas: betas[::-1]},
          said="beta1 and beta2 are in each other's place", change="beta1 for m, beta2 for v"),
    Entry(key="adamw-ascent", changes={"adamw.take": lambda do, w, moved, lr: w + lr * moved},
          said="w goes with the gradient, not against it", change="w - lr * ..."),
    Entry(key="adamw-sum", changes={"adamw.first": lambda do, m, g, beta: beta * m + g},
          said="m adds the whole gradient, not 1 - beta1 of it", change="m = beta1 * m + (1 - beta1) * g"),
)  # fmt: skip

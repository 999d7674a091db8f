"""Mistakes in feed-forwards, residuals, the places of norms, the order of parts, a whole decoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from plainformer import formulas as f
from plainformer.check.catalogue.entry import Entry
from plainformer.check.steps import Array, Doing, Step


def plain(do: Doing, hidden: Array, activation: str) -> Array:
    return hidden


GATED = {
    "x": np.array([[1.0, 2.0]]), "up.w": np.eye(2) * 3, "gate.w": np.eye(2), "down.w": np.eye(2), "up.b": None,
    "down.b": None, "activation": "silu",
}  # fmt: skip
FEED_FORWARD = (
    Entry(key="ff-no-activation", changes={"ff.act": plain},
          said="there is no activation between the two projections: they are one matrix",
          change="down(gelu(up(x)))", where="feed_forward"),
    Entry(key="ff-activation-last", where="feed_forward",
          changes={"ff.act": plain, "ff.down": lambda do, h, w, b: f.gelu(h @ w + b)},
          said="the activation comes after the second projection, not between the two", change="down(gelu(up(x)))"),
    Entry(key="ff-activation-twice", changes={"ff.down": lambda do, h, w, b: f.gelu(h @ w + b)}, where="feed_forward",
          said="there is an activation after the second projection too", change="down(gelu(up(x))), nothing after"),
    Entry(key="ff-activation-first", where="feed_forward",
          changes={"ff.act": plain, "ff.up": lambda do, x, w, b: f.gelu(x) @ w + b},
          said="the activation comes before the first projection, not after it", change="down(gelu(up(x)))"),
    Entry(key="ff-up-no-bias", changes={"ff.up": lambda do, x, w, b: x @ w}, said="the first bias is not used",
          change="x @ w_up + b_up"),
    Entry(key="ff-down-no-bias", changes={"ff.down": lambda do, h, w, b: h @ w}, said="the second bias is not used",
          change="hidden @ w_down + b_down"),
    Entry(key="ff-residual-inside", changes={"ff": lambda do, x, w, activation: x + do.right("ff", x, w, activation)},
          where="feed_forward", said="x is added to the answer: the residual is inside the feed-forward",
          change="return down(gelu(up(x))): the block adds x"),
    Entry(key="ff-softmax", changes={"ff.act": lambda do, h, activation: do("softmax", h)}, where="feed_forward",
          said="the activation is a softmax over the hidden units", change="gelu: each unit by itself"),
    Entry(key="ff-gate-on-up", changes={"ff.gate": lambda do, gate, up, activation: gate * do("act", up, activation)},
          where="feed_forward", example=GATED,
          said="the activation is on the wrong one of the two: on up, not on the gate",
          change="act(x @ w_gate) * (x @ w_up)"),
    Entry(key="ff-gate-plain", changes={"ff.gate": lambda do, gate, up, activation: gate * up},
          where="feed_forward", example=GATED,
          said="the gate has no activation", change="act(x @ w_gate) * (x @ w_up)"),
    Entry(key="ff-gate-added", changes={"ff.gate": lambda do, gate, up, activation: do("act", gate, activation) + up},
          where="feed_forward", example=GATED,
          said="gate and up are added, not multiplied", change="act(x @ w_gate) * (x @ w_up)"),
    Entry(key="ff-gate-sigmoid", changes={"ff.gate": lambda do, gate, up, activation: f.sigmoid(gate) * up},
          where="feed_forward", example=GATED,
          said="the gate is a bare sigmoid (a GLU), not SiLU: gate * sigmoid(gate)",
          change="silu(x @ w_gate) * (x @ w_up)"),
    Entry(key="ff-gate-whole", changes={"ff.gate": lambda do, gate, up, activation: do("act", gate * up, activation)},
          where="feed_forward", example=GATED,
          said="the activation is taken of the product", change="act(x @ w_gate) * (x @ w_up)"),
)  # fmt: skip


def residual(how: Step, name: str = "residual") -> dict[str, Step]:
    return {name: lambda do, x, norm, part: how(x, norm, part)}


KINDS: tuple[tuple[str, Step, str, str], ...] = (
    ("post", lambda x, n, p: n(x + p(x)), "the norm stands after the sum (post-norm), not before {part}",
     "x + part(norm(x)): the 2017 layout normalises the sum; if that was asked, this is right"),
    ("missing", lambda x, n, p: p(n(x)), "the residual around {part} is missing: x is not added back",
     "x = x + part(norm(x))"),
    ("normed", lambda x, n, p: n(x) + p(n(x)), "around {part} the normalised x is added back, not x itself",
     "keep x before the norm: x = x + part(norm(x))"),
    ("no-norm", lambda x, n, p: x + p(x), "{part} reads the stream without a norm", "x + part(norm(x))"),
    ("norm-out", lambda x, n, p: x + n(p(x)), "the norm stands on what {part} says, not on what it reads",
     "x + part(norm(x)); OLMo 2's layout is x + norm(part(x)): if that was asked, this is right"),
    ("twice", lambda x, n, p: 2 * x + p(n(x)), "x is added twice around {part}",
     "once: does the part add its input too?"),
    ("minus", lambda x, n, p: x - p(n(x)), "what {part} says is taken away, not added", "x + part(norm(x))"),
    ("normed-alone", lambda x, n, p: n(x) + p(x),
     "{part} reads x, and the normalised x is added back: they changed places",
     "x + part(norm(x))"),
    ("product", lambda x, n, p: x * p(n(x)), "x is multiplied by what {part} says", "x + part(norm(x))"),
    ("halved", lambda x, n, p: (x + p(n(x))) / 2, "the sum around {part} is halved", "x + part(norm(x)), not a mean"),
    ("sandwich", lambda x, n, p: n(x + p(n(x))), "there is a second norm on the sum around {part}",
     "x + part(norm(x))"),
)  # fmt: skip
PARTS = {"residual": "each part", "residual.attention": "attention", "residual.feed_forward": "the feed-forward"}

RESIDUALS = tuple(
    Entry(key=f"{name.replace('.', '-').replace('_', '-')}-{kind}", changes=residual(how, name),
          said=said.format(part=part), change=change)
    for kind, how, said, change in KINDS
    for name, part in PARTS.items()
)  # fmt: skip


def ordered(how: Step) -> dict[str, Step]:
    return {"block.order": lambda do, x, norms, parts: how(x, norms, parts)}


def from_block_input(x: Array, n: Any, p: Any) -> Array:
    return x + p[1](n[1](x + p[0](n[0](x))))


def on_both(x: Array, n: Any, p: Any) -> Array:
    after = x + p[0](n[0](x))
    return x + after + p[1](n[1](after))


BLOCKS = (
    Entry(key="block-norm-shared", changes={"block.norms": lambda do, first, second: (first, first)},
          said="both parts use the first norm: the second is never used", change="norm_2 before the feed-forward"),
    Entry(key="block-norm-second-shared", changes={"block.norms": lambda do, first, second: (second, second)},
          said="both parts use the second norm: the first is never used", change="norm_1 before attention"),
    Entry(key="block-norms-changed-places", changes={"block.norms": lambda do, first, second: (second, first)},
          said="the two norms have changed places", change="norm_1 before attention, norm_2 before the feed-forward"),
    Entry(key="block-parallel", changes=ordered(lambda x, n, p: x + p[0](n[0](x)) + p[1](n[1](x))),
          said="both parts read the same stream, side by side: the feed-forward does not see what attention said",
          change="x = x + attention(norm_1(x)) first; then x = x + feed_forward(norm_2(x)), x the new one"),
    Entry(key="block-feed-forward-first",
          changes={"block.order": lambda do, x, n, p: do("residual", do("residual", x, n[1], p[1]), n[0], p[0])},
          said="the feed-forward comes first, attention after it", change="attention, then the feed-forward"),
    Entry(key="block-from-input", changes=ordered(from_block_input),
          said="the feed-forward's sum takes the block's input, not the stream after attention",
          change="x = x + attention(norm_1(x)), and go on with that x"),
    Entry(key="block-input-twice", changes=ordered(on_both), said="the block's input is added once more at the end",
          change="two sums a block, each of the stream before it"),
    Entry(key="block-attention-twice", changes={"block.order": lambda do, x, n, p: do(
              "residual", do("residual", x, n[0], p[0]), n[1], p[0])},
          said="attention stands where the feed-forward belongs", change="x = x + feed_forward(norm_2(x))"),
    Entry(key="block-feed-forward-twice", changes={"block.order": lambda do, x, n, p: do(
              "residual", do.right("block.order", x, n, p), n[1], p[1])},
          said="the feed-forward is taken twice", change="once a block"),
    Entry(key="block-no-feed-forward", changes=ordered(lambda x, n, p: x + p[0](n[0](x))),
          said="the feed-forward is never reached", change="x = x + feed_forward(norm_2(x))"),
    Entry(key="block-no-attention", changes=ordered(lambda x, n, p: x + p[1](n[1](x))),
          said="attention is never reached: tokens do not see each other", change="x = x + attention(norm_1(x))"),
    Entry(key="block-one-residual", changes=ordered(lambda x, n, p: x + p[1](n[1](p[0](n[0](x))))),
          said="there is one residual around both parts, not one around each",
          change="x = x + attention(norm_1(x)); x = x + feed_forward(norm_2(x))"),
)  # fmt: skip

DECODERS = (
    Entry(key="gpt-no-last-norm", changes={"gpt.last": lambda do, x, gain, bias, eps: x},
          said="the norm after the last block is missing", change="logits = head(norm_last(x))"),
    Entry(key="gpt-softmax", changes={"gpt.head": lambda do, x, w, b: f.softmax(x @ w + b)},
          said="the model returns chances, not scores: cross-entropy will take a second softmax",
          change="return the logits: no softmax in the model"),
    Entry(key="gpt-log-softmax", changes={"gpt.head": lambda do, x, w, b: f.log_softmax(x @ w + b)},
          said="the model returns log-chances, not scores", change="return the logits as they are"),
    Entry(key="gpt-first-block-only", changes={"gpt.blocks": lambda do, n: [0] * n},
          said="the first block is used in the place of each", change="block_i for layer i: mind the loop's variable"),
    Entry(key="gpt-last-block-only", changes={"gpt.blocks": lambda do, n: [n - 1] * n},
          said="the last block is used in the place of each", change="block_i for layer i: mind the loop's variable"),
    Entry(key="gpt-last-block-lost", changes={"gpt.blocks": lambda do, n: range(n - 1)},
          said="the last block is left out", change="every block: mind the range"),
    Entry(key="gpt-first-block-lost", changes={"gpt.blocks": lambda do, n: range(1, n)},
          said="the first block is left out", change="every block: mind the range"),
    Entry(key="gpt-blocks-twice", changes={"gpt.blocks": lambda do, n: [i for i in range(n) for _ in (0, 1)]},
          said="every block is run twice", change="x = block(x), once"),
    Entry(key="gpt-last-norm-added", changes={"gpt.last": lambda do, x, *rest: x + do("norm", x, *rest)},
          said="the last norm is added to the stream, not taken of it", change="x = norm_last(x)"),
    Entry(key="gpt-blocks-reversed", changes={"gpt.blocks": lambda do, n: range(n)[::-1]},
          said="the blocks run from last to first", change="in order"),
    Entry(key="gpt-blocks-unheard", changes={"gpt.blocks": lambda do, n: ()},
          said="what the blocks say is lost: the head reads the embeddings",
          change="x = block(x): keep what comes out"),
    Entry(key="gpt-head-scaled", changes={"gpt.head": lambda do, x, w, b: (x @ w + b) / np.sqrt(x.shape[-1])},
          said="the logits are divided by sqrt(d_model)", change="logits = x @ W_head^T"),
    Entry(key="gpt-head-no-bias", changes={"gpt.head": lambda do, x, w, b: x @ w}, said="the head's bias is not used",
          change="x @ w + b"),
    Entry(key="gpt-first-norm",
          changes={"gpt.last": lambda do, x, *rest: do("norm", do("norm", x, *rest), *rest)},
          said="the last norm is taken twice", change="once, before the head"),
)  # fmt: skip

"""The exercises, in the order of the lessons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from plainformer.check import draws
from plainformer.check.topic import Topic
from plainformer.check.topics import TOPICS
from plainformer.faults import refuse
from plainformer.lessons import LESSONS, Lesson

WIDTH = 100  # columns of a blank


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One thing to write. `law`: in words; `steps`: whose lines are its formula; `example`: in place of some of the
    topic's example inputs; `code`: all but the words, in which ... stands for them; `settled`: what its words say of
    that which the topic leaves open."""

    topic: str
    name: str  # of the function or class
    lesson: int
    law: str
    steps: Sequence[str]
    code: str
    example: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)  # inputs by hand, and how they are called; none: all
    settled: Mapping[str, Any] = field(default_factory=dict)
    module: str = "numpy"

    @property
    def number(self) -> int:
        return EXERCISES.index(self) + 1

    @property
    def of(self) -> Topic:
        return TOPICS[self.topic]

    @property
    def judged_as(self) -> Topic:
        """Its topic as its words have it: what they settle is not open any more, and leading axes are met."""
        left = (replace(one, choices=(self.settled[one.name],)) if one.name in self.settled else one
                for one in self.of.open)  # fmt: skip
        return replace(self.of, open=tuple(left), ranks=self.of.ranks[:1])

    @property
    def read(self) -> Lesson:
        return next(lesson for lesson in LESSONS if lesson.number == self.lesson)


def function(signature: str) -> str:
    return f"def {signature}:\n    ...\n    raise NotImplementedError\n"


BLOCK = """class Block:
    ...

    def __init__(self, d_model, n_heads, d_ff=None, seed=0):
        rng, d_ff = np.random.default_rng(seed), d_ff or 4 * d_model
        self.n_heads = n_heads
        self.ln1_gain, self.ln1_bias = np.ones(d_model), np.zeros(d_model)
        self.W_q, self.W_k, self.W_v, self.W_o = rng.normal(0, 0.02, (4, d_model, d_model))
        self.b_q, self.b_k, self.b_v, self.b_o = np.zeros((4, d_model))
        self.ln2_gain, self.ln2_bias = np.ones(d_model), np.zeros(d_model)
        self.W1, self.b1 = rng.normal(0, 0.02, (d_model, d_ff)), np.zeros(d_ff)
        self.W2, self.b2 = rng.normal(0, 0.02, (d_ff, d_model)), np.zeros(d_model)

    def __call__(self, x):
        raise NotImplementedError
"""
GPT = """class GPT:
    ...

    def __init__(self, vocab_size, max_seq_len, d_model, n_heads, n_layers, seed=0):
        rng = np.random.default_rng(seed)
        self.wte = rng.normal(0, 0.02, (vocab_size, d_model))
        self.wpe = rng.normal(0, 0.02, (max_seq_len, d_model))
        self.blocks = [Block(d_model, n_heads, seed=seed + 1 + i) for i in range(n_layers)]
        self.ln_f_gain, self.ln_f_bias = np.ones(d_model), np.zeros(d_model)

    def __call__(self, ids):
        raise NotImplementedError
"""
SMALL = draws.small_gpt()
SILENT = {"attn.o.w": np.zeros((2, 2)), "mlp.down.w": np.zeros((3, 2))}
LAST_NORM_ALONE = {
    name: np.zeros_like(value) for name, value in SMALL.items() if name.startswith("block") and "ln" not in name
} | {"ids": np.array([2, 0]), "head.w": SMALL["wte"].T}  # fmt: skip
GROUPED = {
    "x": np.array([[1.0, 2.0]]), "q.w": np.eye(2), "k.w": np.array([[1.0], [0.0]]), "v.w": np.array([[0.0], [10.0]]),
    "o.w": np.eye(2), "n_heads": 2, "n_kv_heads": 1,
}  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (
    Exercise(topic="softmax", name="softmax", lesson=0, steps=("softmax", "softmax.shift"),
             law="Scores become shares: all above 0, each row's sum 1, whatever the scores' size. Any leading axes.",
             code=function("softmax(x)")),
    Exercise(topic="cross_entropy", name="cross_entropy", lesson=0, steps=("loss", "loss.log"),
             law="The mean surprise, in nats, at the tokens that came. logits (..., V), targets (...) whole numbers.",
             code=function("cross_entropy(logits, targets)")),
    Exercise(topic="layer_norm", name="layer_norm", lesson=1, steps=("norm.mean", "norm.variance", "norm"),
             law="Each token's numbers, centred and brought to one size, then stretched by gain and moved by bias. "
                 "x (..., D).",
             code=function("layer_norm(x, gain, bias, eps=1e-5)")),
    Exercise(topic="rms_norm", name="rms_norm", lesson=1, steps=("rms.read", "rms"),
             law="Each token's numbers brought to one size, not centred, then stretched by gain. x (..., D).",
             code=function("rms_norm(x, gain, eps=1e-6)")),
    Exercise(topic="gelu", name="gelu", lesson=1, steps=("act",),
             law="Large numbers pass, very negative ones become 0, and in between it is smooth. Either form.",
             code=function("gelu(x)")),
    Exercise(topic="feed_forward", name="feed_forward", lesson=1, steps=("ff",),
             law="Each token alone: to a greater width, through gelu, back. x (..., D), w_up (D, F), w_down (F, D).",
             code=function("feed_forward(x, w_up, b_up, w_down, b_down)")),
    Exercise(topic="may_see", name="may_see", lesson=2, steps=("attn.causal",),
             law="Who may see whom: True or False for each query and key. With fewer queries than keys, the queries "
                 "are the last tokens.",
             code=function("may_see(n_queries, n_keys)")),
    Exercise(topic="attention", name="attention", lesson=2, example={"causal": False, "allowed": np.tri(2) == 1},
             steps=("attn.scores", "attn.scale", "attn.mask", "attn.weights", "attn.mix"),
             law="Each query asks all keys that it may see, and gets the mean of their values, weighted by how well "
                 "they answer. q (..., T, d_head), k and v (..., S, d_head), allowed (T, S): True where it may see.",
             code=function("attention(q, k, v, allowed=None)"), settled={"mask_as": "true may be seen"},
             shown={"q": "q", "k": "k", "v": "v", "allowed": "allowed"}),
    Exercise(topic="multi_head_attention", name="multi_head_attention", lesson=2,
             steps=("heads.roles", "heads.split", "attention", "heads.join", "heads.out"),
             law="Several attentions side by side, each over its own part of the width, causal: a token sees itself "
                 "and earlier ones. x (..., T, D); matrices act as x @ w.",
             code=function("multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads)"), settled={"causal": True}),
    Exercise(topic="multi_head_attention", name="grouped_query_attention", lesson=2, steps=("heads.repeat", "heads"),
             law="The same with fewer heads of keys and values: each serves a group of neighbouring query heads. w_k "
                 "and w_v are (D, n_kv_heads * d_head).",
             code=function("grouped_query_attention(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads)"), example=GROUPED,
             settled={"causal": True}),
    Exercise(topic="rotary", name="rotary", lesson=3, steps=("rotary.frequencies", "rotary.turn"),
             law="Pairs of numbers turn, the further the later the token stands, so that a score depends on distance. "
                 "x (..., T, d_head), the first token at position start. Either way of pairing.",
             code=function("rotary(x, start=0, theta=10000.0)"), shown={"x": "x", "start": "start", "theta": "theta"}),
    Exercise(topic="block", name="Block", lesson=4, steps=("block", "block.norms"), code=BLOCK, example=SILENT,
             settled={"causal": True},
             law="Two parts, each read from a normed stream and added to it: attention (causal, biases too), then the "
                 "feed-forward with gelu. x (..., T, D). Use what you have written. Its weights keep their names.",
             shown={"x": "x", "attn.o.w": "W_o", "attn.o.b": "b_o", "mlp.down.w": "W2", "mlp.down.b": "b2"}),
    Exercise(topic="gpt", name="GPT", lesson=4, steps=("embed", "gpt"), code=GPT, example=LAST_NORM_ALONE,
             law="Token numbers (B, T) to logits (B, T, V): each position scores every next token. The head is the "
                 "token table, transposed. It is made of Block, of the exercise before. By hand, every block adds 0.",
             shown={"ids": "ids", "wte": "wte", "wpe": "wpe", "ln_f.gain": "ln_f_gain", "ln_f.bias": "ln_f_bias"}),
    Exercise(topic="count_gpt_parameters", name="count_gpt_parameters", lesson=5,
             steps=("count", "count.tables", "count.attention", "count.feed_forward", "count.norms", "count.last"),
             law="Every number that such a GPT learns, with biases in every matrix and both parts of every norm.",
             code=function("count_gpt_parameters(vocab_size, max_seq_len, d_model, n_layers, d_ff)")),
    Exercise(topic="top_k_gates", name="top_k_gates", lesson=6, steps=("gates", "gates.choose"),
             law="Of many experts a token meets k; their shares sum to 1, the others get 0. scores (T, E).",
             code=function("top_k_gates(scores, k)")),
    Exercise(topic="balance_loss", name="balance_loss", lesson=6,
             steps=("balance", "balance.share", "balance.given"),
             law="How uneven the traffic is: 1 where every expert gets as much, more where few get all. scores (T, E).",
             code=function("balance_loss(scores, k)")),
    Exercise(topic="layer_norm_grad", name="layer_norm_grad", lesson=8, steps=("norm.divide", "norm.affine"),
             law="The way back: (dx, dgain, dbias) from upstream, the slope of the loss by y. Mean and spread depend "
                 "on x too. x and upstream (T, D).",
             code=function("layer_norm_grad(x, gain, bias, eps, upstream)")),
    Exercise(topic="adamw_step", name="adamw_step", lesson=9,
             steps=("adamw.first", "adamw.second", "adamw.correct", "adamw"),
             law="Each weight by a step of about lr, whatever its gradient's size, and a little nearer to 0. Returns "
                 "the new (w, m, v); t is 1 at the first step.",
             code=function("adamw_step(w, grad, m, v, t, lr, beta1, beta2, eps, weight_decay)")),
    Exercise(topic="cached_attention", name="cached_attention", lesson=10, steps=("cached",),
             law="Generation without doing work twice: new tokens over kept keys and values and their own. "
                 "Causal among the new ones.",
             code=function("cached_attention(q, k, v, past_k, past_v)")),
    Exercise(topic="probabilities", name="probabilities", lesson=10,
             steps=("sample.temperature", "sample.top_k", "sample.top_p"),
             law="What a next token is drawn from. logits (B, V), or (V,).",
             code=function("probabilities(logits, temperature=1.0, top_k=None, top_p=1.0)"), example={"top_k": 3}),
    Exercise(topic="train_on_batch", name="train_on_batch", lesson=9, steps=("next", "loss"), module="torch",
             law="A new GPT of any size, in PyTorch, learns one batch by heart: tokens (B, T), n_steps updates. "
                 "Returns (losses, logits): the loss before each step, then the logits of asked (N, T). By hand: "
                 "before any step the loss is near ln(vocab_size).",
             code=function("train_on_batch(tokens, asked, vocab_size, n_steps)"), shown={"vocab_size": "vocab_size"}),
)  # fmt: skip


def found(asked: str) -> Exercise:
    """An exercise by its number or its name. Raises PlainformerError for one that is not there."""
    for number, one in enumerate(EXERCISES, 1):
        if asked in (str(number), one.name):
            return one
    raise refuse("exercise", asked, f"there are 1 to {len(EXERCISES)}", "plainformer exercise shows them")

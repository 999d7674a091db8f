"""More steps: who may see whom, a GPT's parameters counted, an update of AdamW."""

from __future__ import annotations

import numpy as np

from plainformer.check.steps import STEPS as STEPS
from plainformer.check.steps import Array, Doing, step

# --- who may see whom, as an answer of its own ------------------------------------------------------------------------


@step("see", "1 where a query may see a key, 0 where it may not")
def _(do: Doing, n_queries: int, n_keys: int) -> Array:
    return do("attn.see", n_queries, n_keys, True) * 1.0


# --- counting: V vocabulary, T positions, D width, F feed-forward, L layers; biases everywhere, the head tied ---------


@step("count", "tables + L * (attention + feed-forward + two norms) + last norm")
def _(do: Doing, vocab: int, context: int, width: int, n_layers: int, d_ff: int) -> int:
    block: int = do("count.attention", width) + do("count.feed_forward", width, d_ff) + do("count.norms", width)
    return int(
        do("count.tables", vocab, context, width) + do("count.layers", n_layers, block) + do("count.last", width)
    )


@step("count.tables", "V D tokens, T D positions; a tied head is the token table again and adds nothing")
def _(do: Doing, vocab: int, context: int, width: int) -> int:
    return (vocab + context) * width


@step("count.layers", "L blocks, each with weights of its own")
def _(do: Doing, n_layers: int, block: int) -> int:
    return n_layers * block


@step("count.attention", "four matrices D x D and their four biases: 4 D^2 + 4 D, whatever the number of heads")
def _(do: Doing, width: int) -> int:
    return 4 * width**2 + 4 * width


@step("count.feed_forward", "two matrices D x F and F x D, biases F and D: 2 D F + F + D")
def _(do: Doing, width: int, d_ff: int) -> int:
    return 2 * width * d_ff + d_ff + width


@step("count.norms", "two norms a block, gain and bias each: 4 D")
def _(do: Doing, width: int) -> int:
    return 4 * width


@step("count.last", "the norm after the last block, gain and bias: 2 D")
def _(do: Doing, width: int) -> int:
    return 2 * width


# --- AdamW (Loshchilov and Hutter 2019, algorithm 2) -----------------------------------------------------------------


@step("adamw", "w = w (1 - lr * decay) - lr * m' / (sqrt(v') + eps)")
def _(do: Doing, w: Array, grad: Array, m: Array, v: Array, t: int, lr: float, betas: Array, eps: float, decay: float
      ) -> Array:  # fmt: skip
    grad = do("adamw.gradient", grad, w, decay)
    one, two = do("adamw.betas", betas)
    m, v = do("adamw.first", m, grad, one), do("adamw.second", v, grad, two)
    moved = do("adamw.move", do("adamw.correct", m, one, t), do("adamw.correct", v, two, t), eps)
    return np.concatenate([np.ravel(x) for x in (do("adamw.take", do("adamw.decay", w, lr, decay), moved, lr), m, v)])


@step("adamw.gradient", "the gradient of the loss alone: the decay is no part of it")
def _(do: Doing, grad: Array, w: Array, decay: float) -> Array:
    return grad


@step("adamw.betas", "beta1 for the mean of gradients, beta2 for the mean of their squares")
def _(do: Doing, betas: Array) -> Array:
    return betas


@step("adamw.first", "m = beta1 * m + (1 - beta1) * g")
def _(do: Doing, m: Array, grad: Array, beta: float) -> Array:
    return beta * m + (1 - beta) * grad


@step("adamw.second", "v = beta2 * v + (1 - beta2) * g^2")
def _(do: Doing, v: Array, grad: Array, beta: float) -> Array:
    return beta * v + (1 - beta) * grad**2


@step("adamw.correct", "m' = m / (1 - beta1^t), v' = v / (1 - beta2^t), t = 1 at the first step")
def _(do: Doing, mean: Array, beta: float, t: int) -> Array:
    return mean / (1 - beta**t)


@step("adamw.move", "m' / (sqrt(v') + eps)")
def _(do: Doing, m: Array, v: Array, eps: float) -> Array:
    return m / (np.sqrt(v) + eps)


@step("adamw.decay", "w shrinks by lr * decay of itself")
def _(do: Doing, w: Array, lr: float, decay: float) -> Array:
    return w * (1 - lr * decay)


@step("adamw.take", "w goes against the gradient, by lr")
def _(do: Doing, w: Array, moved: Array, lr: float) -> Array:
    return w - lr * moved

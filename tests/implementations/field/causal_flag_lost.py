"""keras, pull request 23040 (and xformers, issue 103): where no mask is given, the causal flag is not looked at."""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def attention(q, k, v, is_causal=False):
    mask = None
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if mask is not None and is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool) & mask, scores, -np.inf)
    return softmax(scores) @ v

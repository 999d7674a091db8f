"""TinyLLM, pull request 18: with a cache there is no mask, and a prompt sees its own future."""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def attention_with_cache(q, k, v, past_k=None, past_v=None):
    cached = past_k is not None
    if cached:
        k, v = np.concatenate((past_k, k), axis=-2), np.concatenate((past_v, v), axis=-2)
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if not cached:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    return softmax(scores) @ v

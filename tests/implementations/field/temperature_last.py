"""mlx-audio, issue 732 (and fish-speech 1150): the nucleus is cut before the temperature is applied."""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def next_token_probs(logits, temperature=1.0, top_k=None, top_p=1.0):
    return np.stack([of_row(row, temperature, top_k, top_p) for row in np.atleast_2d(logits)]).reshape(logits.shape)


def of_row(row, temperature, top_k, top_p):
    order = np.argsort(-row, kind="stable")
    p = softmax(row[order])
    if top_k is not None:
        p[top_k:] = 0
        p = p / p.sum()
    kept = p.cumsum() - p < top_p
    p = softmax(np.where(kept & (p > 0), row[order] / temperature, -np.inf))
    out = np.zeros_like(p)
    out[order] = p
    return out

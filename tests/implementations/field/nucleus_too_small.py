"""C2C, pull request 21 (and esm 360): the token that crosses top_p is dropped, the first one kept."""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def next_token_probs(logits, temperature=1.0, top_k=None, top_p=1.0):
    return np.stack([of_row(row, temperature, top_k, top_p) for row in np.atleast_2d(logits)]).reshape(logits.shape)


def of_row(row, temperature, top_k, top_p):
    order = np.argsort(-row, kind="stable")
    p = softmax(row[order] / temperature)
    p[top_k or len(p) :] = 0
    p = p / p.sum()
    kept = p.cumsum() <= top_p
    kept[0] = True
    p = p * kept
    out = np.zeros_like(p)
    out[order] = p / p.sum()
    return out

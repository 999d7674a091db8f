"""minGPT, issue 10: what is not among the top k becomes 1e-10, a small score, not a very negative one."""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def next_token_probs(logits, temperature=1.0, top_k=None, top_p=1.0):
    return np.stack([of_row(row, temperature, top_k, top_p) for row in np.atleast_2d(logits)]).reshape(logits.shape)


def of_row(row, temperature, top_k, top_p):
    row = row / temperature
    if top_k is not None:
        row = np.where(row < np.sort(row)[-top_k], 1e-10, row)
    p = softmax(row)
    order = np.argsort(-p, kind="stable")
    best = p[order] * (p[order].cumsum() - p[order] < top_p)
    out = np.zeros_like(p)
    out[order] = best / best.sum()
    return out

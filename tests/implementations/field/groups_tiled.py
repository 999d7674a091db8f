"""jax-js, pull request 180 (and onnx 7274): kv heads are tiled 0 1 0 1, not repeated 0 0 1 1."""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def grouped_query_attention(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads):
    *lead, t, width = x.shape
    d_head = width // n_heads

    def split(y, n):
        return y.reshape(*lead, t, n, d_head).swapaxes(-2, -3)

    q, k, v = split(x @ w_q, n_heads), split(x @ w_k, n_kv_heads), split(x @ w_v, n_kv_heads)
    k, v = (np.concatenate([one] * (n_heads // n_kv_heads), axis=-3) for one in (k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(d_head)
    seen = softmax(np.where(np.tri(t, dtype=bool), scores, -np.inf)) @ v
    return seen.swapaxes(-2, -3).reshape(*lead, t, width) @ w_o

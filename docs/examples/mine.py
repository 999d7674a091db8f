"""A layer norm and attention as somebody might write them, with a mistake in each: `plainformer check` names them."""

import numpy as np


def layer_norm(x, gain, bias, eps=1e-5):
    centred = x - x.mean(-1, keepdims=True)
    spread = np.sqrt(x.var(-1, keepdims=True, ddof=1) + eps)
    return centred / spread * gain + bias


def attention(q, k, v, mask):
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(mask, scores, 0)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v

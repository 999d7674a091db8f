"""transformers, pull request 45111: the router gives probabilities, and the loss takes their softmax again."""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def load_balancing_loss(router_logits, top_k):
    n_tokens, n_experts = router_logits.shape
    probs = softmax(router_logits)
    best = np.argsort(-router_logits, axis=-1, kind="stable")[:, :top_k]
    chosen = np.zeros_like(probs)
    np.put_along_axis(chosen, best, 1.0, axis=-1)
    share, mean = chosen.mean(axis=0) / top_k, softmax(probs).mean(axis=0)
    return n_experts * (share * mean).sum()

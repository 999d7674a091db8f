"""transformers, issue 27517: logits are held against the token that they were given."""

import numpy as np


def cross_entropy(logits, targets):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(log_p, targets[..., None], axis=-1).mean()


def causal_lm_loss(logits, labels):
    return cross_entropy(logits, labels)

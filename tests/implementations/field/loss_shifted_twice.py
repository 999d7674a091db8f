"""transformers, pull request 37830 (and 47395, 46895): shifted by the model, then by the loss."""

import numpy as np


def cross_entropy(logits, targets):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(log_p, targets[..., None], axis=-1).mean()


def causal_lm_loss(logits, labels):
    logits, labels = logits[..., :-1, :], labels[..., 1:]
    return cross_entropy(logits[..., :-1, :], labels[..., 1:])

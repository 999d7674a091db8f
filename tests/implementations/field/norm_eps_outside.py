"""burn, issue 2185 (and pytorch-transformer, pull request 31): eps is added to the root, not under it."""

import numpy as np


def layer_norm(x, gamma, beta, eps=1e-5):
    return (x - x.mean(-1, keepdims=True)) / (np.sqrt(x.var(-1, keepdims=True)) + eps) * gamma + beta

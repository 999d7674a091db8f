"""executorch, pull request 2010 (and rotary-embedding-torch, issue 11): with a cache new tokens turn as if at 0."""

import numpy as np


def apply_rotary(x, start_pos, theta=10000.0):
    n_tokens, width = x.shape[-2:]
    table = np.outer(np.arange(4096), theta ** (-np.arange(0, width, 2) / width))
    cos, sin = np.cos(table[:n_tokens]), np.sin(table[:n_tokens])
    even, odd = x[..., 0::2], x[..., 1::2]
    return np.stack((even * cos - odd * sin, even * sin + odd * cos), axis=-1).reshape(x.shape)

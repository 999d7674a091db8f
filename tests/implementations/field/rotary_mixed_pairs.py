"""how-to-train-your-gpt, pull request 7: frequencies laid out for neighbours, numbers turned as halves."""

import numpy as np


def rotate_half(x):
    half = x.shape[-1] // 2
    return np.concatenate((-x[..., half:], x[..., :half]), axis=-1)


def rotary(x, base=10000.0):
    n_tokens, width = x.shape[-2:]
    angle = np.outer(np.arange(n_tokens), base ** (-np.arange(0, width, 2) / width))
    angle = np.repeat(angle, 2, axis=-1)
    return x * np.cos(angle) + rotate_half(x) * np.sin(angle)

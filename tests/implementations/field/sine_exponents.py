"""WaveGrad, issue 12: base and exponent are in each other's place."""

import numpy as np


def positional_encoding(max_len, d_model):
    position = np.arange(max_len)[:, None]
    rate = (np.arange(0, d_model, 2) / d_model) ** 1e-4
    table = np.zeros((max_len, d_model))
    table[:, 0::2] = np.sin(position * rate)
    table[:, 1::2] = np.cos(position * rate)
    return table

"""DeepCTR, issue 379: each column has a frequency of its own; sine and cosine are no pairs."""

import numpy as np


def positional_encoding(max_len, d_model):
    position = np.arange(max_len)[:, None]
    rate = 10000.0 ** (-2 * np.arange(d_model) / d_model)
    table = np.zeros((max_len, d_model))
    table[:, 0::2] = np.sin(position * rate[0::2])
    table[:, 1::2] = np.cos(position * rate[1::2])
    return table

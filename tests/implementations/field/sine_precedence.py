"""LoFTR, issue 41: a / b // 2 is (a / b) // 2."""

import numpy as np


def positional_encoding(max_len, d_model):
    position = np.arange(max_len)[:, None]
    rate = np.exp(np.arange(0, d_model, 2) * (-np.log(10000.0) / d_model // 2))
    table = np.zeros((max_len, d_model))
    table[:, 0::2] = np.sin(position * rate)
    table[:, 1::2] = np.cos(position * rate)
    return table

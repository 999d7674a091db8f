"""annotated_deep_learning_paper_implementations, issue 146 (and llms-from-scratch-rs 30):
the softmax is over the queries.
"""

import numpy as np


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def attention(query, key, value):
    scores = np.einsum("...id,...jd->...ij", query, key) * query.shape[-1] ** -0.5
    return np.einsum("...ij,...jd->...id", softmax(scores, axis=-2), value)

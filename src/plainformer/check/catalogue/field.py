"""Mistakes that public code had and the other tables had not."""

from __future__ import annotations

import numpy as np

from plainformer import formulas as f
from plainformer.check.catalogue.entry import Entry
from plainformer.check.steps import Array, Doing


def each_column(do: Doing, n_tokens: int, width: int) -> Array:
    angle = do("sinusoids.positions", n_tokens)[:, None] * 10000.0 ** (-2 * np.arange(width) / width)
    return np.where(np.arange(width) % 2, np.cos(angle), np.sin(angle))


FIELD = (
    Entry(key="balance-softmax-twice", changes={"balance.given": lambda do, s, k: f.softmax(f.softmax(s)).mean(0)},
          said="P is of a softmax of a softmax: what the router gives is probabilities already",
          change="one softmax, of the router's raw scores"),
    Entry(key="balance-given-of-chosen",
          changes={"balance.given": lambda do, s, k: (f.softmax(s) * do("gates.choose", s, k)).mean(0)},
          said="P counts a token's chances for its chosen experts alone", change="softmax over all experts, mean over "
          "all tokens"),
    Entry(key="norm-spread-squared", changes={"norm.spread": lambda do, variance, eps: (variance + eps) ** 2},
          said="the variance is squared where its root is meant", change="(variance + eps) ** 0.5"),
    Entry(key="sinusoids-base-and-exponent",
          changes={"sinusoids.frequencies": lambda do, width: (np.arange(0, width, 2) / width) ** 1e-4},
          said="base and exponent are in each other's place", change="1e-4 ** (2p / width), or 10000 ** (-2p / width)"),
    Entry(key="sinusoids-floored", changes={
        "sinusoids.frequencies": lambda do, width: np.exp(np.arange(0, width, 2) * (-np.log(10000.0) / width // 2))},
          said="the exponent is rounded down to a whole number: a / b // 2 is (a / b) // 2",
          change="-ln(10000) / width, in brackets where it is halved"),
    Entry(key="sinusoids-each-column", changes={"sinusoids": each_column}, where="sinusoids",
          said="each column has a frequency of its own: sine and cosine are no pairs",
          change="columns 2p and 2p + 1 share 10000 ** (-2p / width)"),
)  # fmt: skip

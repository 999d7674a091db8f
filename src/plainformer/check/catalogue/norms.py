"""Mistakes in norms and activations."""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np

from plainformer import formulas as f
from plainformer.check.catalogue.entry import Entry
from plainformer.check.steps import Array, Doing, Step, last

OTHER_AXIS = {"x": np.array([[1.0, 2.0], [3.0, 6.0]])}


def norm_along(axis: Any) -> Step:
    def norm(do: Doing, x: Array, gain: Array, bias: Array, eps: float) -> Array:
        axes = axis(x.ndim) if callable(axis) else axis
        centred = x - x.mean(axes, keepdims=True)
        return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + eps) * gain + bias

    return norm


def scaled_by(wrong: Step) -> dict[str, Step]:
    return {"act": lambda do, x, kind: wrong(np.asarray(x, np.float64))}


def erf(x: Array) -> Array:
    """2 Phi(x sqrt 2) - 1, by the exact GELU: gelu(y) = y Phi(y)."""
    y = np.where(x == 0, 1.0, x) * sqrt(2)
    return np.where(x == 0, 0.0, 2 * f.gelu(y) / y - 1)


def tanh_form(inner: Step) -> Step:
    return lambda x: x / 2 * (1 + np.tanh(inner(x)))


ROOT = sqrt(2 / pi)
ONE = np.array([[1.0, 2.0, 3.0, 6.0]])

NORMS = (
    Entry(
        key="norm-unbiased",
        changes={"norm.variance": lambda do, x: last((x - last(x)) ** 2, "sum") / max(x.shape[-1] - 1, 1)},
        said="the variance is divided by n - 1, not by n",
        change="torch's var and std divide by n - 1 unless told: x.var(-1, unbiased=False); NumPy's take ddof=0",
    ),
    Entry(
        key="norm-eps-outside",
        changes={"norm.spread": lambda do, variance, eps: np.sqrt(variance) + eps},
        said="eps is added to the root, not under it",
        change="sqrt(variance + eps), not sqrt(variance) + eps: it shows where a row hardly varies",
        example={"x": np.array([[0.0, 0.002]]), "gain": 1.0, "bias": 0.0},
    ),
    Entry(
        key="norm-no-eps",
        changes={"norm.spread": lambda do, variance, eps: np.sqrt(variance)},
        said="no eps under the root: a row that does not vary divides 0 by 0",
        change="sqrt(variance + eps), eps = 1e-5",
        example={"x": np.array([[0.0, 0.002]]), "gain": 1.0, "bias": 0.0},
    ),
    Entry(
        key="norm-eps-fixed",
        changes={"norm.spread": lambda do, variance, eps: np.sqrt(variance + 1e-5)},
        said="the eps that is given is not used: it is always 1e-5",
        change="sqrt(variance + eps)",
        example={"x": np.array([[0.0, 0.002]]), "gain": 1.0, "bias": 0.0, "eps": 1e-3},
    ),
    Entry(
        key="norm-eps-large",
        changes={"norm.spread": lambda do, variance, eps: np.sqrt(variance + 1e-3)},
        said="eps is 1e-3: a hundred times what is usual",
        change="eps = 1e-5",
        example={"x": np.array([[0.0, 0.02]]), "gain": 1.0, "bias": 0.0},
    ),
    Entry(
        key="norm-no-root",
        changes={"norm.spread": lambda do, variance, eps: variance + eps},
        said="the row is divided by its variance, not by the root of it",
        change="divide by sqrt(variance + eps)",
    ),
    Entry(
        key="norm-across-tokens",
        changes={"norm": norm_along(-2)},
        said="mean and variance are taken along the tokens, not along the width",
        change="mean and variance along the last axis: axis=-1, dim=-1, keepdim",
        example=OTHER_AXIS,
    ),
    Entry(
        key="norm-over-all",
        changes={"norm": norm_along(None)},
        said="one mean and variance is taken over the whole array, not one for each row",
        change="mean and variance along the last axis alone, kept as an axis of 1",
        example=OTHER_AXIS,
    ),
    Entry(
        key="norm-over-row-of-tokens",
        changes={"norm": norm_along(lambda rank: tuple(range(1, rank)))},
        said="mean and variance are taken over all axes but the first: tokens of a row share them",
        change="mean and variance along the last axis alone",
        example={"x": np.array([[[1.0, 2.0], [3.0, 6.0]]])},
    ),
    Entry(
        key="norm-along-first",
        changes={"norm": norm_along(0)},
        said="mean and variance are taken along the first axis, not along the width",
        change="mean and variance along the last axis: axis=-1, dim=-1, keepdim",
        example={"x": np.array([[[1.0, 2.0], [3.0, 6.0]], [[5.0, 0.0], [0.0, 0.0]]])},
    ),
    Entry(
        key="norm-over-batch",
        changes={"norm": norm_along(lambda rank: tuple(range(rank - 1)))},
        said="mean and variance are taken over the batch, as a batch norm does",
        change="mean and variance along the last axis: each token for itself",
        example={"x": np.array([[[1.0, 2.0], [3.0, 6.0]], [[5.0, 0.0], [0.0, 0.0]]])},
    ),
    Entry(
        key="norm-not-centred",
        changes={"norm.centre": lambda do, x, mean: x},
        said="the mean is not taken away before the division",
        change="(x - mean) / spread",
    ),
    Entry(
        key="norm-not-divided",
        changes={"norm.divide": lambda do, centred, spread: centred},
        said="the mean is taken away, but nothing is divided by the spread",
        change="divide by sqrt(variance + eps)",
    ),
    Entry(
        key="norm-multiplied",
        changes={"norm.divide": lambda do, centred, spread: centred * spread},
        said="the row is multiplied by its spread, not divided",
        change="centred / spread; with rsqrt: centred * rsqrt(variance + eps)",
    ),
    Entry(
        key="norm-no-gain",
        changes={"norm.affine": lambda do, normed, gain, bias: normed + bias},
        said="the gain is not used",
        change="normed * gain + bias",
    ),
    Entry(
        key="norm-no-bias",
        changes={"norm.affine": lambda do, normed, gain, bias: normed * gain},
        said="the bias is not used",
        change="normed * gain + bias",
    ),
    Entry(
        key="norm-bias-first",
        changes={"norm.affine": lambda do, normed, gain, bias: (normed + bias) * gain},
        said="the bias is added before the gain multiplies, not after",
        change="normed * gain + bias",
    ),
    Entry(
        key="norm-bias-taken-away",
        changes={"norm.affine": lambda do, normed, gain, bias: normed * gain - bias},
        said="the bias is taken away, not added",
        change="normed * gain + bias",
    ),
    Entry(
        key="norm-one-variance",
        changes={"norm.variance": lambda do, x: np.mean((x - last(x)) ** 2)},
        said="one variance is taken over the whole array, though each row has its own mean",
        change="the variance along the last axis too, kept as an axis of 1",
        example=OTHER_AXIS,
    ),
    Entry(
        key="norm-gain-plus-one",
        changes={"norm.affine": lambda do, normed, gain, bias: normed * (1 + gain) + bias},
        said="1 is added to the gain, as in Gemma",
        change="normed * gain + bias; a gain that begins at 1 is multiplied as it is",
    ),
    Entry(
        key="norm-gain-for-bias",
        changes={"norm.affine": lambda do, normed, gain, bias: normed * bias + gain},
        said="gain and bias have changed places",
        change="normed * gain + bias: the gain begins at 1, the bias at 0",
    ),
    Entry(
        key="norm-no-affine",
        changes={"norm.affine": lambda do, normed, gain, bias: normed},
        said="neither gain nor bias is used",
        change="normed * gain + bias",
    ),
    Entry(
        key="norm-mean-distance",
        changes={
            "norm.spread": lambda do, variance, eps: variance + eps,
            "norm.variance": lambda do, x: last(np.abs(x - last(x))),
        },
        said="the spread is the mean distance from the mean, not the root of the mean square",
        change="sqrt(mean((x - mean)^2) + eps)",
    ),
    Entry(
        key="norm-mean-square",
        changes={"norm.variance": lambda do, x: last(x**2)},
        said="the variance is the mean of x^2: the mean was not taken away from it",
        change="mean((x - mean)^2), or mean(x^2) - mean^2",
    ),
    Entry(
        key="norm-sum",
        changes={"norm.variance": lambda do, x: last((x - last(x)) ** 2, "sum")},
        said="the squares are summed, not averaged: the row gets length 1, not variance 1",
        change="the mean of (x - mean)^2, not its sum",
    ),
    Entry(
        key="rms-centred",
        changes={"rms.read": lambda do, x: x - last(x)},
        said="the mean is taken away: that is a layer norm, an RMS norm does not centre",
        change="x / sqrt(mean(x^2) + eps), x as it is",
    ),
    Entry(
        key="rms-sum",
        changes={"rms.square": lambda do, x: last(x**2, "sum")},
        said="the squares are summed, not averaged",
        change="the mean of x^2, not its sum",
    ),
    Entry(
        key="rms-no-root",
        changes={"rms.spread": lambda do, square, eps: square + eps},
        said="x is divided by the mean square, not by the root of it",
        change="divide by sqrt(mean(x^2) + eps)",
    ),
    Entry(
        key="rms-eps-outside",
        changes={"rms.spread": lambda do, square, eps: np.sqrt(square) + eps},
        said="eps is added to the root, not under it",
        change="sqrt(mean(x^2) + eps)",
        example={"x": np.array([[0.001, 0.002]]), "gain": 1.0},
    ),
    Entry(
        key="rms-eps-fixed",
        changes={"rms.spread": lambda do, square, eps: np.sqrt(square + 1e-6)},
        said="the eps that is given is not used: it is always 1e-6",
        change="sqrt(mean(x^2) + eps)",
        example={"x": np.array([[0.001, 0.002]]), "gain": 1.0, "eps": 1e-3},
    ),
    Entry(
        key="rms-no-eps",
        changes={"rms.spread": lambda do, square, eps: np.sqrt(square)},
        said="no eps under the root: a row of zeros divides 0 by 0",
        change="sqrt(mean(x^2) + eps)",
        example={"x": np.array([[0.001, 0.002]]), "gain": 1.0},
    ),
    Entry(
        key="rms-variance",
        changes={"rms.square": lambda do, x: last((x - last(x)) ** 2)},
        said="x is divided by its standard deviation: the mean square is taken about the mean",
        change="mean(x^2), x as it is: no var and no std",
    ),
    Entry(
        key="rms-absolute",
        changes={"rms.spread": lambda do, square, eps: square + eps, "rms.square": lambda do, x: last(np.abs(x))},
        said="x is divided by the mean of |x|, not by the root of the mean square",
        change="sqrt(mean(x^2) + eps)",
    ),
    Entry(
        key="rms-gain-plus-one",
        changes={"rms.gain": lambda do, normed, gain: normed * (1 + gain)},
        said="1 is added to the gain, as in Gemma",
        change="normed * gain",
    ),
    Entry(
        key="rms-no-gain",
        changes={"rms.gain": lambda do, normed, gain: normed},
        said="the gain is not used",
        change="normed * gain",
    ),
    Entry(
        key="rms-across-tokens",
        changes={"rms.square": lambda do, x: last(x**2, axis=-2)},
        said="the mean square is taken along the tokens, not along the width",
        change="mean along the last axis: axis=-1, kept as an axis of 1",
        example=OTHER_AXIS,
    ),
    Entry(
        key="rms-over-all",
        changes={"rms.square": lambda do, x: last(x**2, axis=None)},
        said="one mean square is taken over the whole array, not one for each row",
        change="mean along the last axis alone, kept as an axis of 1",
        example=OTHER_AXIS,
    ),
)

ACTIVATIONS = (
    Entry(key="act-relu", changes=scaled_by(f.relu), said="the activation is ReLU, not GELU",
          change="gelu(x); ReLU is the 2017 layout's: if that was asked, this is right"),
    Entry(key="act-silu", changes=scaled_by(f.silu), said="the activation is SiLU, x * sigmoid(x), not GELU",
          change="gelu(x); SiLU belongs to a gated feed-forward"),
    Entry(key="act-sigmoid-1702", changes=scaled_by(lambda x: x * f.sigmoid(1.702 * x)),
          said="the activation is x * sigmoid(1.702 x), the quick form, not GELU",
          change="the erf form, or GPT-2's tanh form"),
    Entry(key="act-no-cube", changes=scaled_by(tanh_form(lambda x: ROOT * x)),
          said="the tanh form lacks its cube: 0.044715 x^3", change="tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))"),
    Entry(key="act-square", changes=scaled_by(tanh_form(lambda x: ROOT * (x + 0.044715 * x**2))),
          said="the tanh form has x^2 where x^3 belongs", change="x + 0.044715 * x**3"),
    Entry(key="act-constant", changes=scaled_by(tanh_form(lambda x: ROOT * (x + 0.44715 * x**3))),
          said="the constant is 0.44715, a zero short of 0.044715", change="x + 0.044715 * x**3"),
    Entry(key="act-no-root", changes=scaled_by(tanh_form(lambda x: 2 / pi * (x + 0.044715 * x**3))),
          said="2 / pi stands without its root", change="sqrt(2 / pi) * (x + 0.044715 * x**3)"),
    Entry(key="act-pi-over-2", changes=scaled_by(tanh_form(lambda x: sqrt(pi / 2) * (x + 0.044715 * x**3))),
          said="pi / 2 stands under the root, not 2 / pi", change="sqrt(2 / pi) * (x + 0.044715 * x**3)"),
    Entry(key="act-cube-outside", changes=scaled_by(tanh_form(lambda x: ROOT * x + 0.044715 * x**3)),
          said="sqrt(2 / pi) multiplies x alone, not the cube too",
          change="sqrt(2 / pi) * (x + 0.044715 * x**3): mind the brackets"),
    Entry(key="act-erf-scale", changes=scaled_by(lambda x: x / 2 * (1 + erf(x))),
          said="erf reads x, not x / sqrt(2)", change="x / 2 * (1 + erf(x / sqrt(2)))"),
    Entry(key="act-erf-multiplied", changes=scaled_by(lambda x: x / 2 * (1 + erf(x * sqrt(2)))),
          said="erf reads x * sqrt(2), not x / sqrt(2)", change="x / 2 * (1 + erf(x / sqrt(2)))"),
    Entry(key="act-two-roots", changes=scaled_by(tanh_form(lambda x: sqrt(2) / pi * (x + 0.044715 * x**3))),
          said="sqrt(2) / pi stands where sqrt(2 / pi) belongs", change="sqrt(2 / pi): the root of both"),
    Entry(key="act-small-constant", changes=scaled_by(tanh_form(lambda x: ROOT * (x + 0.0044715 * x**3))),
          said="the constant is 0.0044715, a zero more than 0.044715", change="x + 0.044715 * x**3"),
    Entry(key="act-no-half", changes=scaled_by(lambda x: 2 * f.gelu(x)), said="the half is missing",
          change="0.5 * x * (1 + ...)"),
    Entry(key="act-no-half-tanh", changes=scaled_by(lambda x: 2 * f.gelu_tanh(x)),
          said="the half is missing (tanh form)", change="0.5 * x * (1 + ...)"),
    Entry(key="act-phi", changes=scaled_by(lambda x: (1 + erf(x / sqrt(2))) / 2),
          said="this is Phi(x) alone: x itself does not multiply", change="x * Phi(x)"),
    Entry(key="act-tanh", changes=scaled_by(np.tanh), said="the activation is tanh, not GELU", change="gelu(x)"),
    Entry(key="act-sigmoid", changes=scaled_by(f.sigmoid), said="the activation is a sigmoid, not GELU",
          change="gelu(x); x * sigmoid(x) is SiLU"),
    Entry(key="act-leaky", changes=scaled_by(lambda x: np.where(x > 0, x, 0.01 * x)),
          said="the activation is a leaky ReLU, not GELU", change="gelu(x)"),
)  # fmt: skip

SLOPES = (
    Entry(key="slope-spread", frozen=("norm.spread",), where="layer_norm_grad",
          said="the gradient takes the spread for a constant",
          change="let it flow through the variance too: no detach(), no .data, no no_grad() about the spread"),
    Entry(key="slope-mean", frozen=("norm.mean",), where="layer_norm_grad",
          said="the gradient takes the mean for a constant",
          change="let it flow through the mean too: its part is -1/n of the sum of the others"),
    Entry(key="slope-mean-and-spread", frozen=("norm.mean", "norm.spread"), where="layer_norm_grad",
          said="the gradient takes mean and spread for constants: dx = gain * upstream / spread",
          change="let it flow through both: dx = (g - mean(g) - y * mean(g * y)) / spread, g = gain * upstream"),
    Entry(key="slope-rms", frozen=("rms.spread",), where="rms_norm",
          said="the gradient takes the root mean square for a constant",
          change="let it flow through the root too: no detach() about it"),
)  # fmt: skip

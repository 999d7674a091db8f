"""L2, gradients: the model's are the slopes of the reference's loss, for every tiny family and array of weights.

B rows, T positions, V vocabulary.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from laws import double, heard, source_of
from plainformer import formulas, reference
from plainformer import spec as s
from plainformer.model import Transformer
from specs import ENCODERS, PAIRS, TINY, arrays_of, spec_of, tokens_of

SMALL = [
    *("gpt2-lora", "gpt2-post-norm", "opt-narrow", "neox", "llama-yarn", "gemma2", "olmo2", "qwen2-moe", "gpt-oss"),
    *("alibi", "distances-in-buckets", "deepseek-v3", "one-layer-for-all", "bert", "bert-mean", "albert", "bart", "t5"),
]
REST = [name for name in [*TINY, *ENCODERS, *PAIRS] if name not in SMALL]
SEEDS = [str(seed) for seed in range(60)]
in_proof = [pytest.param(name, marks=pytest.mark.proof) for name in [*REST, *SEEDS]]
BY = 1e-5


def asked(spec: s.Spec) -> tuple[np.ndarray, np.ndarray]:
    """(a direction for the answer, tokens): the loss is the answer's product with it, so that every logit counts."""
    rng, tokens_T = np.random.default_rng(3), tokens_of(spec, 1, 6)[0]
    return rng.normal(size=reference.logits(spec, arrays_of(spec), tokens_T, source_S=source(spec)).shape), tokens_T


def source(spec: s.Spec) -> np.ndarray | None:
    found = source_of(spec, 1)
    return None if found is None else found[0]


def loss_of(spec: s.Spec, arrays: dict[str, np.ndarray], tokens_T: np.ndarray, along: np.ndarray) -> float:
    """The reference's: log-probabilities of the answer, along a direction."""
    said = reference.logits(spec, arrays, tokens_T, source_S=source(spec))
    return float((along * formulas.log_softmax(said)).sum())


def grads_of(spec: s.Spec, tokens_T: np.ndarray, along: np.ndarray) -> tuple[Transformer, dict[str, Tensor]]:
    model = double(spec, arrays_of(spec))
    said_BTV = model(torch.from_numpy(tokens_T)[None], memory=heard(model, 1))
    (said_BTV[0].log_softmax(-1) * torch.from_numpy(along)).sum().backward()
    return model, {name: w.grad for name, w in model.named_parameters() if w.grad is not None}


def the_gradients_are_slopes(spec: s.Spec, n_each: int = 2, times: float = 1.0) -> None:
    """n_each weights of every array, by chance among those with a gradient; four points, so that the error is tiny.

    times: what the model's gradients are multiplied by, to see it noticed."""
    along, tokens_T = asked(spec)
    model, grads = grads_of(spec, tokens_T, along)
    arrays, rng = arrays_of(spec), np.random.default_rng(4)
    n_moved = 0
    largest = max(float(grad.abs().max()) for grad in grads.values())
    for name, _ in model.named_parameters():
        grad = grads[name].numpy() * times if name in grads else np.zeros(arrays[name].shape)
        met = np.argwhere(grad)
        every = met if len(met) else np.argwhere(np.ones(grad.shape))
        for at in map(tuple, every[rng.permutation(len(every))[:n_each]]):
            told = []
            for by in (1, -1, 2, -2):
                moved = arrays | {name: arrays[name].copy()}
                moved[name][at] += by * BY
                told.append(loss_of(spec, moved, tokens_T, along))
            slope = (8 * (told[0] - told[1]) - (told[2] - told[3])) / (12 * BY)
            gap = abs(slope - grad[at])
            assert gap <= 1e-6 * max(abs(slope), 1e-3 * largest), f"{name}{list(at)}: {grad[at]}, the slope is {slope}"
            n_moved += bool(len(met))
    assert n_moved > len(grads) / 2


@pytest.mark.parametrize("name", [*SMALL, *in_proof])
def test_the_model_s_gradients_are_the_reference_s_slopes(name: str) -> None:
    the_gradients_are_slopes(spec_of(name))


@pytest.mark.parametrize("name", ["gpt2-lora", "qwen2-moe", "t5"])
def test_a_gradient_off_by_one_in_a_hundred_thousand_is_noticed(name: str) -> None:
    with pytest.raises(AssertionError, match="the slope is"):
        the_gradients_are_slopes(spec_of(name), times=1 + 1e-5)

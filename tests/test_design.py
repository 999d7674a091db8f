"""A test of the design: a new kind of part is one small class and one rule in each reading; no rule that is there is
touched. QK-norm came in this way (`NormedLinear`); here another projection comes in from outside, in one file."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from plainformer import gradients, reference
from plainformer import spec as s
from plainformer.cost.flops import Work, flops
from plainformer.families import decoders
from plainformer.fitting import n_out, width
from plainformer.initial import initial
from plainformer.kernels import cross_entropy
from plainformer.layers import add, build
from plainformer.ledger import Ledger, Weight, Weights, inside, weights
from plainformer.model import Transformer
from plainformer.reference import Array, Where
from plainformer.tree import rewrite

# --- the whole of a new part, in six rules: a projection whose outputs are scaled, each head by a learned number ---


@dataclass(frozen=True, kw_only=True)
class HeadScaled:
    linear: s.Linear
    n_heads: int


width.register(HeadScaled, lambda part: width(part.linear))


@weights.register
def _(part: HeadScaled) -> Weights:
    yield Weight("scale", (part.n_heads,))
    yield from inside(part, "linear")


@flops.register
def _(part: HeadScaled, work: Work) -> int:
    return flops(part.linear, work)


@reference.run.register
def _(part: HeadScaled, w: reference.Weights, x: Array, where: Where) -> Array:
    y = reference.run(part.linear, w.at("linear"), x, where)
    return y * w["scale"].repeat(y.shape[-1] // part.n_heads)


@gradients.rule.register
def _(part: HeadScaled, w: reference.Weights, x: Array, where: Where, d_y: Array, to: gradients.Slopes) -> Array:
    y = reference.run(part.linear, w.at("linear"), x, where)
    to.add(w, "scale", (y * d_y).reshape(len(x), part.n_heads, -1).sum((0, 2)))
    d_y = d_y * w["scale"].repeat(y.shape[-1] // part.n_heads)
    return gradients.backward(part.linear, w.at("linear"), x, where, d_y, to)


@build.register(HeadScaled)
class HeadScaledModule(nn.Module):
    def __init__(self, part: HeadScaled) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(part.n_heads))
        add(self, part, "linear")

    def forward(self, x: Tensor) -> Tensor:
        y = cast(nn.Module, self.linear)(x)
        return y * self.scale.repeat_interleave(y.shape[-1] // len(self.scale))


# ----------------------------------------------------------------------------------------------------------------------


def scaled(part: Any) -> Any:
    return replace(part, q=HeadScaled(linear=part.q, n_heads=part.n_heads)) if isinstance(part, s.Attention) else part


@pytest.fixture
def spec() -> s.Spec:
    return rewrite(decoders.gpt2(vocab_size=30, max_seq_len=12, d_model=12, n_layers=2, n_heads=3), scaled)


def test_the_new_part_is_counted_built_and_run_like_any_other(spec: s.Spec) -> None:
    plain = decoders.gpt2(vocab_size=30, max_seq_len=12, d_model=12, n_layers=2, n_heads=3)
    assert Ledger.of(spec).total == Ledger.of(plain).total + 2 * 3
    model = Transformer(spec).double()
    assert [(w.name, w.shape) for w in Ledger.of(spec).weights] == [
        (n, tuple(p.shape)) for n, p in model.named_parameters()
    ]
    model.take((name, array + 0.1) for name, array in initial(spec).items())
    tokens_T = np.arange(11)
    want_TV = reference.logits(spec, model.arrays(), tokens_T)
    with torch.no_grad():
        got_TV = model(torch.tensor(tokens_T)[None])[0]
    torch.testing.assert_close(got_TV, torch.tensor(want_TV), rtol=0, atol=1e-12)


def test_the_new_part_s_slopes_are_torch_s(spec: s.Spec) -> None:
    model = Transformer(spec).double()
    model.take((name, array + 0.1) for name, array in initial(spec).items())
    tokens_T, targets_T = np.arange(10), np.arange(1, 11)
    cross_entropy(model(torch.tensor(tokens_T)[None]), torch.tensor(targets_T)[None]).mean().backward()
    _, got = gradients.loss_and_gradients(spec, model.arrays(), tokens_T, targets_T)
    for name, weight in model.named_parameters():
        torch.testing.assert_close(torch.tensor(got[name]), weight.grad, rtol=0, atol=1e-12)
    assert got["decoder.layers.1.attention.q.scale"].any()


def test_a_new_part_is_held_to_its_neighbours(spec: s.Spec) -> None:
    wrong = HeadScaled(linear=s.Linear(n_in=12, n_out=13), n_heads=3)
    assert n_out(wrong) == 13
    with pytest.raises(ValueError, match=r"attention|q = 13"):
        rewrite(spec, lambda part: replace(part, q=wrong) if isinstance(part, s.Attention) else part)


def test_a_reading_without_a_rule_says_the_part_s_name() -> None:
    @dataclass(frozen=True)
    class Unheard:
        pass

    for reading in (
        lambda: list(weights(Unheard())),
        lambda: flops(Unheard(), Work(1, 1, 1)),
        lambda: reference.run(Unheard(), reference.Weights({}), np.zeros((1, 1)), Where(np.arange(1))),
        lambda: gradients.rule(Unheard(), *[None] * 5),
        lambda: build(Unheard()),
    ):
        with pytest.raises((TypeError, ValueError), match="Unheard"):
            reading()


def test_qk_norm_is_at_most_forty_lines_and_its_own() -> None:
    """Its class, and its rule in each reading: none of them names another part's rule."""
    from plainformer import layers, ledger

    pieces = [
        s.NormedLinear,
        layers.NormedLinear,
        ledger.weights.registry[s.NormedLinear],
        reference.run.registry[s.NormedLinear],
        gradients.rule.registry[s.NormedLinear],
    ]
    lines = [line for piece in pieces for line in inspect.getsource(piece).splitlines() if line.strip()]
    assert len(lines) <= 40, len(lines)

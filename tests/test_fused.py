"""Training's small steps by the compiled library: what they give and what flows back, held to their twins of torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import plainformer as pf
from plainformer import kernels, presets
from plainformer import spec as s
from plainformer.fused import fuse, fusing, library
from plainformer.fused.steps import FusedAttention, FusedGate, FusedNorm, FusedTurn
from plainformer.training.step import gradients

LIBRARY, REASON = library()
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="no C compiler is here")
NEAR = {torch.float32: {"rtol": 1e-5, "atol": 1e-5}, torch.bfloat16: {"rtol": 2**-6, "atol": 2**-6}}
BOTH = pytest.mark.parametrize("dtype", list(NEAR), ids=["float32", "bfloat16"])


def drawn(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape).to(dtype).requires_grad_()


def held_to(exact: Callable[..., Tensor], quick: Callable[..., Tensor], given: list[Any], dtype: torch.dtype) -> None:
    """Answers and gradients of both, for the same inputs; the twin's in float64."""
    tensors = [y for y in given if isinstance(y, Tensor) and y.requires_grad]
    wide = [y.detach().double().requires_grad_() if any(y is one for one in tensors) else y for y in given]
    wide = [y.double() if isinstance(y, Tensor) and y.is_floating_point() and not y.requires_grad else y for y in wide]
    said, mine = exact(*wide), quick(*given)
    dy = torch.randn(said.shape)
    theirs = torch.autograd.grad(said, [y for y in wide if isinstance(y, Tensor) and y.requires_grad], dy.double())
    back = torch.autograd.grad(mine, tensors, dy.to(mine.dtype))
    torch.testing.assert_close(mine.double(), said, **NEAR[dtype])
    for got, due, of in zip(back, theirs, tensors, strict=True):
        assert got.dtype is of.dtype
        scale = float(due.abs().max()) + 1
        torch.testing.assert_close(got.double() / scale, due / scale, **NEAR[dtype])


@BOTH
@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("shape", [(1, 1, 8), (3, 70, 33), (2, 5, 4, 16)])
@pytest.mark.parametrize("weights", ["none", "gain", "both"])
def test_norms(dtype: torch.dtype, kind: Any, shape: tuple[int, ...], weights: str) -> None:
    torch.manual_seed(1)
    width = shape[-1]
    part = s.Norm(kind=kind, width=width, eps=1e-5, gain=weights != "none", bias=weights == "both")
    gain = drawn(width) if weights != "none" else None
    bias = drawn(width) if weights == "both" else None
    x = (drawn(*shape).detach() + 0.5).to(dtype).requires_grad_()
    held_to(kernels.normed, FusedNorm(LIBRARY, False), [part, x, gain, bias], dtype)


def test_a_norm_that_products_read_is_rounded_where_they_would_round() -> None:
    torch.manual_seed(2)
    part, x, gain = s.Norm(kind="rms", width=32, eps=1e-6), torch.randn(4, 32), torch.randn(32)
    whole = FusedNorm(LIBRARY, True)(part, x, gain, None)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(FusedNorm(LIBRARY, True)(part, x, gain, None), whole.bfloat16())
        assert FusedNorm(LIBRARY, False)(part, x, gain, None).dtype is torch.float32


@BOTH
@pytest.mark.parametrize("n_dims", [4, 16, 20])
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("lies", ["as projections", "heads first"])
def test_turns(dtype: torch.dtype, n_dims: int, interleaved: bool, lies: str) -> None:
    torch.manual_seed(3)
    rotary = s.Rotary(n_dims=n_dims, theta=100.0, interleaved=interleaved)
    angle = torch.randn(1, 1, 7, n_dims // 2)
    x = drawn(2, 7, 3, 20, dtype=dtype).transpose(1, 2) if lies == "as projections" else drawn(2, 3, 7, 20, dtype=dtype)
    x = x.detach().requires_grad_()
    held_to(kernels.rotate, FusedTurn(LIBRARY), [x, angle.cos(), angle.sin(), rotary], dtype)


@BOTH
@pytest.mark.parametrize("name", ["relu", "relu_squared", "silu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("gated", [False, True])
def test_gates(dtype: torch.dtype, name: str, gated: bool) -> None:
    torch.manual_seed(4)
    up = (drawn(5, 6, 43).detach() * 3).to(dtype).requires_grad_()
    held_to(kernels.activated, FusedGate(LIBRARY), [name, drawn(5, 6, 43, dtype=dtype) if gated else None, up], dtype)


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh"])
def test_gates_far_out(name: str) -> None:
    x = torch.tensor([[-1e4, -200.0, -90.0, -20.0, -1e-6, 0.0, 1e-6, 20.0, 90.0, 200.0, 1e4]])
    torch.testing.assert_close(FusedGate(LIBRARY)(name, None, x), kernels.activated(name, None, x))
    assert FusedGate(LIBRARY)(name, None, torch.tensor([[torch.nan]])).isnan().all()


@BOTH
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (3, 1)])
@pytest.mark.parametrize("n_positions", [2, 16, 37])
def test_attention(dtype: torch.dtype, heads: int, kv_heads: int, n_positions: int) -> None:
    torch.manual_seed(5)
    q = drawn(2, heads, n_positions, 8, dtype=dtype)
    k, v = drawn(2, kv_heads, n_positions, 8, dtype=dtype), drawn(2, kv_heads, n_positions, 12, dtype=dtype)
    held_to(kernels.fused_attention, FusedAttention(LIBRARY), [q, k, v, None, True, 0.3], dtype)


@BOTH
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e30])
def test_no_query_hears_of_a_later_key(dtype: torch.dtype, bad: float) -> None:
    torch.manual_seed(6)
    q, k, v = (torch.randn(1, 2, 24, 8).to(dtype) for _ in range(3))
    before = FusedAttention(LIBRARY)(q, k, v, None, True, 0.3)
    k[:, :, 20] = bad
    after = FusedAttention(LIBRARY)(q, k, v, None, True, 0.3)
    assert torch.equal(before[:, :, :20], after[:, :, :20])
    assert not torch.equal(before[:, :, 20:], after[:, :, 20:])
    if bad != 1e30:  # what is no number is not hidden from those who see it
        assert after[:, :, 20:].isnan().any(-1).all()


def test_what_it_cannot_do_its_twin_does() -> None:
    torch.manual_seed(7)
    q = torch.randn(1, 2, 5, 8)
    mask = torch.rand(1, 1, 5, 5) < 0.5
    for some, causal in ((mask, False), (None, False)):
        quick = FusedAttention(LIBRARY)(q, q, q, some, causal, 0.3)
        assert torch.equal(quick, kernels.fused_attention(q, q, q, some, causal, 0.3))
    x = torch.randn(3, 4, dtype=torch.float64)
    part = s.Norm(kind="rms", width=4, eps=1e-6)
    assert torch.equal(FusedNorm(LIBRARY, False)(part, x, None, None), kernels.normed(part, x, None, None))
    assert torch.equal(FusedGate(LIBRARY)("tanh", None, x.float()), kernels.activated("tanh", None, x.float()))


def model_of(preset: str) -> pf.Transformer:
    return pf.Transformer(presets.trainable(preset, vocab_size=40, max_seq_len=48), initial="gpt2", seed=3)


def rows() -> tuple[Tensor, Tensor]:
    text = torch.randint(0, 40, (3, 49), generator=torch.Generator().manual_seed(8))
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


@pytest.mark.parametrize("preset", ["small", "small-moe", "gpt2-style"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_s_loss_and_gradients(preset: str, dtype: str) -> None:
    """In bfloat16 both are as far from float64: rounding is all that differs."""
    plain, exact = model_of(preset), model_of(preset).double()
    quick, reason = fuse(copy.deepcopy(plain))
    assert reason == ""
    losses = [gradients(model, *rows(), 40, 3, kind) for model, kind in ((plain, dtype), (quick, dtype), (exact, ""))]
    assert losses[1] == pytest.approx(losses[2], rel=1e-6 if dtype == "float32" else 1e-3)

    def off(model: pf.Transformer) -> float:
        """Of all gradients together."""
        pairs = [(w.grad, e.grad) for w, e in zip(model.parameters(), exact.parameters(), strict=True)]
        return float(sum((a - b).square().sum() for a, b in pairs) / sum(b.square().sum() for _, b in pairs)) ** 0.5

    assert off(quick) < max(2e-6, 1.3 * off(plain))


def test_a_training_step_is_made_of_the_compiled_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    called: dict[str, int] = {}

    class Seen:
        def __getattr__(self, name: str) -> Callable[..., Any]:
            def call(*given: Any) -> Any:
                called[name] = called.get(name, 0) + 1
                return getattr(LIBRARY, name)(*given)

            return call

    monkeypatch.setattr(fusing, "library", lambda: (Seen(), ""))
    model = fuse(model_of("small"))[0]
    n_layers = len(model.spec.main.layers)
    gradients(model, *rows(), 40, 3, "bfloat16")
    each = {"norm": 4 * n_layers + 1, "turn": 2 * n_layers, "gate": n_layers, "weights": n_layers}
    back = {"norm_back": 4 * n_layers + 1, "gate_back": n_layers, "weights_back": n_layers}
    assert called == each | back | {"turn": 4 * n_layers, "norm_pieces": 4 * n_layers + 1, "keep_memory": 1}


@pytest.mark.parametrize("preset", ["small", "gpt2-style"])
def test_the_bits_do_not_hang_on_the_number_of_threads(preset: str) -> None:
    """Of the compiled steps: torch's products are asked one thread at a time for both."""
    torch.manual_seed(9)
    part = s.Norm(kind="rms" if preset == "small" else "layer", width=96, eps=1e-6)
    before, found = torch.get_num_threads(), []
    x, gain, up = torch.randn(700, 96), torch.randn(96), torch.randn(700, 96)
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            given = [y.clone().requires_grad_() for y in (x, gain, up)]
            y = FusedGate(LIBRARY)("silu", FusedNorm(LIBRARY, False)(part, *given[:2], None), given[2])
            found.append([y, *torch.autograd.grad(y.square().sum(), given)])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others, strict=True))


def test_without_a_compiler_torch_s_own_steps_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusing, "library", lambda: (None, "no C compiler is here"))
    model = model_of("small")
    before = gradients(model, *rows(), 40, 3)
    assert fuse(model) == (model, "no C compiler is here")
    assert gradients(model, *rows(), 40, 3) == before

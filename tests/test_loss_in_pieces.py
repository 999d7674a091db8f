"""A loss whose logits are never whole: equal to the plain one, its gradients too, for every kind of head.

B batch, T positions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from plainformer import spec as s
from plainformer.model import Transformer
from plainformer.training import decisions, evaluate, gradients, loss
from plainformer.training.decisions import loss_rows
from specs import GPT2, LLAMA, MIXTRAL, TINY, change


def with_lora(spec: s.Spec) -> s.Spec:
    assert spec.head is not None
    return replace(spec, head=replace(spec.head, linear=replace(spec.head.linear, lora=s.Lora(rank=2, alpha=3))))


SPECS = {
    "tied": GPT2,
    "not tied": LLAMA,
    "capped": TINY["gemma2"],
    "a mixture": change(MIXTRAL, s.Experts, balance=0.3),
    "adapted": with_lora(GPT2),
}
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def stepped(spec: s.Spec, micro_batch: int, rows: int, dtype: str = "float64") -> tuple[float, dict[str, Tensor]]:
    model = Transformer(spec, seed=3)
    model = model.double() if dtype == "float64" else model
    x_BT, y_BT = np.random.default_rng(0).integers(spec.vocab_size - 2, size=(2, 5, 7))
    y_BT[0, 2:], y_BT[3] = -1, -1
    given = torch.from_numpy(x_BT), torch.from_numpy(y_BT), spec.vocab_size - 2, micro_batch, dtype
    found = gradients(model, *given, loss_rows=rows)
    return found, {name: w.grad for name, w in model.named_parameters() if w.grad is not None}


@each_spec
def test_l7_it_is_the_whole_loss_however_it_is_cut(spec: s.Spec) -> None:
    """7 positions at once end with each row; 3 and 1 do not, and 34 leave one for the last piece."""
    whole, grads = stepped(spec, 5, 0)
    for micro_batch, rows in ((5, 34), (5, 7), (5, 3), (5, 1), (2, 3)):
        found, pieces = stepped(spec, micro_batch, rows)
        assert found == pytest.approx(whole, abs=1e-12)
        assert pieces.keys() == grads.keys()
        for name, grad in grads.items():
            torch.testing.assert_close(pieces[name], grad, rtol=0, atol=1e-12)


@each_spec
def test_it_is_the_same_twice_to_the_bit_and_near_to_the_whole_in_16_bits(spec: s.Spec) -> None:
    one, two, whole = (stepped(spec, 5, rows, "bfloat16") for rows in (4, 4, 0))
    assert one[0] == two[0]
    assert one[0] == pytest.approx(whole[0], rel=1e-3)
    assert all(torch.equal(grad, two[1][name]) for name, grad in one[1].items())
    assert {grad.dtype for grad in one[1].values()} == {torch.float32}
    slopes = [torch.cat([grad.flatten() for grad in each[1].values()]) for each in (one, whole)]
    assert torch.nn.functional.cosine_similarity(*slopes, dim=0) > 0.999


class Largest(TorchDispatchMode):
    """The most numbers in a tensor that has as many columns as the vocabulary."""

    def __init__(self, n_tokens: int) -> None:
        super().__init__()
        self.n_tokens, self.most = n_tokens, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **kwargs or {})
        tree_map_only(Tensor, self.see, out)
        return out

    def see(self, tensor: Tensor) -> None:
        if tensor.ndim and tensor.shape[-1] == self.n_tokens:
            self.most = max(self.most, tensor.numel() // self.n_tokens)


@pytest.mark.parametrize("rows", [0, 16])
def test_logits_are_never_there_for_more_positions_than_asked(rows: int) -> None:
    spec = change(LLAMA, s.Table, n_rows=37)
    spec = replace(spec, head=replace(spec.head, linear=replace(spec.head.linear, n_out=37)))
    model = Transformer(spec, seed=3)
    tokens_BT = torch.arange(35).view(5, 7)
    with Largest(37) as largest:
        gradients(model, tokens_BT, tokens_BT, 37, 5, loss_rows=rows)
    assert largest.most == (rows or 35)


def test_a_frozen_head_has_no_gradient_and_the_stream_has() -> None:
    grads = []
    for rows in (0, 3):
        model = Transformer(LLAMA, seed=3).double()
        model.head.requires_grad_(False)
        tokens_BT = torch.arange(35).view(5, 7) % LLAMA.vocab_size
        gradients(model, tokens_BT, tokens_BT, LLAMA.vocab_size, 5, "float64", loss_rows=rows)
        assert model.head.weight.grad is None
        grads.append(model.get_parameter("decoder.layers.0.attention.q.weight").grad)
    torch.testing.assert_close(grads[1], grads[0], rtol=0, atol=1e-12)


def test_a_piece_left_out_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = stepped(GPT2, 5, 0)
    original = loss.scored
    monkeypatch.setattr(loss, "scored", lambda model, x, ids, n: original(model, x, ids.masked_fill(ids == 1, -1), n))
    assert abs(stepped(GPT2, 5, 3)[0] - whole) > 1e-3


@each_spec
@pytest.mark.parametrize("stride", [None, 3])
def test_an_evaluation_of_a_long_row_scores_it_in_pieces(
    spec: s.Spec, stride: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logits of one row are then never whole; those that are no burden stay so, to the bit."""
    model, tokens_N = Transformer(spec, seed=3).double(), np.arange(40) % (spec.vocab_size - 2)
    length_V = np.ones(spec.vocab_size - 2, np.int64)
    found = []
    for most in (decisions.MOST_LOGITS, spec.vocab_size):
        monkeypatch.setattr(decisions, "MOST_LOGITS", most)
        monkeypatch.setattr(decisions, "LOGITS_AT_ONCE", 17 * (spec.vocab_size - 2))
        with Largest(spec.vocab_size) as largest:
            found.append(evaluate(model, tokens_N, length_V, context=16, stride=stride, end=7))
    assert largest.most == 17
    whole, pieces = found
    assert whole is not None
    assert pieces is not None
    assert pieces.targets == whole.targets
    assert pieces.nats == pytest.approx(whole.nats, abs=1e-10)


def test_small_vocabularies_are_scored_at_once_and_large_ones_in_pieces() -> None:
    assert loss_rows(16 * 256, 65) == 0
    assert loss_rows(16 * 256, 50_257) == decisions.LOGITS_AT_ONCE // 50_257 == 333
    assert loss_rows(1024, 1 << 30) == 1

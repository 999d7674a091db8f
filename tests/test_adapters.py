"""Merged or not, the same logits; and nothing that stood there before is moved."""

from __future__ import annotations

import pytest
import torch

from plainformer.adapters import merge, without_lora
from plainformer.conventions import with_lora
from plainformer.families import decoders, llamas, mixtures
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.spec import Spec

SIZES = {"vocab_size": 30, "max_seq_len": 12, "d_model": 12, "n_layers": 2, "n_heads": 2}
EVERYWHERE = ("attention.q", "attention.v", "attention.out", "feed_forward.up", "feed_forward.down", "head")
SPECS = {
    "tied": with_lora(decoders.gpt2(**SIZES), 3, alpha=5.0, targets=("attention.q", "attention.v", "head")),
    "everywhere": with_lora(decoders.gpt2(**SIZES), 2, alpha=2.0, targets=EVERYWHERE),
    "qk-norm": with_lora(llamas.small(**SIZES, tied=False), 2, alpha=1.0, targets=EVERYWHERE),
    "experts": with_lora(
        mixtures.mixtral(**SIZES, n_kv_heads=1, d_head=6, d_ff=10, n_experts=3, n_chosen=2),
        2,
        alpha=1.0,
        targets=EVERYWHERE,
    ),
}


def model_of(spec: Spec) -> Transformer:
    model, generator = Transformer(spec).double().eval(), torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.3)
    return model


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_merged_is_the_same_model_without_adapters(spec: Spec) -> None:
    model = model_of(spec)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    merged, tokens_BT = merge(model), torch.arange(20).reshape(2, 10)
    assert not [w for w in Ledger.of(merged.spec).rows if w.kind == "lora"]
    with torch.no_grad():
        torch.testing.assert_close(merged(tokens_BT), model(tokens_BT), rtol=0, atol=1e-12)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items()), (
        "the original has moved"
    )


def test_a_tied_head_s_adapter_never_reaches_the_embedding() -> None:
    """Merging in place adds B A to the one shared table, and the embedding moves with it."""
    model = model_of(SPECS["tied"])
    merged = merge(model)
    assert torch.equal(merged.embedding.weight, model.embedding.weight)
    assert not torch.equal(merged.head.weight, merged.embedding.weight)
    assert merged.spec.head is not None
    assert not merged.spec.head.tied


def test_a_spec_without_adapters_is_left_alone() -> None:
    spec = decoders.gpt2(**SIZES)
    assert without_lora(spec) == spec

"""Merged or not, the same logits; and nothing that stood there before is moved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from plainformer.adapters import merge, without_lora
from plainformer.checkpoint import load
from plainformer.cli import main
from plainformer.conventions import with_lora
from plainformer.families import decoders, llamas, mixtures
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.spec import Spec
from runs import tiny_run

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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Begun from a run, its adapters of rank 1 alone trained. The text lies beside it."""
    base = tiny_run(tmp_path_factory)
    words = ("train", base.parent / "text.txt", "--from", base, "--lora", 1, "--out", base.parent / "tuned")
    assert main([str(word) for word in (*words, "--steps", 4, "--lr", 0.1, "--warmup", 0, "--quiet")]) == 0
    return base.parent / "tuned"


@pytest.mark.parametrize("rank, targets", [(8, "q,v"), (1, "q,v"), (2, "up")])
def test_new_adapters_on_a_model_that_has_some_begin_by_changing_nothing(
    run: Path, tmp_path: Path, rank: int, targets: str
) -> None:
    words = ("train", run.parent / "text.txt", "--from", run, "--lora", rank, "--targets", targets)
    assert main([str(word) for word in (*words, "--steps", 1, "--quiet", "--out", tmp_path / "run")]) == 0
    begun, tokens_BT = load(tmp_path / "run" / "checkpoints" / "step-0"), torch.arange(6)[None]
    with torch.no_grad():
        was = load(run)(tokens_BT)
        assert not torch.equal(load(run.parent / "run")(tokens_BT), was)
        torch.testing.assert_close(begun(tokens_BT), was, rtol=0, atol=1e-5)
    assert {len(w) for name, w in begun.named_parameters() if name.endswith("lora_a")} == {rank}

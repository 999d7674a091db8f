"""Activations made again in training: the same gradients to the bit, the memory that is planned, decided once.

B batch, T positions.
"""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import measured
from plainformer import spec as s
from plainformer.checkpoint import load
from plainformer.cli import main
from plainformer.cost.activations import taped
from plainformer.cost.tape import Pass
from plainformer.families import llamas
from plainformer.fused import library
from plainformer.model import Transformer
from plainformer.training import gradients, passing
from plainformer.training.balance import Traffic
from plainformer.training.forecast import counted, fitted, memory_of, passing_bytes
from plainformer.training.passing import as_decided
from plainformer.training.processes import joined, whole
from plainformer.training.recipe import RECIPES, Settings
from plainformer.training.schedule import Schedule
from plainformer.training.starting import settings_of
from plainformer.training.step import products_in
from runs import SHORT, write_text
from specs import GPT2, LLAMA, MIXTRAL, TINY, change
from together import together

SPECS = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "window": TINY["mistral"],
    "capped": TINY["gemma2"],
    "sinks": TINY["gpt-oss"],
    "mixture": change(MIXTRAL, s.Experts, balance=0.3),
    "latents": change(TINY["deepseek-v3"], s.Experts, balance=0.3),
}


def settings(**changed: object) -> Settings:
    recipe = RECIPES["adamw"]
    one = Settings(
        preset="tiny",
        tokenizer="characters",
        validation=0.1,
        initial="gpt2",
        rates=recipe.rates,
        schedule=Schedule(shape="linear", steps=10),
        clip=None,
        context=7,
        batch_size=5,
        micro_batch=5,
        steps=10,
        seed=0,
        dtype="float32",
        threads=1,
        eval_every=5,
        save_every=5,
    )
    return replace(one, **changed)  # type: ignore[arg-type]


def batch(spec: s.Spec) -> tuple[Tensor, Tensor]:
    x_BT, y_BT = np.random.default_rng(0).integers(spec.vocab_size, size=(2, 5, 7))
    y_BT[0, 2:], y_BT[3] = -1, -1
    return torch.from_numpy(x_BT), torch.from_numpy(y_BT)


def stepped(spec: s.Spec, how: Settings) -> dict[str, Tensor]:
    model, traffic = Transformer(spec, seed=3), Traffic()
    as_decided(model, how)
    loss = gradients(model, *batch(spec), spec.vocab_size, how.micro_batch, how.dtype, traffic)
    found = {name: w.grad for name, w in model.named_parameters() if w.grad is not None}
    return {"loss": torch.tensor(loss), **traffic, **found}


STEPS = pytest.param(True, marks=pytest.mark.skipif(library()[0] is None, reason="no C compiler is here"), id="steps")
each_way = pytest.mark.parametrize("fused", [pytest.param(False, id="torch"), STEPS])


@each_way
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("recompute", ["selective", "full"])
@pytest.mark.parametrize("name", SPECS)
def test_gradients_are_the_same_to_the_bit(name: str, recompute: str, dtype: str, fused: bool) -> None:
    for micro_batch in (5, 2):
        how = settings(dtype=dtype, micro_batch=micro_batch, fused=fused)
        kept, again = stepped(SPECS[name], how), stepped(SPECS[name], replace(how, recompute=recompute))
        assert kept.keys() == again.keys()
        for key, tensor in kept.items():
            assert torch.equal(again[key], tensor), key


def test_what_is_made_again_outside_of_the_step_s_kernels_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products in float32 on the way back, where the way there had bfloat16."""
    kept = stepped(LLAMA, settings(dtype="bfloat16"))
    monkeypatch.setattr(passing, "products_in", lambda *_: nullcontext())
    with pytest.raises(torch.utils.checkpoint.CheckpointError):
        stepped(LLAMA, settings(dtype="bfloat16", recompute="full"))
    assert kept


# --- memory -----------------------------------------------------------------------------------------------------------


def alive_between(spec: s.Spec, how: Settings) -> int:
    """Bytes that are held after a forward pass, but for weights and logits."""
    model = Transformer(spec, seed=3)
    as_decided(model, how)
    with measured.Alive() as alive:
        tokens_BT = measured.tokens_for(spec, how.micro_batch, how.context)
        with products_in(how.dtype, how.context):
            logits_BTV = model(tokens_BT)
        weights = sum(alive.held.get(w.untyped_storage().data_ptr(), 0) for w in model.parameters())
        return alive.now - weights - logits_BTV.nbytes


@each_way
@pytest.mark.parametrize(
    "name, dtype, recompute",
    [
        *((name, "float32", how) for name in ("gpt2", "llama", "window", "mixture") for how in ("none", "full")),
        *(("llama", "bfloat16", how) for how in ("none", "selective", "full")),
        *((name, "float32", "selective") for name in ("sinks", "latents")),
        *((name, "bfloat16", "none") for name in ("gpt2", "window", "capped", "mixture", "latents")),
    ],
)
def test_l9_what_is_kept_between_the_passes_is_what_is_planned(
    name: str, dtype: str, recompute: str, fused: bool
) -> None:
    spec = SPECS[name]
    length = min(11, spec.max_seq_len)
    how = settings(dtype=dtype, recompute=recompute, context=length, micro_batch=3, fused=fused)
    of = Pass(3, length, recompute=recompute, size=4, autocast=dtype == "bfloat16", processor=True, steps=fused)
    tape = taped(spec, of)
    found, shared = alive_between(spec, how), 16 * length + length**2  # positions, who may see whom: of all layers
    if name == "latents" and recompute == "selective":
        assert found <= tape.n_bytes + shared  # what the heads are made of is kept, not the heads
    else:
        assert found == pytest.approx(tape.n_bytes, abs=shared if recompute != "none" else 0)
    assert recompute == "none" or found < alive_between(spec, replace(how, recompute="none"))


@each_way
def test_a_plan_of_other_kernels_would_be_noticed(fused: bool) -> None:
    how = settings(dtype="bfloat16", context=11, micro_batch=3, fused=fused)
    other = Pass(3, 11, size=4, autocast=True, processor=True, steps=not fused)
    assert alive_between(LLAMA, how) != taped(LLAMA, other).n_bytes


def test_l9_the_worst_moment_of_a_step_is_what_is_planned_within_a_tenth() -> None:
    """Weights, activations, the loss; layers made again, logits in pieces or not. Of the gradients of weights none is
    there yet, or all are but one layer's."""
    spec = llamas.llama(
        vocab_size=2000, max_seq_len=64, d_model=48, n_layers=6, n_heads=4, n_kv_heads=2, d_head=12, d_ff=96
    )
    for dtype in ("float32", "bfloat16"):
        most: dict[tuple[str, int], int] = {}
        for recompute, loss_rows in product(("none", "full"), (0, 32)):
            how = settings(dtype=dtype, recompute=recompute, context=64, micro_batch=8, loss_rows=loss_rows)
            model = Transformer(spec, seed=3)
            as_decided(model, how)
            tokens_BT = measured.tokens_for(spec, 8, 64)
            weights = sum(w.nbytes for w in model.parameters())
            with measured.Alive() as alive:
                gradients(model, tokens_BT, tokens_BT, 2000, 8, dtype, loss_rows=loss_rows)
            planned = passing_bytes(spec, how)
            assert planned is not None
            most[recompute, loss_rows] = alive.most
            assert 0.9 * (weights + planned) < alive.most < 1.1 * (2 * weights + planned)
        assert most["full", 32] < 0.4 * most["full", 0]
        assert most["none", 32] < 0.6 * most["none", 0]


def test_layers_are_made_again_where_memory_lacks_and_it_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    how = settings(context=64, micro_batch=64)
    kept, again = (memory_of(LLAMA, replace(how, recompute=each)) for each in ("none", "full"))
    assert kept is not None
    assert again is not None
    assert again < kept
    assert fitted(LLAMA, how, {}, kept) == how
    assert not capsys.readouterr().err
    assert fitted(LLAMA, how, {}, kept - 1).recompute == "full"  # attention is fused: its scores are nowhere kept
    assert "would be needed" in capsys.readouterr().err
    assert fitted(LLAMA, how, {"recompute": "none"}, again) == how
    narrow = replace(how, dtype="bfloat16")
    assert fitted(LLAMA, narrow, {}, (memory_of(LLAMA, narrow) or 0) - 1).recompute == "selective"
    assert fitted(LLAMA, narrow, {}, 1).recompute == "full"


def test_operations_are_counted_once_where_layers_are_made_again() -> None:
    model = Transformer(LLAMA, seed=3)
    plain = counted(model, settings())
    as_decided(model, settings(recompute="full"))
    forward = vars(model.decoder.layers[0])["forward"]
    assert counted(model, settings()) == plain
    assert vars(model.decoder.layers[0])["forward"] is forward


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_l6_a_run_that_makes_activations_again_is_the_plain_run_killed_or_not(tmp_path: Path, recompute: str) -> None:
    text = str(write_text(tmp_path))
    for name, flags in (("plain", ()), ("again", ("--recompute", recompute))):
        run = ("--out", str(tmp_path / name), *SHORT, "--save-every", "4", "--micro-batch", "3", *flags)
        assert main(["train", text, *run]) == 0
    assert settings_of(tmp_path / "again").recompute == recompute
    shutil.rmtree(tmp_path / "again" / "checkpoints" / "step-12")
    assert main(["train", "--out", str(tmp_path / "again"), "--resume", "--quiet"]) == 0
    plain = dict(load(tmp_path / "plain").named_parameters())
    for name, w in load(tmp_path / "again").named_parameters():
        assert torch.equal(w, plain[name])


def shared_steps(folder: str) -> None:
    """The gradients of three processes' one batch, by DDP and by FSDP2, a mixture's too."""
    with joined() as all_of_them:
        for name, shard, loss_rows in product(("gpt2", "mixture"), (False, True), (0, 4)):
            processes = replace(all_of_them, shard=shard)
            spec = SPECS[name]
            model = Transformer(spec, seed=3).double()
            as_decided(model, settings(dtype="float64", recompute="full"))
            scores, (mine, n_more) = processes.wrapped(model), processes.rows(5)
            x_BT, y_BT = (block[mine.start : mine.stop] for block in batch(spec))
            x_BT = torch.cat((x_BT, x_BT.new_zeros(n_more, 7)))
            y_BT = torch.cat((y_BT, y_BT.new_full((n_more, 7), -1)))
            more = Traffic(), processes, scores, loss_rows
            loss = gradients(model, x_BT, y_BT, spec.vocab_size, 1, "float64", *more)
            found = {k: whole(w.grad).clone() for k, w in model.named_parameters() if w.grad is not None}
            if processes.first:
                found["loss"] = torch.tensor(loss, dtype=torch.float64)
                save_file(found, Path(folder) / f"{name}-{shard}-{loss_rows}.safetensors")


def test_l7_many_processes_are_one_where_layers_are_made_again_and_logits_come_in_pieces(tmp_path: Path) -> None:
    together(2, shared_steps, str(tmp_path))
    for name, shard, loss_rows in product(("gpt2", "mixture"), (False, True), (0, 4)):
        spec = SPECS[name]
        model = Transformer(spec, seed=3).double()
        loss = gradients(model, *batch(spec), spec.vocab_size, 5, "float64")
        found = load_file(tmp_path / f"{name}-{shard}-{loss_rows}.safetensors")
        assert found.pop("loss").item() == pytest.approx(loss, abs=1e-12)
        expected = {k: w.grad for k, w in model.named_parameters() if w.grad is not None}
        assert found.keys() == expected.keys()
        for key, grad in expected.items():
            torch.testing.assert_close(found[key], grad, rtol=0, atol=1e-12)

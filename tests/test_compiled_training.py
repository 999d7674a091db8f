"""Layers compiled by torch in training: the loss and gradients of the layers as written, the same names, the same bits
after a kill. Short forms trace and do not generate code; `make proof` runs what is shipped.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from plainformer.checkpoint import load
from plainformer.cli import main
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.training import gradients, passing
from plainformer.training.passing import as_decided
from plainformer.training.recipe import Settings
from plainformer.training.run import Run
from plainformer.training.starting import settings_of
from runs import SHORT, metrics, write_text
from test_recompute import SPECS, batch, settings

pytestmark = [
    pytest.mark.no_shape_names,  # what is traced is not watched
    pytest.mark.filterwarnings("ignore"),  # of torch's own tracing and of the files that it loads for it
]
compiler = pytest.mark.skipif(bool(passing.compiler_missing()), reason="torch.compile has no compiler here")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing, "BACKEND", "aot_eager")


def stepped(name: str, how: Settings) -> tuple[float, dict[str, Tensor]]:
    model = Transformer(SPECS[name], seed=3)
    as_decided(model, how)
    loss = gradients(model, *batch(SPECS[name]), SPECS[name].vocab_size, how.micro_batch, how.dtype)
    assert [k for k, _ in model.named_parameters()] == [w.name for w in Ledger.of(model.spec).weights]
    return loss, {k: w.grad for k, w in model.named_parameters() if w.grad is not None}


@pytest.mark.parametrize(
    "name, dtype, recompute",
    [
        ("gpt2", "float32", "none"),
        ("llama", "float32", "full"),
        ("llama", "bfloat16", "selective"),
        pytest.param("mixture", "float32", "full", marks=pytest.mark.proof),
    ],
)
def test_compiled_layers_have_the_gradients_of_those_as_written(
    name: str, dtype: str, recompute: str, traced: None
) -> None:
    how = settings(dtype=dtype, recompute=recompute)
    loss, plain = stepped(name, how)
    quick, found = stepped(name, replace(how, compile=True))
    assert quick == pytest.approx(loss, abs=1e-5 if dtype == "float32" else 2e-2)
    assert found.keys() == plain.keys()
    slopes = [torch.cat([grad.flatten() for grad in each.values()]) for each in (plain, found)]
    assert torch.nn.functional.cosine_similarity(*slopes, dim=0) > (1 - 1e-6 if dtype == "float32" else 0.999)


def killed_and_resumed(tmp_path: Path) -> None:
    text = str(write_text(tmp_path))
    for name, flags in (("plain", ()), ("whole", ("--compile",)), ("run", ("--compile",))):
        words = ("--out", str(tmp_path / name), *SHORT, "--save-every", "4", "--eval-every", "6", *flags)
        assert main(["train", text, *words]) == 0
    assert settings_of(tmp_path / "run").compile
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-12")
    assert main(["train", "--out", str(tmp_path / "run"), "--resume", "--quiet"]) == 0
    whole, run = (dict(load(tmp_path / name).named_parameters()) for name in ("whole", "run"))
    assert all(torch.equal(w, run[name]) for name, w in whole.items())
    losses = [[row["loss"] for row in metrics(tmp_path / name)] for name in ("plain", "whole", "run")]
    assert losses[1] == losses[2]
    assert losses[0] == pytest.approx(losses[1], abs=2e-2)
    assert run.keys() == {w.name for w in Ledger.of(load(tmp_path / "run").spec).weights}


def test_l6_a_compiled_run_goes_on_to_the_bit(tmp_path: Path, traced: None) -> None:
    killed_and_resumed(tmp_path)


@pytest.mark.proof
@compiler
def test_l6_a_run_compiled_as_shipped_goes_on_to_the_bit(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path)


def test_training_is_compiled_and_evaluation_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def compiling(forward: Callable[..., Tensor], **how: object) -> Callable[..., Tensor]:
        def run(*inputs: Tensor) -> Tensor:
            given.append(len(inputs[0]))
            return forward(*inputs)

        return run

    monkeypatch.setattr(torch, "compile", compiling)
    words = ("--out", str(tmp_path / "run"), *SHORT, "--compile", "--micro-batch", "3")
    assert main(["train", str(write_text(tmp_path)), *words]) == 0
    assert given == [3, 1] * 12  # the rows of each step's parts, and nothing of evaluations and samples
    assert "compiled" in in_words(tmp_path / "run")


def in_words(run: Path) -> str:
    from plainformer.training.loop import way

    return way(Run(run))


def test_without_a_compiler_it_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = str(write_text(tmp_path))
    monkeypatch.setattr(passing, "which", lambda _: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["train", text, "--out", str(tmp_path / "run"), *SHORT, "--compile"]) == 2
    assert "--compile" in (err := capsys.readouterr().err)
    assert "needs a C++ compiler" in err
    assert not (tmp_path / "run").exists()

"""A step's loss read when the next one is on its way, where a GPU would have to be waited for: no bad update ever."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plainformer.checkpoint import load, newest
from plainformer.cli import main
from plainformer.model import Transformer
from plainformer.training import Optimizers, gradients
from plainformer.training import run as in_memory
from plainformer.training.recipe import RECIPES
from plainformer.training.spikes import Spikes
from plainformer.training.step import watched
from runs import SHORT, metrics, write_text
from specs import LLAMA, MIXTRAL


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "read_late", lambda _: True)


def tokens() -> Tensor:
    return torch.arange(35).view(5, 7) % LLAMA.vocab_size


@pytest.mark.parametrize("optimizer", list(RECIPES))
@pytest.mark.parametrize("spec", [LLAMA, MIXTRAL], ids=["llama", "mixtral"])
def test_a_bad_step_moves_nothing_and_a_good_one_as_if_nobody_watched(spec: Any, optimizer: str) -> None:
    """Weights and all that the optimisers remember, to the bit: after two good steps with bad ones between."""
    rates, found = RECIPES[optimizer].rates, []
    for bad_ones in (False, True):
        model = Transformer(spec, seed=3)
        optimizers = Optimizers(model, replace(rates, decay=0.1))
        for step in range(2):
            if bad_ones:
                gradients(model, tokens(), tokens(), spec.vocab_size, 5)
                for w in model.parameters():
                    assert w.grad is not None
                    w.grad.fill_(math.nan if step else math.inf)
                bad = watched(torch.tensor(1.0), optimizers, 1.0, math.inf)
                assert bad == 1
                optimizers.set(1.0, step)
                optimizers.step(bad)
                optimizers.clear()
            gradients(model, tokens(), tokens(), spec.vocab_size, 5)
            bad = watched(torch.tensor(1.0), optimizers, 1.0, math.inf) if bad_ones else None
            if not bad_ones:
                watched(torch.tensor(1.0), optimizers, 1.0, math.inf)  # it cuts the gradient
            optimizers.set(1.0, step)
            optimizers.step(bad)
            optimizers.clear()
        found.append({**optimizers.tensors(), **dict(model.named_parameters())})
    assert found[0].keys() == found[1].keys()
    for name, tensor in found[0].items():
        assert torch.equal(found[1][name], tensor), name


@pytest.mark.parametrize("loss, most", [(math.nan, math.inf), (math.inf, math.inf), (3.1, 3.0)])
def test_a_loss_that_is_no_number_or_too_large_is_bad(loss: float, most: float) -> None:
    model = Transformer(LLAMA, seed=3)
    optimizers = Optimizers(model, RECIPES["adamw"].rates)
    gradients(model, tokens(), tokens(), LLAMA.vocab_size, 5)
    assert watched(torch.tensor(2.9), optimizers, None, 3.0) == 0
    assert watched(torch.tensor(loss), optimizers, None, most) == 1


def test_what_is_known_of_losses_does_not_hang_on_when_they_are_read() -> None:
    """The last one left out where all are known: as where it is on its way."""
    losses = [2.0 + math.sin(i) for i in range(90)]
    for n in (3, 20, 64, 65, 66, 90):
        assert Spikes(losses[:n]).most(-1) == Spikes(losses[: n - 1]).most()


# --- whole runs -------------------------------------------------------------------------------------------------------

WORDS = (*SHORT, "--steps", "30", "--save-every", "7", "--eval-every", "10")


def weights(run: Path) -> dict[str, Tensor]:
    return {name: w.detach() for name, w in load(run).named_parameters()}


def same(one: Path, other: Path) -> None:
    for name, w in weights(one).items():
        assert torch.equal(weights(other)[name], w), name


def untimed(run: Path) -> list[dict[str, Any]]:
    timed = {"tokens_per_second", "flops_per_second", "peak_flops_per_second", "utilisation"}
    return [{k: v for k, v in row.items() if k not in timed} for row in metrics(run)]


def bad_at(monkeypatch: pytest.MonkeyPatch, steps: tuple[int, ...], factor: float) -> None:
    """The losses of these steps are many times what they are, and their gradients; steps count from 0."""
    given, backward, gradients = in_memory.Run.given, in_memory.backward, in_memory.gradients
    now = [0]

    def told(self: in_memory.Run, step: int) -> Any:
        now[0] = step
        return given(self, step)

    def spoiled(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(model: Transformer, *more: Any) -> Any:
            loss = original(model, *more)
            if now[0] in steps:
                for w in model.parameters():
                    if w.grad is not None:
                        w.grad.mul_(factor)
            return loss * (factor if now[0] in steps else 1)

        return run

    monkeypatch.setattr(in_memory.Run, "given", told)
    monkeypatch.setattr(in_memory, "backward", spoiled(backward))
    monkeypatch.setattr(in_memory, "gradients", spoiled(gradients))


def test_a_run_read_late_is_the_run_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = str(write_text(tmp_path))
    assert main(["train", text, "--out", str(tmp_path / "now"), *WORDS]) == 0
    monkeypatch.setattr(in_memory, "read_late", lambda _: True)
    assert main(["train", text, "--out", str(tmp_path / "late"), *WORDS]) == 0
    same(tmp_path / "now", tmp_path / "late")
    assert untimed(tmp_path / "now") == untimed(tmp_path / "late")


@pytest.mark.parametrize("factor, said", [(math.nan, "the loss is nan"), (math.inf, "the loss is inf"), (1e3, "after")])
@pytest.mark.parametrize("at", [18, 19, 20])  # in the middle, before an evaluation, after a save
def test_it_stops_before_the_bad_step_and_goes_on_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: None, capsys: Any, factor: float, said: str, at: int
) -> None:
    text = str(write_text(tmp_path))
    assert main(["train", text, "--out", str(tmp_path / "whole"), *WORDS]) == 0
    with monkeypatch.context() as patch:
        bad_at(patch, (at,), factor)
        assert main(["train", text, "--out", str(tmp_path / "run"), *WORDS]) == 3
    err = capsys.readouterr().err
    assert f"before step {at + 1} was taken" in err
    assert said in err
    assert newest(tmp_path / "run").name == f"step-{at}"
    assert len(metrics(tmp_path / "run")) == at
    assert main(["train", "--out", str(tmp_path / "run"), "--resume", "--quiet"]) == 0
    same(tmp_path / "whole", tmp_path / "run")
    assert untimed(tmp_path / "whole") == untimed(tmp_path / "run")


def test_a_gradient_that_is_no_number_is_told_by_its_weight_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: None, capsys: Any
) -> None:
    name = "decoder.layers.0.attention.q.weight"

    def spoiled(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(model: Transformer, *more: Any) -> Any:
            loss = original(model, *more)
            model.get_parameter(name).grad[0, 0] = math.inf  # type: ignore[index]
            return loss

        return run

    for each in ("backward", "gradients"):
        monkeypatch.setattr(in_memory, each, spoiled(getattr(in_memory, each)))
    assert main(["train", str(write_text(tmp_path)), "--out", str(tmp_path / "run"), *WORDS]) == 3
    assert f"the gradient of {name} is not finite" in capsys.readouterr().err
    assert newest(tmp_path / "run").name == "step-0"


def test_bad_steps_are_left_out_and_too_many_of_them_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: None
) -> None:
    """As where they are read at once, but for the rate that their rows tell."""
    text, skip = str(write_text(tmp_path)), ("--on-spike", "skip")
    bad_at(monkeypatch, (17, 18, 22), math.nan)
    assert main(["train", text, "--out", str(tmp_path / "late"), *WORDS, *skip]) == 0
    with monkeypatch.context() as patch:
        patch.setattr(in_memory, "read_late", lambda _: False)
        assert main(["train", text, "--out", str(tmp_path / "now"), *WORDS, *skip]) == 0
    same(tmp_path / "now", tmp_path / "late")
    assert [row["step"] for row in metrics(tmp_path / "late") if "skipped" in row] == [18, 19, 23]
    bad_at(monkeypatch, tuple(range(12, 30)), math.nan)
    assert main(["train", text, "--out", str(tmp_path / "none"), *WORDS, *skip]) == 3
    assert newest(tmp_path / "none").name == "step-22"  # ten left out, the eleventh ends it
    assert all(bool(w.isfinite().all()) for w in weights(tmp_path / "none").values())

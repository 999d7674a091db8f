"""How much of the machine goes into the model: the sheet's operations over a peak that was measured, or "unknown"."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from plainformer.checkpoint.runs import spec_of
from plainformer.cli import main
from plainformer.cost import Cost, rules
from plainformer.presets import presets
from plainformer.training import peak
from plainformer.training.peak import Use, step_flops
from plainformer.training.run import Run
from plainformer.training.starting import settings_of
from runs import SHORT, metrics, write_text

Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def run(*words: object) -> tuple[int, str, str]:
        status = main([str(word) for word in words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_f28_the_field_s_ratios_are_these() -> None:
    """GPT-2 small, 1,024 tokens, 178,000 tokens a second: of what an A100 and an H100 do by their data sheets."""
    each = Cost.of(presets["gpt2"], seq_len=1024).model_flops_per_token
    assert each == 855_166_464
    shares = [rules.utilisation(each, 178_000, most) for most in (312e12, 989.5e12)]
    assert shares == pytest.approx([0.488, 0.154], abs=5e-4)


def test_more_than_the_most_is_no_ratio() -> None:
    assert Use(3.0, 4.0).share == 0.75
    assert Use(4.0, 4.0).share == 1
    assert Use(5.0, 4.0).share is None


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_a_peak_is_that_of_the_fastest_product(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that says how long each took: a product of matrices 8 wide is 1,024 operations, 4 wide 128."""
    times = iter([0.0, 0.0, 1.0, 3.0, 3.0, 4.0, 4.5, 9.0, 0.0, 0.0, 0.0, 0.5, 9.0])
    monkeypatch.setattr(peak, "WIDTHS", {"cpu": (8, 4)})
    monkeypatch.setattr(peak, "SECONDS", 8.0)
    monkeypatch.setattr(peak.time, "perf_counter", lambda: next(times))
    assert peak.peak(dtype, torch.device("cpu")) == 1024 / 0.5


def test_a_run_ends_with_what_went_into_the_model(tmp_path: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    text = write_text(tmp_path)
    given = []

    def told(self: Run, seconds: float) -> Use:
        given.append(seconds)
        return Use(2e9, 8e9)

    monkeypatch.setattr(Run, "use", told)
    status, out, _ = ask("train", text, "--out", tmp_path / "run", *SHORT, "--dtype", "float32")
    assert status == 0
    assert "utilisation 25.0%: 2.00 GFLOPs/s of the 8.00 GFLOPs/s of a product of matrices in float32" in out
    last = metrics(tmp_path / "run")[-1]
    assert (last["utilisation"], last["peak_flops_per_second"]) == (0.25, 8e9)
    mean = sum(64 / row["tokens_per_second"] for row in metrics(tmp_path / "run")[1:]) / 11
    assert given == [pytest.approx(mean, rel=1e-3)]  # of the steps after the first one, without evaluations
    found = json.loads(ask("train", "--out", tmp_path / "run", "--resume", "--json")[1])
    assert (found["utilisation"], found["flops_per_second"]) == (0.25, 2e9)
    monkeypatch.setattr(Run, "use", lambda *_: Use(9e9, 8e9))
    _, out, _ = ask("train", text, "--out", tmp_path / "more", *SHORT)
    assert "utilisation unknown: 9.00 GFLOPs/s were done" in out
    assert metrics(tmp_path / "more")[-1]["utilisation"] is None


def test_what_is_measured_is_between_nothing_and_all(tmp_path: Path, ask: Ask) -> None:
    run = tmp_path / "run"
    assert ask("train", write_text(tmp_path), "--out", run, *SHORT)[0] == 0
    last = metrics(run)[-1]
    assert 0 < last["flops_per_second"] < last["peak_flops_per_second"]  # a model 16 wide is never near it
    assert last["utilisation"] == last["flops_per_second"] / last["peak_flops_per_second"]
    flops = step_flops(spec_of(run), settings_of(run))
    assert flops == 3 * Cost.of(spec_of(run), 4, 16).forward_flops


@pytest.mark.parametrize("preset", ["tiny", "small-moe"])
@pytest.mark.parametrize("targets", ["q,v", "q,k,v,out,attention.out,head", "up,down"])
def test_operations_of_adapters_beside_frozen_weights_are_planned(
    tmp_path: Path, ask: Ask, preset: str, targets: str
) -> None:
    """And equal to what torch counts: nothing goes back beyond the first adapter, frozen weights have no gradient."""
    text: Any = write_text(tmp_path)
    small = ("--preset", preset, "--d-model", 16, "--n-layers", 2, "--n-heads", 2, "--context", 16)
    short = ("--batch-size", 4, "--steps", 2, "--quiet")
    assert ask("train", text, "--out", tmp_path / "base", *small, *short)[0] == 0
    words = ("--from", tmp_path / "base", "--lora", 2, "--targets", targets, *short, "--json")
    status, out, _ = ask("train", text, "--out", tmp_path / "run", *words)
    found = json.loads(out)
    assert status == 0
    assert found["ratio"]["flops"] == 1
    assert found["planned"]["flops"] < 2 * 3 * Cost.of(spec_of(tmp_path / "run"), 4, 16).forward_flops

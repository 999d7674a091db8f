"""Rows of a batch side by side: the same gradients, the same bits every time, and nothing lost where one fails.

B batch, T positions, N tokens of a text.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

from plainformer import spec as s
from plainformer.cli import main
from plainformer.fused import fuse
from plainformer.ledger import Ledger
from plainformer.model import Layer, Transformer
from plainformer.spec import Spec
from plainformer.text import split
from plainformer.training import carry_on, gradients, start
from plainformer.training import lanes as side
from plainformer.training.balance import Routed, Traffic
from plainformer.training.decisions import decide
from plainformer.training.evaluation import evaluate
from plainformer.training.forecast import memory_of
from plainformer.training.lanes import MOST_LANES, add_gradients, lanes_for, side_by_side, threads
from plainformer.training.material import Text
from plainformer.training.optimizers import Optimizers
from plainformer.training.processes import Processes, Scores
from plainformer.training.recipe import RECIPES
from plainformer.training.run import lanes_in
from plainformer.training.starting import settings_of
from runs import SHORT, metrics, write_text
from specs import GPT2, LLAMA, MIXTRAL, TINY, change
from test_train_command import same_weights

TEXT = Text(n_tokens=5000, n_train=4500, n_validation=500, vocab_size=GPT2.vocab_size)


def batch(spec: Spec, n_rows: int, n_positions: int = 9, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    x_BT, y_BT = (torch.from_numpy(rng.integers(0, spec.vocab_size, (n_rows, n_positions))) for _ in range(2))
    y_BT[0, :3] = -1
    y_BT[-1] = -1  # a row without any target
    return x_BT, y_BT


def slopes(spec: Spec, lanes: int, micro_batch: int, dtype: str = "float64") -> tuple[float, dict[str, Tensor]]:
    model = Transformer(spec, initial="gpt2", seed=0)
    model = model.double() if dtype == "float64" else fuse(model)[0]
    loss = gradients(model, *batch(spec, 5), spec.vocab_size, micro_batch, dtype, lanes=lanes)
    return loss, {name: w.grad for name, w in model.named_parameters() if w.grad is not None}


BALANCED = change(MIXTRAL, s.Experts, balance=0.3)
SPECS = {
    "mixture": BALANCED,
    "sigmoid": TINY["deepseek-v3"],
    "gpt2": GPT2,
    "llama": LLAMA,
    "capped": TINY["gemma2"],
    "window": TINY["mistral"],
    "lora": TINY["gpt2-lora"],
    "one-layer-for-all": TINY["one-layer-for-all"],
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize(("lanes", "micro_batch"), [(2, 5), (3, 5), (4, 2), (8, 5)])
def test_l7_lanes_are_the_whole_batch(name: str, lanes: int, micro_batch: int) -> None:
    loss, grads = slopes(SPECS[name], 1, 5)
    found, others = slopes(SPECS[name], lanes, micro_batch)
    assert found == pytest.approx(loss, rel=1e-12)
    assert grads.keys() == others.keys()
    for weight, grad in grads.items():
        torch.testing.assert_close(others[weight], grad, rtol=1e-11, atol=1e-13, msg=weight)


@pytest.mark.parametrize("lanes", [2, 3, 5])
def test_the_choices_of_all_lanes_are_counted(lanes: int) -> None:
    found = []
    for n in (1, lanes):
        traffic: Traffic = {}
        model = Transformer(BALANCED, initial="gpt2", seed=0).double()
        gradients(model, *batch(BALANCED, 5), BALANCED.vocab_size, 5, "float64", traffic, lanes=n)
        found.append(traffic)
    assert found[0].keys() == found[1].keys()
    assert all(torch.equal(counts, found[1][place]) for place, counts in found[0].items())
    n_layers, n_chosen, n_real = 2, 2, 33
    assert sum(int(counts.sum()) for counts in found[0].values()) == n_layers * n_chosen * n_real


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_lanes_give_the_same_bits_whichever_is_done_first(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, grads = slopes(LLAMA, 3, 5, dtype)
    real = torch.autograd.grad
    for late in range(3):
        turns = iter(range(3))

        def waits(*given: Any, late: int = late, turns: Iterator[int] = turns, **named: Any) -> Any:
            time.sleep(0.02 * (next(turns) == late))
            return real(*given, **named)

        monkeypatch.setattr(torch.autograd, "grad", waits)
        found, others = slopes(LLAMA, 3, 5, dtype)
        monkeypatch.undo()
        assert found == loss
        assert all(torch.equal(grad, others[weight]) for weight, grad in grads.items())


def test_a_weight_that_is_met_twice_is_rounded_by_each_lane_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's memory of rounded weights is one for all threads: a slope would hang on who was first."""
    spec, real = TINY["one-layer-for-all"], Layer.forward
    found = []
    for seed in range(4):
        drawn = random.Random(seed)

        def waits(layer: Layer, *given: Any, drawn: random.Random = drawn) -> Any:
            time.sleep(drawn.random() / 100)
            return real(layer, *given)

        monkeypatch.setattr(Layer, "forward", waits)
        found.append(slopes(spec, 3, 5, "bfloat16")[1])
    for others in found[1:]:
        assert all(torch.equal(grad, others[weight]) for weight, grad in found[0].items())


def test_each_lane_rounds_its_products_as_one_alone_does() -> None:
    """Autocast is said for each thread: a lane that was not told would multiply in float32."""
    loss, grads = slopes(LLAMA, 1, 5, "bfloat16")
    found, others = slopes(LLAMA, 5, 5, "bfloat16")
    wide, _ = slopes(LLAMA, 1, 5, "float32")
    assert found == pytest.approx(loss, rel=1e-6)
    assert abs(loss - wide) > 1e-5
    for weight, grad in grads.items():
        assert others[weight].dtype is torch.float32
        assert (others[weight] - grad).norm() <= 0.02 * grad.norm() + 1e-6, weight


def test_all_lanes_have_the_caller_s_number_of_threads_at_any_time() -> None:
    """torch gives a thread the number that held when it first asked: a lane of an earlier run would keep that one's."""
    for n in (2, 1, 3, 1):
        with threads(n):
            assert side_by_side(lambda _: torch.get_num_threads(), range(4)) == [n] * 4


def test_a_gradient_lies_as_its_weight_does() -> None:
    weight, times = torch.randn(3, 4, requires_grad=True), torch.randn(4, 3)
    add_gradients([weight], [(weight.mT * times).sum(), (weight * 2).sum()])
    assert weight.grad is not None
    assert weight.grad.stride() == weight.stride()
    torch.testing.assert_close(weight.grad, times.mT + 2)


def test_no_lane_rounds_on_the_way_back() -> None:
    """The first lane is the caller's thread, which is told to round: its gradients would be others than its likes'."""
    told = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, slope: Tensor) -> Tensor:
            told.append(torch.is_autocast_enabled("cpu"))
            return slope

    class Watching(Scores):
        def forward(self, *given: Any) -> tuple[Tensor, Routed]:
            nats, routed = super().forward(*given)
            return cast(Tensor, Watched.apply(nats)), routed  # type: ignore[no-untyped-call]

    model = Transformer(LLAMA, initial="gpt2", seed=0)
    gradients(model, *batch(LLAMA, 4), LLAMA.vocab_size, 4, "bfloat16", scores=Watching(model), lanes=2)
    assert told == [False, False]


def test_each_lane_has_a_gradient_and_then_there_is_their_sum() -> None:
    with threads(2):
        settings = decide({}, TEXT, LLAMA)
    n_bytes = [memory_of(LLAMA, replace(settings, lanes=lanes)) for lanes in (1, 2, 4)]
    gradient = 4 * Ledger.of(LLAMA).total
    assert [one - (n_bytes[0] or 0) for one in n_bytes if one is not None] == [0, 2 * gradient, 4 * gradient]


def test_a_run_that_goes_on_on_a_gpu_has_one_lane() -> None:
    with threads(2):
        settings = decide({}, TEXT, LLAMA)
    assert lanes_in(settings, Processes(device=torch.device("cuda"))) == 1


@pytest.mark.parametrize("words", [("--micro-batch", 1), ("--batch-size", 3), ("--recompute", "full")])
def test_eval_is_the_last_val_loss_to_the_bit_however_many_lanes_trained(
    words: tuple[object, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write_text(tmp_path)
    with threads(2):
        assert main([str(word) for word in ("train", text, "--out", tmp_path / "run", *SHORT, *words, "--quiet")]) == 0
        part = tmp_path / "part.txt"
        whole = text.read_text(encoding="utf-8")
        part.write_text(whole[split(len(whole), 0.1)[1].start :], encoding="utf-8")
        capsys.readouterr()
        assert main(["eval", str(tmp_path / "run"), str(part), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == metrics(tmp_path / "run")[-1]["val_loss"]


def test_what_one_lane_raises_is_raised_when_all_are_done() -> None:
    done = []

    def work(n: int) -> int:
        if n == 0:
            raise ArithmeticError("the first")
        time.sleep(0.05)
        done.append(n)
        return n

    with pytest.raises(ArithmeticError, match="the first"):
        side_by_side(work, range(3))
    assert sorted(done) == [1, 2]
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda n: 1 / n, (1, 0, 2))
    assert side_by_side(lambda n: n + 1, (4,)) == [5]


def test_the_first_item_is_the_caller_s_and_each_other_has_a_thread_of_its_own() -> None:
    meet = threading.Barrier(3, timeout=10)  # all three at once, or nobody

    def work(_: int) -> int:
        meet.wait()
        return threading.get_ident()

    found = side_by_side(work, range(3))
    assert found[0] == threading.get_ident()
    assert len(set(found)) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    assert side_by_side(lambda n: n + 1, range(3)) == [1, 2, 3]
    if not (child := os.fork()):
        os._exit(side_by_side(lambda n: n + 1, range(3)) != [1, 2, 3])
    begun = time.monotonic()
    while time.monotonic() - begun < 20:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child waits for threads that it does not have")


def test_how_many_lanes_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lanes_for(LLAMA, n_rows=8, n_threads=2) == 2
    assert lanes_for(LLAMA, n_rows=1, n_threads=2) == 1
    assert lanes_for(LLAMA, n_rows=64, n_threads=64) == MOST_LANES
    with threads(2):
        assert decide({}, TEXT, LLAMA).lanes == 2
        assert decide({"micro_batch": 1}, TEXT, LLAMA).lanes == 1
        assert decide({"compile": True}, TEXT, LLAMA).lanes == 1
    monkeypatch.setattr(side, "MOST_WEIGHTS", 100)
    assert lanes_for(LLAMA, n_rows=8, n_threads=2) == 1


def test_one_process_among_many_has_one_lane() -> None:
    with threads(2):
        settings = decide({}, TEXT, LLAMA)
    assert lanes_in(settings, Processes()) == 2
    assert lanes_in(settings, Processes(rank=0, world=2)) == 1
    assert lanes_in(settings, Processes(shard=True)) == 1


def test_muon_moves_every_matrix_once_in_any_number_of_lanes() -> None:
    moved = []
    for lanes in (1, 2, 3, 50):
        model = Transformer(LLAMA, initial="gpt2", seed=0).double()
        optimizers = Optimizers(model, RECIPES["muon"].rates, lanes=lanes)
        for step in range(2):
            gradients(model, *batch(LLAMA, 4, seed=step), LLAMA.vocab_size, 4, "float64")
            optimizers.set(1.0, step)
            optimizers.step()
            optimizers.clear()
        moved.append(dict(model.named_parameters()))
    for others in moved[1:]:
        for name, w in moved[0].items():
            torch.testing.assert_close(others[name], w, rtol=1e-9, atol=1e-12, msg=name)


@pytest.mark.parametrize("lanes", [2, 3, 7])
def test_an_evaluation_in_lanes_is_the_same_to_the_last_digit(lanes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plainformer.training.evaluation.AT_ONCE", 24)
    tokens_N = np.random.default_rng(0).integers(0, LLAMA.vocab_size, 200)
    length_V = np.ones(LLAMA.vocab_size, np.int64)
    model = Transformer(LLAMA, initial="gpt2", seed=0).double()
    one, many = (evaluate(model, tokens_N, length_V, lanes=n) for n in (1, lanes))
    assert one is not None
    assert many is not None
    assert many == one


def test_l6_a_run_in_lanes_goes_on_to_the_bit(tmp_path: Path) -> None:
    asked = {"preset": "tiny", "steps": 8, "batch_size": 5, "context": 16, "save_every": 2, "eval_every": 4}
    with threads(2):
        for name in ("whole", "cut"):
            start([write_text(tmp_path)], tmp_path / name, asked)
    assert settings_of(tmp_path / "whole").lanes == 2
    carry_on(tmp_path / "whole", quiet=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plainformer.training.run.Run.save", stop_after(4))
        with pytest.raises(KeyboardInterrupt):
            carry_on(tmp_path / "cut", quiet=True)
    carry_on(tmp_path / "cut", quiet=True)
    assert same_weights(tmp_path / "whole", tmp_path / "cut")
    assert [row["loss"] for row in metrics(tmp_path / "whole")] == [row["loss"] for row in metrics(tmp_path / "cut")]


def stop_after(step: int) -> object:
    from plainformer.training.run import Run

    real = Run.save

    def save(run: Run, saving: object) -> None:
        if run.step > step:
            raise KeyboardInterrupt
        real(run, saving)  # type: ignore[arg-type]

    return save

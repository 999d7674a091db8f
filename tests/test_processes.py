"""Several processes are one: the laws of training, asked of two and three of them.

B batch, T positions.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from plainformer import spec as s
from plainformer.checkpoint import load, newest
from plainformer.checkpoint.runs import damage, is_sharded
from plainformer.cli import main
from plainformer.faults import PlainformerError
from plainformer.model import Transformer
from plainformer.text import Batches
from plainformer.training import Optimizers, evaluate, gradients
from plainformer.training.processes import Processes, joined, whole
from plainformer.training.recipe import RECIPES
from plainformer.training.saving import Saving
from plainformer.training.step import check
from runs import SHORT, metrics, write_text
from specs import GPT2, LLAMA, MIXTRAL, TINY, change
from together import free_port, together

SPECS = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "mixture": change(MIXTRAL, s.Experts, balance=0.3),
    "sigmoid": change(TINY["deepseek-v3"], s.Experts, balance=0.3),
}
STEPS, ROWS = 3, 5


def batch(spec: s.Spec, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows with targets that are not real, one of them without any."""
    rng = np.random.default_rng(step)
    x_BT, y_BT = rng.integers(spec.vocab_size, size=(2, ROWS, 7))
    y_BT[0, 2:], y_BT[3], y_BT[-1, :3] = -1, -1, -1
    return x_BT, y_BT


def trained(spec: s.Spec, optimizer: str, micro_batch: int, processes: Processes) -> dict[str, Tensor]:
    """The weights after some steps, with the losses, the traffic and an evaluation beside them."""
    model, recipe = Transformer(spec, seed=3).double(), RECIPES[optimizer]
    scores = processes.wrapped(model)
    optimizers = Optimizers(model, recipe.rates)
    mine, n_more = processes.rows(ROWS)
    found: dict[str, Tensor] = {}
    for step in range(STEPS):
        blocks = (block[mine.start : mine.stop] for block in batch(spec, step))
        x_BT, y_BT = blocks
        x_BT = np.concatenate((x_BT, np.zeros((n_more, 7), np.int64)))
        y_BT = np.concatenate((y_BT, np.full((n_more, 7), -1)))
        traffic: dict[str, Tensor] = {}
        optimizers.clear()
        given = torch.from_numpy(x_BT), torch.from_numpy(y_BT), spec.vocab_size, micro_batch, "float64", traffic
        loss = gradients(model, *given, processes, scores)
        length = check(loss, optimizers, recipe.clip)
        optimizers.set(1.0, step)
        optimizers.step()
        found |= {f"loss.{step}": torch.tensor([loss, length])}
        found |= {f"traffic.{step}.{place}": count_E for place, count_E in traffic.items()}
    plain = scores if processes.shard or processes.world == 1 else None
    tokens_N = np.random.default_rng(9).integers(spec.vocab_size, size=151)
    measured = evaluate(model, tokens_N, np.ones(spec.vocab_size, np.int64), 8, 3, processes=processes, scores=plain)
    assert measured is not None
    found["evaluation"] = torch.tensor([measured.nats, measured.targets, measured.bytes], dtype=torch.float64)
    return found | {name: whole(w.detach()).clone() for name, w in model.named_parameters()}


def train_all(folder: str, names: tuple[str, ...]) -> None:
    with joined() as all_of_them:
        for name, optimizer, shard in product(names, RECIPES, (False, True)):
            processes = replace(all_of_them, shard=shard)
            micro_batch = 1 if optimizer == "muon" else ROWS  # a mixture's choices: of parts, and at once
            found = trained(SPECS[name], optimizer, micro_batch, processes)
            if processes.first:
                save_file(found, Path(folder) / f"{name}-{optimizer}-{shard}.safetensors")


@pytest.mark.parametrize(
    "world, names",
    [
        (2, ("gpt2", "mixture")),
        pytest.param(2, ("llama", "sigmoid"), marks=pytest.mark.proof),
        pytest.param(3, tuple(SPECS), marks=pytest.mark.proof),
    ],
)
def test_l7_many_processes_are_one(tmp_path: Path, world: int, names: tuple[str, ...]) -> None:
    """DDP and FSDP2, with rows that do not come out even, targets that are not real, mixtures whose balance is of the
    whole batch."""
    together(world, train_all, str(tmp_path), names)
    for name in names:
        for optimizer in RECIPES:
            alone = trained(SPECS[name], optimizer, ROWS, Processes())
            for shard in (False, True):
                found = load_file(tmp_path / f"{name}-{optimizer}-{shard}.safetensors")
                assert found.keys() == alone.keys()
                for key, tensor in alone.items():
                    torch.testing.assert_close(found[key], tensor, rtol=0, atol=1e-12)


def test_each_row_of_a_batch_is_one_process_s_and_all_have_as_many() -> None:
    for world in (1, 2, 3, 7):
        for n_rows in (1, 4, 5, 12):
            shares = [Processes(rank, world).rows(n_rows) for rank in range(world)]
            assert [row for rows, _ in shares for row in rows] == list(range(n_rows))
            assert len({len(rows) + more for rows, more in shares}) == 1


def test_f31_the_order_of_the_text_does_not_hang_on_the_number_of_processes() -> None:
    batches = Batches(np.arange(500), 8, 6, seed=1)
    for step in (0, 3, 40):
        x_BT, y_BT = batches.at(step)
        for world in (2, 3, 4):
            shares = [batches.at(step, *Processes(rank, world).rows(6)) for rank in range(world)]
            assert len({x_MT.shape for x_MT, _ in shares}) == 1
            y_RT = np.concatenate([y_MT for _, y_MT in shares])
            real_R = (y_RT >= 0).all(1)
            assert (y_RT[~real_R] == -1).all()
            assert np.array_equal(y_RT[real_R], y_BT)
            assert np.array_equal(np.concatenate([x_MT for x_MT, _ in shares])[real_R], x_BT)


# --- whole runs -------------------------------------------------------------------------------------------------------

RUN = (*SHORT, "--steps", "20", "--eval-every", "5", "--save-every", "5", "--dtype", "float64", "--batch-size", "5")


def torchrun(world: int, *words: object) -> subprocess.Popen[str]:
    """A run of several processes, in a group of its own."""
    port = f"--master-port={free_port()}"
    command = [sys.executable, "-m", "torch.distributed.run", port, f"--nproc-per-node={world}", "-m", "plainformer"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, *map(str, words)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def workers_of(job: subprocess.Popen[str]) -> list[int]:
    """The processes that a torchrun started, by rank."""
    found = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    return sorted(int(pid) for pid in found if b"plainformer" in Path(f"/proc/{pid}/cmdline").read_bytes())


def until_step(run: Path, step: int, job: subprocess.Popen[str]) -> None:
    """Wait until the row of a step is written."""
    for _ in range(2400):
        if job.poll() is not None or ((run / "metrics.jsonl").is_file() and len(metrics_so_far(run)) >= step):
            return
        time.sleep(0.025)
    raise AssertionError(f"step {step} was not reached")


def metrics_so_far(run: Path) -> list[bytes]:
    return (run / "metrics.jsonl").read_bytes().splitlines()


def weights(run: Path) -> dict[str, Tensor]:
    return {name: w.detach() for name, w in load(run).named_parameters()}


def kill_all(job: subprocess.Popen[str]) -> None:
    for pid in workers_of(job):
        os.kill(pid, signal.SIGKILL)
    job.kill()
    job.communicate()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that the others must be, by one process."""
    folder = tmp_path_factory.mktemp("alone")
    assert main(["train", str(write_text(folder)), "--out", str(folder / "run"), *RUN]) == 0
    return folder / "run"


linux = pytest.mark.skipif(sys.platform != "linux", reason="peak memory of a process is read from /proc")


@linux
@pytest.mark.parametrize("flags", [("--shard",), pytest.param((), marks=pytest.mark.proof)])
def test_f31_a_killed_process_ends_all_within_a_minute_and_the_run_goes_on(
    alone: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """F23 and F31: two processes evaluate and save as one does; one is killed, the other ends; the rest is resumed."""
    text, run = alone.parent / "text.txt", tmp_path / "run"
    words = ("train", text, "--out", run, *RUN, *flags)
    job = torchrun(2, *words)
    until_step(run, 7, job)
    workers, at = workers_of(job), time.monotonic()
    os.kill(workers[1], signal.SIGKILL)
    _, err = job.communicate(timeout=60)
    assert time.monotonic() - at < 60
    assert job.returncode != 0
    assert "plainformer: " in err
    assert "go on with --resume" in err
    assert newest(run).name in ("step-5", "step-10", "step-15")
    assert is_sharded(newest(run)) == bool(flags)
    if flags:
        shares_cut_short_are_noticed(run, tmp_path / "copy")
    assert "after 20 steps" not in (run / "sample.txt").read_text()
    job = torchrun(2, *words, "--resume")
    _, err = job.communicate(timeout=120)
    assert job.returncode == 0, err
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-15", "step-20"]
    rows, expected = metrics(run), metrics(alone)
    assert [row["step"] for row in rows] == [row["step"] for row in expected]
    for key in ("loss", "lr", "val_loss"):
        found = [row.get(key, 0.0) for row in rows]
        assert found == pytest.approx([row.get(key, 0.0) for row in expected], abs=1e-10)
    for name, w in weights(alone).items():
        torch.testing.assert_close(weights(run)[name], w, rtol=0, atol=1e-10)
    assert (run / "sample.txt").read_text() == (alone / "sample.txt").read_text()  # written by both, where they share


def shares_cut_short_are_noticed(run: Path, copy: Path) -> None:
    """Each file of a step in shares, cut, absent or forgotten by its sums."""
    whole = newest(run)
    files = [path.relative_to(whole) for path in whole.rglob("*") if path.is_file()]
    assert len(files) == 6  # two of weights, two of the optimiser, the state, the sums
    for file in files:
        for how in ("cut", "gone", "unknown"):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(whole, copy)
            content = (copy / file).read_bytes()
            if how == "cut":
                (copy / file).write_bytes(content[: len(content) // 2])
            elif how == "gone":
                (copy / file).unlink()
            elif file.name.endswith(".safetensors"):
                sums = (copy / "sums").read_text().splitlines(keepends=True)
                (copy / "sums").write_text("".join(line for line in sums if str(file) not in line))
            else:
                continue
            assert damage(copy) is not None, (file, how)
    assert damage(whole) is None


def wait_for_the_other(folder: str) -> None:
    """One is late at two sums: by less than it is waited for at the first, by more at the second."""
    with joined() as processes:
        told = ""
        try:
            with processes.together():
                for seconds in (30.0, 1.0):
                    processes.wait_at_most(seconds)
                    time.sleep(3.0 * processes.rank)
                    total = processes.sums(1.0)
                    told += f"{total[0]:.0f} "
        except PlainformerError as refused:
            told += str(refused)
        (Path(folder) / f"told-{processes.rank}").write_text(told, encoding="utf-8")
        os._exit(0)  # without taking leave of who is gone


def test_how_long_processes_wait_for_each_other_can_be_said(tmp_path: Path) -> None:
    together(2, wait_for_the_other, str(tmp_path))
    said = (tmp_path / "told-0").read_text()
    assert said.startswith("2 ")
    assert "another process of this run is gone, or has not answered in time" in said


def fill_the_disk(folder: str) -> None:
    """A save in shares where no file may be large: what each process is told."""
    import resource

    with joined(True) as processes:
        model = Transformer(GPT2, seed=1)
        processes.wrapped(model)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
        told = ""
        try:
            Saving(Path(folder), processes).save(1, model.state_dict(), {}, {"step": 1})
        except PlainformerError as refused:
            told = str(refused)
        (Path(folder) / f"told-{processes.rank}").write_text(told, encoding="utf-8")


@linux
def test_a_disk_that_fills_while_shares_are_written_leaves_nothing_half_written(tmp_path: Path) -> None:
    together(2, fill_the_disk, str(tmp_path))
    assert ["the disk is full" in (tmp_path / f"told-{rank}").read_text() for rank in (0, 1)] == [True, True]
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["told-0", "told-1"]


@pytest.mark.proof
@linux
@pytest.mark.parametrize("flags", [(), ("--shard",)])
def test_l6_two_killed_processes_end_as_the_uninterrupted_two(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Default dtype as shipped; the whole job is killed, three times, where chance has it."""
    words = ("train", write_text(tmp_path), *SHORT, "--steps", 40, "--save-every", 2, "--eval-every", 10, *flags)
    job = torchrun(2, *words, "--out", tmp_path / "whole")
    assert job.communicate(timeout=120)
    assert job.returncode == 0
    run, rng = tmp_path / "run", np.random.default_rng(0)
    for step in (3, 12, 25):
        job = torchrun(2, *words, "--out", run, "--resume")
        until_step(run, step, job)
        time.sleep(rng.uniform(0, 0.05))
        kill_all(job)
    job = torchrun(2, *words, "--out", run, "--resume")
    assert job.communicate(timeout=120)
    assert job.returncode == 0
    for name, w in weights(tmp_path / "whole").items():
        assert torch.equal(weights(run)[name], w)
    timed = {"tokens_per_second", "flops_per_second", "peak_flops_per_second", "utilisation"}
    whole_rows, found = metrics(tmp_path / "whole"), metrics(run)
    assert [{k: v for k, v in row.items() if k not in timed} for row in found] == [
        {k: v for k, v in row.items() if k not in timed} for row in whole_rows
    ]


@pytest.mark.proof
@linux
def test_a_run_goes_on_with_other_numbers_of_processes_and_shares(alone: Path, tmp_path: Path) -> None:
    """From one to two that share, to three that do not, to one: each change is said, the weights are the same."""
    text, run = alone.parent / "text.txt", tmp_path / "run"
    shutil.copytree(alone, run)
    for step in (run / "checkpoints").iterdir():
        shutil.rmtree(step)
    source = tmp_path / "source"
    job = torchrun(2, "train", text, "--out", source, *RUN, "--shard")
    until_step(source, 6, job)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=60)
    first = newest(source)
    assert is_sharded(first)
    job = torchrun(3, "train", "--out", source, "--resume")
    until_step(source, int(first.name.removeprefix("step-")) + 3, job)
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=60)
    assert "3 processes, 2 before" in err
    assert not is_sharded(newest(source))
    assert main(["train", "--out", str(source), "--resume", "--quiet"]) == 0
    for name, w in weights(alone).items():
        torch.testing.assert_close(weights(source)[name], w, rtol=0, atol=1e-10)


@pytest.mark.proof
@linux
def test_processes_whose_torchrun_is_gone_save_and_end(tmp_path: Path) -> None:
    words = ("train", write_text(tmp_path), *SHORT, "--steps", 3000, "--save-every", 3000, "--out", tmp_path / "run")
    job = torchrun(2, *words)
    until_step(tmp_path / "run", 5, job)
    workers = workers_of(job)
    job.kill()
    for _ in range(400):
        if not any(is_alive(pid) for pid in workers):
            break
        time.sleep(0.05)
    assert not any(is_alive(pid) for pid in workers)
    job.communicate(timeout=60)
    assert newest(tmp_path / "run").name != "step-0"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_shares_without_anybody_to_share_with_are_refused(
    alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("train", alone.parent / "text.txt", "--out", tmp_path / "run", *RUN, "--shard")
    assert main([str(word) for word in words]) == 2
    assert "torchrun -m plainformer train" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert json.loads((newest(alone) / "state.json").read_text())["processes"] == 1

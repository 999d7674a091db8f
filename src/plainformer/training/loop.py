"""The training loop: from a run's newest whole step to its last, and everything that may stop it between."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal, cast

import torch

from plainformer.checkpoint.atomic import held, sweep
from plainformer.checkpoint.runs import (
    CHECKPOINTS,
    OPTIMIZER,
    fill,
    newest,
    optimizer_of,
    spec_of,
    state_of,
    tokenizer_of,
)
from plainformer.model import Transformer
from plainformer.text import Batches, TokenFile, split, token_bytes
from plainformer.text.encoding import end_id
from plainformer.text.files import written_beside
from plainformer.text.pairs import PairBatches
from plainformer.training.balance import Traffic
from plainformer.training.evaluation import Evaluation, evaluate
from plainformer.training.finetuning import choose_trained
from plainformer.training.forecast import Forecast, taken
from plainformer.training.journal import Journal, draw, rows
from plainformer.training.material import TOKENS, pairs_of, tell
from plainformer.training.optimizers import optimizers_for
from plainformer.training.passing import as_decided
from plainformer.training.processes import ALONE, Processes, Scores, whole
from plainformer.training.progress import Progress
from plainformer.training.saving import Saving
from plainformer.training.spikes import IN_A_ROW, Spikes
from plainformer.training.starting import Sample, settings_of, titled
from plainformer.training.step import BadStep, check, gradients

Ending = Literal["done", "nothing to do", "stopped", "bad step"]
OnSpike = Literal["stop", "skip"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended, for the one who asked."""

    ending: Ending
    step: int
    saved: Path  # the newest whole step
    cause: str = ""  # of a bad step, or the signal
    evaluation: Evaluation | None = None
    taken: Forecast | None = None  # of a run that this process has ended


class Stop:
    """Set by Ctrl-C or SIGTERM: the step is finished and saved first. A second one stops at once."""

    def __init__(self) -> None:
        self.asked = ""

    def see_to_it(self, processes: Processes) -> None:
        """Stop where torchrun, which started these processes, is gone: nobody would notice if one of them died."""
        if processes.orphaned and not self.asked:
            self.asked = "the end of torchrun"

    def take(self, number: int, _: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = signal.Signals(number).name


@contextmanager
def stopping() -> Iterator[Stop]:
    """Listen for Ctrl-C and SIGTERM; only a process's main thread can."""
    stop = Stop()
    listening = threading.current_thread() is threading.main_thread()
    before = {s: signal.signal(s, stop.take) for s in (signal.SIGINT, signal.SIGTERM)} if listening else {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def exact(threads: int) -> Iterator[None]:
    """Sums in one order: as many threads as the run was started with, and algorithms that give the same bits."""
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    memory = cast(Any, torch.utils.deterministic)  # its one setting is not in its stubs
    filling = memory.fill_uninitialized_memory
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        torch.use_deterministic_algorithms(before[1])
        memory.fill_uninitialized_memory = filling


class Run:
    """A run as it stands in memory: the model and all that moves it."""

    def __init__(self, folder: Path, processes: Processes = ALONE) -> None:
        self.folder, self.settings, self.processes = folder, settings_of(folder), processes
        self.tokenizer = tokenizer_of(folder)
        self.length_V = token_bytes(self.tokenizer)
        self.tokens = TokenFile.open(folder / TOKENS, self.tokenizer)
        self.pairs = pairs_of(folder, self.tokens) if self.settings.documents == "pairs" else None
        n_all = self.tokens.n_tokens if self.pairs is None else len(self.pairs)
        self.train, self.validation = split(n_all, self.settings.validation)
        self.end = end_id(self.tokenizer) if self.settings.documents == "apart" else None
        saved = newest(folder)
        state = state_of(saved)
        self.step, self.seconds = int(state["step"]), float(state["seconds"])
        self.first = self.step
        self.spikes, self.skipped = Spikes(state.get("losses", ())), 0
        self.evaluation: Evaluation | None = None  # the newest of this process
        with torch.device("meta" if processes.shard else processes.device):
            self.model = Transformer(spec_of(folder), initial=None)
        choose_trained(self.model, self.settings)
        as_decided(self.model, self.settings, processes.device.type)
        if processes.shard:  # no process ever holds all weights
            self.scores = processes.wrapped(self.model)
            self.model.to_empty(device=processes.device)
            fill(self.model, saved)
        else:  # DDP is made for weights as they are: their dtype is the checkpoint's
            fill(self.model, saved)
            self.scores = processes.wrapped(self.model)
        self.optimizers = optimizers_for(self.model, self.settings)
        self.optimizers.restore(optimizer_of(saved, self.optimizers.named), str(saved / OPTIMIZER))
        self.traffic: Traffic = {}  # of the last step: each mixture's tokens by expert
        how = self.settings.context, self.settings.batch_size, self.settings.seed
        if self.pairs is not None:
            self.batches: Batches | PairBatches = PairBatches(self.pairs.part(self.train), *how)
        else:
            self.batches = Batches(self.tokens.slice(self.train), *how, self.end)
        was = int(state.get("processes", processes.world))
        if was != processes.world and processes.first and self.step:
            tell(f"{processes.world} processes, {was} before: equal to 1e-5, not to the bit")

    def save(self, saving: Saving) -> None:
        settings = self.settings
        state = {
            "step": self.step,
            "tokens": self.step * settings.batch_size * settings.context,
            "seconds": self.seconds,
            "losses": list(self.spikes.losses),
            "processes": self.processes.world,
        }
        saving.save(self.step, self.model.state_dict(), self.optimizers.tensors(), state)

    def update(self) -> float:
        """One step: its loss. Raises BadStep before any weight has moved."""
        settings, processes = self.settings, self.processes
        mine, n_more = processes.rows(settings.batch_size)
        x_BT, y_BT = (
            torch.from_numpy(block).to(processes.device) for block in self.batches.at(self.step, mine, n_more)
        )
        self.optimizers.clear()
        self.traffic, n_tokens = {}, self.tokenizer.n_tokens
        more = settings.micro_batch, settings.dtype, self.traffic, processes, self.scores, settings.loss_rows
        loss = gradients(self.model, x_BT, y_BT, n_tokens, *more)
        check(loss, self.optimizers, settings.clip)
        if spike := self.spikes.cause(loss):
            raise BadStep(spike)
        self.optimizers.set(settings.schedule.at(self.step), self.step)
        self.optimizers.step()
        self.spikes.keep(loss)
        self.step += 1
        self.skipped = 0
        return loss

    def skip(self) -> None:
        """Leave a step out: its batch is not seen, the rates go on."""
        self.optimizers.clear()
        self.traffic = {}
        self.step += 1
        self.skipped += 1

    def evaluate(self, stop: Stop) -> Evaluation | None:
        """The whole validation part; None where there is none, or where a signal came first."""
        if not len(self.validation):
            return None
        return evaluate(
            self.model,
            self.tokens.slice(self.validation),
            self.length_V,
            self.settings.context,
            go_on=lambda: not stop.asked,
            processes=self.processes,
            scores=self.scores if self.processes.shard else Scores(self.model),
            end=self.end,
            pairs=None if self.pairs is None else self.pairs.part(self.validation),
        )


def carry_on(
    folder: str | Path,
    sample: Sample | None = None,
    quiet: bool = False,
    processes: Processes = ALONE,
    on_spike: OnSpike = "stop",
    board: bool = False,
) -> Outcome:
    """Train a run from its newest whole step to its last one.

    on_spike: what to do where a loss has exploded or is no number: "stop" before the update, or "skip" it.
    board: whether the rows of metrics.jsonl are also written for TensorBoard.
    Raises PlainformerError: the run is damaged, another process is at work in it, or the disk is full.
    """
    folder = Path(folder)
    with ExitStack() as kept, stopping() as stop:

        def take() -> None:
            kept.enter_context(held(folder))
            sweep(folder)
            sweep(folder / CHECKPOINTS)

        processes.led(take)
        settings = settings_of(folder)
        with exact(settings.threads), processes.together():
            run = Run(folder, processes)
            kept_rows = closing(Journal(folder, run.step, processes.first, board))
            with kept_rows as journal, Saving(folder, processes) as saving:
                return advance(run, journal, saving, stop, sample, quiet or not processes.first, on_spike)


def advance(
    run: Run, journal: Journal, saving: Saving, stop: Stop, sample: Sample | None, quiet: bool, on_spike: OnSpike
) -> Outcome:
    """The loop itself."""
    settings, first, processes = run.settings, run.step, run.processes
    n_tokens = settings.batch_size * settings.context
    with Progress(first, settings.steps, quiet) as progress:
        if first < settings.steps:
            progress.say(f"steps {first + 1:,} to {settings.steps:,}: {way(run)}")
        while run.step < settings.steps:
            begun = time.monotonic()
            row: dict[str, Any] = {"step": run.step + 1, "tokens": (run.step + 1) * n_tokens}
            try:
                row["loss"] = run.update()
            except BadStep as bad:
                if on_spike == "stop" or run.skipped == IN_A_ROW:
                    return given_up(run, saving, bad)
                run.skip()
                row["skipped"] = str(bad)
                progress.say(f"step {run.step:,} left out: {bad}")
            seconds = time.monotonic() - begun
            row["lr"] = run.optimizers.lr
            row["tokens_per_second"] = round(n_tokens / seconds, 1)
            if run.traffic:
                row["tokens_per_expert"] = {place: count_E.tolist() for place, count_E in run.traffic.items()}
            if run.step % settings.eval_every == 0 or run.step == settings.steps:
                row |= measure(run, stop, progress)
            journal.append(row)
            saving.look()
            run.seconds += time.monotonic() - begun
            if "loss" in row:
                progress.step(run.step, row["loss"], row["tokens_per_second"])
            stop.see_to_it(processes)
            stopped = processes.any(stop.asked)
            if run.step % settings.save_every == 0 or run.step == settings.steps or stopped:
                journal.settle()
                run.save(saving)
                if stopped:
                    processes.led(saving.wait)
                    return Outcome("stopped", run.step, newest(run.folder), stop.asked or "another process")
        processes.led(saving.wait)
        finished = finish(run, journal, stop, sample, progress)
    ending: Ending = "stopped" if stop.asked else "done" if finished else "nothing to do"
    alone = ending == "done" and not processes.shard and processes.first
    took = taken(run.model, settings, run.seconds) if alone else None
    return Outcome(ending, run.step, newest(run.folder), stop.asked, run.evaluation, took)


def way(run: Run) -> str:
    """How a run is trained, in a few words."""
    settings, processes = run.settings, run.processes
    size = sum(w.numel() for w in run.model.parameters())
    said = [f"{size:,} parameters", settings.rates.optimizer, settings.dtype, f"{settings.threads} threads"]
    if processes.world > 1 or processes.shard:
        said.append(f"{processes.world} processes" + (" that share the weights" if processes.shard else ""))
    return ", ".join(said)


def measure(run: Run, stop: Stop, progress: Progress) -> dict[str, float | None]:
    """The columns of an evaluation; none where there was none."""
    found = run.evaluate(stop)
    if found is None:
        return {}
    run.evaluation = found
    progress.measured(run.step, found.loss)
    return {"val_loss": found.loss, "val_bits_per_byte": found.bits_per_byte}


def finish(run: Run, journal: Journal, stop: Stop, sample: Sample | None, progress: Progress) -> bool:
    """What follows the last step: its evaluation, the picture, the text after training. False: all was there."""
    made = False
    last = [row for row in rows(run.folder / "metrics.jsonl") if row["step"] == run.step]
    if run.processes.any(run.processes.first and len(run.validation) and not any("val_loss" in row for row in last)):
        journal.append({"step": run.step} | measure(run, stop, progress))
        made = True
    if not run.processes.first:
        return made
    if made or run.step != run.first or not (run.folder / "loss.svg").is_file():
        draw(run.folder)
        made = True
    return written(run, sample) or made if not stop.asked else made


def written(run: Run, sample: Sample | None) -> bool:
    """Add the text after training to sample.txt. False: nothing to add, or no process holds the whole model."""
    path, title = run.folder / "sample.txt", f"after {run.step:,} steps"
    before = path.read_bytes() if path.is_file() else b""  # somebody may have put anything there
    if sample is None or f"--- {title} ---".encode() in before or run.processes.shard:
        return False
    with written_beside(path) as file:
        file.write(before + b"\n" + titled(title, sample(run.model, run.tokenizer)).encode())
    return True


def given_up(run: Run, saving: Saving, bad: BadStep) -> Outcome:
    """Keep the weights as they were before the bad step, if they are numbers."""
    run.optimizers.clear()
    sound = [bool(whole(w.isfinite().all())) for w in run.optimizers.named.values()]  # all processes ask for each
    if all(sound):
        run.save(saving)
    run.processes.led(saving.wait)
    return Outcome("bad step", run.step, newest(run.folder), str(bad))

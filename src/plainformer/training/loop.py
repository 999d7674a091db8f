"""The training loop: from a run's newest whole step to its last, and everything that may stop it between."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
    save_step,
    spec_of,
    state_of,
    tokenizer_of,
)
from plainformer.model import Transformer
from plainformer.text import Batches, TokenFile, split, token_bytes
from plainformer.text.files import written_beside
from plainformer.training.balance import Traffic
from plainformer.training.evaluation import Evaluation, evaluate
from plainformer.training.journal import Journal, draw, rows
from plainformer.training.optimizers import optimizers_for
from plainformer.training.progress import Progress
from plainformer.training.starting import TOKENS, Sample, settings_of, titled
from plainformer.training.step import BadStep, check, gradients

Ending = Literal["done", "nothing to do", "stopped", "bad step"]


@dataclass(frozen=True)
class Outcome:
    """How a run ended, for the one who asked."""

    ending: Ending
    step: int
    saved: Path  # the newest whole step
    cause: str = ""  # of a bad step, or the signal
    evaluation: Evaluation | None = None


class Stop:
    """Set by Ctrl-C or SIGTERM: the step is finished and saved first. A second one stops at once."""

    def __init__(self) -> None:
        self.asked = ""

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

    def __init__(self, folder: Path) -> None:
        self.folder, self.settings = folder, settings_of(folder)
        self.tokenizer = tokenizer_of(folder)
        self.length_V = token_bytes(self.tokenizer)
        self.tokens = TokenFile.open(folder / TOKENS, self.tokenizer)
        self.train, self.validation = split(self.tokens.n_tokens, self.settings.validation)
        saved = newest(folder)
        state = state_of(saved)
        self.step, self.seconds = int(state["step"]), float(state["seconds"])
        self.first = self.step
        self.evaluation: Evaluation | None = None  # the newest of this process
        self.model = Transformer(spec_of(folder), initial=None)
        fill(self.model, saved)
        self.optimizers = optimizers_for(self.model, self.settings)
        self.optimizers.restore(optimizer_of(saved), str(saved / OPTIMIZER))
        self.traffic: Traffic = {}  # of the last step: each mixture's tokens by expert
        settings = self.settings
        self.batches = Batches(self.tokens.slice(self.train), settings.context, settings.batch_size, settings.seed)

    def save(self) -> Path:
        settings = self.settings
        state = {
            "step": self.step,
            "tokens": self.step * settings.batch_size * settings.context,
            "seconds": self.seconds,
        }
        return save_step(self.folder, self.step, self.model, self.optimizers.tensors(), state)

    def update(self) -> tuple[float, float]:
        """One step: (loss, the first rate). Raises BadStep before any weight has moved."""
        settings = self.settings
        x_BT, y_BT = (torch.from_numpy(block) for block in self.batches.at(self.step))
        self.optimizers.clear()
        self.traffic, n_tokens = {}, self.tokenizer.n_tokens
        loss = gradients(self.model, x_BT, y_BT, n_tokens, settings.micro_batch, settings.dtype, self.traffic)
        check(loss, self.optimizers, settings.clip)
        self.optimizers.set(settings.schedule.at(self.step), self.step)
        self.optimizers.step()
        self.step += 1
        return loss, self.optimizers.lr

    def evaluate(self, stop: Stop) -> Evaluation | None:
        """The whole validation part; None where there is none, or where a signal came first."""
        if not len(self.validation):
            return None
        tokens_N = self.tokens.slice(self.validation)
        return evaluate(self.model, tokens_N, self.length_V, self.settings.context, go_on=lambda: not stop.asked)


def carry_on(folder: str | Path, sample: Sample | None = None, quiet: bool = False) -> Outcome:
    """Train a run from its newest whole step to its last one.

    Raises PlainformerError: the run is damaged, another process is at work in it, or the disk is full.
    """
    folder = Path(folder)
    with held(folder), stopping() as stop:
        sweep(folder)
        sweep(folder / CHECKPOINTS)
        settings = settings_of(folder)
        with exact(settings.threads):
            run = Run(folder)
            journal = Journal(folder, run.step)
            try:
                return advance(run, journal, stop, sample, quiet)
            finally:
                journal.close()


def advance(run: Run, journal: Journal, stop: Stop, sample: Sample | None, quiet: bool) -> Outcome:
    """The loop itself."""
    settings, first = run.settings, run.step
    n_tokens = settings.batch_size * settings.context
    with Progress(first, settings.steps, quiet) as progress:
        if first < settings.steps:
            size = sum(w.numel() for w in run.model.parameters())
            way = f"{settings.rates.optimizer}, {settings.dtype}, {settings.threads} threads"
            progress.say(f"steps {first + 1:,} to {settings.steps:,}: {size:,} parameters, {way}")
        while run.step < settings.steps:
            begun = time.monotonic()
            try:
                loss, lr = run.update()
            except BadStep as bad:
                return given_up(run, bad)
            seconds = time.monotonic() - begun
            row: dict[str, Any] = {"step": run.step, "tokens": run.step * n_tokens, "loss": loss, "lr": lr}
            row["tokens_per_second"] = round(n_tokens / seconds, 1)
            if run.traffic:
                row["tokens_per_expert"] = {place: count_E.tolist() for place, count_E in run.traffic.items()}
            if run.step % settings.eval_every == 0 or run.step == settings.steps:
                row |= measure(run, stop, progress)
            journal.append(row)
            run.seconds += time.monotonic() - begun
            progress.step(run.step, loss, row["tokens_per_second"])
            if run.step % settings.save_every == 0 or run.step == settings.steps or stop.asked:
                journal.settle()
                saved = run.save()
                if stop.asked:
                    return Outcome("stopped", run.step, saved, stop.asked)
        finished = finish(run, journal, stop, sample, progress)
    ending: Ending = "stopped" if stop.asked else "done" if finished else "nothing to do"
    return Outcome(ending, run.step, newest(run.folder), stop.asked, run.evaluation)


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
    last = [row for row in rows(journal.path) if row["step"] == run.step]
    if len(run.validation) and not any("val_loss" in row for row in last):
        journal.append({"step": run.step} | measure(run, stop, progress))
        made = True
    if made or run.step != run.first or not (run.folder / "loss.svg").is_file():
        draw(run.folder)
        made = True
    return written(run, sample) or made if not stop.asked else made


def written(run: Run, sample: Sample | None) -> bool:
    """Add the text after training to sample.txt. False: nothing to add."""
    path, title = run.folder / "sample.txt", f"after {run.step:,} steps"
    before = path.read_text(encoding="utf-8") if path.is_file() else ""
    if sample is None or f"--- {title} ---" in before:
        return False
    with written_beside(path) as file:
        file.write((before + "\n" + titled(title, sample(run.model, run.tokenizer))).encode())
    return True


def given_up(run: Run, bad: BadStep) -> Outcome:
    """Keep the weights as they were before the bad step, if they are numbers."""
    run.optimizers.clear()
    sound = all(bool(w.isfinite().all()) for w in run.optimizers.named.values())
    return Outcome("bad step", run.step, run.save() if sound else newest(run.folder), str(bad))

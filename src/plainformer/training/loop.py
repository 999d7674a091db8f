"""The training loop: from a run's newest whole step to its last, and everything that may stop it between."""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import FrameType
from typing import Any, Literal, cast

import torch

from plainformer.checkpoint.atomic import held, sweep
from plainformer.checkpoint.runs import CHECKPOINTS, newest
from plainformer.text.files import written_beside
from plainformer.training.evaluation import Evaluation
from plainformer.training.forecast import Forecast, taken
from plainformer.training.journal import Journal, draw, rows
from plainformer.training.lanes import threads
from plainformer.training.processes import ALONE, Processes, Scores, whole
from plainformer.training.progress import Progress
from plainformer.training.run import Run, lanes_in
from plainformer.training.saving import Saving
from plainformer.training.spikes import IN_A_ROW
from plainformer.training.starting import Sample, settings_of, titled
from plainformer.training.step import BadStep

Ending = Literal["done", "nothing to do", "stopped", "bad step"]
OnSpike = Literal["stop", "skip"]
WRITTEN = ("metrics.jsonl", "loss.svg", "sample.txt")  # by a run at work, each beside its name first


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
def exact(n_threads: int, compiled: bool) -> Iterator[None]:
    """Sums in one order: as many threads for each product as the run was started with, and algorithms that give the
    same bits. Of the two ways to ask for those, the one that asks torch.compile too loads it first: seconds, where
    nothing is compiled."""
    before = torch.get_deterministic_debug_mode()
    memory = cast(Any, torch.utils.deterministic)  # its one setting is not in its stubs
    filling = memory.fill_uninitialized_memory
    torch.set_deterministic_debug_mode("error")
    if compiled:
        torch.use_deterministic_algorithms(True)
    memory.fill_uninitialized_memory = False
    try:
        with threads(n_threads):
            yield
    finally:
        if compiled:
            torch.use_deterministic_algorithms(False)
        torch.set_deterministic_debug_mode(before)
        memory.fill_uninitialized_memory = filling


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
            sweep(folder, WRITTEN)
            sweep(folder / CHECKPOINTS)

        processes.led(take)
        settings = settings_of(folder)
        with exact(settings.threads // lanes_in(settings, processes), settings.compile), processes.together():
            run = Run(folder, processes)
            kept_rows = closing(Journal(folder, run.step, processes.first, board))
            with kept_rows as journal, Saving(folder, processes) as saving:
                return advance(run, journal, saving, stop, sample, quiet or not processes.first, on_spike)


class Told:
    """The rows of a run's last steps, until their losses are known: at once, or when the next step is on its way."""

    def __init__(self, journal: Journal, progress: Progress, stop: Stop, skips: bool) -> None:
        self.journal, self.progress, self.stop, self.skips = journal, progress, stop, skips
        self.rows = deque[dict[str, Any]]()
        self.since = time.monotonic()  # the end of what was waited for last
        self.seconds = list[float]()  # of each step of this process, evaluations and saves left out

    def begin(self, run: Run) -> None:
        """One step more."""
        if not self.rows:
            self.since = time.monotonic()
        row: dict[str, Any] = {"step": run.step + 1, "tokens": (run.step + 1) * run.tokens_a_step}
        run.begin()
        row["lr"] = run.optimizers.lr
        if run.traffic:
            row["tokens_per_expert"] = {place: count_E.tolist() for place, count_E in run.traffic.items()}
        self.rows.append(row)

    def read(self, run: Run, n_left: int, measuring: bool = False) -> None:
        """Write all rows but the last n_left; measuring: with an evaluation in the last one. Raises BadStep where the
        run is to stop: it then stands before the bad step."""
        while len(self.rows) > n_left:
            row = self.rows.popleft()
            try:
                row["loss"] = run.outcome()
            except BadStep as bad:
                if not self.skips or run.skipped == IN_A_ROW:
                    raise run.back(row["step"] - 1, bad) from None
                run.skip()
                row.pop("tokens_per_expert", None)
                row["skipped"] = str(bad)
                self.progress.say(f"step {row['step']:,} left out: {bad}")
            now = time.monotonic()
            row["tokens_per_second"] = round(run.tokens_a_step / (now - self.since), 1)
            self.seconds.append(now - self.since)
            self.since = now
            if measuring and not self.rows:
                row |= measure(run, self.stop, self.progress)
            if row["step"] == run.settings.steps and run.processes.first:
                row |= run.use(fmean(self.seconds[1:] or self.seconds)).to_json()  # the first one compiles and loads
            self.journal.append(row)
            if "loss" in row:
                self.progress.step(row["step"], row["loss"], row["tokens_per_second"])


def advance(
    run: Run, journal: Journal, saving: Saving, stop: Stop, sample: Sample | None, quiet: bool, on_spike: OnSpike
) -> Outcome:
    """The loop itself."""
    settings, first, processes = run.settings, run.step, run.processes
    run.stops = on_spike == "stop"
    with Progress(first, settings.steps, quiet) as progress:
        told = Told(journal, progress, stop, on_spike == "skip")
        begun = time.monotonic()
        caught_up = catch_up(run, journal, stop, progress)
        run.seconds += time.monotonic() - begun
        if processes.any(stop.asked):
            return Outcome("stopped", first, newest(run.folder), stop.asked or "another process")
        if first < settings.steps:
            progress.say(f"steps {first + 1:,} to {settings.steps:,}: {way(run)}")
        while run.step < settings.steps:
            begun = time.monotonic()
            told.begin(run)
            measuring, keeping = run.due(settings.eval_every), run.due(settings.save_every)
            try:
                told.read(run, 0 if measuring or keeping else int(run.late), measuring)
                saving.look()
                run.seconds += time.monotonic() - begun
                stop.see_to_it(processes)
                if stopped := processes.any(stop.asked):
                    told.read(run, 0)
            except BadStep as bad:
                return given_up(run, saving, bad)
            if keeping or stopped:
                journal.settle()
                run.save(saving)
                if stopped:
                    processes.led(saving.wait)
                    return Outcome("stopped", run.step, newest(run.folder), stop.asked or "another process")
        processes.led(saving.wait)
        finished = finish(run, stop, sample, caught_up)
    ending: Ending = "stopped" if stop.asked else "done" if finished else "nothing to do"
    alone = ending == "done" and not processes.shard and processes.first
    took = taken(run.model, settings, run.seconds) if alone else None
    return Outcome(ending, run.step, newest(run.folder), stop.asked, run.evaluation, took)


def way(run: Run) -> str:
    """How a run is trained, in a few words."""
    settings, processes = run.settings, run.processes
    size = sum(w.numel() for w in run.model.parameters())
    said = [f"{size:,} parameters", settings.rates.optimizer, settings.dtype, f"{settings.threads} threads"]
    said += ["compiled"] if settings.compile else []
    said += [f"activations made again ({settings.recompute})"] if settings.recompute != "none" else []
    if processes.world > 1 or processes.shard:
        said.append(f"{processes.world} processes" + (" that share the weights" if processes.shard else ""))
    return ", ".join(said)


def measure(run: Run, stop: Stop, progress: Progress) -> dict[str, float | None]:
    """The columns of an evaluation; none where there was none."""
    found = run.evaluate(lambda: not stop.asked)
    if found is None:
        return {}
    run.evaluation = found
    progress.measured(run.step, found.loss)
    return {"val_loss": found.loss, "val_bits_per_byte": found.bits_per_byte}


def catch_up(run: Run, journal: Journal, stop: Stop, progress: Progress) -> bool:
    """Make the evaluation of the step that the run stands at, where a stop has cut it short: it would not come again.
    Whether it was made."""
    row: dict[str, Any] = {"step": run.step}
    for found in rows(run.folder / "metrics.jsonl"):
        row |= found if found["step"] == run.step else {}
    due = run.step > 0 and len(run.validation) > 0 and run.due(run.settings.eval_every)
    if not due or not run.processes.any(run.processes.first and "val_loss" not in row):
        return False
    measured = measure(run, stop, progress)
    if measured and run.processes.first:
        journal.complete(row, measured)
    return bool(measured)


def finish(run: Run, stop: Stop, sample: Sample | None, made: bool) -> bool:
    """What follows the last step: the picture and the text after training. False: all was there. made: whether its
    evaluation was not."""
    if run.processes.first and (made or run.step != run.first or not (run.folder / "loss.svg").is_file()):
        draw(run.folder)
        made = True
    return made if run.processes.any(stop.asked) else written(run, sample) or made


def written(run: Run, sample: Sample | None) -> bool:
    """Add the text after training to sample.txt. False: nothing to add. Where no process holds the whole model, all of
    them write it together, and the first keeps it."""
    path, title = run.folder / "sample.txt", f"after {run.step:,} steps"
    before = path.read_bytes() if path.is_file() else b""  # somebody may have put anything there
    asked = run.processes.first and sample is not None and f"--- {title} ---".encode() not in before
    if sample is None or not run.processes.any(asked):
        return False
    if run.processes.shard:
        text = cast(Scores, run.scores).all_through(lambda model: sample(model, run.tokenizer))
    elif run.processes.first:
        text = sample(run.model, run.tokenizer)
    if run.processes.first:
        with written_beside(path) as file:
            file.write(before + b"\n" + titled(title, text).encode())
    return True


def given_up(run: Run, saving: Saving, bad: BadStep) -> Outcome:
    """Keep the weights as they were before the bad step, if they are numbers."""
    run.optimizers.clear()
    sound = [bool(whole(w.isfinite().all())) for w in run.optimizers.named.values()]  # all processes ask for each
    if all(sound):
        run.save(saving)
    run.processes.led(saving.wait)
    return Outcome("bad step", run.step, newest(run.folder), str(bad))

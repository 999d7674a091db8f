"""How far a run is, on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

EVERY = 10.0  # seconds between plain lines


def clock(seconds: float) -> str:
    """75 -> "1:15"; 4000 -> "1:06:40"."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def teller(every: float = 5.0) -> Callable[[int, int], None]:
    """Says on stderr, every few seconds, how many bytes of a text are done and how long the rest will take."""
    first: int | None = None  # what the first call finds done: nobody knows how long that took
    begun = said = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal first, begun, said
        now = time.monotonic()
        if first is None:
            first, begun, said = done, now, now
        if now - said >= every and first < done < total:
            said = now
            left = (now - begun) / (done - first) * (total - done)
            print(f"{done:,} of {total:,} bytes  {clock(left)} left", file=sys.stderr, flush=True)

    return tell


class Speed:
    """Speed and time left, from the steps of this process alone: a resumed run did not do those before it."""

    def __init__(self, first: int, steps: int, now: Callable[[], float] = time.monotonic) -> None:
        self.first, self.steps, self.now = first, steps, now
        self.begun = now()

    def left(self, step: int) -> float | None:
        """Seconds until the last step; None before one was done."""
        done = step - self.first
        return (self.now() - self.begun) / done * (self.steps - step) if done > 0 else None


class Progress:
    """Told of each step; shows it where anybody looks."""

    def __init__(self, first: int, steps: int, quiet: bool = False) -> None:
        self.speed, self.quiet = Speed(first, steps), quiet
        self.steps, self.validation = steps, ""
        self.told = time.monotonic()
        self.bar: Bar | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> Progress:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as RichProgress

            columns = (BarColumn(), TextColumn("{task.description}"))
            self.bar = RichProgress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task("", total=self.steps)
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def line(self, step: int, loss: float, tokens_per_second: float) -> str:
        left = self.speed.left(step)
        parts = [f"step {step:,} of {self.steps:,}", f"loss {loss:.4f}", self.validation]
        parts += [f"{tokens_per_second:,.0f} tokens/s", "" if left is None else f"{clock(left)} left"]
        return "  ".join(part for part in parts if part)

    def step(self, step: int, loss: float, tokens_per_second: float) -> None:
        if self.quiet:
            return
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, completed=step, description=self.line(step, loss, tokens_per_second))
        elif time.monotonic() - self.told >= EVERY or step == self.steps:
            self.say(self.line(step, loss, tokens_per_second))

    def measured(self, step: int, val_loss: float) -> None:
        self.validation = f"validation {val_loss:.4f}"
        if not self.quiet and self.bar is None:
            self.say(f"step {step:,} of {self.steps:,}  {self.validation}")

    def say(self, text: str) -> None:
        """A line of its own, above the bar where there is one."""
        if not self.quiet:
            self.told = time.monotonic()
            if self.bar is not None:
                self.bar.console.print(text)
            else:
                print(text, file=sys.stderr, flush=True)

"""A run as it stands in memory: the model, all that moves it, and what its last steps have said.

B batch, T positions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from math import isfinite
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from plainformer.checkpoint.runs import OPTIMIZER, fill, newest, optimizer_of, spec_of, state_of, tokenizer_of
from plainformer.model import Transformer
from plainformer.text import Batches, TokenFile, split, token_bytes
from plainformer.text.encoding import end_id
from plainformer.text.pairs import PairBatches
from plainformer.training.balance import Traffic
from plainformer.training.evaluation import Evaluation, evaluate
from plainformer.training.finetuning import choose_trained
from plainformer.training.lanes import reading
from plainformer.training.material import TOKENS, pairs_of, tell
from plainformer.training.optimizers import optimizers_for
from plainformer.training.passing import as_decided, as_it_is
from plainformer.training.peak import Use, use_of
from plainformer.training.processes import ALONE, COMPILING, TIMEOUT, Processes, Scores
from plainformer.training.recipe import Settings
from plainformer.training.saving import Saving
from plainformer.training.spikes import IN_A_ROW, Spikes
from plainformer.training.starting import settings_of
from plainformer.training.step import BadStep, backward, check, gradients, watched


def read_late(processes: Processes) -> bool:
    """Whether a step's loss is read when the next one is on its way: a GPU that is asked at once must be waited for.
    Not of weights in shares, whose checks ask every process."""
    return processes.device.type == "cuda" and not processes.shard


def lanes_in(settings: Settings, processes: Processes) -> int:
    """The run's lanes; of one process among many none beside its own: torch's engines watch one pass at a time. Of a
    run that goes on on a GPU neither."""
    alone = processes.world == 1 and not processes.shard and processes.device.type == "cpu"
    return settings.lanes if alone else 1


class Late:
    """What a step has found, on its way from where it was computed."""

    def __init__(self, loss: Tensor, bad: Tensor) -> None:
        self.bad = bad
        self.told = torch.stack((loss, bad.to(loss.dtype)))
        self.event: Any = None
        if self.told.is_cuda:
            self.told = torch.empty(2, dtype=loss.dtype, pin_memory=True).copy_(self.told, non_blocking=True)
            self.event = torch.cuda.Event()
            self.event.record()

    def read(self, spikes: Spikes) -> float:
        """The loss, once it is there. Raises BadStep."""
        if self.event is not None:
            self.event.synchronize()
        loss, bad = self.told.tolist()
        if bad:
            why = f"the loss is {loss}" if not isfinite(loss) else spikes.cause(loss)
            raise BadStep(why or "the gradient is not finite")
        return float(loss)


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
        self.spikes = Spikes(state.get("losses", ()))
        self.skipped = int(state.get("skipped", 0)) % IN_A_ROW  # of a run that has given up and goes on: none yet
        self.evaluation: Evaluation | None = None  # the newest of this process
        self.late, self.stops = read_late(processes), True  # stops: at the first bad step
        self.unread = deque[float | BadStep | Late]()
        with torch.device("meta" if processes.shard else processes.device):
            self.model = Transformer(spec_of(folder), initial=None)
        choose_trained(self.model, self.settings)
        self.lanes = lanes_in(self.settings, processes)
        as_decided(self.model, self.settings, processes.device.type, self.lanes)
        if processes.shard:  # no process ever holds all weights
            self.scores = processes.wrapped(self.model)
            self.model.to_empty(device=processes.device)
            fill(self.model, saved)
        else:  # DDP is made for weights as they are: their dtype is the checkpoint's
            fill(self.model, saved)
            self.scores = processes.wrapped(self.model)
        self.optimizers = optimizers_for(self.model, self.settings, self.lanes)
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

    @property
    def tokens_a_step(self) -> int:
        return self.settings.batch_size * self.settings.context

    def due(self, every: int) -> bool:
        """Whether what is done every so many steps, and after the last one, is to be done at this one."""
        return self.step % every == 0 or self.step == self.settings.steps

    def save(self, saving: Saving) -> None:
        state = {
            "step": self.step,
            "tokens": self.step * self.tokens_a_step,
            "seconds": self.seconds,
            "losses": list(self.spikes.losses),
            "skipped": self.skipped,
            "processes": self.processes.world,
        }
        saving.save(self.step, self.model.state_dict(), self.optimizers.tensors(), state)

    def update(self) -> float:
        """One step, and its loss."""
        self.begin()
        return self.outcome()

    def begin(self) -> None:
        """One step, whose loss `outcome` then tells. A bad one moves no weight, nor does what follows it before that is
        read, where a run stops at it."""
        settings, now = self.settings, self.step
        if settings.compile and now - self.first < 2:  # the first one makes the code, the second finds it
            self.processes.wait_at_most(TIMEOUT if now - self.first else COMPILING)
        if self.late:
            self.unread.append(self.watched(now))
        else:
            try:
                loss = self.slopes(now)
            except BadStep as bad:
                self.unread.append(bad)
            else:
                self.optimizers.set(settings.schedule.at(now), now)
                self.optimizers.step()
                self.unread.append(loss)
        self.step += 1

    def slopes(self, step: int) -> float:
        """The gradient of a step's batch, and its loss. Raises BadStep where it is not to be followed."""
        loss = gradients(self.model, *self.given(step))
        check(loss, self.optimizers, self.settings.clip)
        if spike := self.spikes.cause(loss):
            raise BadStep(spike)
        return loss

    def watched(self, step: int) -> Late:
        """The whole step, without waiting for its loss: what was read before says how large it may be."""
        loss = backward(self.model, *self.given(step))
        most = self.spikes.most(None if self.unread else -1)  # as where the loss before this one is not read yet
        bad = watched(loss, self.optimizers, self.settings.clip, most)
        if self.unread and (self.stops or self.skipped == IN_A_ROW):
            bad = torch.maximum(bad, cast(Late, self.unread[-1]).bad)
        self.optimizers.set(self.settings.schedule.at(step), step)
        self.optimizers.step(bad)
        return Late(loss, bad)

    def given(self, step: int) -> tuple[Any, ...]:
        """What the gradient of a step is asked with; the one before is forgotten."""
        settings, processes = self.settings, self.processes
        mine, n_more = processes.rows(settings.batch_size)
        x_BT, y_BT = (torch.from_numpy(block) for block in self.batches.at(step, mine, n_more))
        if processes.device.type == "cuda":  # from pinned memory: the copy waits for nothing
            x_BT, y_BT = (block.pin_memory().to(processes.device, non_blocking=True) for block in (x_BT, y_BT))
        self.optimizers.clear()
        self.traffic = {}
        how = settings.micro_batch, settings.dtype, self.traffic, processes, self.scores, settings.loss_rows
        return x_BT, y_BT, self.tokenizer.n_tokens, *how, self.lanes

    def outcome(self) -> float:
        """The loss of the oldest step that was not asked for yet. Raises BadStep where it was bad."""
        found = self.unread.popleft()
        if isinstance(found, BadStep):
            raise found
        loss = found.read(self.spikes) if isinstance(found, Late) else found
        self.spikes.keep(loss)
        self.skipped = 0
        return loss

    def skip(self) -> None:
        """A bad step is left out: its batch is not seen, the rates go on."""
        self.optimizers.clear()
        self.traffic = {}
        self.skipped += 1

    def back(self, step: int, bad: BadStep) -> BadStep:
        """To before a bad step, whose weights are still there, and its cause: by name, from its gradient made again."""
        self.step = step
        self.unread.clear()
        if self.late:
            try:
                self.slopes(step)
            except BadStep as named:
                return named
        return bad

    def use(self, seconds_a_step: float) -> Use:
        """How much of what its processes can do went into the model, in steps that took so long."""
        processes = self.processes
        return use_of(self.model.spec, self.settings, seconds_a_step, processes.device, processes.world)

    def evaluate(self, go_on: Callable[[], bool]) -> Evaluation | None:
        """The whole validation part, by the model's own passes, as `plainformer eval` reads it; None where there is
        none, or where it was given up."""
        if not len(self.validation):
            return None
        alone = self.processes.world == 1 and not self.processes.shard
        n_threads = self.settings.threads
        with as_it_is(self.model), reading(self.model.spec, n_threads) if alone else nullcontext(1) as lanes:
            return evaluate(
                self.model,
                self.tokens.slice(self.validation),
                self.length_V,
                self.settings.context,
                go_on=go_on,
                processes=self.processes,
                scores=self.scores if self.processes.shard else Scores(self.model),
                end=self.end,
                pairs=None if self.pairs is None else self.pairs.part(self.validation),
                lanes=lanes,
            )

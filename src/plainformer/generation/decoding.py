"""Rows of tokens, continued: the prompts are read once, then each step draws one token a row.

B running rows, T new positions, V vocabulary.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.generation.sampling import Sampling, draw
from plainformer.model import Transformer
from plainformer.states import State

FinishReason = Literal["length", "stop", "context"]
Prompts: TypeAlias = "Tensor | NDArray[Any] | Sequence[int] | Sequence[Sequence[int]]"

CHUNK = 512  # positions of a prompt that are read at once: what is held besides the state stays small


@dataclass
class Row:
    """One prompt and what has been written after it."""

    prompt: list[int]
    new: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None  # None: still running

    @property
    def tokens(self) -> list[int]:
        """The prompt and the new tokens."""
        return self.prompt + self.new


@dataclass(frozen=True)
class Generation:
    """What `generate` gives. n_positions: how many token positions the model has processed, padding not counted."""

    rows: tuple[Row, ...]
    n_positions: int
    seconds: float

    @property
    def tokens(self) -> list[list[int]]:
        """Each row's prompt and new tokens."""
        return [row.tokens for row in self.rows]

    @property
    def new(self) -> list[list[int]]:
        return [row.new for row in self.rows]

    @property
    def finish_reasons(self) -> list[FinishReason | None]:
        """For each row: "length" (max_new_tokens reached), "stop" (a stop id drawn) or "context" (no place left)."""
        return [row.finish_reason for row in self.rows]

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all rows over the whole time, reading the prompts included."""
        return sum(len(row.new) for row in self.rows) / max(self.seconds, 1e-9)


def as_rows(tokens: Prompts) -> list[list[int]]:
    """Rows of token ids from one row or several, as tensors, arrays or lists; they need not be equally long."""
    nested: Any = tokens.tolist() if isinstance(tokens, (Tensor, np.ndarray)) else list(tokens)
    nested = [row.tolist() if isinstance(row, (Tensor, np.ndarray)) else row for row in nested]
    if nested and all(isinstance(token, (int, np.integer)) for token in nested):
        nested = [nested]
    try:
        return [[int(token) for token in row] for row in nested]
    except TypeError:
        raise refuse("tokens", tokens, "must be a row of token ids, or rows of them") from None


def padded(rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Rows made equally long by zeros at their ends."""
    width = max(map(len, rows))
    return [[*row, *(0,) * (width - len(row))] for row in rows]


def nth_of_its_prompt(prompts: Iterable[Sequence[int]]) -> list[int]:
    """For each row, how many rows before it have the same prompt: 0, 1, 2 for three samples of one."""
    seen: Counter[tuple[int, ...]] = Counter()
    found = []
    for prompt in map(tuple, prompts):
        found.append(seen[prompt])
        seen[prompt] += 1
    return found


def generator(seed: int, prompt: Sequence[int], nth: int) -> np.random.Generator:
    """Draws for one row: they depend on the seed, its prompt, and which sample of that prompt it is; on nothing else.

    So a row is the same alone and beside others, and the first of four samples is the only one of one.
    """
    crc = zlib.crc32(np.asarray(prompt, "<i8").tobytes())
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(nth, crc)))


class Decoding:
    """Rows being continued. Each `step` adds one token to every row that still runs; a finished row is dropped.

    model: any decoder that can be run. Its state is kept here: one Decoding, one request.
    prompts: a row of token ids or several, each of at least one token.
    stop_ids: a row ends right after the first of these that it draws.
    cached: False reads every row again for each token, to compare with.
    n_tokens: only ids below this are drawn, where the head has more rows than the tokenizer has tokens.
    never: ids that are not drawn either.
    past_context: what to do with rows that would outgrow max_seq_len: refuse them, or stop them there.
    nth: which sample of its prompt each row is; unsaid, they are counted.
    """

    def __init__(
        self,
        model: Transformer,
        prompts: Prompts,
        max_new_tokens: int,
        sampling: Sampling | None = None,
        *,
        stop_ids: Iterable[int] = (),
        cached: bool = True,
        n_tokens: int | None = None,
        never: Iterable[int] = (),
        past_context: Literal["refuse", "stop"] = "refuse",
        nth: Sequence[int] | None = None,
    ) -> None:
        self.model, self.sampling, self.cached = model, sampling or Sampling(), cached
        self.rows = [Row(prompt) for prompt in as_rows(prompts)]
        self.max_new_tokens, self.stop_ids, self.never = max_new_tokens, frozenset(stop_ids), list(never)
        self.n_tokens = model.spec.vocab_size if n_tokens is None else min(n_tokens, model.spec.vocab_size)
        if faults := list(self._faults(past_context)):
            raise PlainformerError(faults)
        nth = nth_of_its_prompt(row.prompt for row in self.rows) if nth is None else nth
        self.draws = [generator(self.sampling.seed, row.prompt, i) for row, i in zip(self.rows, nth, strict=True)]
        self.n_positions = 0
        self.state: State | None = None
        self.batch = list(range(len(self.rows)))  # the rows that the state holds, in its order
        for row in self.rows:
            self._end_if_full(row)

    def _faults(self, past_context: str) -> Iterable[Fault]:
        spec, n_new = self.model.spec, self.max_new_tokens
        if spec.decoder is None or not spec.decoder.causal or spec.head is None:
            yield Fault("model", "no causal decoder with a head", "cannot be continued token by token")
        if spec.encoder is not None:
            yield Fault("model", "an encoder-decoder", "needs a text for its encoder, which is not taken here yet")
        if n_new < 0:
            yield Fault("max_new_tokens", n_new, "must be at least 0")
        if self.n_tokens < 1:
            yield Fault("n_tokens", self.n_tokens, "must be at least 1")
        if not self.rows:
            yield Fault("tokens", [], "must be rows of at least one token")
        for i, row in enumerate(self.rows):
            n = len(row.prompt)
            if not n:
                yield Fault(f"tokens[{i}]", [], "an empty prompt", "give at least one token to start from")
                continue
            ends = min(row.prompt), max(row.prompt)
            bad = next((token for token in ends if not 0 <= token < spec.vocab_size), None)
            if bad is not None:
                yield Fault(f"tokens[{i}]", bad, f"outside the vocabulary (0 to {spec.vocab_size - 1})")
            if n > spec.max_seq_len or (past_context == "refuse" and n + n_new > spec.max_seq_len):
                rule = f"{n} tokens of the prompt and these must fit max_seq_len ({spec.max_seq_len})"
                yield Fault("max_new_tokens", n_new, rule, f"row {i} can have {max(spec.max_seq_len - n, 0)}")

    @property
    def running(self) -> list[int]:
        """The rows that are not finished."""
        return [i for i, row in enumerate(self.rows) if row.finish_reason is None]

    def stop(self, row: int) -> None:
        """End a row here, with "stop"."""
        self.rows[row].finish_reason = "stop"

    def step(self) -> list[tuple[int, int]]:
        """One token more for each running row, as (row, token); nothing when all have finished."""
        running = self.running
        if not running:
            return []
        said_BV = self._next_logits(running)[:, : self.n_tokens].cpu()
        wide_BV = said_BV if said_BV.dtype is torch.float64 else said_BV.float()
        logits_BV: NDArray[Any] = wide_BV.numpy().astype(np.float64)
        logits_BV[:, self.never] = -np.inf
        drawn = []
        for logits_V, i in zip(logits_BV, running, strict=True):
            token, row = draw(logits_V, self.sampling, self.draws[i]), self.rows[i]
            if not 0 <= token < self.n_tokens:
                raise refuse("token id", token, f"drawn from outside the vocabulary (0 to {self.n_tokens - 1})")
            row.new.append(token)
            if token in self.stop_ids:
                row.finish_reason = "stop"
            self._end_if_full(row)
            drawn.append((i, token))
        return drawn

    def _end_if_full(self, row: Row) -> None:
        if row.finish_reason is None:
            if len(row.new) >= self.max_new_tokens:
                row.finish_reason = "length"
            elif len(row.prompt) + len(row.new) >= self.model.spec.max_seq_len:
                row.finish_reason = "context"

    @torch.inference_mode()
    def _next_logits(self, running: list[int]) -> Tensor:
        """logits_BV after the last token of each running row."""
        if not self.cached:
            rows = [self.rows[i].tokens for i in running]
            self.n_positions += sum(map(len, rows))
            x_BTD = self.model.hidden(self._tensor(padded(rows)))
            last = torch.tensor([len(row) - 1 for row in rows], device=x_BTD.device)
            last_B1D = x_BTD[torch.arange(len(rows), device=x_BTD.device), last][:, None]
        elif self.state is None:
            last_B1D = self._read_prompts(running)
        else:
            if running != self.batch:
                self.state.select([self.batch.index(i) for i in running])
                self.batch = running
            self.n_positions += len(running)
            last_B1D = self.model.hidden(self._tensor([self.rows[i].new[-1:] for i in running]), self.state)
        return self.model.logits(last_B1D)[:, 0]

    def _read_prompts(self, running: list[int]) -> Tensor:
        """The stream after each running row's prompt. A prompt that several rows share is read once."""
        shared: dict[tuple[int, ...], int] = {}
        which = [shared.setdefault(tuple(self.rows[i].prompt), len(shared)) for i in running]
        prompts, last = list(shared), [torch.empty(0)] * len(shared)
        places = max(len(self.rows[i].prompt) + self.max_new_tokens for i in running)
        self.state = State(len(prompts), min(places, self.model.spec.max_seq_len))
        for start in range(0, max(map(len, prompts)), CHUNK):
            parts = [prompt[start : start + CHUNK] for prompt in prompts]
            n_new = [len(part) for part in parts]
            self.n_positions += sum(n_new)
            x_BTD = self.model.hidden(self._tensor(padded(parts)), self.state, n_new=n_new)
            for b, part in enumerate(parts):
                if part:
                    last[b] = x_BTD[b, len(part) - 1]
        if len(running) > len(prompts):
            self.state.select(which)
        self.batch = running
        return torch.stack([last[b] for b in which])[:, None]

    def _tensor(self, rows: Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(rows, dtype=torch.long, device=self.model.device)


def generate(
    model: Transformer,
    tokens: Prompts,
    max_new_tokens: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
    stop_ids: Iterable[int] = (),
    cached: bool = True,
    n_tokens: int | None = None,
    on_token: Callable[[int, int], None] | None = None,
) -> Generation:
    """Continue each row of `tokens` by up to max_new_tokens, each as when it is alone.

    See `Sampling` for temperature, top_k, top_p, min_p and seed, and `Decoding` for stop_ids, cached and n_tokens.
    on_token: called with (row, token) as each is drawn. To go step by step, use `Decoding`.

    Raises PlainformerError, a ValueError: an empty prompt, settings that cannot be, prompt and new tokens longer
    together than max_seq_len, an id outside the vocabulary, a model that is no causal decoder.
    """
    started = perf_counter()
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    decoding = Decoding(model, tokens, max_new_tokens, sampling, stop_ids=stop_ids, cached=cached, n_tokens=n_tokens)
    while drawn := decoding.step():
        if on_token:
            for row, token in drawn:
                on_token(row, token)
    return Generation(tuple(decoding.rows), decoding.n_positions, perf_counter() - started)

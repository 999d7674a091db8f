"""Rows of tokens, continued: the prompts are read once, then each step draws one token a row.

B running rows, V vocabulary.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.generation.reading import Prompts, Reader, as_rows
from plainformer.generation.rules import NONE, Rules
from plainformer.generation.sampling import Sampling, draw, log_probabilities
from plainformer.model import Transformer
from plainformer.states import State

FinishReason = Literal["length", "stop", "context"]
PastContext = Literal["refuse", "stop", "slide"]


@dataclass
class Row:
    """One prompt and what has been written after it.

    logprobs: of each new token, where asked for: ln p by the model's own scores, before anything is forced, forbidden
    or narrowed. score: of a row that beams found: the sum of ln p over its length to the power of the penalty.
    dropped: how many of its oldest tokens are read no more, where rows may slide past the context.
    """

    prompt: list[int]
    new: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None  # None: still running
    logprobs: list[float] = field(default_factory=list)
    score: float | None = None
    dropped: int = 0

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
    def logprobs(self) -> list[list[float]]:
        """For each row ln p of each new token; empty where they were not asked for."""
        return [row.logprobs for row in self.rows]

    @property
    def scores(self) -> list[float | None]:
        """For each row what beams are ranked by; None without beams."""
        return [row.score for row in self.rows]

    @property
    def finish_reasons(self) -> list[FinishReason | None]:
        """For each row: "length" (max_new_tokens reached), "stop" (a stop id drawn) or "context" (no place left)."""
        return [row.finish_reason for row in self.rows]

    @property
    def tokens_per_second(self) -> float:
        """New tokens of all rows over the whole time, reading the prompts included."""
        return sum(len(row.new) for row in self.rows) / max(self.seconds, 1e-9)


def nth_of_its_prompt(prompts: Iterable[Hashable]) -> list[int]:
    """For each row, how many rows before it have the same prompt: 0, 1, 2 for three samples of one."""
    seen: Counter[Hashable] = Counter()
    found = []
    for prompt in prompts:
        found.append(seen[prompt])
        seen[prompt] += 1
    return found


def generator(seed: int, prompt: Sequence[int], nth: int) -> np.random.Generator:
    """Draws for one row: they depend on the seed, its prompt, and which sample of that prompt it is; on nothing else.

    So a row is the same alone and beside others, and the first of four samples is the only one of one.
    """
    crc = zlib.crc32(np.asarray(prompt, "<i8").tobytes())
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(nth, crc)))


@dataclass(frozen=True)
class Request:
    """Rows to go on with, and what their encoder reads; refused as a whole where something cannot be.

    heard: which of `sources` each row goes with; empty without an encoder.
    """

    model: Transformer
    prompts: list[list[int]]
    sources: list[list[int]]
    heard: list[int]
    max_new_tokens: int
    n_tokens: int

    @staticmethod
    def of(
        model: Transformer,
        prompts: Prompts,
        max_new_tokens: int,
        sources: Prompts | None,
        n_tokens: int | None,
        past_context: PastContext,
    ) -> Request:
        rows, given = as_rows(prompts), [] if sources is None else as_rows(sources)
        n = model.spec.vocab_size if n_tokens is None else min(n_tokens, model.spec.vocab_size)
        if len(rows) == 1 < len(given):
            rows = [list(rows[0]) for _ in given]
        number = {source: i for i, source in enumerate(dict.fromkeys(map(tuple, given)))}
        heard = [number[tuple(source)] for source in given]
        request = Request(model, rows, list(map(list, number)), heard, max_new_tokens, n)
        if faults := list(request._faults(past_context)):
            raise PlainformerError(faults)
        return request

    def _faults(self, past_context: PastContext) -> Iterable[Fault]:
        spec, n_new = self.model.spec, self.max_new_tokens
        pair = spec.encoder is not None and spec.decoder is not None
        if spec.decoder is None or not spec.decoder.causal or spec.head is None:
            hint = "generation.fill fills masks, generation.vectors gives vectors" if spec.decoder is None else ""
            yield Fault("model", "no causal decoder with a head", "cannot be continued token by token", hint)
        elif (n_out := spec.head.linear.n_out) < spec.vocab_size:  # a base class of OPT that narrows its stream
            yield Fault("model", n_out, "its head scores something else than tokens")
        if pair and not self.sources:
            yield Fault("sources", None, "an encoder-decoder needs a text for its encoder", "give one for each row")
        elif self.sources and not pair:
            yield Fault("sources", len(self.sources), "this model has no encoder beside its decoder", "leave them out")
        elif pair and len(self.heard) != len(self.prompts):
            yield Fault(
                "sources", len(self.heard), f"must be as many as there are rows of tokens ({len(self.prompts)})"
            )
        if n_new < 0:
            yield Fault("max_new_tokens", n_new, "must be at least 0")
        if self.n_tokens < 1:
            yield Fault("n_tokens", self.n_tokens, "must be at least 1")
        if past_context not in ("refuse", "stop", "slide"):
            yield Fault("past_context", past_context, "must be refuse, stop or slide")
        if not self.prompts:
            yield Fault("tokens", [], "must be rows of at least one token")
        for name, rows in (("tokens", self.prompts), ("sources", self.sources)):
            for i, row in enumerate(rows):
                n, at = len(row), f"{name}[{i}]"
                if not n:
                    yield Fault(at, [], "an empty prompt" if name == "tokens" else "an empty text", "give one token")
                    continue
                ends = min(row), max(row)
                bad = next((token for token in ends if not 0 <= token < spec.vocab_size), None)
                if bad is not None:
                    yield Fault(at, bad, f"outside the vocabulary (0 to {spec.vocab_size - 1})")
                room = spec.max_seq_len
                if name == "sources" and n > room:
                    yield Fault(at, n, f"its tokens must fit max_seq_len ({room})")
                elif name == "tokens" and (n > room or (past_context == "refuse" and n + n_new > room)):
                    rule = f"{n} tokens of the prompt and these must fit max_seq_len ({room})"
                    yield Fault("max_new_tokens", n_new, rule, f"row {i} can have {max(room - n, 0)}")

    def reader(self, cached: bool) -> Reader:
        longest = max(len(row) for row in self.prompts) + self.max_new_tokens
        return Reader(self.model, longest, self.sources, cached)

    def seen(self, row: int) -> list[int]:
        """All that a row's first token depends on."""
        return [*(self.sources[self.heard[row]] if self.heard else ()), *self.prompts[row]]


class Decoding:
    """Rows being continued. Each `step` adds one token to every row that still runs; a finished row is dropped.

    model: any decoder that can be run. Its state is kept here: one Decoding, one request.
    prompts: a row of token ids or several, each of at least one token.
    sources: of an encoder-decoder, the text for its encoder, one for each row; a single prompt goes with all of them.
    stop_ids: a row ends right after the first of these that it draws.
    cached: False reads every row again for each token, to compare with.
    n_tokens: only ids below this are drawn, where the head has more rows than the tokenizer has tokens.
    never: ids that are not drawn either. rules: what else is forced and forbidden.
    past_context: what to do with rows that would outgrow max_seq_len: refuse them; stop them there; or let them slide:
    a full row's older half is dropped, and its newer half read again as if it were all.
    nth: which sample of its prompt each row is; unsaid, they are counted. logprobs: keep them, see `Row`.
    """

    def __init__(
        self,
        model: Transformer,
        prompts: Prompts,
        max_new_tokens: int,
        sampling: Sampling | None = None,
        *,
        sources: Prompts | None = None,
        stop_ids: Iterable[int] = (),
        cached: bool = True,
        n_tokens: int | None = None,
        never: Iterable[int] = (),
        rules: Rules | None = None,
        past_context: PastContext = "refuse",
        nth: Sequence[int] | None = None,
        logprobs: bool = False,
    ) -> None:
        self.request = Request.of(model, prompts, max_new_tokens, sources, n_tokens, past_context)
        self.model, self.sampling, self.rules = model, sampling or Sampling(), rules or Rules()
        self.rows = [Row(prompt) for prompt in self.request.prompts]
        self.max_new_tokens, self.stop_ids, self.never = max_new_tokens, frozenset(stop_ids), list(never)
        self.n_tokens, self.slides, self.logprobs = self.request.n_tokens, past_context == "slide", logprobs
        told = [self.request.seen(i) for i in range(len(self.rows))]
        nth = nth_of_its_prompt(map(tuple, told)) if nth is None else nth
        self.draws = [generator(self.sampling.seed, row, i) for row, i in zip(told, nth, strict=True)]
        self.reader = self.request.reader(cached)
        self.batch: list[int] = []  # the rows that the reader holds, in its order
        for row in self.rows:
            self._end_if_full(row)

    @property
    def n_positions(self) -> int:
        return self.reader.n_positions

    @property
    def state(self) -> State | None:
        return self.reader.state

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
        drawn = []
        best_alone = self.sampling.greedy and self.rules == NONE and not self.logprobs  # nothing is reckoned with them
        said_BV = (as_float if best_alone else in_float64)(self._next_logits(running))
        for said_V, i in zip(said_BV, running, strict=True):
            row = self.rows[i]
            ln_p_V = log_probabilities(said_V) if self.logprobs else None
            spoken, left = said_V[: self.n_tokens], self._left(row)
            scores = self.rules.apply(spoken, row.tokens, len(row.new), left, self.stop_ids)
            scores[self.never] = -np.inf
            token = draw(scores, self.sampling, self.draws[i])
            if not 0 <= token < self.n_tokens:
                raise refuse("token id", token, f"drawn from outside the vocabulary (0 to {self.n_tokens - 1})")
            if ln_p_V is not None:
                row.logprobs.append(float(ln_p_V[token]))
            row.new.append(token)
            if token in self.stop_ids:
                row.finish_reason = "stop"
            self._end_if_full(row)
            drawn.append((i, token))
        return drawn

    def _left(self, row: Row) -> int:
        """How many tokens a row has room for."""
        more = self.max_new_tokens - len(row.new)
        return more if self.slides else min(more, self.model.spec.max_seq_len - len(row.prompt) - len(row.new))

    def _end_if_full(self, row: Row) -> None:
        if row.finish_reason is None and self._left(row) <= 0:
            row.finish_reason = "length" if len(row.new) >= self.max_new_tokens else "context"

    def _next_logits(self, running: list[int]) -> Tensor:
        """logits_BV after the last token of each running row."""
        if not self.batch:
            self.batch, heard = running, [self.request.heard[i] for i in running] if self.request.heard else []
            return self.reader.begin([self.rows[i].tokens for i in running], heard)
        of, full = [self.batch.index(i) for i in running], self.model.spec.max_seq_len
        anew = {}
        for b, i in enumerate(running):
            row = self.rows[i]
            if len(row.tokens) - row.dropped > full:
                row.dropped = len(row.tokens) - max(full // 2, 1)
                anew[b] = row.tokens[row.dropped :]
        self.batch = running
        return self.reader.step(of, [self.rows[i].new[-1] for i in running], anew)


def as_float(logits_BV: Tensor) -> NDArray[Any]:
    """The same numbers for NumPy, which knows no bfloat16."""
    logits_BV = logits_BV.cpu()
    numbers_BV: NDArray[Any] = (logits_BV if logits_BV.dtype is torch.float64 else logits_BV.float()).numpy()
    return numbers_BV


def in_float64(logits_BV: Tensor) -> NDArray[Any]:
    return as_float(logits_BV).astype(np.float64)


def generate(
    model: Transformer,
    tokens: Prompts,
    max_new_tokens: int,
    *,
    sources: Prompts | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
    seed: int = 0,
    n_beams: int = 1,
    length_penalty: float = 1.0,
    early_stopping: bool | Literal["never"] = False,
    repetition_penalty: float = 1.0,
    rules: Rules | None = None,
    stop_ids: Iterable[int] = (),
    past_context: PastContext = "refuse",
    logprobs: bool = False,
    cached: bool = True,
    n_tokens: int | None = None,
    on_token: Callable[[int, int], None] | None = None,
) -> Generation:
    """Continue each row of `tokens` by up to max_new_tokens, each as when it is alone.

    See `Sampling` for temperature, top_k, top_p, min_p and seed, and `Decoding` for sources, stop_ids, past_context,
    logprobs, cached and n_tokens; `Rules` for what is forced and forbidden, repetition_penalty among it. With n_beams
    above 1 nothing is drawn: each row is the best that `beams.search` finds, with its score. on_token: called with
    (row, token) as each is drawn; not with beams. To go step by step, use `Decoding`.

    Raises PlainformerError, a ValueError: an empty prompt, settings that cannot be, prompt and new tokens longer
    together than max_seq_len, an id outside the vocabulary, a model that is no causal decoder.
    """
    from plainformer.generation import beams

    started = perf_counter()
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    if repetition_penalty != 1:
        rules = replace(rules or Rules(), repetition_penalty=repetition_penalty)
    if n_beams != 1:
        if logprobs:
            raise refuse("logprobs", logprobs, "is not told of beams", "their scores are")
        asked = beams.Beams(n_beams=n_beams, length_penalty=length_penalty, early_stopping=early_stopping)
        request = Request.of(model, tokens, max_new_tokens, sources, n_tokens, past_context)
        found, n_positions = beams.search(request, asked, rules or Rules(), stop_ids, cached=cached)
        return Generation(tuple(best[0] for best in found), n_positions, perf_counter() - started)
    decoding = Decoding(
        model,
        tokens,
        max_new_tokens,
        sampling,
        sources=sources,
        stop_ids=stop_ids,
        cached=cached,
        n_tokens=n_tokens,
        rules=rules,
        past_context=past_context,
        logprobs=logprobs,
    )
    while drawn := decoding.step():
        if on_token:
            for row, token in drawn:
                on_token(row, token)
    return Generation(tuple(decoding.rows), decoding.n_positions, perf_counter() - started)

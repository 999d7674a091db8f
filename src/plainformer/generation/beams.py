"""Beam search: of each row the likeliest whole texts that n_beams at a time can find, ranked as transformers does.

B beams of all rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from plainformer.faults import Fault, PlainformerError
from plainformer.generation.decoding import FinishReason, Request, Row, in_float64
from plainformer.generation.rules import Rules
from plainformer.generation.sampling import log_probabilities, need_number

Array = NDArray[Any]
MOST_BEAMS = 1000
MOST_PENALTY = 40  # a million tokens to this power are a number yet


@dataclass(frozen=True, kw_only=True)
class Beams:
    """How to search. n_beams: texts that are followed at once.

    length_penalty: a finished text's score is the sum of ln p over its number of new tokens to this power (Wu et al.
    2016, section 7, has another form; this is transformers'). early_stopping: True ends a row once n_beams texts have
    finished; False once no running one is better, were it as long as it is now; "never" once none could become better,
    were it as long as may be.
    """

    n_beams: int = 4
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False

    def __post_init__(self) -> None:
        if faults := list(self._faults()):
            raise PlainformerError(faults)

    def _faults(self) -> Iterator[Fault]:
        if not 1 <= self.n_beams <= MOST_BEAMS:
            rule = "must be at least 1" if self.n_beams < 1 else f"must be at most {MOST_BEAMS:,}: each has a state"
            yield Fault("n_beams", self.n_beams, rule)
        if not abs(self.length_penalty) <= MOST_PENALTY:
            yield Fault("length_penalty", self.length_penalty, f"must be from -{MOST_PENALTY} to {MOST_PENALTY}")
        if self.early_stopping not in (True, False, "never"):
            yield Fault("early_stopping", self.early_stopping, 'must be True, False or "never"')


@dataclass
class Text:
    """New tokens, the sum of their ln p, and after the end the score."""

    new: list[int]
    total: float
    score: float = 0.0
    stopped: bool = False


@dataclass
class Search:
    """One row's beams. The best comes first, among those that run and those that have finished."""

    prompt: list[int]
    most: int  # new tokens
    asked: Beams
    stop_ids: frozenset[int]
    running: list[Text] = field(default_factory=lambda: [Text([], 0.0)])
    finished: list[Text] = field(default_factory=list)

    def candidates(self, ln_p: Sequence[Array]) -> list[tuple[int, int, float]]:
        """(beam, token, sum of ln p) of the best continuations, best first: so many that n_beams of them go on."""
        totals = np.concatenate([text.total + one for text, one in zip(self.running, ln_p, strict=True)])
        n = min(max(2, 1 + len(self.stop_ids)) * self.asked.n_beams, len(totals))
        best = np.argpartition(-totals, n - 1)[:n]
        best = best[np.argsort(-totals[best], kind="stable")]
        width = len(ln_p[0])
        return [(int(i) // width, int(i) % width, float(totals[i])) for i in best if totals[i] > -np.inf]

    def step(self, ln_p: Sequence[Array]) -> list[tuple[int, int]]:
        """(beam, token) of each text that runs on; nothing when the row has ended."""
        n_new, n_beams, on = len(self.running[0].new) + 1, self.asked.n_beams, []
        longer: list[Text] = []
        for rank, (beam, token, total) in enumerate(self.candidates(ln_p)):
            text = Text([*self.running[beam].new, token], total, stopped=token in self.stop_ids)
            if text.stopped or n_new >= self.most:
                text.score = total / float(n_new) ** self.asked.length_penalty
                self.finished += [text] if rank < n_beams else []
            elif len(longer) < n_beams:
                longer.append(text)
                on.append((beam, token))
        self.finished = sorted(self.finished, key=lambda text: -text.score)[:n_beams]
        self.running = longer
        return on if longer and not self.ended(n_new) else []

    def ended(self, n_new: int) -> bool:
        """Whether no running text is taken to become better than the worst finished one."""
        if len(self.finished) < self.asked.n_beams:
            return False
        if self.asked.early_stopping is True:
            return True
        hoped = self.most if self.asked.early_stopping == "never" and self.asked.length_penalty > 0 else n_new
        return not self.running[0].total / float(hoped) ** self.asked.length_penalty > self.finished[-1].score

    def rows(self, context: bool) -> list[Row]:
        """What was found, best first."""
        ends: FinishReason = "context" if context else "length"
        return [
            Row(self.prompt, text.new, "stop" if text.stopped else ends, score=text.score) for text in self.finished
        ] or [Row(self.prompt, [], ends, score=0.0)]


def search(
    request: Request,
    asked: Beams,
    rules: Rules,
    stop_ids: Iterable[int],
    never: Iterable[int] = (),
    cached: bool = True,
) -> tuple[list[list[Row]], int]:
    """For each row of the request up to n_beams finished texts, the best first; and how many positions were read."""
    stops, barred, room = frozenset(stop_ids), list(never), request.model.spec.max_seq_len
    searches = [
        Search(prompt, min(request.max_new_tokens, room - len(prompt)), asked, stops) for prompt in request.prompts
    ]
    reader = request.reader(cached)
    running = [i for i, one in enumerate(searches) if one.most > 0]
    held = [(i, 0) for i in running]  # (row, beam) in the reader's order
    of: list[int] = []
    tokens: list[int] = []
    while held:
        if of:
            said_BV = reader.step(of, tokens)
        else:
            said_BV = reader.begin(
                [request.prompts[i] for i in running], [request.heard[i] for i in running] if request.heard else []
            )
        ln_p: dict[int, list[Array]] = {}
        for said_V, (i, beam) in zip(in_float64(said_BV), held, strict=True):
            one = searches[i]
            new = one.running[beam].new
            need_number(float(said_V.max()))
            ln_V = log_probabilities(said_V)
            ruled = rules.apply(ln_V, one.prompt + new, len(new), one.most - len(new), stops)[: request.n_tokens]
            ruled[barred] = -np.inf
            ln_p.setdefault(i, []).append(ruled)
        place = {key: b for b, key in enumerate(held)}
        held, of, tokens = [], [], []
        for i, scores in ln_p.items():
            for beam, (parent, token) in enumerate(searches[i].step(scores)):
                held.append((i, beam))
                of.append(place[i, parent])
                tokens.append(token)
    cut = request.max_new_tokens
    return [one.rows(context=one.most < cut) for one in searches], reader.n_positions

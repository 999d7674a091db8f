"""Try every convention on one batch; keep what brings our logits to theirs; say what is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plainformer.faults import PlainformerError, refuse
from plainformer.model import Transformer
from plainformer.porting.conventions import CONVENTIONS, Convention, Ported

SAME = 2e-5  # of the logits' spread: what the roundings of float32 come to in a small model
CLOSER = 5.0  # a convention is told if the gap is so many times smaller with it
DEPTH, BEAM = 3, 6
SAY_EVERY = 2.0  # seconds
FINE = 50_000_000  # parameters up to which ours is computed in float64


Made = Callable[[], Ported]  # made when it is needed: changed weights of every try would be many models at once


@dataclass(frozen=True)
class Step:
    """A convention, and the gap that is left with it and those before. `also`: others that leave as little."""

    key: str
    said: str
    gap: float
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """gap: the largest difference of a logit, as a share of the spread of theirs."""

    gap: float
    steps: tuple[Step, ...]
    tried: int
    seconds: float
    finished: bool  # every pair that was to be tried was

    @property
    def left(self) -> float:
        return self.steps[-1].gap if self.steps else self.gap

    @property
    def same(self) -> bool:
        return self.gap <= SAME

    @property
    def explained(self) -> bool:
        return self.left <= SAME


@dataclass
class Trying:
    """Their logits, and how far ours are from them under a spec and weights."""

    tokens: Tensor
    logits: Tensor
    tried: int = 0

    @torch.no_grad()
    def gap(self, ported: Ported) -> float:
        """Infinite where such a model cannot run."""
        spec, state = ported
        self.tried += 1
        n_numbers = sum(w.numel() for w in state.values())
        dtype = torch.float64 if n_numbers <= FINE else torch.float32
        try:
            with torch.device("meta"):
                model = Transformer(spec, initial=None)
            model.to(dtype).to_empty(device="cpu")
            mine = model.state_dict()
            if set(mine) - set(state):
                return float("inf")
            for name, w in mine.items():
                w.copy_(state[name])
            said = model.eval()(self.tokens)
        except (PlainformerError, RuntimeError, ValueError, IndexError):
            return float("inf")
        if said.shape != self.logits.shape:
            return float("inf")
        far = float((said.double() - self.logits).abs().max() / self.logits.std().clamp_min(1e-12))
        return far if far == far else float("inf")


def explain(
    ported: Ported, tokens: Tensor, logits: Tensor, seconds: float = 25.0,
    told: Callable[[str], None] = lambda words: None,
) -> Verdict:  # fmt: skip
    """Which conventions, one or up to three, explain why ours gives other logits than theirs.

    tokens (B, T); logits (B, T, V), theirs. seconds: after which no more pairs are tried. Refuses tokens and logits
    that are not the model's.
    """
    spec, n_tokens, vocab = ported[0], tokens.shape[1], logits.shape[-1]
    if vocab != spec.vocab_size:
        hint = "cut what fills a vocabulary up to a round number off both"
        raise refuse("logits", vocab, f"are scores of so many tokens; the model has {spec.vocab_size}", hint)
    if not 0 <= int(tokens.min()) <= int(tokens.max()) < vocab or n_tokens > spec.max_seq_len:
        raise refuse("tokens", f"{int(tokens.min())} to {int(tokens.max())}, {n_tokens} a row",
                     f"must be 0 to {vocab - 1}, at most {spec.max_seq_len} a row")  # fmt: skip
    start, trying = time.monotonic(), Trying(tokens, logits.double())
    said = start
    first = trying.gap(ported)
    if first == float("inf"):
        raise refuse("model", spec.d_model, "gives no logits of these tokens: an encoder, or a part that is not run",
                     "docs/limits.md has the parts")  # fmt: skip
    steps: tuple[Step, ...] = ()
    beam: list[tuple[float, Made, tuple[Step, ...]]] = [(first, lambda: ported, ())]
    finished = True
    for depth in range(DEPTH if first > SAME else 0):
        found: list[tuple[float, Made, tuple[Step, ...]]] = []
        done = set[frozenset[str]]()
        for number, (_, make, before) in enumerate(beam):
            if number and time.monotonic() - start > seconds:
                finished = False
                break
            for convention, changed in applied(make(), before):
                keys = frozenset((*(one.key for one in before), convention.key))
                if keys in done:
                    continue
                done.add(keys)
                gap = trying.gap(changed)
                found.append((gap, then(make, convention), (*before, Step(convention.key, convention.said, gap))))
                if time.monotonic() - said > SAY_EVERY:
                    said = time.monotonic()
                    least = min(one[0] for one in found)
                    told(f"{trying.tried} tried in {said - start:.0f} of about {seconds:.0f} s, least gap {least:.2g}")
            if any(one[0] <= SAME for one in found):
                break
        found.sort(key=lambda one: one[0])
        best = found[0] if found else None
        if best is None or best[0] > (steps[-1].gap if steps else first) / CLOSER:
            if depth or not found:
                break
        else:
            also = tuple(one[2][-1].key for one in found[1:6] if one[0] <= max(1.5 * best[0], SAME / 4)
                         and one[2][:-1] == best[2][:-1])  # fmt: skip
            steps = (*best[2][:-1], Step(best[2][-1].key, best[2][-1].said, best[0], also))
        if steps and steps[-1].gap <= SAME:
            break
        wide = len(found) if depth == 0 and time_for_pairs(trying, start, seconds) else BEAM
        beam = [one for one in found[:wide] if one[0] < float("inf")]
    return Verdict(first, steps, trying.tried, round(time.monotonic() - start, 2), finished)


def time_for_pairs(trying: Trying, start: float, seconds: float) -> bool:
    """Whether there is time for every pair."""
    each = (time.monotonic() - start) / max(1, trying.tried)
    return each * trying.tried**2 / 2 < seconds - (time.monotonic() - start)


def then(make: Made, convention: Convention) -> Made:
    def made() -> Ported:
        changed = convention.apply(*make())
        assert changed is not None  # it was tried
        return changed

    return made


def applied(base: Ported, before: Sequence[Step]) -> Iterator[tuple[Convention, Ported]]:
    used = {one.key for one in before}
    for convention in CONVENTIONS:
        if convention.key not in used and (made := convention.apply(*base)) is not None:
            yield convention, made

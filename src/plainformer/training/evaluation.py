"""How well a model predicts a text: each target once.

B blocks at once, S positions of a block, T of them scored, D d_model, V vocabulary, N tokens of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice
from math import exp, inf, log
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from plainformer.faults import refuse
from plainformer.model import Transformer
from plainformer.text import eval_blocks
from plainformer.text.batches import apart
from plainformer.text.pairs import Pairs, pair_passes
from plainformer.training.decisions import loss_rows
from plainformer.training.lanes import side_by_side
from plainformer.training.loss import Targets
from plainformer.training.processes import ALONE, Processes, Scores

AT_ONCE, TIMES_ON_GPU = 2048, 8  # positions a pass: what is between its products stays near the processor
LOGITS_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class Evaluation:
    """What was measured: nats over all scored targets, how many these are, and the bytes of text they stand for."""

    nats: float
    targets: int
    bytes: int
    context: int
    stride: int

    @property
    def loss(self) -> float:
        """Nats a target."""
        return self.nats / self.targets

    @property
    def perplexity(self) -> float:
        """exp(loss): of a loss beyond what a number holds, infinity."""
        return exp(self.loss) if self.loss < 700 else inf

    @property
    def bits_per_token(self) -> float:
        return self.loss / log(2)

    @property
    def bits_per_byte(self) -> float | None:
        """None where the targets stand for no text."""
        return self.nats / log(2) / self.bytes if self.bytes else None

    def to_json(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            "perplexity": self.perplexity if self.perplexity < inf else None,
            "bits_per_token": self.bits_per_token,
            "bits_per_byte": self.bits_per_byte,
            "targets": self.targets,
            "bytes": self.bytes,
            "context": self.context,
            "stride": self.stride,
        }


def evaluate(
    model: Transformer,
    tokens_N: npt.NDArray[Any],
    length_V: npt.NDArray[np.int64],
    context: int | None = None,
    stride: int | None = None,
    go_on: Callable[[], bool] = lambda: True,
    progress: Callable[[int], None] = lambda _: None,
    processes: Processes = ALONE,
    scores: nn.Module | None = None,
    end: int | None = None,
    pairs: Pairs | None = None,
    lanes: int = 1,
) -> Evaluation | None:
    """Score the text in side-by-side blocks of `context` targets, or in blocks that start every `stride` tokens.

    context: None: the model's. stride: None: context. Each token but the first is scored once, in its last block's
    place with the most past before it; every block is read from an empty state. length_V: bytes of each token of the
    tokenizer (text.token_bytes); rows of the head beyond it are never scored. Refuses fewer than 2 tokens. `go_on` is
    asked before each pass: False gives it up, and the answer is None; `progress` is told of the targets scored so far.
    Many processes take turns at the passes, and each has the whole answer. scores: as `processes.wrapped` gave it.
    end: a token after which nothing is scored: another document begins. pairs: scored in the text's place, each from
    its prompt, completions alone. lanes: passes side by side, of one process (see `lanes`).
    """
    scores = scores or Scores(model)
    context = model.spec.max_seq_len if context is None else min(context, model.spec.max_seq_len)
    nats, n_targets, n_bytes = 0.0, 0, 0
    if pairs is not None:
        blocks = pair_passes(pairs, context, at_once(context, len(length_V)))
    else:
        blocks = passes(tokens_N, context, stride, len(length_V))

    def nats_of(block: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]) -> float:
        x_BT, y_BT, first = block
        return scored(scores, x_BT, apart(x_BT, y_BT, end), first, len(length_V), model.device)

    while turn := list(islice(blocks, processes.world if processes.world > 1 else lanes)):
        if processes.any(not go_on()):
            return None
        if processes.world == 1:
            for found in side_by_side(nats_of, turn):  # one after another: as many lanes, the same sum
                nats += found
        else:
            mine = processes.rank < len(turn)
            found = nats_of(turn[processes.rank if mine else 0])  # one left over goes along: all must take part
            nats += found if mine else 0.0
        for x_BT, y_BT, first in turn:
            real = apart(x_BT, y_BT, end)[:, first:]
            real = real[real >= 0]
            n_targets += real.size
            n_bytes += int(length_V[real].sum())
        progress(n_targets)
    if not n_targets:
        raise refuse("text", "0 targets", "nothing in it is scored", "use a longer text")
    return Evaluation(processes.sums(nats)[0], n_targets, n_bytes, context, stride or context)


def at_once(context: int, n_tokens: int) -> int:
    """Rows of a pass, as memory allows."""
    most = AT_ONCE * (TIMES_ON_GPU if torch.cuda.is_available() else 1)
    return max(1, min(most // context, LOGITS_AT_ONCE // (context * n_tokens)))


def passes(
    tokens_N: npt.NDArray[Any], context: int, stride: int | None, n_tokens: int
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]]:
    """Blocks of one length that score from one place on, as many at once as memory allows."""
    n_rows = at_once(context, n_tokens)
    blocks = eval_blocks(tokens_N, context, stride)
    for (_, first), alike in groupby(blocks, key=lambda block: (len(block[0]), block[2])):
        some: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
        for x_T, y_T, _ in alike:
            some.append((x_T, y_T))
            if len(some) == n_rows:
                yield np.stack([x for x, _ in some]), np.stack([y for _, y in some]), first
                some = []
        if some:
            yield np.stack([x for x, _ in some]), np.stack([y for _, y in some]), first


@torch.no_grad()
def scored(
    scores: nn.Module,
    x_BS: npt.NDArray[np.int64],
    y_BS: npt.NDArray[np.int64],
    first: int,
    n_tokens: int,
    device: torch.device | str = "cpu",
) -> float:
    """Nats of the targets from place `first` on, summed in float64, of as many at once as a step's loss has."""
    targets_BT = torch.from_numpy(y_BS[:, first:]).to(device)
    targets = Targets(targets_BT, n_tokens, loss_rows(targets_BT.numel(), n_tokens))
    nats, _ = scores(torch.from_numpy(x_BS).to(device), first, False, targets)
    return float(nats.item())

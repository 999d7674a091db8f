"""Rows of tokens as a model reads them: each whole at first, then every token once, as it comes.

B rows, T new positions, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from plainformer.faults import refuse
from plainformer.model import Transformer
from plainformer.states import Memory, State

Prompts: TypeAlias = "Tensor | NDArray[Any] | Sequence[int] | Sequence[Sequence[int]]"
Rows: TypeAlias = Sequence[Sequence[int]]

CHUNK = 512  # positions of a prompt that are read at once: what is held besides the state stays small


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


def padded(rows: Rows) -> list[list[int]]:
    """Rows made equally long by zeros at their ends."""
    width = max(map(len, rows))
    return [[*row, *(0,) * (width - len(row))] for row in rows]


class Reader:
    """What a model says after the last token of each row. The rows that it holds have an order of their own.

    n_places: how long a row may become. sources: of an encoder-decoder, what its encoder reads, each once.
    cached: False reads every row whole each time, to compare with.
    """

    def __init__(self, model: Transformer, n_places: int, sources: Rows = (), cached: bool = True) -> None:
        self.model, self.cached, self.sources = model, cached, sources
        self.n_places = min(n_places, model.spec.max_seq_len)
        self.rows: list[list[int]] = []  # where they are read whole each time
        self.heard: list[int] = []  # which source each row goes with
        self.state: State | None = None
        self.memory: Memory | None = None
        self.n_positions = 0

    @torch.inference_mode()
    def begin(self, rows: Rows, heard: Sequence[int] = ()) -> Tensor:
        """logits_BV after these rows. heard: which source each goes with."""
        if self.sources and self.memory is None:
            lengths = list(map(len, self.sources))
            self.n_positions += sum(lengths)
            self.memory = self.model.encode(self._tensor(padded(self.sources)), lengths)
        self.heard = list(heard)
        if not self.cached:
            self.rows = list(map(list, rows))
            return self._logits(self._whole())
        self.state, last_B1D = self._read(rows, self.heard)
        return self._logits(last_B1D)

    @torch.inference_mode()
    def step(self, of: Sequence[int], tokens: Sequence[int], anew: Mapping[int, Sequence[int]] | None = None) -> Tensor:
        """logits_BV after one token more: row i goes on from the row that stood at of[i]. anew: rows, by their place
        among the new ones, that are read whole instead."""
        anew = anew or {}
        self.heard = [self.heard[b] for b in of] if self.heard else []
        if not self.cached:
            self.rows = [
                list(anew[i]) if i in anew else [*self.rows[b], token]
                for i, (b, token) in enumerate(zip(of, tokens, strict=True))
            ]
            return self._logits(self._whole())
        assert self.state is not None
        going = [i for i in range(len(of)) if i not in anew]
        parts: list[tuple[State, Tensor]] = []
        if going:
            if [of[i] for i in going] != list(range(len(self.state.lengths))):
                self.state.select([of[i] for i in going])
            self.n_positions += len(going)
            parts.append((self.state, self.model.hidden(self._tensor([[tokens[i]] for i in going]), self.state)))
        if anew:
            parts.append(self._read(list(anew.values()), [self.heard[i] for i in anew] if self.heard else []))
        self.state, last_B1D = parts[0]
        if len(parts) > 1:
            order = np.argsort([*going, *anew]).tolist()
            self.state.join(parts[1][0])
            self.state.select(order)
            last_B1D = torch.cat((last_B1D, parts[1][1]))[order]
        return self._logits(last_B1D)

    def _logits(self, last_B1D: Tensor) -> Tensor:
        return self.model.logits(last_B1D)[:, 0]

    def _whole(self) -> Tensor:
        """The stream after each row, all of it read again."""
        lengths = list(map(len, self.rows))
        self.n_positions += sum(lengths)
        x_BTD = self.model.hidden(self._tensor(padded(self.rows)), n_new=lengths, memory=self._memory(self.heard))
        last = torch.tensor(lengths, device=x_BTD.device) - 1
        return x_BTD[torch.arange(len(self.rows), device=x_BTD.device), last][:, None]

    def _read(self, rows: Rows, heard: Sequence[int]) -> tuple[State, Tensor]:
        """A state that holds these rows, and the stream after each. What several rows share is read once."""
        shared: dict[tuple[object, ...], int] = {}
        keys = [(tuple(row), heard[i] if heard else None) for i, row in enumerate(rows)]
        which = [shared.setdefault(key, len(shared)) for key in keys]
        first = [which.index(b) for b in range(len(shared))]
        alone, last = [rows[i] for i in first], [torch.empty(0)] * len(shared)
        state, memory = State(len(alone), self.n_places), self._memory([heard[i] for i in first] if heard else [])
        for start in range(0, max(map(len, alone)), CHUNK):
            parts = [row[start : start + CHUNK] for row in alone]
            n_new = [len(part) for part in parts]
            self.n_positions += sum(n_new)
            x_BTD = self.model.hidden(self._tensor(padded(parts)), state, n_new=n_new, memory=memory)
            memory = None  # the state has it from here on
            for b, part in enumerate(parts):
                if part:
                    last[b] = x_BTD[b, len(part) - 1]
        if len(rows) > len(alone):
            state.select(which)
        return state, torch.stack([last[b] for b in which])[:, None]

    def _memory(self, heard: Sequence[int]) -> Memory | None:
        return self.memory.select(list(heard)) if self.memory else None

    def _tensor(self, rows: Rows) -> Tensor:
        return torch.tensor(rows, dtype=torch.long, device=self.model.device)

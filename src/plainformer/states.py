"""What generation remembers of the tokens it has read. B batch, T new and S all positions, G kv heads, K d_head, R rows
of positions: B, or 1 where all rows stand together."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor


class State:
    """The keys and values of what was read, for B rows: generation's memory.

    The contract: slot i of a row holds its token i, whatever the other rows hold. `append` writes new tokens at their
    own positions and returns all slots in use; `select` keeps, drops or repeats rows; `truncate` forgets the newest
    tokens. Slots at and beyond a row's length may hold anything: no query may see them, and they are written again.
    """

    def __init__(self, batch_size: int, capacity: int) -> None:
        self.capacity = capacity
        self.lengths = [0] * batch_size
        self.kept: dict[str, tuple[Tensor, Tensor]] = {}

    def append(self, place: str, k_BGTK: Tensor, v_BGTK: Tensor, positions_RT: Tensor) -> tuple[Tensor, Tensor]:
        """All keys and values (B, G, S, K) of the attention at `place`, the new ones written at their positions."""
        if place not in self.kept:
            new = (k_BGTK.new_zeros(*y.shape[:2], self.capacity, y.shape[3]) for y in (k_BGTK, v_BGTK))
            self.kept[place] = cast(tuple[Tensor, Tensor], tuple(new))
        n_new, n_slots = k_BGTK.shape[2], max(self.lengths) + k_BGTK.shape[2]
        for slots, new_BGTK in zip(self.kept[place], (k_BGTK, v_BGTK), strict=True):
            if self.together:
                slots[:, :, n_slots - n_new : n_slots] = new_BGTK
            else:
                rows_B1 = torch.arange(len(slots), device=slots.device)[:, None]
                slots[rows_B1, :, positions_RT] = new_BGTK.transpose(1, 2)
        k_BGSK, v_BGSK = (slots[:, :, :n_slots] for slots in self.kept[place])
        return k_BGSK, v_BGSK

    def select(self, rows: list[int]) -> None:
        """Keep these rows, in this order; a row may come twice."""
        self.lengths = [self.lengths[row] for row in rows]
        self.kept = {place: (k[rows], v[rows]) for place, (k, v) in self.kept.items()}

    def truncate(self, n_tokens: int) -> None:
        """Forget all but each row's first n_tokens."""
        self.lengths = [min(n, n_tokens) for n in self.lengths]

    @property
    def together(self) -> bool:
        """Whether all rows have read as many tokens."""
        return len(set(self.lengths)) <= 1

    @property
    def n_bytes(self) -> int:
        return sum(y.nbytes for pair in self.kept.values() for y in pair)

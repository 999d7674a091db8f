"""What a pass knows beyond its input, and what generation remembers of the tokens it has read.

B batch, T new positions, S all positions, H heads, G kv heads, K d_head, D d_model, R rows of positions: B, or 1 where
all rows stand together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from plainformer import kernels
from plainformer import spec as s

Pair = tuple[Tensor, Tensor]


class State:
    """What was read, for B rows: keys and values (B, G, S, K) of each attention, or its latents; generation's memory.

    The contract: slot i of a row holds its token i, whatever the other rows hold. `append` writes new tokens at their
    own positions and returns all slots in use; `select` keeps, drops or repeats rows; `truncate` forgets the newest
    tokens. Slots at and beyond a row's length may hold anything: no query may see them, and they are written again.
    What an encoder said is kept whole: `once` makes an attention's keys and values of it, then gives those.
    """

    def __init__(self, batch_size: int, capacity: int) -> None:
        self.capacity = capacity
        self.lengths = [0] * batch_size
        self.kept: dict[str, Pair] = {}
        self.said: dict[str, Pair] = {}
        self.memory: Memory | None = None

    def append(self, place: str, first_BGTK: Tensor, second_BGTJ: Tensor, positions_RT: Tensor) -> Pair:
        """All slots in use of the attention at `place`, the new ones written at their positions."""
        if place not in self.kept:
            new = (y.new_zeros(*y.shape[:2], self.capacity, y.shape[3]) for y in (first_BGTK, second_BGTJ))
            self.kept[place] = cast(Pair, tuple(new))
        n_new, n_slots = first_BGTK.shape[2], max(self.lengths) + first_BGTK.shape[2]
        for slots, fresh in zip(self.kept[place], (first_BGTK, second_BGTJ), strict=True):
            if self.together:
                slots[:, :, n_slots - n_new : n_slots] = fresh
            else:
                rows_B1 = torch.arange(len(slots), device=slots.device)[:, None]
                slots[rows_B1, :, positions_RT] = fresh.transpose(1, 2)
        first, second = (slots[:, :, :n_slots] for slots in self.kept[place])
        return first, second

    def once(self, place: str, make: Callable[[], Pair]) -> Pair:
        """The keys and values of what the encoder said, made at the first call."""
        if place not in self.said:
            self.said[place] = make()
        return self.said[place]

    def select(self, rows: list[int]) -> None:
        """Keep these rows, in this order; a row may come twice."""
        self.lengths = [self.lengths[row] for row in rows]
        self.kept = {place: (a[rows], b[rows]) for place, (a, b) in self.kept.items()}
        self.said = {place: (a[rows], b[rows]) for place, (a, b) in self.said.items()}
        self.memory = self.memory and self.memory.select(rows)

    def truncate(self, n_tokens: int) -> None:
        """Forget all but each row's first n_tokens; what the encoder said stays."""
        self.lengths = [min(n, n_tokens) for n in self.lengths]

    @property
    def together(self) -> bool:
        """Whether all rows have read as many tokens."""
        return len(set(self.lengths)) <= 1

    @property
    def n_bytes(self) -> int:
        return sum(y.nbytes for pair in (*self.kept.values(), *self.said.values()) for y in pair)


@dataclass(frozen=True)
class Memory:
    """What an encoder said, (B, S, D), and how many of each row's positions are real."""

    said_BSD: Tensor
    lengths: tuple[int, ...] | None  # None: all

    def select(self, rows: list[int]) -> Memory:
        return Memory(self.said_BSD[rows], self.lengths and tuple(self.lengths[row] for row in rows))


def real(lengths: tuple[int, ...] | None, slots_S: Tensor) -> Tensor | None:
    """(B, 1, 1, S), False at a row's padding; None where there is none."""
    if lengths is None:
        return None
    return slots_S < torch.tensor(lengths, device=slots_S.device)[:, None, None, None]


@dataclass(frozen=True)
class Where:
    """What a part may ask beyond its input. Built once a forward; feed-forwards and norms never open it."""

    positions_RT: Tensor
    causal: bool
    starts: tuple[int, ...] = (0,)  # each row's tokens before this pass
    lengths: tuple[int, ...] | None = None  # rows filled up at their end: how many tokens are real; None: all
    types_BT: Tensor | None = None  # which of two sentences each token is of; None: the first
    memory: Memory | None = None
    relative: tuple[Tensor, s.RelativeBias] | None = None  # the stack's table of bias by bucket
    state: State | None = None
    trace: dict[str, Tensor] | None = None  # asked for: attention weights and the stream, by place
    routed: list[tuple[Tensor, Tensor]] | None = None  # asked for: each router's scores and choices
    made: dict[object, Tensor] = field(default_factory=dict)  # rotary tables, who may see whom, bias: for all layers
    n_pass: int = 0  # where layers are shared: which pass this is, from 1

    @property
    def together(self) -> bool:
        return len(set(self.starts)) == 1

    def at(self, place: str) -> str:
        """The place's name in states and traces: shared layers have one for each pass."""
        return f"{place}.pass.{self.n_pass}" if self.n_pass else place

    def keep(self, place: str, tensor: Tensor) -> None:
        if self.trace is not None:
            self.trace[place] = tensor

    def turns(self, rotary: s.Rotary, dtype: torch.dtype) -> Pair:
        """cos and sin of each pair's angle, (R, 1, T, n_dims / 2): made in float64, then rounded once."""
        cos, sin = (rotary, dtype, "cos"), (rotary, dtype, "sin")
        if cos not in self.made:
            n_tokens = max(self.starts) + self.positions_RT.shape[1]
            by = kernels.stretch(rotary)
            turn = kernels.frequencies(rotary, n_tokens).to(self.positions_RT.device)
            angle = self.positions_RT[:, None, :, None] * turn
            self.made[cos], self.made[sin] = (y.mul(by).to(dtype) for y in (angle.cos(), angle.sin()))
        return self.made[cos], self.made[sin]

    def slots(self, n_keys: int) -> Tensor:
        return torch.arange(n_keys, device=self.positions_RT.device)

    def ago(self, n_keys: int) -> Tensor:
        """(R, 1, T, S): how many positions back each key is."""
        return self.positions_RT[:, None, :, None] - self.slots(n_keys)

    def allowed(self, window: int | None, n_keys: int) -> Tensor:
        """(R or B, 1, T, S), True where a query may see a key: no later one in a causal stack, none beyond the window,
        no padding. (In a causal stack padding comes after all real tokens: they never see it.)"""
        if ("allowed", window, n_keys) not in self.made:
            ago = self.ago(n_keys)
            see = ago >= 0 if self.causal else torch.ones_like(ago, dtype=torch.bool)
            see = see if window is None else see & (ago.abs() < window)
            keys = None if self.causal else real(self.lengths, self.slots(n_keys))
            self.made["allowed", window, n_keys] = see if keys is None else see & keys
        return self.made["allowed", window, n_keys]

    def across(self, n_keys: int) -> Tensor:
        """(B or 1, 1, 1, S), True at what the encoder said, False at its padding."""
        if ("across", n_keys) not in self.made:
            slots_S = self.slots(n_keys)
            keys = real(self.memory.lengths if self.memory else None, slots_S)
            self.made["across", n_keys] = torch.ones_like(slots_S[None, None, None] > 0) if keys is None else keys
        return self.made["across", n_keys]

    def bias(self, n_keys: int, alibi_heads: int | None, dtype: torch.dtype) -> Tensor | None:
        """What positions add to scores, (R, H, T, S): ALiBi's slopes or the stack's relative bias; None without."""
        if not alibi_heads and self.relative is None:
            return None
        if ("bias", alibi_heads, n_keys, dtype) not in self.made:
            if alibi_heads:
                slopes = kernels.alibi_slopes(alibi_heads).to(self.positions_RT.device)
                bias = -(slopes[:, None, None] * self.ago(n_keys).abs()).to(dtype)
            else:
                table, buckets = cast(tuple[Tensor, s.RelativeBias], self.relative)
                which = kernels.relative_buckets(self.ago(n_keys)[:, 0], buckets, self.causal)
                bias = table[which].permute(0, 3, 1, 2).to(dtype)
            self.made["bias", alibi_heads, n_keys, dtype] = bias
        return self.made["bias", alibi_heads, n_keys, dtype]

    def mask(self, window: int | None, n_keys: int, bias: Tensor | None) -> tuple[Tensor | None, bool]:
        """(mask, is_causal) for the fused kernel: a plain triangle or nothing where that says it all."""
        n_new = self.positions_RT.shape[1]
        plain = bias is None and self.together and (window is None or n_keys <= window)
        if plain and self.causal and n_new == n_keys:
            return None, True
        if plain and (n_new == 1 if self.causal else self.lengths is None):
            return None, False  # the newest token sees all, or all see all
        allowed = self.allowed(window, n_keys)
        return (allowed if bias is None else bias.masked_fill(~allowed, -torch.inf)), False

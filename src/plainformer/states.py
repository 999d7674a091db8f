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
from plainformer.faults import refuse

Pair = tuple[Tensor, Tensor]
LONG_AGO = -(2**40)  # the position of a slot that holds no key yet: no window reaches it


class State:
    """What was read, for B rows: keys and values (B, G, S, K) of each attention, or its latents; generation's memory.

    The contract: slot i of a row holds its token i, whatever the other rows hold. Of an attention with a window only
    its slots are kept: token i stands in slot i modulo their number. `append` writes new tokens at their own positions
    and returns all slots in use; `select` keeps, drops or repeats rows; `truncate` forgets the newest tokens; `join`
    takes in another state's rows. Slots at and beyond a row's length may hold anything: no query may see them, and they
    are written again. What an encoder said is kept whole: `once` makes an attention's keys and values of it, then gives
    those.

    spare: how many of the newest tokens `truncate` may forget where a window is full: it keeps so many slots more.
    """

    def __init__(self, batch_size: int, capacity: int, spare: int = 0) -> None:
        self.capacity, self.spare = capacity, spare
        self.lengths = [0] * batch_size
        self.longest = [0] * batch_size  # what each row has been: a window has forgotten by that
        self.kept: dict[str, Pair] = {}
        self.said: dict[str, Pair] = {}
        self.memory: Memory | None = None

    def ring(self, window: int | None) -> int:
        """How many slots an attention with this window has."""
        return self.capacity if window is None else min(self.capacity, window + self.spare)

    def append(
        self,
        place: str,
        first_BGTK: Tensor,
        second_BGTJ: Tensor,
        positions_RT: Tensor,
        window: int | None = None,
        n_real: tuple[int, ...] | None = None,
    ) -> Pair:
        """All slots in use of the attention at `place`, the new ones written at their positions; `Where.held` says
        whose they are. n_real: how many new tokens of each row are real; None: all."""
        n_slots, n_new = self.ring(window), first_BGTK.shape[2]
        if place not in self.kept:
            new = (y.new_zeros(*y.shape[:2], n_slots, y.shape[3]) for y in (first_BGTK, second_BGTJ))
            self.kept[place] = cast(Pair, tuple(new))
        pair, fresh = self.kept[place], (first_BGTK, second_BGTJ)
        if n_new > 1 and max(self.lengths) + n_new > n_slots:
            return self._around(pair, fresh, positions_RT, n_real)
        n_used = min(max(self.lengths) + n_new, n_slots)
        for slots, y in zip(pair, fresh, strict=True):
            if self.together:
                at = max(self.lengths) % n_slots
                slots[:, :, at : at + n_new] = y
            else:
                rows_B1 = torch.arange(len(slots), device=slots.device)[:, None]
                slots[rows_B1, :, positions_RT % n_slots] = y.transpose(1, 2)
        return pair[0][:, :, :n_used], pair[1][:, :, :n_used]

    def _around(self, pair: Pair, fresh: Pair, positions_RT: Tensor, n_real: tuple[int, ...] | None) -> Pair:
        """More than one new token, beyond a window's last slot: the old slots, then all that is new. Kept is what the
        slots can hold of it, each row's last real tokens."""
        n_slots, (n_rows, _, n_new, _) = pair[0].shape[2], fresh[0].shape
        n_old = min(max(self.lengths), n_slots)
        seen = tuple(torch.cat((old[:, :, :n_old], y), 2) for old, y in zip(pair, fresh, strict=True))
        real_B1 = torch.tensor(n_real or (n_new,) * n_rows, device=positions_RT.device)[:, None]
        nth_1T = torch.arange(n_new, device=positions_RT.device)[None]
        rows_N, new_N = ((nth_1T < real_B1) & (nth_1T >= real_B1 - n_slots)).nonzero(as_tuple=True)
        at_N = positions_RT.expand(n_rows, -1)[rows_N, new_N] % n_slots
        for slots, y in zip(pair, fresh, strict=True):
            slots[rows_N, :, at_N] = y.transpose(1, 2)[rows_N, new_N]
        return cast(Pair, seen)

    def read(self, n_new: list[int]) -> None:
        """So many tokens more of each row have been appended everywhere."""
        self.lengths = [a + b for a, b in zip(self.lengths, n_new, strict=True)]
        self.longest = list(map(max, self.lengths, self.longest))

    def once(self, place: str, make: Callable[[], Pair]) -> Pair:
        """The keys and values of what the encoder said, made at the first call."""
        if place not in self.said:
            self.said[place] = make()
        return self.said[place]

    def select(self, rows: list[int]) -> None:
        """Keep these rows, in this order; a row may come twice."""
        self.lengths, self.longest = ([n[row] for row in rows] for n in (self.lengths, self.longest))
        self.kept = {place: (a[rows], b[rows]) for place, (a, b) in self.kept.items()}
        self.said = {place: (a[rows], b[rows]) for place, (a, b) in self.said.items()}
        self.memory = self.memory and self.memory.select(rows)

    def truncate(self, n_tokens: int) -> None:
        """Forget all but each row's first n_tokens; what the encoder said stays. Refused where a window has forgotten
        what those that come next would see."""
        least = min((slots.shape[2] for slots, _ in self.kept.values()), default=self.capacity)
        for length, longest in zip(self.lengths, self.longest, strict=True):
            if least < longest and n_tokens < min(length, longest - self.spare):
                rule = f"windows have forgotten what was before: {self.spare} tokens can be taken back"
                raise refuse("n_tokens", n_tokens, rule, "State(..., spare=n) keeps n more")
        self.lengths = [min(n, n_tokens) for n in self.lengths]

    def join(self, other: State) -> None:
        """Take in the rows of another state of the same model and capacity, after those that are here."""
        self.lengths, self.longest = self.lengths + other.lengths, self.longest + other.longest
        for mine, its in ((self.kept, other.kept), (self.said, other.said)):
            for place, (first, second) in its.items():
                mine[place] = torch.cat((mine[place][0], first)), torch.cat((mine[place][1], second))
        self.memory = self.memory and other.memory and self.memory.join(other.memory)

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

    def join(self, other: Memory) -> Memory:
        """The rows of both, which are equally wide."""
        return Memory(
            torch.cat((self.said_BSD, other.said_BSD)), self.lengths and other.lengths and self.lengths + other.lengths
        )


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
        """cos and sin of each pair's angle, (R, 1, T, n_dims / 2), R = B where rows have frequencies of their own: made
        in float64, then rounded once."""
        cos, sin = (rotary, dtype, "cos"), (rotary, dtype, "sin")
        if cos not in self.made:
            by, turn = kernels.stretch(rotary), torch.stack([kernels.frequencies(rotary, n) for n in self.ends(rotary)])
            turn = turn[:, None, None].to(self.positions_RT.device)
            angle = self.positions_RT[:, None, :, None] * turn
            self.made[cos], self.made[sin] = (y.mul(by).to(dtype) for y in (angle.cos(), angle.sin()))
        return self.made[cos], self.made[sin]

    def ends(self, rotary: s.Rotary) -> list[int]:
        """How long the rows are after this pass: each of them where frequencies grow with it, else the longest."""
        n_new = self.positions_RT.shape[1]
        lengths = self.lengths or (n_new,) * len(self.starts)
        starts = self.starts * len(lengths) if len(self.starts) == 1 else self.starts
        ends = [start + n for start, n in zip(starts, lengths, strict=True)]
        grows = rotary.scaling is not None and rotary.scaling.kind in ("dynamic", "longrope")
        return ends if grows and len(set(ends)) > 1 else [max(ends)]

    def slots(self, n_keys: int) -> Tensor:
        return torch.arange(n_keys, device=self.positions_RT.device)

    def held(self, window: int | None, n_keys: int) -> Tensor:
        """(R, S): whose key each slot holds, by its position; long ago where it holds none. A plain state's slots are
        the positions themselves; a full window's go round."""
        n_slots, n_new = self.state.ring(window) if self.state else 0, self.positions_RT.shape[1]
        if not self.state or max(self.starts) + n_new <= n_slots:
            return self.slots(n_keys)[None]
        last_R1 = self.positions_RT[:, :1] if n_new == 1 else self.positions_RT[:, :1] - 1
        old = self.slots(n_keys if n_new == 1 else n_keys - n_new)
        old = last_R1 - (last_R1 - old) % n_slots
        old = old.masked_fill(old < 0, LONG_AGO)
        return old if n_new == 1 else torch.cat((old, self.positions_RT), 1)

    def ago(self, window: int | None, n_keys: int) -> Tensor:
        """(R, 1, T, S): how many positions back each key is."""
        return self.positions_RT[:, None, :, None] - self.held(window, n_keys)[:, None, None]

    def allowed(self, window: int | None, n_keys: int) -> Tensor:
        """(R or B, 1, T, S), True where a query may see a key: no later one in a causal stack, none beyond the window,
        no padding. (In a causal stack padding comes after all real tokens: they never see it.)"""
        if ("allowed", window, n_keys) not in self.made:
            ago = self.ago(window, n_keys)
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

    def bias(self, window: int | None, n_keys: int, alibi_heads: int | None, dtype: torch.dtype) -> Tensor | None:
        """What positions add to scores, (R, H, T, S): ALiBi's slopes or the stack's relative bias; None without."""
        if not alibi_heads and self.relative is None:
            return None
        window = window if self.state else None  # without a ring of slots keys are as far away in every window
        made = ("bias", window, alibi_heads, n_keys, dtype)
        if made not in self.made:
            if alibi_heads:
                slopes = kernels.alibi_slopes(alibi_heads).to(self.positions_RT.device)
                bias = -(slopes[:, None, None] * self.ago(window, n_keys).abs()).to(dtype)
            else:
                table, buckets = cast(tuple[Tensor, s.RelativeBias], self.relative)
                which = kernels.relative_buckets(self.ago(window, n_keys)[:, 0], buckets, self.causal)
                bias = table[which].permute(0, 3, 1, 2).to(dtype)
            self.made[made] = bias
        return self.made[made]

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

"""Ways to break the product on purpose, as a mistake in the code would: each a function of pytest's monkeypatch.

Most come as a pair: for the reference and for the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import laws
from plainformer import formulas, kernels, layers, ledger, reference, tree
from plainformer import model as m
from plainformer import spec as s
from plainformer.generation import reading
from plainformer.states import State, Where

Break = Callable[[pytest.MonkeyPatch], None]


def breaks(room: Any, name: str, make: Callable[[Any], Any]) -> Break:
    """Puts make(original) in the place of an attribute, a method or an entry of a table."""

    def do(patch: pytest.MonkeyPatch) -> None:
        if isinstance(room, dict):
            patch.setitem(room, name, make(room[name]))
        else:
            patch.setattr(room, name, make(getattr(room, name)))

    return do


def rule(kind: type, make: Callable[[Any], Any], of: Any = reference.run) -> Break:
    """Puts another rule in the place of a part's."""

    def do(patch: pytest.MonkeyPatch) -> None:
        original, table = of.dispatch(kind), of.registry
        of.register(kind)(make(original))
        patch.callbacks.append(lambda: of.register(kind)(original))  # type: ignore[attr-defined]
        assert table[kind] is not original

    return do


# --- mistakes in attention, for each side -----------------------------------------------------------------------------


def masks(see: Callable[[Any, Any], Any]) -> tuple[Break, Break]:
    """Which pairs may see each other, from (how long ago, window), for both sides."""

    def in_reference(original: Any) -> Any:
        def allowed(self: reference.Where, window: int | None, n_keys: int) -> Any:
            return see(self.ago(n_keys), window) if self.causal else original(self, window, n_keys)

        return allowed

    def in_model(patch: pytest.MonkeyPatch) -> None:
        original = Where.allowed

        def allowed(self: Where, window: int | None, n_keys: int) -> Tensor:
            return see(self.ago(window, n_keys), window) if self.causal else original(self, window, n_keys)

        patch.setattr(Where, "allowed", allowed)
        patch.setattr(Where, "mask", lambda self, window, n_keys, bias: (self.allowed(window, n_keys), False))

    return breaks(reference.Where, "allowed", in_reference), in_model


def within(ago: Any, window: int | None, slack: int = 0) -> Any:
    return (abs(ago) < window + slack) if window else abs(ago) < 10**6


def scores(make: Callable[[Any, Any, Any, Any, float, Any], tuple[Any, Any]]) -> tuple[Break, Break]:
    """Attention by make(xp, q, k, v, scale, allowed) -> (out, weights), xp numpy or torch, heads in front."""

    def in_model(patch: pytest.MonkeyPatch) -> None:
        def plain(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor, scale: float, *none: None) -> tuple[Tensor, Tensor]:
            k, v = (y.repeat_interleave(q.shape[-3] // y.shape[-3], -3) for y in (k, v))
            return make(torch, q, k, v, scale, allowed)

        def fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
            if mask is None:
                mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool)
                mask = mask.tril() if causal else mask
            return plain(q, k, v, mask, scale)[0]

        for room in (m, kernels):
            patch.setattr(room, "attention", plain)
            patch.setattr(room, "fused_attention", fused)
        patch.setattr(m.Attention, "fused", staticmethod(fused))

    def in_reference(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(formulas, "attention", lambda q, k, v, see, scale, *none: make(np, q, k, v, scale, see))

    return in_reference, in_model


def softmax(xp: Any, z: Any) -> Any:
    with np.errstate(all="ignore"):
        top = z.max(-1, keepdims=True) if xp is np else z.max(-1, keepdim=True).values
        e = xp.exp(z - xp.where(xp.isinf(top), xp.zeros_like(top), top))
        total = e.sum(-1)[..., None]
        return xp.where(total > 0, e / xp.where(total > 0, total, xp.ones_like(total)), xp.zeros_like(e))


def honest(
    xp: Any,
    q: Any,
    k: Any,
    v: Any,
    scale: float,
    allowed: Any,
    *,
    see: Callable[[Any], Any] = lambda allowed: allowed,
    score: Callable[[Any, float], Any] = lambda z, scale: z * scale,
    never: float = -math.inf,
    said: float = 1.0,
) -> tuple[Any, Any]:
    """Attention as it should be, but for what is given otherwise."""
    z = score(q @ k.swapaxes(-1, -2), scale)
    weights = softmax(xp, xp.where(see(allowed), z, xp.full_like(z, never)))
    return weights @ v * said, weights


def flattened(xp: Any, q: Any, k: Any, v: Any, scale: float, allowed: Any) -> tuple[Any, Any]:
    """An additive 0 / -inf mask handed to a routine that adds (1 - mask) * -1e9 in float32: scores drown."""
    z = q @ k.swapaxes(-1, -2) * scale
    drowned = z.astype(np.float32) - np.float32(1e9) if xp is np else z.float() - 1e9
    drowned = drowned.astype(np.float64) if xp is np else drowned.double()
    weights = softmax(xp, xp.where(allowed, drowned, xp.full_like(drowned, -math.inf)))
    return weights @ v, weights


# --- other mistakes ---------------------------------------------------------------------------------------------------


def no_positions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(layers.Table, "forward", lambda self, rows, like=None: F.embedding(rows, self.weight * 0))


def no_positions_defined(original: Any) -> Any:
    def run(part: s.Stack, w: reference.Weights, x: Any, where: reference.Where) -> Any:
        return original(replace(part, positions=None), w, x, where)

    return run


def stuck_at_0(patch: pytest.MonkeyPatch) -> None:
    original = layers.Table.forward
    patch.setattr(layers.Table, "forward", lambda self, rows, like=None: original(self, rows * (rows.shape[1] > 1)))


def stuck_at_0_defined(original: Any) -> Any:
    def run(part: s.Stack, w: reference.Weights, x: Any, where: reference.Where) -> Any:
        if part.positions and where.state:
            x = x + w.at("positions")["weight"][np.arange(len(x)) + part.positions.offset]
            part = replace(part, positions=None)
        return original(part, w, x, where)

    return run


def residual(make: Callable[[s.Residual], s.Residual], post: bool = False) -> tuple[Break, Break]:
    """Residuals run as make(residual), or with the norm after the sum."""

    def defined(original: Any) -> Any:
        def run(part: s.Residual, w: reference.Weights, x: Any, where: reference.Where) -> Any:
            if not post:
                return original(make(part), w, x, where)
            (branch,) = part.branches
            y = x + reference.run(branch.part, w.at(branch.name), x, where)
            return reference.run(branch.norm_in, w.at(f"{branch.name}_norm"), y, where)

        return run

    def in_model(patch: pytest.MonkeyPatch) -> None:
        original = m.Layer.forward

        def forward(self: m.Layer, x: Tensor, where: Where) -> Tensor:
            if not post:
                patched, self.residuals = self.residuals, tuple(map(make, self.residuals))
                try:
                    return original(self, x, where)
                finally:
                    self.residuals = patched
            for part in self.residuals:
                (branch,) = part.branches
                x = layers.through(self, f"{branch.name}_norm", x + self.get_submodule(branch.name)(x, where))
            return x

        patch.setattr(m.Layer, "forward", forward)

    return rule(s.Residual, defined), in_model


def detached_spread(patch: pytest.MonkeyPatch) -> None:
    def forward(self: layers.Norm, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return (
            centred / (centred.square().mean(-1, keepdim=True) + self.part.eps).sqrt().detach() * self.weight
            + self.bias
        )

    patch.setattr(layers.Norm, "forward", forward)


def one_state_for_all(patch: pytest.MonkeyPatch) -> None:
    kept: dict[int, Any] = {}
    original = reading.State
    patch.setattr(reading, "State", lambda n_rows, _: kept.setdefault(n_rows, original(n_rows, 64)))


def one_state_for_all_defined(patch: pytest.MonkeyPatch) -> None:
    kept = reference.State()
    patch.setattr(reference, "State", lambda: kept)


def first_row_for_all(original: Any) -> Any:
    return lambda self, running: original(self, running)[:1].expand(len(running), -1)


# --- mistakes that the laws must notice -------------------------------------------------------------------------------


def reordered(original: Any) -> Any:
    return lambda self, *args: original(self, *sorted(args))


def nudged(name: str) -> Break:
    """A field of every norm as if it were something else, in the model alone."""
    return breaks(
        layers.Norm,
        "__init__",
        lambda original: (
            lambda self, part: original(self, replace(part, **{name: {"eps": 0.0, "plus_one": True}[name]}))
        ),
    )


def wrong_pairs(original: Any) -> Any:
    return staticmethod(
        lambda x, cos, sin, rotary: original(x, cos, sin, replace(rotary, interleaved=not rotary.interleaved))
    )


def slots(change: Callable[[State], None]) -> Break:
    """Something happens to a state before each append."""

    def make(original: Any) -> Any:
        def append(self: State, *args: Any) -> Any:
            change(self)
            return original(self, *args)

        return append

    return breaks(State, "append", make)


def pad_visible(patch: pytest.MonkeyPatch) -> None:
    """Rows that are shorter see as far as the longest."""
    original = Where.allowed

    def allowed(self: Where, window: int | None, n_keys: int) -> Tensor:
        widest = self.positions_RT.amax(0, keepdim=True).expand_as(self.positions_RT)
        return original(replace(self, positions_RT=widest, made={}), window, n_keys)

    patch.setattr(Where, "allowed", allowed)


def rows_mixed(original: Any) -> Any:
    return lambda self, x, where: original(self, x, where) + 1e-9 * x.mean(0, keepdim=True)


def forgets(name: str) -> Break:
    """from_json drops a field."""

    def make(original: Any) -> Any:
        def from_json(data: Any, where: str = "") -> Any:
            back = original(data, where)
            return tree.rewrite(back, lambda part: replace(part, **{name: None}) if hasattr(part, name) else part)

        return from_json

    return breaks(laws, "from_json", make)


def all_gains_less_one(original: Any) -> Any:
    def drawn(spec: Any, *rest: Any) -> Any:
        norms = {w.name for w in ledger.Ledger.of(spec).rows if w.kind == "norm"}
        return ((name, array * (name not in norms)) for name, array in original(spec, *rest))

    return drawn


def swapped_rows(patch: pytest.MonkeyPatch) -> None:
    original = ledger.Ledger.of.__func__
    patch.setattr(
        ledger.Ledger, "of", classmethod(lambda cls, spec: cls(tuple(sorted(original(cls, spec).rows, key=str))))
    )


def stepped(original: Any) -> Any:
    """A pass counts from 0 again: positions of its own tokens alone."""
    return lambda positions, *rest, **more: original(torch.arange(positions.shape[1])[None], *rest, **more)

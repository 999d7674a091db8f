"""A decoder's layers for one new token a row, in one compiled call: as steps between registers, which `stack.h` takes
one after another. Layer by layer in Python the words of a token cost as much as the weights of a small model.

A reading of the model as any other: one rule a part, and a stack with a part without one goes layer by layer.
Between parts numbers are float32, whatever the weights are; keys and values are kept in the model's dtype.
B rows, T new positions (one), D d_model.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import singledispatch
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from plainformer import kernels
from plainformer import spec as s
from plainformer.layers import Bottleneck, FeedForward, Linear, Norm, NormedLinear
from plainformer.model import Attention, Layer, Stack
from plainformer.rows.products import FEW, KINDS, RowProduct, finished
from plainformer.states import Where

NORM, PRODUCT, TURNS, TURN, APPEND, ATTEND, ACTIVATE, ADD = range(8)
ACTIVATIONS = ("relu", "relu_squared", "silu", "gelu", "gelu_tanh", "tanh", "swiglu_clamped")
MOST_ROWS = 8
GROWS = ("dynamic", "longrope")  # frequencies that depend on how long a row is
INTS, LONGS = ("what", "how", "kind", "kind_bias", "along", "nth"), ("start", "also", "to", "a", "b", "c", "d", "e")


class Step(ctypes.Structure):
    """As `stack.h` has it."""

    _fields_ = (
        *((name, ctypes.c_int) for name in INTS),
        *((name, ctypes.c_long) for name in LONGS),
        *((name, ctypes.c_void_p) for name in ("weight", "bias", "scale")),
        *((name, ctypes.c_float) for name in ("number", "softcap")),
    )


class NoRule(Exception):
    """A part that no step does."""


class Register(NamedTuple):
    at: int
    width: int


class Tape:
    """The steps of a stack, and the tensors that they point at: steps hold while those are where they were."""

    def __init__(self, stack: Stack) -> None:
        self.steps: list[Step] = []
        self.attentions: list[Attention] = []
        self.places: list[tuple[dict[str, Tensor], str]] = []  # of each tensor, and where and what it was
        self.pointers: list[int] = []
        self.dtypes: list[torch.dtype] = []
        self.kept: list[Tensor] = []
        self.n_floats = self.most_floats = self.widest = 0
        self.turns: dict[s.Rotary, Register] = {}
        if stack.part.passes or stack.part.relative or not stack.part.layers:
            raise NoRule(type(stack).__name__)
        self.stream = self.register(next(one.width for one in widths(stack)))
        for module in stack.modules():
            if isinstance(module, Attention) and (rotary := module.part.scores.rotary) and rotary not in self.turns:
                self.turns[rotary] = self.turned(rotary)
        for layer in stack.layers:
            with self.scratch():
                emit(layer, self, self.stream)
        norm = stack._modules.get("norm_last")
        self.last = self.stream if norm is None else emit(norm, self, self.stream)
        self.array = (Step * len(self.steps))(*self.steps)

    def register(self, width: int) -> Register:
        self.n_floats += width
        self.most_floats = max(self.most_floats, self.n_floats)
        return Register(self.n_floats - width, width)

    @contextmanager
    def scratch(self) -> Iterator[None]:
        """Registers that are taken within are free again after."""
        before = self.n_floats
        yield
        self.n_floats = before

    def add(self, what: int, **fields: Any) -> None:
        self.steps.append(Step(what=what, **fields))

    def points(self, module: nn.Module, name: str) -> tuple[int | None, int]:
        """Where a module's own tensor begins, None without one, and its kind."""
        tensor = module._parameters.get(name)
        if tensor is None:
            return None, KINDS[torch.float32]
        if tensor.dtype not in KINDS or not tensor.is_contiguous() or not tensor.is_cpu:
            raise NoRule(f"{name} of {tensor.dtype}")
        self.places.append((cast("dict[str, Tensor]", module._parameters), name))
        self.pointers.append(tensor.data_ptr())
        self.dtypes.append(tensor.dtype)
        return tensor.data_ptr(), KINDS[tensor.dtype]

    def holds(self) -> bool:
        """Whether all tensors are where they were when the steps were made."""
        try:
            found = [own[name] for own, name in self.places]
            return [y.data_ptr() for y in found] == self.pointers and [y.dtype for y in found] == self.dtypes
        except (KeyError, AttributeError):  # one is gone, or None now
            return False

    def turned(self, rotary: s.Rotary) -> Register:
        if rotary.scaling is not None and rotary.scaling.kind in GROWS:
            raise NoRule(rotary.scaling.kind)
        angles = kernels.frequencies(rotary).contiguous()
        self.kept.append(angles)
        to = self.register(rotary.n_dims)
        self.add(TURNS, to=to.at, a=len(angles), weight=angles.data_ptr(), number=kernels.stretch(rotary))
        return to

    def products(self, modules: Sequence[Linear | NormedLinear], x: Register) -> list[Register]:
        """Matrices that read the same, as one piece of work."""
        kinds, out = set(), []
        for module in modules:
            product, linear = module.product, module.part.linear if isinstance(module, NormedLinear) else module.part
            if linear.lora or not isinstance(product, RowProduct) or product.own is not None:
                raise NoRule("a linear of another kind")
            (weight, kind), (bias, kind_bias) = self.points(module, "weight"), self.points(module, "bias")
            scale = None if product.scales is None else product.scales.data_ptr()
            out.append(self.register(linear.n_out))
            fields = {"start": x.at, "to": out[-1].at, "a": x.width, "b": linear.n_out, "along": 1}
            self.add(PRODUCT, weight=weight, bias=bias, scale=scale, kind=kind, kind_bias=kind_bias, **fields)
            kinds.add(kind)
        self.steps[-1].along = 0
        if len(kinds) > 1:
            raise NoRule("matrices of several kinds")
        self.widest = max(self.widest, x.width)
        return out


def widths(stack: Stack) -> Iterator[Register]:
    """What the first layer reads, by the first matrix that reads it."""
    for module in stack.layers[0].modules():
        if isinstance(module, Linear):
            yield Register(0, module.part.n_in)


@singledispatch
def emit(module: nn.Module, tape: Tape, x: Register) -> Register:
    """The steps of a part, added to the tape; where their answer stands."""
    raise NoRule(type(module).__name__)


@emit.register
def _(module: Linear, tape: Tape, x: Register) -> Register:
    return tape.products([module], x)[0]


@emit.register
def _(module: Norm, tape: Tape, x: Register) -> Register:
    return norm(module, tape, x, tape.register(x.width))


def norm(module: Norm, tape: Tape, x: Register, to: Register) -> Register:
    part = module.part
    (weight, kind), (bias, kind_bias) = tape.points(module, "weight"), tape.points(module, "bias")
    how = (part.kind == "rms") + 2 * part.plus_one
    fields = {"start": x.at, "to": to.at, "a": x.width, "b": part.width, "how": how, "number": part.eps}
    tape.add(NORM, weight=weight, bias=bias, kind=kind, kind_bias=kind_bias, **fields)
    return to


@emit.register
def _(module: NormedLinear, tape: Tape, x: Register) -> Register:
    return projections(tape, [module], x)[0]


@emit.register
def _(module: Bottleneck, tape: Tape, x: Register) -> Register:
    return emit(module.up, tape, emit(module.norm, tape, emit(module.down, tape, x)))


def projections(tape: Tape, modules: Sequence[nn.Module], x: Register) -> list[Register]:
    """Side by side where they are plain, each with its norm after."""
    if not all(isinstance(module, (Linear, NormedLinear)) for module in modules):
        return [emit(module, tape, x) for module in modules]
    out = tape.products([cast(Linear, module) for module in modules], x)
    for module, y in zip(modules, out, strict=True):
        if isinstance(module, NormedLinear):
            norm(module.norm, tape, y, y)
    return out


@emit.register
def _(module: FeedForward, tape: Tape, x: Register) -> Register:
    part = module.part
    both = [module.gate, module.up] if part.gate else [module.up]
    first, *also = projections(tape, both, x)
    if part.activation == "swiglu_clamped" and not also:
        raise NoRule("it bends a gate and another number")
    how = ACTIVATIONS.index(part.activation)
    tape.add(ACTIVATE, start=first.at, also=also[0].at if also else -1, to=first.at, a=first.width, how=how)
    return emit(module.down, tape, first)


@emit.register
def _(module: Attention, tape: Tape, x: Register) -> Register:
    part, scores = module.part, module.part.scores
    if part.cross or part.v is None or scores.sinks or scores.alibi:
        raise NoRule("attention of another kind")
    q, k, v = projections(tape, [module.q, module.k, module.v], x)
    d_value = v.width // part.n_kv_heads
    if rotary := scores.rotary:
        by = tape.turns[rotary]
        for y, n_heads in ((q, part.n_heads), (k, part.n_kv_heads)):
            sizes = {"a": n_heads, "b": part.d_head, "c": rotary.n_dims // 2, "how": int(rotary.interleaved)}
            tape.add(TURN, start=y.at, also=by.at, **sizes)
    nth = len(tape.attentions)
    tape.attentions.append(module)
    tape.add(APPEND, start=k.at, also=v.at, a=part.n_kv_heads, b=part.d_head, c=d_value, nth=nth)
    out = tape.register(part.n_heads * d_value)
    sizes = {"a": part.n_heads, "b": part.n_kv_heads, "c": part.d_head, "d": d_value, "e": part.window or sys.maxsize}
    tape.add(ATTEND, start=q.at, to=out.at, nth=nth, number=scores.scale, softcap=scores.softcap or 0.0, **sizes)
    return emit(module.out, tape, out)


@emit.register
def _(module: Layer, tape: Tape, x: Register) -> Register:
    """As the layer runs them; the stream stays in its register."""

    def through(name: str, y: Register) -> Register:
        inner = module._modules.get(name)
        return y if inner is None else emit(inner, tape, y)

    def plus(a: Register, b: Register, to: Register) -> Register:
        tape.add(ADD, start=a.at, also=b.at, to=to.at, a=x.width)
        return to

    for residual in module.residuals:
        first = residual.branches[0].name
        read, said = through(f"{first}_norm_shared", x), []
        for branch in residual.branches:
            y = emit(module.get_submodule(branch.name), tape, through(f"{branch.name}_norm", read))
            said.append(through(f"{branch.name}_norm_out", y))
        together = said[0]
        for one in said[1:]:
            together = plus(together, one, together)
        together = through(f"{first}_norm_together", together)
        if not residual.add:
            raise NoRule("a layer without its residual")
        plus(x, together, x)
        after = module._modules.get(f"{first}_norm_sum")
        if after is not None:
            norm(cast(Norm, after), tape, x, x)
    return x


class RowStack:
    """What a stack's layers and last norm give for one new token a row, of rows whose state holds what came before;
    None for all else."""

    def __init__(self, rows: ctypes.CDLL) -> None:
        self.rows = rows
        self.tape: Tape | None = None

    def __deepcopy__(self, memo: object) -> RowStack:
        return RowStack(self.rows)  # the copied weights stand elsewhere

    def __call__(self, stack: Stack, x_BTD: Tensor, where: Where) -> Tensor | None:
        state, n_rows = where.state, x_BTD.shape[0]
        if state is None or x_BTD.shape[1] != 1 or n_rows > MOST_ROWS or torch.is_grad_enabled():
            return None
        if where.trace is not None or where.routed is not None or x_BTD.dtype not in FEW or not x_BTD.is_cpu:
            return None
        if where.lengths is not None and min(where.lengths) < 1:
            return None
        if self.tape is None or not self.tape.holds():
            try:
                self.tape = Tape(stack)
            except NoRule:
                stack.at_once = None
                return None
        tape, slots = self.tape, []
        for module in tape.attentions:
            pair = state.kept.get(module.place)
            if pair is None or pair[0].dtype is not x_BTD.dtype or pair[0].shape[0] != n_rows:
                return None
            slots += [pair[0].data_ptr(), pair[1].data_ptr(), pair[0].shape[2]]
        x_BTD = x_BTD.contiguous()
        y_BTD = torch.empty_like(x_BTD)
        done = self.rows.stack(
            *(tape.array, len(tape.steps), x_BTD.data_ptr(), y_BTD.data_ptr(), KINDS[x_BTD.dtype]),
            *(n_rows, x_BTD.shape[2], tape.last.at, tape.last.width),
            *((ctypes.c_long * n_rows)(*where.starts), (ctypes.c_long * len(slots))(*slots)),
            *(tape.most_floats, tape.widest, torch.get_num_threads()),
        )
        return finished(done, y_BTD)

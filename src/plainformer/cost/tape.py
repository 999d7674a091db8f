"""What torch keeps of a forward pass for the backward one, told an operation at a time: a pass without numbers.

A `Value` stands for a tensor's storage: how many numbers, how wide, and whether a gradient goes back through it. Each
operation keeps what its derivative asks for (torch's derivatives.yaml), and counts its products both ways. What is
kept twice is counted once, as it is held once. A weight is held anyway and counts nothing.

Rows: B T of a stack. C numbers of choices. Sizes are bytes of a number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from copy import copy

from plainformer import spec as s
from plainformer.records import dataclass

INDEX, FLAG, SINGLE, HALF = 8, 1, 4, 2  # bytes of a token's number, of True, of a float32, of a bfloat16


@dataclass(frozen=True)
class Pass:
    """What is asked: one forward pass of training over batch_size rows of seq_len tokens, none of them padding."""

    batch_size: int
    seq_len: int
    n_source: int = 0
    fused: bool = True  # attention by a kernel that writes no scores down; else by the plain product
    recompute: str = "none"  # "selective": attention's inside is made again (Korthikanti et al. 2022, section 4)
    size: int = HALF  # bytes of a number of the weights and of the stream
    autocast: bool = False  # products in bfloat16, the stream in `size`
    adapters: bool = False  # low-rank corrections alone are trained
    processor: bool = False  # torch's kernels for processors: norms in pieces, fewer cases of fused attention
    steps: bool = False  # the small steps between products in one piece each, as `plainformer.fused` does them

    @property
    def rows(self) -> int:
        return self.batch_size * self.seq_len


class Value:
    """One tensor, or a view of one: then `of` is the whole, and the whole is what is kept."""

    __slots__ = ("grad", "n", "of", "size")

    def __init__(self, n: int, size: int, grad: bool, of: Value | None = None) -> None:
        self.n, self.size, self.grad, self.of = n, size, grad, of

    def view(self, n: int) -> Value:
        return Value(n, self.size, self.grad, self.whole)

    @property
    def whole(self) -> Value:
        return self.of or self

    @property
    def n_bytes(self) -> int:
        return self.n * self.size


class Tape:
    """A pass as it goes on."""

    def __init__(self, of: Pass) -> None:
        self.of = of
        self.n_tokens = of.seq_len  # of a row, in the stack that is on
        self.saved: dict[Value, None] = {}  # whole values
        self.most = 0  # bytes at the worst moment, what is made again there included
        self.forward = self.backward = 0  # operations of products
        self.memory: Value | None = None  # what the encoder said
        self.relative: s.RelativeBias | None = None
        self.made: dict[Hashable, Value] = {}  # tables that all layers of a stack share
        self.cast_before = False  # a further pass over a layer whose weights autocast has copied

    @property
    def rows(self) -> int:
        return self.of.batch_size * self.n_tokens

    @property
    def trains(self) -> bool:
        """Whether plain weights have gradients."""
        return not self.of.adapters

    @property
    def n_bytes(self) -> int:
        return sum(value.n_bytes for value in self.saved)

    # --- what operations are made of ----------------------------------------------------------------------------------

    def keep(self, *values: Value) -> None:
        for value in values:
            self.saved[value.whole] = None

    def constant(self, n: int, size: int) -> Value:
        return Value(n, size, False)

    def new(self, n: int, *inputs: Value, size: int | None = None) -> Value:
        """The result of an operation: as wide as its widest input, with a gradient where one of them has."""
        return Value(n, size or max(x.size for x in inputs), any(x.grad for x in inputs))

    def once(self, key: Hashable, make: Callable[[], Value]) -> Value:
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def product(self, n_flops: int, *has_gradient: bool) -> None:
        """Every operand's gradient is a product as dear as the first one."""
        self.forward += n_flops
        self.backward += n_flops * sum(has_gradient)

    # --- operations ---------------------------------------------------------------------------------------------------

    def times(self, x: Value, y: Value, n: int | None = None) -> Value:
        if y.grad:
            self.keep(x)
        if x.grad:
            self.keep(y)
        return self.new(n or max(x.n, y.n), x, y)

    def over(self, x: Value, y: Value) -> Value:
        """x / y: the divisor's gradient asks for both."""
        if x.grad or y.grad:
            self.keep(y)
        if y.grad:
            self.keep(x)
        return self.new(x.n, x, y, size=x.size)

    def shaped(self, x: Value, by: str) -> Value:
        """An activation: some remember what they were given, some what they gave."""
        y = self.new(x.n, x)
        if x.grad:
            self.keep(y if by in ("relu", "relu_squared", "tanh", "sigmoid", "softmax") else x)
        return self.new(x.n, x) if by == "relu_squared" else y

    def masked(self, x: Value, mask: Value) -> Value:
        if x.grad:
            self.keep(mask)
        return self.new(x.n, x)

    def looked_up(self, n: int, indices: Value, table_grad: bool) -> Value:
        if table_grad:
            self.keep(indices)
        return Value(n, self.of.size, table_grad)

    def picked(self, x: Value, indices: Value, n: int) -> Value:
        """Those of its rows that the indices name."""
        if x.grad:
            self.keep(indices)
        return self.new(n, x)

    def narrow(self, x: Value) -> Value:
        """What autocast gives a product in x's place: a copy of its own, or x where it is narrow already."""
        return self.new(x.n, x, size=HALF) if self.of.autocast and x.size > HALF else x

    def matrix(self, x: Value, n_in: int, n_out: int, trained: bool, n_met: int | None = None) -> Value:
        """x W^T. Autocast keeps a narrow copy of W: of a trained one, made once a pass, of experts for each that is
        met."""
        x, n_flops = self.narrow(x), 2 * x.n * n_out
        if trained:
            self.keep(x)
        there = self.cast_before and trained and n_met is None
        if x.grad and self.of.autocast and not there:
            self.keep(self.constant(n_in * n_out * (n_met or 1), HALF))
        self.product(n_flops, x.grad, trained)
        return Value(x.n // n_in * n_out, HALF if self.of.autocast else x.size, x.grad or trained)

    def linear(self, x: Value, part: s.Linear, n_met: int | None = None) -> Value:
        """n_met: how many experts are, where each has a matrix of its own."""
        y = self.matrix(x, part.n_in, part.n_out, self.trains, n_met)
        y.grad = y.grad or (part.bias and self.trains)
        if part.lora:
            middle = self.matrix(x, part.n_in, part.lora.rank, True, n_met)
            self.matrix(middle, part.lora.rank, part.n_out, True, n_met)
            y = Value(y.n, y.size, True)  # the sum is a tensor of its own
        return y

    def norm(self, x: Value, part: s.Norm, read_by_products: bool = False) -> Value:
        """Of the input, its statistics; in pieces (torch on processors) an RMS norm keeps the even rows too. In one
        step both kinds keep the same, and what products alone read is written as narrow as they read it."""
        if self.of.steps:
            narrow = read_by_products and self.of.autocast
            y = Value(x.n, HALF if narrow else x.size, x.grad or (self.trains and (part.gain or part.bias)))
            if y.grad:
                gains = [self.constant(part.width, SINGLE)] if part.gain and part.plus_one else []
                rows = x if x.whole.n == x.n else self.new(x.n, x)  # side by side
                self.keep(rows, self.constant(2 * (x.n // part.width), SINGLE), *gains)
            return y
        n_rows, trained = x.n // part.width, self.trains and (part.gain or part.bias)
        cast = part.kind == "rms" and x.size < self.of.size  # autocast's narrow rows have a narrow gain
        made = part.gain and (part.plus_one or cast)
        gain = Value(part.width, min(x.size, self.of.size) if cast else self.of.size, self.trains) if made else None
        added = part.bias and part.kind == "rms"  # a sum of its own, as wide as the bias
        y = Value(x.n, max(x.size, self.of.size) if added else x.size, x.grad or trained)
        if part.kind == "layer":
            if y.grad:
                wide = max(x.size, self.of.size if part.gain or part.bias else 0)
                wide = wide if self.of.processor else max(wide, SINGLE)
                self.keep(x, self.constant(n_rows, wide), self.constant(n_rows, wide), *([gain] if gain else []))
            return y
        wide = max(x.size, SINGLE)
        if self.of.processor:
            single = x if x.size == wide else self.new(x.n, x, size=wide)
            if x.grad:
                self.keep(single, self.constant(n_rows, wide), *([gain] if gain else []))
            if part.gain and self.trains:
                self.keep(Value(x.n, wide, x.grad))
        elif y.grad:
            self.keep(x, self.constant(n_rows, wide), *([gain] if gain else []))
        return y

    # --- what is made again -------------------------------------------------------------------------------------------

    def again(self, inputs: Iterable[Value], run: Callable[[Tape], Value]) -> Value:
        """Keeps the inputs alone; all that `run` keeps is there once more, when its turn in the backward pass comes."""
        self.keep(*inputs)
        inner = copy(self)
        inner.saved, inner.made = dict(self.saved), dict(self.made)
        y = run(inner)
        self.forward, self.backward = inner.forward, inner.backward
        self.most = max(inner.most, inner.n_bytes)
        return y

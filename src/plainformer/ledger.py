"""Every weight that a spec implies. One rule for each part; a model's weights are its parts' weights, named by where
they stand. The order is torch's: a part's own weights before those of the parts inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import singledispatch
from math import prod

from plainformer import mixers
from plainformer import spec as s
from plainformer.records import dataclass, replace

KINDS: tuple[str, ...] = ("embedding", "position", "attention", "mixer", "feed_forward", "expert")
KINDS += ("router", "norm", "head", "lora", "tower")


@dataclass(frozen=True)
class Weight:
    name: str
    shape: tuple[int, ...]  # as x @ W.T reads it: (outputs, inputs); experts stacked in front
    kind: str = ""  # one of KINDS
    met: tuple[int, int] = (1, 1)  # of its experts, how many one token meets
    same_as: str | None = None  # an alias: the weight that stands at this name, counted there
    begins: float | None = None  # what all its numbers are at first; None: a recipe draws them
    buffer: bool = False  # stored in checkpoints, moved by no gradient, counted nowhere

    @property
    def count(self) -> int:
        return 0 if self.same_as or self.buffer else prod(self.shape)

    @property
    def active(self) -> int:
        return self.count // self.met[1] * self.met[0]


Weights = Iterator[Weight]


def under(name: str, inner: Weights, kind: str = "") -> Weights:
    """The weights of a part that stands at `name`; `kind` for those that have none yet."""
    return (replace(w, name=f"{name}.{w.name}", kind=w.kind or kind) for w in inner)


def inside(part: object, *names: str, kind: str = "") -> Weights:
    """The weights of the parts that stand in these fields, under the fields' names."""
    for name in names:
        yield from under(name, weights(getattr(part, name)), kind)


def numbered(parts: tuple[object, ...]) -> Weights:
    """The weights of parts in a row, under their numbers."""
    for i, part in enumerate(parts):
        yield from under(str(i), weights(part))


@singledispatch
def weights(part: object) -> Weights:
    raise TypeError(f"no rule counts the weights of {type(part).__name__}")


def holds(*names: str, kind: str = "") -> Callable[[object], Weights]:
    """The rule of a part that has no weights but those of the parts in these fields."""
    return lambda part: inside(part, *names, kind=kind)


weights.register(type(None), holds())
weights.register(s.Sinusoid, holds())
weights.register(s.Bottleneck, holds("down", "norm", "up"))
weights.register(s.FeedForward, holds("gate", "up", "down", kind="feed_forward"))
weights.register(s.ChosenSoftmaxRouter, holds("scores", kind="router"))
weights.register(mixers.LatentAttention, holds("q", "kv_down", "kv_norm", "kv_up", "out", kind="attention"))
weights.register(mixers.BorrowedAttention, holds("q", "out", kind="attention"))
weights.register(mixers.ShortConvolution, holds("inner", "convolution", "out", kind="mixer"))
weights.register(mixers.Distances, holds("table", "norm", kind="position"))
weights.register(s.Table, lambda part: iter([Weight("weight", (part.n_rows, part.width))]))
weights.register(s.RelativeBias, lambda part: iter([Weight("weight", (part.n_buckets, part.n_heads), "position")]))
weights.register(mixers.Patches, holds("linear", kind="embedding"))
weights.register(mixers.Sized, lambda part: (replace(w, kind=w.kind or part.kind) for w in numbered(part.pieces)))


@weights.register(s.Linear)
def _(part: s.Linear) -> Weights:
    yield Weight("weight", (part.n_out, part.n_in))
    if part.bias:
        yield Weight("bias", (part.n_out,), begins=0.0)
    if part.lora:
        yield Weight("lora_a", (part.lora.rank, part.n_in), "lora")
        yield Weight("lora_b", (part.n_out, part.lora.rank), "lora", begins=0.0)


@weights.register(s.Norm)
def _(part: s.Norm) -> Weights:
    if part.gain:
        yield Weight("weight", (part.width,), "norm", begins=0.0 if part.plus_one else 1.0)
    if part.bias:
        yield Weight("bias", (part.width,), "norm", begins=0.0)


@weights.register(s.NormedLinear)
def _(part: s.NormedLinear) -> Weights:
    yield from weights(part.linear)
    yield from inside(part, "norm")


@weights.register(mixers.Convolution)
def _(part: mixers.Convolution) -> Weights:
    yield Weight("weight", (part.channels, 1, part.kernel))
    if part.bias:
        yield Weight("bias", (part.channels,))


@weights.register(s.Attention)
def _(part: s.Attention) -> Weights:
    if part.scores.sinks:
        yield Weight("sinks", (part.n_heads,), "attention")
    yield from inside(part, "q", "k", "v", "out", kind="attention")


@weights.register(mixers.GatedAttention)
def _(part: mixers.GatedAttention) -> Weights:
    yield from weights(part.attention)
    yield from inside(part, "gate", kind="attention")


@weights.register(mixers.Mamba)
def _(part: mixers.Mamba) -> Weights:
    yield Weight("log_decay", (part.d_inner, part.d_state), "mixer")
    yield Weight("skip", (part.d_inner,), "mixer")
    yield from inside(part, "inner", "convolution", "select", "step", kind="mixer")
    for name, norm in zip(("step_norm", "b_norm", "c_norm"), part.norms or (), strict=False):
        yield from under(name, weights(norm))
    yield from inside(part, "out", kind="mixer")


@weights.register(mixers.Mamba2)
def _(part: mixers.Mamba2) -> Weights:
    for name in ("step_bias", "log_decay", "skip"):
        yield Weight(name, (part.n_heads,), "mixer")
    yield from inside(part, "inner", "convolution", "norm", "out", kind="mixer")


@weights.register(mixers.DeltaNet)
def _(part: mixers.DeltaNet) -> Weights:
    for name in ("step_bias", "log_decay"):
        yield Weight(name, (part.n_value_heads,), "mixer")
    yield from inside(part, "qkv", "gate", "rates", "convolution", "norm", "out", kind="mixer")


@weights.register(s.SoftmaxRouter)
def _(part: s.SoftmaxRouter) -> Weights:
    if part.scaled:
        yield Weight("input_scale", (part.scores.n_in,), "router")
        yield Weight("expert_scale", (part.scores.n_out,), "router")
    yield from inside(part, "scores", kind="router")


@weights.register(s.SigmoidRouter)
def _(part: s.SigmoidRouter) -> Weights:
    yield Weight("correction", (part.scores.n_out,), "router", begins=0.0, buffer=True)
    yield from inside(part, "scores", kind="router")


@weights.register(s.Experts)
def _(part: s.Experts) -> Weights:
    yield from inside(part, "router")
    met = (part.router.n_chosen, part.n_experts)
    alike = (replace(w, shape=(part.n_experts, *w.shape), met=met) for w in weights(part.expert))
    for w in (*under("experts", alike), *inside(part, "shared", "shared_gate")):
        yield w if w.kind == "lora" else replace(w, kind="expert")


@weights.register(s.Residual)
def _(part: s.Residual) -> Weights:
    for name, inner in part.parts():
        yield from under(name, weights(inner))


@weights.register(s.Stack)
def _(part: s.Stack) -> Weights:
    yield from inside(part, "positions", kind="position")
    yield from inside(part, "relative", "norm_first")
    alike = {id(layer): layer for layer in part.layers}  # a layer that stands in several places is read once
    made = {key: [w for residual in layer for w in weights(residual)] for key, layer in alike.items()}
    for i, layer in enumerate(part.layers):
        yield from under(f"layers.{i}", iter(made[id(layer)]))
    yield from inside(part, "norm_last")


@weights.register(s.Tokens)
def _(part: s.Tokens) -> Weights:
    yield from (replace(w, kind="embedding") for w in weights(part.table))
    yield from inside(part, "types", kind="embedding")
    yield from inside(part, "positions", kind="position")
    yield from inside(part, "norm", "project", kind="embedding")


@weights.register(s.Head)
def _(part: s.Head) -> Weights:
    first, *rest = weights(part.linear)
    yield replace(first, kind="head", same_as="embedding.weight" if part.tied else None)
    yield from (replace(w, kind=w.kind or "head") for w in rest)
    yield from inside(part, "transform", "norm", kind="head")


@weights.register(s.Tower)
def _(part: s.Tower) -> Weights:
    yield from inside(part, "patches", kind="tower")
    yield from inside(part, "positions", kind="position")
    yield from inside(part, "stack")
    yield from under("connector", numbered(part.connector), "tower")


@weights.register(s.Spec)
def _(part: s.Spec) -> Weights:
    yield from inside(part, "embedding", "encoder", "decoder")
    yield from under("towers", numbered(part.towers))
    yield from inside(part, "head")


@dataclass(frozen=True)
class Ledger:
    """The rows of one spec, and what can be asked of them."""

    rows: tuple[Weight, ...]

    @classmethod
    def of(cls, spec: s.Spec) -> Ledger:
        return cls(tuple(weights(spec)))

    @property
    def weights(self) -> tuple[Weight, ...]:
        """The rows that are parameters: no aliases, no buffers."""
        return tuple(w for w in self.rows if not w.same_as and not w.buffer)

    @property
    def total(self) -> int:
        return sum(w.count for w in self.rows)

    @property
    def active(self) -> int:
        """Parameters that one token meets, both tables included."""
        return sum(w.active for w in self.rows)

    @property
    def by_kind(self) -> dict[str, int]:
        """Parameters of each kind; their sum is the total."""
        return {kind: sum(w.count for w in self.rows if w.kind == kind) for kind in KINDS}

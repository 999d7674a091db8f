"""Do the parts of a spec fit each other? One rule for each part that has one; all faults at once, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import get_args

from plainformer import mixers as m
from plainformer.faults import Fault
from plainformer.records import fields_of
from plainformer.spec import (
    Activation,
    Attention,
    Bottleneck,
    Branch,
    Experts,
    FeedForward,
    Head,
    Linear,
    Lora,
    Norm,
    NormedLinear,
    Projection,
    Residual,
    Rotary,
    Scaling,
    SigmoidRouter,
    Sinusoid,
    SoftmaxRouter,
    Spec,
    Stack,
    Table,
    Tokens,
    Tower,
)
from plainformer.tree import walk

Faults = Iterator[Fault]
FIRST_CONTEXT = "original_max_position_embeddings"
COUNTS = ("width", "window", "kernel", "channels", "rank", "max_seq_len")  # with all that begin with n_ or d_
NEEDS = {  # the settings without which a scaling cannot be computed
    "linear": ("factor",),
    "dynamic": ("factor", FIRST_CONTEXT),
    "llama3": ("factor", "high_freq_factor", "low_freq_factor", FIRST_CONTEXT),
    "yarn": ("beta_fast", "beta_slow", "factor", FIRST_CONTEXT),
    "longrope": ("attention_factor", FIRST_CONTEXT),
}


@singledispatch
def width(part: object) -> tuple[int, int] | None:
    """(what it reads, what it writes) of anything that stands on the stream; None for what has no width of its own."""
    return None


width.register(Linear, lambda part: (part.n_in, part.n_out))
width.register(NormedLinear, lambda part: width(part.linear))
width.register(Bottleneck, lambda part: (n_in(part.down), n_out(part.up)))
for kind in (Norm, Table, m.Distances, m.Sized):
    width.register(kind, lambda part: (part.width, part.width))
width.register(Attention, lambda part: (n_in(part.q), n_out(part.out)))
width.register(m.LatentAttention, lambda part: (n_in(part.q), n_out(part.out)))
width.register(m.BorrowedAttention, lambda part: (n_in(part.q), n_out(part.out)))
width.register(m.GatedAttention, lambda part: width(part.attention))
width.register(m.Patches, lambda part: (part.n_in, part.n_out))
width.register(m.ShortConvolution, lambda part: (n_in(part.inner), n_out(part.out)))
width.register(m.Mamba, lambda part: (n_in(part.inner), n_out(part.out)))
width.register(m.Mamba2, lambda part: (n_in(part.inner), n_out(part.out)))
width.register(m.DeltaNet, lambda part: (n_in(part.qkv), n_out(part.out)))
width.register(FeedForward, lambda part: (n_in(part.up), n_out(part.down)))
width.register(Experts, lambda part: width(part.expert))


def n_in(part: Projection) -> int:
    return known_width(part)[0]


def n_out(part: Projection) -> int:
    return known_width(part)[1]


def known_width(part: object) -> tuple[int, int]:
    if (found := width(part)) is None:
        raise TypeError(f"no rule tells the width of {type(part).__name__}")
    return found


def equal(where: str, value: object, other: object, rule: str) -> Faults:
    if value != other:
        yield Fault(where, value, f"{rule} ({other})")


def among(where: str, value: object, known: tuple[str, ...]) -> Faults:
    if value not in known:
        yield Fault(where, value, f"must be one of {', '.join(known)}")


@singledispatch
def misfits(part: object) -> Faults:
    """The faults of one part, apart from those of the parts inside it."""
    yield from ()


@misfits.register(Norm)
def _(part: Norm) -> Faults:
    yield from among("kind", part.kind, ("layer", "rms"))
    if not part.eps >= 0:
        yield Fault("eps", part.eps, "must be 0 or more")


@misfits.register(Lora)
def _(part: Lora) -> Faults:
    if not part.alpha > 0:
        yield Fault("alpha", part.alpha, "must be above 0")


@misfits.register(Scaling)
def _(part: Scaling) -> Faults:
    yield from among("kind", part.kind, (*NEEDS, "other"))
    if absent := [name for name in NEEDS.get(part.kind, ()) if name not in dict(part.settings)]:
        yield Fault("settings", sorted(dict(part.settings)), f"{part.kind} needs {', '.join(absent)}")


@misfits.register(Rotary)
def _(part: Rotary) -> Faults:
    if part.n_dims % 2:
        yield Fault("n_dims", part.n_dims, "must be even: dimensions are turned in pairs")
    if part.scaling and part.scaling.kind == "longrope":
        told = sorted(name for name, by in part.scaling.settings if "_factor." in name and by > 0)
        if told != sorted(f"{which}_factor.{i}" for which in ("short", "long") for i in range(part.n_dims // 2)):
            yield Fault("scaling.settings", told, f"must be {part.n_dims // 2} numbers above 0 for short and for long")
    if part.scaling and part.scaling.kind == "dynamic" and part.n_dims == 2:
        yield Fault("n_dims", part.n_dims, "must be above 2 where scaling is dynamic: it leaves the first pair alone")
    if not part.theta > 0:
        yield Fault("theta", part.theta, "must be above 0")


@misfits.register(Sinusoid)
def _(part: Sinusoid) -> Faults:
    if part.width % 2 or (part.layout == "tensor2tensor" and part.width == 2):
        yield Fault("width", part.width, "must be even, a sine and a cosine each; tensor2tensor's two of each at least")
    yield from among("layout", part.layout, ("pairs", "halves", "tensor2tensor"))


@misfits.register(NormedLinear)
def _(part: NormedLinear) -> Faults:
    if n_out(part.linear) % part.norm.width:
        yield Fault("norm.width", part.norm.width, f"must divide the projection's width ({n_out(part.linear)})")


@misfits.register(Bottleneck)
def _(part: Bottleneck) -> Faults:
    yield from equal("norm.width", part.norm.width, part.down.n_out, "must equal down.n_out")
    yield from equal("up.n_in", part.up.n_in, part.down.n_out, "must equal down.n_out")


@misfits.register(Attention)
def _(part: Attention) -> Faults:
    if part.n_kv_heads > 0 and part.n_heads % part.n_kv_heads:
        yield Fault("n_kv_heads", part.n_kv_heads, f"must divide n_heads ({part.n_heads})")
    yield from equal("q", n_out(part.q), part.n_heads * part.d_head, "must give n_heads * d_head numbers")
    for name, linear in (("k", part.k), ("v", part.v)):
        if linear is not None:
            yield from equal(
                name, n_out(linear), part.n_kv_heads * part.d_head, "must give n_kv_heads * d_head numbers"
            )
            yield from equal(name, n_in(linear), n_in(part.k), "must read what k reads")
    yield from equal("out.n_in", part.out.n_in, part.n_heads * part.d_head, "must be n_heads * d_head")
    if not part.cross:
        yield from equal("k", n_in(part.k), n_in(part.q), "must read what q reads")
    elif part.window or part.scores.rotary or part.scores.alibi:
        rule = "a cross-attention sees all that the encoder said, in no order: no window, rotary or ALiBi"
        yield Fault("cross", True, rule)
    if part.scores.rotary and part.scores.rotary.n_dims > part.d_head:
        yield Fault("scores.rotary.n_dims", part.scores.rotary.n_dims, f"must not exceed d_head ({part.d_head})")


@misfits.register(m.GatedAttention)
def _(part: m.GatedAttention) -> Faults:
    yield from equal("gate.n_out", part.gate.n_out, part.attention.out.n_in, "must equal attention.out.n_in")


@misfits.register(m.LatentAttention)
def _(part: m.LatentAttention) -> Faults:
    yield from equal("q", n_out(part.q), part.n_heads * (part.d_nope + part.d_rope), "must give d_nope + d_rope a head")
    yield from equal("kv_down.n_in", part.kv_down.n_in, n_in(part.q), "must read what q reads")
    yield from equal("kv_down.n_out", part.kv_down.n_out, part.kv_norm.width + part.d_rope, "must be latent + d_rope")
    yield from equal("kv_up.n_in", part.kv_up.n_in, part.kv_norm.width, "must equal kv_norm.width")
    yield from equal(
        "kv_up.n_out",
        part.kv_up.n_out,
        part.n_heads * (part.d_nope + part.d_value),
        "must give d_nope + d_value a head",
    )
    yield from equal("out.n_in", part.out.n_in, part.n_heads * part.d_value, "must be n_heads * d_value")
    if part.scores.rotary:
        yield from equal("scores.rotary.n_dims", part.scores.rotary.n_dims, part.d_rope, "must equal d_rope")


@misfits.register(m.Mamba)
def _(part: m.Mamba) -> Faults:
    rank = part.select.n_out - 2 * part.d_state
    yield from equal("inner.n_out", part.inner.n_out, 2 * part.d_inner, "must be twice d_inner")
    yield from equal("convolution.channels", part.convolution.channels, part.d_inner, "must equal d_inner")
    yield from equal("select.n_in", part.select.n_in, part.d_inner, "must equal d_inner")
    yield from equal("step.n_in", part.step.n_in, rank, "must be what select gives besides B and C")
    yield from equal("step.n_out", part.step.n_out, part.d_inner, "must equal d_inner")
    yield from equal("out.n_in", part.out.n_in, part.d_inner, "must equal d_inner")
    for i, wide in enumerate((rank, part.d_state, part.d_state) if part.norms else ()):
        yield from equal(f"norms.{i}.width", part.norms[i].width if part.norms else 0, wide, "must be what it norms")


@misfits.register(m.ShortConvolution)
def _(part: m.ShortConvolution) -> Faults:
    channels = part.convolution.channels
    yield from equal("inner.n_out", part.inner.n_out, 3 * channels, "must be thrice the convolution's channels")
    yield from equal("out.n_in", part.out.n_in, channels, "must equal convolution.channels")


@misfits.register(m.Distances)
def _(part: m.Distances) -> Faults:
    if part.norm:
        yield from equal("norm.width", part.norm.width, part.width, "must equal table.width")


@misfits.register(FeedForward)
def _(part: FeedForward) -> Faults:
    yield from among("activation", part.activation, get_args(Activation))
    yield from equal("down.n_in", part.down.n_in, part.up.n_out, "must equal up.n_out")
    if part.gate:
        yield from equal("gate.n_in", part.gate.n_in, part.up.n_in, "must equal up.n_in")
        yield from equal("gate.n_out", part.gate.n_out, part.up.n_out, "must equal up.n_out")
    elif part.activation == "swiglu_clamped":
        yield Fault("gate", None, "swiglu_clamped needs a gate")


@misfits.register(Experts)
def _(part: Experts) -> Faults:
    if part.router.n_chosen > part.n_experts:
        yield Fault("router.n_chosen", part.router.n_chosen, f"must not exceed n_experts ({part.n_experts})")
    yield from equal("router.scores.n_out", part.router.scores.n_out, part.n_experts, "must equal n_experts")
    yield from equal(
        "router.scores.n_in", part.router.scores.n_in, part.expert.up.n_in, "must read what the experts read"
    )
    if part.shared:
        yield from equal("shared", width(part.shared), width(part.expert), "must read and write what an expert does")
    if part.shared_gate:
        yield from equal("shared_gate", width(part.shared_gate), (part.expert.up.n_in, 1), "must give one number")
        if part.shared is None:
            yield Fault("shared_gate", part.shared_gate, "there is no shared expert for it")


@misfits.register(SigmoidRouter)
@misfits.register(SoftmaxRouter)
def _(part: SigmoidRouter | SoftmaxRouter) -> Faults:
    n_experts, least = part.scores.n_out, 2 if isinstance(part, SigmoidRouter) else 1  # of the sigmoid's two best count
    each = n_experts // part.n_groups if part.n_groups > 0 else 0
    if each < least or n_experts % part.n_groups:
        yield Fault("n_groups", part.n_groups, f"must split {n_experts} experts into equal groups of at least {least}")
    if part.n_chosen_groups > part.n_groups:
        yield Fault("n_chosen_groups", part.n_chosen_groups, f"must not exceed n_groups ({part.n_groups})")
    elif part.n_chosen > each * part.n_chosen_groups:
        yield Fault("n_chosen", part.n_chosen, f"must fit the chosen groups ({each * part.n_chosen_groups} experts)")


@misfits.register(Branch)
def _(part: Branch) -> Faults:
    if not part.name.isidentifier():
        yield Fault("name", part.name, "must be one word: its weights stand at this name")


@misfits.register(Residual)
def _(part: Residual) -> Faults:
    if not part.branches:
        yield Fault("branches", part.branches, "a residual needs at least one branch")
    names = [branch.name for branch in part.branches]
    if len(set(names)) < len(names):
        yield Fault("branches", names, "each branch needs a name of its own")


@misfits.register(Stack)
def _(part: Stack) -> Faults:
    if not part.layers:
        yield Fault("layers", part.layers, "a stack needs at least one layer")
    for where, inner in walk(part, seen=set()) if (relative := part.relative) else ():
        if relative and isinstance(inner, Attention) and not inner.cross:
            yield from equal("relative.n_heads", relative.n_heads, inner.n_heads, f"must be those of {where}")
            if inner.scores.alibi:
                yield Fault(f"{where}.scores.alibi", True, "the stack has a relative bias already")
    for i in part.passes or ():
        if not 0 <= i < len(part.layers):
            yield Fault("passes", i, f"there is no such layer (there are {len(part.layers)})")
    first = {id(layer): i for i, layer in reversed(list(enumerate(part.layers)))}  # what is alike is wrong alike
    for i, layer in sorted((i, part.layers[i]) for i in first.values()):
        names = [name for residual in layer for name, _ in residual.parts()] if all(r.branches for r in layer) else []
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield Fault(f"layers.{i}", twice[0], "two parts of a layer would stand under this name")


def stream_faults(where: str, part: object, d_model: int) -> Faults:
    """Whatever stands on the stream reads and writes its width."""
    for place, inner in walk(part, seen=set()):
        if isinstance(inner, Residual) and inner.branches:
            for name, what in inner.parts():
                if what is not None and width(what) != (d_model, d_model):
                    yield Fault(
                        f"{where}.{place}.{name}", width(what), f"must read and write the stream's width ({d_model})"
                    )
    if isinstance(part, Stack):
        for name in ("positions", "norm_first", "norm_last"):
            what = getattr(part, name)
            if what is not None and what.width != d_model:
                yield Fault(f"{where}.{name}.width", what.width, f"must be the stream's width ({d_model})")


@misfits.register(Tokens)
def _(part: Tokens) -> Faults:
    if part.table.offset:
        yield Fault("table.offset", part.table.offset, "must be 0: token t reads row t")
    for name in ("types", "positions", "norm"):
        what = getattr(part, name)
        if what is not None:
            yield from equal(f"{name}.width", what.width, part.table.width, "must equal table.width")
    if part.project:
        yield from equal("project.n_in", part.project.n_in, part.table.width, "must equal table.width")


@misfits.register(Head)
def _(part: Head) -> Faults:
    inner = part.transform.n_out if part.transform else part.linear.n_in
    yield from among("pool", part.pool, ("no", "first", "mean"))
    yield from equal("linear.n_in", part.linear.n_in, inner, "must equal transform.n_out")
    if part.activation:
        yield from among("activation", part.activation, get_args(Activation)[:-1])  # the clamped one needs a gate
    if part.norm:
        yield from equal("norm.width", part.norm.width, inner, "must be what the head's linear reads")


@misfits.register(Tower)
def _(part: Tower) -> Faults:
    if part.positions:
        yield from equal("positions.width", part.positions.width, part.patches.n_out, "must equal patches.n_out")
    yield from stream_faults("stack", part.stack, part.patches.n_out)


@misfits.register(Spec)
def _(part: Spec) -> Faults:
    if part.decoder is None and part.encoder is None:
        yield Fault("decoder", None, "a spec needs a decoder, an encoder or both")
        return
    if not isinstance(part.towers, tuple) or not all(isinstance(one, (Tower, Head, m.Sized)) for one in part.towers):
        yield Fault("towers", part.towers, "must be towers, heads or pieces")
    for name, holder in (("embedding", part.embedding), ("encoder", part.encoder), ("decoder", part.decoder)):
        table = holder.positions if holder else None
        if isinstance(table, Table) and table.n_rows < part.max_seq_len + table.offset:
            rule = f"must be at least max_seq_len + offset ({part.max_seq_len + table.offset})"
            yield Fault(f"{name}.positions.n_rows", table.n_rows, rule)
    for name, stack in (("encoder", part.encoder), ("decoder", part.decoder)):
        if stack is not None:
            yield from stream_faults(name, stack, part.d_model)
            crossed = [a for _, a in walk(stack, seen=set()) if isinstance(a, Attention) and a.cross]
            if crossed and (part.encoder is None or name == "encoder"):
                yield Fault(f"{name}.cross_attention", "cross", "needs an encoder to read from")
            for attention in crossed:
                rule = "must read what the encoder says, of the stream's width"
                yield from equal(f"{name}.cross_attention.k", n_in(attention.k), part.d_model, rule)
    if part.head:
        reads = part.head.transform.n_in if part.head.transform else part.head.linear.n_in
        yield from equal("head", reads, part.d_model, "must read the stream's width")
        if part.head.tied:
            linear, table = part.head.linear, part.embedding.table
            yield from equal("head.linear.n_in", linear.n_in, table.width, "a tied head has the token table's width")
            yield from equal("head.linear.n_out", linear.n_out, table.n_rows, "a tied head has the token table's rows")


def faults_of(spec: Spec) -> Faults:
    """Every fault of a spec, each with the path of fields that leads to it. First what is not there at all: the other
    rules look at it."""
    parts = list(walk(spec, seen=set()))
    absent = [
        Fault(f"{where}.{name}".lstrip("."), None, f"must be there: {type(part).__name__} needs it")
        for where, part in parts
        for name in fields_of(part)
        if getattr(part, name) is None and "None" not in str(type(part).__annotations__[name])
    ]
    if absent:
        yield from absent
        return
    for where, part in parts:
        for name in fields_of(part):
            value = getattr(part, name)
            counts = name.startswith(("n_", "d_")) or name in COUNTS
            if counts and value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                yield Fault(f"{where}.{name}".lstrip("."), value, "must be a whole number of at least 1")
        for fault in misfits(part):
            yield Fault(f"{where}.{fault.where}".lstrip("."), fault.value, fault.rule, fault.hint)

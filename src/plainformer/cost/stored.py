"""Bytes of a checkpoint's weights as its config says that they are stored: exact, or None and the reason in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from math import prod
from typing import Any

from plainformer.cost import rules
from plainformer.faults import PlainformerError
from plainformer.ledger import Weight
from plainformer.records import dataclass
from plainformer.spec import Spec

Answer = tuple[list[int] | None, list[str]]
NEVER = ("lm_head", "embed_tokens", "norm", "layernorm", "gate", "router")  # last words of what no method packs
OF_LINEARS = ("attention", "feed_forward", "expert", "mixer")


class Unclear(Exception):
    """A setting that is not understood; its words are for the sheet's notes."""


@dataclass(frozen=True)
class Matrix:
    """A linear's weight as a method packs it; experts are packed one by one."""

    n_out: int
    n_in: int
    times: int
    kind: str


def stored_bytes(
    spec: Spec,
    rows: tuple[Weight, ...],
    dtype: str | None,
    quantization: Mapping[str, Any],
    model_type: str | None,
) -> Answer:
    """Bytes of each row: of its numbers in `dtype`, but for the linears that the method packs, with what it stores
    beside them.

    Buffers and what is in the files but not in the class (draft layers) are not in it.
    """
    assumed = []
    if dtype is None and quantization.get("quant_method") == "mxfp4":
        dtype, assumed = "bfloat16", ["the config says no dtype: what is not packed is taken as bfloat16"]
    if dtype not in rules.BITS:
        return None, [f"the config says no dtype that is known here ({dtype}): bytes as stored are not worked out"]
    method = str(quantization.get("quant_method", "not named"))
    try:
        if method not in METHODS:
            raise Unclear(f"{method} is not understood")
        packed, left_out = METHODS[method](quantization)
        excluded = names_left_out(left_out, spec, model_type)
        every, n_packed, sizes = list[int](), 0, dict[object, int | None]()
        for row in rows:
            alike = row.shape, row.kind, place_in_layer(row.name), row.name in excluded  # layers say the same again
            if alike not in sizes:
                matrix = as_matrix(row) if row.name not in excluded else None
                size = packed(matrix) if matrix else None
                sizes[alike] = None if matrix is None or size is None else size * matrix.times
            size = sizes[alike]
            n_packed += size is not None
            every.append(rules.n_bytes(row.count, dtype) if size is None else size)
        if not n_packed:
            raise Unclear(f"{method} packs none of this model's weights")
    except Unclear as reason:
        return None, [f"weights are stored quantised ({method}), and their bytes are not worked out: {reason}"]
    said = f"as stored: {method}, with its scales; tables, norms, routers and what it leaves out in {dtype}"
    return every, [said, *assumed]


def place_in_layer(name: str) -> str:
    """A weight's name without its layer's number."""
    stack, _, inside = name.partition(".layers.")
    return stack + inside.partition(".")[2] if inside else name


def as_matrix(row: Weight) -> Matrix | None:
    """The weight of a linear inside the layers; None for tables, norms, biases, routers, convolutions and heads."""
    if row.kind not in OF_LINEARS or not row.name.endswith(".weight") or "shared_gate" in row.name or not row.count:
        return None
    *stack, n_out, n_in = row.shape if len(row.shape) > 1 else (0, 0)
    if not n_out or ".convolution." in row.name:
        return None
    return Matrix(n_out, n_in, prod(stack), "experts" if ".experts." in row.name else row.kind)


# --- which modules are left as they were ------------------------------------------------------------------------------


def names_left_out(patterns: list[str], spec: Spec, model_type: str | None) -> set[str]:
    """Our names of the weights in modules that the config excludes, by the family's table of names."""
    telling = [pattern for pattern in patterns if not is_never_packed(pattern)]
    if not telling:
        return set()
    from plainformer.huggingface.names import placed, table_of

    try:
        table = table_of(str(model_type))
    except PlainformerError:
        raise Unclear(f"{telling[0]} is left out, and {model_type} has no table of names to find it by") from None
    found: set[str] = set()
    for _, theirs, ours in placed(table, spec):
        if any(covers(pattern, theirs) for pattern in telling):
            found |= set(ours)
    return found


def is_never_packed(pattern: str) -> bool:
    last = pattern.rstrip("$").rpartition(".")[2].lower()
    return last in NEVER or last.endswith(("norm", "layernorm"))


def covers(pattern: str, name: str) -> bool:
    """Whether an exclusion covers a tensor: the module itself or one above it, by name, `*` or `re:`."""
    if pattern.startswith("re:"):
        return re.match(pattern[3:], name.rpartition(".")[0]) is not None
    modules = name.split(".")[:-1]
    spans = [".".join(modules[i:j]) for i in range(len(modules)) for j in range(i + 1, len(modules) + 1)]
    return any(fnmatchcase(span, pattern) for span in spans)


def listed(settings: Mapping[str, Any], *names: str) -> list[str]:
    found: Any = next((settings[name] for name in names if settings.get(name)), [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise Unclear(f"{names[0]} is no list of names")
    return list(found)


def whole(settings: Mapping[str, Any], name: str, allowed: Callable[[int], bool], default: int | None = None) -> int:
    value = settings.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not allowed(value):
        raise Unclear(f"{name} = {value!r}")
    return int(value)


# --- methods: bytes of one packed matrix; None: left as it is ---------------------------------------------------------

Packed = Callable[[Matrix], int | None]
Method = tuple[Packed, list[str]]


def fp8(settings: Mapping[str, Any]) -> Method:
    """DeepSeek-V3's: a byte a number and a float32 for each block (its report, section 3.3)."""
    block = settings.get("weight_block_size")
    if not (isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block)):
        raise Unclear(f"weight_block_size = {block!r}")
    down, across = int(block[0]), int(block[1])

    def packed(m: Matrix) -> int:
        return m.n_out * m.n_in + 4 * -(-m.n_out // down) * -(-m.n_in // across)

    return packed, listed(settings, "modules_to_not_convert", "ignored_layers")


def mxfp4(settings: Mapping[str, Any]) -> Method:
    """Experts alone: 32 numbers of 4 bits share a scale of 8 (OCP Microscaling 1.0), which makes 4.25 bits."""

    def packed(m: Matrix) -> int | None:
        return 17 * m.n_out * -(-m.n_in // 32) if m.kind == "experts" else None

    return packed, listed(settings, "modules_to_not_convert")


def grouped(settings: Mapping[str, Any], n_bits: int, m: Matrix) -> int:
    """How many groups of inputs share a scale; what does not fill its words is not understood."""
    size = whole(settings, "group_size", lambda n: n == -1 or n > 0, 128)
    if m.n_out * n_bits % 32 or m.n_in * n_bits % 32:
        raise Unclear(f"{m.n_out} x {m.n_in} numbers of {n_bits} bits do not fill words of 32")
    return 1 if size == -1 else -(-m.n_in // size)


def gptq(settings: Mapping[str, Any]) -> Method:
    """Numbers and zeros in words of 32 bits, a float16 scale a group and output, an int32 an input (its group)."""
    n_bits = whole(settings, "bits", lambda n: n in (2, 3, 4, 8))
    if settings.get("modules_in_block_to_quantize"):
        raise Unclear("modules_in_block_to_quantize is set")
    if settings.get("lm_head"):
        raise Unclear("lm_head is packed too")

    def packed(m: Matrix) -> int:
        groups = grouped(settings, n_bits, m)
        return m.n_out * m.n_in * n_bits // 8 + groups * m.n_out * n_bits // 8 + 2 * groups * m.n_out + 4 * m.n_in

    return packed, []


def awq(settings: Mapping[str, Any]) -> Method:
    """Numbers and zeros in words of 32 bits, a float16 scale a group and output."""
    n_bits = whole(settings, "bits", lambda n: n == 4)
    if settings.get("zero_point", True) is not True or str(settings.get("version", "gemm")).lower() != "gemm":
        raise Unclear(f"zero_point = {settings.get('zero_point')}, version = {settings.get('version')!r}")

    def packed(m: Matrix) -> int:
        groups = grouped(settings, n_bits, m)
        return m.n_out * m.n_in * n_bits // 8 + groups * m.n_out * n_bits // 8 + 2 * groups * m.n_out

    return packed, listed(settings, "modules_to_not_convert")


def compressed_tensors(settings: Mapping[str, Any]) -> Method:
    """One group of linears: 8 bits with a scale an output or a matrix, or 4 and 8 bits packed with scales a group."""
    groups = settings.get("config_groups")
    if not isinstance(groups, Mapping) or len(groups) != 1:
        raise Unclear("config_groups is not one group")
    (group,) = groups.values()
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping) or list(group.get("targets") or []) != ["Linear"]:
        raise Unclear("its group is not of all linears")
    form, strategy = settings.get("format"), weights.get("strategy")
    n_bits = whole(weights, "num_bits", lambda n: n in (4, 8))
    inputs = group.get("input_activations")
    static = isinstance(inputs, Mapping) and not inputs.get("dynamic", False)
    if not weights.get("symmetric", True) or static or weights.get("actorder") in (True, "group"):
        raise Unclear("zeros, scales of inputs or an order of groups are stored")
    if form in ("float-quantized", "int-quantized") and n_bits == 8 and strategy in ("channel", "tensor"):
        return lambda m: m.n_out * m.n_in + 2 * (m.n_out if strategy == "channel" else 1), listed(settings, "ignore")
    if form == "pack-quantized" and strategy in ("group", "channel"):
        size = whole(weights, "group_size", lambda n: n > 0) if strategy == "group" else 0

        def packed(m: Matrix) -> int:
            n_groups = -(-m.n_in // size) if size else 1
            words = m.n_out * -(-m.n_in * n_bits // 32)
            return 4 * words + 2 * n_groups * m.n_out + 16  # and its true shape, two int64

        return packed, listed(settings, "ignore")
    raise Unclear(f"format = {form!r} with strategy = {strategy!r}")


METHODS: dict[str, Callable[[Mapping[str, Any]], Method]] = {
    "fp8": fp8,
    "mxfp4": mxfp4,
    "gptq": gptq,
    "awq": awq,
    "compressed-tensors": compressed_tensors,
}


def methods() -> Iterator[tuple[str, str]]:
    """Each method that is understood, and what it stores in words."""
    yield from ((name, " ".join((make.__doc__ or "").split())) for name, make in METHODS.items())

"""How people count. A convention is a change of the spec and a filter over the rows of its ledger: nothing else.

Every published size is somebody's rule. Here each rule has a name, a sentence, and gives its number row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from plainformer.faults import refuse
from plainformer.ledger import Ledger, Weight
from plainformer.mixers import GatedAttention, LatentAttention
from plainformer.records import dataclass, replace
from plainformer.spec import Attention, FeedForward, Head, Linear, Lora, Norm, Spec
from plainformer.tree import rewrite

P = TypeVar("P")

# --- changes of a spec ------------------------------------------------------------------------------------------------


def with_vocabulary(spec: Spec, size: int) -> Spec:
    """The same with `size` rows in the token table, and in the head where it scores the same tokens."""
    embedding = replace(spec.embedding, table=replace(spec.embedding.table, n_rows=size))
    head = spec.head
    if head and head.linear.n_out == spec.vocab_size:
        head = replace(head, linear=replace(head.linear, n_out=size))
    return replace(spec, embedding=embedding, head=head)


def pad_vocabulary(spec: Spec, multiple: int = 64) -> Spec:
    """The same with the vocabulary rounded up: 50,257 -> 50,304 (nanoGPT: for the speed of the head's product)."""
    return with_vocabulary(spec, -(-spec.vocab_size // multiple) * multiple)


def without_biases(part: P, of: tuple[type[Any], ...] = (Linear, Norm)) -> P:
    """The same without a bias on any part of these classes (a norm keeps its gain)."""

    def change(inner: Any) -> Any:
        return replace(inner, bias=False) if isinstance(inner, of) else inner

    return rewrite(part, change)


def without_attention_biases(spec: Spec) -> Spec:
    """The same without a bias on the projections of attention."""

    def change(part: Any) -> Any:
        return without_biases(part, (Linear,)) if isinstance(part, Attention) else part

    return rewrite(spec, change)


def with_qkv_biases(spec: Spec) -> Spec:
    """The same with a bias on queries, keys and values (a fused c_attn that has one), not on `out`."""

    def biased(part: Any) -> Any:
        return replace(part, bias=True) if isinstance(part, Linear) else part

    def change(part: Any) -> Any:
        if not isinstance(part, Attention):
            return part
        return replace(part, q=rewrite(part.q, biased), k=rewrite(part.k, biased), v=part.v and rewrite(part.v, biased))

    return rewrite(spec, change)


def untie(spec: Spec) -> Spec:
    """The same with a head whose matrix is its own. What was never tied stays as it is."""
    return replace(spec, head=replace(spec.head, tied=False)) if spec.head else spec


LORA_OWNERS: dict[str, tuple[type[Any], ...]] = {
    "attention": (Attention, GatedAttention, LatentAttention),
    "feed_forward": (FeedForward,),
    "head": (Head,),
}
LORA_TARGETS = tuple(
    [f"attention.{name}" for name in ("q", "k", "v", "gate", "kv_down", "kv_up", "out")]
    + [f"feed_forward.{name}" for name in ("gate", "up", "down")]
    + ["head"]
)
QUERIES_VALUES_HEAD = ("attention.q", "attention.v", "head")


def with_lora(spec: Spec, rank: int, alpha: float | None = None, targets: Iterable[str] = QUERIES_VALUES_HEAD) -> Spec:
    """The same with a low-rank correction on each named projection (Hu et al. 2021).

    A target is a name of LORA_TARGETS: a projection by the part it stands in, cross-attention included. On a tied
    head the factors are the head's alone: the token table is not touched. alpha: `rank` where not given (scale 1).
    """
    chosen = tuple(targets)
    if unknown := [target for target in chosen if target not in LORA_TARGETS]:
        raise refuse("targets", unknown[0], "no such projection", f"one of {', '.join(LORA_TARGETS)}")
    lora = Lora(rank=rank, alpha=rank if alpha is None else alpha)

    def adapt(part: Any) -> Any:
        return replace(part, lora=lora) if isinstance(part, Linear) else part

    def change(part: Any) -> Any:
        for target in chosen:
            owner, _, field = target.partition(".")
            field = field or "linear"
            if isinstance(part, LORA_OWNERS[owner]) and getattr(part, field, None) is not None:
                part = replace(part, **{field: rewrite(getattr(part, field), adapt)})
        return part

    return rewrite(spec, change)


# --- conventions by name ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Convention:
    """One way to count: what is done to the spec, and which rows of its ledger count."""

    name: str
    says: str  # what it counts, and whose it is
    change: Callable[[Spec], Spec]
    keeps: Callable[[Weight], bool] = lambda _: True


def _no_positions(row: Weight) -> bool:
    return row.kind != "position"


def _authors(spec: Spec) -> Spec:
    return with_lora(pad_vocabulary(without_biases(spec)), rank=4)


CONVENTIONS = {
    convention.name: convention
    for convention in (
        Convention(
            "tensors",
            "every tensor once, a tied head not again: checkpoints, transformers (OpenAI's 124M, 355M, 774M, 1558M)",
            lambda spec: spec,
        ),
        Convention(
            "nanogpt",
            "vocabulary padded to a multiple of 64, position tables left out: nanoGPT's get_num_params",
            pad_vocabulary,
            _no_positions,
        ),
        Convention(
            "bias-free",
            "as nanogpt, with no bias on any projection and norms of gain only: nanoGPT's bias=False",
            lambda spec: without_biases(pad_vocabulary(spec)),
            _no_positions,
        ),
        Convention(
            "lesson",
            "every tensor once, attention without biases: lessons that count 12d^2 + 9d a block",
            without_attention_biases,
        ),
        Convention(
            "untied",
            "every tensor once, the head a matrix of its own: courses that build the head as a separate layer",
            untie,
        ),
        Convention(
            "lora",
            "vocabulary padded, position tables counted, LoRA of rank 4 on queries, values and head added",
            lambda spec: with_lora(pad_vocabulary(spec), rank=4),
        ),
        Convention(
            "authors",
            "as lora, no biases but on the merged query-key-value layer: Figure 3 of Lotfi et al. 2024",
            lambda spec: with_qkv_biases(_authors(spec)),
        ),
        Convention(
            "authors-released",
            "as lora, no biases at all: the default of the code that Lotfi et al. released",
            _authors,
        ),
    )
}


def convention(name: str) -> Convention:
    """The convention of that name; refuses an unknown one with the names there are."""
    if name not in CONVENTIONS:
        raise refuse("convention", name, "no such convention", f"one of {', '.join(CONVENTIONS)}")
    return CONVENTIONS[name]


@dataclass(frozen=True)
class Count:
    """A spec counted under a convention. total = plain + sum of changes - sum of what is left out."""

    convention: Convention
    spec: Spec  # as the convention changes it
    plain: int  # every tensor of the unchanged spec
    kept: tuple[Weight, ...]
    left_out: tuple[Weight, ...]
    changes: tuple[tuple[str, int], ...]  # weights that the change adds, grows (+), shrinks or drops (-)

    @property
    def total(self) -> int:
        return sum(row.count for row in self.kept)


def count(spec: Spec, by: Convention | str = "tensors") -> Count:
    """Count a spec under a convention (or the name of one)."""
    rule = convention(by) if isinstance(by, str) else by
    before = Ledger.of(spec)
    changed = rule.change(spec)
    after = Ledger.of(changed).weights
    sizes = Counter({row.name: row.count for row in after})
    sizes.subtract({row.name: row.count for row in before.weights})
    return Count(
        convention=rule,
        spec=changed,
        plain=before.total,
        kept=tuple(row for row in after if rule.keeps(row)),
        left_out=tuple(row for row in after if not rule.keeps(row)),
        changes=tuple((name, gap) for name, gap in sizes.items() if gap),
    )


# --- the line table ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """Weights that stand at the same place of layers that are alike, said once."""

    layers: str  # "decoder.layers.*", or "decoder.layers.0-2" where the others differ; "" outside layers
    place: str  # "attention.q k v": queries, keys and values together
    formula: str  # outputs x inputs + biases
    each: int
    times: int  # in how many layers

    @property
    def total(self) -> int:
        return self.each * self.times


Shapes = tuple[tuple[int, ...], ...]


def _place(name: str) -> tuple[str, int, str]:
    """Of "decoder.layers.3.attention.q.weight": "decoder.layers", 3, "attention.q k v". Outside: "", -1, where."""
    *path, _ = name.split(".")
    if "layers" not in path:
        return "", -1, ".".join(path)
    at = path.index("layers") + 1
    place = path[at + 1 :]
    if place[-1] in ("q", "k", "v") and "attention" in place[-2]:
        place[-1] = "q k v"
    return ".".join(path[:at]), int(path[at]), ".".join(place)


def runs(layers: list[int]) -> str:
    """[0, 1, 2, 5] -> "0-2,5"."""
    runs: list[list[int]] = []
    for i in layers:
        if runs and runs[-1][-1] == i - 1:
            runs[-1].append(i)
        else:
            runs.append([i])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _formula(rows: list[Weight]) -> str:
    """Queries, keys and values of GPT-2 small -> "3 x (768 x 768 + 768)"."""
    modules: dict[str, list[str]] = {}
    for row in rows:
        shape = " x ".join(f"{n:,}" for n in row.shape)
        modules.setdefault(row.name.rpartition(".")[0], []).append(shape)
    terms = Counter(" + ".join(shapes) for shapes in modules.values())
    return " + ".join(term if n == 1 else f"{n} x ({term})" for term, n in terms.items())


def lines(rows: Iterable[Weight]) -> tuple[Line, ...]:
    """The rows of a ledger as a table to read: a line for each part, like layers said once. Sums to all of them."""
    depth: dict[str, set[int]] = {}
    places: dict[tuple[str, str], dict[int, list[Weight]]] = {}
    for row in rows:
        if row.count:
            stack, layer, place = _place(row.name)
            depth.setdefault(stack, set()).add(layer)
            places.setdefault((stack, place), {}).setdefault(layer, []).append(row)
    table = []
    for (stack, place), layers in places.items():
        alike: dict[Shapes, list[int]] = {}
        for layer, inner in layers.items():
            alike.setdefault(tuple(row.shape for row in inner), []).append(layer)
        for same in alike.values():
            inner = layers[same[0]]
            which = "*" if len(same) == len(depth[stack]) else runs(same)
            where = f"{stack}.{which}" if stack else ""
            table.append(Line(where, place, _formula(inner), sum(row.count for row in inner), len(same)))
    return tuple(table)


# --- the other way round ----------------------------------------------------------------------------------------------


def rule_of_thumb(n_layers: int, d_model: int, vocab_size: int) -> int:
    """12 L d^2 + V d: matrices of GPT-type blocks and the token table; no biases, norms or positions (0.7 % short
    for GPT-2 small)."""
    return 12 * n_layers * d_model**2 + vocab_size * d_model


def candidates(
    millions: int,
    shape: Callable[[int, int], Spec],
    layers: Iterable[int] = range(1, 97),
    widths: Iterable[int] = range(64, 4097, 64),
    by: Convention | str = "nanogpt",
) -> list[tuple[int, int]]:
    """All (layers, width) whose count rounds to `millions` of parameters: what may hide behind a label such as 458M.

    shape(n_layers, d_model): the family in question, whose layers must all be alike: then its count is a straight
    line in the number of layers, and two specs a width tell it all.
    """
    found = []
    for width in widths:
        one, two = (count(shape(n, width), by).total for n in (1, 2))
        found += [(n, width) for n in layers if round((one + (n - 1) * (two - one)) / 1e6) == millions]
    return found

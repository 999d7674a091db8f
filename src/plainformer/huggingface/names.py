"""A published checkpoint's tensors as the ledger's, and back, by the family's table. Bits are moved, never changed.

Works on NumPy arrays and on torch tensors alike: `xp` is the library (numpy or torch).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.huggingface.tables import TABLES, Row
from plainformer.ledger import Ledger
from plainformer.records import replace
from plainformer.spec import Attention, Spec
from plainformer.tree import walk

Tensors = dict[str, Any]


def table_of(model_type: str) -> tuple[Row, ...]:
    if model_type not in TABLES:
        from difflib import get_close_matches

        near = get_close_matches(model_type, TABLES, n=3, cutoff=0.5)
        hint = f"it can be sized; near to it: {', '.join(near)}" if near else "it can be sized"
        raise refuse("model_type", model_type, "has no table of tensor names yet", hint)
    return TABLES[model_type]


def layers_of(spec: Spec) -> dict[str, int]:
    return {name: len(stack.layers) for name in ("encoder", "decoder") if (stack := getattr(spec, name))}


def placed(rows: tuple[Row, ...], spec: Spec) -> Iterator[tuple[Row, str, tuple[str, ...]]]:
    """Each row at each layer where the ledger has its weights: (row, their name, our names)."""
    ours = {w.name for w in Ledger.of(spec).rows if not w.same_as}
    n_layers = layers_of(spec)
    for r in rows:
        for i in range(n_layers.get(r.ours[0].partition(".")[0], 0)) if "{i}" in r.theirs else (0,):
            names = tuple(name.replace("{i}", str(i)) for name in r.ours)
            if counts(r, i, ours):
                yield r, r.theirs.replace("{i}", str(i)), names


def counts(r: Row, i: int, ours: set[str]) -> bool:
    """Whether the ledger has the row's weights, and what the row asks to be beside them or not."""
    first, beside, without = (name and name.replace("{i}", str(i)) for name in (r.ours[0], r.beside, r.without))
    return first in ours and (beside is None or beside in ours) and without not in ours


def hold_experts(where: str, model_type: str, spec: Spec, n_tensors: int, most_absent: int) -> None:
    """Refuses a folder of so many tensors, before all are looked for, where by the config far more of them than that
    are those of single experts: more by most_absent."""
    shapes = {w.name: w.shape for w in Ledger.of(spec).rows}
    n_asked = sum(shapes[ours[0]][0] for r, _, ours in placed(table_of(model_type), spec) if r.lies == "stacked")
    if n_asked > n_tensors + most_absent:
        raise refuse(where, f"{n_tensors:,} tensors", f"are too few for {n_asked:,} of single experts, by the config")


def spellings(name: str) -> Iterator[str]:
    """How a tensor may be written in a checkpoint: as in the class with a head; without the first word, as the base
    class writes it (GPT-2's and BLOOM's own files); BERT's own files have gamma and beta for a norm's gain and bias."""
    for plain in (name, name.partition(".")[2]):
        yield plain
        if "LayerNorm." in plain:
            yield plain.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


# What classes store once and call by several names; which of them a file has is up to who wrote it.
SAME = {
    "shared.weight": ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
    "model.shared.weight": ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"),
    "cls.predictions.bias": ("cls.predictions.decoder.bias",),
    "lm_head.bias": ("lm_head.decoder.bias",),
    "predictions.bias": ("predictions.decoder.bias",),
}


def written(name: str, theirs: Mapping[str, Any]) -> str | None:
    """The name under which a checkpoint has this tensor."""
    names = (spelling for one in (name, *SAME.get(name, ())) for spelling in spellings(one))
    return next((spelling for spelling in names if spelling in theirs), None)


def plain(model_type: str, names: Iterable[str]) -> dict[str, str]:
    """{name as its class writes it: name as stored}. Wrappers leave their marks (`_orig_mod.` of torch.compile,
    `module.` of data parallelism), and so does a class around the class: what stands before the token table's own name.

    Refuses two tensors of one name.
    """
    clean = {stored: re.sub(r"^(module\.)+", "", stored.replace("_orig_mod.", "")) for stored in names}
    table = next(r.theirs for r in table_of(model_type) if r.ours[0] == "embedding.weight")
    anchors = [name for name in spellings(table) if "." in name]
    around = ""
    if not set(anchors) & set(clean.values()):
        before = {name.removesuffix(end) for end in anchors for name in clean.values() if name.endswith(f".{end}")}
        around = min(before, key=len, default="")
    out: dict[str, str] = {}
    inner = [found for name in clean.values() if (found := INNER.search(name))]
    n_inner = 1 + max((int(found[2]) for found in inner), default=0)
    for stored, name in clean.items():
        name = INNER.sub(partial(in_one_row, n_inner), name.removeprefix(around))
        if name in out:
            raise refuse(stored, out[name], "is another name of the same tensor", "which of them counts is not said")
        out[name] = stored
    return out


# ALBERT counts the groups of its layers, and the layers in a group: here they stand in one row.
INNER = re.compile(r"albert_layer_groups\.(\d{1,9})\.albert_layers\.(\d{1,9})\.")


def in_one_row(n_inner: int, found: re.Match[str]) -> str:
    return f"albert_layer_groups.{int(found[1]) * n_inner + int(found[2])}.albert_layers.0."


def own_head(model_type: str, spec: Spec, theirs: Mapping[str, Any]) -> bool:
    """Whether a checkpoint's head has other numbers than its token table, whatever its config says of them.

    T5 1.1's has; configs that transformers 5 writes say of it that it is tied.
    """
    rows = {r.ours[0]: written(r.theirs, theirs) for r in table_of(model_type) if "{i}" not in r.theirs}
    head, table = rows.get("head.weight"), rows.get("embedding.weight")
    if spec.head is None or not spec.head.tied or head is None or table is None:
        return False
    return bool(theirs[head].shape == theirs[table].shape and (theirs[head] != theirs[table]).any())


def pooled_in(model_type: str, spec: Spec, theirs: Mapping[str, Any]) -> Spec:
    """The spec without the pooler of a base class where a checkpoint has none of it: its stream is the answer."""
    if spec.head is None or spec.head.pool != "first":
        return spec
    held = any(written(name, theirs) for r, name, _ in placed(table_of(model_type), spec) if r.ours[0][:5] == "head.")
    return spec if held else replace(spec, head=None)


def found_in(model_type: str, spec: Spec, theirs: Mapping[str, Any]) -> Spec:
    """The spec as a checkpoint has it, whatever its config says: with a head of its own numbers, and with a bias there
    where a constant other than 0 is added to the scores (Marian's `final_logits_bias`)."""
    if spec.head is None:
        return spec
    tied = spec.head.tied and not own_head(model_type, spec, theirs)
    rows = [written(r.theirs, theirs) for r in table_of(model_type) if r.lies == "one row"]
    constant = any(bool((theirs[name] != 0).any()) for name in rows if name)
    linear = replace(spec.head.linear, bias=spec.head.linear.bias or constant)
    return replace(spec, head=replace(spec.head, tied=tied, linear=linear))


def sines(shape: tuple[int, ...], xp: Any) -> Any:
    """A table of fixed positions, all sines first: what Marian and Pegasus have where no file has one."""
    angle = xp.arange(shape[0], dtype=xp.float64)[:, None] / 10000.0 ** (xp.arange(0, shape[1], 2) / shape[1])
    return xp.concatenate((xp.sin(angle), xp.cos(angle)), -1)


def unforeseen(model_type: str, spec: Spec, theirs: Mapping[str, Any]) -> Iterator[Fault]:
    """What the family's table knows and the checkpoint has, but not the spec: a bias, a norm in a layer. Left out, it
    would make another model of this one."""
    rows, held = table_of(model_type), {name for _, name, _ in placed(table_of(model_type), spec)}
    for stack, n_layers in layers_of(spec).items():
        for r in rows:
            if r.ours[0].startswith(f"{stack}.layers.") and "{e}" not in r.theirs:
                for name in (r.theirs.replace("{i}", str(i)) for i in range(n_layers)):
                    if name not in held and (found := written(name, theirs)):
                        yield Fault(found, tuple(theirs[found].shape), "is in the checkpoint, but not in its config")


def heads_of(spec: Spec) -> int:
    return next(part.n_heads for _, part in walk(spec.main) if isinstance(part, Attention))


def to_ours(model_type: str, spec: Spec, theirs: Mapping[str, Any], xp: Any) -> Tensors:
    """The ledger's tensors from a checkpoint's. Refuses, all at once, absent names, and tensors of a layer that the
    family has and this spec has not; names that no row knows are left."""
    shapes = {w.name: w.shape for w in Ledger.of(spec).rows}
    out: Tensors = {}
    absent: list[str] = []
    for r, name, ours in placed(table_of(model_type), spec):
        names = [name.replace("{e}", str(e)) for e in range(shapes[ours[0]][0])] if r.lies == "stacked" else [name]
        found = [written(n, theirs) for n in names]
        if r.made and None in found:
            out[ours[0]] = sines(shapes[ours[0]], xp)
            continue
        absent += [n for n, at in zip(names, found, strict=True) if at is None]
        if None not in found:
            out |= one_in(r, [theirs[at] for at in found if at], ours, shapes, spec, xp)
    wrong = [n for n, tensor in out.items() if tuple(tensor.shape) != shapes[n]]
    more = list(unforeseen(model_type, spec, theirs))
    if absent or wrong or more:
        faults = [*more, *(Fault(n, None, "is not in the checkpoint") for n in absent)]
        raise PlainformerError(faults + [Fault(n, tuple(out[n].shape), f"must be {shapes[n]}") for n in wrong])
    return out


def one_in(r: Row, theirs: list[Any], ours: tuple[str, ...], shapes: dict[str, Any], spec: Spec, xp: Any) -> Tensors:
    """Our tensors from one row's."""
    tensor = xp.stack(theirs) if r.lies == "stacked" else theirs[0]
    if r.lies == "one row":
        return {ours[0]: tensor[0]}
    if "pairs" in r.lies:
        halves = [tensor[..., j::2] for j in range(len(ours))]
        return {n: half.swapaxes(-1, -2) if "turned" in r.lies else half for n, half in zip(ours, halves, strict=True)}
    tensor = tensor.swapaxes(-1, -2) if "turned" in r.lies else tensor
    if r.lies == "split in heads":  # (heads, q k v, d_head, ...)
        tensor = tensor.reshape(heads_of(spec), len(ours), -1, *tensor.shape[1:])
        return {n: tensor[:, j].reshape(-1, *tensor.shape[3:]) for j, n in enumerate(ours)}
    if "split" in r.lies:
        starts = [sum(shapes[n][0] for n in ours[:j]) for j in range(len(ours))]
        return {n: tensor[at : at + shapes[n][0]] for at, n in zip(starts, ours, strict=True)}
    return {ours[0]: tensor}


def to_theirs(model_type: str, spec: Spec, ours: Mapping[str, Any], xp: Any) -> Tensors:
    """A checkpoint's tensors from the ledger's: the inverse of to_ours. Refuses weights that no row has a place for."""
    out: Tensors = {}
    held: set[str] = set()
    for r, name, names in placed(table_of(model_type), spec):
        held |= set(names)
        tensors = [ours[n] for n in names]
        if r.lies == "stacked":
            out |= {name.replace("{e}", str(e)): tensors[0][e] for e in range(len(tensors[0]))}
        else:
            out[name] = one_out(r, tensors, spec, xp)
    if left := [w.name for w in Ledger.of(spec).rows if not w.same_as and w.name not in held]:
        raise PlainformerError(Fault(n, model_type, "this family's checkpoints have no place for it") for n in left)
    return out


def one_out(r: Row, tensors: list[Any], spec: Spec, xp: Any) -> Any:
    """Their tensor from one row's of ours."""
    if r.lies == "one row":
        return tensors[0][None]
    turned = [t.swapaxes(-1, -2) if "turned" in r.lies else t for t in tensors]
    if "pairs" in r.lies:
        return xp.stack(turned, -1).reshape(*turned[0].shape[:-1], -1)
    if r.lies == "split in heads":
        heads = [t.reshape(heads_of(spec), 1, -1, *t.shape[1:]) for t in tensors]
        return xp.concatenate(heads, 1).reshape(-1, *tensors[0].shape[1:])
    return xp.concatenate(turned, -1 if "turned" in r.lies else 0) if "split" in r.lies else turned[0]

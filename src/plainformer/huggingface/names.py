"""Tensor names of published checkpoints and of the ledger, both directions: one table a family, one row a pattern.

A row says how their tensor lies to ours: as it is, turned, parts side by side, parts within each head, or one of a
stack. Works on NumPy arrays and on torch tensors alike: `xp` is the library (numpy or torch).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.ledger import Ledger
from plainformer.spec import Attention, Spec
from plainformer.tree import walk

Tensors = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """Their pattern, our patterns, and how one lies in the other. {i} counts layers, {e} experts."""

    theirs: str
    ours: tuple[str, ...]
    lies: Literal["same", "turned", "split", "split turned", "split in heads", "stacked"] = "same"


def row(theirs: str, *ours: str, lies: Any = "same") -> Row:
    return Row(theirs, ours, lies)


def both(theirs: str, *ours: str, weight: Any = "same", bias: Any = "same") -> tuple[Row, Row]:
    """The rows of a weight and of its bias."""
    return (
        Row(f"{theirs}.weight", tuple(f"{name}.weight" for name in ours), weight),
        Row(f"{theirs}.bias", tuple(f"{name}.bias" for name in ours), bias),
    )


LAYER = "decoder.layers.{i}"
QKV = tuple(f"{LAYER}.attention.{name}" for name in "qkv")

GPT2 = (  # its linears are stored turned: (inputs, outputs)
    row("transformer.wte.weight", "embedding.weight"),
    row("transformer.wpe.weight", "decoder.positions.weight"),
    *both("transformer.h.{i}.ln_1", f"{LAYER}.attention_norm"),
    *both("transformer.h.{i}.attn.c_attn", *QKV, weight="split turned", bias="split"),
    *both("transformer.h.{i}.attn.c_proj", f"{LAYER}.attention.out", weight="turned"),
    *both("transformer.h.{i}.ln_2", f"{LAYER}.feed_forward_norm"),
    *both("transformer.h.{i}.mlp.c_fc", f"{LAYER}.feed_forward.up", weight="turned"),
    *both("transformer.h.{i}.mlp.c_proj", f"{LAYER}.feed_forward.down", weight="turned"),
    *both("transformer.ln_f", "decoder.norm_last"),
    row("lm_head.weight", "head.weight"),
)

NEOX = (
    row("gpt_neox.embed_in.weight", "embedding.weight"),
    *both("gpt_neox.layers.{i}.input_layernorm", f"{LAYER}.attention_norm"),
    *both("gpt_neox.layers.{i}.attention.query_key_value", *QKV, weight="split in heads", bias="split in heads"),
    *both("gpt_neox.layers.{i}.attention.dense", f"{LAYER}.attention.out"),
    *both("gpt_neox.layers.{i}.post_attention_layernorm", f"{LAYER}.feed_forward_norm"),
    *both("gpt_neox.layers.{i}.mlp.dense_h_to_4h", f"{LAYER}.feed_forward.up"),
    *both("gpt_neox.layers.{i}.mlp.dense_4h_to_h", f"{LAYER}.feed_forward.down"),
    *both("gpt_neox.final_layer_norm", "decoder.norm_last"),
    row("embed_out.weight", "head.weight"),
)

LLAMA_ATTENTION = (
    row("model.embed_tokens.weight", "embedding.weight"),
    row("model.layers.{i}.input_layernorm.weight", f"{LAYER}.attention_norm.weight"),
    *both("model.layers.{i}.self_attn.q_proj", f"{LAYER}.attention.q"),
    *both("model.layers.{i}.self_attn.k_proj", f"{LAYER}.attention.k"),
    *both("model.layers.{i}.self_attn.v_proj", f"{LAYER}.attention.v"),
    *both("model.layers.{i}.self_attn.o_proj", f"{LAYER}.attention.out"),
    row("model.layers.{i}.self_attn.q_norm.weight", f"{LAYER}.attention.q.norm.weight"),
    row("model.layers.{i}.self_attn.k_norm.weight", f"{LAYER}.attention.k.norm.weight"),
    row("model.layers.{i}.post_attention_layernorm.weight", f"{LAYER}.feed_forward_norm.weight"),
    row("model.norm.weight", "decoder.norm_last.weight"),
    row("lm_head.weight", "head.weight"),
)

LLAMA = (
    *LLAMA_ATTENTION,
    *both("model.layers.{i}.mlp.gate_proj", f"{LAYER}.feed_forward.gate"),
    *both("model.layers.{i}.mlp.up_proj", f"{LAYER}.feed_forward.up"),
    *both("model.layers.{i}.mlp.down_proj", f"{LAYER}.feed_forward.down"),
)

MIXTRAL = (
    *LLAMA_ATTENTION,
    row("model.layers.{i}.block_sparse_moe.gate.weight", f"{LAYER}.feed_forward.router.scores.weight"),
    *(
        row(
            f"model.layers.{{i}}.block_sparse_moe.experts.{{e}}.{w}.weight",
            f"{LAYER}.feed_forward.experts.{ours}.weight",
            lies="stacked",
        )
        for w, ours in (("w1", "gate"), ("w2", "down"), ("w3", "up"))
    ),
)

TABLES: dict[str, tuple[Row, ...]] = {
    "gpt2": GPT2,
    "gpt_neox": NEOX,
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "mixtral": MIXTRAL,
}


def table_of(model_type: str) -> tuple[Row, ...]:
    if model_type not in TABLES:
        raise refuse("model_type", model_type, "has no table of tensor names yet", f"there are {', '.join(TABLES)}")
    return TABLES[model_type]


def placed(rows: tuple[Row, ...], spec: Spec) -> Iterator[tuple[Row, str, tuple[str, ...]]]:
    """Each row at each layer where the ledger has its weights: (row, their name, our names)."""
    ours = {w.name for w in Ledger.of(spec).rows if not w.same_as}
    for r in rows:
        for i in range(len(spec.main.layers)) if "{i}" in r.theirs else (0,):
            names = tuple(name.replace("{i}", str(i)) for name in r.ours)
            if names[0] in ours:
                yield r, r.theirs.replace("{i}", str(i)), names


def heads_of(spec: Spec) -> int:
    return next(part.n_heads for _, part in walk(spec.main) if isinstance(part, Attention))


def to_ours(model_type: str, spec: Spec, theirs: Mapping[str, Any], xp: Any) -> Tensors:
    """The ledger's tensors from a checkpoint's. Refuses absent names, all at once; names that no row knows are left."""
    shapes = {w.name: w.shape for w in Ledger.of(spec).rows}
    out: Tensors = {}
    absent: list[str] = []
    for r, name, ours in placed(table_of(model_type), spec):
        names = [name.replace("{e}", str(e)) for e in range(shapes[ours[0]][0])] if r.lies == "stacked" else [name]
        if missing := [n for n in names if n not in theirs]:
            absent += missing
            continue
        tensor = xp.stack([theirs[n] for n in names]) if r.lies == "stacked" else theirs[name]
        tensor = tensor.T if "turned" in r.lies else tensor
        if r.lies == "split in heads":  # (heads, q k v, d_head, ...)
            tensor = tensor.reshape(heads_of(spec), 3, -1, *tensor.shape[1:])
            out |= {n: tensor[:, j].reshape(-1, *tensor.shape[3:]) for j, n in enumerate(ours)}
        elif "split" in r.lies:
            starts = [sum(shapes[n][0] for n in ours[:j]) for j in range(len(ours))]
            out |= {n: tensor[at : at + shapes[n][0]] for at, n in zip(starts, ours, strict=True)}
        else:
            out[ours[0]] = tensor
    wrong = [n for n, tensor in out.items() if tuple(tensor.shape) != shapes[n]]
    if absent or wrong:
        faults = [Fault(n, None, "is not in the checkpoint") for n in absent]
        raise PlainformerError(faults + [Fault(n, tuple(out[n].shape), f"must be {shapes[n]}") for n in wrong])
    return out


def to_theirs(model_type: str, spec: Spec, ours: Mapping[str, Any], xp: Any) -> Tensors:
    """A checkpoint's tensors from the ledger's: the inverse of to_ours. Refuses weights that no row has a place for."""
    out: Tensors = {}
    held: set[str] = set()
    for r, name, names in placed(table_of(model_type), spec):
        held |= set(names)
        tensors = [ours[n] for n in names]
        if r.lies == "stacked":
            out |= {name.replace("{e}", str(e)): tensors[0][e] for e in range(len(tensors[0]))}
        elif r.lies == "split in heads":
            heads = [t.reshape(heads_of(spec), 1, -1, *t.shape[1:]) for t in tensors]
            out[name] = xp.concatenate(heads, 1).reshape(-1, *tensors[0].shape[1:])
        else:
            tensor = xp.concatenate(tensors, 0) if "split" in r.lies else tensors[0]
            out[name] = tensor.T if "turned" in r.lies else tensor
    if left := [w.name for w in Ledger.of(spec).weights if w.name not in held]:
        raise PlainformerError(Fault(n, model_type, "this family's checkpoints have no place for it") for n in left)
    return out

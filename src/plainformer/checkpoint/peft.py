"""Low-rank adapters as the peft library keeps them: adapter_config.json beside adapter_model.safetensors. In and out.

Its names are those of the published class's modules, its factors ours: A (rank, inputs), B (outputs, rank). Where a
class has several of our projections in one matrix, one pair of factors stands for all: with the same A for each, or
with their own, side by side, and a B of blocks.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from plainformer.checkpoint.atomic import folder_beside
from plainformer.checkpoint.exporting import dump
from plainformer.checkpoint.hub import load_hub
from plainformer.checkpoint.patterns import MOST_CHARACTERS, MOST_PATTERNS, ends_with, is_plain, readable
from plainformer.checkpoint.runs import tensors_in
from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.huggingface import read_file
from plainformer.huggingface.json_files import finite, read_object
from plainformer.huggingface.names import counts, one_in, one_out, placed, spellings, table_of
from plainformer.huggingface.tables import Row
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.records import is_dataclass
from plainformer.spec import Branch, Linear, Lora, NormedLinear, Spec
from plainformer.tree import children

CONFIG, WEIGHTS, BEFORE = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
SAID: dict[str, tuple[Any, ...]] = {  # what peft can do besides, and what it must be here
    "peft_type": ("LORA",),
    "bias": ("none", None),
    "use_dora": (False, None),
    "modules_to_save": (None, []),
    "alora_invocation_tokens": (None,),
    "target_parameters": (None, []),
    "lora_bias": (False, None),
    "layer_replication": (None,),
    "init_lora_weights": (True, False, None, "gaussian", "eva", "orthogonal"),  # others change the weights under them
}
P = TypeVar("P")
Factors = tuple[Tensor, Tensor]


def modules(model_type: str, spec: Spec) -> Iterator[tuple[Row, str, tuple[str, ...]]]:
    """Each matrix that the class has: its row, its module's name, and the names of our linears in it."""
    for row, name, ours in placed(table_of(model_type), spec):
        if name.endswith(".weight"):
            yield row, name.removesuffix(".weight"), tuple(one.removesuffix(".weight") for one in ours)
    if spec.head and spec.head.tied:  # the ledger has no weight for it, but an adapter may stand on it
        held = {w.name for w in Ledger.of(spec).rows}
        for row in table_of(model_type):
            if row.ours == ("head.weight",) and counts(row, 0, held):
                yield row, row.theirs.removesuffix(".weight"), ("head",)


def upright(row: Row) -> Row:
    """The row as factors lie: they are linears, and never stored turned."""
    lies: Any = row.lies.replace(" turned", "").replace("turned", "same")
    return replace(row, lies=lies)


# --- in ---------------------------------------------------------------------------------------------------------------


def load_adapters(model: Transformer, folder: str | Path, model_type: str) -> Transformer:
    """The model with the adapters of a peft folder on it; its own weights are shared, not copied.

    model_type: the family by whose names the folder calls its modules. Raises PlainformerError by file and tensor:
    absent or damaged files, adapters of another kind, modules that this model has not, factors of other shapes.
    """
    folder = Path(folder)
    said = settings(folder)
    held = {name.removeprefix(BEFORE): tensor for name, tensor in tensors_in(folder / WEIGHTS)}
    held = {name.replace(".default.", "."): tensor for name, tensor in held.items()}  # as a whole model's state has it
    own = {
        f"{stem}.base_layer.weight" for stem in ("lm_head", "embed_out")
    }  # a copy that peft keeps of an adapted head
    table = model.head.weight if model.spec.head and not model.spec.head.tied else model.embedding.weight
    held = {name: t for name, t in held.items() if not (name in own and torch.equal(t, table.to(t.dtype)))}
    loras: dict[str, Lora] = {}
    weights: dict[str, Tensor] = {}
    rows = {w.name: w.shape for w in Ledger.of(model.spec).rows}
    for row, module, ours in modules(model_type, model.spec):
        found = next((name for name in spellings(module) if f"{name}.lora_A.weight" in held), None)
        if found is None:
            continue
        a, b = (held.pop(f"{found}.lora_{letter}.weight", None) for letter in "AB")
        n_in, n_out = rows[f"{ours[0]}.weight"][-1], sum(rows[f"{one}.weight"][-2] for one in ours)
        where = f"{folder / WEIGHTS}: {found}"
        if row.lies == "stacked" or "pairs" in row.lies:
            raise refuse(where, row.lies, "adapters of single experts cannot be said")
        rank = len(a) if a is not None and a.dim() == 2 else 0
        if a is None or b is None or rank < 1 or a.shape[1] != n_in or tuple(b.shape) != (n_out, rank):
            shapes = tuple(None if one is None else tuple(one.shape) for one in (a, b))
            raise refuse(where, shapes, f"must be A (rank, {n_in}) and B ({n_out}, rank), of a rank of at least 1")
        if not (a.is_floating_point() and b.is_floating_point()):
            raise refuse(where, (a.dtype, b.dtype), "must be floating-point numbers")
        if (told := patterned(said, "rank_pattern", found, said.get("r", 8))) != rank:
            raise refuse(where, tuple(a.shape), f"has rank {rank}, and {CONFIG} says {told}")
        lora = Lora(rank=rank, alpha=scale_of(said, found, rank) * rank)
        shapes_B = {f"{one}.weight": (rows[f"{one}.weight"][0], rank) for one in ours}
        parts = one_in(upright(row), [b], tuple(shapes_B), shapes_B, model.spec, torch)
        for one in ours:
            loras[one] = lora
            weights |= {f"{one}.lora_a": a, f"{one}.lora_b": parts[f"{one}.weight"].contiguous()}
    if held or not loras:
        name, tensor = next(iter(held.items()), (WEIGHTS, torch.empty(0)))
        raise refuse(f"{folder / WEIGHTS}: {name}", tuple(tensor.shape), "stands on no module of this model")
    with torch.device("meta"):
        adapted = Transformer(with_loras(model.spec, loras), initial=None)
    dtype = next(model.parameters()).dtype
    mine = {name: tensor.to(dtype) for name, tensor in weights.items()}
    adapted.load_state_dict({**model.state_dict(), **mine}, assign=True)
    return adapted.eval()


def load_adapted(
    folder: Path, dtype: torch.dtype | None = None, mapped: bool = True, base: str | Path | None = None
) -> Transformer:
    """The adapters of a folder on their base, as `base_of` finds it."""
    where = base_of(folder, base)
    return load_adapters(load_hub(where, dtype, mapped), folder, read_file(where).model_type)


def base_of(folder: Path, base: str | Path | None = None) -> Path:
    """The folder of the model that adapters stand on: the one given; or what they name, from there, from here, or by
    its last name beside them (org/name: name). Refuses one that is no folder here."""
    named = settings(folder).get("base_model_name_or_path") if base is None else base
    at = Path(str(named))
    places = (at,) if base is not None else (folder / at, at, folder.resolve().parent / at.name)
    where = next((one for one in places if named and os.path.isfile(one / "config.json")), None)
    if where is None:
        said = "base" if base is not None else f"{folder / CONFIG}: base_model_name_or_path"
        hint = "give its folder: --base FOLDER, or load(..., base=...)"
        raise refuse(said, named and str(named), "is no folder with a config.json here", hint)
    return where


def settings(folder: Path) -> dict[str, Any]:
    """adapter_config.json. Refuses what is no plain LoRA, by its keys."""
    file = folder / CONFIG
    said = read_object(str(file), str(file))
    faults = [
        Fault(f"{file}: {key}", said.get(key), "is not read yet") for key in SAID if said.get(key) not in SAID[key]
    ]
    if not isinstance(said.get("r", 8), int):
        faults.append(Fault(f"{file}: r", said["r"], "must be a whole number"))
    if not finite(said.get("lora_alpha", 8)):
        faults.append(Fault(f"{file}: lora_alpha", said["lora_alpha"], "must be a finite number"))
    faults += [fault for key in ("rank_pattern", "alpha_pattern") for fault in pattern_faults(file, key, said.get(key))]
    if faults:
        raise PlainformerError(faults)
    return said


def pattern_faults(file: Path, key: str, patterns: Any) -> Iterator[Fault]:
    if not isinstance(patterns, dict | None):
        yield Fault(f"{file}: {key}", patterns, "must be an object of patterns and numbers")
        return
    patterns = patterns or {}
    n_characters = sum(len(one) for one in patterns if not is_plain(one))
    if len(patterns) > MOST_PATTERNS or n_characters > MOST_CHARACTERS:
        most = f"{MOST_PATTERNS:,} patterns, or {MOST_CHARACTERS:,} characters of those that are no plain names"
        yield Fault(f"{file}: {key}", len(patterns), f"is over {most}")
        return
    for pattern, value in patterns.items():
        if not readable(pattern):
            hint = "read are characters and classes, each repeated or not, groups and alternatives"
            yield Fault(f"{file}: {key}", pattern, "is no pattern of names that is read here", hint)
        if not finite(value):
            yield Fault(f"{file}: {key}: {pattern}", value, "must be a finite number")


def scale_of(said: Mapping[str, Any], module: str, rank: int) -> float:
    """By how much B A counts: alpha / rank, or alpha / sqrt(rank) (Kalajdzievski 2023)."""
    alpha = float(patterned(said, "alpha_pattern", module, said.get("lora_alpha", 8)))
    return alpha / sqrt(rank) if said.get("use_rslora") else alpha / rank


def patterned(said: Mapping[str, Any], key: str, module: str, unsaid: float) -> float:
    """What is said for this module by a pattern that its name ends with, as peft matches them, or for all."""
    patterns = said.get(key) or {}
    return next((value for one, value in patterns.items() if ends_with(module, one)), unsaid)


def with_loras(spec: Spec, loras: Mapping[str, Lora]) -> Spec:
    """The spec with a correction on each linear that is named by where its weight stands."""

    def adapted(part: P, where: str) -> P:
        if isinstance(part, Linear):
            return replace(part, lora=loras.get(where, part.lora))
        if isinstance(part, NormedLinear):
            return replace(part, linear=adapted(part.linear, where))
        if isinstance(part, tuple):
            return tuple(adapted(one, f"{where}.{i}") for i, one in enumerate(part))  # type: ignore[return-value]
        inner = {name: adapted(child, f"{where}.{name}") for name, child in children(part) if is_dataclass(child)}
        return replace(part, **inner) if inner else part  # type: ignore[type-var]

    def layer(residuals: Any, where: str) -> Any:
        def branch(one: Branch) -> Branch:
            return replace(one, part=adapted(one.part, f"{where}.{one.name}"))

        return tuple(replace(one, branches=tuple(map(branch, one.branches))) for one in residuals)

    stacks = {}
    for name in ("encoder", "decoder"):
        if stack := getattr(spec, name):
            layers = tuple(layer(one, f"{name}.layers.{i}") for i, one in enumerate(stack.layers))
            stacks[name] = replace(stack, layers=layers)
    head = spec.head and replace(
        spec.head,
        linear=adapted(spec.head.linear, "head"),
        transform=spec.head.transform and adapted(spec.head.transform, "head.transform"),
    )
    return replace(spec, head=head, **stacks)


# --- out --------------------------------------------------------------------------------------------------------------


def save_adapters(model: Transformer, folder: str | Path, model_type: str, base: str = "") -> None:
    """The model's adapters as a folder that peft loads onto the published class of the family.

    base: the path or the name of the model that they stand on. The folder appears whole or not at all.
    Raises PlainformerError: it is not empty, there are no adapters, or the class has no module for one.
    """
    folder = Path(folder)
    if os.path.exists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise refuse(str(folder), "exists", "adapters go into a new or empty folder")
    held = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    parts = {
        name: part
        for name, module in model.named_modules()
        for whole in (getattr(module, "part", None),)
        for part in (whole, getattr(whole, "linear", None))
        if isinstance(part, Linear) and part.lora
    }
    factors: dict[str, Factors] = {}
    scales: dict[str, float] = {}
    for row, module, ours in modules(model_type, model.spec):
        if not (mine := [one for one in ours if one in parts]):
            continue
        if row.lies == "stacked" or "pairs" in row.lies:
            raise refuse(mine[0], row.lies, "peft has no module for a single expert")
        each = {lora.alpha / lora.rank for one in mine if (lora := parts[one].lora)}
        if len(each) > 1:
            raise refuse(module, sorted(each), "one matrix there, and adapters of several scales here")
        scales[module] = each.pop()
        factors[module] = together(upright(row), ours, parts, held, model.spec)
        parts = {name: part for name, part in parts.items() if name not in mine}
    if parts or not factors:
        raise refuse("adapters", sorted(parts)[:3], "have no module in this family" if parts else "there are none")
    ranks = {module: len(a) for module, (a, _) in factors.items()}
    alphas = {module: scales[module] * ranks[module] for module in ranks}
    rank, alpha = (Counter(found.values()).most_common(1)[0][0] for found in (ranks, alphas))
    said = {
        "base_model_name_or_path": base or None,
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM" if model.spec.decoder and not model.spec.encoder else None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": any(
            "turned" in row.lies for row, module, _ in modules(model_type, model.spec) if module in ranks
        ),
        "target_modules": sorted(ranks),
        "rank_pattern": {module: one for module, one in ranks.items() if one != rank},
        "alpha_pattern": {module: one for module, one in alphas.items() if one != alpha},
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
    }
    out: dict[str, Tensor] = {}
    for module, (a, b) in factors.items():
        out |= {f"{BEFORE}{module}.lora_A.weight": a.clone(), f"{BEFORE}{module}.lora_B.weight": b.clone()}
    with folder_beside(folder) as part:
        save_file({name: tensor.contiguous() for name, tensor in out.items()}, part / WEIGHTS, {"format": "pt"})
        dump(part / CONFIG, said)
        (part / WEIGHTS).chmod((part / CONFIG).stat().st_mode)


def together(
    row: Row, ours: tuple[str, ...], parts: Mapping[str, Linear], held: Mapping[str, Tensor], spec: Spec
) -> Factors:
    """One pair of factors for all of our linears in one matrix of theirs."""
    mine = [one for one in ours if one in parts]
    first = held[f"{mine[0]}.lora_a"]
    n_out = {w.name: w.shape[0] for w in Ledger.of(spec).rows}
    alike = len(mine) == len(ours) and all(torch.equal(held[f"{one}.lora_a"], first) for one in mine)
    a = first if alike else torch.cat([held[f"{one}.lora_a"] for one in mine])
    blocks, at = [], 0
    for one in ours:
        b = held.get(f"{one}.lora_b")
        if alike and b is not None:
            blocks.append(b)
            continue
        block = a.new_zeros(len(b) if b is not None else n_out[f"{one}.weight"], len(a))
        if b is not None:
            block[:, at : at + b.shape[1]] = b
            at += b.shape[1]
        blocks.append(block)
    return a, one_out(row, blocks, spec, torch) if len(blocks) > 1 else blocks[0]

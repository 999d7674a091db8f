"""Tables of docs/sizing.md that are made from the code: families, conventions, devices, forms of storage, training."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tables import ROOT, head, row


def conventions() -> str:
    """Every convention, and what it makes of GPT-2 small."""
    from plainformer.conventions import CONVENTIONS, count
    from plainformer.presets import presets

    lines = head("convention", "what counts", "GPT-2 small")
    for name, one in CONVENTIONS.items():
        lines.append(row(f"`{name}`", one.says, f"{count(presets['gpt2'], name).total:,}"))
    return "\n".join(lines) + "\n"


def published() -> dict[str, Any]:
    """The published models that the tests hold to their counts: each by its few keys."""
    path = ROOT / "tests" / "published_configs.py"
    found = importlib.util.spec_from_file_location("published_configs", path)
    assert found, "the tests have lost their published models"
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    sized = {
        name: (total, None, config | {"architectures": [of]}) for name, (total, of, config) in module.SIZED.items()
    }
    return {**module.PUBLISHED, **sized}


def families() -> str:
    """Every model_type that a reader takes, what its reader says of it, and published models with their counts."""
    from plainformer.huggingface.configs import READERS, read
    from plainformer.huggingface.tables import TABLES
    from plainformer.ledger import Ledger

    counts: dict[str, list[str]] = {}
    for name, (_, _, config) in published().items():
        counts.setdefault(config["model_type"], []).append(f"{name} {Ledger.of(read(config).spec).total:,}")
    kept = json.loads((ROOT / "docs" / "measured" / "drift.json").read_text(encoding="utf-8"))["defaults"]
    lines = head("`model_type`", "read as", "checkpoints too", "exactly, for example")
    for model_type, place in sorted(READERS.items()):
        room, _, family = place.partition(".")
        reader = getattr(import_module(f"plainformer.huggingface.configs_{room}"), family)
        said = re.split(r"(?<!et al)\. ", " ".join((reader.__doc__ or "").split()))[0].rstrip(".")
        examples = counts.get(model_type, [])
        if not examples and model_type in kept:
            class_name, total = kept[model_type]
            examples = [f"{class_name} by its defaults {total:,}"]
        lines.append(row(f"`{model_type}`", said or family, "yes" if model_type in TABLES else "", "; ".join(examples)))
    return "\n".join(lines) + "\n"


def devices() -> str:
    from plainformer.cost.devices import DEVICES

    lines = head("name", "memory, GB", "bfloat16, TFLOPs", "bandwidth, GB/s", "watts")
    for one in DEVICES.values():
        watts = "" if one.watts is None else f"{one.watts:g}"
        cells = (f"{one.memory / 1e9:g}", f"{one.flops / 1e12:g}", f"{one.bandwidth / 1e9:g}", watts)
        lines.append(row(f"`{one.name}`", *cells))
    return "\n".join(lines) + "\n"


def stored() -> str:
    from plainformer.cost.stored import methods

    lines = head("`quant_method`", "what is counted")
    return "\n".join(lines + [row(f"`{name}`", words) for name, words in methods()]) + "\n"


def optimizers() -> str:
    from plainformer.cost.training import OPTIMIZERS

    lines = head("`--optimizer`", "weight", "gradient", "master copy", "what is kept")
    for name, one in OPTIMIZERS.items():
        lines.append(row(f"`{name}`", one.weight, one.gradient, one.master, one.says))
    return "\n".join(lines) + "\n"


def scale() -> str:
    """What each of many processes holds of one model, weights held by all and shared among all."""
    from plainformer.cost import Cost
    from plainformer.cost.training import Plan, Training
    from plainformer.presets import presets
    from plainformer.report.figures import short

    cost = Cost.of(presets["llama-3-8b"])
    lines = head("processes", "each holds all (DDP)", "each holds a share (`--shard`)")
    for n in (1, 2, 8, 64):
        plans = [Plan(optimizer="adamw-float32", n_devices=n, zero=zero if n > 1 else 0) for zero in (0, 3)]
        lines.append(row(str(n), *(short(Training.of(cost, plan).before_activations, "B") for plan in plans)))
    return "\n".join(lines) + "\n"


MADE: dict[str, Callable[[], str]] = {
    "conventions": conventions,
    "families": families,
    "devices": devices,
    "stored": stored,
    "optimizers": optimizers,
    "scale": scale,
}

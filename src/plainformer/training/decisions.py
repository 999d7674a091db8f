"""From what was asked for to every decision of a run, before anything is written."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from math import isfinite
from typing import Any

import torch

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.fused import library
from plainformer.ledger import Ledger
from plainformer.presets import presets
from plainformer.report.figures import short
from plainformer.spec import Spec
from plainformer.text import check_lengths
from plainformer.training.finetuning import ADAPTERS
from plainformer.training.lanes import lanes_for
from plainformer.training.material import TOKENIZER, VALIDATION, Text
from plainformer.training.passing import compiler_missing
from plainformer.training.processes import ALONE, Processes
from plainformer.training.recipe import DTYPES, OF_PRESET, RECIPES, Recipe, Settings
from plainformer.training.schedule import Schedule

Asked = Mapping[str, Any]  # flags by name, without "--", only those that were given

SIZES = {"d_model": "d_model", "n_layers": "n_layers", "n_heads": "n_heads", "context": "max_seq_len"}
DECISIONS = (
    *("preset", "d_model", "n_layers", "n_heads", "context", "tokenizer", "validation", "steps", "minutes"),
    *(
        "batch_size",
        "micro_batch",
        "optimizer",
        "lr",
        "warmup",
        "schedule",
        "seed",
        "dtype",
        "recompute",
        "compile",
        "eval_every",
        "save_every",
        "field",
        "documents",
        "base",
        "lora",
        "targets",
    ),
)
COUNTS = ("d_model", "n_layers", "n_heads", "context", "batch_size", "micro_batch", "steps", "eval_every", "save_every")
MOST_LAYERS = 10_000
PRESET = "small"
TUNED = 0.1  # of the peak rates where all weights of a trained model go on
MOST_TUNED = 1024  # tokens of context that a model begun from another is trained on, where none is asked for
MOST_LOGITS, LOGITS_AT_ONCE = 1 << 26, 1 << 24  # of a micro-batch that is scored whole; of a piece of a larger one


def check_asked(asked: Asked) -> None:
    """Refuse values that cannot be, all of them at once, by flag."""
    faults = []

    def hold(name: str, good: bool, rule: str, hint: str = "") -> None:
        if not good:
            faults.append(Fault(flag(name), asked[name], rule, hint))

    for name in asked.keys() & set(COUNTS):
        hold(name, asked[name] >= 1, "must be at least 1")
    for name in asked.keys() & {"warmup", "seed"}:
        hold(name, asked[name] >= 0, "must be at least 0")
    for name in asked.keys() & {"lr", "minutes"}:
        hold(name, isfinite(asked[name]) and asked[name] > 0, "must be a finite number above 0")
    for name, known in (("optimizer", tuple(RECIPES)), ("dtype", DTYPES)):
        if name in asked:
            hold(name, asked[name] in known, f"must be one of {', '.join(known)}")
    if "compile" in asked and (missing := compiler_missing()):
        hold("compile", False, f"needs {missing}, and there is none here", "leave it out")
    if asked.get("n_layers", 1) > MOST_LAYERS:
        hold("n_layers", False, f"must be at most {MOST_LAYERS:,}")
    if "validation" in asked:
        hold("validation", 0 <= asked["validation"] < 1, "must be at least 0 and below 1")
    if "minutes" in asked and "steps" in asked:
        hold("minutes", False, "cannot go with --steps: it chooses the steps", "leave one of them out")
    if faults:
        raise PlainformerError(sorted(faults, key=lambda fault: fault.where))


def flag(name: str) -> str:
    return "--from" if name == "base" else "--" + name.replace("_", "-")


def recipe_for(asked: Asked) -> Recipe:
    preset = "adamw" if "base" in asked else OF_PRESET.get(asked.get("preset", PRESET), "muon")
    return RECIPES[asked.get("optimizer") or preset]


def spec_for(asked: Asked, vocab_size: int) -> Spec:
    """The preset with the tokenizer's vocabulary and the sizes that were asked for."""
    sizes = {theirs: asked[ours] for ours, theirs in SIZES.items() if ours in asked}
    return presets.trainable(asked.get("preset", PRESET), vocab_size=vocab_size, **sizes)


def fastest_dtype() -> str:
    """bfloat16 where the GPU or the processor multiplies it, else float32."""
    if torch.cuda.is_available():
        return "bfloat16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    able: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return "bfloat16" if any(able.get(name) for name in ("avx512_bf16", "amx_bf16")) else "float32"


def fusible(asked: Asked) -> bool:
    """Whether the steps between products are compiled ones: on a processor, where there is a C compiler."""
    elsewhere = torch.cuda.is_available() or asked.get("compile") or asked.get("dtype") == "float64"
    return not elsewhere and library()[0] is not None


def check_text(text: Text, context: int) -> None:
    """Refuse a text with a part shorter than one window, with what would help; pairs are as long as they are."""
    if text.pairs is not None:
        if not text.pairs[0]:
            raise refuse("TEXT", f"{text.pairs[1]} pairs", "none is left to train on", "use a smaller --validation")
        return
    try:
        check_lengths(context, text.n_train, text.n_validation or None)
    except PlainformerError as refused:
        parts = [text.n_train, text.n_validation] if text.n_validation else [text.n_train]
        fits = min(parts) - 1
        hints = [f"--context {fits}"] if fits >= 1 else []
        hints += ["--validation 0"] if text.n_train > context else []
        hint = " or ".join([*hints, "a longer text"])
        raise PlainformerError(replace(fault, hint=f"use {hint}") for fault in refused.faults) from None


def decide(asked: Asked, text: Text, spec: Spec, steps: int | None = None) -> Settings:
    """Every decision of the run. `steps`: what was chosen for --minutes."""
    recipe = recipe_for(asked)
    n_steps = steps or asked.get("steps") or recipe.steps
    batch_size = asked.get("batch_size", recipe.batch_size)
    rates = recipe.rates
    tuned = "base" in asked and "lora" not in asked
    if "lr" in asked or tuned:  # the other groups keep their proportion to it
        times = asked.get("lr", rates.matrices * TUNED) / rates.matrices
        rates = replace(
            rates,
            matrices=rates.matrices * times if "lr" not in asked else asked["lr"],
            embedding=rates.embedding * times,
            head=rates.head * times,
            rest=rates.rest * times,
        )
    shape = asked.get("schedule", recipe.shape)
    context = asked.get("context", spec.max_seq_len if "base" not in asked else min(spec.max_seq_len, MOST_TUNED))
    micro_batch = min(asked.get("micro_batch", batch_size), batch_size)
    return Settings(
        preset=asked.get("preset", PRESET if "base" not in asked else ""),
        tokenizer=asked.get("tokenizer", TOKENIZER),
        validation=asked.get("validation", VALIDATION),
        initial=recipe.initial,
        rates=rates,
        schedule=Schedule(
            shape=shape,
            steps=n_steps,
            warmup=asked.get("warmup", min(recipe.warmup, n_steps // 10)),
            decay_from=int(recipe.steady * n_steps) if shape == recipe.shape else 0,
            floor=recipe.floor,
        ),
        clip=recipe.clip,
        context=context,
        batch_size=batch_size,
        micro_batch=micro_batch,
        steps=n_steps,
        seed=asked.get("seed", 0),
        dtype=asked.get("dtype") or fastest_dtype(),
        threads=torch.get_num_threads(),
        eval_every=asked.get("eval_every", -(-n_steps // 4)),
        save_every=asked.get("save_every", -(-n_steps // 10)),
        documents=text.documents,
        field=text.field,
        base=asked.get("base"),
        trained="adapters" if "lora" in asked else "all",
        recompute=asked.get("recompute", "none"),
        compile=asked.get("compile", False),
        fused=fusible(asked),
        lanes=1 if asked.get("compile") else lanes_for(spec, micro_batch, torch.get_num_threads()),
        loss_rows=loss_rows(micro_batch * context, spec.vocab_size),
    )


def loss_rows(n_positions: int, vocab_size: int) -> int:
    """How many positions are scored at once: all (0) where their logits are no burden, else what a piece holds."""
    return 0 if n_positions * vocab_size <= MOST_LOGITS else max(1, LOGITS_AT_ONCE // vocab_size)


def of_one(settings: Settings, processes: Processes) -> Settings:
    """What one of the run's processes has in hand at once: of many each has its own rows of a batch, and no lanes."""
    if processes.world == 1:
        return settings
    n_rows = -(-settings.batch_size // processes.world)
    return replace(settings, batch_size=n_rows, micro_batch=min(settings.micro_batch, n_rows), lanes=1)


def check_memory(spec: Spec, settings: Settings, memory: int | None = None, processes: Processes = ALONE) -> None:
    """Refuse what a process cannot hold: a bound from below, by far. `memory`: another machine's, in bytes."""
    room, one, rows = memory or room_there(), of_one(settings, processes), Ledger.of(spec).weights
    n_parameters, tokens = sum(w.count for w in rows), one.micro_batch * one.context
    n_trained = sum(w.count for w in rows if settings.trained == "all" or w.name.endswith(ADAPTERS))
    averages = 1 if settings.rates.optimizer == "muon" else 2  # of each trained weight, beside its gradient
    state = (4 * n_parameters + 4 * (1 + averages) * n_trained) // processes.shares
    logits = min(one.lanes * one.loss_rows, tokens) or tokens
    sizes = "--d-model and --n-layers" if settings.base is None else "--from"
    needs = [  # bytes, flag, value
        (state, sizes, f"{n_parameters:,} parameters"),
        (16 * one.batch_size * (one.context + 1), "--batch-size", settings.batch_size),  # int64: x and y
        (4 * tokens * len(spec.main.layers) * spec.d_model, "--micro-batch", settings.micro_batch),
        (4 * logits * spec.vocab_size, "--micro-batch", settings.micro_batch),
    ]
    if room is not None and (least := sum(need for need, _, _ in needs)) > room:
        _, name, value = max(needs, key=lambda need: need[0])
        rule = f"at least {short(least, 'B')} of memory are needed and {where_there()} has {short(room, 'B')}"
        hint = "begin from a smaller one" if name == "--from" else "make it smaller"
        tuned = name == "--from" and settings.trained == "all"
        raise refuse(name, value, rule, hint + (", or train adapters alone: --lora R" if tuned else ""))
    host = installed_memory() if torch.cuda.is_available() else None  # weights are made there, and copied to be saved
    copied = 4 * n_parameters + (0 if processes.shard else 4 * averages * n_trained)
    if host is not None and copied > host:
        rule = f"at least {short(copied, 'B')} are needed beside the GPU and this machine has {short(host, 'B')}"
        raise refuse(sizes, f"{n_parameters:,} parameters", rule)


def room_there() -> int | None:
    """Bytes of the memory that a process of a run is in: a GPU's, else its part of this machine's. None: not known."""
    if torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(0).total_memory)
    memory = installed_memory()
    return None if memory is None else memory // n_here()


def where_there() -> str:
    if torch.cuda.is_available():
        return "this GPU"
    return "this machine" if n_here() == 1 else f"each of {n_here()} processes on this machine"


def n_here() -> int:
    """How many processes of this run torchrun has started on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def installed_memory() -> int | None:
    """Bytes of memory in this machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def differences(asked: Asked, kept: Asked, settings: Settings, spec_sizes: Mapping[str, int | None]) -> list[Fault]:
    """What is asked of a resumed run that the run was not started with."""
    if "micro_batch" in asked:  # as `decide` has it: one larger than the batch is the batch
        asked = {**asked, "micro_batch": min(asked["micro_batch"], settings.batch_size)}
    decided = {
        **{name: getattr(settings, name, None) for name in asked},
        **spec_sizes,
        "optimizer": settings.rates.optimizer,
        "lr": settings.rates.matrices,
        "warmup": settings.schedule.warmup,
        "schedule": settings.schedule.shape,
        **{name: kept.get(name) for name in ("minutes", "lora", "targets", "documents", "field")},
    }
    return [
        Fault(flag(name), value, f"the run was started with {decided[name]}", "leave it out, or start another run")
        for name, value in asked.items()
        if decided[name] != value
    ]


def machine() -> dict[str, Any]:
    """The kind of machine, as far as the bits of a sum hang on it."""
    name = ""
    if os.path.isfile("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            name = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return {
        **gpu,
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": name or platform.processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
    }


def versions() -> dict[str, str]:
    """What made the run: Python and the packages under it."""
    found = {"python": platform.python_version()}
    for package in ("plainformer", "torch", "numpy", "safetensors", "tokenizers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found

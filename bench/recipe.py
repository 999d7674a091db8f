"""Each choice of the recipe with and without: the same text and seeds, as many tokens or, of another size of model, as
many operations; all else as it is."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from measures import ROOT, Row, load, spread, tell
from measures.kept import Kept, Key, measure_all
from measures.runs import Change, run_folder

from plainformer import records
from plainformer.presets import presets
from plainformer.spec import Activation, Attention, FeedForward, Head, Linear, NormedLinear, Spec
from plainformer.training import carry_on, loss, optimizers
from plainformer.training.peak import step_flops
from plainformer.training.recipe import Settings
from plainformer.training.schedule import Shape
from plainformer.training.starting import settings_of
from plainformer.tree import rewrite

Patch = Callable[[], AbstractContextManager[object]]
RECIPE = "the recipe"
ADAMW_RATES = (2e-3, 4e-3, 8e-3)
SMALL = {"d_model": 32, "n_layers": 2, "n_heads": 2, "context": 32}
LEAST_STEPS = 10  # of fewer a tenth, the warm-up, is none
Z = 1e-4  # Chowdhery et al. 2022, section 5


@dataclass(frozen=True)
class Other:
    """What is done in place of a choice."""

    change: Change = lambda spec, settings: (spec, settings)
    within: Patch = field(default=nullcontext)


@dataclass(frozen=True)
class Choice:
    """One decision of the recipe. kept: in words, with fields of its settings. others: what else, by name."""

    what: str
    kept: str
    others: Mapping[str, Other]
    best: bool = False  # only the best of the others is told: its rate was searched, as the recipe's was


# --- other settings ---------------------------------------------------------------------------------------------------


def settings(**changes: Any) -> Other:
    return Other(lambda spec, was: (spec, replace(was, **changes)))


def rates(**changes: Any) -> Other:
    return Other(lambda spec, was: (spec, replace(was, rates=replace(was.rates, **changes))))


def schedule(**changes: Any) -> Other:
    return Other(lambda spec, was: (spec, replace(was, schedule=replace(was.schedule, **changes))))


def times(factor: float) -> Other:
    """All peak rates so many times as high."""
    groups = ("matrices", "embedding", "head", "rest")

    def change(spec: Spec, was: Settings) -> tuple[Spec, Settings]:
        return spec, replace(was, rates=replace(was.rates, **{name: was.rates.of(name) * factor for name in groups}))

    return Other(change)


def shape(name: Shape) -> Other:
    """Another decay, from the end of the warm-up on."""
    return schedule(shape=name, decay_from=0)


def steady(share: float) -> Other:
    def change(spec: Spec, was: Settings) -> tuple[Spec, Settings]:
        return spec, replace(was, schedule=replace(was.schedule, decay_from=int(share * was.steps)))

    return Other(change)


def sized(context: float = 1, rows: float = 1) -> Other:
    """The context and the rows of a step so many times as large, and the same number of tokens in all."""

    def change(spec: Spec, was: Settings) -> tuple[Spec, Settings]:
        n_positions, n_rows = round(was.context * context), round(was.batch_size * rows)
        n_steps = round(was.steps * was.context * was.batch_size / (n_positions * n_rows))
        sizes = {"context": n_positions, "batch_size": n_rows, "micro_batch": n_rows}
        return records.replace(spec, max_seq_len=n_positions), replace(with_steps(was, n_steps), **sizes)

    return Other(change)


def shaped(n_layers: int, d_model: int, n_heads: int) -> Other:
    """A model of another size, for as many steps as make as many operations."""

    def change(spec: Spec, was: Settings) -> tuple[Spec, Settings]:
        sizes = {"max_seq_len": spec.max_seq_len, "n_layers": n_layers, "d_model": d_model, "n_heads": n_heads}
        other = presets.trainable(was.preset, vocab_size=spec.vocab_size, **sizes)
        n_steps = round(was.steps * step_flops(spec, was) / step_flops(other, was))
        return other, with_steps(was, n_steps)

    return Other(change)


def with_steps(was: Settings, n_steps: int) -> Settings:
    """So many in all, the rate decayed over them."""
    then = replace(was.schedule, steps=n_steps, decay_from=round(was.schedule.decay_from * n_steps / was.steps))
    return replace(was, schedule=then, steps=n_steps, eval_every=n_steps, save_every=n_steps)


# --- other parts ------------------------------------------------------------------------------------------------------


def parts(of: Callable[[Any], Any]) -> Other:
    """of(part) in place of every part of the spec."""
    return Other(lambda spec, was: (rewrite(spec, of), was))


def without_head_norms(part: Any) -> Any:
    if not isinstance(part, Attention):
        return part
    bare = {n: p.linear for n in ("q", "k") if isinstance(p := getattr(part, n), NormedLinear)}
    return records.replace(part, **bare)


def ungated(activation: Activation, part: Any) -> Any:
    """A feed-forward of two matrices with as many weights as the gated one's three."""
    if not isinstance(part, FeedForward) or part.gate is None:
        return part
    d_model, d_ff = part.up.n_in, part.up.n_out * 3 // 2
    up, down = Linear(n_in=d_model, n_out=d_ff), Linear(n_in=d_ff, n_out=d_model)
    return FeedForward(activation=activation, up=up, down=down)


def with_tied_head(part: Any) -> Any:
    return records.replace(part, tied=True) if isinstance(part, Head) else part


# --- other arithmetic -------------------------------------------------------------------------------------------------


def newton_schulz(n_steps: int) -> Other:
    other = partial(optimizers.orthogonal, n_steps=n_steps)
    return Other(within=lambda: patch.object(optimizers, "orthogonal", other))


def z_loss(weight: float) -> Other:
    """Add weight * log(sum of exp(logits))^2 at every target."""
    plain = loss.cross_entropy

    def both(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return plain(logits, targets) + weight * logits.logsumexp(-1).square() * (targets >= 0)

    return Other(within=lambda: patch.object(loss, "cross_entropy", both))


CHOICES = (
    Choice(
        "optimiser of the matrices",
        "Muon, {rates.matrices:g}",
        {f"AdamW, {lr:g}": rates(optimizer="adamw", matrices=lr) for lr in ADAMW_RATES},
        best=True,
    ),
    Choice("peak rates", "{rates.matrices:g} and the rest", {"half": times(0.5), "twice": times(2)}),
    Choice("Newton-Schulz steps", "5", {"3": newton_schulz(3)}),
    Choice("momentum's warm-up", "{rates.momentum_steps} steps", {"none": rates(momentum_steps=0)}),
    Choice("first weights", "{initial}: branches and head at 0", {"gpt2: all drawn": settings(initial="gpt2")}),
    Choice("norm on queries and keys", "yes", {"no": parts(without_head_norms)}),
    Choice(
        "feed-forward",
        "gated, SiLU",
        {
            "squared ReLU, as many weights": parts(partial(ungated, "relu_squared")),
        },
    ),
    Choice("decay of the rate", "{schedule.shape}, late", {"cosine": shape("cosine")}),
    Choice("steps before the decay", "{schedule.decay_from}", {"none": steady(0), "70%": steady(0.7)}),
    Choice("warm-up", "{schedule.warmup} steps", {"none": schedule(warmup=0)}),
    Choice(
        "layers, width, as many operations",
        "3, 96",
        {"2, 96": shaped(2, 96, 6), "4, 128": shaped(4, 128, 4)},
    ),
    Choice(
        "context, as many tokens a step",
        "{context}",
        {"half": sized(context=0.5, rows=2)},
    ),
    Choice("rows a step, as many tokens in all", "{batch_size}", {"half": sized(rows=0.5), "twice": sized(rows=2)}),
    Choice("head", "of its own", {"the token table": parts(with_tied_head)}),
    Choice("products", "{dtype}", {"float32": settings(dtype="float32")}),
    Choice("steps between products", "compiled here", {"torch's own": settings(fused=False)}),
    Choice("longest gradient", "any", {"1": settings(clip=1.0)}),
    Choice("z-loss", "none", {f"{Z:g}": z_loss(Z)}),
)
OTHERS: dict[tuple[str, str], Other] = {(RECIPE, ""): Other()} | {
    (choice.what, name): other for choice in CHOICES for name, other in choice.others.items()
}


def measured(text: Path, folder: Path, other: Other, asked: Mapping[str, Any]) -> dict[str, Any] | None:
    """One run to its end: its loss over the whole validation part, and the processor's seconds of its steps.

    None where nothing is changed: the recipe does the same on this machine.
    """
    n = asked["steps"]
    changed: list[bool] = []

    def change(spec: Spec, was: Settings) -> tuple[Spec, Settings]:
        spec_now, now = other.change(spec, was)
        changed.append((spec_now, now) != (spec, was) or other.within is not nullcontext)
        return spec_now, now

    run_folder(text, folder, {"eval_every": n, "save_every": n} | dict(asked), change)
    if not changed[0] and other is not OTHERS[RECIPE, ""]:
        return None
    with other.within():
        begun = time.process_time()
        outcome = carry_on(folder, quiet=True)
        used = time.process_time() - begun
    assert outcome.ending == "done", outcome
    assert outcome.evaluation is not None
    found = {"nats": outcome.evaluation.loss, "processor_seconds": used}
    return found | ({"settings": settings_of(folder).to_json()} if other is OTHERS[RECIPE, ""] else {})


# --- all of them ------------------------------------------------------------------------------------------------------

Results = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]  # choice and other -> a result a seed; none: the same


def apart(some: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]]) -> str:
    """What is lost without the choice, seed by seed: the median, and the least and the most."""
    differences = [one["nats"] - other["nats"] for one, other in zip(some, base, strict=True)]
    said = f"{median(differences):+.4f}"
    return said if len(some) < 2 else f"{said} ({min(differences):+.4f} to {max(differences):+.4f})"


def dearer(some: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]]) -> str:
    """The processor's seconds of a run, over the recipe's with the same seed."""
    pairs = zip(some, base, strict=True)
    return f"{median(one['processor_seconds'] / other['processor_seconds'] for one, other in pairs):.2f}"


def middle(some: Sequence[Mapping[str, Any]]) -> float:
    return float(median(one["nats"] for one in some))


def rows_of(results: Results) -> list[Row]:
    """A row for each choice and other; of those whose rate was searched, the best."""
    base = results[RECIPE, ""]
    said = Settings.from_json(dict(base[0]["settings"]))
    rows = []
    for choice in CHOICES:
        names = [name for name in choice.others if results[choice.what, name]]
        if choice.best and names:
            names = [min(names, key=lambda name: middle(results[choice.what, name]))]
        for name in names:
            some = results[choice.what, name]
            rows.append(
                {
                    "what": choice.what,
                    "the recipe": choice.kept.format(**vars(said)),
                    "in its place": name + (f" (best of {len(choice.others)} rates)" if choice.best else ""),
                    "nats with": spread([one["nats"] for one in base], 4),
                    "nats without": spread([one["nats"] for one in some], 4),
                    "without, more": apart(some, base),
                    "processor's time, of the recipe's": dearer(some, base),
                }
            )
    return rows


def in_a_process(text: Path, threads: int, asked: Mapping[str, Any], key: Key) -> object:
    """One run in a process of its own."""
    what, name, seed, *_ = key
    words = ["--one", str(what), str(name), "--asked", json.dumps(dict(asked) | {"seed": seed})]
    ran = subprocess.run(
        [sys.executable, __file__, str(text), *words],
        env=os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT / "src")},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(ran.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds 0 to N - 1 (5)")
    parser.add_argument("--steps", type=int, default=300, metavar="N", help="of the recipe's rows (300)")
    parser.add_argument("--small", action="store_true", help="a model of no use, to try this out")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="runs side by side (2)")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keep each result there, and go on with those kept")
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--asked", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    before, text = load(), args.text.resolve()
    if args.one:
        with TemporaryDirectory() as folder:
            print(json.dumps(measured(text, Path(folder) / "run", OTHERS[tuple(args.one)], args.asked)))
        return
    if args.steps < LEAST_STEPS or (args.small and args.save):
        parser.error(f"--steps from {LEAST_STEPS} on; --small is not to be kept")
    asked = {"steps": args.steps} | (SMALL if args.small else {})
    threads = max(1, (os.cpu_count() or 1) // args.jobs)
    mark, seeds = hashlib.sha256(text.read_bytes()).hexdigest()[:12], range(args.seeds)
    kept = Kept(args.work / "recipe.jsonl" if args.work else None)

    def key(what: str, name: str, seed: int) -> Key:
        return (what, name, seed, asked, threads, mark)

    keys = [key(*other, seed) for seed in seeds for other in OTHERS]
    measure_all(keys, partial(in_a_process, text, threads, asked), kept, args.jobs)
    every = {other: [kept.of(key(*other, seed)) for seed in seeds] for other in OTHERS}
    results = {other: [one for one in some if one is not None] for other, some in every.items()}
    said = results[RECIPE, ""][0]["settings"]
    note = (
        f"{args.steps} steps of {said['batch_size']} rows of {said['context']}, and as many tokens in every row of the "
        f"table, or operations where it says so; {args.seeds} seeds: the median, in brackets the least and the most; "
        "differences seed by seed. Nats a character over the whole validation part, in side-by-side blocks of the "
        f"run's own context. {args.jobs} at a time, {threads} threads each."
    )
    if same := [", ".join(other) for other, some in results.items() if not some]:
        note += f" Left out, as the recipe does so on this machine: {'; '.join(same)}."
    raw = {" / ".join(other): some for other, some in results.items()}
    command = f"python bench/recipe.py TEXT --seeds {args.seeds} --steps {args.steps} --jobs {args.jobs} --save"
    tell("recipe", command, rows_of(results), note, before, args.save, runs=raw, seeds=list(seeds))


if __name__ == "__main__":
    main()

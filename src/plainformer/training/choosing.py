"""What a run of so many minutes trains: of the measured shapes the one that does best with the steps that fit."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from plainformer.faults import refuse
from plainformer.model import Transformer
from plainformer.spec import Spec
from plainformer.text import TokenFile
from plainformer.training.decisions import PRESET, Asked, check_memory, check_text, decide, spec_for
from plainformer.training.finetuning import adapted
from plainformer.training.forecast import fitted
from plainformer.training.material import Text
from plainformer.training.peak import step_flops
from plainformer.training.processes import ALONE, Processes
from plainformer.training.recipe import Settings
from plainformer.training.timing import seconds_a_step

SPARE = 0.03  # of the time: saving, the text after training, the picture
EVALUATIONS = 0.04  # of the time, at most, but for the last one
MOST_EVALUATIONS = 4


@dataclass(frozen=True)
class Rung:
    """Sizes by flag, for runs with room for at least so many of their steps."""

    least_steps: int
    sizes: Mapping[str, int]


# docs/recipe.md measures the last beside others; docs/measurements.md all of them.
RUNGS = (
    Rung(0, {"n_layers": 1, "d_model": 96, "n_heads": 6, "context": 128, "batch_size": 16}),
    Rung(150, {"n_layers": 2, "d_model": 96, "n_heads": 6, "context": 128, "batch_size": 32}),
    Rung(600, {"n_layers": 3, "d_model": 96, "n_heads": 6, "context": 256, "batch_size": 16}),
)


def rungs_for(asked: Asked) -> tuple[Rung, ...]:
    """What may be chosen: nothing where a model or any of its sizes was asked for."""
    own = {"base", *(name for rung in RUNGS for name in rung.sizes)}
    free = asked.get("preset", PRESET) == PRESET and not own & asked.keys()
    return RUNGS if free else (Rung(0, {}),)


def shaped(
    asked: Asked, text: Text, source: Transformer | None, n_steps: int | None = None, processes: Processes = ALONE
) -> tuple[Spec, Settings]:
    """The spec and every decision; refuses a text that is too short and a model that no process here can hold.
    n_steps: what was chosen for --minutes."""
    spec = spec_for(asked, text.vocab_size) if source is None else adapted(source.spec, asked)
    settings = decide(asked, text, spec, n_steps)
    if settings.context > spec.max_seq_len:
        rule = f"the model has {spec.max_seq_len:,} positions"
        raise refuse("--context", settings.context, rule, f"--context {spec.max_seq_len}")
    check_text(text, settings.context)
    check_memory(spec, settings, processes=processes)
    return spec, fitted(spec, settings, asked, processes=processes)


def within(
    asked: Asked, text: Text, source: Transformer | None, tokens: TokenFile, begun: float
) -> tuple[Asked, int, float]:
    """(what was asked for and what was chosen, its steps, their seconds): what fits into `asked["minutes"]` from
    `begun` (time.monotonic()), evaluations included. At least one step.

    What is measured differs from time to time, so it is measured once, when a run starts, and kept with the run. The
    least shape is timed; how many steps of the others would fit is told by their operations.
    """
    seconds, rungs = asked["minutes"] * 60 * (1 - SPARE), rungs_for(asked)
    told = {**asked, **rungs[0].sizes}
    spec, settings = shaped(told, text, source)
    each, evaluation = seconds_a_step(spec, settings, tokens)
    first = step_flops(spec, settings)
    left = seconds - (time.monotonic() - begun) - evaluation
    for rung in reversed(rungs[1:]):
        larger = {**asked, **rung.sizes}
        spec, settings = shaped(larger, text, source)
        if left / (each * step_flops(spec, settings) / first) >= rung.least_steps:
            told = larger
            each, evaluation = seconds_a_step(spec, settings, tokens)
            break
    left = seconds - (time.monotonic() - begun) - evaluation
    more = min(MOST_EVALUATIONS - 1, int(EVALUATIONS * seconds / evaluation)) if evaluation else MOST_EVALUATIONS - 1
    n_steps = max(1, int((left - more * evaluation) / each))
    if "eval_every" in asked:  # then as many as are asked for, but for the last one, which `left` leaves out
        n_steps = max(1, int(left / (each + evaluation / asked["eval_every"])))
    told = {"eval_every": -(-n_steps // (more + 1)), **told}
    return told, n_steps, n_steps * each + -(-n_steps // told["eval_every"]) * evaluation

"""A run folder from a text: everything decided, step 0 saved, before the first step. Or a run taken up again."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from plainformer.checkpoint.atomic import folder_beside
from plainformer.checkpoint.runs import CHECKPOINTS, is_run, read_json, spec_of, write_step
from plainformer.faults import PlainformerError, refuse
from plainformer.fused import library
from plainformer.ledger import Ledger
from plainformer.mixers import LatentAttention
from plainformer.model import Transformer
from plainformer.spec import Attention, Spec
from plainformer.text import TokenFile, Tokenizer
from plainformer.training.choosing import shaped, within
from plainformer.training.decisions import (
    Asked,
    check_asked,
    differences,
    machine,
    spec_for,
    versions,
)
from plainformer.training.finetuning import begun_from, first_weights
from plainformer.training.forecast import Forecast, forecast
from plainformer.training.material import TOKENS, Text, Words, facts, taken_in, tell
from plainformer.training.processes import ALONE, Processes
from plainformer.training.recipe import Settings
from plainformer.tree import to_json, walk

VERSION = 1
MANY_PARAMETERS, MANY_LAYERS = 50_000_000, 300  # a model of more is not made at once: it is said
Sample = Callable[[Transformer, Tokenizer], str]


@dataclass(frozen=True)
class Planned:
    """A run before it is one."""

    spec: Spec
    settings: Settings
    text: Text
    tokenizer: Tokenizer
    forecast: Forecast


def check_out(out: Path) -> None:
    """Refuse a folder that holds anything."""
    if is_run(out):
        raise refuse("--out", str(out), "holds another run", "go on with it by --resume, or name a new folder")
    if os.path.exists(out) and (not out.is_dir() or any(out.iterdir())):
        raise refuse("--out", str(out), "is there and holds something else", "name a new folder")


def plan(words: Words, asked: Asked) -> Planned:
    """What a run would be. Nothing stays on the disk."""
    check_asked(asked)
    source, given = begun_from(asked) or (None, None)
    if source is None:
        spec_for(asked, vocab_size=2)  # an unknown preset or sizes that do not fit: said before any text is read
    with TemporaryDirectory() as folder:
        tokenizer, text = taken_in(words, asked, Path(folder), given)
        spec, settings = shaped(asked, text, source)
        tokens = TokenFile.open(Path(folder) / TOKENS, tokenizer)
        return Planned(spec, settings, text, tokenizer, forecast(spec, settings, text, tokens, measured=True))


def start(
    words: Words,
    out: str | Path,
    asked: Asked,
    sample: Sample | None = None,
    begun: float | None = None,
    processes: Processes = ALONE,
) -> Path:
    """Make the run folder `out`, with its step 0. All refusals come before it is there.

    begun: time.monotonic() when the process began, for --minutes. `sample` writes the text before training.
    processes: that the run begins with; each must have room for its part.
    """
    out, begun = Path(out), time.monotonic() if begun is None else begun
    check_asked(asked)
    source, given = begun_from(asked) or (None, None)
    if source is None:
        spec_for(asked, vocab_size=2)
    check_out(out)
    with folder_beside(out) as part:
        tokenizer, text = taken_in(words, asked, part, given)
        spec, settings = shaped(asked, text, source, processes=processes)
        n_parameters = Ledger.of(spec).total
        if n_parameters > MANY_PARAMETERS or len(spec.main.layers) > MANY_LAYERS:
            tell(f"making {n_parameters:,} parameters in {len(spec.main.layers):,} layers")
        tokens = TokenFile.open(part / TOKENS, tokenizer)
        seconds = None
        if "minutes" in asked:
            if text.pairs is not None:
                raise refuse("--minutes", asked["minutes"], "is measured on a text, not on pairs", "give --steps")
            told, n_steps, seconds = within(asked, text, source, tokens, begun)
            spec, settings = shaped(told, text, source, n_steps)
        model = first_weights(spec, settings, source)
        dump(part / "spec.json", to_json(spec))
        dump(
            part / "run.json",
            {
                "version": VERSION,
                "asked": dict(asked),
                "settings": settings.to_json(),
                "text": facts(words, asked),
                "tokens": {"all": text.n_tokens, "train": text.n_train, "validation": text.n_validation},
                "parameters": sum(w.numel() for w in model.parameters()),
                "planned": forecast(spec, settings, text, tokens, seconds=seconds).to_json(),
                "machine": machine(),
                "versions": versions(),
            },
        )
        if settings.dtype == "float64":
            model.double()
        if sample is not None:
            (part / "sample.txt").write_text(titled("before training", sample(model, tokenizer)), encoding="utf-8")
        step = part / CHECKPOINTS / "step-0"
        step.mkdir(parents=True)
        write_step(step, model, {}, {"step": 0, "tokens": 0, "seconds": 0.0})
    return out


def titled(title: str, text: str) -> str:
    return f"--- {title} ---\n{text}\n"


def dump(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def settings_of(run: Path) -> Settings:
    """The decisions of a run, as they were frozen; a run.json of another version is refused."""
    data = read_json(run / "run.json")
    try:
        if data["version"] != VERSION:
            raise refuse(str(run / "run.json"), data["version"], f"this plainformer reads version {VERSION}")
        return Settings.from_json(data["settings"])
    except (KeyError, TypeError) as error:
        raise refuse(str(run / "run.json"), str(error), "is damaged: a decision is missing or unknown") from None


def check_resume(run: Path, words: Words, asked: Asked) -> None:
    """Refuse to go on with other arguments or another text than the run was started with, naming each.

    Says so where the machine is of another kind, what is installed has other versions, or the compiler is gone that the
    run's small steps were made by: the weights are then the same to 1e-5, not to the bit.
    """
    settings, kept = settings_of(run), read_json(run / "run.json")
    for key, kind in (("asked", dict), ("machine", dict), ("versions", dict), ("text", list)):
        if not isinstance(kept.get(key), kind):
            raise refuse(f"{run / 'run.json'}: {key}", kept.get(key), "is damaged: it cannot be compared")
    spec, wanted = spec_of(run), kept["asked"]
    faults = differences(asked, wanted, settings, sizes_of(spec))
    if words:
        found = [file["sha256"] for file in facts(words, wanted)]
        if found != [file["sha256"] for file in kept["text"]]:
            names = ", ".join(file["file"] for file in kept["text"])
            faults += refuse("TEXT", [str(f) for f in words], f"is not the text of this run ({names})").faults
    if faults:
        raise PlainformerError(faults)
    was, here = kept["machine"] | kept["versions"], machine() | versions()
    others = [f"{name} {here.get(name)}, not {was.get(name)}" for name in was | here if here.get(name) != was.get(name)]
    if settings.fused and library()[0] is None:
        others.append(f"no compiled steps: {library()[1]}")
    if others:
        tell(f"not as the run was started ({'; '.join(others)}): equal to 1e-5, not to the bit")


def sizes_of(spec: Spec) -> dict[str, int | None]:
    """By flag; None: no layer has heads."""
    first = next((part for _, part in walk(spec) if isinstance(part, Attention | LatentAttention)), None)
    return {
        "d_model": spec.d_model,
        "n_layers": len(spec.main.layers),
        "n_heads": None if first is None else first.n_heads,
    }

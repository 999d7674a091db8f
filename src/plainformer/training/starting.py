"""A run folder from a text: everything decided, step 0 saved, before the first step. Or a run taken up again."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from plainformer.checkpoint.atomic import folder_beside
from plainformer.checkpoint.runs import CHECKPOINTS, is_run, read_json, spec_of, write_step
from plainformer.faults import PlainformerError, refuse
from plainformer.model import Transformer
from plainformer.spec import Spec
from plainformer.text import TokenFile, Tokenizer, read_bytes, split, train_tokenizer, write_tokens
from plainformer.text.reading import total_bytes
from plainformer.training.decisions import (
    SIZES,
    TOKENIZER,
    VALIDATION,
    Asked,
    Text,
    check_asked,
    check_memory,
    check_text,
    decide,
    differences,
    machine,
    spec_for,
    versions,
)
from plainformer.training.recipe import Settings
from plainformer.training.timing import steps_in
from plainformer.tree import to_json

VERSION = 1
TOKENS = "tokens.bin"
Sample = Callable[[Transformer, Tokenizer], str]


def tell(words: str) -> None:
    print(f"plainformer: {words}", file=sys.stderr)


@dataclass(frozen=True)
class Planned:
    """A run before it is one."""

    spec: Spec
    settings: Settings
    text: Text
    tokenizer: Tokenizer


def check_out(out: Path) -> None:
    """Refuse a folder that holds anything."""
    if is_run(out):
        raise refuse("--out", str(out), "holds another run", "go on with it by --resume, or name a new folder")
    if os.path.exists(out) and (not out.is_dir() or any(out.iterdir())):
        raise refuse("--out", str(out), "is there and holds something else", "name a new folder")


def facts(files: Sequence[str | Path]) -> list[dict[str, Any]]:
    """Each file's name, size and SHA-256."""
    found = []
    for file in files:
        total = hashlib.sha256()
        for block in read_bytes(file):
            total.update(block)
        found.append({"file": str(file), "bytes": total_bytes(file), "sha256": total.hexdigest()})
    return found


def tokenize(files: Sequence[str | Path], asked: Asked, folder: Path) -> tuple[Tokenizer, Text]:
    """Write tokenizer.json and the tokens into a folder; refuse a text that is too short for anything."""
    tokenizer = train_tokenizer(asked.get("tokenizer", TOKENIZER), list(files), tell)
    n_tokens = write_tokens(list(files), tokenizer, folder / TOKENS).n_tokens
    train, validation = split(n_tokens, asked.get("validation", VALIDATION))
    return tokenizer, Text(n_tokens, len(train), len(validation), tokenizer.n_tokens)


def plan(files: Sequence[str | Path], asked: Asked) -> Planned:
    """What a run would be. Nothing stays on the disk."""
    check_asked(asked)
    spec_for(asked, vocab_size=2)  # an unknown preset or sizes that do not fit: said before any text is read
    with TemporaryDirectory() as folder:
        tokenizer, text = tokenize(files, asked, Path(folder))
        spec = spec_for(asked, text.vocab_size)
        check_text(text, spec.max_seq_len)
        return Planned(spec, decide(asked, text, spec), text, tokenizer)


def start(
    files: Sequence[str | Path],
    out: str | Path,
    asked: Asked,
    sample: Sample | None = None,
    begun: float | None = None,
) -> Path:
    """Make the run folder `out`, with its step 0. All refusals come before it is there.

    begun: time.monotonic() when the process began, for --minutes. `sample` writes the text before training.
    """
    out, begun = Path(out), time.monotonic() if begun is None else begun
    check_asked(asked)
    spec_for(asked, vocab_size=2)
    check_out(out)
    with folder_beside(out) as part:
        tokenizer, text = tokenize(files, asked, part)
        spec = spec_for(asked, text.vocab_size)
        check_text(text, spec.max_seq_len)
        settings = decide(asked, text, spec)
        check_memory(spec, settings)
        if "minutes" in asked:
            n_steps = steps_in(asked["minutes"] * 60, spec, settings, TokenFile.open(part / TOKENS), begun)
            settings = decide(asked, text, spec, n_steps)
        model = Transformer(spec, initial=settings.initial, seed=settings.seed)
        tokenizer.save(part / "tokenizer.json")
        dump(part / "spec.json", to_json(spec))
        dump(
            part / "run.json",
            {
                "version": VERSION,
                "asked": dict(asked),
                "settings": settings.to_json(),
                "text": facts(files),
                "tokens": {"all": text.n_tokens, "train": text.n_train, "validation": text.n_validation},
                "parameters": sum(w.numel() for w in model.parameters()),
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


def check_resume(run: Path, files: Sequence[str | Path], asked: Asked) -> None:
    """Refuse to go on with other arguments or another text than the run was started with, naming each.

    Says so where the machine is of another kind: the weights are then the same to 1e-5, not to the bit.
    """
    settings, kept = settings_of(run), read_json(run / "run.json")
    for key, kind in (("asked", dict), ("machine", dict), ("text", list)):
        if not isinstance(kept.get(key), kind):
            raise refuse(f"{run / 'run.json'}: {key}", kept.get(key), "is damaged: it cannot be compared")
    spec, wanted = spec_of(run), kept["asked"]
    sizes = {ours: size_of(spec, ours) for ours in SIZES}
    faults = differences(asked, wanted, settings, sizes)
    if files:
        found = [file["sha256"] for file in facts(files)]
        if found != [file["sha256"] for file in kept["text"]]:
            names = ", ".join(file["file"] for file in kept["text"])
            faults += refuse("TEXT", [str(f) for f in files], f"is not the text of this run ({names})").faults
    if faults:
        raise PlainformerError(faults)
    here = machine()
    others = [f"{name} {here[name]}, not {was}" for name, was in kept["machine"].items() if here.get(name) != was]
    if others:
        tell(f"another machine than the run was started on ({'; '.join(others)}): equal to 1e-5, not to the bit")


def size_of(spec: Spec, name: str) -> int:
    from plainformer.spec import Attention
    from plainformer.tree import walk

    first = next(part for _, part in walk(spec) if isinstance(part, Attention))
    return {
        "d_model": spec.d_model,
        "n_layers": len(spec.main.layers),
        "n_heads": first.n_heads,
        "context": spec.max_seq_len,
    }[name]

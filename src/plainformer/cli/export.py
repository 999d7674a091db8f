"""`plainformer export MODEL DIR`: a folder that transformers loads strictly, tokenizer included."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plainformer.cli.trained import home, wait_asleep
from plainformer.faults import PlainformerError

if TYPE_CHECKING:
    from plainformer.text import Tokenizer


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a run, a step's folder in it, a folder as published, a file")
    parser.add_argument("folder", metavar="DIR", help="a new or empty folder")
    parser.add_argument("--shard-size", metavar="SIZE", default="5GB", help="the most in one file (default: 5GB)")


def tokenizer(model: str, needed: bool) -> Tokenizer | None:
    """What stands beside the weights or in their file; a file that was made without one may go without."""
    from plainformer.checkpoint import tokenizer_of

    try:
        return tokenizer_of(model)
    except PlainformerError as error:
        if needed:
            raise
        print(f"plainformer: without a tokenizer: {error}", file=sys.stderr)
        return None


def run(args: argparse.Namespace) -> int:
    wait_asleep()
    from plainformer.adapters import merge
    from plainformer.checkpoint import is_run, is_step, load
    from plainformer.checkpoint.exporting import export, size_of
    from plainformer.spec import Linear
    from plainformer.tree import walk

    shard_bytes, ours = size_of(args.shard_size), is_run(args.model) or is_step(args.model)
    where = args.model if ours else home(args.model)  # of adapters the folder that they stand on
    published = not ours and os.path.isfile(Path(where) / "config.json")
    model = load(args.model)
    if any(isinstance(part, Linear) and part.lora for _, part in walk(model.spec)):
        model = merge(model)
        print("plainformer: adapters taken into the weights", file=sys.stderr)
    reading = export(
        model,
        args.folder,
        None if published else tokenizer(args.model, ours),
        like=where if published else None,
        shard_bytes=shard_bytes,
    )
    name = (reading.config.get("architectures") or [reading.model_type])[0]
    print(Path(args.folder).resolve())
    auto = "AutoModelForCausalLM" if reading.spec.decoder and not reading.spec.encoder else "AutoModel"
    print(f"{name}: open it with transformers.{auto}.from_pretrained", file=sys.stderr)
    return 0

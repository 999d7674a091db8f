"""`plainformer export MODEL DIR`: a folder that transformers loads strictly, tokenizer included."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from plainformer.cli.trained import wait_asleep


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a run, a step's folder in it")
    parser.add_argument("folder", metavar="DIR", help="a new or empty folder")


def run(args: argparse.Namespace) -> int:
    wait_asleep()
    from plainformer.checkpoint import load
    from plainformer.checkpoint.hub import export
    from plainformer.checkpoint.runs import tokenizer_file

    reading = export(load(args.model), args.folder, tokenizer_file(args.model))
    class_name = reading.config["architectures"][0]
    print(Path(args.folder).resolve())
    print(f"{class_name}: open it with transformers.AutoModelForCausalLM.from_pretrained", file=sys.stderr)
    return 0

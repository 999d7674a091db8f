"""`plainformer show MODEL`: the model as one flat PyTorch file."""

from __future__ import annotations

import argparse
import os
import sys

from plainformer.faults import refuse


def arguments(parser: argparse.ArgumentParser) -> None:
    about = "a config.json, a folder that holds one, a run, a preset's name"
    parser.add_argument("model", metavar="MODEL", help=about)
    parser.add_argument("--out", metavar="FILE.py", help="write it there, not to stdout")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")


def run(args: argparse.Namespace) -> int:
    from plainformer.cli.model_argument import to_build
    from plainformer.huggingface.tables import TABLES
    from plainformer.source import write

    subject = to_build(args.model)
    published = subject.model_type or subject.family
    name = os.path.basename(os.path.abspath(args.model)) if os.path.exists(args.model) else subject.name
    text = write(subject.spec, name, published if published in TABLES else None)
    if args.out is None:
        sys.stdout.write(text)
        return 0
    if os.path.exists(args.out) and not args.force:
        raise refuse("--out", args.out, "is there already", "--force writes over it")
    from plainformer.cli import plotting

    plotting.write("--out", args.out, text, "written")
    return 0

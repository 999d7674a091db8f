"""`size --find LABEL` and `size FOLDER --check`."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict
from typing import Any

from plainformer.cli.model_argument import config_of
from plainformer.faults import refuse


def find(args: argparse.Namespace) -> int:
    """Shapes and conventions behind a label or a number."""
    from plainformer.conventions.finding import Found, search

    if args.models:
        raise refuse("--find", args.models[0], "looks for models and takes none")
    by = None if args.convention == "all" else args.convention
    answer = search(args.find, by)
    if args.json:
        import json

        def plain(value: Any) -> Any:
            if isinstance(value, list):
                return [plain(one) for one in value]
            return asdict(value) if isinstance(value, Found) else value

        print(json.dumps({key: plain(value) for key, value in answer.items()}, indent=1))
    else:
        from plainformer.report.asked_tables import draw_found

        draw_found(sys.stdout, answer)
    return 0


def check_folders(args: argparse.Namespace) -> int:
    """0: every folder holds what its config asks for; 2: something is missing, mis-shaped or broken."""
    from plainformer.huggingface import read
    from plainformer.huggingface.checking import check

    found = []
    for text in args.models:
        if not os.path.isdir(text):
            raise refuse("--check", text, "is no folder", "give a folder with config.json and safetensors files")
        config, where = config_of(text)
        if config is None:
            raise refuse("--check", text, "the folder holds no config.json to hold its files against")
        found.append(check(text, read(config, where, args.family)))
    if args.json:
        import json

        sheets = [asdict(one) | {"whole": one.whole} for one in found]
        print(json.dumps(sheets[0] if len(sheets) == 1 else sheets, indent=1, ensure_ascii=False))
    else:
        from plainformer.report.asked_tables import draw_checked

        for one in found:
            draw_checked(sys.stdout, one)
    return 0 if all(one.whole for one in found) else 2

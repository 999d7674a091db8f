"""What the lessons have measured: NAME... or all; with --save kept where the lessons read it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from measures import ROOT, table

sys.path[:0] = [str(ROOT / "src")]
from plainformer.measuring import MEASUREMENTS, measure  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*MEASUREMENTS, []], help="of the measurements")
    parser.add_argument("--save", action="store_true", help="keep the tables in src/plainformer/lessons/measured")
    parser.add_argument("--text", type=Path, help="for those that need one; without: Python's own documentation")
    args = parser.parse_args()
    for name in args.names or MEASUREMENTS:
        data = measure(name, args.text)
        print(
            f"{name}\n{table(data['rows'])}\n\n{data['machine']}; load before: {data['load_before']}. {data['note']}\n"
        )
        if args.save:
            to = ROOT / "src" / "plainformer" / "lessons" / "measured" / f"{name}.json"
            to.parent.mkdir(exist_ok=True)
            to.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(f"kept: {to.relative_to(ROOT)}; `make docs` shows it")


if __name__ == "__main__":
    main()

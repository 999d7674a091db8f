"""`plainformer exercise`: blanks to fill, and how far one is; `check` judges them. NumPy only."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plainformer.faults import refuse

if TYPE_CHECKING:
    from plainformer.exercises import Progress

MARKS = {"right": "right", "": "-"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("exercise", nargs="*", metavar="N", help="numbers or names; without: how far you are")
    parser.add_argument("--all", action="store_true", help="every exercise")
    parser.add_argument("--to", metavar="FILE.py", help="write the blanks there; a file may hold several")
    parser.add_argument("--force", action="store_true", help="begin anew what is written; the file is kept beside it")
    parser.add_argument("--json", action="store_true", help="how far you are, as one object")
    parser.epilog = (
        "What you write is judged by `check FILE.py`. Progress is kept beside your file, in "
        "plainformer-progress.json; without --to a blank is only shown."
    )


def run(args: argparse.Namespace) -> int:
    from plainformer.exercises import EXERCISES, Progress, blank, found, put

    if args.all and args.exercise:
        raise refuse("--all", args.exercise[0], "takes no exercise", "give one of them")
    asked = list(EXERCISES) if args.all else [found(one) for one in args.exercise]
    if not asked:
        if args.to or args.force:
            raise refuse("--to", args.to, "needs an exercise", "plainformer exercise 1 --to my.py")
        return shown(Progress.of(Path()), args.json)
    if not args.to:
        if args.force or args.json:
            raise refuse("--force" if args.force else "--json", None, "is of no blank", "--to FILE.py, or no number")
        print("\n\n".join(map(blank, asked)), end="")
        return 0
    if args.json:
        raise refuse("--json", None, "is of how far you are", "without a number and --to")
    path = Path(args.to)
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise refuse("--to", args.to, "must be a Python file: letters, digits, _ and .py", "--to my.py")
    if not path.parent.is_dir():
        raise refuse("--to", args.to, "there is no such folder", "make it first")
    progress = Progress.of(path.parent)
    written = put(asked, path, args.force)
    progress.begun(path.name, [one for one in asked if one in written or not progress.of_exercise(one)])
    progress.keep()
    for one in written:
        print(f"{path}: {one.number} {one.name}")
    if not written:
        print(f"{path} holds these blanks already", file=sys.stderr)
    print(f"lesson: plainformer learn {asked[0].lesson}; judge: plainformer check {path}", file=sys.stderr)
    return 0


def shown(progress: Progress, as_json: bool) -> int:
    """All exercises, what is said of each, what comes next."""
    from plainformer.exercises import EXERCISES

    said = {one.name: progress.of_exercise(one) for one in EXERCISES}
    n_right, after = sum(verdict == "right" for verdict in said.values()), progress.next
    if as_json:
        each = [
            {"number": one.number, "name": one.name, "lesson": one.lesson, "verdict": said[one.name] or None}
            for one in EXERCISES
        ]
        print(json.dumps({"right": n_right, "of": len(EXERCISES), "next": after and after.number, "exercises": each}))
        return 0
    for one in EXERCISES:
        print(f"{one.number:>3}  {one.name:<26} {MARKS.get(said[one.name], said[one.name]):<10} lesson {one.lesson}")
    print(f"{n_right} of {len(EXERCISES)} right")
    if after is None:
        print("all of them: from a softmax to a GPT that trains", file=sys.stderr)
        return 0
    print(f"next: {after.number} {after.name}; plainformer learn {after.lesson} ({after.read.title})", file=sys.stderr)
    file = next((name for name, each in progress.verdicts.items() if after.name in each), None)
    way = f"check {file}" if file else f"exercise {after.number} --to my.py"
    print(f"      plainformer {way}", file=sys.stderr)
    return 0

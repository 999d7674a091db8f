"""`plainformer check FILE.py`: someone's own code against the formulas, and the name of its mistake."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plainformer.faults import refuse

if TYPE_CHECKING:
    from plainformer.check import Answer
    from plainformer.exercises import Progress

DIFFERS = 4  # the exit status where something of theirs is not right


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.py", nargs="?", help="functions and classes with known names (--list)")
    parser.add_argument(
        "--only", metavar="NAME", nargs="+", default=[], help="check these alone, by their name or ours"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the inputs, which are fresh for each seed (default 0)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for one call of your code (default 10)")
    parser.add_argument("--memory", type=float, default=4.0, help="GiB that your code may hold (default 4)")
    parser.add_argument("--behaviours", action="store_true", help="what a GPT must show, asked of yours, one line each")
    parser.add_argument("--list", action="store_true", help="what can be checked, with signatures")
    parser.add_argument("--mistakes", action="store_true", help="every mistake that is known by name")
    parser.add_argument(
        "--adapter", metavar="OUT.py", help="write a file that calls FILE.py by our signatures, and stop"
    )
    parser.add_argument("--weights", metavar="THEIRS", help="a folder or a file of weights: why are its logits others?")
    parser.add_argument("--like", metavar="MODEL", help="with --weights: what they should be; its config reads a file")
    parser.add_argument("--logits", metavar="FILE", help="tokens and logits (.npz, .safetensors); else MODEL's own")
    parser.add_argument("--json", action="store_true", help="one object: every answer")
    parser.epilog = (
        "Exit status: 0 everything is right; 4 something is not, or broke, or could not be called; 2 the request "
        "cannot be. Your code runs in a process of its own."
    )


def run(args: argparse.Namespace) -> int:
    if args.list or args.mistakes:
        return listed(args)
    if not 0 <= args.seed < 2**32:
        raise refuse("--seed", args.seed, "must be from 0 to 4,294,967,295, which generators take")
    if args.weights or args.like or args.logits:
        from plainformer.cli.porting import compared

        return compared(args)
    if args.file is None and len(args.only) > 1 and args.only[-1].endswith(".py"):
        args.file = args.only.pop()  # a list of names takes the file behind it, too
    if args.file is None:
        raise refuse("FILE.py", None, "is missing", "plainformer check my.py; --list names what is known")
    if not (0 < args.seconds <= 3600 and 0 < args.memory <= 1024):
        raise refuse("--seconds, --memory", (args.seconds, args.memory), "must be above 0, at most 3600 and 1024")
    from plainformer.check import check_file
    from plainformer.check.answer import write
    from plainformer.exercises.progress import NAME

    path = Path(args.file)
    if args.adapter:
        return adapted(path, Path(args.adapter))

    if args.behaviours:
        if args.only or args.seed:
            flag, given = ("--only", args.only[0]) if args.only else ("--seed", args.seed)
            raise refuse(flag, given, "does nothing beside --behaviours, which asks everything, by fixed inputs")
        return behaving(path, args)

    def told(answer: Answer) -> None:
        if not args.json:
            write(sys.stdout, [answer])
            sys.stdout.flush()

    progress = progress_beside(path)
    asked = progress.judged_as(path.name) if progress else None
    report = check_file(path, args.only, args.seed, args.seconds, int(args.memory * 2**30), told, asked)
    if progress:
        progress.judged(path.name, report.answers)
        progress.keep()
        print(f"remembered in {path.parent / NAME}; plainformer exercise shows what is next", file=sys.stderr)
    if args.json:
        facts = {"file": report.file, "seed": report.seed, "right": report.is_fine}
        print(json.dumps({**facts, "answers": [one.as_json() for one in report.answers]}))
    else:
        n_right = sum(one.is_fine for one in report.answers)
        print(f"{n_right} of {len(report.answers)} right (seed {report.seed})", file=sys.stderr)
    return 0 if report.is_fine else DIFFERS


def progress_beside(path: Path) -> Progress | None:
    """Where the file holds exercises: the progress that is kept beside it."""
    from plainformer.exercises.progress import NAME, Progress

    progress = Progress.of(path.parent) if (path.parent / NAME).is_file() else None
    return progress if progress and path.name in progress.verdicts else None


def behaving(path: Path, args: argparse.Namespace) -> int:
    """Each behaviour that their file can be asked, and whether it is shown."""
    from plainformer.check.process import Theirs, Trouble
    from plainformer.check.theirs_behave import Shown, behaviours

    if not path.is_file():
        raise refuse("FILE", str(path), "is no file", "give a Python file")

    def told(one: Shown) -> None:
        if not args.json:
            print(f"{'shown' if one.shown else 'NOT':<6} {one.name}  {one.words}{f': {one.why}' if one.why else ''}")

    with Theirs(path, int(args.memory * 2**30), args.seconds) as theirs:
        described = theirs.ask(do="describe")
        if isinstance(described, Trouble):
            raise refuse(
                "FILE", path.name, f"cannot be imported: {described.says}", f"check {path.name} shows the line"
            )
        shown = behaviours(theirs, described.facts["things"], told)
    if not shown:
        raise refuse(
            "FILE", path.name, "holds nothing whose behaviour is known", "a GPT, layer_norm, attention with a mask"
        )
    if args.json:
        print(json.dumps({"file": path.name, "behaviours": [vars(one) for one in shown]}))
    return 0 if all(one.shown for one in shown) else DIFFERS


def listed(args: argparse.Namespace) -> int:
    """What can be checked, or every known mistake."""
    from plainformer.check.catalogue import GROUPS
    from plainformer.check.topics import TOPICS

    if args.list:
        if args.json:
            print(json.dumps([{"name": t.name, "signature": t.signature, "about": t.about} for t in TOPICS.values()]))
            return 0
        for topic in TOPICS.values():
            print(f"{topic.signature}\n    {topic.about}")
        return 0
    if args.json:
        print(json.dumps({group: {e.key: e.said for e in entries} for group, entries in GROUPS.items()}))
        return 0
    for group, entries in GROUPS.items():
        print(f"{group}:")
        for entry in entries:
            print(f"  {entry.key}: {entry.said}")
    return 0


def adapted(path: Path, out: Path) -> int:
    """The adapter for a file, whole or not at all."""
    from plainformer.check.adapter import adapter_for
    from plainformer.cli import plotting

    if out.exists():
        raise refuse("--adapter", str(out), "is there already", "name a new file")
    plotting.write("--adapter", str(out), adapter_for(path), "written")
    print(out)
    print(f"say in it what each function calls, then: plainformer check {out}", file=sys.stderr)
    return 0

"""`plainformer demo`: what this is, in two acts. The first needs no torch; the second trains a GPT for a minute."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from plainformer.cli import main

ACTS = ("one", "two")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--act", choices=ACTS, help="one: sizes and attention, at once; two: train and write (both)")
    parser.add_argument("--text", metavar="FILE", help="train on this instead of Python's own documentation")
    parser.add_argument(
        "--out", metavar="RUN", default="demo", help="the run's folder; demo-2 ... if it is there (demo)"
    )
    parser.add_argument("--minutes", type=float, default=1.0, metavar="M", help="how long to train (1)")


def run(args: argparse.Namespace) -> int:
    status = 0
    if args.act in (None, "one"):
        status = act_one()
    if status == 0 and args.act in (None, "two"):
        status = act_two(args.text, free(args.out), args.minutes)
    return status


def title(words: str) -> None:
    print(f"\n=== {words}\n", flush=True)


def act_one() -> int:
    """The sheet of a published model, and attention on three tokens."""
    from plainformer.lessons.three_tokens import lines

    title("$ plainformer size gpt2")
    status = main(["size", "gpt2"])
    title("$ plainformer size gpt2 --convention all: the same model, as everybody counts it")
    status = status or main(["size", "gpt2", "--convention", "all", "--csv"])
    title("attention on three tokens, small enough to check by hand")
    print("\n".join(lines()), flush=True)
    return status


def act_two(text: str | None, out: Path, minutes: float) -> int:
    """Train on real text, then write."""
    source = Path(text) if text else documentation(out.with_name(f"{out.name}-text.txt"))
    title(f"$ plainformer train {source} --out {out} --minutes {minutes:g}")
    status = main(["train", str(source), "--out", str(out), "--minutes", f"{minutes:g}"])
    if status:
        return status
    title(f"{out / 'sample.txt'}: the same prompt before training and after")
    print((out / "sample.txt").read_text(encoding="utf-8"), flush=True)
    title(f"$ plainformer generate {out} --max-new-tokens 400 --seed 1")
    status = main(["generate", str(out), "--max-new-tokens", "400", "--seed", "1"])
    title(f"$ plainformer size {out}")
    status = status or main(["size", str(out)])
    print(f"\nThe loss: {out / 'loss.svg'}. Go on: plainformer train {source} --out {out} --resume", file=sys.stderr)
    return status


def documentation(to: Path) -> Path:
    """The text that every Python has: its own topics, written to a file."""
    from pydoc_data.topics import topics

    to.write_text("\n\n".join(topics[name] for name in sorted(topics)), encoding="utf-8")
    return to


def free(out: str) -> Path:
    """The folder, or the first of its name with a number that is not there: a demo overwrites nothing."""
    path, n = Path(out), 1
    while path.exists():
        n += 1
        path = Path(f"{out}-{n}")
    return path

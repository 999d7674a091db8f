"""`plainformer demo`: what this is, in two acts. The first needs no torch; the second trains a GPT while you wait."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from plainformer.cli import main
from plainformer.faults import refuse

ACTS = ("one", "two")
SIZED = ("gpt2", "gpt2-xl", "llama-3-70b", "mixtral-8x7b", "deepseek-v3")
PROMPT = 24  # characters of the text that the attention picture is of


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--act", choices=ACTS, help="one: sizes and attention, at once; two: train and write (both)")
    parser.add_argument("--text", metavar="FILE", help="train on this instead of Python's own documentation")
    parser.add_argument(
        "--out", metavar="RUN", default="demo", help="the run's folder; RUN-2 ... if it is there (demo)"
    )
    how_long = parser.add_mutually_exclusive_group()
    how_long.add_argument("--steps", type=int, default=900, metavar="N", help="how many steps to train (900)")
    how_long.add_argument("--minutes", type=float, metavar="M", help="the model and the steps that fit into this time")


def run(args: argparse.Namespace) -> int:
    if args.text and not Path(args.text).is_file():
        raise refuse("--text", args.text, "there is no such file")
    status = act_one() if args.act != "two" else 0
    if status == 0 and args.act != "one":
        out = free(args.out)
        how_long = ("--steps", str(args.steps)) if args.minutes is None else ("--minutes", f"{args.minutes:g}")
        text = Path(args.text) if args.text else documentation(beside(out))
        status = act_two(text, out, how_long)
        if status and not args.text:
            text.unlink(missing_ok=True)
    return status


def title(words: str) -> None:
    print(f"\n=== {words}\n", flush=True)


def typed(*words: str) -> int:
    """A command shown as one would type it, and what it says."""
    title(f"$ plainformer {shlex.join(words)}")
    return main(words)


def act_one() -> int:
    """The sheet of a published model, several at once, and attention on three tokens. No torch."""
    from plainformer.lessons.three_tokens import lines

    status = typed("size", "gpt2", "--convention", "all") or typed("size", *SIZED)
    title("attention on three tokens, small enough to check by hand")
    print("\n".join(lines()), flush=True)
    return status


def act_two(text: Path, out: Path, how_long: tuple[str, str]) -> int:
    """Train on real text; then what it wrote before and after, its loss, its sheet, where it looks."""
    from plainformer.cli.generate import shown

    if status := typed("train", str(text), "--out", str(out), *how_long):
        return status
    title(f"{out / 'sample.txt'}: from the same start, before training and after")
    print(shown((out / "sample.txt").read_text(encoding="utf-8").strip()), flush=True)
    title(f"{out / 'loss.svg'}: nats a token, step by step")
    print("\n".join(loss(out)), flush=True)
    prompt = beginning(text)
    status = typed("generate", str(out), "--prompt", prompt, "--max-new-tokens", "100", "--seed", "1")
    status = status or typed("size", str(out))
    status = status or typed("inspect", str(out), "--prompt", prompt, "--svg", str(out / "attention.svg"))
    ways = [
        f"plainformer train {shlex.quote(str(text))} --out longer --minutes 5",
        f"plainformer generate {shlex.quote(str(out))} --temperature 0.5",
    ]
    print("\nGo on with:", *ways, sep="\n  ", file=sys.stderr)
    return status


def loss(run: Path) -> list[str]:
    """The loss of every step as a curve for the terminal."""
    from plainformer.report.curves import curve
    from plainformer.report.tables import draws_blocks
    from plainformer.training.journal import rows

    points = [(float(row["step"]), float(row["loss"])) for row in rows(run / "metrics.jsonl") if "loss" in row]
    return curve(points, plain=not draws_blocks(sys.stdout))


def beginning(text: Path) -> str:
    """The first words of a text that are long enough to look at."""
    with text.open(encoding="utf-8-sig") as file:
        some = file.read(10_000)
    lines = [line.strip() for line in some.splitlines()]
    return next((line for line in lines if len(line) >= PROMPT // 2), some)[:PROMPT]


def documentation(to: Path) -> Path:
    """The text that every Python has: its own topics, written to a file."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise refuse("--text", None, "this Python comes without its documentation", "give a text of yours") from None
    try:
        to.write_text("\n\n".join(topics[name] for name in sorted(topics)), encoding="utf-8")
    except OSError as error:
        raise refuse("--out", str(to), f"cannot be written: {error.strerror}") from None
    return to


def beside(out: Path) -> Path:
    """Where the text lies that a demo was trained on."""
    return out.with_name(f"{out.name}-text.txt")


def free(out: str) -> Path:
    """The folder, or the first of its name with a number that is not there: a demo overwrites nothing."""
    path, n = Path(out), 1
    try:
        while path.exists() or beside(path).exists():
            n += 1
            path = Path(f"{out}-{n}")
    except (OSError, ValueError) as error:
        raise refuse("--out", out, f"cannot be a folder: {error}") from None
    return path

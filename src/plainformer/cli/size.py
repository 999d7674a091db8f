"""`plainformer size MODEL...`: the account of a model before it is downloaded. Standard library only until it draws."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import IO, Any

from plainformer.cli.model_argument import resolve
from plainformer.cost import Cost
from plainformer.cost.rules import BITS
from plainformer.faults import refuse
from plainformer.report.sheet import Subject, counted_as, facts, flat, ledger_rows

Sized = tuple[Subject, dict[str, Any], Cost]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="+", metavar="MODEL", help="a config.json, a folder that holds one, a run, a preset's name"
    )
    run = parser.add_argument_group("what it is asked to do")
    run.add_argument("--batch", type=whole, default=1, metavar="N", help="sequences at once (1)")
    run.add_argument("--context", type=whole, metavar="N", help="tokens of each (as many as the model allows)")
    run.add_argument("--dtype", default="bfloat16", choices=BITS, metavar="NAME", help="of the weights (bfloat16)")
    run.add_argument("--kv-dtype", choices=BITS, metavar="NAME", help="of the cache (as the weights, 16 bits at least)")
    run.add_argument("--tokens", type=amount, metavar="N", help="train on so many tokens (140e9)")
    run.add_argument("--sustained", type=amount, metavar="N", help="operations a second of one device (400e12)")
    run.add_argument("--price", type=amount, metavar="N", help="dollars for an hour of one device")
    said = parser.add_argument_group("what is said")
    said.add_argument("--convention", metavar="NAME", help="count by this rule; all: by each, with what they count")
    said.add_argument("--explain", action="store_true", help="every weight, summing to the total")
    said.add_argument("--plot", metavar="FILE.svg", help="draw where the parameters live")
    form = said.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one object; a list of them for several models")
    form.add_argument("--csv", action="store_true", help="one row for each model")


def whole(text: str) -> int:
    """A count: a whole number from 1 to 10^12."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 10**12:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 10^12")
    return value


def amount(text: str) -> float:
    """A number above 0, such as 140e9."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def run(args: argparse.Namespace) -> int:
    sized = [size(resolve(text), args) for text in args.models]
    if args.plot:
        plot(args.plot, sized, args.convention)
    if args.json:
        print_json(sized, args)
    elif args.csv:
        print_csv(sized, sys.stdout)
    else:
        print_tables(sized, args)
    return 0


def size(subject: Subject, args: argparse.Namespace) -> Sized:
    cost = Cost.of(subject.spec, batch_size=args.batch, seq_len=args.context, dtype=args.dtype, kv_dtype=args.kv_dtype)
    sheet = facts(
        subject,
        cost,
        convention=args.convention,
        tokens=args.tokens,
        sustained=args.sustained,
        price=args.price,
    )
    return subject, sheet, cost


def print_json(sized: list[Sized], args: argparse.Namespace) -> None:
    import json

    sheets = []
    for _, sheet, cost in sized:
        if args.explain:
            rows, _ = counted_as(args.convention, cost)
            sheet = sheet | {"rows": ledger_rows(rows)}
        sheets.append(sheet)
    print(json.dumps(sheets[0] if len(sheets) == 1 else sheets, indent=1, ensure_ascii=False))


def print_csv(sized: list[Sized], file: IO[str]) -> None:
    import csv

    rows = [{"model": subject.name} | flat(sheet) for subject, sheet, _ in sized]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def print_tables(sized: list[Sized], args: argparse.Namespace) -> None:
    from plainformer.report import tables

    if args.explain:
        from plainformer.conventions import CONVENTIONS, count

        for subject, _, _ in sized:
            for name in CONVENTIONS if args.convention == "all" else [args.convention or "tensors"]:
                tables.draw_lines(sys.stdout, subject, count(subject.spec, name))
    elif len(sized) == 1:
        tables.draw_sheet(sys.stdout, *sized[0])
    else:
        tables.draw_many(sys.stdout, sized)


def plot(path: str, sized: Iterable[Sized], convention: str | None) -> None:
    """Where the parameters live: one model by its parts, several as bars of shares."""
    from plainformer.report import svg

    parts = {
        subject.name: {part.replace("_", " "): n for part, n in sheet["parameters"]["by_part"].items()}
        for subject, sheet, _ in sized
    }
    counted = "" if convention in (None, "all") else f", counted as {convention}"
    if len(parts) == 1:
        (name, one), *_ = parts.items()
        picture = svg.bars(f"{name}: {sum(one.values()):,} parameters{counted}", one)
    else:
        picture = svg.stacked(f"Where the parameters live{counted}", parts)
    write(path, picture)
    print(f"drawn: {path}", file=sys.stderr)


def write(path: str, text: str) -> None:
    """A file that is whole or not there at all."""
    import os

    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(beside, path)
    except OSError as fault:
        if os.path.exists(beside):
            os.remove(beside)
        raise refuse("--plot", path, "cannot be written", fault.strerror or str(fault)) from None

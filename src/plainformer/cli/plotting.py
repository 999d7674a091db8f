"""Pictures and rows of `size`, and the sheet of a bare size: what most calls do without."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import IO, Any

from plainformer.cli.model_argument import bare_size
from plainformer.cost import Cost
from plainformer.faults import refuse
from plainformer.report.figures import part_name
from plainformer.report.sheet import Subject, flat

Sized = tuple[Subject, dict[str, Any], Cost]


def bare(text: str, parameters: int, args: argparse.Namespace) -> Any:
    """The sheet of a size: no subject but its name, no cost. Refuses what needs layers: what makes a picture or a row
    of each MODEL, and what no other MODEL of the call can answer either."""
    from plainformer.report.asked import of_a_size

    layered = {"--explain": args.explain, "--convention": args.convention, "--train": args.train, "--plot": args.plot}
    layered |= {"--lora": args.lora, "--qlora": args.qlora, "--compare": args.compare}
    layered |= {"--plot-memory": args.plot_memory, "--csv": args.csv}
    if all(bare_size(model) is not None for model in args.models):
        layered |= {"--batch": args.batch > 1, "--context": args.context, "--kv-dtype": args.kv_dtype}
        layered |= {"--zero": args.zero, "--devices": args.devices > 1, "--optimizer": args.optimizer != "adamw"}
        layered |= {"--recompute": args.recompute != "none", "--attention": args.attention != "fused"}
        layered |= {"--family": args.family}
    if asked := [flag for flag, value in layered.items() if value]:
        raise refuse(asked[0], text, "is a size, not a model: this needs its layers", "give a config.json or a preset")
    sheet = of_a_size(
        text,
        parameters,
        tokens=args.tokens,
        sustained=args.sustained,
        price=args.price,
        watts=args.watts,
        device=args.device,
        dtype=args.dtype or "bfloat16",
    )
    return SimpleNamespace(name=text), sheet, None


def print_csv(sized: Sequence[Sized], file: IO[str]) -> None:
    import csv

    rows = [{"model": subject.name} | flat(sheet) for subject, sheet, _ in sized]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(file, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def draw(sized: Sequence[Sized], args: argparse.Namespace) -> None:
    if args.plot:
        parameters(args.plot, sized, args.convention)
    if args.plot_memory == "-":
        from plainformer.report.asked_tables import draw_memory

        draw_memory(sys.stdout, against_context(sized, args.dtype))
    elif args.plot_memory:
        from plainformer.report import svg

        found = against_context(sized, args.dtype)
        series = {name: [(float(n), n_bytes / 1e9) for n, n_bytes in points] for name, points in found}
        picture = svg.line_chart(series, "Memory: weights and cache", "tokens of context", "GB (1e9 bytes)")
        write("--plot-memory", args.plot_memory, picture)


def against_context(
    sized: Sequence[Sized], dtype: str | None, n_points: int = 60
) -> list[tuple[str, list[tuple[int, int]]]]:
    """For each model the bytes of its weights and cache at contexts up to its cost's own, evenly spaced. dtype: of the
    weights; None: as they are stored, or in the cost's own, which the name then says of a config."""
    found = []
    for subject, sheet, cost in sized:
        stored = None if dtype else sheet["weights_bytes"]["as_stored"]
        unsaid = f", in {cost.dtype}" if stored is None and (dtype or subject.model_type) else ""
        weights = stored or cost.weights_bytes()
        fixed = weights + cost.cross_cache_bytes + cost.state_bytes
        contexts = sorted({1 + (cost.seq_len - 1) * i // n_points for i in range(n_points + 1)})
        found.append((subject.name + unsaid, [(n, fixed + cache_bytes(cost, n)) for n in contexts]))
    return found


def cache_bytes(cost: Cost, context: int) -> int:
    from plainformer.cost import rules

    return rules.n_bytes(cost.batch_size * cost.cache.numbers(context), cost.kv_dtype)


def parameters(path: str, sized: Sequence[Sized], convention: str | None) -> None:
    """Where the parameters live: one model by its parts, several as bars of shares."""
    parts = {
        subject.name: {part_name(part): n for part, n in sheet["parameters"]["by_part"].items()}
        for subject, sheet, _ in sized
    }
    counted = "" if convention in (None, "all") else f", counted as {convention}"
    if path == "-":
        from plainformer.report.asked_tables import draw_stacked

        return draw_stacked(sys.stdout, parts)
    from plainformer.report import svg

    if len(parts) == 1:
        (name, one), *_ = parts.items()
        picture = svg.bars(f"{name}: {sum(one.values()):,} parameters{counted}", one)
    else:
        picture = svg.stacked(f"Where the parameters live{counted}", parts)
    write("--plot", path, picture)


def write(flag: str, path: str, text: str, done: str = "drawn") -> None:
    """A file that is whole or not there at all."""
    beside = f"{path}.{os.getpid()}.part"
    try:
        with open(beside, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.replace(beside, path)
    except OSError as fault:
        if os.path.exists(beside):
            os.remove(beside)
        raise refuse(flag, path, "cannot be written", fault.strerror or str(fault)) from None
    print(f"{done}: {path}", file=sys.stderr)

"""`plainformer size MODEL...`: the account of a model before it is downloaded. Standard library only until it draws."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from plainformer.cli.model_argument import bare_size, resolve, with_unit
from plainformer.cost import Cost
from plainformer.cost.rules import BITS
from plainformer.faults import PlainformerError, refuse
from plainformer.records import replace
from plainformer.report.sheet import Subject, facts

Sized = tuple[Subject, dict[str, Any], Cost]
OPTIMIZERS = ("adamw", "adamw-float32", "adamw-autocast", "adamw-bfloat16", "adamw-8bit", "muon", "sgd", "sgd-momentum")


def arguments(parser: argparse.ArgumentParser) -> None:
    about = "a config.json, a folder that holds one, a run, a preset's name, or a bare size such as 7B"
    parser.add_argument("models", nargs="*", metavar="MODEL", help=about)
    run = parser.add_argument_group("what it is asked to do")
    run.add_argument("--batch", type=whole, default=1, metavar="N", help="sequences at once (1)")
    run.add_argument("--context", type=whole, metavar="N", help="tokens of each (as many as the model allows)")
    run.add_argument("--dtype", choices=BITS, metavar="NAME", help="of the weights (as stored, else bfloat16)")
    run.add_argument("--kv-dtype", choices=BITS, metavar="NAME", help="of the cache (as --dtype, 16 bits at least)")
    run.add_argument("--family", metavar="NAME", help="read the config as this model_type, whatever it says")
    run.add_argument("--device", metavar="NAME", help="a device's name, or BYTES,FLOPS,BANDWIDTH: bounds, how many")
    run.add_argument("--what-if", metavar="CHANGES", help="with other sizes: n_kv_heads=8,tied=false,vocab_size=50304")
    train = parser.add_argument_group("training")
    train.add_argument("--train", action="store_true", help="memory of training, part by part")
    train.add_argument("--optimizer", default="adamw", choices=OPTIMIZERS, metavar="NAME", help=", ".join(OPTIMIZERS))
    recompute = ("none", "selective", "full")
    train.add_argument("--recompute", default="none", choices=recompute, help="which activations are made again (none)")
    train.add_argument("--attention", default="fused", choices=("fused", "plain"), help="plain: keeps its scores")
    train.add_argument("--zero", type=int, default=0, choices=(0, 1, 2, 3), help="what devices share (0: nothing)")
    train.add_argument("--devices", type=whole, default=1, metavar="N", help="so many devices (1)")
    only = train.add_mutually_exclusive_group()
    only.add_argument("--lora", type=whole, metavar="RANK", help="train adapters of this rank alone")
    only.add_argument("--qlora", type=whole, metavar="RANK", help="the same beside matrices of 4 bits")
    train.add_argument("--tokens", type=amount, metavar="N", help="train on so many tokens (140e9)")
    train.add_argument("--sustained", type=amount, metavar="N", help="operations a second of one device (400e12)")
    train.add_argument("--utilisation", type=share, metavar="X", help="the same as a share of --device's peak (0.4)")
    train.add_argument("--price", type=amount, metavar="N", help="dollars for an hour of one device")
    train.add_argument("--watts", type=amount, metavar="N", help="of one device: energy")
    said = parser.add_argument_group("what is said")
    said.add_argument("--convention", metavar="NAME", help="count by this rule; all: by each, with what they count")
    said.add_argument("--explain", action="store_true", help="every weight, summing to the total; every formula")
    said.add_argument("--compare", action="store_true", help="models side by side, each beside the first")
    said.add_argument("--find", metavar="LABEL", help="shapes and conventions behind 458M or 1895722")
    said.add_argument("--published", type=numbers, metavar="N,...", help="a number for each model: how far off, in ppm")
    said.add_argument("--check", action="store_true", help="hold a folder's safetensors headers against its config")
    said.add_argument(
        "--plot", type=picture, metavar="FILE.svg", help="draw where the parameters live; -: in the terminal"
    )
    said.add_argument(
        "--plot-memory", type=picture, metavar="FILE.svg", help="draw memory against context; -: in the terminal"
    )
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
    """A number above 0, such as 140e9 or 300B."""
    try:
        value = float(with_unit(text) or text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, such as 140e9 or 300B")
    return value


def numbers(text: str) -> list[int]:
    """Whole numbers above 0, one for each model."""
    return [whole(word.strip()) for word in text.split(",")]


def picture(text: str) -> str:
    """Where a picture goes: a file that ends in .svg, or - for the terminal."""
    if text != "-" and not text.lower().endswith(".svg"):
        raise argparse.ArgumentTypeError(f"{text!r} does not end in .svg: that is what is written (-: in the terminal)")
    return text


def share(text: str) -> float:
    """A share above 0, at most 1."""
    value = amount(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is more than all: say a share such as 0.4")
    return value


OF_A_SHEET = ("what_if", "train", "tokens", "device", "dtype", "context", "explain", "compare", "published", "csv")
UNHEARD = {  # what a flag has no use for
    "find": (*OF_A_SHEET, "plot", "plot_memory", "family", "check"),
    "check": (*OF_A_SHEET, "plot", "plot_memory", "convention"),
    "explain": ("compare", "csv"),
}


def run(args: argparse.Namespace) -> int:
    heard(args)
    if args.find is not None:
        from plainformer.cli.finding import find

        return find(args)
    if not args.models:
        raise refuse("MODEL", None, "is missing", "give a config.json, a folder, a preset's name or a size such as 7B")
    if args.check:
        from plainformer.cli.finding import check_folders

        return check_folders(args)
    rate(args)
    sized = [one for text in args.models for one in (several(text, args) if args.what_if else [size(text, args)])]
    as_they_are = sized[::2] if args.what_if else sized
    family_read([subject for subject, _, cost in as_they_are if cost is not None], args.family)
    beside_published(sized, args)
    if args.plot or args.plot_memory:
        from plainformer.cli import plotting

        plotting.draw(sized, args)
    if args.json:
        print_json(sized[1::2] if args.what_if else sized, args)
    elif args.csv:
        from plainformer.cli.plotting import print_csv

        print_csv(sized, sys.stdout)
    elif "-" not in (args.plot, args.plot_memory):
        print_tables(sized, args)
    return 0


def heard(args: argparse.Namespace) -> None:
    """Refuses what would be said for nothing, and two things in one stream."""

    def told(name: str) -> bool:
        return getattr(args, name) not in (None, False)

    def flag(name: str) -> str:
        return f"--{name.replace('_', '-')}"

    for first, others in UNHEARD.items():
        for second in filter(told, others if told(first) else ()):
            raise refuse(flag(second), getattr(args, second), f"{flag(first)} has no use for it", "leave one out")
    form = next(filter(told, ("json", "csv")), None)
    for name in ("plot", "plot_memory"):
        if form and getattr(args, name) == "-":
            raise refuse(flag(name), "-", f"draws in what {flag(form)} writes", "draw into a file, as where.svg")


def family_read(subjects: list[Subject], family: str | None) -> None:
    """Refuses --family where no MODEL is a config: presets, our own specs and GGUF files say what they are."""
    if family is not None and all(one.model_type is None or one.n_stored is not None for one in subjects):
        raise refuse("--family", family, f"is for reading a config, and {subjects[0].name} is none")


def beside_published(sized: list[Sized], args: argparse.Namespace) -> None:
    """How far what is published lies above each count, in millionths."""
    if args.published is None:
        return
    if len(args.published) != len(sized):
        raise refuse("--published", args.published, f"is {len(args.published)} numbers for {len(sized)} models")
    for (_, sheet, _), value in zip(sized, args.published, strict=True):
        sheet["published"] = {"value": value, "ppm": 1e6 * (value / sheet["parameters"]["total"] - 1)}


def rate(args: argparse.Namespace) -> None:
    """What a device keeps up, from what is said: told at once, or as a share of a peak. Refuses what would be said for
    nothing."""
    for flag, value in (("--price", args.price), ("--watts", args.watts)):
        if value is not None and args.sustained is None and args.utilisation is None:
            hint = "add --sustained, or --device and --utilisation"
            raise refuse(flag, value, "is for an hour of a device, and nothing says how much it does in one", hint)
    for flag in ("price", "watts", "sustained", "utilisation"):
        if (value := getattr(args, flag)) is not None and args.tokens is None:
            raise refuse(f"--{flag}", value, "is of a training run, and nothing says how long it is", "add --tokens")
    if args.device is not None:
        from plainformer.cost.devices import device

        args.device = device(args.device)
    if args.utilisation is not None:
        if args.device is None or args.sustained is not None:
            wrong = "needs --device" if args.device is None else "and --sustained say the same twice"
            raise refuse("--utilisation", args.utilisation, wrong)
        args.sustained = args.utilisation * args.device.flops
    if args.watts is None and args.device is not None:
        args.watts = args.device.watts


def several(text: str, args: argparse.Namespace) -> list[Sized]:
    """A model as it is, and as --what-if has it."""
    from plainformer.cli.changing import changes_in, what_if

    changes = changes_in(args.what_if)
    if bare_size(text) is not None:
        raise refuse("--what-if", text, "is a size, not a model: it has no parts to change")
    return [account(resolve(text, args.family), args), account(what_if(text, changes, args.family), args)]


def size(text: str, args: argparse.Namespace) -> Sized:
    if (parameters := bare_size(text)) is None:
        return account(resolve(text, args.family), args)
    from plainformer.cli.plotting import bare

    sized: Sized = bare(text, parameters, args)
    return sized


def account(subject: Subject, args: argparse.Namespace) -> Sized:
    dtype = args.dtype or "bfloat16"
    cost = Cost.of(subject.spec, batch_size=args.batch, seq_len=args.context, dtype=dtype, kv_dtype=args.kv_dtype)
    sheet = facts(
        subject,
        cost,
        convention=args.convention,
        tokens=args.tokens,
        sustained=args.sustained,
        price=args.price,
        device=args.device,
        plan=plan_of(args),
        watts=args.watts,
        told_dtype=args.dtype is not None,
    )
    return subject, sheet, cost


def plan_of(args: argparse.Namespace) -> Any:
    """The plan of training where one is asked for, by --train or by what only it hears."""
    told = args.lora or args.qlora or args.zero or args.devices > 1
    if not (args.train or told or (args.optimizer, args.recompute, args.attention) != ("adamw", "none", "fused")):
        return None
    from plainformer.cost.training import Plan

    try:
        return Plan(
            optimizer=args.optimizer,
            recompute=args.recompute,
            fused=args.attention == "fused",
            zero=args.zero,
            n_devices=args.devices,
            lora=args.lora or args.qlora,
            quantised=args.qlora is not None,
        )
    except PlainformerError as error:
        raise PlainformerError(replace(fault, where=f"--{fault.where}") for fault in error.faults) from None


def print_json(sized: list[Sized], args: argparse.Namespace) -> None:
    import json

    sheets = []
    for _, sheet, cost in sized:
        if args.explain and cost is not None:
            from plainformer.report.explain import formulas
            from plainformer.report.sheet import counted_as, ledger_rows

            rows, _ = counted_as(args.convention, cost)
            sheet = sheet | {"rows": ledger_rows(rows), "formulas": [vars(one) for one in formulas(sheet, cost)]}
        sheets.append(sheet)
    print(json.dumps(sheets[0] if len(sheets) == 1 else sheets, indent=1, ensure_ascii=False))


def needs_rows(sheet: dict[str, Any], args: argparse.Namespace) -> bool:
    """Whether something is asked for that a table with a row for each model has no column for."""
    return "training_memory" in sheet or "device" in sheet or bool(args.tokens) or args.batch > 1


def print_tables(sized: list[Sized], args: argparse.Namespace) -> None:
    from plainformer.report import asked_tables, tables

    models = [one for one in sized if one[2] is not None]
    for subject, sheet, cost in sized:
        if cost is None:
            asked_tables.draw_size(sys.stdout, subject.name, sheet)
    if args.explain:
        from plainformer.conventions import CONVENTIONS, count

        for subject, sheet, cost in models:
            for name in CONVENTIONS if args.convention == "all" else [args.convention or "tensors"]:
                tables.draw_lines(sys.stdout, subject, count(subject.spec, name))
            asked_tables.draw_formulas(sys.stdout, sheet, cost)
    elif args.compare or args.what_if or (len(models) > 1 and needs_rows(models[0][1], args)):
        asked_tables.draw_compared(sys.stdout, models)
    elif len(models) == 1:
        tables.draw_sheet(sys.stdout, *models[0])
    elif models:
        tables.draw_many(sys.stdout, models)

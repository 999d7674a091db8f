"""Tables for people. The only module that draws with rich, loaded when one is drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import IO, Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from plainformer.conventions import CONVENTIONS, Count, lines, runs
from plainformer.cost import Cost
from plainformer.report.figures import bar, label, part_name, percent, short
from plainformer.report.sheet import Subject, by_part, describe

COLUMNS = ("parameters", "met by a token", "weights", "cache/token", "FLOPs/token")
MOST_COLUMNS, LEAST_WORDS = 1000, 16  # of a window; of a column that may be folded
PUBLISHED_COLUMNS = ("published", "which is off by")
Row = tuple[str, str, str]  # what, the exact figure, in words


def draw(file: IO[str], *things: RenderableType) -> None:
    """Print to a stream in its own width and colours; rich fills lines with blanks, which nobody wants to copy."""
    console = Console(file=file, highlight=False, markup=False, emoji=False)
    console.width = max([console.width, *(least_width(console, thing) for thing in things if isinstance(thing, Table))])
    with console.capture() as captured:
        console.print(*things, sep="\n")
    for line in captured.get().splitlines():
        print(line.rstrip(), file=file)


def least_width(console: Console, table: Table) -> int:
    """What a table needs to cut no number, whatever the window: a number that is cut would read as another."""
    for column in table.columns:
        said = [line for cell in (column.header, *column.cells) for line in str(cell).splitlines()]
        longest = max((cell_len(line) for line in said), default=0)
        column.min_width = longest if column.no_wrap else min(longest, LEAST_WORDS)
    return Measurement.get(console, console.options.update_width(MOST_COLUMNS), table).minimum


def columns(*names: str, **sides: Any) -> Table:
    return Table(*names, box=None, pad_edge=False, padding=(0, 1), **sides)


def draws_blocks(file: IO[str]) -> bool:
    """Whether the stream can hold the characters of which bars are made."""
    try:
        "█▏".encode(getattr(file, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def where_they_live(parts: Mapping[str, int], plain: bool) -> list[Row]:
    total = sum(parts.values())
    return [
        (part_name(part), f"{n:,}", f"{percent(n, total):>9} {bar(n / total, plain=plain)}".rstrip())
        for part, n in parts.items()
        if n
    ]


def counts(sheet: Mapping[str, Any]) -> list[Row]:
    said = sheet["parameters"]
    rows = [("parameters", f"{said['total']:,}", label(said["total"]))]
    if (published := sheet.get("published")) is not None:
        gap = f"{abs(published['value'] - said['total']):,}, {published['ppm']:+,.1f} ppm"
        rows.append(("published", f"{published['value']:,}", f"off by {gap}"))
    rows.append(("without token tables", f"{said['non_embedding']:,}", label(said["non_embedding"])))
    if said["active"] != said["total"]:
        rows.append(("met by one token", f"{said['active']:,}", f"{label(said['active'])}, token tables included"))
        for key, words in (("active_without_input_table", "the input table"), ("active_without_tables", "both tables")):
            rows.append((f"  without {words}", f"{said[key]:,}", label(said[key])))
    return rows


def layer_groups(sheet: Mapping[str, Any]) -> list[Row]:
    """Layers that are alike, where not all are."""
    groups = sheet["parameters"]["by_layers"]
    if len(groups) == len({group["layers"] for group in groups}):
        return []
    return [
        (f"layers {runs(group['numbers'])}", f"{len(group['numbers']) * group['each']:,}", layers_said(group))
        for group in groups
    ]


def layers_said(group: Mapping[str, Any]) -> str:
    where = "" if group["layers"] == "decoder.layers" else f", {group['layers'].removesuffix('.layers')}"
    return f"{len(group['numbers'])} x {group['each']:,}{where}"


def memory(sheet: Mapping[str, Any], cost: Cost) -> list[Row]:
    weights, cache = sheet["weights_bytes"], sheet["kv_cache"]
    rows = [
        (f"weights, {dtype}", f"{weights[dtype]:,} B", short(weights[dtype], "B"))
        for dtype in ("float32", "bfloat16", "int8", "int4")
    ]
    if weights["as_stored"] is not None:
        rows.append(("weights, as stored", f"{weights['as_stored']:,} B", short(weights["as_stored"], "B")))
    if cache["bytes"] is not None:
        of = f"{cost.batch_size:,} x {cost.seq_len:,} tokens, {cost.kv_dtype}"
        rows.append(("cache of one token", f"{cache['bytes_per_token']:,} B", cost.kv_dtype))
        rows.append(("cache", f"{cache['bytes']:,} B", f"{short(cache['bytes'], 'B')}: {of}"))
        if cache["bytes_as_expanded"] != cache["bytes"]:
            much = cache["bytes_as_expanded"]
            rows.append(("cache, if expanded", f"{much:,} B", f"{short(much, 'B')}: keys and values, not latents"))
    return rows


def work(sheet: Mapping[str, Any]) -> list[Row]:
    flops, training = sheet["flops"], sheet["training"]
    exact, rule = flops["forward_per_token"], flops["rule_2n"]
    ratio = exact / rule
    gap = f"{100 * abs(ratio - 1):.1f} % {'more' if ratio >= 1 else 'less'}"
    mean = f"{short(exact, 'FLOPs')}: mean over {flops['context']:,} positions"
    rows = [
        ("forward, one token", f"{exact:,} FLOPs", mean),
        ("by the rule 2N", f"{rule:,} FLOPs", f"exact is {gap if ratio < 2 else f'{ratio:.1f} times that'}"),
    ]
    if "training_memory" not in sheet:
        much = training["bytes"]
        rows.append(("to train, AdamW", f"{much:,} B", f"{short(much, 'B')} before activations"))
    return rows + training_rows(sheet)


def training_rows(sheet: Mapping[str, Any]) -> list[Row]:
    """What --tokens asks for."""
    training, rows = sheet["training"], list[Row]()
    if training["flops_exact"] is not None:
        words = "forward and backward" if "training_memory" in sheet else "3 x forward x tokens"
        rows.append(("training, exact", f"{training['flops_exact']:.4g} FLOPs", words))
    if training["flops_6nd"] is not None:
        rows.append(("training, 6ND", f"{training['flops_6nd']:.4g} FLOPs", "6 x parameters met x tokens"))
    if training["device_hours"] is not None:
        words = "hours of one device: " + ("exact FLOPs" if training["flops_exact"] is not None else "6ND")
        rows.append(("device hours", f"{training['device_hours']:,.2f}", f"{words} at the sustained rate"))
    if training["dollars"] is not None:
        rows.append(("dollars", f"{training['dollars']:,.0f}", "at the price of an hour"))
    if "energy_kwh" in sheet:
        rows.append(("energy", f"{sheet['energy_kwh']:,.0f} kWh", "hours x watts of one device"))
    return rows


def training_memory(sheet: Mapping[str, Any]) -> list[Row]:
    """Where the bytes of a training run lie, on one device."""
    if (said := sheet.get("training_memory")) is None:
        return []
    shared = f", shared among {said['devices']:,}"
    rows = []
    for key, stage in (("weights", 3), ("gradients", 2), ("optimizer_state", 1)):
        words = said["optimizer"] if key == "optimizer_state" else ""
        words += shared if said["zero"] >= stage else ""
        rows.append((f"training: {key.replace('_', ' ')}", f"{said[key]:,} B", words.removeprefix(", ")))
    if said["activations"] is not None:
        how = f"{said['attention']} attention, recomputed: {said['recompute']}"
        rows.append(("training: activations", f"{said['activations']:,} B", how))
        rows.append(("training: logits", f"{said['logits']:,} B", "scores, their logarithms, gradient"))
        rows.append(("training: one device", f"{said['total']:,} B", short(said["total"], "B")))
    if said["trained"] != sheet["parameters"]["total"]:
        rows.append(("trained parameters", f"{said['trained']:,}", label(said["trained"])))
    rows.append(("training, one token", f"{said['flops_per_token']:,.0f} FLOPs", "forward and backward"))
    if said["flops_done_per_token"] != said["flops_per_token"]:
        rows.append(("  as done", f"{said['flops_done_per_token']:,.0f} FLOPs", "with what is made again"))
    rows.append(("compute-optimal tokens", f"{said['compute_optimal_tokens']:,}", "20 a parameter met"))
    return rows


def on_device(sheet: Mapping[str, Any]) -> list[Row]:
    """Bounds on a device, and which hold it."""
    if (said := sheet.get("device")) is None:
        return []
    rows = [("memory needed", f"{said['memory_needed']:,} B", "weights and cache")]
    rows.append((f"devices, {said['name']}", f"{said['needed']:,}", f"of {short(said['memory'], 'B')} each"))
    if said["decode_tokens_per_second"] is not None:
        read = f"{short(said['bytes_read_per_step'], 'B')} read a step; bound by {said['decode_bound']}"
        rows.append(("decoding, at most", f"{said['decode_tokens_per_second']:,.1f} tokens/s", read))
    rows.append(("prompt, at least", f"{said['prefill_seconds']:.4g} s", "what a query may see, at the peak"))
    alone = [name for name, many in said["devices_needed"].items() if many == 1]
    rows.append(("fits on one", f"{len(alone):,}", ", ".join(alone) or "of none"))
    return rows


def draw_sheet(file: IO[str], subject: Subject, sheet: Mapping[str, Any], cost: Cost) -> None:
    """One model, in four groups; then what the figures leave out."""
    table = columns(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    parts = where_they_live(sheet["parameters"]["by_part"], plain=not draws_blocks(file))
    asked = (layer_groups(sheet), memory(sheet, cost), work(sheet), training_memory(sheet), on_device(sheet))
    for group in filter(None, (counts(sheet), parts, *asked)):
        table.add_row()
        for what, figure, words in group:
            table.add_row(f"  {what}", figure, words)
    draw(file, Text(f"{subject.name}: {describe(subject.spec)}", style="bold"), table)
    if "convention" in sheet:
        said = sheet["convention"]
        draw(file, f"\nparameters are counted as {said['name']}: {said['says']}")
    if "conventions" in sheet:
        draw_conventions(file, sheet["conventions"])
    for note in sheet["notes"]:
        draw(file, f"\nnote: {note}")


def draw_conventions(file: IO[str], totals: Mapping[str, int]) -> None:
    """What each convention makes of one model."""
    table = columns()
    table.add_column("\n  convention", no_wrap=True)
    table.add_column("\nparameters", justify="right", no_wrap=True)
    table.add_column("\nwhat counts", style="dim")
    for name, total in totals.items():
        table.add_row(f"  {name}", f"{total:,}", CONVENTIONS[name].says)
    draw(file, table)


def draw_lines(file: IO[str], subject: Subject, counted: Count) -> None:
    """Every weight: layers that are alike said once, summing to the total; then what the total leaves out."""
    title = f"{subject.name}, counted as {counted.convention.name}: {counted.convention.says}"
    table = columns()
    table.add_column("\nwhere", no_wrap=True)
    table.add_column("\nformula", overflow="fold", style="dim")
    for name in ("each", "all"):
        table.add_column(f"\n{name}", justify="right", no_wrap=True)
    for layers, same in groupby(lines(counted.kept), key=lambda line: (line.layers, line.times)):
        inside = list(same)
        if layers[0]:
            each, all_of_them = sum(line.each for line in inside), sum(line.total for line in inside)
            table.add_row(layers[0], f"{layers[1]} x {each:,}", "", f"{all_of_them:,}", style="bold")
        for line in inside:
            place = f"  {line.place}" if layers[0] else line.place
            table.add_row(place, line.formula, f"{line.each:,}", f"{line.total:,}")
    table.add_row("total", "", "", f"{counted.total:,}", style="bold")
    parts = columns(show_header=False)
    for row in where_they_live(by_part(counted.kept), plain=not draws_blocks(file)):
        parts.add_row(*row)
    parts.columns[1].justify = "right"
    draw(file, Text(title, style="bold"), table, "", parts)
    if steps := list(asides(counted)):
        table = columns(show_header=False)
        table.add_column(overflow="fold")
        table.add_column(justify="right", no_wrap=True)
        table.add_row("every tensor of the model as it is", f"{counted.plain:,}")
        for what, n in steps:
            table.add_row(what, f"{n:+,}")
        table.add_row("total", f"{counted.total:,}", style="bold")
        draw(file, "", table)


def asides(counted: Count) -> Iterator[tuple[str, int]]:
    """From every tensor of the unchanged model to the total: what the convention changes and leaves out."""
    sums: dict[str, int] = {}
    for name, gap in counted.changes:  # layers taken together
        place = ".".join("*" if part.isdecimal() else part for part in name.split("."))
        sums[place] = sums.get(place, 0) + gap
    yield from ((f"changed: {place}", gap) for place, gap in sums.items())
    yield from ((f"left out: {row.name}", -row.count) for row in counted.left_out)


def draw_many(file: IO[str], sized: Iterable[tuple[Subject, Mapping[str, Any], Cost]]) -> None:
    """Several models as rows."""
    rows = list(sized)
    table = columns()
    table.add_column("model", overflow="fold")
    compared = all("published" in sheet for _, sheet, _ in rows)
    for name in ("parameters", *PUBLISHED_COLUMNS) if compared else COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for subject, sheet, cost in rows:
        said, cache = sheet["parameters"], sheet["kv_cache"]["bytes_per_token"]
        if compared:
            value, ppm = sheet["published"]["value"], sheet["published"]["ppm"]
            table.add_row(subject.name, f"{said['total']:,}", f"{value:,}", f"{ppm:+,.1f} ppm")
            continue
        table.add_row(
            subject.name,
            f"{said['total']:,}",
            f"{said['active']:,}",
            short(cost.weights_bytes(), "B"),
            "none" if cache is None else short(cache, "B"),
            short(sheet["flops"]["forward_per_token"]),
        )
    draw(file, table)
    draw_asides(file, rows)


def draw_asides(file: IO[str], sized: Sequence[tuple[Subject, Mapping[str, Any], Cost]]) -> None:
    """What several models' figures are counted as and leave out."""
    if "convention" in sized[0][1]:
        said = sized[0][1]["convention"]
        draw(file, f"\nparameters are counted as {said['name']}: {said['says']}")
    for subject, sheet, _ in sized:
        for note in sheet["notes"]:
            draw(file, f"\n{subject.name}: {note}")
        if "conventions" in sheet:
            draw(file, Text(f"\n{subject.name}", style="bold"))
            draw_conventions(file, sheet["conventions"])

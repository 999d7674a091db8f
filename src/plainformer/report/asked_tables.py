"""Tables of what is only there when it is asked for: devices, training, formulas, side by side, found, checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from rich.text import Text

from plainformer.cost import Cost
from plainformer.report.explain import formulas
from plainformer.report.figures import label, percent, short
from plainformer.report.sheet import Subject
from plainformer.report.tables import Row, columns, draw, draw_asides, draws_blocks, training_rows

if TYPE_CHECKING:
    from plainformer.huggingface.checking import Checked

Sized = tuple[Subject, Mapping[str, Any], Cost]


def draw_rows(file: IO[str], title: str, *groups: Sequence[Row]) -> None:
    table = columns(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for group in groups:
        table.add_row()
        for what, figure, words in group:
            table.add_row(f"  {what}", figure, words)
    draw(file, Text(title, style="bold"), table)


def draw_size(file: IO[str], name: str, sheet: Mapping[str, Any]) -> None:
    """What a number of parameters alone tells."""
    total, said = sheet["parameters"]["total"], sheet["training"]
    weights = [
        (f"weights, {dtype}", f"{n:,} B", short(n, "B"))
        for dtype, n in sheet["weights_bytes"].items()
        if dtype != "fp8"
    ]
    work = [
        ("forward, by the rule 2N", f"{sheet['flops']['rule_2n']:,} FLOPs", "a token"),
        ("to train, AdamW", f"{said['bytes']:,} B", f"{short(said['bytes'], 'B')} before activations"),
        ("compute-optimal tokens", f"{said['compute_optimal_tokens']:,}", "20 a parameter (Hoffmann et al. 2022)"),
        *training_rows(sheet),
    ]
    if "device" in sheet:
        of = sheet["device"]
        work.append((f"devices, {of['name']}", f"{of['needed']:,}", f"to hold the weights in {of['dtype']}"))
    counted = [("parameters", f"{total:,}", "")]
    if (known := sheet.get("published")) is not None:
        counted.append(("published", f"{known['value']:,}", f"off by {known['ppm']:+,.1f} ppm"))
    draw_rows(file, f"{name}: {label(total)} parameters", counted, weights, work)
    for note in sheet["notes"]:
        draw(file, f"\nnote: {note}")


def draw_formulas(file: IO[str], sheet: Mapping[str, Any], cost: Cost) -> None:
    """Each number of the sheet with the formula behind it and its values."""
    table = columns()
    table.add_column("\nnumber", no_wrap=True)
    table.add_column("\nformula", style="dim", overflow="fold")
    table.add_column("\n", justify="right", no_wrap=True)
    for one in formulas(sheet, cost):
        result = f"{one.result:,}" if isinstance(one.result, int) else f"{one.result:,.10g}"
        table.add_row(one.what, f"{one.formula}\n= {one.values}", result)
    draw(file, table)


def measures(sheet: Mapping[str, Any], cost: Cost) -> dict[str, float | None]:
    """The numbers that are compared."""
    said, cache, training = sheet["parameters"], sheet["kv_cache"], sheet["training"]
    parts = {f"  {name.replace('_', '-')}": n for name, n in said["by_part"].items()}
    memory, device = sheet.get("training_memory") or {}, sheet.get("device") or {}
    return {
        "parameters": said["total"],
        **parts,
        "met by one token": said["active"],
        f"weights, {cost.dtype}, B": cost.weights_bytes(),
        "weights, as stored, B": sheet["weights_bytes"]["as_stored"],
        "cache of one token, B": cache["bytes_per_token"],
        f"cache, {cost.batch_size:,} x {cost.seq_len:,}, B": cache["bytes"],
        "forward, one token, FLOPs": sheet["flops"]["forward_per_token"],
        "to train, before activations, B": training["bytes"],
        "to train, one device, B": memory.get("total"),
        "trained parameters": memory.get("trained"),
        "training, exact, FLOPs": training["flops_exact"],
        "training, 6ND, FLOPs": training["flops_6nd"],
        "device hours": training["device_hours"],
        "dollars": training["dollars"],
        "energy, kWh": sheet.get("energy_kwh"),
        "memory needed, B": device.get("memory_needed"),
        f"devices, {device.get('name')}": device.get("needed"),
        "decoding, at most, tokens/s": device.get("decode_tokens_per_second"),
        "prompt, at least, s": device.get("prefill_seconds"),
    }


def draw_compared(file: IO[str], sized: Sequence[Sized]) -> None:
    """Models side by side: each number, and how many times the first's it is."""
    table = columns()
    table.add_column("", no_wrap=True)
    for subject, _, _ in sized:
        table.add_column(subject.name, justify="right", overflow="fold")
    if all("published" in sheet for _, sheet, _ in sized):
        known = [sheet["published"] for _, sheet, _ in sized]
        table.add_row("published", *(f"{one['value']:,}  {one['ppm']:+,.1f} ppm" for one in known))
    every = [measures(sheet, cost) for _, sheet, cost in sized]
    for at, names in enumerate(zip(*every, strict=True)):
        values = [list(one.values())[at] for one in every]
        if not any(values):
            continue
        name = names[0] if len(set(names)) == 1 else names[0].partition(",")[0]
        table.add_row(name, *(beside(value, values[0], i) for i, value in enumerate(values)))
    draw(file, table)
    draw_asides(file, sized)


def beside(value: float | None, first: float | None, i: int) -> str:
    if value is None:
        return "none"
    whole = isinstance(value, int)
    said = f"{value:,}" if whole else f"{value:,.1f}" if 100 <= value < 1e12 else f"{value:.4g}"
    return said if i == 0 or not first else f"{said}  x {value / first:.3f}"


def draw_found(file: IO[str], answer: Mapping[str, Any]) -> None:
    """What may be behind a label or a number."""
    asked, known = answer["asked"], answer["published"]
    if "label" in answer:
        draw(file, f"no convention gives {asked}: it is {answer['label']}", "")
        known = answer["counts"]
    elif "shapes" in answer and not known:
        draw(file, f"no published GPT-2 shape is {asked} under any convention asked for", "")
    if known:
        draw_shapes(file, "published shapes", known)
    if "nearest" in answer:
        draw(file, "", "of all shapes of up to 96 layers, widths in steps of 32:")
        draw_shapes(file, "layers x width", answer["nearest"])
    if "shapes" not in answer:
        return
    draw(file, f"\nshapes that round to {asked} counted as {answer['convention']}, layers x width")
    names = {
        "gpt2_widths": "at GPT-2's widths",
        "multiples_of_64": "at multiples of 64, to 4,096",
        "64_a_layer": "at 64 a layer",
    }
    for key, words in names.items():
        found = answer["shapes"][key]
        draw(file, f"  {words}: {len(found)}" + (": " if found else "") + ", ".join(f"{n} x {d:,}" for n, d in found))


def draw_shapes(file: IO[str], title: str, found: Iterable[Any]) -> None:
    table = columns()
    table.add_column(title, no_wrap=True)
    for name in ("counted as", "parameters", "asked for lies"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in found:
        gap = f"{one.ppm:+,.1f} ppm" if abs(one.ppm) < 10_000 else f"{one.ppm / 1e4:+,.1f} %"
        shape = f"{one.n_layers} x {one.d_model:,}"
        table.add_row(
            f"{one.name} ({shape})" if " x " not in one.name else shape, one.convention, f"{one.total:,}", gap
        )
    draw(file, table)


MOST = 10  # names told of each kind; the rest is counted


def draw_checked(file: IO[str], of: Checked) -> None:
    """A folder's files beside its config."""
    files = f"{len(of.files):,} file{'s' if len(of.files) != 1 else ''}, {of.n_tensors:,} tensors"
    rows = [
        ("parameters, by the config", f"{of.expected:,}", ""),
        ("numbers in the files", f"{of.n_numbers:,}", ""),
        ("bytes", f"{of.n_bytes:,} B", short(of.n_bytes, "B")),
        *((f"in {name}", f"{n:,} B", percent(n, of.n_bytes)) for name, n in of.dtypes.items()),
    ]
    if of.named:
        rows.append(("tied head", of.tied, "one matrix, in the files once" if of.tied == "not stored" else ""))
    draw_rows(file, f"{of.folder}: {files}", rows)
    kinds = {"broken": of.faults, "missing": of.missing, "mis-shaped": of.misshaped, "unexpected": of.unexpected}
    for kind, names in kinds.items():
        if names:
            draw(file, f"\n{kind}: {len(names):,}", *(f"  {name}" for name in names[:MOST]))
            if len(names) > MOST:
                draw(file, f"  and {len(names) - MOST:,} more")
    for note in of.notes:
        draw(file, f"\nnote: {note}")
    if of.named and of.whole and not of.unexpected:
        draw(file, "\nthe files hold what the config asks for, and nothing else")


def draw_memory(file: IO[str], found: Iterable[tuple[str, list[tuple[int, int]]]]) -> None:
    """Memory against context, in the terminal."""
    from plainformer.report.curves import curve

    for name, points in found:
        draw(file, Text(f"{name}: weights and cache in GB, against tokens of context", style="bold"))
        for line in curve([(float(n), n_bytes / 1e9) for n, n_bytes in points], plain=not draws_blocks(file)):
            print(line, file=file)


LETTERS = "TPAFERNHO"  # of the parts in their order: tables, positions, attention, feed-forward, experts, ...


def draw_stacked(file: IO[str], rows: Mapping[str, Mapping[str, int]], width: int = 50) -> None:
    """Where the parameters of several models live: bars of one length, a letter for each fiftieth."""
    table = columns(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    met: dict[str, str] = {}
    for name, parts in rows.items():
        total, bar, end = sum(parts.values()), "", 0
        for letter, (part, count) in zip(LETTERS, parts.items(), strict=True):
            end += count
            bar += letter * (round(width * end / (total or 1)) - len(bar))
            if count:
                met[letter] = part
        table.add_row(name, bar, label(total))
    draw(file, ", ".join(f"{letter} {met[letter]}" for letter in LETTERS if letter in met), "", table)

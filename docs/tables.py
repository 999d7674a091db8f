"""Tables of the pages that are made from the code: rooms, readings, recipes; and code itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "plainformer"


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def head(*names: str) -> list[str]:
    return [row(*names), row(*("---" for _ in names))]


def docstring(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return re.split(r"(?<=[.?])\s", " ".join(text.split()))[0].rstrip(".")


def cap(room: str) -> int:
    """How many lines a room may have, as the tests of the house hold it."""
    house = (ROOT / "tests" / "test_house.py").read_text(encoding="utf-8")
    found = re.search(r"^ROOM_CAPS = (\{.+?\})", house, re.M), re.search(r"^FILE_CAP = (\d+)", house, re.M)
    assert found[0], "the tests of the house have lost their caps"
    assert found[1], "the tests of the house have lost their cap"
    return int(ast.literal_eval(found[0][1]).get(room, found[1][1]))


def files_of(room: str) -> list[Path]:
    one = SOURCE / f"{room}.py"
    return [one] if one.is_file() else sorted((SOURCE / room).rglob("*.py"))


def rooms() -> str:
    """Every room from the ground up, in the order in which they may import each other."""
    listed = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r"^layers = \[(.*?)^\]", listed, re.S | re.M)
    assert found, "pyproject.toml lists no layers"
    lines = head("room", "what it is")
    for layer in reversed(re.findall(r'^ +"(.+?)"', found[1], re.M)):
        for room in re.findall(r"\w+", layer):
            if files := files_of(room):
                first = files[0] if len(files) == 1 else SOURCE / room / "__init__.py"
                lines.append(row(f"`{room}`", docstring(first)))
    return "\n".join(lines) + "\n"


READ = {
    ("spec",): "what a transformer is, as data",
    ("ledger",): "every weight that a spec implies",
    ("formulas",): "each formula once: NumPy, float64, with its source",
    ("reference",): "the definition: one rule a part, composed of the formulas",
    ("gradients",): "the same backwards, by hand: one rule a part",
    ("kernels", "layers", "experts", "model"): "the same in PyTorch, fast",
}


def reading_order() -> str:
    """The files to read, and how long they may get."""
    lines = head("read in this order", "what it is", "lines")
    for files, words in READ.items():
        names = [f"{room}.py" if (SOURCE / f"{room}.py").is_file() else f"{room}/" for room in files]
        links = ", ".join(f"[`{name}`](src/plainformer/{name.rstrip('/')})" for name in names)
        several = len(files) > 1 or names[0].endswith("/")
        lines.append(row(links, words, f"at most {max(map(cap, files))}{' each' if several else ''}"))
    return "\n".join(lines) + "\n"


# A part whose rule in a reading stands in that of the part that holds it.
INSIDE = {
    ("Table", "run"): "`Stack`, `Tokens`",
    ("RelativeBias", "run"): "`Stack`",
    ("Residual", "build"): "`Layer`",
    ("Spec", "run"): "`logits`",
    ("Residual", "code"): "`Stack`",
    ("RelativeBias", "gradients"): "`Stack`",
    ("Spec", "gradients"): "`loss_and_gradients`",
    ("ChosenSoftmaxRouter", "cost"): "`Experts`",
    ("SoftmaxRouter", "cost"): "`Experts`",
    ("SigmoidRouter", "cost"): "`Experts`",
}


def rules() -> dict[str, dict[str, str]]:
    """For each part that has weights: in which readings it has a rule ("yes"), stands inside another's, or has none."""
    from plainformer import gradients, ledger, model, reference, source
    from plainformer.cost.flops import flops
    from plainformer.tree import PARTS

    table = {}
    for name, part in PARTS.items():
        if part in ledger.weights.registry:
            has = {
                "count": True,
                "cost": part in flops.registry,
                "run": part in reference.run.registry,
                "gradients": part in gradients.rule.registry,
                "build": part in model.build.registry,
                "code": part in source.code.registry,
            }
            table[name] = {r: "yes" if yes else INSIDE.get((name, r), "") for r, yes in has.items()}
    return table


def rungs() -> str:
    """The shapes that --minutes chooses from."""
    from plainformer.training.choosing import RUNGS

    lines = head("room for so many of its steps", "layers, width", "context", "rows a step")
    for rung in RUNGS:
        sizes = (f"{rung.sizes['n_layers']}, {rung.sizes['d_model']}", rung.sizes["context"], rung.sizes["batch_size"])
        lines.append(row(f"{rung.least_steps:,} or more" if rung.least_steps else "any", *sizes))
    return "\n".join(lines) + "\n"


def recipe() -> str:
    """What a run decides where nothing is said, for each preset that is meant to be trained."""
    from plainformer.presets import TRAINABLE, presets
    from plainformer.training.decisions import TOKENIZER, VALIDATION
    from plainformer.training.recipe import OF_PRESET, RECIPES

    lines = head("", *(f"`--preset {name}`" for name in TRAINABLE))
    specs = [presets[name] for name in TRAINABLE]
    found = [RECIPES[OF_PRESET[name]] for name in TRAINABLE]
    rates = [recipe.rates for recipe in found]
    lines.append(row("layout", *(place.rpartition(".")[2] for place, _ in TRAINABLE.values())))
    lines.append(row("layers, width", *(f"{len(spec.main.layers)}, {spec.d_model}" for spec in specs)))
    lines.append(row("context", *(spec.max_seq_len for spec in specs)))
    lines.append(row("optimiser", *(each.optimizer for each in rates)))
    lines.append(row("peak rate of matrices", *(f"{each.matrices:g}" for each in rates)))
    lines.append(row("of token table, head, rest", *(f"{r.embedding:g}, {r.head:g}, {r.rest:g}" for r in rates)))
    lines.append(row("rows a step, steps", *(f"{each.batch_size}, {each.steps:,}" for each in found)))
    lines.append(row("schedule", *(f"{each.shape}, steady for {each.steady:.0%}" for each in found)))
    lines.append(row("warm-up steps", *(each.warmup for each in found)))
    lines.append(row("first weights", *(each.initial for each in found)))
    lines.append(row("longest gradient", *("any" if each.clip is None else f"{each.clip:g}" for each in found)))
    both = f"`{TOKENIZER}`, the last {VALIDATION:.0%}"
    lines.append(row("tokenizer, validation", *(both for _ in found)))
    return "\n".join(lines) + "\n"


def gpu() -> str:
    """What was measured on a GPU; where none ever was, that."""
    if (ROOT / "docs" / "measured" / "gpu.json").is_file():
        from build import measured

        return measured("gpu")
    said = "**No GPU was at hand where this page was made.** Nothing was measured on one, no speed on one is claimed."
    return f"{said}\n"


def gpu_bounds() -> str:
    """What no program passes: a step's operations over a data sheet's dense peak, a token's weights over its memory."""
    from plainformer.cost import Cost
    from plainformer.cost.devices import DEVICES
    from plainformer.cost.flops import Work
    from plainformer.cost.training import products_of_activations
    from plainformer.presets import presets

    length = 1024
    cost = Cost.of(presets["gpt2"], batch_size=1, seq_len=length)
    hidden = products_of_activations(cost.spec, Work(1, length, length)) * (length - 1) // (2 * length)
    each = 3 * (cost.forward_flops - hidden) / length  # of a query with the keys that it may see
    lines = head("GPU", "dense peak", "tokens/s in training, at most", "tokens/s written, at most")
    for name in ("t4", "a10", "l4", "rtx4090", "a100-80gb", "h100", "h200", "mi300x"):
        device = DEVICES[name]
        trained = device.flops / each
        written = device.bandwidth / cost.weights_bytes("bfloat16")
        lines.append(row(f"`{name}`", f"{device.flops / 1e12:,.1f} TFLOP/s", f"{trained:,.0f}", f"{written:,.0f}"))
    return "\n".join(lines) + "\n"


def readings() -> str:
    lines = head("part", "count", "cost", "run (NumPy)", "gradients (NumPy)", "build (PyTorch)", "code")
    lines += [row(f"`{name}`", *cells.values()) for name, cells in rules().items()]
    return "\n".join(lines) + "\n"


def code(room: str, sign: str, name: str) -> str:
    """The source of a class (`room.Name`), or of the rule for a part of that class (`room: Name`)."""
    for path in files_of(room):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                found = True
            elif sign == ": " and isinstance(node, ast.FunctionDef) and node.args.args:
                kind = node.args.args[0].annotation
                found = kind is not None and ast.unparse(kind).rpartition(".")[2] == name
            else:
                continue
            if found and isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                return "\n".join(text.splitlines()[first - 1 : node.end_lineno]) + "\n"
    raise ValueError(f"{room} has no {name}")


MADE: dict[str, Callable[[], str]] = {
    "rooms": rooms,
    "reading-order": reading_order,
    "readings": readings,
    "recipe": recipe,
    "rungs": rungs,
    "gpu": gpu,
    "gpu-bounds": gpu_bounds,
}


def table(name: str) -> str:
    """The table of that name, of this file or of those about sizes."""
    import sizes

    return (MADE | sizes.MADE)[name]()

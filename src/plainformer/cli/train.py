"""`plainformer train TEXT... --out RUN`: a GPT from a text. Kill it at any moment: it goes on from there."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plainformer.cli.tokenize import text_arguments
from plainformer.cli.trained import wait_asleep
from plainformer.faults import refuse

if TYPE_CHECKING:
    from plainformer.model import Transformer
    from plainformer.text import Tokenizer
    from plainformer.training import Outcome
    from plainformer.training.processes import Processes
    from plainformer.training.starting import Planned

STATUS = {"done": 0, "nothing to do": 0, "bad step": 3, "stopped": 130}
SAMPLES, SAMPLE_TOKENS, SAMPLE_TEMPERATURE = 3, 200, 0.8


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", nargs="*", help="files, folders, patterns; .jsonl; .gz, .zst; tokens")
    parser.add_argument("--out", metavar="RUN", help="the folder of the run: new, or with --resume its own")
    parser.add_argument("--resume", action="store_true", help="go on from the newest whole checkpoint in RUN")
    parser.add_argument("--plan", action="store_true", help="say what it would take, and train nothing")
    shape = parser.add_argument_group("the model")
    shape.add_argument("--preset", metavar="NAME", help="small, tiny, small-moe or gpt2-style (small)")
    shape.add_argument("--d-model", type=int, metavar="N", help="width of the stream (the preset's)")
    shape.add_argument("--n-layers", type=int, metavar="N", help="(the preset's)")
    shape.add_argument("--n-heads", type=int, metavar="N", help="must divide --d-model (the preset's)")
    shape.add_argument("--context", type=int, metavar="N", help="tokens that it sees at once (the preset's)")
    tune = parser.add_argument_group("a model to begin from")
    tune.add_argument("--from", dest="base", metavar="MODEL", help="a run or a folder: its shape, tokenizer, weights")
    tune.add_argument("--lora", type=int, metavar="R", help="train adapters of this rank alone")
    tune.add_argument("--targets", metavar="NAMES", help="projections that get them, of q,k,v,out,up,down,head (q,v)")
    data = parser.add_argument_group("the text")
    data.add_argument("--tokenizer", metavar="KIND", help="characters, bytes or bpe:N (characters)")
    text_arguments(data)
    data.add_argument("--validation", type=float, metavar="SHARE", help="the end of the text that is kept apart (0.1)")
    steps = parser.add_argument_group("the steps")
    steps.add_argument("--steps", type=int, metavar="N", help="updates of the weights (the recipe's)")
    steps.add_argument(
        "--minutes", type=float, metavar="M", help="the model and the steps that fit, measured at the start"
    )
    steps.add_argument("--batch-size", type=int, metavar="N", help="rows of --context tokens a step (the recipe's)")
    steps.add_argument("--micro-batch", type=int, metavar="N", help="rows at once: less memory, the same steps (all)")
    steps.add_argument("--optimizer", metavar="NAME", help="muon or adamw (the preset's)")
    steps.add_argument("--lr", type=float, metavar="X", help="peak rate of the matrices; others keep their proportion")
    steps.add_argument("--warmup", type=int, metavar="N", help="steps up to the peak rate (the recipe's)")
    steps.add_argument("--schedule", choices=("linear", "cosine", "constant"), help="the decay (the recipe's)")
    steps.add_argument("--seed", type=int, metavar="N", help="of the first weights and the order of the text (0)")
    steps.add_argument("--dtype", metavar="TYPE", help="of products: bfloat16 where the processor has it, or float32")
    steps.add_argument("--compile", action="store_const", const=True, help="each layer by torch.compile (as written)")
    again = ("none", "selective", "full")
    steps.add_argument("--recompute", choices=again, help="activations made again, not kept (none where memory allows)")
    steps.add_argument("--shard", action="store_true", help="under torchrun: each process keeps a share of the weights")
    keep = parser.add_argument_group("what is kept and told")
    keep.add_argument(
        "--on-spike", choices=("stop", "skip"), help="a loss that explodes: stop before it or skip (stop)"
    )
    keep.add_argument("--eval-every", type=int, metavar="N", help="steps between evaluations (a quarter of all)")
    keep.add_argument("--save-every", type=int, metavar="N", help="steps between checkpoints (a tenth of all)")
    keep.add_argument("--tensorboard", action="store_true", help="metrics.jsonl for TensorBoard too")
    keep.add_argument("--quiet", action="store_true", help="no progress")
    keep.add_argument("--json", action="store_true", help="the result, or the plan, as JSON")


def run(args: argparse.Namespace) -> int:
    begun = time.monotonic()
    if not args.text and not args.resume:
        raise refuse("TEXT", [], "at least one file is needed", "plainformer train TEXT --out RUN")
    if args.out is None and not args.plan:
        raise refuse("--out", None, "a run needs a folder", "--out RUN")

    if args.plan and args.resume:
        raise refuse("--plan", "--resume", "a plan is of a new run", "leave one of the two out")
    if args.plan and args.minutes is not None and args.steps is None:
        raise refuse("--minutes", args.minutes, "is measured when a run starts: no plan can tell", "give --steps")
    wait_asleep()

    from plainformer.training import carry_on, plan
    from plainformer.training.board import writer_class
    from plainformer.training.decisions import DECISIONS
    from plainformer.training.processes import joined

    if args.tensorboard:
        writer_class()
    asked = {name: value for name in DECISIONS if (value := getattr(args, name)) is not None}
    if args.plan:
        return show_plan(plan(args.text, asked), args.json)
    with joined(args.shard) as processes:
        if processes.world > 1 and args.minutes is not None:
            raise refuse("--minutes", args.minutes, "is measured by a process alone", "give --steps")
        processes.led(lambda: begin(args, asked, begun, processes))
        outcome = carry_on(args.out, sample, args.quiet, processes, on_spike(args), args.tensorboard)
        return tell(args.out, outcome, args.json) if processes.first else STATUS[outcome.ending]


def on_spike(args: argparse.Namespace) -> Any:
    """What was asked for now, else when the run was started."""
    from plainformer.checkpoint.runs import read_json

    kept = read_json(Path(args.out) / "run.json").get("asked") or {}
    return args.on_spike or kept.get("on_spike") or "stop"


def begin(args: argparse.Namespace, asked: dict[str, Any], begun: float, processes: Processes) -> None:
    """Make the run's folder, or see that what is asked is what the one that is there was started with."""
    from plainformer.checkpoint import is_run
    from plainformer.training import check_resume, start

    if args.resume and is_run(args.out):
        check_resume(Path(args.out), args.text, asked)
        return
    if args.resume and not args.text:
        raise refuse("--out", args.out, "there is no run in it to go on with", "give TEXT to start one")
    if args.resume:
        print(f"plainformer: nothing to go on with in {args.out}: a new run", file=sys.stderr)
    kept = {} if args.on_spike is None else {"on_spike": args.on_spike}
    start(args.text, args.out, asked | kept, sample, begun, processes)


def sample(model: Transformer, tokenizer: Tokenizer) -> str:
    """A few texts as they come, from the same start and seed each time."""
    from plainformer.generation import generate

    model = quick(model)
    n_new = min(SAMPLE_TOKENS, model.spec.max_seq_len - 1)
    prompts = [[tokenizer.start_id]] * SAMPLES
    made = generate(model, prompts, n_new, temperature=SAMPLE_TEMPERATURE, seed=1, n_tokens=tokenizer.n_tokens)
    return "\n---\n".join(tokenizer.decode(new) for new in made.new)


def quick(model: Transformer) -> Transformer:
    """A copy that decodes at the memory's speed; the model itself where processes have its weights in shares."""
    from torch import Tensor

    from plainformer.model import Transformer
    from plainformer.rows import quicken

    if not all(type(weight.data) is Tensor for weight in model.parameters()):
        return model
    copy = Transformer(model.spec, initial=None)
    copy.load_state_dict(model.state_dict())
    return quicken(copy)[0]


def tell(out: str, outcome: Outcome, as_json: bool) -> int:
    """The result: facts to stdout, the way on to stderr."""
    from plainformer.training.journal import rows
    from plainformer.training.starting import settings_of

    settings, found = settings_of(Path(out)), list(rows(Path(out) / "metrics.jsonl"))
    measured = next((row for row in reversed(found) if "val_loss" in row), {})
    last = next((row for row in found if row["step"] == settings.steps), {})
    facts: dict[str, Any] = {
        "run": out,
        "ending": outcome.ending,
        "step": outcome.step,
        "steps": settings.steps,
        "tokens": outcome.step * settings.batch_size * settings.context,
        "loss": next((row["loss"] for row in reversed(found) if "loss" in row), None),
        "val_loss": measured.get("val_loss"),
        "val_bits_per_byte": measured.get("val_bits_per_byte"),
        "val_step": measured.get("step"),
        **{name: last.get(name) for name in ("flops_per_second", "peak_flops_per_second", "utilisation")},
        "saved": str(outcome.saved),
        **compared(Path(out), outcome),
    }
    if as_json:
        print(json.dumps(facts))
    elif outcome.ending in ("done", "nothing to do"):
        for line in [*table(facts, settings.dtype), *beside(facts)]:
            print(line)
    words = {
        "done": f"done: plainformer generate {shlex.quote(out)}",
        "nothing to do": f"nothing to do: {out} has all its {settings.steps:,} steps",
        "stopped": f"stopped by {outcome.cause} after step {outcome.step:,}, saved in {outcome.saved}; "
        "go on with --resume",
        "bad step": f"stopped before step {outcome.step + 1:,} was taken: {outcome.cause}; the last good state is in "
        f"{outcome.saved}; try a lower --lr",
    }
    print(f"plainformer: {words[outcome.ending]}", file=sys.stderr)
    return STATUS[outcome.ending]


def compared(run: Path, outcome: Outcome) -> dict[str, Any]:
    """What was planned, what it took, and the one over the other, of a run that this process has ended."""
    from plainformer.checkpoint.runs import read_json
    from plainformer.training.forecast import of_json

    planned = of_json(read_json(run / "run.json").get("planned"))
    if planned is None or outcome.taken is None:
        return {}
    taken = outcome.taken
    return {"planned": planned.to_json(), "taken": taken.to_json(), "ratio": planned.beside(taken)}


def beside(facts: dict[str, Any]) -> list[str]:
    """Planned, taken and the ratio, a line each."""
    from plainformer.report.figures import short

    if "planned" not in facts:
        return []

    def shown(name: str, n: float | None) -> str:
        if n is None:
            return "-"
        plain = {"parameters": f"{n:,.0f}", "memory": short(n, "B"), "flops": f"{short(n)}FLOPs"}
        return plain.get(name, f"{n:,.1f}")

    lines = [f"{'':<12}{'planned':>14}{'taken':>14}{'ratio':>8}"]
    for name in ("parameters", "memory", "flops", "seconds"):
        cells = [shown(name, facts[side][name]).rjust(14) for side in ("planned", "taken")]
        ratio = facts["ratio"][name]
        lines.append(f"{name:<12}{''.join(cells)}{'-' if ratio is None else format(ratio, '.3f'):>8}")
    return lines


def used(facts: dict[str, Any], dtype: str) -> list[str]:
    """How much of what the machine can do went into the model; the peak that it is measured against is said."""
    from plainformer.report.figures import short

    if facts["flops_per_second"] is None:
        return []
    done, most = (short(facts[name], "FLOPs/s") for name in ("flops_per_second", "peak_flops_per_second"))
    share = facts["utilisation"]
    if share is None:
        return [f"{'utilisation':<12}unknown: {done} were done, more than the {most} of a product in {dtype} just now"]
    return [f"{'utilisation':<12}{share:.1%}: {done} of the {most} of a product of matrices in {dtype}"]


def table(facts: dict[str, Any], dtype: str) -> list[str]:
    lines = [f"{'steps':<12}{facts['step']:,}", f"{'tokens':<12}{facts['tokens']:,}"]
    if facts["val_loss"] is not None:
        bits = facts["val_bits_per_byte"]
        more = "" if bits is None else f", {bits:.4f} bits a byte"
        lines.append(f"{'validation':<12}{facts['val_loss']:.4f} nats a token{more}")
    return [f"{'run':<12}{facts['run']}", *lines, *used(facts, dtype), f"{'weights':<12}{facts['saved']}"]


def show_plan(planned: Planned, as_json: bool) -> int:
    """What a run would take, from the sheet's own rules."""
    from dataclasses import asdict

    from plainformer.cost import Cost
    from plainformer.report.figures import short
    from plainformer.training.progress import clock

    settings, text = planned.settings, planned.text
    cost = Cost.of(planned.spec, settings.batch_size, settings.context, dtype="float32")
    tokens = settings.steps * settings.batch_size * settings.context
    facts: dict[str, Any] = {
        "parameters": cost.ledger.total,
        "weights_bytes": cost.weights_bytes(),
        "optimizer_bytes": cost.optimizer_bytes,
        "text_tokens": text.n_tokens,
        "train_tokens": text.n_train,
        "validation_tokens": text.n_validation,
        "steps": settings.steps,
        "tokens": tokens,
        "epochs": tokens / text.n_train,
        "flops": planned.forecast.flops,
        "planned": planned.forecast.to_json(),
        "settings": asdict(settings),
    }
    if as_json:
        print(json.dumps(facts))
        return 0
    rows = {
        "parameters": f"{cost.ledger.total:,}",
        "weights": f"{short(cost.weights_bytes(), 'B')} (float32)",
        "training": f"{short(cost.optimizer_bytes, 'B')} for weights, one gradient and the optimiser",
        "text": f"{text.n_tokens:,} tokens: {text.n_train:,} to train, {text.n_validation:,} to validate",
        "steps": f"{settings.steps:,} of {settings.batch_size} x {settings.context} tokens: {tokens:,} "
        f"({tokens / text.n_train:.1f} times the text)",
        "operations": f"{short(planned.forecast.flops)}FLOPs",
    }
    if settings.recompute != "none":
        rows["activations"] = f"made again in the backward pass ({settings.recompute})"
    if settings.loss_rows:
        rows["loss"] = f"of {settings.loss_rows:,} positions at once, never of all"
    memory, seconds = planned.forecast.memory, planned.forecast.seconds
    if memory is not None:
        rows["memory"] = f"{short(memory, 'B')} at most, this program and a copy that is being saved included"
    if seconds is not None:
        rows["time"] = f"{clock(seconds)} by a few steps on this machine, evaluations included"
    for name, value in rows.items():
        print(f"{name:<12}{value}")
    return 0

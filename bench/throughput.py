"""Training steps of one shape beside nanoGPT's model, in turns: the same first weights and batches, and so one loss."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from types import ModuleType
from typing import Any

import torch
from measures import Row, load, spread, tell
from measures.nanogpt import model_module
from measures.runs import run_folder
from torch import Tensor, nn

from plainformer.presets import presets
from plainformer.spec import Spec
from plainformer.training.decisions import fastest_dtype
from plainformer.training.loop import exact
from plainformer.training.recipe import Settings
from plainformer.training.run import Run

LETTERS, CHARACTERS = 65, 200_000
RATE, BETAS, CLIP = 1e-3, (0.9, 0.99), 1.0
CLOSE = 1e-4  # nats: how far apart two loss curves in float32 may be


@dataclass(frozen=True)
class Shape:
    n_layers: int
    d_model: int
    n_heads: int
    context: int
    batch_size: int
    n_steps: int  # a turn
    goal: float  # how many times nanoGPT's speed is aimed at

    def spec(self) -> Spec:
        """nanoGPT's layout with bias=False."""
        return presets.trainable(
            "gpt2-style",
            vocab_size=LETTERS,
            max_seq_len=self.context,
            d_model=self.d_model,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            activation="gelu",
            qkv_bias=False,
            out_bias=False,
            mlp_bias=False,
            norm_bias=False,
        )


SHAPES = {"0.8M": Shape(4, 128, 4, 64, 12, 40, 1.0), "10.6M": Shape(6, 384, 6, 256, 16, 3, 1.8)}


def made_up(seed: int = 0) -> str:
    """Text of LETTERS kinds in which each letter is mostly followed by a few: what a model can begin to learn."""
    drawn = random.Random(seed)
    letters = [chr(ord("0") + i) for i in range(LETTERS)]
    after = {letter: drawn.choices(letters, k=6) for letter in letters}
    said = list(letters)
    while len(said) < CHARACTERS:
        said.append(drawn.choice(after[said[-1]]) if drawn.random() < 0.9 else drawn.choice(letters))
    return "".join(said)


def our_run(shape: Shape, text: Path, folder: Path, dtype: str, in_lanes: bool = True) -> Run:
    """As `plainformer train --preset gpt2-style` begins it, but for the spec, and a rate that stays, without decay."""
    asked = {
        "preset": "gpt2-style",
        "d_model": shape.d_model,
        "n_layers": shape.n_layers,
        "n_heads": shape.n_heads,
        "context": shape.context,
        "batch_size": shape.batch_size,
        "lr": RATE,
        "schedule": "constant",
        "warmup": 0,
        "dtype": dtype,
    }

    def change(_: Spec, settings: Settings) -> tuple[Spec, Settings]:
        rates = replace(settings.rates, decay=0.0, betas=BETAS)
        lanes = settings.lanes if in_lanes else 1
        return shape.spec(), replace(settings, rates=rates, clip=CLIP, lanes=lanes)

    run_folder(text, folder, asked, change)
    return Run(folder)


def named_as_theirs(ours: Mapping[str, Tensor], n_layers: int) -> dict[str, Tensor]:
    """Our weights under the names of their model.py."""
    found = {
        "transformer.wte.weight": ours["embedding.weight"],
        "lm_head.weight": ours["embedding.weight"],
        "transformer.wpe.weight": ours["decoder.positions.weight"],
        "transformer.ln_f.weight": ours["decoder.norm_last.weight"],
    }
    for i in range(n_layers):
        here, there = f"decoder.layers.{i}", f"transformer.h.{i}"
        found[f"{there}.ln_1.weight"] = ours[f"{here}.attention_norm.weight"]
        found[f"{there}.attn.c_attn.weight"] = torch.cat([ours[f"{here}.attention.{name}.weight"] for name in "qkv"])
        found[f"{there}.attn.c_proj.weight"] = ours[f"{here}.attention.out.weight"]
        found[f"{there}.ln_2.weight"] = ours[f"{here}.feed_forward_norm.weight"]
        found[f"{there}.mlp.c_fc.weight"] = ours[f"{here}.feed_forward.up.weight"]
        found[f"{there}.mlp.c_proj.weight"] = ours[f"{here}.feed_forward.down.weight"]
    return found


Turn = Callable[[int], list[float]]  # so many steps more: the loss of each batch


def our_turn(run: Run) -> Turn:
    """`plainformer train`'s own step: batch, gradients, checks, clipping, optimisers."""

    def turn(n_steps: int) -> list[float]:
        with exact(run.settings.threads // run.lanes, run.settings.compile):
            return [float(run.update()) for _ in range(n_steps)]

    return turn


def their_turn(module: ModuleType, shape: Shape, run: Run) -> Turn:
    """The steps of their train.py on a processor: float32, their AdamW, clipping, the loss read each time.

    run: gives first weights and batches; these are drawn before the clock is asked.
    """
    with redirect_stdout(StringIO()):
        model = module.GPT(
            module.GPTConfig(
                block_size=shape.context,
                vocab_size=LETTERS,
                n_layer=shape.n_layers,
                n_head=shape.n_heads,
                n_embd=shape.d_model,
                dropout=0.0,
                bias=False,
            )
        )
        optimizer = model.configure_optimizers(0.0, RATE, BETAS, "cpu")
    model.load_state_dict(named_as_theirs(run.model.state_dict(), shape.n_layers))
    assert count(model) == count(run.model)
    drawn = iter(range(sys.maxsize))

    def turn(n_steps: int) -> list[float]:
        losses = []
        for _ in range(n_steps):
            x_BT, y_BT = (torch.from_numpy(block) for block in run.batches.at(next(drawn)))
            _, loss = model(x_BT, y_BT)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        return losses

    return turn


def count(model: nn.Module) -> int:
    return sum(w.numel() for w in model.parameters())


@dataclass(frozen=True)
class Taken:
    """What one way took: seconds of each turn, and all losses."""

    seconds: list[float]
    losses: list[float]


def in_turns(turns: Mapping[str, Turn], n_turns: int, n_steps: int) -> dict[str, Taken]:
    """Each way n_steps more, n_turns times, the first way never the same twice in a row; one turn before unmeasured."""
    found = {name: Taken([], []) for name in turns}
    for i in range(n_turns + 1):
        for name in turns if i % 2 else reversed(list(turns)):
            begun = perf_counter()
            losses = turns[name](n_steps)
            if i:
                found[name].seconds.append(perf_counter() - begun)
            found[name].losses.extend(losses)
    return found


def ratios(theirs: Taken, ours: Taken) -> list[float]:
    """How many times as fast ours is, turn by turn."""
    return [a / b for a, b in zip(theirs.seconds, ours.seconds, strict=True)]


def apart(one: Taken, other: Taken) -> float:
    """The most that two loss curves differ at any step."""
    return max(abs(a - b) for a, b in zip(one.losses, other.losses, strict=True))


NANOGPT = "nanoGPT, float32"


def rows_of(shape: Shape, n: int, taken: Mapping[str, Taken]) -> list[Row]:
    tokens = shape.n_steps * shape.batch_size * shape.context
    by_default = next(what for what in taken if what != NANOGPT)
    return [
        {
            "parameters": f"{n:,}",
            "context": shape.context,
            "rows": shape.batch_size,
            "what": what,
            "tokens/s": spread([tokens / seconds for seconds in some.seconds], 0),
            "over nanoGPT": spread(ratios(taken[NANOGPT], some), 2),
            "aimed at": f"{shape.goal:g}" if what == by_default else "-",
            "loss apart at most": f"{apart(some, taken[NANOGPT]):.1e}",
        }
        for what, some in taken.items()
    ]


def measured(module: ModuleType, shape: Shape, text: Path, folder: Path, n_turns: int) -> tuple[int, dict[str, Taken]]:
    """(parameters, what each way took)."""
    by_default = fastest_dtype()
    ways: dict[str, tuple[str, bool]] = {f"plainformer, {by_default}": (by_default, True)}
    ways |= {f"plainformer, {by_default}, one lane": (by_default, False), "plainformer, float32": ("float32", True)}
    runs = {what: our_run(shape, text, folder / what, *how) for what, how in ways.items()}
    first = next(iter(runs.values()))
    turns = {NANOGPT: their_turn(module, shape, first)} | {what: our_turn(run) for what, run in runs.items()}
    taken = in_turns(turns, n_turns, shape.n_steps)
    exactly = taken["plainformer, float32"]
    if (far := apart(exactly, taken[NANOGPT])) > CLOSE:
        raise AssertionError(f"the losses in float32 differ by {far:.1e}: not the same work")
    return count(first.model), taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nanogpt", type=Path, metavar="CLONE", required=True, help="a clone of nanoGPT")
    parser.add_argument("--turns", type=int, default=5, metavar="N")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="(all)")
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args = parser.parse_args()
    before, module = load(), model_module(args.nanogpt.resolve())
    rows: list[Row] = []
    raw: dict[str, Any] = {}
    for name in args.shapes:
        with TemporaryDirectory() as room:
            text = Path(room) / "text.txt"
            text.write_text(made_up(), encoding="utf-8")
            n, taken = measured(module, SHAPES[name], text, Path(room), args.turns)
        rows += rows_of(SHAPES[name], n, taken)
        raw[name] = {what: vars(some) for what, some in taken.items()}
        print(f"{name}: done", file=sys.stderr)
    note = (
        f"Whole training steps, batch to optimiser, of one layout (GPT-2's without biases), {torch.get_num_threads()} "
        f"threads; the same first weights, batches, AdamW. {args.turns} turns of "
        f"{' and '.join(f'{SHAPES[name].n_steps} steps ({name})' for name in args.shapes)} after one that is not "
        "measured; medians, in brackets the least and the most. nanoGPT as its train.py steps on a processor: float32, "
        "no compilation; its batches are drawn too. Loss apart: from nanoGPT's, at any step."
    )
    command = f"python bench/throughput.py --nanogpt CLONE --turns {args.turns} --save"
    tell("throughput", command, rows, note, before, args.save, runs=raw)


if __name__ == "__main__":
    main()

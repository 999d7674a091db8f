"""A mixture trained on a text with its balance loss and without: how even its load is, and what that costs the loss."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from measures import load, spread, tell

from plainformer.kernels import balance_loss
from plainformer.model import Transformer
from plainformer.presets import presets
from plainformer.text import Batches, TokenFile, split, token_bytes, train_tokenizer, write_tokens
from plainformer.training import Optimizers, evaluate, gradients
from plainformer.training.decisions import Text, decide

SIZES = {"d_model": 64, "n_layers": 3, "n_heads": 2, "max_seq_len": 64}


@dataclass(frozen=True)
class Result:
    """On the validation part, after the last step."""

    nats: float
    balance: float  # 1: even; the worst layer's
    busiest: float  # the busiest expert's tokens over an even share; the worst layer's
    idlest: float


def trained(tokens: TokenFile, length_V: object, coefficient: float, steps: int, seed: int) -> Result:
    """The preset small-moe, narrower, by the recipe of `plainformer train`."""
    spec = presets.trainable("small-moe", vocab_size=len(length_V), balance=coefficient, **SIZES)
    train, validation = split(tokens.n_tokens, 0.1)
    asked = {"preset": "small-moe", "steps": steps, "seed": seed, "dtype": "float32"}
    settings = decide(asked, Text(tokens.n_tokens, len(train), len(validation), len(length_V)), spec)
    model = Transformer(spec, settings.initial, seed)
    optimizers = Optimizers(model, settings.rates)
    batches = Batches(tokens.slice(train), settings.context, settings.batch_size, seed)
    for step in range(steps):
        x_BT, y_BT = (torch.from_numpy(block) for block in batches.at(step))
        optimizers.clear()
        gradients(model, x_BT, y_BT, len(length_V), settings.micro_batch)
        optimizers.set(settings.schedule.at(step), step)
        optimizers.step()
    held = tokens.slice(validation)
    found = evaluate(model, held, length_V)
    assert found is not None
    n_rows = min(64, len(held) // settings.context)
    rows_BT = torch.from_numpy(held[: n_rows * settings.context].astype("int64")).view(n_rows, -1)
    routed: list[tuple[torch.Tensor, torch.Tensor]] = []
    with torch.no_grad():
        model.hidden(rows_BT, routed=routed)
    shares = [chosen.double().mean(0) / chosen.double().mean(0).mean() for _, chosen in routed]
    return Result(
        nats=found.loss,
        balance=max(balance_loss(scores, chosen).item() for scores, chosen in routed),
        busiest=max(share.max().item() for share in shares),
        idlest=min(share.min().item() for share in shares),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, metavar="TEXT")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="seeds 0 to N - 1 (3)")
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args = parser.parse_args()
    torch.set_num_threads(1)
    before = load()
    results: dict[float, list[Result]] = {0.0: [], 0.01: []}
    with TemporaryDirectory() as folder:
        tokenizer = train_tokenizer("characters", [args.text])
        write_tokens([args.text], tokenizer, Path(folder) / "tokens.bin")
        tokens, length_V = TokenFile.open(Path(folder) / "tokens.bin", tokenizer), token_bytes(tokenizer)
        for seed in range(args.runs):
            for coefficient, some in results.items():
                some.append(trained(tokens, length_V, coefficient, args.steps, seed))
                print(f"balance {coefficient}, seed {seed}: {some[-1]}", file=sys.stderr)
    rows = [
        {
            "coefficient": coefficient,
            "balance loss (1: even)": spread([one.balance for one in some], 3),
            "busiest expert, of an even share": spread([one.busiest for one in some], 2),
            "idlest": spread([one.idlest for one in some], 2),
            "nats a character": spread([one.nats for one in some], 4),
        }
        for coefficient, some in results.items()
    ]
    note = (
        f"`small-moe` at width {SIZES['d_model']}, {SIZES['n_layers']} layers, 2 of 8 experts chosen, context "
        f"{SIZES['max_seq_len']}, {args.steps} steps on {args.text.stat().st_size:,} bytes of text. Median of "
        f"{args.runs} seeds, in brackets the least and the most; on the validation part; of the layers the worst."
    )
    raw = {str(coefficient): [vars(one) for one in some] for coefficient, some in results.items()}
    seeds = list(range(args.runs))
    tell("balance", "python bench/balance.py TEXT --save", rows, note, before, args.save, runs=raw, seeds=seeds)


if __name__ == "__main__":
    main()

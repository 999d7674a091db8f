"""`plainformer eval MODEL TEXT`: how well a model predicts a text, each token once."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from plainformer.cli.trained import trained, wait_asleep


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a run, a step's folder in it, or a folder with weights")
    parser.add_argument("text", metavar="TEXT", nargs="+", help="files of text, joined in this order")
    parser.add_argument(
        "--stride",
        type=int,
        metavar="N",
        help="start a block every N tokens, and score in each what none before it did (side by side: the context)",
    )
    parser.add_argument("--json", action="store_true", help="one object")


def run(args: argparse.Namespace) -> int:
    wait_asleep()
    model, tokenizer = trained(args.model)

    from plainformer.text import token_bytes, write_tokens
    from plainformer.training import evaluate

    with TemporaryDirectory() as folder:
        notice = lambda words: print(f"plainformer: {words}", file=sys.stderr)  # noqa: E731
        tokens_N = write_tokens(args.text, tokenizer, Path(folder) / "tokens.bin", notice=notice).tokens
        found = evaluate(model, tokens_N, token_bytes(tokenizer), stride=args.stride)
    assert found is not None  # nothing interrupts it
    if args.json:
        print(json.dumps(found.to_json()))
        return 0
    bits = "no text" if found.bits_per_byte is None else f"{found.bits_per_byte:.4f}"
    rows = {
        "loss": f"{found.loss:.4f} nats a token",
        "perplexity": f"{found.perplexity:.4f}",
        "bits": f"{found.bits_per_token:.4f} a token, {bits} a byte",
        "targets": f"{found.targets:,} ({found.bytes:,} bytes)",
        "context": f"{found.context:,} tokens, a block every {found.stride:,}",
    }
    for name, value in rows.items():
        print(f"{name:<12}{value}")
    return 0

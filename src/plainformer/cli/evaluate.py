"""`plainformer eval MODEL TEXT`: how well a model predicts a text, each token once."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from plainformer.cli.tokenize import text_arguments
from plainformer.cli.trained import trained, wait_asleep
from plainformer.faults import refuse

EVERY = 5.0  # seconds between lines that say how far it is


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a run, a step's folder in it, or a folder with weights")
    parser.add_argument("text", metavar="TEXT", nargs="+", help="files, folders, patterns; .jsonl; .gz, .zst")
    text_arguments(parser)
    parser.add_argument(
        "--stride",
        type=int,
        metavar="N",
        help="start a block every N tokens, and score in each what none before it did (side by side: the context)",
    )
    parser.add_argument("--json", action="store_true", help="one object")


def teller(n_targets: int) -> Callable[[int], None]:
    """Says on stderr, now and then, how many targets are scored and how long the rest will take."""
    from plainformer.training.progress import clock

    begun = said = time.monotonic()

    def tell(done: int) -> None:
        nonlocal said
        now = time.monotonic()
        if now - said >= EVERY and done < n_targets:
            said = now
            left = (now - begun) / done * (n_targets - done)
            print(f"{done:,} of {n_targets:,} tokens  {clock(left)} left", file=sys.stderr, flush=True)

    return tell


def run(args: argparse.Namespace) -> int:
    wait_asleep()
    model, tokenizer = trained(args.model)

    import torch

    from plainformer.text import token_bytes, write_tokens
    from plainformer.text.encoding import end_id
    from plainformer.text.gathering import gathered
    from plainformer.text.pairs import open_pairs, write_pairs
    from plainformer.training import evaluate
    from plainformer.training.lanes import reading

    texts, end = gathered(args.text, args.field, args.documents), end_id(tokenizer)
    if end is None and texts.documents in ("ended", "apart"):
        if args.documents is not None:
            raise refuse("--documents", args.documents, "the model's tokenizer has no token that ends a document")
        texts = replace(texts, documents="joined")
    length_V, pairs = token_bytes(tokenizer), None
    with TemporaryDirectory() as folder:
        notice = lambda words: print(f"plainformer: {words}", file=sys.stderr)  # noqa: E731
        places, out = Path(folder) / "pairs.bin", Path(folder) / "tokens.bin"
        if texts.documents == "pairs":
            if args.stride is not None:
                raise refuse("--stride", args.stride, "is of blocks of a text: pairs stand each by itself")
            tokens_N = write_pairs(texts, tokenizer, out, places).tokens
            pairs = open_pairs(tokens_N, places)
        else:
            tokens_N = write_tokens(texts, tokenizer, out, notice=notice).tokens
        told = teller(len(tokens_N) - 1)
        apart = end if texts.documents == "apart" else None
        of_text = partial(evaluate, model, tokens_N, length_V, None, args.stride, end=apart, pairs=pairs)
        with reading(model.spec, torch.get_num_threads()) as lanes:
            found = of_text(progress=told, lanes=lanes)
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
        "context": f"{found.context:,} tokens, "
        + (f"a block every {found.stride:,}" if pairs is None else "each pair by itself, completions alone"),
    }
    for name, value in rows.items():
        print(f"{name:<12}{value}")
    return 0

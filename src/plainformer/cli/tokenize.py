"""`plainformer tokenize TEXT... --out DIR`: a text of any size as tokens, made once."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from plainformer.faults import refuse


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("text", metavar="TEXT", nargs="+", help="files, folders, patterns; .jsonl; .gz, .zst")
    parser.add_argument("--out", metavar="DIR", required=True, help="a new folder, or one that was begun")
    parser.add_argument("--tokenizer", metavar="KIND", help="characters, bytes or bpe:N (characters)")
    parser.add_argument("--from", dest="source", metavar="MODEL", help="the tokenizer of this model in its place")
    text_arguments(parser)
    parser.add_argument("--workers", type=int, metavar="N", help="processes that encode (by size and cores)")
    parser.add_argument("--json", action="store_true", help="what was made, as JSON")


def text_arguments(parser: argparse._ActionsContainer) -> None:
    """How files of text are read, for every command that reads them."""
    parser.add_argument("--field", metavar="NAME", help="of a row of .jsonl, the field that is its text (text)")
    parser.add_argument(
        "--documents",
        choices=("joined", "ended", "apart"),
        help="nothing between, an end token after each, or also nothing learned across (.jsonl: ended; else joined)",
    )


def run(args: argparse.Namespace) -> int:
    if args.source is not None and args.tokenizer is not None:
        raise refuse("--tokenizer", args.tokenizer, "cannot go with --from, which has its own", "leave one out")
    if args.workers is not None and args.workers < 1:
        raise refuse("--workers", args.workers, "must be at least 1")
    from plainformer.checkpoint.atomic import held
    from plainformer.text import Tokenizer
    from plainformer.text.gathering import gathered
    from plainformer.text.preparing import prepare
    from plainformer.training.progress import teller

    given: Tokenizer | None = None
    if args.source is not None:
        from plainformer.checkpoint import tokenizer_of

        given = tokenizer_of(args.source)
    texts = gathered(args.text, args.field, args.documents)
    notice = lambda words: print(f"plainformer: {words}", file=sys.stderr)  # noqa: E731
    kind = args.tokenizer or "characters"
    made, new = prepare(texts, Path(args.out), kind, notice, teller(), args.workers, given, held)
    facts = {"folder": args.out, "tokens": made.n_tokens, "bytes": made.n_bytes, "files": len(texts.files)}
    if args.json:
        print(json.dumps(facts | {"documents": texts.documents}))
    else:
        print(f"{made.n_tokens:,} tokens of {made.n_bytes:,} bytes in {len(texts.files):,} files")
    done = "done: plainformer train " if new else "nothing to do: plainformer train "
    print(f"plainformer: {done}{args.out} --out RUN", file=sys.stderr)
    return 0

"""`plainformer embed MODEL TEXT...`: a vector for each text."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from plainformer.cli.trained import trained, wait_asleep
from plainformer.faults import refuse

if TYPE_CHECKING:
    from plainformer.generation.encoders import Pool
    from plainformer.text import Tokenizer

WAYS = ("mean", "first", "last")
PACKED = {1: "mean", 2: "first", 3: "last"}  # as GGUF says it


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a folder with weights and a tokenizer, or a run")
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="one vector for each")
    parser.add_argument("--file", metavar="FILE", help="one text a line, after those that are given")
    parser.add_argument(
        "--pool",
        choices=WAYS,
        help="of all its tokens the mean, or its first or last token (as modules.json in the folder says, else mean)",
    )
    parser.add_argument("--normalize", action="store_true", help="of length 1, so that products are cosines")
    parser.add_argument("--json", action="store_true", help="one object: pool, width, rows of text, tokens and vector")
    parser.add_argument("--npz", metavar="FILE", help="write the arrays vectors and texts for NumPy instead")


def run(args: argparse.Namespace) -> int:
    if args.npz is not None and (args.json or not args.npz.endswith(".npz") or Path(args.npz).is_dir()):
        raise refuse("--npz", args.npz, "must be the name of a .npz file, without --json", "--npz vectors.npz")
    texts = list(texts_of(args))
    if not texts:
        raise refuse("TEXT", [], "there is nothing to read", "plainformer embed MODEL 'a text' 'another'")
    wait_asleep()
    from plainformer.checkpoint.sentences import sentences_of

    said = sentences_of(args.model)
    pool = pool_of(args, said.pools)
    model, tokenizer = trained(said.folder)
    import torch

    from plainformer.generation import vectors

    if said.prompt:
        print(f"each text begins with {said.prompt!r}", file=sys.stderr)
    most, normalized = min(said.most or model.spec.max_seq_len, model.spec.max_seq_len), args.normalize
    read = [(said.prompt + text).lower() if said.lower else said.prompt + text for text in texts]
    rows = [tokens_of(tokenizer, text, most) for text in read]
    x_ND = torch.from_numpy(vectors(model, rows, pool))
    with torch.inference_mode():
        for step in said.steps:
            x_ND = step(x_ND)
        x_ND = torch.nn.functional.normalize(x_ND, dim=-1) if normalized and not said.normalized else x_ND
    found, normalized = x_ND.numpy(), normalized or said.normalized
    print(f"{len(rows)} texts, {found.shape[1]} numbers each, pool {pool}", file=sys.stderr)
    if args.npz:
        import numpy as np

        from plainformer.text.files import written_beside

        with written_beside(Path(args.npz)) as file:
            np.savez(file, vectors=found, texts=np.array(texts))
    elif args.json:
        told: list[dict[str, Any]] = [
            {"text": text, "tokens": row, "vector": vector.tolist()}
            for text, row, vector in zip(texts, rows, found, strict=True)
        ]
        print(json.dumps({"pool": pool, "normalized": normalized, "width": found.shape[1], "rows": told}))
    else:
        for vector in found.tolist():
            print(" ".join(f"{number:.6g}" for number in vector))
    return 0


def texts_of(args: argparse.Namespace) -> Iterator[str]:
    yield from args.texts
    if args.file is not None:
        from plainformer.text import read_text

        yield from "".join(read_text(Path(args.file), lambda line: print(line, file=sys.stderr))).splitlines()


def tokens_of(tokenizer: Tokenizer, text: str, most: int) -> list[int]:
    """A text between its publisher's control tokens; of one that is too long the beginning, and it is told."""
    ids = tokenizer.encode(text).tolist()
    n_around = sum(map(len, tokenizer.around))
    if len(ids) + n_around > most:
        print(f"{text[:40]!r}...: {len(ids) + n_around:,} tokens, only the first {most:,} are read", file=sys.stderr)
    row = tokenizer.frame(ids[: most - n_around]).tolist()
    return row or [tokenizer.start_id]


def pool_of(args: argparse.Namespace, said: tuple[str, ...]) -> Pool:
    """The way of pooling that is asked for, or that the folder or the file says, or the mean."""
    if args.model.endswith(".gguf"):
        from plainformer.huggingface.gguf_header import read_gguf

        keys = read_gguf(args.model).keys
        kind = keys.get(f"{keys.get('general.architecture')}.pooling_type")
        said = (PACKED[kind],) if isinstance(kind, int) and kind in PACKED else ()
    said = (args.pool,) if args.pool else said
    if len(said) > 1 or set(said) - set(WAYS):
        raise refuse(f"{args.model}: pooling", sorted(said), "is no way of pooling that is known", "give --pool")
    return cast("Pool", next(iter(said), "mean"))

"""`plainformer embed MODEL TEXT...`: a vector for each text."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plainformer.cli.trained import trained, wait_asleep
from plainformer.faults import refuse

if TYPE_CHECKING:
    from plainformer.text import Tokenizer

POOLS = {"pooling_mode_cls_token": "first", "pooling_mode_mean_tokens": "mean", "pooling_mode_lasttoken": "last"}

PACKED = {1: "pooling_mode_mean_tokens", 2: "pooling_mode_cls_token", 3: "pooling_mode_lasttoken"}  # as GGUF says it


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a folder with weights and a tokenizer, or a run")
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="one vector for each")
    parser.add_argument("--file", metavar="FILE", help="one text a line, after those that are given")
    parser.add_argument(
        "--pool",
        choices=("mean", "first", "last"),
        help="of all its tokens the mean, or its first or last token (as 1_Pooling in the folder says, else mean)",
    )
    parser.add_argument("--normalize", action="store_true", help="of length 1, so that products are cosines")
    parser.add_argument("--json", action="store_true", help="one object: pool, width, rows of text, tokens and vector")
    parser.add_argument("--npz", metavar="FILE", help="write the arrays vectors and texts for NumPy instead")


def run(args: argparse.Namespace) -> int:
    if args.npz is not None and (args.json or not args.npz or Path(args.npz).is_dir()):
        raise refuse("--npz", args.npz, "must be the name of a file, and goes without --json", "--npz vectors.npz")
    texts = list(texts_of(args))
    if not texts:
        raise refuse("TEXT", [], "there is nothing to read", "plainformer embed MODEL 'a text' 'another'")
    wait_asleep()
    model, tokenizer = trained(args.model)
    from plainformer.generation import vectors

    pool, normalized, most = said_by(Path(args.model), args.pool, model.spec.max_seq_len)
    normalized = args.normalize or normalized
    rows = [tokens_of(tokenizer, text, most) for text in texts]
    found = vectors(model, rows, pool, normalized)  # type: ignore[arg-type]
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


def said_by(folder: Path, pool: str | None, max_seq_len: int) -> tuple[str, bool, int]:
    """(pool unless given, whether vectors have length 1, most tokens), as a folder of sentence-transformers says."""
    from plainformer.huggingface.json_files import read_object

    def beside(name: str) -> dict[str, Any]:
        path = str(folder / name)
        return read_object(path, path) if os.path.isfile(path) else {}

    said = beside("1_Pooling/config.json")
    if str(folder).endswith(".gguf"):
        from plainformer.huggingface.gguf_header import read_gguf

        keys = read_gguf(str(folder)).keys
        kind = keys.get(f"{keys.get('general.architecture')}.pooling_type")
        said = {PACKED[kind]: True} if isinstance(kind, int) and kind in PACKED else {}
    chosen = (
        {pool}
        if pool
        else {POOLS.get(key, key) for key, value in said.items() if key.startswith("pooling_mode_") and value is True}
    )
    if len(chosen) > 1 or chosen - set(POOLS.values()):
        raise refuse(str(folder / "1_Pooling"), sorted(chosen), "is no way of pooling that is known", "give --pool")
    most = beside("sentence_bert_config.json").get("max_seq_length")
    return (
        next(iter(chosen), "mean"),
        (folder / "2_Normalize").is_dir(),
        min(most, max_seq_len) if isinstance(most, int) and most > 2 else max_seq_len,
    )

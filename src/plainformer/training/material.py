"""What a run learns from, in its folder: tokenizer.json, tokens.bin, and pairs.bin where there are pairs."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plainformer.faults import refuse
from plainformer.text import TokenFile, Tokenizer, read_bytes, split, write_tokens
from plainformer.text.encoding import check_end, end_id
from plainformer.text.gathering import gathered
from plainformer.text.pairs import Pairs, open_pairs, write_pairs
from plainformer.text.preparing import TOKENS as PREPARED
from plainformer.text.preparing import facts_of, is_prepared, tokenizer_for
from plainformer.text.reading import Documents, Texts, total_bytes
from plainformer.training.progress import teller

TOKENS, PAIRS = "tokens.bin", "pairs.bin"
LONG_BYTES = 50_000_000  # a text that takes seconds to read
TOKENIZER, VALIDATION = "characters", 0.1
Words = Sequence[str | Path]
Asked = Mapping[str, Any]


def tell(words: str) -> None:
    print(f"plainformer: {words}", file=sys.stderr)


@dataclass(frozen=True)
class Text:
    """What is known of the text once it is tokens. pairs: how many train and validate, where it is made of pairs."""

    n_tokens: int
    n_train: int
    n_validation: int
    vocab_size: int
    documents: Documents = "joined"
    field: str = "text"
    pairs: tuple[int, int] | None = None


def texts_of(words: Words, asked: Asked) -> Texts:
    return gathered(words, asked.get("field"), asked.get("documents"))


def taken_in(words: Words, asked: Asked, folder: Path, given: Tokenizer | None = None) -> tuple[Tokenizer, Text]:
    """Write a run's tokenizer.json and tokens into a folder. given: the tokenizer of the model it begins from."""
    share = asked.get("validation", VALIDATION)
    if len(words) == 1 and is_prepared(words[0]):
        return prepared(Path(words[0]), asked, folder, given, share)
    texts = texts_of(words, asked)
    if (size := total_bytes(texts)) > LONG_BYTES and given is None:
        tell(f"reading {size:,} bytes for a tokenizer")
    tokenizer = given or tokenizer_for(texts, asked.get("tokenizer", TOKENIZER), tell)
    check_end(texts.documents, tokenizer)
    if texts.documents == "pairs" and end_id(tokenizer) is None:
        tell("the tokenizer has no end token: completions end without one")
    tokenizer.save(folder / "tokenizer.json")
    tokens = folder / TOKENS
    if texts.documents == "pairs":
        n_tokens = write_pairs(texts, tokenizer, tokens, folder / PAIRS).n_tokens
        n_train, n_validation = split_pairs(folder, tokenizer, share)
        pairs = (len(n_train), len(n_validation))
        more = texts.documents, texts.field, pairs
        return tokenizer, Text(n_tokens, pairs[0], pairs[1], tokenizer.n_tokens, *more)
    n_tokens = write_tokens(texts, tokenizer, tokens, teller(), tell).n_tokens
    train, validation = split(n_tokens, share)
    return tokenizer, Text(n_tokens, len(train), len(validation), tokenizer.n_tokens, texts.documents, texts.field)


def prepared(source: Path, asked: Asked, folder: Path, given: Tokenizer | None, share: float) -> tuple[Tokenizer, Text]:
    """The tokens that `plainformer tokenize` made: linked to where the disk can, else copied."""
    for name in ("tokenizer", "field", "documents"):
        if name in asked:
            raise refuse(f"--{name}", asked[name], "was decided when the tokens were made", "leave it out")
    tokenizer, plan = Tokenizer.load(source), facts_of(source)["plan"]
    if given is not None and given.sha256 != tokenizer.sha256:
        raise refuse("TEXT", str(source), "was made by another tokenizer than the model's", "tokenize it with --from")
    check_end(plan["documents"], tokenizer, "tokenize it again with --documents joined")
    made = TokenFile.open(source / PREPARED, tokenizer)
    with suppress(OSError):
        os.link(source / PREPARED, folder / TOKENS)
    if not (folder / TOKENS).exists():
        try:
            shutil.copyfile(source / PREPARED, folder / TOKENS)
        except OSError as error:
            raise refuse(str(folder / TOKENS), error.strerror, "the tokens cannot be copied here") from None
    tokenizer.save(folder / "tokenizer.json")
    train, validation = split(made.n_tokens, share)
    sizes = made.n_tokens, len(train), len(validation), tokenizer.n_tokens
    return tokenizer, Text(*sizes, plan["documents"], plan["field"])


def pairs_of(folder: Path, tokens: TokenFile) -> Pairs:
    return open_pairs(tokens.tokens, folder / PAIRS)


def split_pairs(folder: Path, tokenizer: Tokenizer, share: float) -> tuple[range, range]:
    """Which pairs train and which validate: the last `share` of them validate."""
    return split(len(pairs_of(folder, TokenFile.open(folder / TOKENS, tokenizer))), share)


def facts(words: Words, asked: Asked) -> list[dict[str, Any]]:
    """Each file's name, size and the SHA-256 of what is in it."""
    if len(words) == 1 and is_prepared(words[0]):
        files: Sequence[Path] = [Path(words[0]) / PREPARED]
    else:
        files = texts_of(words, asked).files
    found = []
    for file in files:
        total = hashlib.sha256()
        for block in read_bytes(file):
            total.update(block)
        found.append({"file": str(file), "bytes": total_bytes(file), "sha256": total.hexdigest()})
    return found

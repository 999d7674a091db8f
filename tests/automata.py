"""Models by hand whose every output is known: the scores of the next token depend on the last token alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from plainformer import presets
from plainformer import spec as s
from plainformer.checkpoint import save_step
from plainformer.families import decoders
from plainformer.model import Transformer
from plainformer.text import Tokenizer
from plainformer.text.tokenizers import byte_names, file_text, from_file_text
from plainformer.tree import to_json

UNICODE = "A éB🐕C中D"  # one, two, three and four bytes a character, none twice
UNSEEN = -50.0  # the score of what never comes


def automaton(scores_VV: np.ndarray, max_seq_len: int = 64, n_rows: int | None = None) -> Transformer:
    """A decoder that scores the token after t as scores_VV[t]: one-hot rows pass through layers that add nothing.

    n_rows: rows of the head, more than there are tokens; those beyond get the highest score of all.
    """
    n = len(scores_VV)
    n_rows = n_rows or n
    spec = decoders.gpt2(
        vocab_size=n_rows, max_seq_len=max_seq_len, d_model=n_rows, n_layers=1, n_heads=1, d_ff=1, tied=False
    )
    assert spec.decoder is not None
    spec = replace(spec, decoder=replace(spec.decoder, norm_last=None))
    model = Transformer(spec, initial=None)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.weight.copy_(torch.eye(n_rows))
        model.head.weight.fill_(1000.0)
        model.head.weight[:n, :n] = torch.tensor(scores_VV.T)
    return model


def chain(next_of: Mapping[int, int], n: int, max_seq_len: int = 64) -> Transformer:
    """After token t comes next_of[t], with all but certainty."""
    scores_VV = np.full((n, n), -5.0)
    for token, follows in next_of.items():
        scores_VV[token, follows] = 5.0
    return automaton(scores_VV, max_seq_len)


COIN = "SabcdefgT"  # after anything: a .45 b .30 c .17 d .08, all scores below -20
COIN_ODDS = np.array([0, 0.45, 0.30, 0.17, 0.08, 0, 0, 0, 0])


def coin(max_seq_len: int = 64) -> Transformer:
    with np.errstate(divide="ignore"):
        scores_V = np.where(COIN_ODDS > 0, np.log(COIN_ODDS) - 20, UNSEEN)
    return automaton(np.tile(scores_V, (len(scores_V), 1)), max_seq_len)


def characters(letters: str) -> Tokenizer:
    """A tokenizer of these characters, numbered in this order."""
    return from_file_text(file_text("characters", letters), "letters")


def bytes_and_end(end: str = "<|endoftext|>") -> Tokenizer:
    """The 256 bytes, and one control token, 256."""
    content = json.loads(file_text("bytes", byte_names()))
    content["added_tokens"] = [{"id": 256, "content": end, "special": True}]
    return from_file_text(json.dumps(content), "bytes and an end")


def text_chain(text: str, end: int | None = 256, n: int = 257, max_seq_len: int = 64) -> Transformer:
    """After the first byte of `text` comes its second, and so on; after the last, `end`. No byte may come twice."""
    raw = text.encode()
    assert len(set(raw)) == len(raw)
    next_of = dict(pairwise(raw))
    if end is not None:
        next_of[raw[-1]] = end
    return chain(next_of, n, max_seq_len)


def run_folder(folder: Path, model: Transformer, tokenizer: Tokenizer) -> str:
    """A run as training leaves it, with this model as its newest step."""
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    (folder / "spec.json").write_text(json.dumps(to_json(model.spec)))
    tokenizer.save(folder / "tokenizer.json")
    save_step(folder, 1, model, {}, {})
    return str(folder)


def tiny_spec(vocab_size: int = 23, **sizes: int) -> s.Spec:
    return presets.trainable("tiny", vocab_size=vocab_size, max_seq_len=32, d_model=24, **sizes)

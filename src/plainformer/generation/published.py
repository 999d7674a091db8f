"""How a published folder has its model write: generation_config.json, or the same keys of its config.json."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from plainformer.faults import refuse
from plainformer.generation.beams import Beams
from plainformer.generation.rules import Rules
from plainformer.huggingface.gguf_header import read_gguf
from plainformer.huggingface.json_files import finite, read_object
from plainformer.text.one_file import stops

FILE = "generation_config.json"
UNFOLLOWED: tuple[str, ...] = (
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "sequence_bias",
)
UNFOLLOWED += ("exponential_decay_length_penalty", "guidance_scale")
UNFOLLOWED += ("diversity_penalty", "num_beam_groups", "penalty_alpha", "typical_p", "epsilon_cutoff", "eta_cutoff")


@dataclass(frozen=True)
class Published:
    """start: the token that an encoder-decoder's text begins with. stop_ids: those that end one."""

    start: int | None = None
    stop_ids: tuple[int, ...] = ()
    rules: Rules = field(default_factory=Rules)
    beams: Beams = field(default_factory=lambda: Beams(n_beams=1))
    unfollowed: tuple[str, ...] = ()  # keys that would change what is written, and for which there is no rule here


def published(folder: str | Path) -> Published:
    """Read it; a folder without either file says nothing, and a GGUF file which tokens end a text. Refused by file and
    key: a value of another kind."""
    if os.path.isfile(folder) and str(folder).endswith(".gguf"):
        return Published(stop_ids=stops(read_gguf(str(folder)).keys))
    folder = Path(folder).parent if os.path.isfile(folder) else Path(folder)
    path = next((p for name in (FILE, "config.json") if os.path.isfile(p := folder / name)), None)
    if path is None:
        return Published()
    said = Said(str(path), read_object(str(path), str(path)))
    start = said.number("decoder_start_token_id")
    if start is None and path.name == FILE and os.path.isfile(folder / "config.json"):
        beside = str(folder / "config.json")
        start = Said(beside, read_object(beside, beside)).number("decoder_start_token_id")
    stop_ids = said.numbers("eos_token_id")
    rules = Rules(
        repetition_penalty=said.real("repetition_penalty", 1.0),
        no_repeat=said.number("no_repeat_ngram_size") or 0,
        min_length=said.number("min_length") or 0,
        min_new=said.number("min_new_tokens") or 0,
        first=said.number("forced_bos_token_id"),
        last=said.number("forced_eos_token_id"),
        never=(*said.numbers("suppress_tokens"), *(word for word in said.bad_words() if word not in stop_ids)),
        not_first=said.numbers("begin_suppress_tokens"),
        renormalised=said.keys.get("renormalize_logits") is True,
    )
    stopping = said.keys.get("early_stopping") or False
    early: bool | Literal["never"] = "never" if stopping == "never" else bool(stopping)
    beams = Beams(
        n_beams=said.number("num_beams") or 1, length_penalty=said.real("length_penalty", 1.0), early_stopping=early
    )
    start = said.number("bos_token_id") if start is None else start
    return Published(start, stop_ids, rules, beams, tuple(said.unfollowed()))


@dataclass(frozen=True)
class Said:
    """A file's keys, asked for by the kind of value that they must have."""

    file: str
    keys: Mapping[str, Any]

    def number(self, key: str) -> int | None:
        """A whole number; of a list the first; None where nothing is said."""
        return next(iter(self.numbers(key)), None)

    def numbers(self, key: str) -> tuple[int, ...]:
        value = self.keys.get(key)
        found = value if isinstance(value, list) else [] if value is None else [value]
        if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in found):
            raise refuse(f"{self.file}: {key}", value, "must be a whole number of at least 0, or a list of them")
        return tuple(found)

    def bad_words(self) -> list[int | tuple[int, ...]]:
        """Ids, and runs of them. An end of text among them is no bad word: transformers passes over it too."""
        words = self.keys.get("bad_words_ids") or []
        whole = isinstance(words, list) and all(isinstance(word, list) and word for word in words)
        if not whole or not all(type(i) is int and i >= 0 for word in words for i in word):
            raise refuse(f"{self.file}: bad_words_ids", words, "must be a list of lists of tokens")
        return [word[0] if len(word) == 1 else tuple(word) for word in words]

    def unfollowed(self) -> Iterator[str]:
        for key in UNFOLLOWED:
            value = self.keys.get(key)
            if value is True or (value is not None and value not in (0, 1, [])):
                yield key

    def real(self, key: str, unsaid: float) -> float:
        value = self.keys.get(key)
        if value is None:
            return unsaid
        if not finite(value):
            raise refuse(f"{self.file}: {key}", value, "must be a finite number")
        return float(value)

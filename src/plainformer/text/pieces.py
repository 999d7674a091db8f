"""What published forms of a tokenizer have in common: pieces with scores, control tokens around a text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plainformer.faults import refuse
from plainformer.huggingface.json_files import n_values
from plainformer.text.reading import unreadable

Content = dict[str, Any]
MOST = 64_000_000  # bytes of one file; the largest that are published have some 35 million
MOST_VALUES = 4_000_000  # of a JSON file
QWEN = (  # Qwen2's words: one digit at a time, line ends apart
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


NORMAL, UNKNOWN, CONTROL, DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE = 1, 2


def read(file: Path) -> bytes:
    """A file's bytes; refused by name where it cannot be read, or is larger than any tokenizer."""
    try:
        if (size := os.path.getsize(file)) > MOST:
            raise refuse(str(file), size, f"is over {MOST:,} bytes: no tokenizer's")
        text = file.read_bytes()
        if text.count(b"\n") > MOST_VALUES or (file.suffix == ".json" and n_values(text) > MOST_VALUES):
            raise refuse(str(file), size, f"holds over {MOST_VALUES:,} values or lines: no tokenizer's")
        return text
    except OSError as error:
        raise unreadable(file, error) from None


def template(before: Mapping[str, int], after: Mapping[str, int]) -> Content | None:
    """Control tokens around every text."""
    if not before and not after:
        return None
    mark = [{"SpecialToken": {"id": text, "type_id": 0}} for text in before]
    marks = [{"SpecialToken": {"id": text, "type_id": 0}} for text in after]
    tokens = {text: {"id": text, "ids": [n], "tokens": [text]} for text, n in (dict(before) | dict(after)).items()}
    pair = [*mark, {"Sequence": {"id": "A", "type_id": 0}}, *marks]
    more = [{"Sequence": {"id": "B", "type_id": 1}}, *({"SpecialToken": {"id": t, "type_id": 1}} for t in after)]
    return {"type": "TemplateProcessing", "single": pair, "pair": pair + more, "special_tokens": tokens}


def whole(model: Content, **parts: Any) -> Content:
    empty = dict.fromkeys(("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder"))
    return {"version": "1.0", "added_tokens": [], **empty, **parts, "model": model}


def of_pieces(
    pieces: list[tuple[str, float, int]], kind: int, prefix: bool, ready: list[Content], by_bytes: bool
) -> Content:
    """Pieces with scores as a tokenizer.json: unigrams as they are, BPE by the merges that make each piece."""
    ready = [*ready, *([{"type": "Prepend", "prepend": "▁"}] if prefix else [])]
    ready.append({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
    unknown = next((i for i, (_, _, sort) in enumerate(pieces) if sort == UNKNOWN), None)
    if kind == UNIGRAM:
        model: Content = {"type": "Unigram", "unk_id": unknown, "byte_fallback": by_bytes}
        low = min(score for _, score, _ in pieces) - 1e4  # what no text may become is worth less than anything
        vocab: Any = [[text, score if sort in (NORMAL, DEFINED) else low] for text, score, sort in pieces]
    else:
        model = {"type": "BPE", "dropout": None, "unk_token": None if unknown is None else pieces[unknown][0]}
        model |= {"fuse_unk": True, "byte_fallback": by_bytes, "ignore_merges": False}
        model["merges"] = merges({text: score for text, score, sort in pieces if sort == NORMAL})
        vocab = {text: i for i, (text, _, _) in enumerate(pieces)}
    decoder: list[Content] = [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}]
    decoder += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    decoder += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if prefix else []
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    marked = {CONTROL: True, UNKNOWN: True, DEFINED: False}
    return whole(
        model | {"vocab": vocab},
        normalizer={"type": "Sequence", "normalizers": ready},
        decoder={"type": "Sequence", "decoders": decoder},
        added_tokens=[
            {"id": i, "content": text, "special": marked[sort], **flags}
            for i, (text, _, sort) in enumerate(pieces)
            if sort in marked
        ],
    )


def wordpieces(
    vocab: Mapping[str, int],
    unknown: str,
    before: Mapping[str, int],
    after: Mapping[str, int],
    lower: bool,
    **normal: Any,
) -> Content:
    """BERT's form: pieces that go on inside a word begin with ##. normal: of the normalizer, what is not as usual."""
    model = {"type": "WordPiece", "unk_token": unknown, "continuing_subword_prefix": "##"}
    return whole(
        model | {"max_input_chars_per_word": 100, "vocab": vocab},
        normalizer={"type": "BertNormalizer", "clean_text": True, "strip_accents": None, "handle_chinese_chars": True}
        | normal
        | {"lowercase": lower},
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        post_processor=template(before, after),
    )


def merges(scores: Mapping[str, float]) -> list[list[str]]:
    """Every way to make a piece of two others, the best piece first; of pieces as good the one that is listed first."""
    numbers = {text: i for i, text in enumerate(scores)}
    found: list[tuple[float, int, int, list[str]]] = []
    for text, score in scores.items():
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in numbers and right in numbers:
                found.append((-score, numbers[text], numbers[left], [left, right]))
    return [pair for *_, pair in sorted(found)]

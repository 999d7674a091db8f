"""Tokenizers that come in one file with, or made for, a model's: llama2.c's, and a GGUF file's keys."""

from __future__ import annotations

import struct
from pathlib import Path

from plainformer.faults import refuse
from plainformer.huggingface.gguf_header import read_gguf
from plainformer.text.pieces import (
    BPE,
    BYTE,
    CONTROL,
    DEFINED,
    NORMAL,
    QWEN,
    UNKNOWN,
    Content,
    of_pieces,
    read,
    template,
    whole,
)

LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")  # up to three digits together
CUTS = {"default": None, "gpt-2": None, "qwen2": QWEN, "llama-bpe": LLAMA3}


def llama2c(file: Path) -> Content:
    """llama2.c's file: the longest piece's length, then for each a score, a length and its bytes."""
    data, at, pieces = read(file), 4, list[tuple[str, float, int]]()
    while at + 8 <= len(data):
        score, size = struct.unpack_from("<fi", data, at)
        if size < 0 or at + 8 + size > len(data):
            raise refuse(str(file), at, "is cut short, or no tokenizer of llama2.c")
        text = data[at + 8 : at + 8 + size].decode()
        number = len(pieces)
        name = {0: "<unk>", 1: "<s>", 2: "</s>"}.get(number, text.replace(" ", "▁"))
        sort = UNKNOWN if number == 0 else CONTROL if number < 3 else BYTE if number < 259 else NORMAL
        pieces.append((name, score, sort))
        at += 8 + size
    if at != len(data) or len(pieces) < 259 or pieces[3][0] != "<0x00>":
        raise refuse(str(file), len(pieces), "is cut short, or no tokenizer of llama2.c")
    return of_pieces(pieces, BPE, True, [], True) | {"post_processor": template({"<s>": 1}, {})}


def gguf(file: Path) -> Content:
    """The tokenizer in a file's keys: SentencePiece's BPE ("llama") or byte-level BPE ("gpt2")."""
    keys = read_gguf(str(file)).keys
    kind, tokens, sorts = (keys.get(f"tokenizer.ggml.{name}") for name in ("model", "tokens", "token_type"))
    if not isinstance(tokens, list) or kind not in ("llama", "gpt2"):
        raise refuse(f"{file}: tokenizer.ggml.model", kind, "is no tokenizer that is read here", "llama and gpt2 are")
    sorts = sorts if isinstance(sorts, list) else [NORMAL] * len(tokens)
    first = keys.get("tokenizer.ggml.bos_token_id")
    starts = keys.get("tokenizer.ggml.add_bos_token", kind == "llama") and isinstance(first, int)
    around = template({tokens[first]: first}, {}) if starts and isinstance(first, int) else None
    if kind == "llama":
        pieces = list(zip(tokens, keys["tokenizer.ggml.scores"], sorts, strict=True))
        prefix = bool(keys.get("tokenizer.ggml.add_space_prefix", True))
        return of_pieces(pieces, BPE, prefix, [], BYTE in sorts) | {"post_processor": around}
    cut = keys.get("tokenizer.ggml.pre", "default")
    if cut not in CUTS:
        raise refuse(f"{file}: tokenizer.ggml.pre", cut, "is no way to cut words that is known here")
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": CUTS[cut] is None}
    split = {"type": "Split", "pattern": {"Regex": CUTS[cut]}, "behavior": "Isolated", "invert": False}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "vocab": {text: i for i, text in enumerate(tokens)}}
    model |= {"ignore_merges": cut == "llama-bpe"}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return whole(
        model | {"merges": [pair.split(" ") for pair in keys["tokenizer.ggml.merges"]]},
        normalizer={"type": "NFC"} if cut == "qwen2" else None,
        pre_tokenizer=level if CUTS[cut] is None else {"type": "Sequence", "pretokenizers": [split, level]},
        decoder=level | {"use_regex": True},
        post_processor=around,
        added_tokens=[
            {"id": i, "content": text, "special": sort == CONTROL, **flags}
            for i, (text, sort) in enumerate(zip(tokens, sorts, strict=True))
            if sort in (CONTROL, DEFINED)
        ],
    )

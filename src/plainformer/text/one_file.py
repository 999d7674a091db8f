"""Tokenizers that come in one file with, or made for, a model's: llama2.c's, and a GGUF file's keys."""

from __future__ import annotations

import struct
from pathlib import Path

from plainformer.faults import refuse
from plainformer.huggingface.gguf_header import read_gguf
from plainformer.text.beside import FLAGS
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
    wordpieces,
)

LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")  # up to three digits together
WORDS: dict[str, str] = {  # how text is cut before merges are made, by llama.cpp's names of those who cut so
    **dict.fromkeys(("default", "gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe"), "gpt-2"),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"), "digits"),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), "qwen2"),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), "llama-3"),
}
ENDS = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "sep_token": "seperator",
    "pad_token": "padding",
}
ENDS |= {"cls_token": "cls", "mask_token": "mask"}
STOPS = ("eos", "eot", "eom")


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
    if not isinstance(tokens, list) or kind not in ("llama", "gpt2", "bert"):
        hint = "llama, gpt2 and bert are"
        raise refuse(f"{file}: tokenizer.ggml.model", kind, "is no tokenizer that is read here", hint)
    sorts = list(sorts) if isinstance(sorts, list) else [NORMAL] * len(tokens)
    if kind == "bert":
        return words(keys, str(file))
    cut = WORDS.get(str(keys.get("tokenizer.ggml.pre", "default")))
    if kind == "gpt2" and cut is None:
        raise refuse(
            f"{file}: tokenizer.ggml.pre", keys["tokenizer.ggml.pre"], "is no way to cut words that is known here"
        )
    starts = keys.get("tokenizer.ggml.add_bos_token", kind == "llama" or cut == "llama-3")
    before, after = (
        {tokens[i]: i} if asked and (i := number(keys, name)) is not None else {}
        for name, asked in (("bos", starts), ("eos", keys.get("tokenizer.ggml.add_eos_token")))
    )
    around = template(before, after)
    if kind == "llama":
        pieces = list(zip(tokens, keys["tokenizer.ggml.scores"], sorts, strict=True))
        prefix = bool(keys.get("tokenizer.ggml.add_space_prefix", True))
        return of_pieces(pieces, BPE, prefix, [], BYTE in sorts) | {"post_processor": around}
    for i in (i for name in (*ENDS.values(), *STOPS) if (i := number(keys, name)) is not None):
        sorts[i] = CONTROL  # old files say of them that they are text
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level["use_regex"] = cut in ("gpt-2", "digits")
    split: Content = {"type": "Digits", "individual_digits": True}
    if cut != "digits":
        pattern = {"Regex": QWEN if cut == "qwen2" else LLAMA3}
        split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    model: Content = {"type": "BPE", "dropout": None, "unk_token": None}
    model["vocab"] = {text: i for i, text in enumerate(tokens)}
    model |= {"ignore_merges": cut == "llama-3"}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return whole(
        model | {"merges": [pair.split(" ") for pair in keys.get("tokenizer.ggml.merges", [])]},
        normalizer={"type": "NFC"} if cut == "qwen2" else None,
        pre_tokenizer=level if cut == "gpt-2" else {"type": "Sequence", "pretokenizers": [split, level]},
        decoder=level | {"use_regex": True},
        post_processor=around,
        added_tokens=[
            {"id": i, "content": text, "special": sort == CONTROL, **flags}
            for i, (text, sort) in enumerate(zip(tokens, sorts, strict=True))
            if sort in (CONTROL, DEFINED)
        ],
    )


def words(keys: Content, where: str) -> Content:
    """BERT's pieces, where those that begin a word are marked, not those that go on inside one: small letters, as
    llama.cpp reads them all."""
    sorts = keys.get("tokenizer.ggml.token_type") or []
    marks = {i for i, sort in enumerate(sorts) if sort == CONTROL}
    marks |= {i for name in ENDS.values() if (i := number(keys, name)) is not None}
    first, last = number(keys, "cls"), number(keys, "seperator")
    first = number(keys, "bos") if first is None else first
    unknown = number(keys, "unknown")
    if first is None or last is None or unknown is None:
        raise refuse(where, None, "names no tokens before and after a text, or none for what is unknown")
    vocab: dict[str, int] = {}
    for i, text in enumerate(keys["tokenizer.ggml.tokens"]):
        plain = text if i in marks else text[1:] if text.startswith("\u2581") else f"##{text}"
        vocab.setdefault(plain, i)
    names = {i: text for text, i in vocab.items()}
    return wordpieces(vocab, names[unknown], {names[first]: first}, {names[last]: last}, True) | {
        "added_tokens": [
            {"id": i, "content": names[i], "special": True, **dict.fromkeys(FLAGS, False)} for i in sorted(marks)
        ]
    }


def number(keys: Content, name: str) -> int | None:
    """The id that a file's keys give a control token; None where they name none, or one that there is not."""
    found, tokens = keys.get(f"tokenizer.ggml.{name}_token_id"), keys.get("tokenizer.ggml.tokens")
    return found if isinstance(found, int) and isinstance(tokens, list) and found < len(tokens) else None


def named(keys: Content) -> dict[str, str]:
    """What the file calls its control tokens, by the names of a published folder."""
    found = {name: number(keys, key) for name, key in ENDS.items()}
    return {name: keys["tokenizer.ggml.tokens"][i] for name, i in found.items() if i is not None}


def stops(keys: Content) -> tuple[int, ...]:
    """The ids with which a text, an answer or a message ends."""
    return tuple(dict.fromkeys(i for name in STOPS if (i := number(keys, name)) is not None))

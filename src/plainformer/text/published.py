"""Tokenizers as published, each into one kind of file: the tokenizer.json that the tokenizers library reads.

| files | what they are |
|---|---|
| tokenizer.json | itself |
| vocab.json, merges.txt | byte-level BPE (GPT-2, RoBERTa, BART, Qwen2) |
| tokenizer.model, spiece.model | SentencePiece, BPE or unigram (Llama, Mistral, Gemma, T5, ALBERT) |
| vocab.txt | WordPiece (BERT, DistilBERT) |
| tokenizer.bin | llama2.c: pieces and their scores |
| *.gguf | any of them, as the file's keys say it |
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from plainformer.faults import PlainformerError, refuse
from plainformer.text.one_file import gguf, llama2c
from plainformer.text.pieces import (
    BPE,
    CONTROL,
    NORMAL,
    QWEN,
    UNIGRAM,
    Content,
    of_pieces,
    read,
    template,
    whole,
)

GPT2_LIKE = (None, "GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "PreTrainedTokenizer", "TokenizersBackend")
BERT_LIKE = (None, "BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "TokenizersBackend")
PIECE_LIKE = (None, "LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "T5Tokenizer", "AlbertTokenizer")
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def content_of(path: Path) -> tuple[str, str]:
    """(the text of a tokenizer.json, what it was read from): from a file, or from what a folder holds."""
    if os.path.isfile(path) and path.suffix == ".json":
        return read(path).decode(), str(path)
    folder = path if os.path.isdir(path) else path.parent
    if os.path.isfile(path):
        forms = {path.name: bytes_form(path)}
    elif path != folder and path.name != "tokenizer.json":
        read(path)  # refuses it by its name
        forms = {}
    else:
        forms = {
            "tokenizer.json": lambda: read(folder / "tokenizer.json").decode(),
            "vocab.json": lambda: dumped(byte_level(folder)),
            **{name: bytes_form(folder / name) for name in ("tokenizer.model", "spiece.model")},
            "sentencepiece.bpe.model": bytes_form(folder / "sentencepiece.bpe.model"),
            **{name: bytes_form(folder / name) for name in ("vocab.txt", "tokenizer.bin")},
        }
    for name, make in forms.items():
        if os.path.isfile(folder / name):
            return make(), str(folder / name)
    raise refuse(str(path), None, "there is no tokenizer here", f"it may be {', '.join(forms)}")


def bytes_form(file: Path) -> Any:
    def make() -> str:
        try:
            return made()
        except PlainformerError:
            raise
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, struct.error, RecursionError) as error:
            raise refuse(str(file), str(error)[:120], "this file is damaged, or another kind of file") from None

    def made() -> str:
        if file.suffix == ".model":
            return dumped(sentencepiece(file))
        if file.suffix == ".txt":
            return dumped(wordpiece(file))
        if file.suffix == ".bin":
            return dumped(llama2c(file))
        if file.suffix == ".gguf":
            return dumped(gguf(file))
        raise refuse(str(file), file.suffix, "is no kind of tokenizer's file that is known here")

    return make


def dumped(content: Content) -> str:
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


# --- what stands beside -----------------------------------------------------------------------------------------------


def beside(folder: Path, name: str) -> Content:
    """A JSON object in the folder; empty where there is none."""
    if not os.path.isfile(folder / name):
        return {}
    data = json.loads(read(folder / name).decode())
    return data if isinstance(data, dict) else {}


def named_tokens(folder: Path) -> dict[str, str]:
    """{"bos_token": "<s>", ...}: what a folder calls its control tokens."""
    said = beside(folder, "special_tokens_map.json") | beside(folder, "tokenizer_config.json")
    found = {name: one["content"] if isinstance(one := said.get(name), dict) else one for name in NAMED}
    return {name: text for name, text in found.items() if isinstance(text, str)}


def chat_template(folder: Path) -> str | None:
    """The template of a folder's chats; of several the one named default."""
    if os.path.isfile(folder / "chat_template.jinja"):
        return read(folder / "chat_template.jinja").decode()
    said = beside(folder, "tokenizer_config.json").get("chat_template")
    if isinstance(said, list):
        by_name = {one.get("name"): one.get("template") for one in said if isinstance(one, dict)}
        said = by_name.get("default", next(iter(by_name.values()), None))
    return said if isinstance(said, str) else None


def class_of(folder: Path, known: tuple[str | None, ...], where: Path) -> str | None:
    """The class that a folder's files were written for. Refuses one that reads them in a way of its own."""
    said = beside(folder, "tokenizer_config.json").get("tokenizer_class")
    name = said.removesuffix("Fast") if isinstance(said, str) else None
    if name not in known:
        raise refuse(str(where), name, "reads this file in its own way", "its tokenizer.json says it all")
    return name


def added(folder: Path, vocab: Mapping[str, int], special: Mapping[str, int]) -> list[Content]:
    """The added tokens: those given as special, and what the folder adds to its vocabulary."""
    found = {text: (number, True) for text, number in special.items()}
    found |= {text: (number, False) for text, number in beside(folder, "added_tokens.json").items()}
    for number, one in (beside(folder, "tokenizer_config.json").get("added_tokens_decoder") or {}).items():
        found[one["content"]] = (int(number), bool(one.get("special", True)))
    names = set(named_tokens(folder).values())
    names |= set(beside(folder, "special_tokens_map.json").get("additional_special_tokens") or [])
    found |= {text: (vocab[text], True) for text in names if text in vocab}
    found = {text: (number, control or text in names) for text, (number, control) in found.items()}
    return [
        {"id": number, "content": text, "special": control}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for text, (number, control) in sorted(found.items(), key=lambda pair: pair[1])
    ]


# --- vocab.json and merges.txt ----------------------------------------------------------------------------------------


def byte_level(folder: Path) -> Content:
    """GPT-2's form: a vocabulary, and merges in the order in which they are made."""
    kind = class_of(folder, (*GPT2_LIKE, "Qwen2Tokenizer"), folder / "vocab.json")
    vocab, lines = json.loads(read(folder / "vocab.json").decode()), read(folder / "merges.txt").decode().splitlines()
    merges = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    if wrong := next((merge for merge in merges if len(merge) != 2), None):
        raise refuse(str(folder / "merges.txt"), " ".join(wrong), "must be two pieces in each line")
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": kind != "Qwen2Tokenizer",
    }
    cut: Content = level
    if kind == "Qwen2Tokenizer":
        split = {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False}
        cut = {"type": "Sequence", "pretokenizers": [split, level]}
    around = {}
    if kind in ("RobertaTokenizer", "BartTokenizer") and {"<s>", "</s>"} <= vocab.keys():
        around = {"post_processor": template({"<s>": vocab["<s>"]}, {"</s>": vocab["</s>"]})}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "vocab": vocab, "merges": merges}
    ends = ("<|endoftext|>", "<s>", "<pad>", "</s>", "<mask>")
    return whole(
        model,
        normalizer={"type": "NFC"} if kind == "Qwen2Tokenizer" else None,
        pre_tokenizer=cut,
        decoder=level | {"use_regex": True},
        added_tokens=added(folder, vocab, {text: vocab[text] for text in ends if text in vocab}),
        **around,
    )


# --- vocab.txt --------------------------------------------------------------------------------------------------------


def wordpiece(file: Path) -> Content:
    """BERT's form: a piece a line; those that go on inside a word begin with ##."""
    folder, lines = file.parent, read(file).decode().splitlines()
    class_of(folder, BERT_LIKE, file)
    vocab, said = {piece.rstrip("\n"): i for i, piece in enumerate(lines)}, beside(folder, "tokenizer_config.json")
    names: dict[str, int] = {
        text: vocab[text] for text in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if text in vocab
    }
    if not {"[UNK]", "[CLS]", "[SEP]"} <= names.keys():
        raise refuse(str(file), sorted(names), "must hold [UNK], [CLS] and [SEP]")
    normal = {"type": "BertNormalizer", "clean_text": True, "strip_accents": said.get("strip_accents")}
    normal |= {"handle_chinese_chars": said.get("tokenize_chinese_chars", True)}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    return whole(
        model | {"max_input_chars_per_word": 100, "vocab": vocab},
        normalizer=normal | {"lowercase": said.get("do_lower_case", True)},
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
        post_processor=template({"[CLS]": names["[CLS]"]}, {"[SEP]": names["[SEP]"]}),
        added_tokens=added(folder, vocab, names),
    )


# --- pieces with scores -----------------------------------------------------------------------------------------------


def fields(data: bytes, where: str) -> Iterator[tuple[int, Any]]:
    """(number, value) of each field of a protocol buffer: whole numbers, bytes, and four or eight bytes as they are."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                raise refuse(where, at, "is cut short, or no SentencePiece model")
            value |= (data[at] & 127) << shift
            at, shift = at + 1, shift + 7
            if data[at - 1] < 128:
                return value

    while at < len(data):
        key = number()
        kind = key & 7
        if kind == 0:
            yield key >> 3, number()
            continue
        size = number() if kind == 2 else {5: 4, 1: 8}.get(kind, -1)
        if size < 0 or at + size > len(data):
            raise refuse(where, at, "is cut short, or no SentencePiece model")
        yield key >> 3, data[at : at + size]
        at += size


def sentencepiece(file: Path) -> Content:
    """SentencePiece's own file (Kudo and Richardson 2018): pieces, how they are chosen, how text is made ready."""
    folder, data, where = file.parent, read(file), str(file)
    kind = class_of(folder, PIECE_LIKE, file)
    pieces: list[tuple[str, float, int]] = []
    trained: dict[int, Any] = {3: UNIGRAM, 35: 0}
    normal: dict[int, Any] = {3: 1, 4: 1, 5: 1}
    for number, value in fields(data, where):
        if number == 1:
            one: dict[int, Any] = {2: struct.pack("<f", 0.0), 3: NORMAL} | dict(fields(value, where))
            pieces.append((one[1].decode(), struct.unpack("<f", one[2])[0], one[3]))
        elif number == 2:
            trained |= dict(fields(value, where))
        elif number == 3:
            normal |= dict(fields(value, where))
    if not pieces:
        raise refuse(where, 0, "holds no pieces: it is no SentencePiece model")
    if trained[3] not in (UNIGRAM, BPE):
        raise refuse(where, trained[3], "is a model of words or characters", "unigram (1) and BPE (2) are read")
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    numbers, said = {text: i for i, (text, _, _) in enumerate(pieces)}, beside(folder, "tokenizer_config.json")
    if kind == "T5Tokenizer":
        pieces += [(f"<extra_id_{i}>", 0.0, CONTROL) for i in reversed(range(said.get("extra_ids", 100)))]
        after = {"</s>": numbers["</s>"]}
    elif kind == "AlbertTokenizer":
        before, after = {"[CLS]": numbers["[CLS]"]}, {"[SEP]": numbers["[SEP]"]}
    elif "<s>" in numbers and said.get("add_bos_token", kind in ("LlamaTokenizer", "CodeLlamaTokenizer")):
        before = {"<s>": numbers["<s>"]}
    elif "<bos>" in numbers and said.get("add_bos_token", True):
        before = {"<bos>": numbers["<bos>"]}
    ready: list[Content] = []
    if normal.get(2):
        ready.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(normal[2]).decode()})
    if kind == "AlbertTokenizer" and said.get("do_lower_case", True):
        ready.append({"type": "Lowercase"})
    if normal[4]:
        ready.append({"type": "Strip", "strip_left": True, "strip_right": True})
        ready.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    content = of_pieces(pieces, trained[3], bool(normal[3]), ready, bool(trained[35]))
    content["post_processor"] = template(before, after)
    known = {one["content"]: one["id"] for one in content["added_tokens"]}
    more = [one for one in added(folder, numbers, {}) if one["content"] not in known]
    content["added_tokens"] = sorted([*content["added_tokens"], *more], key=lambda one: one["id"])
    return content

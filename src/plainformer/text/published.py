"""Tokenizers as published, each into one kind of file: the tokenizer.json that the tokenizers library reads.

| files | what they are |
|---|---|
| tokenizer.json | itself |
| vocab.json, merges.txt | byte-level BPE (GPT-2, RoBERTa, BART, Qwen2) |
| tokenizer.model, spiece.model | SentencePiece, BPE or unigram (Llama, Mistral, Gemma, T5, ALBERT) |
| sentencepiece.bpe.model | the same, numbered as fairseq does (XLM-RoBERTa, CamemBERT, mBART) |
| source.spm, target.spm, vocab.json | Marian |
| vocab.txt | WordPiece (BERT, DistilBERT) |
| tokenizer.bin | llama2.c: pieces and their scores |
| *.gguf | any of them, as the file's keys say it |
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

from plainformer.faults import PlainformerError, refuse
from plainformer.text.beside import added, beside, class_of
from plainformer.text.one_file import gguf, llama2c
from plainformer.text.pieces import QWEN, Content, read, template, whole, wordpieces
from plainformer.text.sentencepieces import marian, sentencepiece

GPT2_LIKE = (None, "GPT2Tokenizer", "RobertaTokenizer", "BartTokenizer", "PreTrainedTokenizer", "TokenizersBackend")
BERT_LIKE = (None, "BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "TokenizersBackend")


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
            "source.spm": lambda: dumped(marian(folder)),
            "vocab.json": bytes_form(folder / "vocab.json"),
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
        if file.suffix == ".json":
            return dumped(byte_level(file.parent))
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


# --- vocab.json and merges.txt ----------------------------------------------------------------------------------------


def byte_level(folder: Path) -> Content:
    """GPT-2's form: a vocabulary, and merges in the order in which they are made."""
    kind = class_of(folder, (*GPT2_LIKE, "Qwen2Tokenizer"), folder / "vocab.json")
    vocab, lines = json.loads(read(folder / "vocab.json").decode()), read(folder / "merges.txt").decode().splitlines()
    if not isinstance(vocab, dict):
        raise refuse(str(folder / "vocab.json"), type(vocab).__name__, "must be an object of pieces and their ids")
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
    content = wordpieces(
        vocab,
        "[UNK]",
        {"[CLS]": names["[CLS]"]},
        {"[SEP]": names["[SEP]"]},
        lower=said.get("do_lower_case", True),
        strip_accents=said.get("strip_accents"),
        handle_chinese_chars=said.get("tokenize_chinese_chars", True),
    )
    return content | {"added_tokens": added(folder, vocab, names)}

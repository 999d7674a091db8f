"""SentencePiece's own files (Kudo and Richardson 2018): pieces, how they are chosen, how text is made ready; and how
classes that read them number the pieces."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from plainformer.faults import refuse
from plainformer.text.beside import added, beside, class_of
from plainformer.text.pieces import (
    BPE,
    CONTROL,
    DEFINED,
    NORMAL,
    UNIGRAM,
    UNKNOWN,
    UNUSED,
    Content,
    of_pieces,
    read,
    template,
)

PIECE_LIKE = (None, "LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "T5Tokenizer", "AlbertTokenizer")
LANGUAGES = (  # of mBART, in its order; mBART-50 has those after the bar too
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX "
    "ro_RO ru_RU si_LK tr_TR vi_VN zh_CN | af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN "
    "mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI"
)
Piece = tuple[str, float, int]
FIRST: list[Piece] = [("<s>", 0.0, CONTROL), ("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN)]
NOT_USED: list[Piece] = [
    ("<s>NOTUSED", 0.0, UNUSED),
    ("<pad>", 0.0, CONTROL),
    ("</s>NOTUSED", 0.0, UNUSED),
    ("<unk>", 0.0, UNKNOWN),
    ("<unk>NOTUSED", -100.0, UNUSED),
]
MASK: Piece = ("<mask>", 0.0, CONTROL)
FAIRSEQ = {  # fairseq's numbers: (what stands first, how many of the file's pieces fall away, languages at the end)
    "XLMRobertaTokenizer": (FIRST, 3, ""),
    "CamembertTokenizer": (NOT_USED, 1, ""),
    "MBartTokenizer": (FIRST, 3, LANGUAGES.partition(" | ")[0]),
    "MBart50Tokenizer": (FIRST, 3, LANGUAGES.replace(" | ", " ")),
}


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


@dataclass(frozen=True)
class Model:
    """What a file says. prefix: a space goes before a text. ready: what is done to it first."""

    pieces: list[Piece]
    kind: int
    prefix: bool
    ready: list[Content]
    by_bytes: bool

    @property
    def content(self) -> Content:
        return of_pieces(self.pieces, self.kind, self.prefix, self.ready, self.by_bytes)


def model_of(file: Path, lower: bool = False) -> Model:
    """A file's model. lower: letters are made small before pieces are sought. Refused: damage, models of words."""
    where = str(file)
    pieces: list[Piece] = []
    trained: dict[int, Any] = {3: UNIGRAM, 35: 0}
    normal: dict[int, Any] = {3: 1, 4: 1, 5: 1}
    for number, value in fields(read(file), where):
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
    ready: list[Content] = []
    if normal.get(2):
        ready.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(normal[2]).decode()})
    ready += [{"type": "Lowercase"}] if lower else []
    if normal[4]:
        ready.append({"type": "Strip", "strip_left": True, "strip_right": True})
        ready.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    return Model(pieces, trained[3], bool(normal[3]), ready, bool(trained[35]))


def sentencepiece(file: Path) -> Content:
    """The tokenizer of a file, as the class that the folder names reads it."""
    folder, said = file.parent, beside(file.parent, "tokenizer_config.json")
    kind = class_of(folder, (*PIECE_LIKE, *FAIRSEQ), file)
    model = model_of(file, lower=kind == "AlbertTokenizer" and said.get("do_lower_case", True))
    if kind in FAIRSEQ:
        first, n_dropped, languages = FAIRSEQ[kind]
        more = [(code, 0.0, CONTROL) for code in languages.split()]
        model = replace(model, pieces=[*first, *model.pieces[n_dropped:], *more, MASK])
    elif kind == "T5Tokenizer":
        extra = [(f"<extra_id_{i}>", 0.0, CONTROL) for i in reversed(range(said.get("extra_ids", 100)))]
        model = replace(model, pieces=[*model.pieces, *extra])
    numbers = {text: i for i, (text, _, _) in enumerate(model.pieces)}
    names = around(kind, numbers, said)
    content = model.content
    content["post_processor"] = template(*({text: numbers[text] for text in side} for side in names))
    if kind in FAIRSEQ:
        marks = [one for one in content["added_tokens"] if one["content"] == MASK[0]]
        marks[0]["lstrip"] = True  # the spaces before a mask go with it
    known = {one["content"]: one["id"] for one in content["added_tokens"]}
    new = [one for one in added(folder, numbers, {}) if one["content"] not in known]
    content["added_tokens"] = sorted([*content["added_tokens"], *new], key=lambda one: one["id"])
    return content


def around(kind: str | None, numbers: Mapping[str, int], said: Content) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The control tokens that a class puts before and after every text."""
    if kind in ("XLMRobertaTokenizer", "CamembertTokenizer"):
        return ("<s>",), ("</s>",)
    if kind in ("MBartTokenizer", "MBart50Tokenizer"):
        language = str(said.get("src_lang") or "en_XX")
        if language not in numbers:
            raise refuse("tokenizer_config.json: src_lang", language, "is no language of this class")
        return ((), ("</s>", language)) if kind == "MBartTokenizer" else ((language,), ("</s>",))
    if kind == "T5Tokenizer":
        return (), ("</s>",)
    if kind == "AlbertTokenizer":
        return ("[CLS]",), ("[SEP]",)
    if "<s>" in numbers and said.get("add_bos_token", kind in ("LlamaTokenizer", "CodeLlamaTokenizer")):
        return ("<s>",), ()
    return (("<bos>",) if "<bos>" in numbers and said.get("add_bos_token", True) else ()), ()


def marian(folder: Path) -> Content:
    """Marian's pair: pieces are cut by source.spm and numbered by vocab.json, which has the target's too. `>>fra<<` at
    the beginning of a text asks for a language."""
    file = folder / "vocab.json"
    model, vocab = model_of(folder / "source.spm"), json.loads(read(file).decode())
    ends = {"</s>": CONTROL, "<pad>": CONTROL, "<unk>": UNKNOWN}
    numbers = sorted(vocab.values())
    if not ends.keys() <= vocab.keys() or numbers != list(range(len(vocab))):
        raise refuse(str(file), len(vocab), "must number all its pieces from 0, </s>, <pad> and <unk> among them")
    scores = {text: score for text, score, sort in model.pieces if sort == NORMAL}
    pieces: list[Piece] = []
    for text in sorted(vocab, key=vocab.__getitem__):
        asks = text.startswith(">>") and text.endswith("<<")
        sort = ends.get(text, DEFINED if asks else NORMAL if text in scores else UNUSED)
        pieces.append((text, scores.get(text, 0.0), sort))
    content = replace(model, pieces=pieces).content
    return content | {"post_processor": template({}, {"</s>": vocab["</s>"]})}

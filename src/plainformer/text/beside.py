"""What stands beside a tokenizer's own files in a published folder: names, templates, what is added."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from plainformer.faults import refuse
from plainformer.text.files import written_beside
from plainformer.text.pieces import Content, read

NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")


def beside(folder: Path, name: str) -> Content:
    """A JSON object in the folder; empty where there is none."""
    if not os.path.isfile(folder / name):
        return {}
    try:
        data = json.loads(read(folder / name).decode())
    except (ValueError, RecursionError) as error:
        raise refuse(str(folder / name), str(error)[:120], "cannot be read as JSON", "is the file whole?") from None
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


def keep(saved: Path, named: Mapping[str, str], template: str | None) -> None:
    """Write beside a tokenizer.json what `named_tokens` and `chat_template` have read, where there is any, in the place
    of another one's. A publisher's own file, which says more, stays."""
    path = saved.parent / "tokenizer_config.json"
    if saved.name != "tokenizer.json" or not beside(path.parent, path.name).keys() <= {*NAMED, "chat_template"}:
        return
    said = dict(named) | ({} if template is None else {"chat_template": template})
    if said:
        with written_beside(path) as file:
            file.write(json.dumps(said, ensure_ascii=False, indent=1).encode() + b"\n")
    else:
        path.unlink(missing_ok=True)


def class_of(folder: Path, known: tuple[str | None, ...], where: Path) -> str | None:
    """The class that a folder's files were written for. Refuses one that reads them in a way of its own."""
    said = beside(folder, "tokenizer_config.json").get("tokenizer_class")
    name = said.removesuffix("Fast") if isinstance(said, str) else None
    if name not in known:
        raise refuse(str(where), name, "reads this file in its own way", "its tokenizer.json says it all")
    return name


def added(folder: Path, vocab: Mapping[str, int], special: Mapping[str, int]) -> list[Content]:
    """The added tokens: those given as special, and what the folder adds to its vocabulary; each with the flags that
    the folder gives it, such as RoBERTa's mask, with which the spaces before it go."""
    found = {text: (number, True) for text, number in special.items()}
    flags: dict[str, Content] = {}
    found |= {text: (number, False) for text, number in beside(folder, "added_tokens.json").items()}
    for number, one in (beside(folder, "tokenizer_config.json").get("added_tokens_decoder") or {}).items():
        found[one["content"]] = (int(number), bool(one.get("special", True)))
        flags[one["content"]] = one
    said = beside(folder, "special_tokens_map.json") | beside(folder, "tokenizer_config.json")
    flags |= {one["content"]: one for name in NAMED if isinstance(one := said.get(name), dict)}
    names = set(named_tokens(folder).values())
    names |= set(beside(folder, "special_tokens_map.json").get("additional_special_tokens") or [])
    found |= {text: (vocab[text], True) for text in names if text in vocab}
    found = {text: (number, control or text in names) for text, (number, control) in found.items()}
    return [
        {"id": number, "content": text, "special": control}
        | {flag: bool(flags.get(text, {}).get(flag, False)) for flag in FLAGS}
        for text, (number, control) in sorted(found.items(), key=lambda pair: pair[1])
    ]

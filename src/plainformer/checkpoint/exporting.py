"""Models out: folders that transformers loads strictly, in shards where one file would be too large."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from plainformer.checkpoint.atomic import folder_beside, unwritable
from plainformer.checkpoint.hub import Plan, plan_of, source_of
from plainformer.checkpoint.sentences import sentence_files
from plainformer.checkpoint.sources import DTYPES, INDEX, WEIGHTS
from plainformer.faults import PlainformerError, refuse
from plainformer.huggingface import Reading, read_file, write
from plainformer.huggingface.configs_writing import differences
from plainformer.huggingface.names import SAME, spellings, to_theirs
from plainformer.huggingface.tables import TABLES
from plainformer.model import Transformer
from plainformer.spec import Spec
from plainformer.text import Tokenizer
from plainformer.text.encoding import end_id

SHARD = 5_000_000_000  # bytes of tensors in one file
SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", re.I)
BESIDE = (  # what stands beside weights and says how they are used
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json"),
    *("merges.txt", "vocab.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "chat_template.jinja"),
    *("source.spm", "target.spm"),
    *("generation_config.json", "LICENSE", "README.md"),
)


def size_of(text: str) -> int:
    """Bytes of "500MB", "5GB", "1000000"; K, M, G and T count in thousands."""
    found = SIZE.fullmatch(text.strip())
    size = int(float(found[1]) * 1000 ** " KMGT".index(found[2].upper() or " ")) if found else 0
    if size < 1:
        raise refuse("--shard-size", text, "must be a size above 0", "write it as 5GB or 500MB")
    return size


def export(
    model: Transformer,
    folder: str | Path,
    tokenizer: Tokenizer | None = None,
    *,
    like: str | Path | None = None,
    shard_bytes: int = SHARD,
) -> Reading:
    """Write a folder that the family's class in transformers loads strictly; the reading of its config.json.

    like: the published folder that the model came from. Its config (keys that nobody here knows included), its names of
    tensors, what it holds besides and its tokenizer are kept: unchanged weights come out as they went in, to the bit.
    tokenizer: to put beside weights of one's own. shard_bytes: the most in one file.

    The folder appears whole or not at all. Raises PlainformerError: it is not empty, no stock class holds the spec, or
    the model is not like `like`.
    """
    folder = Path(folder)
    if os.path.exists(folder) and (not folder.is_dir() or any(folder.iterdir())):
        raise refuse(str(folder), "exists", "an export goes into a new or empty folder")
    weights = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    dtype = next(iter(weights.values())).dtype
    plan = None if like is None else plan_like(model.spec, Path(like))
    if plan is None:
        config: dict[str, Any] = write(model.spec, dtype=str(dtype).removeprefix("torch."))
        theirs = to_theirs(config["model_type"], model.spec, weights, torch)
    else:
        config = config_like(plan, dtype)
        theirs = as_stored(plan, to_theirs(plan.model_type, model.spec, weights, torch), dtype)
    ends = ends_of(tokenizer) if tokenizer else {}
    with folder_beside(folder) as part:
        try:
            save(theirs, part, shard_bytes)
        except SafetensorError as error:  # what the system says reaches us in its words
            raise unwritable(folder, error) from None
        dump(part / "config.json", config)
        for file in part.glob("*.safetensors"):  # safetensors gives it to its owner alone
            file.chmod((part / "config.json").stat().st_mode)
        if like is not None:
            copy_beside(Path(like), part, config)
        else:
            settings: dict[str, Any] = {"do_sample": True, "max_length": model.spec.max_seq_len}
            settings |= {"eos_token_id": list(ends.values())} if ends else {}
            dump(part / "generation_config.json", settings)
        if tokenizer:
            (part / "tokenizer.json").write_bytes(tokenizer.file.encode())
            said = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": model.spec.max_seq_len}
            said |= {"clean_up_tokenization_spaces": False} | ({"eos_token": next(iter(ends))} if ends else {})
            said |= dict(tokenizer.named)
            dump(part / "tokenizer_config.json", said)
            if tokenizer.chat_template is not None:
                (part / "chat_template.jinja").write_bytes(tokenizer.chat_template.encode())
    return read_file(folder)


def ends_of(tokenizer: Tokenizer) -> dict[str, int]:
    """The tokens that end a text: as the publisher names it, and what a run has learned to end one with."""
    names = {token: name for name, token in tokenizer.control.items()}
    named, learned = tokenizer.control.get(tokenizer.named.get("eos_token", "")), end_id(tokenizer)
    return {names[token]: token for token in (named, learned) if token is not None}


def save(tensors: Mapping[str, Tensor], folder: Path, shard_bytes: int) -> None:
    """One file, or several and an index. A tensor is never cut: one that is larger than a shard has its own."""
    shards: list[dict[str, Tensor]] = [{}]
    room = shard_bytes
    for name, tensor in tensors.items():
        if tensor.nbytes > room and shards[-1]:
            shards.append({})
            room = shard_bytes
        shards[-1][name] = tensor.contiguous()
        room -= tensor.nbytes
    if len(shards) == 1:
        save_file(shards[0], folder / WEIGHTS, metadata={"format": "pt"})
        return
    stem, where = WEIGHTS.removesuffix(".safetensors"), dict[str, str]()
    for i, shard in enumerate(shards, start=1):
        file = f"{stem}-{i:05}-of-{len(shards):05}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(shard, file)
    total = sum(tensor.nbytes for tensor in tensors.values())
    dump(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))})


def dump(file: Path, data: dict[str, Any]) -> None:
    file.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# --- as it came -------------------------------------------------------------------------------------------------------


def plan_like(spec: Spec, like: Path) -> Plan:
    """How the folder named holds this model. Refuses a model that is another than the folder's, by its parts."""
    plan = plan_of(source_of(like))
    names = plan.source.reading.config.get("architectures") or [plan.model_type]
    if faults := list(differences(spec, plan.spec, f"{like} ({names[0]})")):
        raise PlainformerError(faults[:6])
    return plan


def config_like(plan: Plan, dtype: torch.dtype) -> dict[str, Any]:
    """The config as it was, every key; the dtype is the weights'. Packed weights come out plain."""
    said = str(dtype).removeprefix("torch.")
    config = {key: value for key, value in plan.source.reading.config.items() if key != "quantization_config"}
    for key in ("torch_dtype", "dtype"):
        if isinstance(config.get(key), str):
            config[key] = said
    return config


def as_stored(plan: Plan, theirs: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Tensors under the names that the folder has, in its order; what it holds besides is carried over. Of a folder
    with several dtypes each goes out in its own, if the model (in `dtype`) still is in the one that they are run in."""
    its_own = dtype is plan.dtype()
    by_name = {
        spelled: t for name, t in theirs.items() for one in (name, *SAME.get(name, ())) for spelled in spellings(one)
    }
    by_name |= {spelled: t for name, t in tied(plan, theirs) for spelled in spellings(name)}
    by_name |= dict(theirs)
    out: dict[str, Tensor] = {}
    seen: set[int] = set()
    for plain, stored in plan.stored.items():
        tensor = by_name.get(plain)
        if tensor is None:
            out[stored] = plan.source.read(stored)
            continue
        out[stored] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
        if its_own and (kept := DTYPES.get(plan.source.tensors[stored].dtype, dtype)) is not tensor.dtype:
            first = plan.source.read(stored)
            out[stored] = first if torch.equal(first.to(tensor.dtype), tensor) else tensor.to(kept)
    return out


def tied(plan: Plan, theirs: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """A head that is the token table, under its own name: some folders store it too."""
    names = {row.ours[0]: row.theirs for row in TABLES[plan.model_type] if "{i}" not in row.theirs}
    head, table = names.get("head.weight"), names.get("embedding.weight")
    if plan.spec.head and plan.spec.head.tied and head and table:
        yield head, theirs[table]


def copy_beside(like: Path, folder: Path, config: dict[str, Any]) -> None:
    """Tokenizer, generation's settings and what else stands beside weights, byte for byte; the config too, if it says
    the same."""
    for name in (*BESIDE, *sentence_files(like)):
        if os.path.isfile(like / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(like / name, folder / name)
    raw = (like / "config.json").read_bytes()
    if json.loads(raw) == config:
        (folder / "config.json").write_bytes(raw)

"""Folders that are damaged, partial, foreign or hostile: each made from a whole one, and what its refusal must name.

Run as a program, it loads each and prints how long the slowest took and how much memory the hungriest, in JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import struct
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS, INDEX, BIN = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "tie_word_embeddings": True,
}
Q = "model.layers.0.self_attn.q_proj.weight"
Attack = Callable[[Path], None]


def whole(folder: Path) -> Path:
    """A folder that loads."""
    from plainformer.huggingface import read
    from plainformer.huggingface.checking import asked

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    shapes = {name: shape for name, shape, tied in asked("llama", read(CONFIG).spec) if not tied}
    save_file({name: torch.full(shape, 0.01) for name, shape in shapes.items()}, folder / WEIGHTS)
    return folder


def tensors(change: Callable[[dict[str, Tensor]], Any]) -> Attack:
    def attack(folder: Path) -> None:
        held = load_file(folder / WEIGHTS)
        change(held)
        save_file(held, folder / WEIGHTS)

    return attack


def header(change: Callable[[dict[str, Any]], Any]) -> Attack:
    """A header that says something else; the numbers stay."""

    def attack(folder: Path) -> None:
        data = (folder / WEIGHTS).read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        said = json.loads(data[8 : 8 + length])
        said = change(said) or said
        text = said if isinstance(said, bytes) else json.dumps(said).encode()
        (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    return attack


def config(**keys: object) -> Attack:
    return lambda folder: (folder / "config.json").write_text(json.dumps(CONFIG | keys)) and None


def raw(file: str, data: bytes) -> Attack:
    return lambda folder: (folder / file).write_bytes(data) and None


def cut(n: int) -> Attack:
    return lambda folder: os.truncate(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size - n)


def index(where: Callable[[str], str]) -> Attack:
    def attack(folder: Path) -> None:
        names = list(load_file(folder / WEIGHTS))
        (folder / INDEX).write_text(json.dumps({"weight_map": {name: where(name) for name in names}}))

    return attack


class Runs:
    """A pickle that would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this ran",)


def pickles(data: object, legacy: bool = False) -> Attack:
    def attack(folder: Path) -> None:
        held = load_file(folder / WEIGHTS)
        (folder / WEIGHTS).unlink()
        made = data(held) if callable(data) else data
        torch.save(made, folder / BIN, _use_new_zipfile_serialization=not legacy)

    return attack


def plain_pickle(folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    (folder / BIN).write_bytes(pickle.dumps({"a": Runs()}))


def zip_bomb(folder: Path) -> None:
    """A torch file whose numbers are packed: some kilobytes that unpack to 200 MB."""
    held = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    torch.save(held, folder / "plain.bin")
    first = zipfile.ZipFile(folder / "plain.bin")
    with first, zipfile.ZipFile(folder / BIN, "w", zipfile.ZIP_DEFLATED) as bomb:
        for name in first.namelist():
            bomb.writestr(name, first.read(name))
        with bomb.open("archive/data/99", "w") as inner:
            for _ in range(200):
                inner.write(bytes(1_000_000))
    (folder / "plain.bin").unlink()


def deep(n: int) -> bytes:
    return b'{"a":' * n + b"1" + b"}" * n


def replaced(file: str, by: Callable[[Path], Any]) -> Attack:
    def attack(folder: Path) -> None:
        (folder / file).unlink()
        by(folder / file)

    return attack


def many(*attacks: Attack) -> Attack:
    def attack(folder: Path) -> None:
        for one in attacks:
            one(folder)

    return attack


def swap(held: dict[str, Tensor]) -> None:
    held[Q] = held[Q.replace("q_proj", "k_proj")].clone()


def expanded(held: dict[str, Tensor]) -> dict[str, Tensor]:
    """One number that says it is a matrix of four gigabytes."""
    return held | {"model.embed_tokens.weight": torch.zeros(1).expand(40, 16)}


ATTACKS: dict[str, tuple[Attack, str]] = {
    "cut by a byte": (cut(1), WEIGHTS),
    "cut by a hundred": (cut(100), WEIGHTS),
    "nothing": (raw(WEIGHTS, b""), f"{WEIGHTS} = 0: is too short"),
    "seven bytes": (raw(WEIGHTS, bytes(7)), WEIGHTS),
    "a header longer than the file": (raw(WEIGHTS, struct.pack("<Q", 2**40) + b"{}"), WEIGHTS),
    "a header of 2^63": (raw(WEIGHTS, struct.pack("<Q", 2**63) + b"{}"), WEIGHTS),
    "a header that is no JSON": (header(lambda _: b"{{{{"), WEIGHTS),
    "a header that is a list": (header(lambda _: b"[]"), WEIGHTS),
    "a header nested deep": (header(lambda _: deep(200_000)), WEIGHTS),
    "a header of a million values": (header(lambda _: b'{"a":[' + b"[]," * 500_000 + b"[]]}"), WEIGHTS),
    "a name twice": (header(lambda said: json.dumps(said).encode()[:-1] + b', "model.norm.weight": {}}'), WEIGHTS),
    "offsets that overlap": (header(lambda said: said[Q].update(data_offsets=[0, 1024])), WEIGHTS),
    "offsets below 0": (header(lambda said: said[Q].update(data_offsets=[-1024, 0])), WEIGHTS),
    "offsets past the end": (header(lambda said: said[Q].update(data_offsets=[10**9, 10**9 + 1024])), WEIGHTS),
    "a shape of 2^62": (header(lambda said: said[Q].update(shape=[2**31, 2**31])), WEIGHTS),
    "a shape below 0": (header(lambda said: said[Q].update(shape=[-16, -16])), WEIGHTS),
    "a dtype of tomorrow": (header(lambda said: said[Q].update(dtype="F7")), WEIGHTS),
    "a shape of many sides": (header(lambda said: said[Q].update(shape=[2**62] * 40_000)), "at most 16 sides"),
    "a shape of sides beyond what is printed": (header(lambda said: said[Q].update(shape=[2**62] * 250)), WEIGHTS),
    "a list for a dtype": (header(lambda said: said[Q].update(dtype=[])), f"{Q} = []"),
    "whole numbers for weights": (tensors(lambda held: held.update({Q: held[Q].int()})), Q),
    "a shape of another": (tensors(swap), Q),
    "turned": (tensors(lambda held: held.update({Q: torch.zeros(8, 32)})), Q),
    "a tensor less": (tensors(lambda held: held.pop(Q)), Q),
    "a layer more": (tensors(lambda held: held.update({Q.replace(".0.", ".2."): held[Q].clone()})), ".layers.2."),
    "a bias that the config denies": (
        tensors(lambda held: held.update({Q[:-6] + "bias": torch.ones(16)})),
        "q_proj.bias",
    ),
    "an adapter left beside": (
        tensors(lambda held: held.update({Q[:-6] + "lora_A.weight": torch.ones(2, 16)})),
        "lora_A",
    ),
    "a shard that is absent": (index(lambda name: f"model-{len(name) % 2}.safetensors"), "model-0.safetensors"),
    "an index that leads out": (index(lambda _: "../outside.safetensors"), "../outside.safetensors"),
    "an index to the root": (index(lambda _: "/etc/passwd"), "/etc/passwd"),
    "an index to itself": (index(lambda _: INDEX), INDEX),
    "an index to a folder": (index(lambda _: "."), INDEX),
    "an index of junk": (raw(INDEX, b'{"weight_map": [1, 2]}'), INDEX),
    "an index nested deep": (raw(INDEX, deep(200_000)), INDEX),
    "an index of numbers": (raw(INDEX, b'{"weight_map": {"a": 1}}'), INDEX),
    "an index of many files": (
        raw(INDEX, json.dumps({"weight_map": {f"x{i}": f"{i}.safetensors" for i in range(20_000)}}).encode()),
        "10,000 files",
    ),
    "an index of a million values": (raw(INDEX, b'{"a":[' + b"[]," * 500_000 + b"[]]}"), INDEX),
    "a config of many megabytes": (raw("config.json", b" " * 33_000_000 + b"{}"), "config.json"),
    "a config of a million values": (raw("config.json", b'{"a":[' + b"[]," * 500_000 + b"[]]}"), "config.json"),
    "a link to itself": (replaced(WEIGHTS, lambda file: file.symlink_to(file)), WEIGHTS),
    "a link to a device": (replaced(WEIGHTS, lambda file: file.symlink_to("/dev/zero")), WEIGHTS),
    "a pipe": (replaced(WEIGHTS, lambda file: os.mkfifo(file)), WEIGHTS),
    "a folder for a file": (replaced(WEIGHTS, lambda file: file.mkdir()), WEIGHTS),
    "a config of junk": (raw("config.json", b"\xff\xfe{"), "config.json"),
    "a config nested deep": (raw("config.json", deep(200_000)), "config.json"),
    "a config with a list": (raw("config.json", b"[1]"), "config.json"),
    "a config of a billion layers": (config(num_hidden_layers=10**9), "num_hidden_layers"),
    "a config of ten thousand layers": (config(num_hidden_layers=10_000), "10,000 layers"),
    "a config of a billion experts": (
        config(model_type="mixtral", architectures=None, num_local_experts=10**9, num_experts_per_tok=2),
        "6,000,000,000 of single experts",
    ),
    "a config of sixteen hundred experts": (
        config(model_type="mixtral", architectures=None, num_local_experts=1600, num_experts_per_tok=2),
        "block_sparse_moe",
    ),
    "a config of a vast vocabulary": (config(vocab_size=10**12), "embed_tokens"),
    "a config of a vast width": (config(hidden_size=2**40, num_attention_heads=2**36, head_dim=16), "config"),
    "a config of a number of 400 digits": (config(rope_theta=10**400), "rope_theta"),
    "a config of factors of 400 digits": (
        config(rope_scaling={"rope_type": "longrope", "short_factor": [10**400] * 2, "long_factor": [1, 1]}),
        "short_factor",
    ),
    "a config of another family": (config(model_type="gpt2", n_embd=16, n_layer=2, n_head=2), "transformer.wte"),
    "a config of no family": (config(model_type="made up", architectures=None), "made up"),
    "a config of words": (config(hidden_size="wide"), "hidden_size"),
    "packed in an unknown way": (config(quantization_config={"quant_method": "made up"}), "quant_method"),
    "packed by a config of junk": (
        config(quantization_config={"quant_method": "fp8", "weight_block_size": 3}),
        "block",
    ),
    "a pickle that runs code": (pickles({"a": Runs()}), BIN),
    "a pickle that runs code, before 1.6": (pickles({"a": Runs()}, legacy=True), BIN),
    "a bare pickle": (plain_pickle, BIN),
    "a pickle of no tensors": (pickles([1, 2]), BIN),
    "a pickle of few numbers as many": (pickles(expanded), BIN),
    "a zip bomb": (zip_bomb, "is packed"),
    "a torch file cut": (many(pickles(lambda held: held), lambda f: os.truncate(f / BIN, 9000)), BIN),
    "a torch file of junk": (many(replaced(WEIGHTS, lambda _: None), raw(BIN, b"PK\x03\x04" + bytes(500))), BIN),
    "junk": (many(replaced(WEIGHTS, lambda _: None), raw(BIN, bytes(range(256)) * 40)), BIN),
    "nothing but a config": (replaced(WEIGHTS, lambda _: None), WEIGHTS),
}


def flipped(folder: Path, seed: int) -> None:
    """Some bytes of a file are others."""
    draw = random.Random(seed)
    file = folder / draw.choice((WEIGHTS, WEIGHTS, "config.json"))
    data = bytearray(file.read_bytes())
    span = 1500 if file.name == WEIGHTS else len(data)
    for _ in range(draw.choice((1, 2, 8))):
        data[draw.randrange(span)] = draw.randrange(256)
    file.write_bytes(data)


def told(folder: Path) -> str | None:
    """What the refusal says; None where the folder loads."""
    import plainformer as pf

    try:
        pf.load(folder)
    except pf.PlainformerError as error:
        return str(error)
    return None


def anonymous() -> int:
    with open("/proc/self/status", encoding="utf-8") as file:
        return 1024 * int(next(line.split()[1] for line in file if line.startswith("VmHWM")))


def measured() -> Iterator[tuple[str, float, int]]:
    with tempfile.TemporaryDirectory() as room:
        base = whole(Path(room) / "whole")
        assert told(base) is None
        before = anonymous()
        for i, (name, (attack, _)) in enumerate(ATTACKS.items()):
            folder = Path(shutil.copytree(base, Path(room) / str(i)))
            attack(folder)
            start = time.perf_counter()
            told(folder)
            yield name, time.perf_counter() - start, anonymous() - before
            shutil.rmtree(folder)


if __name__ == "__main__":
    rows = list(measured())
    slowest = max(rows, key=lambda row: row[1])
    print(
        json.dumps({"slowest": slowest[0], "seconds": slowest[1], "bytes": rows[-1][2], "n": len(rows)}),
        file=sys.stdout,
    )

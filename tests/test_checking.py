"""A folder held against its config by its files' headers alone; hostile headers; nothing of the numbers is read."""

from __future__ import annotations

import json
import os
import random
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plainformer.cli import main
from plainformer.faults import PlainformerError
from plainformer.huggingface import read, read_file
from plainformer.huggingface.checking import asked, check
from plainformer.huggingface.headers import MOST_HEADER, read_folder, read_header
from plainformer.huggingface.names import to_theirs
from plainformer.huggingface.tables import TABLES
from plainformer.ledger import Ledger
from published_configs import STRANGERS, tiny

BITS = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1}
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 10,
    "tie_word_embeddings": True,
}


def header(tensors: dict[str, tuple[str, tuple[int, ...]]]) -> tuple[bytes, int]:
    said: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in tensors.items():
        size = BITS[dtype]
        for n in shape:
            size *= n
        said[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(said).encode()
    return struct.pack("<Q", len(text)) + text, at


def write(path: Path, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    """A whole file, its numbers a hole."""
    start, size = header(tensors)
    with path.open("wb") as file:
        file.write(start)
        file.truncate(len(start) + size)


def expected(config: dict[str, Any], dtype: str = "F32") -> dict[str, tuple[str, tuple[int, ...]]]:
    reading = read(config)
    return {name: (dtype, shape) for name, shape, tied in asked(reading.model_type, reading.spec) if not tied}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    write(tmp_path / "model.safetensors", expected(CONFIG))
    return tmp_path


@pytest.mark.parametrize("model_type", [name for name in STRANGERS if name in TABLES])
def test_shapes_are_those_that_writing_a_checkpoint_gives(model_type: str) -> None:
    """asked() works on shapes alone, to_theirs moves arrays: the same, of each family with a table."""
    np = pytest.importorskip("numpy")
    for seed in range(3):
        reading = read(tiny(model_type, random.Random(seed)))
        rows = [row for row in Ledger.of(reading.spec).rows if not row.same_as]
        theirs = to_theirs(model_type, reading.spec, {row.name: np.zeros(row.shape, np.int8) for row in rows}, np)
        wanted = {name: tuple(array.shape) for name, array in theirs.items()}
        assert {name: shape for name, shape, tied in asked(model_type, reading.spec) if not tied} == wanted


def test_a_whole_folder_is_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = check(str(folder), read_file(folder))
    total = Ledger.of(read(CONFIG).spec).total
    assert (found.whole, found.n_numbers, found.n_bytes, found.expected) == (True, total, 4 * total, total)
    assert (found.tied, found.dtypes, found.unexpected) == ("not stored", {"F32": 4 * total}, ())
    assert main(["size", str(folder), "--check"]) == 0
    assert "nothing else" in capsys.readouterr().out


def test_what_is_missing_unexpected_and_mis_shaped_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = expected(CONFIG)
    del tensors["model.norm.weight"]
    tensors["model.layers.0.mlp.up_proj.weight"] = ("BF16", (13, 8))
    tensors["model.extra"] = ("F32", (2,))
    tensors["model.layers.2.mlp.up_proj.weight"] = ("F32", (1,))
    tensors["lm_head.weight"] = ("F32", (10, 8))
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_nextn_predict_layers": 1}), encoding="utf-8")
    write(folder / "model.safetensors", tensors)
    found = check(str(folder), read_file(folder))
    assert found.missing == ("model.norm.weight",)
    assert found.unexpected == ("model.extra",)
    assert [one.partition(":")[0] for one in found.misshaped] == ["model.layers.0.mlp.up_proj.weight"]
    assert found.tied == "stored"
    assert set(found.dtypes) == {"F32", "BF16"}
    assert any("draft" in note for note in found.notes)
    assert main(["size", str(folder), "--check", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["whole"] is False


OPT: dict[str, Any] = {
    "model_type": "opt",
    "hidden_size": 8,
    "word_embed_proj_dim": 4,
    "ffn_dim": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 10,
}


@pytest.mark.parametrize(
    ("more", "last"),
    [
        ({"architectures": ["OPTModel"]}, {"model.decoder.project_out.weight": (4, 8)}),
        ({"tie_word_embeddings": True}, {"model.decoder.project_out.weight": (4, 8)}),
        (
            {"tie_word_embeddings": False},
            {"model.decoder.project_out.weight": (4, 8), "lm_head.weight": (10, 4)},
        ),
        ({"tie_word_embeddings": False, "word_embed_proj_dim": 8}, {"lm_head.weight": (10, 8)}),
    ],
)
def test_a_narrow_opt_asks_for_what_its_class_has(
    tmp_path: Path, more: dict[str, Any], last: dict[str, tuple[int, ...]]
) -> None:
    config = OPT | more
    tensors = expected(config)
    ends = ("model.decoder.project_out.weight", "lm_head.weight")
    assert {name: tensors[name][1] for name in ends if name in tensors} == last
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write(tmp_path / "model.safetensors", tensors)
    found = check(str(tmp_path), read_file(tmp_path))
    assert (found.whole, found.unexpected) == (True, ())
    assert found.tied == ("not stored" if config.get("tie_word_embeddings") else "no")


def test_a_pooler_beside_a_tied_head_is_not_taken_for_the_head(tmp_path: Path) -> None:
    """BERT's own files hold one; the class that fills masks does not ask for it."""
    config = {key: value for key, value in CONFIG.items() if key != "num_key_value_heads"} | {"model_type": "bert"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    pooler = {"bert.pooler.dense.weight": ("F32", (8, 8)), "bert.pooler.dense.bias": ("F32", (8,))}
    write(tmp_path / "model.safetensors", expected(config) | pooler)
    found = check(str(tmp_path), read_file(tmp_path))
    assert (found.whole, found.tied, found.unexpected) == (True, "not stored", tuple(sorted(pooler)))


def test_shards_are_one_model(folder: Path) -> None:
    tensors = expected(CONFIG)
    (folder / "model.safetensors").unlink()
    names = list(tensors)
    halves = {"a.safetensors": names[:9], "b.safetensors": names[9:]}
    for file, inside in halves.items():
        write(folder / file, {name: tensors[name] for name in inside})
    index = {"weight_map": {name: file for file, inside in halves.items() for name in inside}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert check(str(folder), read_file(folder)).whole
    index["weight_map"][names[0]] = "b.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert any(names[0] in fault for fault in read_folder(str(folder)).faults)
    (folder / "b.safetensors").unlink()
    found = check(str(folder), read_file(folder))
    assert any("b.safetensors: is missing" in fault for fault in found.faults)
    assert set(names[9:]) <= set(found.missing)


def test_scales_of_a_quantised_folder_are_expected(tmp_path: Path) -> None:
    config = CONFIG | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 4]}}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = expected(CONFIG, "F8_E4M3")
    tensors |= {f"{name}_scale_inv": ("F32", (2, 2)) for name in list(tensors) if "_proj" in name}
    write(tmp_path / "model.safetensors", tensors)
    found = check(str(tmp_path), read_file(tmp_path))
    assert (found.whole, found.unexpected) == (True, ())
    assert "14 tensors" in found.notes[0]


def test_folders_of_the_field(cases: Path) -> None:
    root = cases / "cases" / "field" / "hand" / "ckpt"
    whole = {path.name: check(str(path), read_file(path)).whole for path in root.iterdir() if path.is_dir()}
    assert {name for name, good in whole.items() if not good} == {"llama-cut-short", "llama-missing-shard"}
    assert len(whole) == 10
    old = check(str(root / "gpt2-tiny-old-names"), read_file(root / "gpt2-tiny-old-names"))
    assert (old.unexpected, "4 buffers" in old.notes[0]) == ((), True)


# --- hostile headers --------------------------------------------------------------------------------------------------


def entry(**more: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | more


HOSTILE = {
    "too short": b"\x01",
    "longer than the file": struct.pack("<Q", 2**62) + b"{}",
    "over 100,000,000": struct.pack("<Q", MOST_HEADER + 1),
    "not JSON": b"{",
    "no object": b"[]",
    "utf-8": b'{"\xff": 1}',
    "nested": b"[" * 200_000,
    "twice": b'{"a": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, "a": 1}',
    "must say": json.dumps({"a": {"dtype": "F32"}}).encode(),
    "no dtype": json.dumps({"a": entry(dtype="F33")}).encode(),
    "[]: is no dtype": json.dumps({"a": entry(dtype=[])}).encode(),
    "is no shape of at most 16": json.dumps({"a": entry(shape=[2**62] * 40_000)}).encode(),
    "no shape": json.dumps({"a": entry(shape=[-2])}).encode(),
    "no two offsets": json.dumps({"a": entry(data_offsets=[0, 2.0**70])}).encode(),
    "must span": json.dumps({"a": entry(shape=[2**40, 2**40])}).encode(),
    "overlaps": json.dumps({"a": entry(), "b": entry(data_offsets=[4, 12])}).encode(),
    "cut short": json.dumps({"a": entry(data_offsets=[8, 16])}).encode(),
}


@pytest.mark.parametrize("words", HOSTILE)
def test_a_hostile_header_is_refused(tmp_path: Path, words: str) -> None:
    path = tmp_path / "model.safetensors"
    content = HOSTILE[words]
    raw = words in ("too short", "longer than the file", "over 100,000,000")
    with path.open("wb") as file:
        file.write(content if raw else struct.pack("<Q", len(content)) + content)
        if words != "cut short" and not raw:
            file.write(bytes(64))
        if words == "over 100,000,000":
            file.truncate(MOST_HEADER + 100)
    with pytest.raises(PlainformerError) as refused:
        read_header(str(path))
    assert words in str(refused.value)


@pytest.mark.parametrize("file", ["../model.safetensors", "/etc/passwd", "", "..", "a\\b", "x/y"])
def test_an_index_may_not_lead_out_of_its_folder(tmp_path: Path, file: str) -> None:
    index = {"weight_map": {"a": file}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    with pytest.raises(PlainformerError, match="out of the folder"):
        read_folder(str(tmp_path))


def test_more_experts_than_a_folder_can_hold_are_refused_at_once(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A few absent ones are told; a billion would take all memory to be listed."""
    for n_experts, said in ((4, "missing: 26"), (10**9, "are too few for 6,000,000,000 of single experts")):
        keys = {"model_type": "mixtral", "num_local_experts": n_experts, "num_experts_per_tok": 2}
        (folder / "config.json").write_text(json.dumps(CONFIG | keys), encoding="utf-8")
        assert main(["size", str(folder), "--check"]) == 2
        assert said in "".join(capsys.readouterr())


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(struct.pack("<Q", len(content)) + content)
    with suppress(PlainformerError):
        assert all(tensor.n_bytes <= 1e20 for tensor in read_header(str(path)).values())


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors"])
def test_a_folder_that_cannot_be_checked_is_refused(
    folder: Path, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.remove(folder / missing)
    assert main(["size", str(folder), "--check"]) == 2
    assert "--check" in capsys.readouterr().err
    assert main(["size", "gpt2", "--check"]) == 2

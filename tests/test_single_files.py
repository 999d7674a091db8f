"""Models that are one file: GGUF as the gguf package writes it, llama2.c's; whole, packed, cut and hostile."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import plainformer as pf
from plainformer.checkpoint.exporting import export
from plainformer.checkpoint.single import in_halves, kinds_of
from plainformer.cli import main
from plainformer.families import decoders, llamas
from plainformer.faults import PlainformerError
from plainformer.huggingface.gguf_header import read_gguf
from plainformer.model import Transformer
from plainformer.spec import Spec
from plainformer.text import Tokenizer
from real_weights import truth

SIZES = {"vocab_size": 32, "max_seq_len": 16, "d_model": 256, "n_layers": 2, "n_heads": 4}
SPECS: dict[str, Spec] = {
    "llama": llamas.llama(**SIZES, n_kv_heads=2, d_head=64, d_ff=256, tied=True),
    "qwen2": llamas.llama(**SIZES, n_kv_heads=2, d_head=64, d_ff=256, qkv_bias=True, theta=1e6),
    "qwen3": llamas.small(**SIZES, tied=False),
    "gpt2": decoders.gpt2(**SIZES),
}
ENDS = ("weight", "bias")
ABSENT = "the gguf package is absent"


def refusal(ask: Callable[[], object]) -> str:
    with pytest.raises(PlainformerError) as caught:
        ask()
    return str(caught.value)


def in_pairs(rows: Tensor, n_heads: int) -> Tensor:
    """Halves of each head to pairs side by side, as llama.cpp's converter does."""
    return rows.unflatten(0, (n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def test_pairs_and_halves_are_each_others_inverse() -> None:
    rows = torch.randn(24, 5)
    assert torch.equal(in_halves(in_pairs(rows, 3), 3), rows)
    assert not torch.equal(in_halves(rows, 3), rows)


def packed(array: np.ndarray, kind: Any, draw: np.random.Generator) -> np.ndarray:
    """The bytes of an array in a kind; of Q4_K and Q6_K, which gguf does not pack, random blocks with sane scales."""
    import gguf

    if kind.name not in ("Q4_K", "Q6_K"):
        return gguf.quants.quantize(array, kind)
    blocks = draw.integers(0, 256, (array.size // 256, 144 if kind.name == "Q4_K" else 210), dtype=np.uint8)
    if kind.name == "Q4_K":
        blocks[:, :4] = np.frombuffer(np.array([0.01, 0.02], np.float16).tobytes(), np.uint8)
    else:
        blocks[:, 208:] = np.frombuffer(np.array([1e-4], np.float16).tobytes(), np.uint8)
    return blocks.reshape(*array.shape[:-1], -1)


def gguf_file(path: Path, family: str, kind: str, tmp_path: Path, **keys: Any) -> dict[str, Tensor]:
    """A file as llama.cpp's converter makes it, and the weights that it holds under the class's names."""
    gguf = pytest.importorskip("gguf", reason=ABSENT)
    from plainformer.huggingface.gguf_files import FORMS, pieces_of
    from plainformer.huggingface.gguf_header import Held

    spec, draw = SPECS[family], np.random.default_rng(0)
    model = Transformer(spec)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.1)
    export(model, tmp_path / "plain")
    theirs = load_file(tmp_path / "plain" / "model.safetensors")
    writer, quantised = gguf.GGUFWriter(path, family), getattr(gguf.GGMLQuantizationType, kind)
    writer.add_context_length(16)
    writer.add_embedding_length(256)
    writer.add_block_count(2)
    d_ff = next(t.shape[-2] for n, t in theirs.items() if n.endswith(("up_proj.weight", "mlp.c_proj.weight")))
    writer.add_feed_forward_length(d_ff)
    writer.add_head_count(4)
    if family == "gpt2":
        writer.add_layer_norm_eps(1e-5)
    else:
        config = json.loads((tmp_path / "plain" / "config.json").read_text())
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_theta"])
        writer.add_key_length(config["head_dim"])
    for name, value in keys.items():
        writer.add_array(name, value) if isinstance(value, list) else writer.add_string(name, value)
    each = [f"{stem.replace('{i}', str(i))}.{end}" for stem in FORMS[family].names for i in range(2) for end in ENDS]
    stems = {pieces_of(FORMS[family].names, name, Held(0, (1,), 0), "")[0][0]: name for name in each}
    held: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        turn = family == "gpt2" and ".c_" in name and name.endswith("weight")
        rows = tensor.T if turn else tensor
        heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2]) if family == "llama" else None
        rows = in_pairs(rows, heads) if heads else rows
        array = rows.contiguous().float().numpy()
        to = gguf.GGMLQuantizationType.F32 if array.ndim == 1 else quantised
        data = array if to.name == "F32" else packed(array, to, draw)
        writer.add_tensor(stems[name], data, raw_dtype=to)
        back = array if to.name == "F32" else gguf.quants.dequantize(data, to)
        back = torch.from_numpy(np.array(back, np.float32)).reshape(array.shape)
        back = in_halves(back, heads) if heads else back
        held[name] = back.T if turn else back
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_gguf_file_is_the_model_of_its_numbers(family: str, kind: str, tmp_path: Path) -> None:
    """Names, turned matrices, rotary pairs and packed blocks: transformers says the same of the same numbers."""
    import transformers

    held = gguf_file(tmp_path / "model.gguf", family, kind, tmp_path)
    model = pf.load(tmp_path / "model.gguf", torch.float32)
    assert model.spec == SPECS[family]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "plain").eval()
    theirs.load_state_dict(held, strict=False)
    tokens_BT = torch.arange(20).reshape(2, 10)
    with torch.no_grad():  # in float64: random blocks make large scores
        torch.testing.assert_close(model.double()(tokens_BT), theirs.double()(tokens_BT).logits, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_families_whose_pairs_stay_halves(family: str, tmp_path: Path) -> None:
    gguf_file(tmp_path / "model.gguf", family, "F32", tmp_path)
    mine, plain = pf.load(tmp_path / "model.gguf"), pf.load(tmp_path / "plain")
    assert mine.spec == plain.spec
    assert all(torch.equal(a, b) for a, b in zip(mine.parameters(), plain.parameters(), strict=True))


def test_a_gguf_file_brings_its_tokenizer(tmp_path: Path, cases: Path) -> None:
    """stories' own, by its pieces and scores, says what it says in llama2.c's file; GPT-2's form by its merges."""
    gguf = pytest.importorskip("gguf", reason=ABSENT)
    first = Tokenizer.load(cases / "data" / "tok512.bin")
    content = json.loads(first.file)["model"]
    data, at, scores = (cases / "data" / "tok512.bin").read_bytes(), 4, []
    while at < len(data):
        score, size = struct.unpack_from("<fi", data, at)
        scores, at = [*scores, score], at + 8 + size
    writer = gguf.GGUFWriter(tmp_path / "stories.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(content["vocab"]))
    writer.add_token_scores(scores)
    writer.add_token_types([2, 3, 3, *[6] * 256, *[1] * 253])
    writer.add_bos_token_id(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    again = Tokenizer.load(tmp_path / "stories.gguf")
    for one in truth(cases, "stories260k")["encode"]:
        assert again.frame(again.encode(one["text"])).tolist() == one["ids"]


def test_a_cut_or_damaged_gguf_file_is_refused_by_its_name(tmp_path: Path) -> None:
    gguf_file(tmp_path / "model.gguf", "llama", "Q8_0", tmp_path)
    whole, bad = (tmp_path / "model.gguf").read_bytes(), tmp_path / "bad.gguf"
    for n in (0, 3, 23, 24, 60, 400, len(whole) - 5):
        bad.write_bytes(whole[:n])
        assert "bad.gguf" in refusal(lambda: pf.load(bad)), n
    draw = random.Random(0)
    for _ in range(60):
        data = bytearray(whole)
        data[draw.randrange(1200)] ^= 1 << draw.randrange(8)
        bad.write_bytes(data)
        try:
            pf.load(bad)
        except PlainformerError as error:
            assert "bad.gguf" in str(error) or "decoder." in str(error), error  # noqa: PT017 - many ends


def test_headers_that_lie_are_refused_without_the_package(tmp_path: Path) -> None:
    """Counts and lengths of which the file has nothing: refused at once, and little is read."""
    file = tmp_path / "bomb.gguf"
    key = struct.pack("<Q", 1) + b"a"
    for body in (
        struct.pack("<IQQ", 3, 2**60, 0),
        struct.pack("<IQQ", 3, 0, 2**60),
        struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**62),
        struct.pack("<IQQ", 3, 0, 1) + key + struct.pack("<IIQ", 9, 0, 2**61),
        struct.pack("<IQQ", 3, 0, 1) + key + struct.pack("<IIQ", 9, 9, 4),
        struct.pack("<IQQ", 3, 0, 1) + key + struct.pack("<I", 77),
        struct.pack("<IQQ", 3, 1, 0) + key + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0),
        struct.pack("<IQQ", 9, 0, 0),
    ):
        file.write_bytes(b"GGUF" + body + bytes(64))
        assert "bomb.gguf" in refusal(lambda: read_gguf(str(file)))
    file.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 20) + b"general.architecture")
    assert "bomb.gguf" in refusal(lambda: pf.load(file))


# --- llama2.c ---------------------------------------------------------------------------------------------------------


def test_llama2cs_stories_are_told_word_for_word(
    cases: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = cases / "data" / "stories260K.bin"
    model, tokenizer = pf.load(file), Tokenizer.load(cases / "data" / "tok512.bin")
    for one in truth(cases, "stories260k")["greedy"]:
        prompt, want = one["prompt_ids"], one["greedy_ids"]
        found = pf.generate(model, [prompt], len(want), temperature=0.0).rows[0].new
        assert found == want
        assert tokenizer.decode([*prompt, *found]).strip() == one["text"].strip()
    for name, to in (("stories260K.bin", "stories.bin"), ("tok512.bin", "tokenizer.bin")):
        (tmp_path / to).write_bytes((cases / "data" / name).read_bytes())
    asked = ("generate", str(tmp_path / "stories.bin"), "--prompt", "Once upon", "--greedy", "--max-new-tokens", "4")
    assert main(list(asked)) == 0
    assert capsys.readouterr().out.startswith("Once upon")


def test_one_file_becomes_a_folder_that_transformers_opens(
    cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """llama2.c's pair into Llama's class and a tokenizer.json: the same story from transformers alone."""
    import transformers

    for name, to in (("stories260K.bin", "stories.bin"), ("tok512.bin", "tokenizer.bin")):
        (tmp_path / to).write_bytes((cases / "data" / name).read_bytes())
    assert main(["export", str(tmp_path / "stories.bin"), str(tmp_path / "out")]) == 0
    theirs, told = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    tokenizer, one = (
        transformers.AutoTokenizer.from_pretrained(tmp_path / "out"),
        truth(cases, "stories260k")["greedy"][0],
    )
    ids = tokenizer("Once upon a time", return_tensors="pt")["input_ids"]
    assert (
        ids[0].tolist()
        == Tokenizer.load(tmp_path / "tokenizer.bin")
        .frame(Tokenizer.load(tmp_path / "tokenizer.bin").encode("Once upon a time"))
        .tolist()
    )
    prompt = torch.tensor([one["prompt_ids"]])
    said = theirs.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=30, do_sample=False, pad_token_id=0
    )
    assert said[0, prompt.shape[1] :].tolist() == one["greedy_ids"][:30]
    (tmp_path / "tokenizer.bin").unlink()
    capsys.readouterr()
    assert main(["export", str(tmp_path / "stories.bin"), str(tmp_path / "bare")]) == 0
    assert "without a tokenizer" in capsys.readouterr().err


def test_a_head_of_its_own_is_told_by_a_vocabulary_below_0(tmp_path: Path) -> None:
    sizes, draw = (8, 12, 2, 2, 1, -11, 6), np.random.default_rng(0)
    numbers = draw.normal(size=11 * 8 + 2 * (8 + 8 * 8 + 2 * 4 * 8 + 8 * 8 + 8 + 3 * 12 * 8) + 8 + 6 * 4 + 11 * 8)
    file = tmp_path / "untied.bin"
    file.write_bytes(struct.pack("<7i", *sizes) + numbers.astype("<f4").tobytes())
    model = pf.load(file)
    assert model.spec.head is not None
    assert not model.spec.head.tied
    assert torch.equal(model.head.weight, torch.from_numpy(numbers[-88:].astype(np.float32)).reshape(11, 8))
    assert torch.equal(model.embedding.weight, torch.from_numpy(numbers[:88].astype(np.float32)).reshape(11, 8))
    file.write_bytes(file.read_bytes()[:-4])
    assert kinds_of(file) == {}
    assert "untied.bin" in refusal(lambda: pf.load(file))

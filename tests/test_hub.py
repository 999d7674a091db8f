"""Out into a folder that transformers opens, and in again: nothing is changed on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from plainformer.checkpoint import load, tokenizer_of
from plainformer.checkpoint.exporting import export
from plainformer.cli import main
from plainformer.families import decoders, llamas
from plainformer.faults import PlainformerError
from plainformer.model import Transformer
from plainformer.spec import Spec
from runs import tiny_run

SIZES = {"vocab_size": 40, "max_seq_len": 16, "d_model": 16, "n_layers": 2, "n_heads": 2}
SPECS = {
    "GPT2LMHeadModel": decoders.gpt2(**SIZES),
    "LlamaForCausalLM": llamas.llama(**SIZES, n_kv_heads=1, d_head=6, d_ff=20, tied=True),
    "MistralForCausalLM": llamas.llama(**SIZES, n_kv_heads=1, d_head=6, d_ff=20, windows=(5, 5)),
    "Qwen2ForCausalLM": llamas.llama(**SIZES, n_kv_heads=1, d_head=8, d_ff=20, qkv_bias=True),
    "Qwen3ForCausalLM": llamas.small(**SIZES, tied=False),
}
each_spec = pytest.mark.parametrize(("name", "spec"), SPECS.items(), ids=SPECS)


def model_of(spec: Spec, dtype: torch.dtype = torch.float32) -> Transformer:
    model = Transformer(spec).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.2)
    return model


@each_spec
def test_transformers_opens_what_is_exported_and_says_the_same(name: str, spec: Spec, tmp_path: Path) -> None:
    import transformers

    model, tokens_BT = model_of(spec), torch.arange(24).reshape(2, 12)
    assert export(model, tmp_path / "out").spec == spec
    theirs, told = getattr(transformers, name).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), told
    with torch.no_grad():
        torch.testing.assert_close(theirs.eval()(tokens_BT).logits, model(tokens_BT), rtol=0, atol=2e-5)


@each_spec
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_out_and_in_again_is_the_same_to_the_bit(name: str, spec: Spec, dtype: torch.dtype, tmp_path: Path) -> None:
    model = model_of(spec, dtype)
    export(model, tmp_path / "out")
    again = load(tmp_path / "out")
    assert again.spec == spec
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    export(again, tmp_path / "again")
    first, second = (load_file(tmp_path / folder / "model.safetensors") for folder in ("out", "again"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_trained_run_opens_in_transformers_tokenizer_and_all(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import transformers

    run = tiny_run(tmp_path_factory)
    capsys.readouterr()
    assert main(["export", str(run), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    tokenizer, mine = transformers.AutoTokenizer.from_pretrained(tmp_path / "out"), tokenizer_of(run)
    ids = tokenizer("the cat sat")["input_ids"]
    assert ids == mine.encode("the cat sat").tolist()
    assert tokenizer.decode(ids) == "the cat sat"
    with torch.no_grad():
        logits = load(run)(torch.tensor([ids]))
        torch.testing.assert_close(theirs(torch.tensor([ids])).logits, logits, rtol=0, atol=2e-5)
    assert main(["generate", str(tmp_path / "out"), "--prompt", "the", "--max-new-tokens", "3", "--seed", "1"]) == 0
    assert capsys.readouterr().out.startswith("the")


def test_a_tied_head_is_stored_once(tmp_path: Path) -> None:
    export(model_of(SPECS["LlamaForCausalLM"]), tmp_path / "out")
    assert "lm_head.weight" not in load_file(tmp_path / "out" / "model.safetensors")


def test_what_stands_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(PlainformerError, match=r"new or empty"):
        export(model_of(SPECS["GPT2LMHeadModel"]), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_no_class_no_folder(tmp_path: Path) -> None:
    spec = decoders.gpt2(**SIZES, mlp_bias=False)
    with pytest.raises(PlainformerError, match=r"mlp|bias"):
        export(model_of(spec), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export(model_of(SPECS["LlamaForCausalLM"]), tmp_path / "out")
    return tmp_path / "out"


def test_a_cut_file_is_refused_by_its_name(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(PlainformerError, match=r"model\.safetensors"):
        load(folder)


def test_an_absent_shard_is_refused_by_its_name(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    shards = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(tensors)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(PlainformerError, match=r"model-00002-of-00002\.safetensors"):
        load(folder)


def test_every_absent_tensor_and_every_wrong_shape_is_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.0.self_attn.q_proj.weight"] = torch.zeros(3, 16)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(PlainformerError) as refused:
        load(folder)
    told = str(refused.value)
    names = ("model.norm.weight", "layers.1.mlp.up_proj", "model.safetensors: model.layers.0.self_attn.q_proj.weight")
    assert all(name in told for name in names)


def test_what_a_spec_does_not_say_is_not_run(folder: Path) -> None:
    """Granite multiplies its residuals: its layout is Llama's, its numbers would not be."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "granite", "architectures": ["GraniteForCausalLM"], "residual_multiplier": 0.3}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(PlainformerError, match="can be sized"):
        load(folder)


def test_what_is_no_file_of_torchs_is_refused_by_its_name(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(PlainformerError, match=r"pytorch_model\.bin"):
        load(folder)

"""pf.load of what people have: names that wrappers leave, torch's files, packed weights, corrections kept fine.

E experts, F d_ff, D d_model.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import plainformer as pf
import strangers
from plainformer.checkpoint.exporting import export, size_of
from plainformer.checkpoint.packed import blockwise, mxfp4
from plainformer.checkpoint.peft import modules
from plainformer.cli import main
from plainformer.faults import PlainformerError
from plainformer.huggingface import read_file
from plainformer.model import Transformer
from strangers import STRANGERS, made

Tensors = dict[str, Tensor]
LOADED = (
    *("gpt2 base", "bert", "roberta", "albert", "t5", "bart", "gemma3", "phi3 longrope, short", "qwen2_moe"),
    *("deepseek_v3", "gpt_oss", "modernbert", "opt", "bloom"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a stranger in bfloat16, as transformers saves it; each is made once."""
    held: dict[str, Path] = {}

    def of(which: str) -> Path:
        if which not in held:
            held[which] = tmp_path_factory.mktemp("published") / "folder"
            made(STRANGERS[which]).to(torch.bfloat16).save_pretrained(held[which])
        return held[which]

    return of


def another(folder: Path, tmp_path: Path, change: Callable[[Tensors], Tensors], **keys: Any) -> Path:
    """The same folder with other tensors, and other keys in its config."""
    shutil.copytree(folder, tmp_path / "another")
    save_file(change(load_file(folder / "model.safetensors")), tmp_path / "another" / "model.safetensors")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | keys
    (tmp_path / "another" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path / "another"


def same(a: Transformer, b: Transformer) -> bool:
    mine, theirs = a.state_dict(), b.state_dict()
    assert a.spec == b.spec
    assert mine.keys() == theirs.keys()
    return all(torch.equal(mine[name], theirs[name]) and mine[name].dtype is theirs[name].dtype for name in mine)


# --- names ------------------------------------------------------------------------------------------------------------

WRAPPED: dict[str, Callable[[str], str]] = {
    "torch.compile": lambda name: f"_orig_mod.{name}",
    "compiled within": lambda name: name.replace(".layers.", ".layers._orig_mod."),
    "data parallel": lambda name: f"module.{name}",
    "both": lambda name: f"module._orig_mod.{name}",
    "a class around it": lambda name: f"policy.net.{name}",
}


@pytest.mark.parametrize("how", WRAPPED)
def test_what_wrappers_leave_in_names_is_read_through(how: str, folder: Callable[[str], Path], tmp_path: Path) -> None:
    plain = folder("gemma3")
    wrapped = another(plain, tmp_path, lambda held: {WRAPPED[how](name): t for name, t in held.items()})
    assert same(pf.load(wrapped), pf.load(plain))


def test_two_names_of_one_tensor_are_refused(folder: Callable[[str], Path], tmp_path: Path) -> None:
    twice = another(folder("gemma3"), tmp_path, lambda held: held | {f"module.{n}": t + 1 for n, t in held.items()})
    with pytest.raises(PlainformerError, match="another name of the same tensor"):
        pf.load(twice)


def test_buffers_of_old_files_are_passed_over_and_strangers_in_a_layer_are_not(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """A mask is no weight. An adapter, a scale, a layer too many would make another model if left out."""
    plain = folder("gpt2 base")
    masks = {"h.0.attn.bias": torch.ones(1, 1, 4, 4), "h.1.attn.masked_bias": torch.tensor(-1e4)}
    assert same(pf.load(another(plain, tmp_path / "masks", lambda held: held | masks)), pf.load(plain))
    for name in ("h.0.attn.c_attn.lora_A.weight", "h.2.ln_1.weight", "h.1.mlp.c_fc.weight_scale"):
        more = another(plain, tmp_path / name, lambda held, name=name: held | {name: torch.ones(24)})
        with pytest.raises(PlainformerError, match=re.escape(name)):
            pf.load(more)


@pytest.mark.parametrize("stored", ["not", "the same", "other numbers"])
def test_a_tied_head_stored_or_not(stored: str, folder: Callable[[str], Path], tmp_path: Path) -> None:
    """Of other numbers it is a head of its own, as T5 1.1's is under a config that ties it."""

    def change(held: Tensors) -> Tensors:
        head = held["model.embed_tokens.weight"] + (stored == "other numbers")
        return held | ({} if stored == "not" else {"lm_head.weight": head})

    model = pf.load(another(folder("gemma3"), tmp_path, change))
    assert model.spec.head is not None
    assert model.spec.head.tied == (stored != "other numbers")


# --- torch's files ----------------------------------------------------------------------------------------------------


def in_bin(folder: Path, tmp_path: Path, n_files: int, legacy: bool = False, inside: str = "") -> Path:
    shutil.copytree(folder, tmp_path / "bins", ignore=shutil.ignore_patterns("*.safetensors"))
    held = load_file(folder / "model.safetensors")
    where = {name: f"pytorch_model-{i % n_files}.bin" for i, name in enumerate(held)}
    for file in set(where.values()):
        part: Any = {name: held[name] for name, at in where.items() if at == file}
        part = {inside: part, "step": 3} if inside else part
        path = tmp_path / "bins" / (file if n_files > 1 else "pytorch_model.bin")
        torch.save(part, path, _use_new_zipfile_serialization=not legacy)
    if n_files > 1:
        (tmp_path / "bins" / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": where}))
    return tmp_path / "bins"


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "before 1.6"])
@pytest.mark.parametrize("n_files", [1, 3])
def test_torchs_files_are_read_as_data(
    n_files: int, legacy: bool, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    plain = folder("gpt2 base")
    assert same(pf.load(in_bin(plain, tmp_path, n_files, legacy)), pf.load(plain))


def test_a_training_checkpoint_holds_its_weights_inside(folder: Callable[[str], Path], tmp_path: Path) -> None:
    plain = folder("gpt2 base")
    assert same(pf.load(in_bin(plain, tmp_path, 1, inside="state_dict")), pf.load(plain))


# --- packed -----------------------------------------------------------------------------------------------------------


def test_mxfp4_is_every_number_that_transformers_makes_of_it() -> None:
    """All 16 values at all scales that bfloat16 can say; both ways to hold two in a byte."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    blocks = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    for scale in range(255):
        scales = torch.full((1, 1, 16), scale, dtype=torch.uint8)
        want = convert_moe_packed_tensors(blocks, scales)
        assert torch.equal(mxfp4(blocks[0], scales[0]).flatten(-2), want.transpose(1, 2)[0]), scale


def test_gpt_oss_in_mxfp4_is_the_model_of_its_numbers(folder: Callable[[str], Path], tmp_path: Path) -> None:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    settings = STRANGERS["gpt_oss"].settings | {"hidden_size": 32, "intermediate_size": 64, "head_dim": 8}
    plain = tmp_path / "plain"
    made(strangers.Stranger("GptOssForCausalLM", settings)).to(torch.bfloat16).save_pretrained(plain)
    generator = torch.Generator().manual_seed(0)
    packed = load_file(plain / "model.safetensors")
    numbers = dict(packed)
    for name in [name for name in packed if name.endswith(("gate_up_proj", "down_proj"))]:
        n_experts, n_in, n_out = packed.pop(name).shape
        shape = (n_experts, n_out, n_in // 32)
        blocks = torch.randint(256, (*shape, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(120, 130, shape, generator=generator, dtype=torch.uint8)
        packed |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        numbers[name] = convert_moe_packed_tensors(blocks, scales).contiguous()
    want = pf.load(another(plain, tmp_path / "numbers", lambda _: numbers))
    quantization = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    got = another(plain, tmp_path / "packed", lambda _: packed, quantization_config=quantization)
    assert same(pf.load(got), want)
    export(pf.load(got), tmp_path / "out", like=got)  # out come plain numbers, which transformers opens as they are
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == numbers.keys()
    assert "quantization_config" not in json.loads((tmp_path / "out" / "config.json").read_text())
    cut = another(
        plain,
        tmp_path / "cut",
        lambda _: packed | {name: packed[name][..., :1].contiguous() for name in packed if name.endswith("_scales")},
        quantization_config=quantization,
    )
    with pytest.raises(PlainformerError, match=r"_scales = .*must be bytes, one for each block"):
        pf.load(cut)


def fp8(held: Tensors, size: int) -> tuple[Tensors, Tensors]:
    """Every matrix of a layer in blocks, and the numbers that transformers makes of them."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    unpack, packed, numbers = Fp8Dequantize(None)._dequantize_one, dict(held), dict(held)
    for name, tensor in held.items():
        if ".layers." in name and tensor.dim() == 2 and "norm" not in name:
            grid = tuple(-(-n // size) if n % size else n // size for n in tensor.shape)
            scale = torch.rand(grid, generator=torch.Generator().manual_seed(len(name))) + 0.5
            packed[name] = tensor.to(torch.float8_e4m3fn)
            packed[f"{name}_scale_inv"] = scale
            numbers[name] = unpack(packed[name], scale, torch.bfloat16)
    return packed, numbers


@pytest.mark.parametrize("which", ["qwen3_moe", "deepseek_v3"])
def test_fp8_in_blocks_is_the_model_of_its_numbers(which: str, folder: Callable[[str], Path], tmp_path: Path) -> None:
    plain, size = folder(which), 2
    packed, numbers = fp8(load_file(plain / "model.safetensors"), size)
    want = pf.load(another(plain, tmp_path / "numbers", lambda _: numbers))
    quantization = {"quant_method": "fp8", "weight_block_size": [size, size]}
    got = another(plain, tmp_path / "packed", lambda _: packed, quantization_config=quantization)
    assert same(pf.load(got), want)
    denied = another(plain, tmp_path / "denied", lambda _: packed)
    with pytest.raises(PlainformerError, match="must be one of F64, F32"):
        pf.load(denied)


def test_blocks_at_the_ends_may_be_cut_short(folder: Callable[[str], Path], tmp_path: Path) -> None:
    got = blockwise(torch.ones(300, 130), torch.arange(6.0).reshape(3, 2), (128, 128))
    assert [got[at].item() for at in ((0, 127), (0, 128), (127, 0), (128, 0), (256, 127), (299, 129))] == [
        0,
        1,
        0,
        2,
        4,
        5,
    ]
    packed, _ = fp8(load_file(folder("qwen3_moe") / "model.safetensors"), 2)
    quantization = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    with pytest.raises(PlainformerError, match=r"_scale_inv = .*must be \(1, 1\): one for each block"):
        pf.load(another(folder("qwen3_moe"), tmp_path, lambda _: packed, quantization_config=quantization))


# --- dtypes -----------------------------------------------------------------------------------------------------------


def test_a_dtype_is_kept_or_chosen_and_a_correction_stays_fine(folder: Callable[[str], Path], tmp_path: Path) -> None:
    def finer(held: Tensors) -> Tensors:
        return {name: t.float() + 1e-4 if "correction" in name else t for name, t in held.items()}

    mixed = another(folder("deepseek_v3"), tmp_path, finer)
    kept, chosen = pf.load(mixed), pf.load(mixed, torch.float16)
    for name, tensor in kept.state_dict().items():
        assert tensor.dtype is (torch.float32 if "correction" in name else torch.bfloat16), name
    assert {tensor.dtype for tensor in chosen.state_dict().values()} == {torch.float16}
    tokens_BT = torch.arange(12).reshape(2, 6)
    with torch.no_grad():
        assert kept(tokens_BT).dtype is torch.bfloat16
    export(kept, tmp_path / "out", like=mixed)
    first, second = (load_file(one / "model.safetensors") for one in (mixed, tmp_path / "out"))
    assert all(torch.equal(first[name], second[name]) and first[name].dtype is second[name].dtype for name in first)


@pytest.mark.parametrize("named", ["bfloat16", "float16", None])
def test_of_several_dtypes_a_model_runs_in_the_configs_and_each_goes_out_in_its_own(
    named: str | None, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """As transformers has it where the config names one; unchanged weights come out to the bit, changed ones in the
    dtype that the folder had them in."""
    import transformers

    def mixed(held: Tensors) -> Tensors:
        wide = ("wte.weight", "ln_1.weight", "ln_f.bias")
        return {name: t.float() + 1e-4 if name.endswith(wide) else t for name, t in held.items()}

    plain = another(folder("gpt2 base"), tmp_path, mixed, dtype=named, torch_dtype=None)
    mine, held = pf.load(plain), load_file(plain / "model.safetensors")
    theirs = transformers.GPT2Model.from_pretrained(plain).state_dict()
    assert {t.dtype for t in mine.state_dict().values()} == {getattr(torch, named) if named else torch.bfloat16}
    if named:
        assert torch.equal(mine.decoder.norm_last.bias, theirs["ln_f.bias"])
        assert torch.equal(mine.embedding.weight, theirs["wte.weight"])
    export(mine, tmp_path / "out", like=plain)
    out = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(held[name], out[name]) and held[name].dtype is out[name].dtype for name in held)
    with torch.no_grad():
        mine.decoder.norm_last.bias += 1
    export(mine, tmp_path / "moved", like=plain)
    moved = load_file(tmp_path / "moved" / "model.safetensors")
    assert moved["ln_f.bias"].dtype is torch.float32
    assert torch.equal(moved["ln_f.bias"], mine.decoder.norm_last.bias.float())
    assert torch.equal(moved["wte.weight"], held["wte.weight"])
    export(pf.load(plain, torch.float64), tmp_path / "wide", like=plain)
    assert {t.dtype for t in load_file(tmp_path / "wide" / "model.safetensors").values()} == {torch.float64}


def test_a_base_class_may_have_been_saved_without_its_pooler(folder: Callable[[str], Path], tmp_path: Path) -> None:
    """As sentence encoders often are: the stream is the answer, as from transformers' class without one."""
    import transformers

    theirs = made(STRANGERS["bert base"]).to(torch.bfloat16)
    theirs.save_pretrained(tmp_path / "whole")
    bare = another(
        tmp_path / "whole", tmp_path, lambda held: {n: t for n, t in held.items() if not n.startswith("pooler")}
    )
    mine = pf.load(bare, torch.float32)
    assert mine.spec.head is None
    assert pf.load(tmp_path / "whole").spec.head is not None
    theirs = transformers.BertModel.from_pretrained(bare, add_pooling_layer=False, dtype=torch.float32).eval()
    tokens_BT = torch.arange(3, 15).reshape(2, 6)
    with torch.no_grad():
        want = theirs(tokens_BT).last_hidden_state
        assert torch.allclose(mine(tokens_BT), want, atol=2e-5)
    export(pf.load(bare), tmp_path / "out", like=bare)
    assert load_file(tmp_path / "out" / "model.safetensors").keys() == load_file(bare / "model.safetensors").keys()
    half = another(
        tmp_path / "whole", tmp_path / "half", lambda held: {n: t for n, t in held.items() if n != "pooler.dense.bias"}
    )
    with pytest.raises(PlainformerError, match=r"pooler\.dense\.bias = None: is not in the checkpoint"):
        pf.load(half)


def test_a_base_class_with_a_narrow_table_gives_what_it_narrows(tmp_path: Path) -> None:
    """OPT's, whose last matrix has a name of its own: its answer is narrow, and is no score of tokens."""
    theirs = made(strangers.Stranger("OPTModel", strangers.OPT | {"word_embed_proj_dim": 12}))
    theirs.save_pretrained(tmp_path / "base")
    mine = pf.load(tmp_path / "base")
    tokens_BT = torch.arange(3, 15).reshape(2, 6)
    with torch.no_grad():
        assert torch.allclose(mine(tokens_BT), theirs(tokens_BT).last_hidden_state, atol=2e-5)
    assert main(["size", str(tmp_path / "base"), "--check"]) == 0
    export(mine, tmp_path / "out", like=tmp_path / "base")
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "out"))
    assert first.keys() == second.keys()
    with pytest.raises(PlainformerError, match="scores something else than tokens"):
        pf.generate(mine, tokens_BT, 2)


@pytest.mark.parametrize(
    ("which", "head"), [("opt post-norm, narrow", "lm_head"), ("bert", "cls.predictions.decoder"), ("opt", "lm_head")]
)
def test_an_adapter_of_a_tied_head_stands_on_the_head_alone(
    which: str, head: str, folder: Callable[[str], Path]
) -> None:
    """Where a class's other matrix may be the head of another class: a pooler, a narrowing one."""
    reading = read_file(folder(which))
    found = list(modules(reading.model_type, reading.spec))
    assert [name for _, name, ours in found if ours == ("head",)] == [head]
    assert len({name for _, name, _ in found}) == len(found)


# --- there and back ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", LOADED)
def test_a_folder_comes_out_as_it_went_in(which: str, folder: Callable[[str], Path], tmp_path: Path) -> None:
    """Names, dtypes, bits, what no row knows, keys that nobody knows; in shards, which transformers opens strictly."""
    import transformers

    plain = another(folder(which), tmp_path, lambda held: held, key_of_tomorrow={"a": [1, None]})
    (plain / "tokenizer_config.json").write_text('{"b": "é"}', encoding="utf-8")
    export(pf.load(plain), tmp_path / "out", like=plain, shard_bytes=9000)
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    assert len(files) > 1
    assert all(file.stat().st_size < 40_000 for file in files)
    want, got = load_file(plain / "model.safetensors"), {n: t for file in files for n, t in load_file(file).items()}
    assert want.keys() == got.keys()
    assert all(torch.equal(want[name], got[name]) and want[name].dtype is got[name].dtype for name in want)
    for name in ("config.json", "tokenizer_config.json"):
        assert (plain / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    theirs = getattr(transformers, STRANGERS[which].name)
    _, told = theirs.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(told[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), told


def test_a_model_that_is_not_the_folders_is_not_put_under_its_config(folder: Callable[[str], Path]) -> None:
    with pytest.raises(PlainformerError, match="Gemma3ForCausalLM"):
        export(pf.load(folder("gpt2 base")), "nowhere", like=folder("gemma3"))
    assert not Path("nowhere").exists()


def test_export_of_a_folder_from_the_command_line(
    folder: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", str(folder("bert")), str(tmp_path / "out"), "--shard-size", "20kB"]) == 0
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    assert same(pf.load(tmp_path / "out"), pf.load(folder("bert")))
    capsys.readouterr()
    assert main(["export", str(folder("bert")), str(tmp_path / "again"), "--shard-size", "none"]) == 2
    assert "--shard-size = 'none'" in capsys.readouterr().err
    assert [size_of(text) for text in ("5GB", "1.5 mb", "7")] == [5 * 10**9, 1_500_000, 7]


# --- as it lies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", LOADED)
def test_mapped_is_copied(which: str, folder: Callable[[str], Path]) -> None:
    """The same bits, whatever lies turned, side by side or alternating; and copies lie row by row."""
    mapped, copied = pf.load(folder(which)), pf.load(folder(which), mapped=False)
    assert same(mapped, copied)
    assert all(tensor.is_contiguous() for tensor in copied.state_dict().values())
    assert all(mine.requires_grad for mine in mapped.parameters())
    assert list(dict(mapped.named_parameters())) == list(dict(copied.named_parameters()))


@pytest.mark.parametrize("which", ["gpt2 base", "bart", "gpt_oss", "qwen2_moe"])
@pytest.mark.parametrize("mapped", [True, False])
def test_what_is_done_to_a_model_is_not_done_to_its_file(
    which: str, mapped: bool, folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Each number changed in place, and changed as training does: the file and what is loaded from it again stay."""
    mine = Path(shutil.copytree(folder(which), tmp_path / "mine"))
    model, before = pf.load(mine, mapped=mapped), (mine / "model.safetensors").read_bytes()
    kept = pf.load(mine)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.add_(1)
    torch.optim.SGD(model.parameters(), 0.5).zero_grad()
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    torch.optim.SGD(model.parameters(), 0.5).step()
    assert (mine / "model.safetensors").read_bytes() == before
    assert same(kept, pf.load(folder(which)))
    assert not same(model, kept)


def test_no_number_of_a_model_is_another_s(folder: Callable[[str], Path], tmp_path: Path) -> None:
    """One weight filled with numbers leaves every other alone: of a file that maps, and of a torch file whose tensors
    share theirs."""
    shared = another(folder("gpt2 base"), tmp_path, lambda held: held)
    held = load_file(shared / "model.safetensors")
    held["h.1.ln_1.weight"] = held["h.0.ln_1.weight"]
    held["h.1.mlp.c_fc.weight"] = held["h.0.mlp.c_fc.weight"]
    (shared / "model.safetensors").unlink()
    torch.save(held, shared / "pytorch_model.bin")
    for at in (folder("gpt2 base"), folder("phi3 longrope, short"), shared):
        model = pf.load(at)
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for name, weight in model.state_dict().items():
            weight.fill_(7)
            assert all(torch.equal(t, before[n]) for n, t in model.state_dict().items() if n != name), name
            weight.copy_(before[name])


def test_a_folder_may_go_while_its_model_is_used(folder: Callable[[str], Path], tmp_path: Path) -> None:
    """Removed, and another exported under its name: the model stays what it was."""
    mine = Path(shutil.copytree(folder("gpt2 base"), tmp_path / "mine"))
    model = pf.load(mine)
    shutil.rmtree(mine)
    export(model, mine, like=folder("gpt2 base"))
    assert same(pf.load(mine), pf.load(folder("gpt2 base")))
    assert (mine / "model.safetensors").read_bytes() == (folder("gpt2 base") / "model.safetensors").read_bytes()
    assert same(model, pf.load(folder("gpt2 base")))


@pytest.mark.parametrize("more", range(1, 5))
def test_numbers_at_odd_places_are_copied(more: int, folder: Callable[[str], Path], tmp_path: Path) -> None:
    """A header of any length is allowed: what follows then starts at no multiple of a number's size."""
    odd = another(folder("bart"), tmp_path, lambda held: held)
    raw = (odd / "model.safetensors").read_bytes()
    n = int.from_bytes(raw[:8], "little")
    padded = (n + more).to_bytes(8, "little") + raw[8 : 8 + n] + b" " * more + raw[8 + n :]
    (odd / "model.safetensors").write_bytes(padded)
    model = pf.load(odd)
    assert same(model, pf.load(folder("bart")))
    assert all(tensor.data_ptr() % tensor.element_size() == 0 for tensor in model.state_dict().values())


# --- memory -----------------------------------------------------------------------------------------------------------

PEAK = """
import sys, threading, time
from pathlib import Path
import torch, plainformer as pf
from plainformer.checkpoint import hub
def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) * 1024
top, done = [anonymous()], []
def watch():
    while not done:
        top.append(anonymous())
        time.sleep(0.002)
model = pf.load(sys.argv[2])  # what is loaded once, code and buffers, is no part of a model
model(torch.arange(8)[None])
start = anonymous()
thread = threading.Thread(target=watch)
thread.start()
model = pf.load(sys.argv[1], mapped=sys.argv[3] == "mapped")
model(torch.arange(8)[None])
done.append(1)
thread.join()
weights = sum(p.nbytes for p in model.parameters())
print((max(top) - start) / weights)
"""


@pytest.mark.proof
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory of a process is read from /proc")
@pytest.mark.parametrize("form", ["whole", "shards", "bin"])
@pytest.mark.parametrize("way", ["mapped", "copied"])
def test_loading_takes_the_memory_of_the_weights(form: str, way: str, tmp_path: Path) -> None:
    """Copied; mapped, next to none."""
    from plainformer.families import decoders

    spec = decoders.gpt2(vocab_size=8000, max_seq_len=64, d_model=512, n_layers=8, n_heads=8)
    export(Transformer(spec), tmp_path / "plain", shard_bytes=30_000_000 if form == "shards" else 10**10)
    at = in_bin(tmp_path / "plain", tmp_path, 1) if form == "bin" else tmp_path / "plain"
    tiny = decoders.gpt2(vocab_size=80, max_seq_len=64, d_model=8, n_layers=1, n_heads=2)
    export(Transformer(tiny), tmp_path / "tiny")
    first = in_bin(tmp_path / "tiny", tmp_path / "first", 1) if form == "bin" else tmp_path / "tiny"
    ran = subprocess.run(
        [sys.executable, "-c", PEAK, str(at), str(first), way], capture_output=True, text=True, check=True
    )
    if way == "mapped" and form != "bin":
        assert float(ran.stdout) <= 0.2
    else:
        assert 0.9 < float(ran.stdout) <= 1.1

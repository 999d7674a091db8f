"""Weights as they are stored: against published files, and against packings made by hand. Devices and their bounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plainformer.cli import main
from plainformer.cli.plotting import against_context
from plainformer.cost import Cost
from plainformer.cost.devices import DEVICES, Device, device, needed
from plainformer.cost.flops import Work, flops
from plainformer.cost.serving import Serving, least_for_a_prompt, pairs
from plainformer.cost.stored import METHODS, covers, stored_bytes
from plainformer.faults import PlainformerError
from plainformer.huggingface import read
from plainformer.ledger import Ledger
from plainformer.presets import presets
from plainformer.report.sheet import Subject

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "torch_dtype": "bfloat16",
}
# Of one layer of LLAMA: (outputs, inputs).
LINEARS = [(256, 256), (128, 256), (128, 256), (256, 256), (384, 256), (384, 256), (256, 384)]
OTHERS = 2 * (2 * 100 * 256 + (2 * 2 + 1) * 256)  # tables and norms in 16 bits


def stored(quantization: dict[str, Any], **more: Any) -> tuple[int | None, str]:
    reading = read(LLAMA | more | {"quantization_config": quantization})
    rows = Ledger.of(reading.spec).weights
    each, notes = stored_bytes(reading.spec, rows, reading.dtype, reading.quantization, reading.model_type)
    return each and sum(each), " ".join(notes)


def test_published_files_have_the_bytes_that_their_configs_say(cases: Path) -> None:
    """gpt-oss-20b's index says total_size 13761264768. The others are by hand: a byte a number, 4 a block of 128 x 128,
    2 for tables, norms, routers."""
    sizes = {}
    for name in ("gpt-oss-20b", "qwen3-moe-qwen3-30b-a3b-fp8", "deepseek-v3"):
        held = json.loads((cases / "cases" / "size" / f"{name}.json").read_text(encoding="utf-8"))
        reading = read(held["config"], name)
        rows = Ledger.of(reading.spec).weights
        each, _ = stored_bytes(reading.spec, rows, reading.dtype, reading.quantization, reading.model_type)
        sizes[name] = each and sum(each)
    qwen = 48 * (2 * 4096 * 2048 + 2 * 512 * 2048 + 128 * 3 * 768 * 2048)
    assert sizes == {
        "gpt-oss-20b": 13_761_264_768,
        "qwen3-moe-qwen3-30b-a3b-fp8": 2 * 30_532_122_624 - qwen + 4 * qwen // 128**2,
        "deepseek-v3": 673_150_552_416,
    }


def test_blocks_that_are_not_full_have_a_scale_too() -> None:
    total, said = stored({"quant_method": "fp8", "weight_block_size": [100, 100]})
    blocks = sum(-(-n // 100) * -(-m // 100) for n, m in LINEARS)
    assert total == OTHERS + 2 * (sum(n * m for n, m in LINEARS) + 4 * blocks)
    assert "fp8" in said


@pytest.mark.parametrize(("bits", "size"), [(4, 128), (8, 64), (4, -1), (2, 32)])
def test_gptq_by_hand(bits: int, size: int) -> None:
    total, _ = stored({"quant_method": "gptq", "bits": bits, "group_size": size})
    packed = 0
    for n, m in LINEARS:
        groups = 1 if size == -1 else -(-m // size)
        packed += 4 * (m * bits // 32) * n + 4 * groups * (n * bits // 32) + 2 * groups * n + 4 * m
    assert total == OTHERS + 2 * packed


def test_awq_by_hand_and_what_it_leaves_out() -> None:
    def packed(n: int, m: int) -> int:
        return 4 * m * (n // 8) + 4 * (m // 64) * (n // 8) + 2 * (m // 64) * n

    settings = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}
    every = sum(packed(n, m) for n, m in LINEARS)
    assert stored(settings)[0] == OTHERS + 2 * every
    kept = stored(settings | {"modules_to_not_convert": ["model.layers.1.self_attn"]})[0]
    assert kept == OTHERS + 2 * every + sum(2 * n * m - packed(n, m) for n, m in LINEARS[:4])
    assert stored(settings | {"modules_to_not_convert": ["lm_head"]})[0] == OTHERS + 2 * every


def test_compressed_tensors_by_hand() -> None:
    def settings(form: str, **weights: Any) -> dict[str, Any]:
        groups = {"group_0": {"targets": ["Linear"], "weights": {"symmetric": True} | weights}}
        return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]}

    channel = stored(settings("float-quantized", num_bits=8, strategy="channel"))[0]
    assert channel == OTHERS + 2 * sum(n * m + 2 * n for n, m in LINEARS)
    packed = stored(settings("pack-quantized", num_bits=4, strategy="group", group_size=64))[0]
    assert packed == OTHERS + 2 * sum(n * m // 2 + 2 * n * (m // 64) + 16 for n, m in LINEARS)


NOT_UNDERSTOOD = {
    "bitnet": {"quant_method": "bitnet"},
    "weight_block_size": {"quant_method": "fp8"},
    "bits": {"quant_method": "gptq", "bits": 5},
    "group_size": {"quant_method": "gptq", "bits": 4, "group_size": 0},
    "words of 32": {"quant_method": "gptq", "bits": 3, "group_size": 32} | {},
    "version": {"quant_method": "awq", "bits": 4, "version": "marlin"},
    "config_groups": {"quant_method": "compressed-tensors"},
    "none of this model's": {"quant_method": "mxfp4"},
    "not named": {"bits": 4},
    "no list": {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": "x"},
}


@pytest.mark.parametrize("words", NOT_UNDERSTOOD)
def test_what_is_not_understood_is_named_and_gives_no_number(words: str) -> None:
    more = {"intermediate_size": 388} if words == "words of 32" else {}
    total, said = stored(NOT_UNDERSTOOD[words], **more)
    assert total is None
    assert words in said


def test_an_exclusion_in_a_family_without_names_gives_no_number() -> None:
    reading = read(LLAMA)
    rows = Ledger.of(reading.spec).weights
    settings = {"quant_method": "fp8", "weight_block_size": [1, 1], "modules_to_not_convert": ["model.layers.0"]}
    total, (said,) = stored_bytes(reading.spec, rows, "bfloat16", settings, "nowhere")
    assert total is None
    assert "nowhere" in said


def test_an_exclusion_covers_a_module_and_what_is_in_it() -> None:
    name = "model.layers.12.self_attn.q_proj.weight"
    for pattern in ("self_attn", "model.layers.12", "model.layers.*.self_attn", "q_proj", r"re:.*self_attn.*"):
        assert covers(pattern, name), pattern
    for pattern in ("model.layers.1", "attn", "k_proj", "re:lm_head", "weight"):
        assert not covers(pattern, name), pattern


def test_every_method_says_what_it_stores() -> None:
    assert all(method.__doc__ for method in METHODS.values())


# --- devices ----------------------------------------------------------------------------------------------------------


def test_a_device_is_a_name_or_three_numbers() -> None:
    assert device("H100") == device("h100") == DEVICES["h100"]
    assert device("80e9,989e12,3.35e12") == Device("80e9,989e12,3.35e12", 80e9, 989e12, 3.35e12)
    for wrong, words in {
        "h1000": "h100",
        "1,2": "three",
        "1,2,x": "'x'",
        "1,2,-3": "above 0",
        "1,nan,2": "above",
    }.items():
        with pytest.raises(PlainformerError, match=words):
            device(wrong)


def test_how_many_are_needed_is_rounded_up() -> None:
    one = Device("one", 100.0, 1.0, 1.0)
    assert [needed(n, one) for n in (0, 1, 100, 101, 1000)] == [1, 1, 1, 2, 10]


def test_a_step_reads_all_weights_but_tables_that_only_look_up() -> None:
    gpt2 = Serving.of(Cost.of(presets["gpt2"], batch_size=3, seq_len=100))
    assert gpt2.weights_read == 2 * (124_439_808 - 1024 * 768 + 3 * 768)  # the tied table is read as the head
    assert gpt2.cache_read == 3 * 100 * 36_864
    llama = Serving.of(Cost.of(presets["llama-3-8b"], seq_len=1))
    assert llama.weights_read == 2 * (8_030_261_248 - 128_256 * 4096 + 4096)
    assert llama.memory_bytes == 2 * 8_030_261_248 + 131_072


AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"}


def test_a_step_reads_each_weight_in_the_bytes_that_it_has() -> None:
    """Packed linears beside a table and a head of 16 bits: of the table a row, of every other weight all its bytes."""
    reading = read(LLAMA | {"quantization_config": AWQ})
    cost = Cost.of(reading.spec, seq_len=1)
    each, _ = stored_bytes(reading.spec, cost.ledger.weights, "bfloat16", AWQ, "llama")
    assert each is not None
    serving = Serving.of(cost, each)
    assert serving.weights_read == sum(each) - 2 * 99 * 256
    assert serving.memory_bytes == sum(each) + cost.cache_bytes


def test_a_dtype_that_is_asked_for_is_what_a_device_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Told, it is also what a picture of memory begins with; untold, both are of the weights as they are stored."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"torch_dtype": "float32"}), encoding="utf-8")
    total = Ledger.of(read(LLAMA).spec).total

    for words, held in (([], 4 * total), (["--dtype", "int4"], total // 2)):
        assert main(["size", str(path), "--device", "t4", "--context", "1", "--json", "--explain", *words]) == 0
        sheet = json.loads(capsys.readouterr().out)
        (formula,) = [one["values"] for one in sheet["formulas"] if one["what"] == "memory needed"]
        assert sheet["weights_bytes"]["as_stored"] == 4 * total
        assert sheet["device"]["memory_needed"] == held + sheet["kv_cache"]["bytes"]
        assert formula.startswith(f"{held:,} + ")
        cost = Cost.of(read(LLAMA).spec, seq_len=1, dtype="int4" if words else "bfloat16")
        subject = Subject(name="it", spec=cost.spec, family="llama", model_type="llama")
        name = "it, in int4" if words else "it"
        assert against_context([(subject, sheet, cost)], "int4" if words else None) == [
            (name, [(1, sheet["device"]["memory_needed"])])
        ]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "bitsandbytes"),
        ({"torch_dtype": "float8_e4m3fn"}, "float8_e4m3fn"),
        ({"torch_dtype": "auto"}, "auto"),
        ({"torch_dtype": None}, "does not say in which dtype"),
    ],
)
def test_a_device_s_figures_say_in_which_dtype_they_take_what_is_not_understood(
    more: dict[str, Any], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | more), encoding="utf-8")
    taken = "memory and bounds take the weights in bfloat16"
    for words, is_said in (((), True), (("--dtype", "bfloat16"), False)):
        assert main(["size", str(path), "--device", "t4", "--json", *words]) == 0
        sheet = json.loads(capsys.readouterr().out)
        assert sheet["weights_bytes"]["as_stored"] is None
        assert any(why in note for note in sheet["notes"])
        assert any(taken in note for note in sheet["notes"]) == is_said
    assert main(["size", str(path), "--json"]) == 0
    assert taken not in capsys.readouterr().out


def test_a_step_of_one_row_reads_the_experts_of_one_token() -> None:
    spec = presets["mixtral-8x7b"]
    one, many = (Serving.of(Cost.of(spec, batch_size=n, seq_len=1)) for n in (1, 1000))
    assert one.weights_read == 2 * (12_879_925_248 - 32_000 * 4096 + 4096)
    assert many.weights_read == 2 * (46_702_792_704 - 31_000 * 4096)


def test_a_step_of_an_encoder_decoder_is_the_decoder_s() -> None:
    cost = Cost.of(presets["t5-small"], seq_len=10, source_len=30)
    spec, step = cost.spec, Serving.of(cost)
    read = sum(row.count for row in cost.ledger.weights if row.name.startswith("decoder."))
    read -= sum(row.count for row in cost.ledger.weights if ".cross_attention.k" in row.name)
    read -= sum(row.count for row in cost.ledger.weights if ".cross_attention.v" in row.name)
    assert step.weights_read == 2 * (read - 32 * 8 + 8 + 32_128 * 512)
    without_source = flops(spec.decoder, Work(1, 1, 10, 30)) - flops(spec.decoder, Work(1, 1, 10, 0))
    assert step.step_flops < flops(spec.decoder, Work(1, 1, 10, 30)) + flops(spec.head, Work(1, 1, 1))
    assert step.step_flops == flops(spec.decoder, Work(1, 1, 10, 0)) + flops(spec.head, Work(1, 1, 1)) + (
        without_source - 2 * 30 * 6 * 2 * 512 * 512
    )


def test_the_least_work_of_a_prompt_is_what_each_query_may_see() -> None:
    assert [pairs(4, None), pairs(4, 2), pairs(4, 9)] == [10, 7, 10]
    cost = Cost.of(presets["gpt2"], seq_len=8)
    weights = 12 * 12 * 768 * 768
    assert least_for_a_prompt(cost) == 2 * 8 * weights + 4 * 36 * 768 * 12 + 2 * 50_257 * 768
    assert (
        least_for_a_prompt(Cost.of(presets["bert-base"], seq_len=8))
        == Cost.of(presets["bert-base"], seq_len=8).forward_flops
    )


def test_a_window_holds_for_borrowed_keys_too() -> None:
    """Gemma 3n: the last layers ask the keys of earlier ones, as far as those windows reach."""
    config = {"model_type": "gemma3n_text", "num_hidden_layers": 10, "num_kv_shared_layers": 5, "sliding_window": 4}
    config |= {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}
    config |= {"intermediate_size": [96] * 10, "activation_sparsity_pattern": [0.0] * 10, "vocab_size": 50}
    config |= {"vocab_size_per_layer_input": 50, "hidden_size_per_layer_input": 8, "laurel_rank": 4}
    near, far = (Cost.of(read(config | {"sliding_window": n}).spec, seq_len=16) for n in (4, 16))
    of_a_window = 4 * 2 * 32 * (pairs(16, None) - pairs(16, 4))  # 4 operations a pair, head and width
    assert least_for_a_prompt(far) - least_for_a_prompt(near) == 8 * of_a_window  # every fifth layer sees all
    saved = 4 * 2 * 32 * (16 - 4)
    assert Serving.of(far).step_flops - Serving.of(near).step_flops == 8 * saved


def test_the_longer_of_reading_and_computing_binds() -> None:
    serving = Serving.of(Cost.of(presets["llama-3-8b"], seq_len=1))
    slow = Device("slow to read", 1e12, 1e15, 1e9)
    assert serving.is_bound_by_memory(slow)
    assert serving.step_seconds(slow) == (serving.weights_read + serving.cache_read) / 1e9
    weak = Device("slow to compute", 1e12, 1e9, 1e15)
    assert not serving.is_bound_by_memory(weak)
    assert serving.step_seconds(weak) == serving.step_flops / 1e9

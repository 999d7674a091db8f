"""The sheet's sections that are asked for: formulas that give their numbers, what-if, side by side, sizes, labels."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plainformer.cli import main
from plainformer.cli.changing import changes_in, what_if
from plainformer.cli.model_argument import bare_size
from plainformer.conventions import CONVENTIONS, count
from plainformer.conventions.finding import gpt2_shape, label, nearest, search, totals
from plainformer.cost import Cost
from plainformer.cost.devices import DEVICES
from plainformer.faults import PlainformerError
from plainformer.huggingface import read
from plainformer.huggingface.changing import NAMES, change_spec
from plainformer.ledger import Ledger
from plainformer.presets import presets
from plainformer.report.explain import formulas

Run = Callable[..., tuple[int, str, str]]
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")

    def command(*words: str) -> tuple[int, str, str]:
        try:
            status = main(words)
        except SystemExit as left:
            status = int(left.code or 0)
        return status, *capsys.readouterr()

    return command


@pytest.fixture
def sheet(run: Run) -> Callable[..., Any]:
    def of(*words: str) -> Any:
        status, out, said = run("size", "--json", *words)
        assert (status, said) == (0, "")
        return json.loads(out)

    return of


# --- formulas ---------------------------------------------------------------------------------------------------------

ASKED = ("--train", "--tokens", "1e9", "--sustained", "3e14", "--price", "2", "--watts", "700", "--device", "a100-80gb")


@pytest.mark.parametrize("name", list(presets))
def test_every_formula_gives_its_number(sheet: Callable[..., Any], name: str) -> None:
    """Its values are arithmetic: with commas gone and x for times, Python finds the same."""
    said = sheet(name, "--explain", "--context", "100", "--batch", "3", *ASKED)
    told = said["formulas"]
    for one in told:
        arithmetic = one["values"].replace(",", "").replace(" x ", " * ")
        assert re.fullmatch(r"[\d+\-*/(). e]+", arithmetic), one
        value = eval(arithmetic)
        rounded_up = -(-value // 1) if one["what"] == "forward, one token" else value
        assert rounded_up == pytest.approx(one["result"], rel=1e-12, abs=0.51 if "weights" in one["what"] else 0), one
    results = {one["what"]: one["result"] for one in told}
    assert results["parameters"] == said["parameters"]["total"]
    assert results["device hours"] == said["training"]["device_hours"]
    assert results["energy, kWh"] == said["energy_kwh"]
    assert results["memory needed"] == said["device"]["memory_needed"]


def test_formulas_follow_a_convention() -> None:
    cost = Cost.of(presets["gpt2"])
    from plainformer.report.sheet import Subject, facts

    subject = Subject(name="gpt2", spec=cost.spec, family="gpt2")
    told = {one.what: one for one in formulas(facts(subject, cost, convention="nanogpt"), cost)}
    assert told["parameters"].result == 123_689_472
    assert told["weights, bfloat16"].result == 248_879_616


# --- devices and training, as they are asked for ----------------------------------------------------------------------


def test_a_device_has_a_section(sheet: Callable[..., Any], run: Run) -> None:
    of = sheet("llama-3-8b", "--device", "h100", "--context", "8192")["device"]
    assert of["memory_needed"] == 16_060_522_496 + 8192 * 131_072
    assert (of["needed"], of["fits"], of["decode_bound"]) == (1, True, "bandwidth")
    assert of["dtype"] == "bfloat16"
    read = 16_060_522_496 - 2 * 128_255 * 4096 + 8192 * 131_072
    assert of["bytes_read_per_step"] == read
    assert of["decode_tokens_per_second"] == pytest.approx(3.35e12 / read)
    assert set(of["devices_needed"]) == set(DEVICES)
    assert of["devices_needed"]["t4"] == 2
    table = run("size", "deepseek-v3", "--device", "h200")[1]
    assert "decoding, at most" in table
    assert "layers 0-2" in table
    assert "without both tables" in table


def test_utilisation_is_a_share_of_the_device_s_peak(sheet: Callable[..., Any], run: Run) -> None:
    asked = ("gpt2", "--tokens", "1e9", "--device", "a100-80gb")
    told = sheet(*asked, "--utilisation", "0.4")
    assert told["training"]["device_hours"] == pytest.approx(3 * 284_812_800 * 1e9 / (0.4 * 312e12) / 3600)
    assert told["energy_kwh"] == pytest.approx(told["training"]["device_hours"] * 0.4)  # its 400 watts
    assert run("size", "gpt2", "--utilisation", "0.4")[0] == 2
    assert run("size", "gpt2", "--utilisation", "1.4", "--device", "t4")[0] == 2
    assert run("size", *asked, "--utilisation", "0.4", "--sustained", "1e12")[0] == 2


def test_training_has_a_section(sheet: Callable[..., Any], run: Run) -> None:
    asked = ("gpt2", "--context", "64", "--batch", "2", "--train")
    of = sheet(*asked)["training_memory"]
    parts = ("weights", "gradients", "optimizer_state", "activations", "logits")
    assert of["total"] == sum(of[part] for part in parts)
    assert of["compute_optimal_tokens"] == 20 * 124_439_808
    shared = sheet(*asked, "--zero", "3", "--devices", "4")["training_memory"]
    assert shared["weights"] == -(-of["weights"] // 4)
    adapters = sheet(*asked, "--lora", "8", "--tokens", "1e6")
    assert adapters["training"]["flops_exact"] == adapters["training_memory"]["flops_per_token"] * 1e6
    assert adapters["training"]["flops_exact"] < 0.75 * sheet(*asked, "--tokens", "1e6")["training"]["flops_exact"]
    assert "trained parameters" in run("size", "gpt2", "--qlora", "8")[1]
    status, _, said = run("size", *asked, "--zero", "2")
    assert (status, "--zero" in said) == (2, True)
    assert run("size", *asked, "--lora", "8", "--qlora", "8")[0] == 2


# --- a bare size ------------------------------------------------------------------------------------------------------


def test_a_bare_size_by_the_rules_of_thumb(sheet: Callable[..., Any], run: Run) -> None:
    told = sheet("7B", "--tokens", "140e9", "--sustained", "400e12", "--price", "2")
    assert told["training"]["flops_6nd"] == 5.88e21
    assert round(told["training"]["device_hours"], 2) == 4083.33
    assert told["training"]["dollars"] == pytest.approx(8166.67, abs=0.01)
    assert told["training"]["compute_optimal_tokens"] == 140_000_000_000
    assert told["weights_bytes"]["bfloat16"] == 14_000_000_000
    assert "4,083.33" in run("size", "7B", "--tokens", "140e9", "--sustained", "400e12")[1]
    assert sheet("70B", "--device", "h100")["device"]["needed"] == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [("7B", 7 * 10**9), ("1.5b", 1_500_000_000), ("124M", 124_000_000), ("0.1k", 100), ("7", None), ("x7B", None)],
)
def test_what_a_bare_size_is(text: str, size: int | None) -> None:
    assert bare_size(text) == size


def test_a_folder_named_like_a_size_is_a_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "7B").mkdir()
    (tmp_path / "7B" / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert json.loads(run("size", "7B", "--json")[1])["family"] == "llama"


@pytest.mark.parametrize("flag", ["--explain", "--train", "--compare", "--csv", "--lora=4", "--plot=x.svg"])
def test_what_needs_layers_is_refused_of_a_size(run: Run, flag: str) -> None:
    status, out, said = run("size", "7B", flag)
    assert (status, out) == (2, "")
    assert flag.partition("=")[0] in said
    assert run("size", "7B", "--what-if", "tied=true")[0] == 2


# --- what if ----------------------------------------------------------------------------------------------------------

OURS = {
    "n_layers": ("num_hidden_layers", 3),
    "d_model": ("hidden_size", 128),
    "n_heads": ("num_attention_heads", 8),
    "n_kv_heads": ("num_key_value_heads", 1),
    "d_head": ("head_dim", 24),
    "d_ff": ("intermediate_size", 33),
    "vocab_size": ("vocab_size", 7),
    "max_seq_len": ("max_position_embeddings", 99),
    "tied": ("tie_word_embeddings", True),
}


@pytest.mark.parametrize("name", OURS)
def test_a_change_is_the_reading_of_the_changed_config(tmp_path: Path, name: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    key, value = OURS[name]
    wanted = read(LLAMA | {key: value}).spec
    assert what_if(str(path), {name: value}).spec == what_if(str(path), {key: value}).spec == wanted
    assert wanted != read(LLAMA).spec


def test_a_change_inside_a_text_config_is_made_there(tmp_path: Path) -> None:
    text = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    text |= {"intermediate_size": 96, "vocab_size": 100, "head_dim": 16, "model_type": "gemma3_text"}
    config = {"model_type": "gemma3", "text_config": text, "vision_config": {"vision_use_head": False}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    new = what_if(str(path), {"n_layers": 3}).spec
    assert len(new.decoder.layers) == 3


def test_the_issue_s_change_of_gpt2(sheet: Callable[..., Any], run: Run, tmp_path: Path) -> None:
    """Twelve heads share four keys; by hand. A config without such a key is changed in its spec."""
    total = 124_439_808 + 47 * 768 + 50_304 * 768 - 12 * 2 * (768 * 512 + 512)
    asked = ("--what-if", "n_kv_heads=4,tied=false,vocab_size=50304")
    assert sheet("gpt2", *asked)["parameters"]["total"] == total
    config = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert sheet(str(tmp_path), *asked)["parameters"]["total"] == total
    table = run("size", "gpt2", *asked)[1]
    assert f"{total:,}  x {total / 124_439_808:.3f}" in table


@pytest.mark.parametrize(
    ("model", "change", "words"),
    [
        ("gpt2", "n_kv_heads=5", "--what-if n_kv_heads = 5: must divide n_heads"),
        ("gpt2", "n_heads=7", "n_heads"),
        ("gpt2", "n_layr=3", "n_layers"),
        ("gpt2", "n_layers=0", "n_layers"),
        ("gpt2", "d_model=0", "--what-if d_model = 0: must be at least 1"),
        ("gpt2", "d_model=0.5", "--what-if d_model = 0.5: must be int"),
        ("gpt2", "n_layers=100000000", "n_layers"),
        ("gpt2", "n_layers=x", "n_layers"),
        ("gpt2", "tied=1", "tied"),
        ("gpt2", "activation=sine", "activation"),
        ("gpt2", "tied", "NAME=VALUE"),
        ("gpt2", "tied=true,tied=false", "twice"),
        ("deepseek-v3", "n_kv_heads=8", "no part"),
        ("config", "num_key_value_heads=3", "num_key_value_heads"),
        ("config", "n_kv_heads=3", "num_key_value_heads"),
        ("config", "hidden_sise=3", "hidden_size"),
        ("config", "vocab_size=true", "vocab_size"),
        ("config", "n_experts=8", "n_experts"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_key(
    run: Run, tmp_path: Path, model: str, change: str, words: str
) -> None:
    if model == "config":
        (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
        model = str(tmp_path)
    status, out, said = run("size", model, "--what-if", change)
    assert (status, out) == (2, "")
    assert words in said
    assert said.count("\n") <= 2


VALUES = st.sampled_from(["0", "1", "2", "3", "4", "6", "8", "-1", "100", "1e3", "0.5", "true", "false", "null", "x"])
KEYS = st.sampled_from([*NAMES, "hidden_size", "num_key_value_heads", "rope_theta", "activation", "eps", "nonsense"])


@given(model=st.sampled_from(["gpt2", "t5-small", "mixtral-8x7b", "bert-base", "tiny", "config"]), data=st.data())
@settings(max_examples=150)
def test_any_change_is_answered_or_refused(model: str, data: st.DataObject, tmp_path_factory: Any) -> None:
    changes = data.draw(st.dictionaries(KEYS, VALUES, min_size=1, max_size=3))
    if model == "config":
        path = tmp_path_factory.getbasetemp() / "config.json"
        path.write_text(json.dumps(LLAMA), encoding="utf-8")
        model = str(path)
    with suppress(PlainformerError):  # the only error there may be
        spec = what_if(model, changes_in(",".join(f"{name}={value}" for name, value in changes.items()))).spec
        assert Ledger.of(spec).total > 0


def test_a_spec_is_changed_where_there_is_no_config() -> None:
    spec = presets["llama-3-8b"]
    assert change_spec(spec, "n_kv_heads", 32).decoder.layers[0][0].branches[0].part.n_kv_heads == 32
    assert len(change_spec(spec, "n_layers", 5).decoder.layers) == 5
    assert Ledger.of(change_spec(spec, "d_ff", 100)).by_kind["feed_forward"] == 32 * 3 * 100 * 4096
    with pytest.raises(PlainformerError, match="not all alike"):
        change_spec(presets["deepseek-v3"], "n_layers", 5)


T5 = {"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 48, "num_heads": 4, "num_layers": 4, "vocab_size": 50}
BART = {"model_type": "bart", "d_model": 24, "vocab_size": 50} | {
    f"{stack}_{size}": n
    for stack in ("encoder", "decoder")
    for size, n in (("layers", 4), ("attention_heads", 2), ("ffn_dim", 48))
}
# The readers of these two add keys of their own to the config's.
SWITCH = T5 | {"model_type": "switch_transformers", "num_experts": 4}
LATENT = {"model_type": "glm_moe_dsa", "vocab_size": 50, "hidden_size": 32, "intermediate_size": 48}
LATENT |= {"moe_intermediate_size": 16, "num_hidden_layers": 3, "num_attention_heads": 4, "n_routed_experts": 8}
LATENT |= {"num_experts_per_tok": 2, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}


@pytest.mark.parametrize(
    ("config", "changes", "keys"),
    [
        (T5, {"n_layers": 3}, {"num_layers": 3}),
        (T5 | {"num_decoder_layers": 4}, {"n_layers": 3}, {"num_layers": 3, "num_decoder_layers": 3}),
        (T5, {"num_decoder_layers": 5, "n_layers": 3}, {"num_layers": 3, "num_decoder_layers": 5}),
        (BART, {"n_layers": 3}, {"encoder_layers": 3, "decoder_layers": 3}),
        (BART, {"n_heads": 6}, {"encoder_attention_heads": 6, "decoder_attention_heads": 6}),
        (BART, {"d_ff": 9}, {"encoder_ffn_dim": 9, "decoder_ffn_dim": 9}),
        (BART, {"encoder_layers": 3}, {"encoder_layers": 3}),
        (SWITCH, {"n_layers": 6}, {"num_layers": 6, "num_decoder_layers": 6}),
        (SWITCH, {"num_decoder_layers": 6}, {"num_decoder_layers": 6}),
        (SWITCH, {"n_experts": 2, "d_model": 64}, {"num_experts": 2, "d_model": 64}),
        (LATENT, {"n_layers": 5, "d_expert": 24}, {"num_hidden_layers": 5, "moe_intermediate_size": 24}),
    ],
)
def test_our_name_changes_both_stacks_a_config_s_own_key_the_one_that_it_names(
    tmp_path: Path, config: dict[str, object], changes: dict[str, object], keys: dict[str, object]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    assert what_if(str(path), changes).spec == read(config | keys).spec != read(config).spec


FALCON = {"model_type": "falcon", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 50}
MIXED = LLAMA | {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
ROBERTA = LLAMA | {"model_type": "roberta", "num_key_value_heads": None}


@pytest.mark.parametrize(
    ("config", "change", "key"),
    [
        (FALCON, "n_kv_heads=2", "num_kv_heads"),
        (MIXED, "d_ff=1000", "intermediate_size"),
        (ROBERTA, "n_kv_heads=2", "num_key_value_heads"),
    ],
)
def test_our_name_for_a_key_that_counts_for_nothing_here_is_refused(
    run: Run, tmp_path: Path, config: dict[str, object], change: str, key: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    status, out, said = run("size", str(tmp_path), "--what-if", change)
    assert (status, out) == (2, "")
    assert f"changes nothing: no part of this model is made by {key}" in said


@pytest.mark.parametrize("change", ["hidden_size=32,d_model=128", "d_model=128,hidden_size=32"])
def test_a_size_that_is_said_twice_is_told_so(run: Run, tmp_path: Path, change: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    status, out, said = run("size", str(tmp_path), "--what-if", change)
    assert (status, out) == (2, "")
    assert "--what-if d_model = 128: is said twice, as hidden_size too" in said


def test_a_change_to_what_the_model_has_already_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    same = {"n_layers": LLAMA["num_hidden_layers"], "tied": False, "n_kv_heads": LLAMA["num_key_value_heads"]}
    assert what_if(str(path), same).spec == read(LLAMA).spec


# --- side by side, pictures -------------------------------------------------------------------------------------------


def test_models_side_by_side_with_their_ratio(run: Run) -> None:
    table = run("size", "gpt2", "gpt2-xl", "--compare")[1]
    assert "1,557,611,200  x 12.517" in table
    assert "feed-forward" in table


TOLD = ("--train", "--tokens", "1e12", "--sustained", "4e14", "--price", "2", "--watts", "700", "--device", "h100")


@pytest.mark.parametrize("how", [(), ("--compare",)])
def test_what_is_asked_of_several_models_is_told_of_each(run: Run, sheet: Callable[..., Any], how: Any) -> None:
    """Training, hours, dollars and a device have no column in a row for each model: they are set side by side."""
    table = run("size", "gpt2", "gpt2-xl", *TOLD, "--published", "124000000,1500000000", *how)[1]
    assert "-3,534.3 ppm" in table
    for each in sheet("gpt2", "gpt2-xl", *TOLD):
        assert f"{each['training_memory']['total']:,}" in table
        assert f"{each['training']['dollars']:,.1f}" in table
        assert f"{each['device']['memory_needed']:,}" in table
        assert f"{each['device']['decode_tokens_per_second']:,.1f}" in table
    for words in (("--tokens", "1e9"), ("--device", "t4"), ("--batch", "2"), ("--zero", "1", "--devices", "2")):
        assert run("size", "gpt2", "gpt2-xl", *words)[1] != run("size", "gpt2", "gpt2-xl")[1]


def test_models_side_by_side_say_what_is_stored(run: Run, tmp_path: Path) -> None:
    """A device holds that where no dtype is told: beside it the weights in another alone would not explain it."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"torch_dtype": "float32"}), encoding="utf-8")
    stored = f"{4 * Ledger.of(read(LLAMA).spec).total:,}"
    table = run("size", str(path), "gpt2", "--device", "t4")[1]
    assert re.search(rf"weights, as stored, B +{stored} +none", table)
    assert "as stored" not in run("size", "gpt2", "gpt2-xl", "--compare")[1]


def test_several_models_say_by_which_rule_they_are_counted(run: Run) -> None:
    for how in ((), ("--compare",)):
        table = run("size", "gpt2", "gpt2-xl", "--convention", "nanogpt", *how)[1]
        assert table.count("parameters are counted as nanogpt") == 1
        assert "123,689,472" in table
    assert run("size", "gpt2", "gpt2-xl", "--convention", "all", "--compare")[1].count("124,753,152") == 1


def test_memory_against_context_is_drawn(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "memory.svg"
    assert run("size", "gpt2", "llama-3-8b", "--json", "--plot-memory", str(path))[0] == 0
    assert "GB (1e9 bytes)" in path.read_text(encoding="utf-8")
    status, out, _ = run("size", "llama-3-8b", "--plot-memory", "-")
    assert (status, "16.06" in out, "17.13" in out) == (0, True, True)


# --- what a label counts ----------------------------------------------------------------------------------------------


def test_458m_and_849m_are_one_shape_at_gpt2_widths_and_several_at_multiples_of_64() -> None:
    for text, layers, several in (("458M", 20, 5), ("849M", 25, 3)):
        found: Any = search(text, "nanogpt")["shapes"]
        assert [len(found[key]) for key in ("gpt2_widths", "multiples_of_64", "64_a_layer")] == [1, several, 1]
        assert found["64_a_layer"] == found["gpt2_widths"] == [(layers, 64 * layers)]


def test_a_plotted_number_finds_its_shape_and_convention() -> None:
    plotted = (1895722, 3688527, 7569052, 19676969, 34133447, 51735630, 82340777, 124753293)
    shapes = [(4, 32), (4, 64), (4, 128), (8, 256), (8, 384), (8, 512), (10, 640), (12, 768)]
    for x, shape, ppm in zip(plotted, shapes, (5.3, 4.1, 3.7, 2.1, 2.1, 1.5, 0.5, 1.1), strict=True):
        answer: Any = search(str(x))
        for best in (answer["published"][0], answer["nearest"][0]):
            assert ((best.n_layers, best.d_model), best.convention) == (shape, "authors")
            assert best.ppm == pytest.approx(ppm, abs=0.06)


def test_117m_is_no_rule_s_number(run: Run) -> None:
    for text in ("117M", "117m"):
        status, out, _ = run("size", "--find", text)
        assert status == 0
        assert f"no convention gives {text}: it is OpenAI's first label of GPT-2 small, 124M by count" in out
    assert json.loads(run("size", "--find", "124M", "--json")[1])["published"][0]["name"] == "gpt2"


def test_counts_by_a_curve_are_counts() -> None:
    for name in CONVENTIONS:
        for n, width in ((1, 32), (7, 96), (96, 4096)):
            assert totals(name)(n, width) == count(gpt2_shape(n, width), name).total


def test_the_nearest_are_sorted_by_their_distance() -> None:
    found = nearest(label("123,456,789"), list(CONVENTIONS), most=9)
    gaps = [abs(one.ppm) for one in found]
    assert gaps == sorted(gaps)
    assert all(one.ppm == pytest.approx(1e6 * (123_456_789 / one.total - 1)) for one in found)


@pytest.mark.parametrize("text", ["", "x", "1.5", "-5", "0", "0M", "1e9", "5MM", "9" * 40])
def test_what_is_no_label_is_refused(run: Run, text: str) -> None:
    status, out, said = run("size", f"--find={text}")
    assert (status, out) == (2, "")
    assert "--find" in said
    assert run("size", "gpt2", "--find", "458M")[0] == 2


def test_published_numbers_stand_beside_the_counts(run: Run, sheet: Callable[..., Any]) -> None:
    """Figure 3's plotted sizes, to a tenth of a millionth."""
    names = [name for name in presets if name.startswith("fig3-")]
    plotted = "1895722,3688527,7569052,19676969,34133447,51735630,82340777,124753293"
    table = run("size", *names, "--convention", "authors", "--published", plotted)[1]
    assert re.findall(r"\+(\d\.\d) ppm", table) == ["5.3", "4.1", "3.7", "2.1", "2.1", "1.5", "0.5", "1.1"]
    assert "off by 439,808, -3,534.3 ppm" in run("size", "gpt2", "--published", "124000000")[1]
    assert sheet("gpt2", "--published", "124439808")["published"] == {"value": 124_439_808, "ppm": 0.0}
    status, _, said = run("size", "gpt2", "--published", "1,2")
    assert (status, "--published" in said) == (2, True)


def test_where_the_parameters_of_many_live_in_the_terminal(run: Run) -> None:
    status, out, _ = run("size", "gpt2", "mixtral-8x7b", "--plot", "-")
    assert status == 0
    bar = next(line for line in out.splitlines() if line.startswith("gpt2")).split()[1]
    assert bar == "T" * 16 + "A" * 11 + "F" * 23
    assert len(next(line for line in out.splitlines() if line.startswith("mixtral")).split()[1]) == 50


def test_a_config_without_a_type_is_read_as_it_is_told(run: Run, sheet: Callable[..., Any], tmp_path: Path) -> None:
    config = {key: value for key, value in LLAMA.items() if key != "model_type"}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    status, _, said = run("size", str(tmp_path))
    assert (status, "--family" in said) == (2, True)
    told = sheet(str(tmp_path), "--family", "llama")
    assert told["parameters"]["total"] == Ledger.of(read(LLAMA).spec).total
    assert (
        sheet(str(tmp_path), "--family", "llama", "--what-if", "n_layers=1")["parameters"]["total"]
        < told["parameters"]["total"]
    )
    assert any("dtype" in note for note in told["notes"])

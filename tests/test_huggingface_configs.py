"""config.json in and out: exact on what is published, exact on what a stranger builds, refusals in the file's words."""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plainformer.families.decoders import gpt2
from plainformer.families.llamas import llama
from plainformer.families.variants import post_norm, without_residual
from plainformer.faults import PlainformerError
from plainformer.huggingface import read, read_file, write
from plainformer.huggingface.configs import READERS
from plainformer.ledger import Ledger
from plainformer.presets import presets
from plainformer.spec import Attention, Linear, Lora, Norm, Scaling, Spec
from plainformer.tree import rewrite, walk
from published_configs import PUBLISHED, SIZED, STRANGERS, TWINS, Config, sized, tiny

pytestmark = pytest.mark.no_shape_names  # no arrays here, and many small calls


def config_of(name: str) -> Config:
    return deepcopy(PUBLISHED[name][2])


def attentions(spec: Spec) -> list[Attention]:
    return [part for _, part in walk(spec.main) if isinstance(part, Attention)]


def refusal(config: Any) -> str:
    with pytest.raises(PlainformerError) as error:
        read(config)
    return str(error.value)


# --- exact ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_its_exact_parameters(name: str) -> None:
    total, active, config = PUBLISHED[name]
    ledger = Ledger.of(read(config).spec)
    assert (ledger.total, ledger.active) == (total, active or total)


@pytest.mark.parametrize("name", SIZED)
def test_a_published_model_that_only_answers_for_its_size_has_its_exact_parameters(name: str) -> None:
    total, class_name, config = SIZED[name]
    assert Ledger.of(read(config | {"architectures": [class_name]}).spec).total == total


@pytest.mark.proof
@pytest.mark.parametrize("name", SIZED)
def test_a_published_model_s_parameters_are_its_class_s(name: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    import drift

    total, class_name, config = SIZED[name]
    keys = {key: value for key, value in config.items() if key != "model_type"}
    assert drift.built(class_name, drift.of_type(config["model_type"], keys)) == total


def test_every_family_that_runs_has_a_published_model_among_these() -> None:
    """And those that only answer for their sizes: test_sizes has their cases, test_drift their classes."""
    kinds = {config["model_type"] for _, _, config in PUBLISHED.values()}
    kinds |= {config.get("text_config", {}).get("model_type", "gemma3_text") for _, _, config in PUBLISHED.values()}
    assert kinds == STRANGERS.keys() | TWINS.keys()
    assert kinds <= READERS.keys()


def test_the_hand_made_configs_are_counted_or_refused(cases: Path) -> None:
    hand = cases / "cases" / "field" / "hand"
    for name, expected in json.loads((hand / "expected.json").read_text(encoding="utf-8"))["size"].items():
        if isinstance(expected, str):
            with pytest.raises(PlainformerError):
                read_file(hand / "config" / name)
        else:
            ledger = Ledger.of(read_file(hand / "config" / name).spec)
            assert (name, ledger.total) == (name, expected["parameters"])
            assert (name, ledger.active) == (name, expected["used_by_one_token"])


def built_elsewhere(class_name: str, config: Config) -> list[tuple[int, ...]]:
    """The shapes of what transformers builds from a config, on the meta device."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model = getattr(transformers, class_name)(transformers.AutoConfig.for_model(**config))
    return [tuple(parameter.shape) for parameter in model.parameters()]


@pytest.mark.parametrize("model_type", STRANGERS)
def test_random_switches_give_what_a_stranger_builds(model_type: str) -> None:
    class_name, _ = STRANGERS[model_type]
    draw = random.Random(model_type)
    for _ in range(4):
        config = tiny(model_type, draw)
        theirs = sum(prod(shape) for shape in built_elsewhere(class_name, config))
        assert (Ledger.of(read(config).spec).total, config) == (theirs, config)


# --- the rules of a file ----------------------------------------------------------------------------------------------

OFF = {
    "num_key_value_heads",
    "sliding_window",
    "q_lora_rank",
    "attn_logit_softcapping",
    "final_logit_softcapping",
}  # null means none of these


def outcome(config: Config) -> Any:
    try:
        return read(config).spec
    except PlainformerError as error:
        return str(error)


@pytest.mark.parametrize("model_type", STRANGERS)
def test_a_null_key_counts_as_absent(model_type: str) -> None:
    config = tiny(model_type, random.Random(model_type))
    for key in config.keys() - OFF:
        absent = {name: value for name, value in config.items() if name != key}
        assert (key, outcome(absent | {key: None})) == (key, outcome(absent))


def test_null_means_none_where_the_class_has_a_default() -> None:
    """num_key_value_heads: one for each head; a window, a cap, a low rank: none."""
    assert {part.n_kv_heads for part in attentions(read(config_of("mistral-7b")).spec)} == {8}
    every = read(config_of("mistral-7b") | {"num_key_value_heads": None}).spec
    assert {part.n_kv_heads for part in attentions(every)} == {32}
    mistral = config_of("mistral-7b")
    assert {part.window for part in attentions(read(mistral).spec)} == {4096}
    assert {part.window for part in attentions(read(mistral | {"sliding_window": None}).spec)} == {None}
    gemma = config_of("gemma-2-2b")
    assert attentions(read(gemma).spec)[0].scores.softcap == 50.0
    assert attentions(read(gemma | {"attn_logit_softcapping": None}).spec)[0].scores.softcap is None


def test_a_tied_head_is_counted_once() -> None:
    config = config_of("llama-3.2-1b")
    tied, own = read(config).spec, read(config | {"tie_word_embeddings": False}).spec
    assert Ledger.of(own).total - Ledger.of(tied).total == 128256 * 2048


def test_an_absent_tie_is_the_classs_default_and_said() -> None:
    tied = {"gpt2", "gemma", "gemma2", "gemma3_text", "gemma4_text", "opt", "bert", "albert", "bart", "t5", "mt5"}
    tied |= {"bloom", "modernbert"}
    for model_type in STRANGERS:
        config = tiny(model_type, random.Random(model_type))
        config.pop("tie_word_embeddings", None)
        reading = read(config)
        assert reading.spec.head is not None
        assert (model_type, reading.spec.head.tied) == (model_type, model_type in tied)
        assert any(note.startswith("tie_word_embeddings is not said") for note in reading.notes)


def test_a_head_may_be_wider_than_its_share_of_the_stream() -> None:
    spec = read(config_of("mistral-nemo")).spec
    assert spec.d_model == 5120
    assert {(part.n_heads, part.n_kv_heads, part.d_head) for part in attentions(spec)} == {(32, 8, 128)}


def test_a_base_class_has_no_head_and_says_so() -> None:
    config = config_of("llama-3-8b")
    bare = read(config | {"architectures": ["LlamaModel"]})
    assert bare.spec.head is None
    assert Ledger.of(bare.spec).total == 8_030_261_248 - 128256 * 4096
    assert "LlamaModel is a base class: it has no head over the vocabulary." in bare.notes
    with pytest.raises(PlainformerError, match="LlamaForDepthEstimation"):
        read(config | {"architectures": ["LlamaForDepthEstimation"]})


def test_a_wrapper_is_its_text_and_its_tower() -> None:
    config = config_of("gemma-3-4b")
    whole, text = read(config).spec, read(config["text_config"] | {"model_type": "gemma3_text", "vocab_size": 262208})
    assert replace(whole, towers=()) == outcome(
        text.config | {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256}
    )
    assert len(whole.towers) == 1


def test_old_and_new_names_of_the_rotation_say_the_same() -> None:
    old = config_of("llama-3-8b")
    scaling = {"rope_type": "linear", "factor": 4.0}
    new = old | {"rope_parameters": scaling | {"rope_theta": 5000.0}}
    assert read(old | {"rope_theta": 5000.0, "rope_scaling": scaling}).spec == read(new).spec
    rotary = attentions(read(new).spec)[0].scores.rotary
    assert rotary is not None
    assert (rotary.theta, rotary.scaling) == (5000.0, Scaling(kind="linear", settings=(("factor", 4.0),)))


def test_windows_and_rotations_follow_the_kind_of_layer() -> None:
    spec = read(config_of("gemma-3-4b")).spec
    kinds = [(part.window, part.scores.rotary and part.scores.rotary.theta) for part in attentions(spec)]
    assert kinds[:7] == [(4096, 10000.0)] * 5 + [(None, 1000000.0), (4096, 10000.0)]


def test_what_is_stated_beside_the_spec_is_kept() -> None:
    stated = {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}, "made_up": [1]}
    reading = read(config_of("qwen3-0.6b") | stated)
    assert (reading.dtype, reading.quantization) == ("bfloat16", {"quant_method": "fp8"})
    assert (reading.family, reading.model_type) == ("qwen3", "qwen3")
    assert reading.config["made_up"] == [1]
    assert read(config_of("qwen3-0.6b")).dtype is None
    assert any("multi-token" in note for note in read(config_of("deepseek-v3") | {"num_mtp_layers": 1}).notes)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_all_faults_are_told_at_once_in_the_files_own_words() -> None:
    config = config_of("llama-3-8b") | {"num_key_value_heads": 5, "hidden_act": "quick_gelu", "rms_norm_eps": "small"}
    del config["num_hidden_layers"]
    said = refusal(config)
    for words in (
        "num_hidden_layers = None: is missing",
        "num_key_value_heads = 5: must divide num_attention_heads (32)",
        "hidden_act = 'quick_gelu': is not known here",
        "rms_norm_eps = 'small': must be a number",
    ):
        assert f"config.json: {words}" in said


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("gpt2", {"n_head": 5}, "n_head = 5: must divide n_embd (768)"),
        ("llama-3-8b", {"num_attention_heads": 24}, "num_attention_heads = 24: must divide hidden_size (4096)"),
        ("llama-3-8b", {"vocab_size": True}, "vocab_size = True: must be a whole number"),
        ("llama-3-8b", {"per_layer_config": {"0": {}}}, "per_layer_config"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        ("llama-3-8b", {"num_hidden_layers": 10**9}, "num_hidden_layers = 1000000000: must be at most 10000"),
        ("qwen3-0.6b", {"layer_types": ["full_attention"]}, "one word for each of the 28 layers"),
        ("olmo3-32b", {"layer_types": ["chunked_attention"] * 64}, "layer_types = 'chunked_attention'"),
        ("gpt-oss-20b", {"swiglu_limit": 9.0}, "swiglu_limit = 9.0"),
        ("bert-base", {"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
        ("t5-small", {"feed_forward_proj": "gated-magic"}, "feed_forward_proj = 'gated-magic'"),
        ("nemotron-3-nano", {"hybrid_override_pattern": "MX"}, "no such kind of layer is known"),
        ("gemma-4-26b-a4b", {"audio_config": {"hidden_size": 8}}, "audio_config"),
        ("llama-3-8b", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}, "rope_theta": 1}, "rope_theta = 1"),
        (
            "llama-3-8b",
            {"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 2, "high_freq_factor": 2}},
            "must be above low_freq_factor",
        ),
        ("phi-4", {"partial_rotary_factor": 1e308}, "partial_rotary_factor = 1e+308"),
        ("llama-3-8b", {"max_position_embeddings": 10**30}, "must be at most"),
    ],
)
def test_what_a_spec_cannot_say_is_refused_by_its_key(name: str, changes: Config, words: str) -> None:
    assert words in refusal(config_of(name) | changes)


def test_a_tower_that_a_file_leaves_to_its_class_is_not_left_out() -> None:
    """Llama4ForConditionalGeneration is built with a tower, said or not; only as a text alone it has none."""
    config = {"model_type": "llama4", "text_config": sized("llama4_text", 64, 2, 8, 96, 100, head_dim=16)}
    assert "vision_config" in refusal(config | {"architectures": ["Llama4ForConditionalGeneration"]})
    alone = read(config | {"architectures": ["Llama4ForCausalLM"]}).spec
    assert Ledger.of(alone).total == Ledger.of(read(config["text_config"]).spec).total


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LLAMA_3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "x", True])
@pytest.mark.parametrize(
    "said, key",
    [(YARN, key) for key in ("factor", "beta_fast", "beta_slow", "original_max_position_embeddings")]
    + [(LLAMA_3, key) for key in ("factor", "low_freq_factor", "high_freq_factor")],
)
def test_frequencies_that_cannot_be_are_refused_by_their_key(said: Config, key: str, value: object) -> None:
    assert f"rope_scaling.{key} = " in refusal(config_of("llama-3-8b") | {"rope_scaling": said | {key: value}})


def test_an_unknown_scaling_is_named_and_changes_no_size() -> None:
    scaled = {"rope_scaling": {"rope_type": "spiral", "factor": 2.0, "long_factor": [1, 2]}}
    reading = read(config_of("llama-3-8b") | scaled)
    assert Ledger.of(reading.spec).total == 8_030_261_248
    assert any("spiral" in note for note in reading.notes)


def test_a_file_that_names_no_known_family_is_refused_with_the_nearest() -> None:
    assert "model_type = None: is missing" in refusal({})
    assert "near to it: llama" in refusal({"model_type": "llama2"})
    assert "must be a JSON object" in refusal([1])


def test_a_file_that_cannot_be_read_is_refused_by_its_path(tmp_path: Path) -> None:
    for name, content in {"broken": b"{", "latin": b'{"\xe9": 1}', "list": b"[]", "absent": None}.items():
        path = tmp_path / f"{name}.json"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(PlainformerError, match=name):
            read_file(path)


JUNK = [-1, 0, 7, 10**6 + 3, 2.5, "x", [], [[]], {}, {"a": []}, True]
BESIDE = [
    "architectures",
    "head_dim",
    "layer_types",
    "rope_scaling",
    "rope_parameters",
    "torch_dtype",
    "sliding_window",
]
BESIDE += ["quantization_config", "hidden_act", "rms_norm_eps", "partial_rotary_factor", "text_config", "vision_config"]


@pytest.mark.parametrize("model_type", [*STRANGERS, *TWINS])
def test_any_value_is_read_or_refused_never_a_crash(model_type: str) -> None:
    text = tiny(TWINS.get(model_type, model_type), random.Random(model_type))
    draw = random.Random(model_type)
    for key in [*text, *BESIDE]:
        for value in draw.sample(JUNK, 4):
            config = text | {key: value}
            outcome({"model_type": model_type, "text_config": config} if model_type in TWINS else config)


# --- and back ---------------------------------------------------------------------------------------------------------


@st.composite
def exportable(draw: st.DrawFn) -> Spec:
    """Any spec that GPT-2, Llama, Mistral, Qwen2 or Qwen3 holds."""
    n_heads, d_head, layers = draw(st.integers(1, 4)), 2 * draw(st.integers(1, 4)), draw(st.integers(1, 3))
    vocab, length, tied = draw(st.integers(1, 99)), draw(st.integers(1, 64)), draw(st.booleans())
    activation, d_ff = (
        draw(st.sampled_from(["gelu", "gelu_tanh", "silu", "relu", "relu_squared"])),
        draw(st.integers(1, 40)),
    )
    sizes = {"vocab_size": vocab, "max_seq_len": length, "n_layers": layers, "n_heads": n_heads, "d_ff": d_ff}
    sizes |= {"activation": activation, "eps": draw(st.sampled_from([1e-5, 1e-6])), "tied": tied}
    kind = draw(st.sampled_from(["gpt2", "llama", "mistral", "qwen2", "qwen3"]))
    if kind == "gpt2":
        return gpt2(d_model=n_heads * d_head, **sizes)
    sizes |= {"n_kv_heads": draw(st.sampled_from([n for n in range(1, n_heads + 1) if n_heads % n == 0]))}
    sizes |= {"theta": draw(st.sampled_from([1e4, 5e5])), "d_head": d_head, "d_model": draw(st.integers(1, 33))}
    if draw(st.booleans()):
        sizes["scaling"] = Scaling(kind="linear", settings=(("factor", 2.0),))
    window, bias = draw(st.integers(1, 9)), draw(st.booleans())
    mixed = [draw(st.sampled_from([None, window])) for _ in range(layers)]
    match kind:
        case "llama":
            sizes["d_model"] = n_heads * draw(st.integers(1, 9))
            return llama(qkv_bias=bias, out_bias=bias, mlp_bias=draw(st.booleans()), **sizes)
        case "mistral":
            return llama(windows=[window] * layers, **sizes)
        case "qwen2":
            return llama(windows=mixed, qkv_bias=True, **sizes)
    return llama(windows=mixed, qkv_bias=bias, out_bias=bias, qk_norm=True, **sizes)


@given(exportable())
def test_what_is_written_reads_as_the_same_spec(spec: Spec) -> None:
    assert read(json.loads(json.dumps(write(spec)))).spec == spec


def classes() -> Iterator[tuple[str, Spec]]:
    sizes: dict[str, Any] = {"vocab_size": 61, "max_seq_len": 32, "d_model": 24, "n_layers": 3, "n_heads": 4}
    yield "GPT2LMHeadModel", gpt2(**sizes, d_ff=44)
    sizes |= {"n_kv_heads": 2, "d_head": 10, "d_ff": 44}
    yield "LlamaForCausalLM", llama(**sizes, mlp_bias=True)
    yield "MistralForCausalLM", llama(**sizes, windows=[8] * 3, tied=True)
    yield "Qwen2ForCausalLM", llama(**sizes, windows=[None, 8, None], qkv_bias=True)
    yield "Qwen3ForCausalLM", llama(**sizes, qk_norm=True)


@pytest.mark.parametrize(("class_name", "spec"), list(classes()))
def test_a_stranger_builds_what_is_written(class_name: str, spec: Spec) -> None:
    config = write(spec, dtype="bfloat16")
    assert (config["architectures"], config["torch_dtype"]) == ([class_name], "bfloat16")
    assert sum(map(prod, built_elsewhere(class_name, config))) == Ledger.of(spec).total


LESSON = presets["lesson"]


@pytest.mark.parametrize(
    ("spec", "where", "words"),
    [
        (post_norm(presets["gpt2"]), "norm_in", "GPT2LMHeadModel has Norm here"),
        (without_residual(presets["gpt2"]), "add", "GPT2LMHeadModel has True here"),
        (LESSON, "k.bias", "GPT2LMHeadModel has True here"),
        (presets["mixtral-8x7b"], "part", "has FeedForward here"),
        (presets["deepseek-v3"], "decoder.layers.0", "has Attention and FeedForward"),
        (presets["bert-base"], "decoder", "has one"),
        (presets["t5-small"], "encoder", "has None here"),
        (replace(presets["gpt2"], head=None), "head", "has one"),
        (
            rewrite(presets["gpt2"], lambda part: replace(part, bias=False) if isinstance(part, Norm) else part),
            "norm_in.bias",
            "GPT2LMHeadModel has True here",
        ),
        (
            rewrite(
                presets["tiny"],
                lambda part: replace(part, lora=Lora(rank=2, alpha=4.0)) if isinstance(part, Linear) else part,
            ),
            "lora",
            "has None here",
        ),
    ],
)
def test_what_no_class_holds_is_refused_with_the_field(spec: Spec, where: str, words: str) -> None:
    with pytest.raises(PlainformerError) as error:
        write(spec)
    assert any(fault.where.endswith(where) and words in fault.rule for fault in error.value.faults), error.value


def test_a_scaling_that_no_class_knows_and_a_dtype_that_is_none_are_refused() -> None:
    sizes = {"vocab_size": 9, "max_seq_len": 8, "d_model": 8, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "d_ff": 8}
    odd = llama(**sizes, d_head=4, scaling=Scaling(kind="other", settings=(("factor", 2.0),)))
    with pytest.raises(PlainformerError, match="scaling"):
        write(odd)
    with pytest.raises(PlainformerError, match="float8"):
        write(presets["tiny"], dtype="float8")

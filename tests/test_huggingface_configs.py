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

Config = dict[str, Any]
pytestmark = pytest.mark.no_shape_names  # no arrays here, and many small calls


def sized(model_type: str, width: int, layers: int, heads: int, ff: int, vocab: int, **more: Any) -> Config:
    """The keys that most decoders share, under their commonest names."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    return {"model_type": model_type} | dict(zip(names, (width, layers, heads, ff, vocab), strict=True)) | more


def t5(model_type: str, width: int, layers: int, heads: int, d_kv: int, ff: int, vocab: int, **more: Any) -> Config:
    names = ("d_model", "num_layers", "num_heads", "d_kv", "d_ff", "vocab_size")
    return {"model_type": model_type} | dict(zip(names, (width, layers, heads, d_kv, ff, vocab), strict=True)) | more


NEMOTRON = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

# Published models, each by the few keys of its file that are not its class's defaults: (all parameters, those that one
# token meets, both tables included).
PUBLISHED: dict[str, tuple[int, int | None, Config]] = {
    "gpt2": (
        124_439_808,
        None,
        {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "vocab_size": 50257},
    ),
    "llama-3-8b": (8_030_261_248, None, sized("llama", 4096, 32, 32, 14336, 128256, num_key_value_heads=8)),
    "llama-1-7b": (6_738_415_616, None, sized("llama", 4096, 32, 32, 11008, 32000)),
    "llama-3.2-1b": (
        1_235_814_400,
        None,
        sized("llama", 2048, 16, 32, 8192, 128256, num_key_value_heads=8, tie_word_embeddings=True),
    ),
    "mistral-7b": (7_241_732_096, None, sized("mistral", 4096, 32, 32, 14336, 32000)),
    "mistral-nemo": (12_247_782_400, None, sized("mistral", 5120, 40, 32, 14336, 131072, head_dim=128)),
    "qwen2-0.5b": (
        494_032_768,
        None,
        sized("qwen2", 896, 24, 14, 4864, 151936, num_key_value_heads=2, tie_word_embeddings=True),
    ),
    "qwen3-0.6b": (
        596_049_920,
        None,
        sized("qwen3", 1024, 28, 16, 3072, 151936, num_key_value_heads=8, tie_word_embeddings=True),
    ),
    "olmo2-7b": (7_298_617_344, None, sized("olmo2", 4096, 32, 32, 11008, 100352)),
    "olmo3-32b": (32_233_522_176, None, sized("olmo3", 5120, 64, 40, 27648, 100278, num_key_value_heads=8)),
    "pythia-70m": (70_426_624, None, sized("gpt_neox", 512, 6, 8, 2048, 50304)),
    "opt-350m": (
        331_196_416,
        None,
        sized("opt", 1024, 24, 16, 1, 50272, ffn_dim=4096, word_embed_proj_dim=512, do_layer_norm_before=False),
    ),
    "gemma-2b": (2_506_172_416, None, sized("gemma", 2048, 18, 8, 16384, 256000, num_key_value_heads=1)),
    "gemma-2-2b": (2_614_341_888, None, sized("gemma2", 2304, 26, 8, 9216, 256000)),
    "gemma-3-4b": (
        4_300_079_472,
        None,
        {
            "model_type": "gemma3",
            "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34},
            "vision_config": sized("siglip_vision_model", 1152, 27, 16, 4304, 1)
            | {"image_size": 896, "patch_size": 14, "vision_use_head": False},
        },
    ),
    "gemma-4-26b-a4b": (
        25_805_933_872,
        4_395_322_672,
        {
            "model_type": "gemma4",
            "text_config": sized("gemma4_text", 2816, 30, 16, 2112, 262144, num_key_value_heads=8)
            | {"attention_k_eq_v": True, "num_global_key_value_heads": 2, "hidden_size_per_layer_input": 0}
            | {"enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704},
            "vision_config": sized("gemma4_vision", 1152, 27, 16, 4304, 1, num_key_value_heads=16, head_dim=72),
        },
    ),
    "mixtral-8x7b": (
        46_702_792_704,
        12_879_925_248,
        sized("mixtral", 4096, 32, 32, 14336, 32000, num_local_experts=8, num_experts_per_tok=2),
    ),
    "qwen3-30b-a3b": (
        30_532_122_624,
        3_353_032_704,
        sized("qwen3_moe", 2048, 48, 32, 6144, 151936, head_dim=128)
        | {"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768},
    ),
    "gpt-oss-20b": (
        20_914_757_184,
        4_187_440_704,
        sized("gpt_oss", 2880, 24, 64, 2880, 201088, num_local_experts=32, num_experts_per_tok=4),
    ),
    "deepseek-v2": (
        235_741_434_880,
        21_375_800_320,
        sized("deepseek_v2", 5120, 60, 128, 12288, 102400, first_k_dense_replace=1)
        | {"n_routed_experts": 160, "num_experts_per_tok": 6, "moe_intermediate_size": 1536},
    ),
    "deepseek-v3": (
        671_026_404_352,
        37_552_282_624,
        sized("deepseek_v3", 7168, 61, 128, 18432, 129280)
        | {"n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048},
    ),
    "nemotron-3-nano": (
        31_577_937_344,
        3_580_073_408,
        sized("nemotron_h", 2688, 52, 32, 1856, 131072, num_key_value_heads=2, hybrid_override_pattern=NEMOTRON)
        | {"mamba_head_dim": 64, "mamba_num_heads": 64, "ssm_state_size": 128, "moe_intermediate_size": 1856}
        | {"moe_shared_expert_intermediate_size": 3712, "n_routed_experts": 128, "num_experts_per_tok": 6},
    ),
    "qwen3.5-35b-a3b": (
        35_107_181_936,
        3_901_560_176,
        {
            "model_type": "qwen3_5_moe",
            "text_config": sized("qwen3_5_moe_text", 2048, 40, 16, 1, 248320, num_experts=256, num_experts_per_tok=8)
            | {"moe_intermediate_size": 512, "shared_expert_intermediate_size": 512},
            "vision_config": {"out_hidden_size": 2048},
        },
    ),
    "bert-base": (109_514_298, None, sized("bert", 768, 12, 12, 3072, 30522)),
    "arctic-embed-m": (109_482_240, None, sized("bert", 768, 12, 12, 3072, 30522, architectures=["BertModel"])),
    "albert-xxlarge": (206_368_944, None, sized("albert", 4096, 12, 64, 16384, 30000)),
    "bart-base": (
        139_420_416,
        None,
        {"model_type": "bart", "architectures": ["BartModel"], "d_model": 768, "vocab_size": 50265}
        | {f"{stack}_{key}": n for stack in ("encoder", "decoder") for key, n in (("layers", 6), ("ffn_dim", 3072))}
        | {"encoder_attention_heads": 12, "decoder_attention_heads": 12},
    ),
    "t5-small": (60_506_624, None, t5("t5", 512, 6, 8, 64, 2048, 32128)),
    "t5-11b": (11_307_321_344, None, t5("t5", 1024, 24, 128, 128, 65536, 32128)),
    "t5-v1_1-base": (247_577_856, None, t5("t5", 768, 12, 12, 64, 2048, 32128, **V1_1)),
    "mt5-small": (300_176_768, None, t5("mt5", 512, 8, 6, 64, 1024, 250112, tie_word_embeddings=False)),
}


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


def test_every_family_has_a_published_model_among_these() -> None:
    kinds = {config["model_type"] for _, _, config in PUBLISHED.values()}
    kinds |= {config.get("text_config", {}).get("model_type", "gemma3_text") for _, _, config in PUBLISHED.values()}
    assert kinds == READERS.keys()


def test_every_shared_case_with_a_reader_is_exact(cases: Path) -> None:
    seen = 0
    for path in sorted((cases / "cases" / "size").glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        if case.get("config", {}).get("model_type") in READERS:
            seen += 1
            ledger, truth = Ledger.of(read(case["config"]).spec), case["truth"]
            assert (path.name, ledger.total) == (path.name, truth["total"])
            assert (path.name, ledger.active) == (path.name, truth.get("active") or truth["total"])
    assert seen >= 57


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


# Tiny configs, their switches drawn at random: what a stranger builds from them is the truth.
TINY = sized("", 32, 3, 4, 44, 61, max_position_embeddings=32, pad_token_id=0, bos_token_id=1, eos_token_id=2)
EXPERTS = {"num_experts": 6, "num_local_experts": 6, "n_routed_experts": 6, "num_experts_per_tok": 2}
EXPERTS |= {"moe_intermediate_size": 20, "n_group": 2, "topk_group": 1, "n_shared_experts": 2}
LATENT = {"q_lora_rank": [None, 8], "kv_lora_rank": [10], "qk_nope_head_dim": [6], "qk_rope_head_dim": [4]}
LATENT |= {"v_head_dim": [5], "first_k_dense_replace": [0, 1], "attention_bias": [True, False]}
GROUPED: dict[str, list[Any]] = {"num_key_value_heads": [1, 2, 4], "tie_word_embeddings": [True, False, None]}
BIASED = GROUPED | {"attention_bias": [True, False, None]}
GPT2_KEYS = {"n_embd": [24], "n_layer": [2], "n_head": [3], "n_positions": [16], "n_inner": [None, 40]}
T5_KEYS = {"d_model": [24], "d_kv": [5], "d_ff": [44], "num_layers": [2], "num_heads": [3]}
T5_KEYS |= {"num_decoder_layers": [None, 3], "feed_forward_proj": ["relu", "gated-gelu"]}
BART_KEYS = {"d_model": [24], "encoder_layers": [1], "decoder_layers": [2], "encoder_ffn_dim": [20]}
BART_KEYS |= {"decoder_ffn_dim": [28], "encoder_attention_heads": [2], "decoder_attention_heads": [3]}
MAMBA = {"mamba_num_heads": [4], "mamba_head_dim": [6], "ssm_state_size": [8], "n_groups": [2]}
MAMBA |= {"hybrid_override_pattern": ["M*-E", "ME*M"], "num_hidden_layers": [4], "use_conv_bias": [True, False]}
STRANGERS: dict[str, tuple[str, dict[str, list[Any]]]] = {
    "gpt2": ("GPT2LMHeadModel", GPT2_KEYS | {"tie_word_embeddings": [True, False, None]}),
    "opt": (
        "OPTForCausalLM",
        {"ffn_dim": [44], "word_embed_proj_dim": [None, 16], "do_layer_norm_before": [True, False]}
        | {"enable_bias": [True, False], "layer_norm_elementwise_affine": [True, False]},
    ),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        {"use_parallel_residual": [True, False], "attention_bias": [True, False], "tie_word_embeddings": [True, None]},
    ),
    "llama": ("LlamaForCausalLM", BIASED | {"mlp_bias": [True, False, None], "head_dim": [None, 6, 10]}),
    "mistral": ("MistralForCausalLM", GROUPED | {"head_dim": [None, 10], "sliding_window": [None, 8]}),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", BIASED | {"head_dim": [8, 10]}),
    "olmo2": ("Olmo2ForCausalLM", BIASED),
    "olmo3": ("Olmo3ForCausalLM", BIASED),
    "gemma": ("GemmaForCausalLM", BIASED | {"head_dim": [8, 10]}),
    "gemma2": ("Gemma2ForCausalLM", BIASED | {"head_dim": [8, 10]}),
    "gemma3_text": ("Gemma3ForCausalLM", BIASED | {"head_dim": [8, 10]}),
    "gemma4_text": (
        "Gemma4ForCausalLM",
        {"hidden_size_per_layer_input": [0], "head_dim": [8], "global_head_dim": [12], "num_key_value_heads": [2]}
        | {"attention_k_eq_v": [True, False], "num_global_key_value_heads": [None, 1], "top_k_experts": [2]}
        | {"enable_moe_block": [True, False], "num_hidden_layers": [7]},
    ),
    "mixtral": ("MixtralForCausalLM", GROUPED),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        BIASED | {"decoder_sparse_step": [1, 2], "mlp_only_layers": [[], [1]], "head_dim": [None, 10]},
    ),
    "gpt_oss": ("GptOssForCausalLM", {"num_key_value_heads": [2], "head_dim": [6], "attention_bias": [True, False]}),
    "deepseek_v2": ("DeepseekV2ForCausalLM", LATENT),
    "deepseek_v3": ("DeepseekV3ForCausalLM", LATENT),
    "nemotron_h": (
        "NemotronHForCausalLM",
        MAMBA
        | {"mlp_bias": [True, False], "use_bias": [True, False], "moe_shared_expert_intermediate_size": [14]}
        | {"num_key_value_heads": [2], "head_dim": [5]},
    ),
    "qwen3_5_moe_text": (
        "Qwen3_5MoeForCausalLM",
        {"linear_num_key_heads": [2], "linear_num_value_heads": [4], "linear_key_head_dim": [6]}
        | {"linear_value_head_dim": [5], "shared_expert_intermediate_size": [14], "head_dim": [16]}
        | {"num_key_value_heads": [2], "num_hidden_layers": [5]},
    ),
    "bert": ("BertForMaskedLM", {"type_vocab_size": [1, 2]}),
    "albert": ("AlbertForMaskedLM", {"embedding_size": [10], "num_hidden_groups": [1, 3], "inner_group_num": [1, 2]}),
    "bart": ("BartForConditionalGeneration", BART_KEYS),
    "t5": ("T5ForConditionalGeneration", T5_KEYS),
    "mt5": ("MT5ForConditionalGeneration", T5_KEYS),
}


TWINS = {"gemma3": "gemma3_text", "gemma4": "gemma4_text", "qwen3_5_moe": "qwen3_5_moe_text"}  # wrapper: its text


def tiny(model_type: str, draw: random.Random) -> Config:
    switches = {key: draw.choice(options) for key, options in STRANGERS[model_type][1].items()}
    experts = EXPERTS if any(word in model_type for word in ("mo", "mix", "oss", "deep", "gemma4")) else {}
    shared = TINY if {"n_embd", "d_model"}.isdisjoint(switches) else {"vocab_size": 61, "pad_token_id": 0}
    config = shared | experts | {"model_type": model_type} | switches
    return {key: value for key, value in config.items() if value is not None or key == "q_lora_rank"}


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


def test_each_family_is_held_to_a_stranger() -> None:
    assert STRANGERS.keys() == READERS.keys() - TWINS.keys()


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
    other = read(config | {"architectures": ["LlamaForSequenceClassification"]})
    assert "LlamaForSequenceClassification has a head of its own kind, which is not counted." in other.notes


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
        ("gemma-3-4b", {"vision_config": {}}, "vision_config.vision_use_head = None"),
        ("gemma-4-26b-a4b", {"audio_config": {"hidden_size": 8}}, "audio_config"),
    ],
)
def test_what_a_spec_cannot_say_is_refused_by_its_key(name: str, changes: Config, words: str) -> None:
    assert words in refusal(config_of(name) | changes)


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


@pytest.mark.parametrize("model_type", READERS)
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

"""What the installed transformers builds, and what is said of it: a reading is exact or a refusal, never wrong."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import pytest

import drift
import drift_media
from plainformer.faults import PlainformerError
from plainformer.huggingface import read
from plainformer.huggingface.configs_table import READERS, UNREAD
from plainformer.ledger import Ledger
from plainformer.spec import Attention
from plainformer.tree import walk

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.no_shape_names  # no arrays of ours here

FEW = ("falcon", "gptj", "starcoder2", "cohere2", "granitemoehybrid", "jamba", "lfm2", "glm4_moe", "ernie4_5_moe")
FEW += ("electra", "mbart", "deepseek_v3", "gemma4_text", "switch_transformers", "deberta")
KEPT = Path(__file__).parent.parent / "docs" / "measured" / "drift.json"
PICTURES = {"qwen3_vl_text", "emu3_text_model", "qwen3_moe", *drift_media.CLASSES}


@pytest.mark.parametrize("model_type", FEW)
def test_what_is_built_is_what_is_said(model_type: str) -> None:
    found = drift.answers(model_type, 2)
    assert [answer for answer in found if answer.verdict == "wrong"] == []
    assert drift.verdict(found) == "exact"


NARROW_OPT = {"hidden_size": 32, "word_embed_proj_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
NARROW_OPT |= {"ffn_dim": 40, "vocab_size": 60, "max_position_embeddings": 30, "num_labels": 3}
SWITCH = {"d_model": 32, "d_kv": 8, "d_ff": 40, "num_heads": 4, "num_layers": 2, "num_experts": 3, "vocab_size": 60}
LLAMA4 = {"hidden_size": 32, "intermediate_size": 12, "intermediate_size_mlp": 40, "num_hidden_layers": 2}
LLAMA4 |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_local_experts": 3, "vocab_size": 60}
SEEN = {"hidden_size": 16, "depth": 1, "num_heads": 2, "intermediate_size": 20, "out_hidden_size": 32}
DEEP = SEEN | {"deepstack_visual_indexes": [0]}
TIED_TEXT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
TIED_TEXT |= {"head_dim": 16, "intermediate_size": 40, "vocab_size": 60, "tie_word_embeddings": True}
ANSWERING = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
ANSWERING |= {"vocab_size": 60, "pad_token_id": 0, "num_labels": 3}
ASKED = {
    "bert": "Bert",
    "albert": "Albert",
    "roberta": "Roberta",
    "deberta-v2": "DebertaV2",
    "modernbert": "ModernBert",
}
ASKED |= {"electra": "Electra", "mpnet": "MPNet", "roformer": "RoFormer", "llama": "Llama"}
FEW_BART = {f"{stack}_layers": 1 for stack in ("encoder", "decoder")} | {"num_hidden_layers": 1}
FEW_BART |= {f"{stack}_attention_heads": 4 for stack in ("encoder", "decoder")}
FEW_BART |= {f"{stack}_ffn_dim": 40 for stack in ("encoder", "decoder")}
OFTEN_MISREAD: list[tuple[str, str, drift.Config]] = [
    *(("opt", f"OPT{kind}", NARROW_OPT) for kind in ("Model", "ForQuestionAnswering", "ForSequenceClassification")),
    *(("llama4_text", "Llama4ForCausalLM", LLAMA4 | {"moe_layers": listed}) for listed in ([], [1], None)),
    *(
        ("switch_transformers", "SwitchTransformersForConditionalGeneration", SWITCH | more)
        for more in ({}, {"num_decoder_layers": None}, {"num_decoder_layers": 4, "num_sparse_decoder_layers": 0})
    ),
    *((model_type, f"{name}ForQuestionAnswering", ANSWERING) for model_type, name in ASKED.items()),
    ("t5", "T5ForQuestionAnswering", SWITCH | {"num_labels": 3}),
    ("bart", "BartForQuestionAnswering", {"d_model": 32, "vocab_size": 60, "num_labels": 3} | FEW_BART),
    ("qwen3_vl", "Qwen3VLForConditionalGeneration", {"text_config": TIED_TEXT, "vision_config": DEEP}),
    ("qwen3_5", "Qwen3_5ForConditionalGeneration", {"text_config": TIED_TEXT, "vision_config": SEEN}),
]


@pytest.mark.parametrize(("model_type", "class_name", "keys"), OFTEN_MISREAD)
def test_a_class_is_counted_by_its_own_defaults_and_heads(model_type: str, class_name: str, keys: drift.Config) -> None:
    said = {"model_type": model_type, "architectures": [class_name], **keys}
    assert Ledger.of(read(said).spec).total == drift.built(class_name, drift.of_type(model_type, keys))


SLIDING = {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
SLIDING |= {"intermediate_size": 40, "vocab_size": 60, "use_sliding_window": True, "max_window_layers": 2}
SLIDING |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}


@pytest.mark.parametrize("more", [{"sliding_window": 8}, {"sliding_window": None}, {}])
@pytest.mark.parametrize("model_type", ["smollm3", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe"])
def test_windows_stand_where_the_class_has_them(model_type: str, more: drift.Config) -> None:
    keys = SLIDING | {"pad_token_id": 0} | more
    config = drift.of_type(model_type, keys)
    kinds = getattr(config, "layer_types", ["sliding_attention"] * 4)
    wanted = [config.sliding_window if kind == "sliding_attention" else None for kind in kinds]
    spec = read(keys | {"model_type": model_type}).spec
    assert [part.window for _, part in walk(spec.main) if isinstance(part, Attention)] == wanted


@pytest.mark.parametrize("model_type", ["clip", "llava", "qwen2_5_vl", "wav2vec2", "whisper"])
def test_what_sees_or_hears_is_what_is_said(model_type: str) -> None:
    found = drift_media.answers(model_type, 2)
    assert [answer for answer in found if answer.verdict == "wrong"] == []
    assert drift.verdict(found) == "exact"


@pytest.mark.proof
@pytest.mark.parametrize("model_type", drift_media.CLASSES)
def test_nothing_that_sees_or_hears_is_said_wrong(model_type: str) -> None:
    found = (*drift_media.default(model_type), *drift_media.answers(model_type, 6))
    assert [answer for answer in found if answer.verdict == "wrong"] == []
    assert drift.verdict(found) == "exact"


@pytest.mark.proof
def test_no_text_model_of_transformers_is_said_wrong() -> None:
    """Every type: exact, or refused by name. The share that is answered only grows."""
    found = {model_type: drift.answers(model_type) for model_type in sorted(drift.text_types())}
    wrong = [answer for answers in found.values() for answer in answers if answer.verdict == "wrong"]
    assert wrong == []
    verdicts = Counter(drift.verdict(answers) for answers in found.values())
    print(f"{verdicts['exact']} of {len(found)} text model types are answered exactly")
    kept = json.loads(KEPT.read_text(encoding="utf-8"))["rows"]
    assert verdicts["exact"] >= next(row["types"] for row in kept if row["verdict"] == "exact")


JUNK = (-1, 0, 1, 7, 2**40, -(2**70), 0.5, 1e300, "", "x", [], [1], [[]], {}, {"rope_type": []}, True, None)
BESIDE = ["architectures", "head_dim", "id2label", "layer_types", "quantization_config", "rope_parameters"]


def test_any_value_under_any_key_is_read_or_refused() -> None:
    """The default config of every text type with a reader, one to three of its values made junk."""
    classes = drift_media.CLASSES | drift.text_types()
    for model_type in sorted(READERS.keys() & classes.keys()):
        draw = random.Random(model_type)
        try:
            default = drift.saved(drift.of_type(model_type, {}), classes[model_type][0])
        except Exception:  # a config that needs keys
            continue
        for _ in range(8):
            config = deepcopy(default)
            inner = [name for name in ("text_config", "vision_config") if isinstance(config.get(name), dict)]
            holder = config[draw.choice(inner)] if inner and draw.random() < 0.5 else config
            for key in draw.sample([*sorted(holder), *BESIDE], draw.choice((1, 1, 2, 3))):
                holder[key] = deepcopy(draw.choice(JUNK))
            with suppress(PlainformerError):
                read(config)


def test_no_family_is_both_read_and_refused() -> None:
    assert not READERS.keys() & UNREAD.keys()


@pytest.mark.proof
def test_every_reader_is_held_to_a_class_of_transformers() -> None:
    """Pictures' own types, and texts inside a wrapper, are held elsewhere: in test_sizes and by STRANGERS."""
    exact = {model_type for model_type in drift.text_types() if drift.verdict(drift.answers(model_type)) == "exact"}
    assert READERS.keys() - exact - PICTURES == set()

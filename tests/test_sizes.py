"""All published sizes of the shared cases: parameters under each convention, caches; and what mutations do to them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import drift
from plainformer.cost import Cost
from plainformer.faults import Fault, PlainformerError
from plainformer.huggingface import Reading, read
from plainformer.ledger import Ledger

pytestmark = pytest.mark.no_shape_names  # no arrays here, and many small calls

BY_HAND = {"roberta-base": "roberta"}  # an old file that names neither family nor class: --family says it
Truth = dict[str, Any]


def each(root: Path) -> Iterator[tuple[str, Reading, Truth]]:
    for path in sorted((root / "cases" / "size").glob("*.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        if "truth" in case:
            name = case["name"]
            yield name, read(case["config"], name, family=BY_HAND.get(name)), case["truth"]


@pytest.fixture(scope="module")
def readings(cases: Path) -> list[tuple[str, Reading, Truth]]:
    return list(each(cases))


Readings = list[tuple[str, Reading, Truth]]


def test_all_truths_are_exact_total_and_active(readings: Readings) -> None:
    found = {name: (Ledger.of(r.spec).total, Ledger.of(r.spec).active) for name, r, _ in readings}
    assert found == {name: (t["total"], t["active"] or t["total"]) for name, _, t in readings}
    assert len(found) == 87


def tables(reading: Reading) -> tuple[int, int]:
    """The table of tokens, and the head's own weights (its bias too) where it has some."""
    spec = reading.spec
    table = spec.embedding.table.n_rows * spec.embedding.table.width
    own = spec.head is not None and not spec.head.tied
    linear = spec.head.linear if spec.head else None
    return table, (linear.n_in + linear.bias) * linear.n_out if own and linear else 0


def test_the_three_active_counts_are_exact(readings: Readings) -> None:
    compared = 0
    for name, reading, truth in readings:
        if truth["active"] is not None:
            table, head = tables(reading)
            active, compared = Ledger.of(reading.spec).active, compared + 1
            assert (name, active - (table if head else 0)) == (name, truth["active_excl_input_embedding"])
            assert (name, active - table - head) == (name, truth["active_excl_embedding_and_head"])
    assert compared == 14


def test_what_is_not_a_table_of_tokens_is_exact(readings: Readings) -> None:
    compared = 0
    for name, reading, truth in readings:
        if "non_embedding" in truth:
            compared += 1
            assert (name, Ledger.of(reading.spec).total - sum(tables(reading))) == (name, truth["non_embedding"])
    assert compared == 76


def test_every_cache_is_exact(readings: Readings) -> None:
    """Per token inside every window and past them, at two contexts, and of what an encoder said."""
    compared = 0
    for name, reading, truth in readings:
        kept = Cost.of(reading.spec, seq_len=1).cache
        if truth["kv_bytes_per_token_bf16"] is None:
            assert (name, kept.parts) == (name, ())
            continue
        compared += 1
        assert (name, 2 * kept.per_token) == (name, truth["kv_bytes_per_token_bf16"])
        said = truth.get("kv") or {}
        if "window" in said:
            assert (name, 2 * kept.per_token_beyond_windows) == (name, said["bytes_per_token_beyond_window"])
            for context in (8192, 131072):
                assert (name, 2 * kept.numbers(context)) == (name, said[f"total_bytes_ctx{context}_batch1_bf16"])
        if "cross_attention_bytes_per_source_token_bf16" in said:
            said_twice = said["cross_attention_bytes_per_source_token_bf16"]
            assert (name, 2 * kept.per_source_token) == (name, said_twice)
    assert compared == 77


def test_an_old_file_without_a_family_is_refused_and_says_how_to_name_one() -> None:
    with pytest.raises(PlainformerError, match="--family NAME"):
        read({"hidden_size": 768, "num_attention_heads": 12})
    with pytest.raises(PlainformerError, match=r"--family = 'robert'.*near to it: roberta"):
        read({"hidden_size": 768}, family="robert")


def test_a_class_names_its_family_where_the_file_does_not() -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    sizes |= {"vocab_size": 61}
    for class_name, family in {
        "LlamaForCausalLM": "llama",
        "GPTNeoXForCausalLM": "gpt_neox",
        "Gemma3ForCausalLM": "gemma3_text",
        "BertForQuestionAnswering": "bert",
        "DebertaV2ForMaskedLM": "deberta-v2",
        "XLMRobertaModel": "xlm-roberta",
    }.items():
        for more in ({}, {"model_type": "somebody_s_own"}):
            assert read(sizes | more | {"architectures": [class_name]}).model_type == family
    note = read(sizes | {"model_type": "own", "architectures": ["LlamaForCausalLM"]}).notes[0]
    assert note == "Read as llama, by the class that the file names: its model_type is own."


def test_a_family_that_cannot_be_sized_says_why() -> None:
    for model_type, why in {"zamba": "share their weights", "reformer": "hash", "voxtral": "hears"}.items():
        with pytest.raises(PlainformerError, match=why):
            read({"model_type": model_type})


@pytest.mark.parametrize(
    ("class_name", "name", "more"),
    [
        ("LlamaForSequenceClassification", "llama", {"num_labels": 5}),
        ("LlamaForTokenClassification", "llama", {"id2label": {str(i): "x" for i in range(3)}}),
        ("LlamaForQuestionAnswering", "llama", {}),
        ("BertForSequenceClassification", "bert", {"num_labels": 3}),
        ("BertForTokenClassification", "bert", {}),
        ("BertForMultipleChoice", "bert", {}),
        ("BertForNextSentencePrediction", "bert", {}),
        ("BertModel", "bert", {}),
        ("AlbertForSequenceClassification", "albert", {}),
        ("RobertaForSequenceClassification", "roberta", {}),
        ("ElectraForSequenceClassification", "electra", {}),
        ("DistilBertForSequenceClassification", "distilbert", {}),
        ("MPNetForSequenceClassification", "mpnet", {}),
        ("DebertaV2ForSequenceClassification", "deberta-v2", {}),
        ("ModernBertForMaskedLM", "modernbert", {}),
        ("GPT2ForSequenceClassification", "gpt2", {}),
        ("ViTForImageClassification", "vit", {"patch_size": 8, "image_size": 32, "num_labels": 7}),
        ("ViTModel", "vit", {"patch_size": 8, "image_size": 32}),
    ],
)
def test_a_class_that_answers_has_its_own_head(class_name: str, name: str, more: dict[str, Any]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    config = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    config |= {"vocab_size": 61, "model_type": name, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2} | more
    if name == "distilbert":
        config |= {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 40}
    if name == "gpt2":
        config = {"model_type": name, "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 61}
    keys = {key: value for key, value in config.items() if key != "model_type"}
    theirs = drift.built(class_name, drift.of_type(name, keys))
    assert Ledger.of(read(config | {"architectures": [class_name]}).spec).total == theirs


# --- mutations --------------------------------------------------------------------------------------------------------


@cache
def originals(root: Path) -> tuple[dict[str, Any], ...]:
    cases = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((root / "cases" / "size").glob("*.json"))]
    return tuple(case["config"] for case in cases if case.get("config", {}).get("architectures"))


def mutated_exactly(config: dict[str, Any], seed: int) -> str:
    """A case with layers, widths, heads, experts and tie drawn anew is exact, or refused by a key: never wrong."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("torch", reason="torch is not installed")
    draw, model_type, class_name = random.Random(seed), config["model_type"], config["architectures"][0]
    changed = {key: value for key, value in deepcopy(config).items() if key not in drift.DERIVED}
    inner = changed.get("text_config")
    if isinstance(inner, dict):
        changed["text_config"] = {k: v for k, v in inner.items() if k not in drift.DERIVED} | drift.drawn(inner, draw)
        if "out_hidden_size" in changed.get("vision_config", {}):
            changed["vision_config"]["out_hidden_size"] = changed["text_config"]["hidden_size"]
    else:
        changed |= drift.drawn(changed, draw)
    try:
        bare = {key: value for key, value in deepcopy(changed).items() if key != "model_type"}
        truth = drift.built(class_name, drift.of_type(model_type, bare))
    except Exception:  # sizes that the config itself refuses
        return "no truth"
    if truth is None:
        return "no truth"
    found = drift.judged(model_type, class_name, changed, truth + drift.forced(model_type, changed))
    assert found.verdict != "wrong", (found.said, changed)
    return found.verdict


@settings(max_examples=40)
@given(st.data())
def test_a_mutation_is_exact_or_refused_by_its_key(cases: Path, data: st.DataObject) -> None:
    mutated_exactly(data.draw(st.sampled_from(originals(cases))), data.draw(st.integers(0, 999)))


@pytest.mark.proof
def test_of_many_mutations_none_is_wrong_and_most_are_exact(cases: Path) -> None:
    found = [mutated_exactly(config, seed) for config in originals(cases) for seed in range(6)]
    assert found.count("exact") > 3 * found.count("refused")
    assert found.count("exact") > len(found) / 2


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([2**40, -(2**70), 0.5, -1.0, 1e300, "", "x", "7"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "rope_type"]), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=300)
@given(st.data())
def test_junk_is_refused_never_a_traceback(cases: Path, data: st.DataObject) -> None:
    """Any value under any key of a case: read, or refused with one line a fault."""
    config = deepcopy(data.draw(st.sampled_from(originals(cases))))
    holder = config
    if isinstance(config.get("text_config"), dict) and data.draw(st.booleans()):
        holder = config["text_config"]
    for key in data.draw(st.lists(st.sampled_from(sorted(holder)), min_size=1, max_size=3)):
        holder[key] = data.draw(JUNK)
    said = refusal(config)
    assert said is None or (said and all("\n" not in str(fault) for fault in said))


def refusal(config: dict[str, Any]) -> tuple[Fault, ...] | None:
    try:
        read(config)
    except PlainformerError as error:
        return error.faults
    return None


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("falcon-7b", {"num_attention_heads": 70}, "num_attention_heads"),
        ("gptj-gpt-j-6b", {"n_head": 15}, "n_head"),
        ("gptj-gpt-j-6b", {"rotary_dim": 63}, "rotary_dim"),
        ("mpt-30b", {"n_heads": 63}, "n_heads"),
        ("starcoder2-3b", {"num_key_value_heads": 5}, "num_key_value_heads"),
        ("olmoe-1b-7b", {"num_experts_per_tok": 65}, "num_experts_per_tok"),
        ("gpt-neo-125m", {"num_layers": 11}, "attention_types"),
        ("fixture-jamba-4layer", {"attn_layer_offset": 4}, "attn_layer_offset"),
        ("deberta-v3-base", {"conv_kernel_size": 3}, "conv_kernel_size"),
        ("vit-base-patch16-224", {"hidden_size": 770}, "num_attention_heads"),
        ("stablelm-3b-4e1t", {"hidden_size": None}, "hidden_size"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(cases: Path, name: str, changes: dict[str, Any], key: str) -> None:
    config = json.loads((cases / "cases" / "size" / f"{name}.json").read_text(encoding="utf-8"))["config"]
    with pytest.raises(PlainformerError) as error:
        read(config | changes)
    assert any(fault.where.endswith(f" {key}") for fault in error.value.faults), error.value

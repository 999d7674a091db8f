"""Presets are the published models; what is meant to be trained takes the tokenizer's vocabulary."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plainformer.families.decoders import gpt2
from plainformer.families.variants import post_norm, without_residual
from plainformer.faults import PlainformerError
from plainformer.huggingface import read, read_file, write
from plainformer.ledger import Ledger
from plainformer.presets import PUBLISHED, TRAINABLE, presets
from plainformer.spec import Attention, Residual, Spec
from plainformer.tree import rewrite, walk

TOTALS = {  # (all parameters, those that one token meets)
    "lesson": (27_328, 27_328),
    "gpt2": (124_439_808, 124_439_808),
    "gpt2-medium": (354_823_168, 354_823_168),
    "gpt2-large": (774_030_080, 774_030_080),
    "gpt2-xl": (1_557_611_200, 1_557_611_200),
    "gpt3": (174_604_259_328, 174_604_259_328),
    "llama-2-70b": (68_976_648_192, 68_976_648_192),
    "llama-3-8b": (8_030_261_248, 8_030_261_248),
    "llama-3-70b": (70_553_706_496, 70_553_706_496),
    "llama-3.1-405b": (405_853_388_800, 405_853_388_800),
    "mixtral-8x7b": (46_702_792_704, 12_879_925_248),
    "deepseek-v3": (671_026_404_352, 37_552_282_624),
    "bert-base": (109_514_298, 109_514_298),
    "bert-large": (335_174_458, 335_174_458),
    "t5-small": (60_506_624, 60_506_624),
    "t5-v1_1-base": (247_577_856, 247_577_856),
}
FIGURE_3 = {  # layers, heads, width: parameters by nanoGPT's rule (50,304 tokens, positions left out)
    (4, 4, 32): 1_660_608,
    (4, 4, 64): 3_419_520,
    (4, 4, 128): 7_232_256,
    (8, 8, 256): 19_196_416,
    (8, 8, 384): 33_513_216,
    (8, 8, 512): 50_975_744,
    (10, 10, 640): 81_431_040,
    (12, 12, 768): 123_689_472,
}
CASES = {  # preset: the published file it must equal
    "gpt2": "gpt2",
    "gpt2-medium": "gpt2-medium",
    "gpt2-large": "gpt2-large",
    "mixtral-8x7b": "mixtral-8x7b-v0.1",
    "deepseek-v3": "deepseek-v3",
    "bert-base": "bert-base-uncased",
    "bert-large": "bert-large-uncased",
    "t5-small": "t5-small",
    "t5-v1_1-base": "t5-v1_1-base",
}


def published(cases: Path, name: str) -> Any:
    return json.loads((cases / "cases" / "size" / f"{name}.json").read_text(encoding="utf-8"))["config"]


@pytest.mark.parametrize("name", TOTALS)
def test_a_preset_has_the_published_parameters(name: str) -> None:
    ledger = Ledger.of(presets[name])
    assert (ledger.total, ledger.active) == TOTALS[name]


@pytest.mark.parametrize("shape", FIGURE_3)
def test_the_shapes_of_figure_3_give_its_counts(shape: tuple[int, int, int]) -> None:
    n_layers, n_heads, d_model = shape
    spec = presets[f"fig3-{n_layers}x{d_model}"]
    parts = [part for _, part in walk(spec) if isinstance(part, Attention)]
    assert [part.n_heads for part in parts] == [n_heads] * n_layers
    assert Ledger.of(spec).total + (50304 - 50257 - 1024) * d_model == FIGURE_3[shape]


def test_the_two_larger_shapes_of_the_paper_give_its_counts() -> None:
    counts = {"paper-20x1280": 457_940_480, "paper-25x1600": 849_009_600}
    for name, count in counts.items():
        spec = presets[name]
        assert Ledger.of(spec).total + (50304 - 50257 - 1024) * spec.d_model == count


def test_presets_equal_the_readings_of_published_files(cases: Path) -> None:
    for name, case in CASES.items():
        assert read(published(cases, case)).spec == presets[name], name
    assert read_file(cases / "cases" / "field" / "hand" / "config" / "gqa8b").spec == presets["llama-3-8b"]


def test_llama_2_differs_from_an_early_file_in_its_context_alone(cases: Path) -> None:
    """The file as first published says 2,048 positions; the model was made with 4,096 and later files say so."""
    early = read(published(cases, "llama-2-70b")).spec
    assert early.max_seq_len == 2048
    assert replace(early, max_seq_len=4096) == presets["llama-2-70b"]


def test_llama_3_1_turns_as_its_published_files_say(cases: Path) -> None:
    theirs = read(published(cases, "llama-3.1-70b")).spec
    rotations = [
        {part.scores.rotary for _, part in walk(spec) if isinstance(part, Attention)}
        for spec in (theirs, presets["llama-3.1-405b"])
    ]
    assert rotations[0] == rotations[1]
    assert theirs.max_seq_len == presets["llama-3.1-405b"].max_seq_len


def test_heads_of_an_odd_width_are_refused_by_the_sizes_that_make_them() -> None:
    with pytest.raises(PlainformerError, match="even") as error:
        presets.trainable("small", vocab_size=65, d_model=63, n_heads=7)
    assert [fault.where for fault in error.value.faults] == ["d_model"]


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(PlainformerError) as error:
        presets["lama-3-8b"]
    (fault,) = error.value.faults
    assert fault.value == "lama-3-8b"
    assert "llama-3-8b" in fault.hint
    with pytest.raises(PlainformerError, match="presets lists them"):
        presets["zzz"]


def test_presets_are_a_read_only_mapping() -> None:
    assert list(presets) == [*PUBLISHED, *TRAINABLE] == list(presets.keys())
    assert len(presets) == len(list(presets))
    assert "gpt2" in presets
    assert "gpt5" not in presets
    assert presets["gpt2"] is presets["gpt2"]
    with pytest.raises(TypeError):
        presets["gpt2"] = presets["gpt3"]  # type: ignore[index]


def test_a_preset_and_a_reading_load_neither_numpy_nor_torch() -> None:
    code = """
import sys
from plainformer.huggingface import read, write
from plainformer.presets import preset, presets
assert list(presets) and preset.cache_info().currsize == 0, "a preset was built before it was asked for"
read(write(presets["gpt2"]))
print(sorted({"numpy", "torch"} & sys.modules.keys()), [name for name in sys.modules if "configs_mixtures" in name])
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[] []"


# --- shapes to train --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRAINABLE)
def test_a_trained_shape_takes_the_tokenizers_vocabulary_and_can_be_exported(name: str) -> None:
    spec = presets.trainable(name, vocab_size=65)
    assert spec.vocab_size == 65
    assert spec.head is not None
    assert spec.head.linear.n_out == 65
    assert read(write(spec)).spec == spec
    assert presets.trainable(name, vocab_size=256) == presets[name]


def test_what_follows_from_a_width_follows_its_change() -> None:
    narrow = presets.trainable("tiny", vocab_size=65, d_model=128, n_layers=3, max_seq_len=32)
    parts = [part for _, part in walk(narrow) if isinstance(part, Attention)]
    assert [part.n_heads * part.d_head for part in parts] == [128] * 3
    assert (narrow.d_model, narrow.max_seq_len) == (128, 32)


@pytest.mark.parametrize(
    ("name", "changes", "where", "value"),
    [
        ("small", {"d_model": 100, "n_heads": 3}, "n_heads", 3),
        ("gpt2-style", {"d_model": 100, "n_heads": 3}, "n_heads", 3),
        ("small", {"d_modle": 100}, "d_modle", 100),
        ("gpt2-style", {"n_layers": 0}, "decoder.layers", ()),
        ("gpt2", {}, "preset", "gpt2"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_by_field(name: str, changes: dict[str, int], where: str, value: Any) -> None:
    with pytest.raises(PlainformerError) as error:
        presets.trainable(name, vocab_size=65, **changes)
    assert [(fault.where, fault.value) for fault in error.value.faults] == [(where, value)]


# --- the layouts that the three documents name ------------------------------------------------------------------------


def small_gpt2(**changes: Any) -> Spec:
    sizes = {"vocab_size": 50257, "max_seq_len": 1024, "d_model": 768, "n_layers": 12, "n_heads": 12}
    return gpt2(**sizes | changes)


def test_each_layout_is_a_call_of_one_builder() -> None:
    bare = {"qkv_bias": False, "out_bias": False, "mlp_bias": False, "norm_bias": False}
    figure = {"d_model": 32, "n_layers": 4, "n_heads": 4, "vocab_size": 50304}
    layouts = {
        124_402_944: small_gpt2(qkv_bias=False, out_bias=False),  # the lesson's way to count GPT-2
        163_037_184: small_gpt2(tied=False),  # the course's
        123_587_328 + 1024 * 768: small_gpt2(vocab_size=50304, **bare),  # nanoGPT without biases, and positions
        1_659_168 + 1024 * 32 + 4 * 3 * 32: small_gpt2(**bare | figure | {"qkv_bias": True}),  # the paper authors'
    }
    assert [Ledger.of(spec).total for spec in layouts.values()] == list(layouts)


def test_post_norm_has_the_pre_norm_weights_less_the_last_norm() -> None:
    spec = presets["lesson"]
    after = post_norm(spec)
    assert Ledger.of(after).total == Ledger.of(spec).total - 2 * 32
    residuals = [part for _, part in walk(after) if isinstance(part, Residual)]
    assert all(part.norm_sum is not None and part.branches[0].norm_in is None for part in residuals)


def test_without_residual_nothing_but_the_sum_is_gone() -> None:
    spec = presets["lesson"]
    bare = without_residual(spec)
    assert not any(part.add for _, part in walk(bare) if isinstance(part, Residual))
    again = rewrite(bare, lambda part: replace(part, add=True) if isinstance(part, Residual) else part)
    assert again == spec

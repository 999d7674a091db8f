"""How people count: named conventions, their line tables, and the shapes behind a label."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from plainformer.conventions import (
    CONVENTIONS,
    QUERIES_VALUES_HEAD,
    candidates,
    count,
    lines,
    pad_vocabulary,
    rule_of_thumb,
    untie,
    with_lora,
    with_vocabulary,
    without_attention_biases,
    without_biases,
)
from plainformer.families.decoders import gpt2
from plainformer.faults import PlainformerError
from plainformer.ledger import Ledger, weights
from plainformer.presets import presets
from plainformer.spec import ChosenSoftmaxRouter, Experts, FeedForward, Linear, Spec
from plainformer.tree import walk

SWEEP = [(4, 32), (4, 64), (4, 128), (8, 256), (8, 384), (8, 512), (10, 640), (12, 768)]
LABELS = {"124M": (12, 768), "354M": (24, 1024), "458M": (20, 1280), "773M": (36, 1280), "849M": (25, 1600)}


@cache
def shape(n_layers: int, d_model: int) -> Spec:
    return gpt2(vocab_size=50257, max_seq_len=1024, d_model=d_model, n_layers=n_layers, n_heads=1)


@pytest.fixture(scope="module")
def numbers(cases: Path) -> dict[str, Any]:
    entries = json.loads((cases / "cases" / "seed_numbers.json").read_text(encoding="utf-8"))["numbers"]
    return {name: entry["expected"] for name, entry in entries.items()}


@pytest.fixture(scope="module")
def expectations(cases: Path) -> dict[str, Any]:
    held = json.loads((cases / "cases" / "size" / "conventions.json").read_text(encoding="utf-8"))["expectations"]
    return {entry["id"]: entry for entry in held}


def totals(name: str, shapes: list[tuple[int, int]]) -> list[int]:
    return [count(shape(*one), name).total for one in shapes]


@pytest.mark.parametrize("name", CONVENTIONS)
@pytest.mark.parametrize("preset", ["gpt2", "lesson", "mixtral-8x7b", "bert-base", "t5-small"])
def test_a_convention_accounts_for_every_row(preset: str, name: str) -> None:
    """Every tensor, plus what the change does, less what the filter leaves out, is the total."""
    counted = count(presets[preset], name)
    left_out = sum(row.count for row in counted.left_out)
    assert counted.plain == Ledger.of(presets[preset]).total
    assert counted.plain + sum(gap for _, gap in counted.changes) - left_out == counted.total
    assert sum(line.total for line in lines(counted.kept)) == counted.total
    assert {row.name for row in counted.kept} & {row.name for row in counted.left_out} == set()


def test_every_named_convention_gives_gpt2_its_published_count() -> None:
    assert {name: count(presets["gpt2"], name).total for name in CONVENTIONS} == {
        "tensors": 124_439_808,
        "nanogpt": 123_689_472,
        "bias-free": 123_587_328,
        "lesson": 124_402_944,
        "untied": 163_037_184,
        "lora": 124_827_648,
        "authors": 124_753_152,
        "authors-released": 124_725_504,
    }


def test_the_lesson_s_convention_leaves_its_own_model_as_it_is() -> None:
    assert count(presets["lesson"], "lesson").total == count(presets["lesson"]).total == 27_328


def test_a_convention_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(PlainformerError) as refused:
        count(presets["gpt2"], "nanogtp")
    assert "nanogtp" in str(refused.value)
    assert "nanogpt, " in str(refused.value)


# --- the numbers of the documents -------------------------------------------------------------------------------------


def test_the_counts_of_every_size_under_every_convention(numbers: dict[str, Any]) -> None:
    for label, one in LABELS.items():
        assert count(shape(*one), "nanogpt").total == numbers.get(f"size_{label}", numbers["small_nanogpt"])
        assert count(shape(*one), "bias-free").total == numbers[f"size_{label}_bias_free"]
        assert f"{round(count(shape(*one), 'nanogpt').total / 1e6)}M" == label
    sizes = {"small": "gpt2", "medium": "gpt2-medium", "large": "gpt2-large", "xl": "gpt2-xl"}
    for size, preset in sizes.items():
        assert count(presets[preset]).total == numbers[f"gpt2_{size}_openai"]
    millions = [round(count(presets[preset]).total / 1e6, 1) for preset in sizes.values()]
    assert millions == numbers["openai_millions"]
    assert count(presets["gpt3"]).total == numbers["gpt3_exact"]
    assert count(presets["lesson"]).total == numbers["tiny_gpt"]
    assert count(presets["gpt2"], "lesson").total == numbers["gpt2_small_no_attn_bias"]
    assert count(presets["gpt2"], "untied").total == numbers["tt_gpt2_scale_untied"]
    course = gpt2(vocab_size=100, max_seq_len=1024, d_model=64, n_layers=2, n_heads=4)
    assert count(course, "untied").total == numbers["tt_tiny_untied"]
    assert count(without_biases(presets["gpt2"])).total == numbers["nanogpt_sizing_total"]
    assert rule_of_thumb(12, 768, 50257) == numbers["rule_of_thumb_small"]
    nanogpt = count(shape(4, 32), "nanogpt")
    assert [nanogpt.total, nanogpt.total + sum(row.count for row in nanogpt.left_out)] == numbers["tiny_4x32"]


def test_where_the_parameters_of_gpt2_live(numbers: dict[str, Any]) -> None:
    for size, preset in {"small": "gpt2", "medium": "gpt2-medium", "large": "gpt2-large", "xl": "gpt2-xl"}.items():
        kinds = Ledger.of(presets[preset]).by_kind
        tables = kinds["embedding"] + kinds["position"]
        parts = [tables, kinds["attention"], kinds["feed_forward"], kinds["norm"]]
        assert parts == numbers[f"gpt2_{size}_parts_openai"]
    counted = count(presets["gpt2"], "nanogpt")
    kinds = Ledger(counted.kept).by_kind
    shares = [100 * kinds[kind] / counted.total for kind in ("embedding", "attention", "feed_forward", "norm")]
    assert shares == pytest.approx(numbers["small_shares_pct"], abs=0.005)
    assert [kinds[kind] for kind in ("attention", "feed_forward", "norm")] == numbers["small_share_counts"]
    assert [counted.spec.vocab_size - 50257, dict(counted.changes)["embedding.weight"]] == numbers["padding"]


def test_the_lesson_s_block_and_mixture(numbers: dict[str, Any]) -> None:
    def total(part: object) -> int:
        return sum(row.count for row in weights(part))

    block = sum(total(residual) for residual in presets["lesson"].decoder.layers[0])
    assert block == numbers["block_width_32"]

    def feed_forward(width: int) -> FeedForward:
        up, down = (Linear(n_in=n, n_out=m, bias=True) for n, m in ((width, 4 * width), (4 * width, width)))
        return FeedForward(activation="gelu_tanh", up=up, down=down)

    assert total(feed_forward(8)) == numbers["ffn_width_8"]
    router = ChosenSoftmaxRouter(scores=Linear(n_in=16, n_out=8), n_chosen=2)
    mixture = Experts(router=router, expert=feed_forward(16), n_experts=8)
    active = sum(row.active for row in weights(mixture))
    assert total(mixture.expert) == numbers["moe_expert"]
    assert [total(mixture), active] == [numbers["moe_total"], numbers["moe_active"]]


def test_figure_3_under_four_conventions(numbers: dict[str, Any]) -> None:
    for name, key in {
        "nanogpt": "fig3_nanogpt",
        "lora": "fig3_biased_pos_lora",
        "authors": "fig3_authors",
        "authors-released": "fig3_released_default",
    }.items():
        assert totals(name, SWEEP) == numbers[key]
    plotted = numbers["fig3_x"]

    def off(name: str) -> list[float]:
        return [x / total - 1 for x, total in zip(plotted, totals(name, SWEEP), strict=True)]

    assert [1e6 * gap for gap in off("authors")] == pytest.approx(numbers["fig3_authors_ppm"], abs=0.06)
    released = [1e6 * gap for gap in off("authors-released")]
    assert released == pytest.approx(numbers["fig3_released_default_ppm"], abs=0.06)
    assert [100 * gap for gap in off("lora")] == pytest.approx(numbers["fig3_biased_diff_pct"], abs=0.0006)
    worst = [max(map(abs, off("lora"))) * 100, max(map(abs, off("authors"))) * 1e6]
    assert worst == pytest.approx(numbers["fig3_worst"], abs=0.06)


def test_the_smallest_shape_of_figure_3_part_by_part(numbers: dict[str, Any]) -> None:
    bare = count(shape(4, 32), "bias-free")
    authors, released = count(shape(4, 32), "authors"), count(shape(4, 32), "authors-released")
    adapters = {row.name: row.count for row in authors.kept if row.kind == "lora"}
    assert [
        bare.total,
        sum(row.count for row in bare.left_out),
        authors.total - released.total,
        sum(n for name, n in adapters.items() if ".attention." in name),
        sum(n for name, n in adapters.items() if name.startswith("head.")),
        authors.total,
    ] == numbers["fig3_smallest_parts"]


def test_the_line_table_of_gpt2_small(numbers: dict[str, Any]) -> None:
    counted = count(presets["gpt2"], "nanogpt")
    each = {line.place: line.each for line in lines(counted.kept)}
    assert each == {
        "embedding": numbers["small_token_embedding"],
        "attention_norm": numbers["small_ln"],
        "attention.q k v": numbers["small_c_attn"],
        "attention.out": numbers["small_attn_out"],
        "feed_forward_norm": numbers["small_ln"],
        "feed_forward.up": numbers["small_mlp_up"],
        "feed_forward.down": numbers["small_mlp_down"],
        "decoder.norm_last": numbers["small_ln"],
    }
    block = [line for line in lines(counted.kept) if line.layers == "decoder.layers.*"]
    assert sum(line.each for line in block) == numbers["small_block"]
    assert {line.times for line in block} == {12}
    assert sum(line.total for line in block) == numbers["small_12_blocks"]
    assert [row.count for row in counted.left_out] == [numbers["small_positions"]]
    assert dict(counted.changes) == {"embedding.weight": numbers["padding"][1]}
    assert count(counted.spec, "untied").total - count(counted.spec).total == numbers["untie_extra"]


def test_lora_adds_what_its_factors_hold(numbers: dict[str, Any], expectations: dict[str, Any]) -> None:
    plain, padded = presets["gpt2"], pad_vocabulary(presets["gpt2"])
    for spec, key in ((padded, "lora_small_padded"), (plain, "lora_small_true_vocab")):
        assert Ledger.of(with_lora(spec, rank=4)).total - Ledger.of(spec).total == numbers[key]
    assert expectations["gpt2-small.lora-r4"]["value"]["padded_vocab"] == numbers["lora_small_padded"]


def test_the_shares_of_the_token_table(numbers: dict[str, Any]) -> None:
    shapes = [*SWEEP, (24, 1024), (20, 1280), (36, 1280), (25, 1600)]
    shares = [100 * 50304 * width / total for (_, width), total in zip(shapes, totals("nanogpt", shapes), strict=True)]
    assert shares == pytest.approx(numbers["embedding_shares_pct"], abs=0.051)


def test_the_shapes_behind_a_label(numbers: dict[str, Any], expectations: dict[str, Any]) -> None:
    searched = expectations["shape-search"]
    for label in ("458M", "849M"):
        found = candidates(int(label[:-1]), shape)
        assert [list(one) for one in found] == numbers[f"candidates_{label}"] == searched["value"][label]
        known = candidates(int(label[:-1]), shape, widths=(768, 1024, 1280, 1600))
        assert [list(one) for one in known] == searched["gpt2_widths_only"][label]
        assert [n for n, width in found if width == 64 * n] == [known[0][0]]


def test_candidates_are_what_counting_each_shape_would_find() -> None:
    one_by_one = [
        (n, width)
        for width in (192, 256)
        for n in range(1, 11)
        if round(count(shape(n, width), "authors").total / 1e6) == 20
    ]
    assert candidates(20, shape, range(1, 11), (192, 256), "authors") == one_by_one != []


# --- changes of a spec ------------------------------------------------------------------------------------------------


def test_padding_rounds_the_vocabulary_up_in_table_and_head() -> None:
    padded = pad_vocabulary(presets["gpt2"])
    assert padded.vocab_size == padded.head.linear.n_out == 50304
    assert pad_vocabulary(padded) == padded
    assert with_vocabulary(padded, 50257) == presets["gpt2"]
    untied = pad_vocabulary(presets["llama-3-8b"], 1000)
    assert untied.vocab_size == untied.head.linear.n_out == 129000


def test_a_head_that_scores_something_else_keeps_its_width() -> None:
    bert = presets["bert-base"]
    judge = replace(bert, head=replace(bert.head, tied=False, linear=Linear(n_in=768, n_out=2)))
    assert with_vocabulary(judge, 40000).head.linear.n_out == 2


def test_without_biases_none_is_left_and_nothing_else_goes() -> None:
    spec = without_biases(presets["bert-base"])
    assert [where for where, part in walk(spec) if getattr(part, "bias", False)] == []
    gone = {row.name for row in Ledger.of(presets["bert-base"]).rows} - {row.name for row in Ledger.of(spec).rows}
    assert {name.rpartition(".")[2] for name in gone} == {"bias"}


def test_without_attention_biases_the_feed_forward_keeps_its_own() -> None:
    names = {row.name for row in Ledger.of(without_attention_biases(presets["gpt2"])).rows}
    assert [name for name in names if ".attention." in name and name.endswith(".bias")] == []
    assert "decoder.layers.0.feed_forward.up.bias" in names
    assert "decoder.layers.0.attention_norm.bias" in names


def test_untying_adds_one_table_and_only_once() -> None:
    spec = untie(presets["gpt2"])
    assert Ledger.of(spec).total - Ledger.of(presets["gpt2"]).total == 50257 * 768
    assert untie(spec) == spec


def test_lora_on_a_tied_head_leaves_the_table_alone() -> None:
    rows = {row.name: row for row in Ledger.of(with_lora(presets["gpt2"], rank=4)).rows}
    assert rows["head.weight"].same_as == "embedding.weight"
    assert rows["head.lora_a"].shape == (4, 768)
    assert rows["head.lora_b"].shape == (50257, 4)
    assert rows["embedding.weight"].shape == (50257, 768)


@pytest.mark.parametrize("preset", ["gpt2", "deepseek-v3", "t5-small", "small"])
def test_lora_goes_where_it_is_asked_to_and_nowhere_else(preset: str) -> None:
    before = {row.name for row in Ledger.of(presets[preset]).rows}
    for target in QUERIES_VALUES_HEAD:
        after = {row.name for row in Ledger.of(with_lora(presets[preset], rank=2, targets=(target,))).rows}
        part, _, field = target.partition(".")
        for name in after - before:
            assert name.endswith(("lora_a", "lora_b"))
            assert part in name
            assert not field or f".{field}." in name


def test_lora_refuses_a_projection_that_does_not_exist() -> None:
    with pytest.raises(PlainformerError, match="attention\\.query"):
        with_lora(presets["gpt2"], rank=4, targets=("attention.query",))


def test_like_layers_are_said_once_and_unlike_ones_by_their_numbers() -> None:
    places = {(line.layers, line.place): line.times for line in lines(Ledger.of(presets["deepseek-v3"]).weights)}
    assert places["decoder.layers.*", "attention.out"] == 61
    assert places["decoder.layers.0-2", "feed_forward.up"] == 3
    assert places["decoder.layers.3-60", "feed_forward.experts.up"] == 58


def test_layers_that_differ_only_in_width_are_not_said_as_one() -> None:
    spec = gpt2(vocab_size=50, max_seq_len=16, d_model=8, n_layers=3, n_heads=2)
    wide = gpt2(vocab_size=50, max_seq_len=16, d_model=8, n_layers=3, n_heads=2, d_ff=20)
    layers = (spec.decoder.layers[0], wide.decoder.layers[0], spec.decoder.layers[0])
    mixed = replace(spec, decoder=replace(spec.decoder, layers=layers))
    rows = Ledger.of(mixed).weights
    ups = [line for line in lines(rows) if line.place == "feed_forward.up"]
    assert [(line.layers, line.each) for line in ups] == [
        ("decoder.layers.0,2", 8 * 32 + 32),
        ("decoder.layers.1", 8 * 20 + 20),
    ]
    assert sum(line.total for line in lines(rows)) == Ledger.of(mixed).total

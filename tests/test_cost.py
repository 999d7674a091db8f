"""Bytes, operations, time and money: against the documents, published truths and torch's own counter."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plainformer import mixers
from plainformer import spec as s
from plainformer.conventions import with_lora
from plainformer.cost import Cost, rules
from plainformer.cost.cache import Cache, kept
from plainformer.cost.flops import Work, flops, scores_and_mix
from plainformer.faults import PlainformerError
from plainformer.huggingface import Reading, read, read_file
from plainformer.presets import presets
from plainformer.tree import walk


@pytest.fixture(scope="module")
def numbers(cases: Path) -> dict[str, Any]:
    entries = json.loads((cases / "cases" / "seed_numbers.json").read_text(encoding="utf-8"))["numbers"]
    return {name: entry["expected"] for name, entry in entries.items()}


@pytest.fixture(scope="module")
def published(cases: Path) -> list[tuple[Reading, dict[str, Any]]]:
    """Each config with a truth that a reader takes."""
    found = []
    for path in sorted((cases / "cases" / "size").glob("*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        if "truth" not in held:
            continue
        try:
            found.append((read(held["config"], held["name"]), held["truth"]))
        except PlainformerError:  # a family that waits for its reader; tests/test_families lists them
            continue
    assert len(found) >= 12
    return found


def first(spec: s.Spec, kind: type) -> Any:
    return next(part for _, part in walk(spec) if isinstance(part, kind))


# --- published truths -------------------------------------------------------------------------------------------------


def test_operations_are_those_that_torch_counts(published: list[tuple[Reading, dict[str, Any]]]) -> None:
    """Exactly, for one token and for 128; a pooler reads one position only, which its spec does not say."""
    compared = 0
    for reading, truth in published:
        pooled = any("pooler" in note and "reads one token" in note for note in reading.notes)
        for length in (1,) if pooled else (1, 128):
            if truth.get("flops_forward_b1"):
                compared += 1
                counted = Cost.of(reading.spec, seq_len=length).forward_flops
                assert counted == truth["flops_forward_b1"][f"t{length}"], (truth["class"], length)
    assert compared >= 12


def test_the_cache_is_that_of_the_published_models(published: list[tuple[Reading, dict[str, Any]]]) -> None:
    compared = 0
    for reading, truth in published:
        cache, said = Cache.of(reading.spec), truth.get("kv") or {}
        if truth["kv_bytes_per_token_bf16"] is None:
            assert cache.parts == ()
            continue
        compared += 1
        assert 2 * cache.per_token == truth["kv_bytes_per_token_bf16"]
        if "window" in said:
            assert 2 * cache.per_token_beyond_windows == said["bytes_per_token_beyond_window"]
            for context in (8192, 131072):
                assert 2 * cache.numbers(context) == said[f"total_bytes_ctx{context}_batch1_bf16"]
        if "transformers_cache_bytes_per_token" in said:
            assert 2 * cache.numbers_expanded(1) == said["transformers_cache_bytes_per_token"]
        if "cross_attention_bytes_per_source_token_bf16" in said:
            assert 2 * cache.per_source_token == said["cross_attention_bytes_per_source_token_bf16"]
    assert compared >= 12


def test_bytes_of_weights_are_those_of_the_published_models(published: list[tuple[Reading, dict[str, Any]]]) -> None:
    for reading, truth in published:
        cost = Cost.of(reading.spec)
        for dtype, n_bytes in truth["weight_bytes"].items():
            assert cost.weights_bytes(dtype) == n_bytes


def test_cases_from_the_field(cases: Path) -> None:
    folder = cases / "cases" / "field" / "hand" / "config"

    def cost(name: str, seq_len: int | None = None) -> Cost:
        return Cost.of(read_file(folder / name).spec, seq_len=seq_len)

    wide, grouped = cost("wide_head"), cost("gqa8b", 8192)  # F01
    assert (wide.ledger.total, wide.cache_bytes_per_token) == (12_247_782_400, 163_840)
    assert (grouped.ledger.total, grouped.cache_bytes) == (8_030_261_248, 1_073_741_824)
    nulls = cost("nulls")  # F02
    assert (nulls.ledger.total, nulls.cache_bytes_per_token) == (6_738_415_616, 524_288)
    tied = cost("tied1b")  # F03: once in weights, gradients and both moments
    assert tied.ledger.total == 1_235_814_400
    assert tied.weights_bytes("bfloat16") == 2 * tied.ledger.total
    assert tied.optimizer_bytes == 16 * tied.ledger.total
    assert cost("gpt2_small").ledger.total == 124_439_808
    mixture = cost("moe8x7", 1)  # F04
    assert (mixture.ledger.total, mixture.ledger.active) == (46_702_792_704, 12_879_925_248)
    assert mixture.weights_bytes("bfloat16") == 2 * 46_702_792_704
    assert mixture.rule_2n == 2 * 12_879_925_248
    assert mixture.forward_flops < 2 * 12_879_925_248 < 2 * 46_702_792_704


# --- the numbers of the documents -------------------------------------------------------------------------------------


def test_where_the_operations_of_gpt2_small_go(numbers: dict[str, Any]) -> None:
    spec, work = presets["gpt2"], Work(1, n_new=1024, n_all=1024)
    attention = first(spec, s.Attention)
    scores = scores_and_mix(work, 12, 64, 64)
    weights = flops(attention, work) - scores
    second = flops(first(spec, s.FeedForward), work)
    head = flops(spec.head, work)
    whole = Cost.of(spec).forward_flops
    assert [12 * weights, 12 * scores, 12 * second, head, whole] == numbers["gpt2s_forward_flops"]
    ratio = whole / (Cost.of(spec).rule_2n * 1024)
    assert ratio == pytest.approx(numbers["gpt2s_forward_over_2N"], abs=0.0001)


def test_where_the_operations_of_a_gpt3_block_go(numbers: dict[str, Any]) -> None:
    spec, work = presets["gpt3"], Work(1, n_new=2048, n_all=2048)
    scores = scores_and_mix(work, 96, 128, 128)
    assert scores == numbers["flops_attn_scores_mix"]
    assert flops(first(spec, s.Attention), work) - scores == numbers["flops_qkvo"]
    assert flops(first(spec, s.FeedForward), work) == numbers["flops_mlp"]


def test_scores_overtake_products_at_a_multiple_of_the_width(numbers: dict[str, Any]) -> None:
    spec = presets["gpt2"]
    mlp, qkvo, all_products = numbers["attention_mlp_crossover_over_d"]
    for times, more, less in ((mlp, 1, 0), (qkvo, 1, 1), (all_products, 0, 1)):
        work = Work(1, n_new=times * 768, n_all=times * 768)
        scores = scores_and_mix(work, 12, 64, 64)
        projections = flops(first(spec, s.Attention), work) - scores
        second = flops(first(spec, s.FeedForward), work)
        if times == all_products:
            assert scores == projections + second
        else:
            assert more * scores + less * projections == second


def test_the_cache_of_large_models(numbers: dict[str, Any]) -> None:
    gpt3 = Cost.of(presets["gpt3"], seq_len=2048)
    assert gpt3.cache.numbers(2048) == numbers["kv_elements_gpt3"]
    assert [gpt3.cache_bytes, gpt3.cache_bytes_per_token] == numbers["kv_bytes_gpt3_fp16"]
    assert Cost.of(presets["llama-3-8b"]).cache_bytes_per_token == numbers["llama3_8b_kv_per_token"]


def test_totals_of_published_models(numbers: dict[str, Any]) -> None:
    for preset, key in {
        "llama-3-8b": "llama3_8b_params",
        "llama-3-70b": "llama3_70b_params",
        "llama-3.1-405b": "llama31_405b_params",
        "mixtral-8x7b": "mixtral_8x7b_params",
    }.items():
        assert Cost.of(presets[preset]).ledger.total == numbers[key]
    assert Cost.of(presets["mixtral-8x7b"]).ledger.active == numbers["mixtral_8x7b_active"]


def test_rules_of_thumb(numbers: dict[str, Any]) -> None:
    assert rules.inference_flops_per_token(7_000_000_000) == numbers["infer_flops_7b"]
    assert rules.training_flops(70e9, 1e12) == pytest.approx(numbers["train_flops_70b_1t"], rel=1e-9)
    assert rules.training_flops(175e9, 300e9) == pytest.approx(numbers["train_flops_gpt3"], rel=0.01)
    hours = rules.device_hours(rules.training_flops(7e9, 140e9), 400e12)
    assert hours == pytest.approx(numbers["gpu_hours_7b_140b"], abs=0.01)
    both = [rules.n_bytes(70_000_000_000, dtype) / 1e9 for dtype in ("bfloat16", "int4")]
    assert both == numbers["weights_70b"]
    state = rules.ADAMW * 175e9 / 1e12
    assert state == pytest.approx(numbers["gpt3_training_state_tb"])


def test_attention_matrices_where_they_are_written_out(numbers: dict[str, Any]) -> None:
    small = rules.score_elements(batch_size=4, n_heads=8, seq_len=1024)
    assert [small, 4 * small, 4 * small / 2**20] == numbers["attn_matrix_1024"]
    large = rules.score_elements(batch_size=4, n_heads=8, seq_len=4096)
    assert [4 * large, 4 * large / 2**30, large / small] == numbers["attn_matrix_4096"]
    gpt3 = rules.score_elements(batch_size=4, n_heads=96, seq_len=2048)
    assert [gpt3, 4 * gpt3, 4 * gpt3 / 2**30] == numbers["attn_matrix_gpt3"]


def test_activations_by_formula(numbers: dict[str, Any]) -> None:
    cost = Cost.of(presets["gpt3"], seq_len=2048)
    assert [cost.activation_bytes(), cost.activation_bytes(recompute=True)] == numbers["activation_bytes_gpt3"]
    assert Cost.of(presets["llama-3-8b"]).activation_bytes() is None
    assert Cost.of(presets["mixtral-8x7b"]).activation_bytes() is None


def test_work_with_and_without_a_cache(numbers: dict[str, Any]) -> None:
    for key, n_prompt, n_new, layers in (
        ("positions_P50_N100", 50, 100, 1),
        ("positions_P8_N16", 8, 16, 1),
        ("token_layer_work_P1_N100", 1, 100, 96),
    ):
        both = [layers * rules.positions_computed(n_prompt, n_new, cached) for cached in (False, True)]
        assert both == numbers[key]


def test_utilisation_as_it_is_reported() -> None:
    """F28: GPT-2 small at 178,000 tokens a second, on two devices."""
    per_token = Cost.of(presets["gpt2"]).model_flops_per_token
    assert per_token == 855_166_464
    assert rules.utilisation(per_token, 178_000, 312e12) == pytest.approx(0.488, abs=0.0005)
    assert rules.utilisation(per_token, 178_000, 989.5e12) == pytest.approx(0.154, abs=0.0005)


# --- laws -------------------------------------------------------------------------------------------------------------


def test_tokens_one_at_a_time_score_half_as_much_as_all_at_once() -> None:
    """The plain form scores every pair; decoding scores the pairs that are allowed, T (T + 1) / 2 of them."""
    spec = presets["tiny"]
    at_once = flops(spec, Work(1, 16, 16))
    stepwise = sum(flops(spec, Work(1, 1, n + 1)) for n in range(16))
    every, allowed = (2 * scores_and_mix(Work(1, 1, n), 4, 16, 16) for n in (16 * 16, 16 * 17 // 2))
    assert at_once - stepwise == every - allowed > 0


def test_operations_grow_with_the_batch_and_bytes_of_weights_do_not() -> None:
    one, eight = (Cost.of(presets["t5-small"], batch_size=n, seq_len=64) for n in (1, 8))
    assert eight.forward_flops == 8 * one.forward_flops
    assert eight.cache_bytes == 8 * one.cache_bytes
    assert eight.cross_cache_bytes == 8 * one.cross_cache_bytes > 0
    assert eight.weights_bytes() == one.weights_bytes()
    assert eight.forward_flops_per_token == one.forward_flops_per_token


def test_cross_attention_reads_the_source_once() -> None:
    spec = presets["t5-small"]
    short, long = (Cost.of(spec, seq_len=10, source_len=n) for n in (7, 8))
    encoder = flops(spec.encoder, Work(1, 8, 8)) - flops(spec.encoder, Work(1, 7, 7))
    keys_and_values = 6 * 2 * 2 * 512 * 512
    pairs = 6 * 2 * 10 * 8 * (64 + 64)
    assert long.forward_flops - short.forward_flops == encoder + keys_and_values + pairs


def test_shared_layers_are_counted_once_and_work_in_every_pass() -> None:
    stack = presets["gpt2"].decoder
    shared = s.Stack(layers=stack.layers[:1], causal=True, passes=(0,) * 12)
    work = Work(2, 5, 5)
    assert flops(shared, work) == flops(stack, work)
    assert sum(part.per_token for part in kept(shared)) == sum(part.per_token for part in kept(stack))


def test_a_stack_that_does_not_write_keeps_nothing() -> None:
    assert list(kept(presets["t5-small"].encoder)) == []
    assert len(list(kept(presets["t5-small"].decoder))) == 12


def test_a_window_bounds_the_cache_and_not_the_growth_inside_it() -> None:
    whole = first(presets["small"], s.Attention)
    cache = Cache((*kept(whole), *kept(replace(whole, window=10))))
    one = 2 * whole.n_kv_heads * whole.d_head
    assert cache.per_token == 2 * one
    assert cache.per_token_beyond_windows == one
    assert [cache.numbers(n) for n in (1, 10, 11, 50)] == [2 * one, 20 * one, 21 * one, 60 * one]


def test_only_the_chosen_experts_work() -> None:
    experts = first(presets["mixtral-8x7b"], s.Experts)
    work = Work(1, 3, 3)
    assert flops(experts, work) == 2 * flops(experts.expert, work) + 2 * 3 * 4096 * 8


def test_an_adapter_costs_its_two_products() -> None:
    spec = presets["tiny"]
    gap = flops(with_lora(spec, rank=3, targets=("attention.q",)), Work(1, 4, 4)) - flops(spec, Work(1, 4, 4))
    assert gap == 2 * (2 * 4 * 3 * (64 + 64))


def test_every_part_has_a_rule_or_holds_no_products() -> None:
    """So that a new kind of part cannot be sized at nothing by accident."""
    shapeless = {s.Lora, s.Scaling, s.Rotary, s.Scores, s.Branch}  # inside parts whose rules read them
    routers = {s.ChosenSoftmaxRouter, s.SoftmaxRouter, s.SigmoidRouter}  # read by the rule of Experts
    parts = {kind for room in (s, mixers) for kind in vars(room).values() if hasattr(kind, "__dataclass_fields__")}
    assert {kind for kind in parts if kind not in flops.registry} == shapeless | routers


def test_a_part_without_a_rule_is_named() -> None:
    with pytest.raises(TypeError, match="Rotary"):
        flops(s.Rotary(theta=1.0, n_dims=2), Work(1, 1, 1))


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"seq_len": 0}, "seq_len"),
        ({"seq_len": -5}, "seq_len"),
        ({"dtype": "float12"}, "dtype"),
        ({"kv_dtype": "int3"}, "kv_dtype"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(PlainformerError) as refused:
        Cost.of(presets["tiny"], **arguments)
    assert [fault.where for fault in refused.value.faults] == [field]


def test_the_cache_has_a_dtype_of_its_own() -> None:
    spec = presets["llama-3-8b"]
    by_weights = [Cost.of(spec, dtype=dtype).kv_dtype for dtype in ("float32", "float16", "int4", "fp8")]
    assert by_weights == ["float32", "float16", "bfloat16", "bfloat16"]
    assert Cost.of(spec, kv_dtype="fp8").cache_bytes_per_token == 65536
    assert Cost.of(spec, kv_dtype="fp8").weights_bytes() == 2 * 8_030_261_248


def test_half_bytes_are_rounded_up() -> None:
    assert [rules.n_bytes(n, "int4") for n in (0, 1, 2, 3)] == [0, 1, 1, 2]


def test_notes_say_what_a_figure_leaves_out() -> None:
    assert Cost.of(presets["gpt2"]).notes == ()
    assert "experts" in Cost.of(presets["mixtral-8x7b"]).notes[0]
    assert any("latents" in note for note in Cost.of(presets["deepseek-v3"]).notes)
    assert any("12,288 bytes" in note for note in Cost.of(presets["t5-small"]).notes)
    longer = Cost.of(presets["gpt2"], seq_len=2048)
    assert any("2,048" in note and "1,024" in note for note in longer.notes)

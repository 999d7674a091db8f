"""The memory and the work of training: by hand, against torch's own counter, and against what autograd keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plainformer.conventions import LORA_TARGETS
from plainformer.cost import Cost
from plainformer.cost.activations import activations, keeps, logits
from plainformer.cost.flops import Work, flops
from plainformer.cost.tape import Pass, Tape, Value
from plainformer.cost.training import OPTIMIZERS, Plan, Training, adapted, nf4
from plainformer.faults import PlainformerError
from plainformer.ledger import Ledger, Weight
from plainformer.presets import presets

N = 124_439_808


def of(name: str = "gpt2", **plan: Any) -> Training:
    return Training.of(Cost.of(presets[name], batch_size=2, seq_len=64), Plan(**plan))


# --- weights, gradients, optimiser ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("optimizer", "each"),
    [
        ("adamw", (2, 2, 12)),
        ("adamw-float32", (4, 4, 8)),
        ("adamw-autocast", (4, 4, 8)),
        ("adamw-bfloat16", (2, 2, 4)),
        ("sgd", (2, 2, 4)),
        ("sgd-momentum", (2, 2, 8)),
    ],
)
def test_bytes_a_parameter(optimizer: str, each: tuple[int, int, int]) -> None:
    one = of(optimizer=optimizer)
    assert (one.weights, one.gradients, one.optimizer) == tuple(n * N for n in each)


def test_muon_keeps_one_momentum_of_matrices_inside_the_layers() -> None:
    matrices = 12 * 12 * 768 * 768
    assert of(optimizer="muon").optimizer == 4 * N + 4 * matrices + 8 * (N - matrices)


def test_moments_of_8_bits_have_scales_and_small_tensors_keep_32() -> None:
    state = OPTIMIZERS["adamw-8bit"].state
    assert state(Weight("small", (4095,))) == 8 * 4095
    assert state(Weight("large", (4097,))) == 2 * 4097 + 2 * 4 * 17


def test_devices_share_what_zero_says_rounded_up() -> None:
    alone = of()
    for stage in range(4):
        shared = of(zero=stage, n_devices=7) if stage else of(n_devices=7)
        wanted = [-(-n // 7) if stage >= at else n for n, at in ((alone.weights, 3), (alone.gradients, 2))]
        assert [shared.weights, shared.gradients] == wanted
        assert shared.optimizer == (-(-alone.optimizer // 7) if stage >= 1 else alone.optimizer)
        assert shared.activations == alone.activations


@pytest.mark.parametrize(
    ("plan", "fields"),
    [
        ({"optimizer": "adam", "recompute": "some"}, ["optimizer", "recompute"]),
        ({"zero": 4}, ["zero", "zero"]),
        ({"zero": 1}, ["zero"]),
        ({"lora": 0}, ["lora"]),
        ({"quantised": True}, ["qlora"]),
        ({"n_devices": 0}, ["devices"]),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_name(plan: dict[str, Any], fields: list[str]) -> None:
    with pytest.raises(PlainformerError) as refused:
        Plan(**plan)
    assert [fault.where for fault in refused.value.faults] == fields


# --- adapters ---------------------------------------------------------------------------------------------------------


def test_adapters_alone_are_trained_and_stand_on_every_projection() -> None:
    one, trained = of(lora=8), 12 * 8 * (4 * 2 * 768 + 2 * 5 * 768)
    assert one.n_trained == trained
    assert one.weights == 2 * (N + trained)
    assert (one.gradients, one.optimizer) == (2 * trained, 12 * trained)
    assert of("llama-3-8b", lora=16).n_trained == 41_943_040  # peft's count for all linears of Llama 3 8B


def test_adapters_leave_single_experts_routers_and_heads_alone() -> None:
    names = {
        row.name
        for row in Ledger.of(adapted(presets["deepseek-v3"], 4)).rows
        if row.name.endswith(("lora_a", "lora_b"))
    }
    assert names
    assert not any(".experts." in name or "router" in name or name.startswith("head") for name in names)
    assert any(".shared." in name for name in names)
    assert "head" in LORA_TARGETS


def test_qlora_packs_frozen_matrices_alone() -> None:
    matrices = [row for row in Ledger.of(presets["gpt2"]).weights if len(row.shape) == 2 and ".layers." in row.name]
    count = sum(row.count for row in matrices)
    one = of(lora=8, quantised=True)
    packed = sum(-(-row.count // 2) + row.count // 64 + 4 * -(-row.count // 64 // 256) for row in matrices)
    assert one.weights == packed + 2 * (N - count) + 2 * one.n_trained
    assert nf4(Weight("odd", (65,))) == 33 + 2 + 4


# --- operations -------------------------------------------------------------------------------------------------------


def test_what_is_made_again_is_not_training_s_work_but_is_done() -> None:
    plain, full, some = (of(recompute=how) for how in ("none", "full", "selective"))
    assert plain.flops_per_token == full.flops_per_token == plain.flops_done_per_token
    layers = flops(presets["gpt2"].decoder, Work(2, 64, 64)) / 128
    assert full.flops_done_per_token - full.flops_per_token == layers
    assert some.flops_done_per_token - some.flops_per_token == 4 * 64 * 768 * 12


# --- activations ------------------------------------------------------------------------------------------------------


def block(part: Any, of: Pass) -> int:
    """Bytes that a layer's residuals keep, their input included."""
    tape, x = Tape(of), Value(of.rows * 768, of.size, True)
    for residual in part:
        x = keeps(residual, x, tape)
    return max(tape.n_bytes, tape.most)


def test_the_published_formula_of_a_gpt_block_without_dropout() -> None:
    """Korthikanti et al. 2022, section 4.1: s b h (34 + 5 a s / h), of which dropout's masks are 2 s b h and a s^2 b;
    their second softmax is dropout's output, ours the one without those who see nothing. Theirs leave out what norms
    keep in 32 bits for each position, and who may see whom."""
    part = presets["gpt2"].decoder.layers[0]
    s, b, h, a = 64, 2, 768, 12
    norms, mask = 2 * 2 * 4 * s * b, s * s
    plain = block(part, Pass(b, s, fused=False))
    assert plain == s * b * h * (34 - 2) + 4 * a * s * s * b + norms + mask
    fused = block(part, Pass(b, s))
    assert fused == s * b * h * 32 + 4 * a * s * b + norms  # a sum for each query in place of the scores
    ends = 2 * s * b * h + 2 * 4 * s * b + 2 * s * b * h + 8 * s * b + 8 * s  # last norm, head's input, numbers
    of = Pass(b, s, fused=False, recompute="full")
    begun = 8 * s * b + 8 * s
    assert activations(presets["gpt2"], of) == 12 * 2 * s * b * h + max(ends, plain - 2 * s * b * h + begun)


def test_scores_that_are_made_again_are_there_for_one_layer_alone() -> None:
    s, b, a = 512, 2, 12
    whole, again = (
        activations(presets["gpt2"], Pass(b, s, fused=False, recompute=how)) for how in ("none", "selective")
    )
    assert whole - again > 10 * 4 * a * s * s * b


def test_only_chosen_experts_keep_anything() -> None:
    spec = presets["mixtral-8x7b"]
    more = replace(spec.decoder.layers[0][1].branches[0].part, n_experts=8)
    three = replace(more, router=replace(more.router, n_chosen=3))
    one = Value(10 * 4096, 2, True)

    def kept(part: Any) -> int:
        tape = Tape(Pass(1, 10))
        keeps(part, one, tape)
        return tape.n_bytes

    each = kept(more.expert)  # a copy of the tokens, and what the expert makes of them
    answers = 2 * 2 * 10 * 4096 + 2 * 10 + 2 * 8 * 10  # what it says, weighed and not; its gates; whose, and which
    assert kept(three) - kept(more) == each + answers


def test_a_plan_s_numbers_are_as_wide_as_its_weights() -> None:
    """And with adapters 16 bits: frozen weights are."""
    sizes: dict[str, Pass] = {
        "adamw": Pass(2, 64),
        "adamw-float32": Pass(2, 64, size=4),
        "adamw-autocast": Pass(2, 64, size=4, autocast=True),
    }
    for optimizer, one in sizes.items():
        assert of(optimizer=optimizer).activations == activations(presets["gpt2"], one)
    frozen = activations(adapted(presets["gpt2"], 8), Pass(2, 64, adapters=True))
    assert of(optimizer="adamw-float32", lora=8).activations == frozen
    assert frozen < of().activations


def test_logits_cost_ten_bytes_a_score() -> None:
    assert logits(presets["gpt2"], Pass(2, 64)) == 10 * 2 * 64 * 50257
    assert logits(presets["gpt2"], Pass(2, 64, size=4)) == 12 * 2 * 64 * 50257


def test_a_part_without_a_rule_gives_no_number_and_all_else() -> None:
    from plainformer.tree import PARTS

    class Unheard:
        pass

    with pytest.raises(PlainformerError, match="Unheard"):
        keeps(Unheard(), Value(1, 2, True), Tape(Pass(1, 1)))
    assert "Mamba2" in PARTS
    assert PARTS["Mamba2"] not in keeps.registry


def test_adapters_leave_a_tower_alone() -> None:
    from plainformer.huggingface import read

    text = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    text |= {"intermediate_size": 96, "vocab_size": 100, "head_dim": 16, "model_type": "gemma3_text"}
    spec = read({"model_type": "gemma3", "text_config": text, "vision_config": {"vision_use_head": False}}).spec
    assert spec.towers
    names = {row.name for row in Ledger.of(adapted(spec, 4)).rows if row.name.endswith("lora_a")}
    assert names
    assert not any(name.startswith("towers") for name in names)
    assert Training.of(Cost.of(spec, seq_len=8), Plan(lora=4)).n_trained > 0

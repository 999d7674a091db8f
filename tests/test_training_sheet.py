"""The memory and the work of training: by hand, against torch's own counter, and against what autograd keeps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plainformer.conventions import LORA_TARGETS
from plainformer.cost import Cost
from plainformer.cost.activations import Pass, activations, kept, logits
from plainformer.cost.flops import Work, flops
from plainformer.cost.training import OPTIMIZERS, Plan, Training, adapted, nf4, operations
from plainformer.families import decoders, llamas, mixtures
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

SIZES = {"vocab_size": 13, "max_seq_len": 24, "d_model": 12, "n_layers": 2}
GROUPED = SIZES | {"n_heads": 4, "n_kv_heads": 2, "d_ff": 20}
TINY = {
    "gpt2": lambda: decoders.gpt2(**SIZES, n_heads=3),
    "llama": lambda: llamas.llama(**GROUPED, d_head=6),
    "mixtral": lambda: mixtures.mixtral(**GROUPED, d_head=4, n_experts=5, n_chosen=2),
}


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("name", TINY)
def test_training_s_operations_are_those_that_torch_counts(name: str, rank: int | None) -> None:
    """Forward and backward of our own model. With adapters the stream asks for a gradient from its start, as where
    layers are recomputed; experts' routers are frozen then, and pass a gradient on."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    from plainformer.model import Transformer

    cost = Cost.of(TINY[name](), batch_size=2, seq_len=7)
    spec = cost.spec if rank is None else adapted(cost.spec, rank)
    model = Transformer(spec)
    if rank is not None:
        for key, parameter in model.named_parameters():
            parameter.requires_grad_("lora_" in key)
        model.embedding.register_forward_hook(lambda _, __, stream: stream.requires_grad_())
    counter = FlopCounterMode(display=False)
    with counter:
        model(torch.zeros(2, 7, dtype=torch.long), trace={}).sum().backward()
    assert counter.get_total_flops() == sum(operations(cost, spec, Plan(lora=rank)))


def test_what_is_made_again_is_not_training_s_work_but_is_done() -> None:
    plain, full, some = (of(recompute=how) for how in ("none", "full", "selective"))
    assert plain.flops_per_token == full.flops_per_token == plain.flops_done_per_token
    layers = flops(presets["gpt2"].decoder, Work(2, 64, 64)) / 128
    assert full.flops_done_per_token - full.flops_per_token == layers
    assert some.flops_done_per_token - some.flops_per_token == 4 * 64 * 768 * 12


# --- activations ------------------------------------------------------------------------------------------------------


def test_the_published_formula_of_a_gpt_block_without_dropout() -> None:
    """Korthikanti et al. 2022, section 4.1: s b h (34 + 5 a s / h), of which dropout's masks and outputs are 2 s b h
    (masks) and 3 a s^2 b; ours keeps each output once, theirs the same."""
    part = presets["gpt2"].decoder.layers[0]
    s, b, h, a = 64, 2, 768, 12
    block = sum(kept(residual, Pass(b, s, fused=False)) for residual in part)
    assert block == s * b * h * (34 - 2) + 2 * a * s * s * b
    selective = sum(kept(residual, Pass(b, s, fused=False, recompute="selective")) for residual in part)
    assert selective == s * b * h * 32
    fused = sum(kept(residual, Pass(b, s)) for residual in part)
    assert fused == selective + 4 * a * s * b
    whole = activations(presets["gpt2"], Pass(b, s, fused=False, recompute="full"))
    assert whole == 12 * 2 * s * b * h + block + 2 * 2 * s * b * h  # the last norm's input and the head's


def test_only_chosen_experts_keep_anything() -> None:
    spec = presets["mixtral-8x7b"]
    more = replace(spec.decoder.layers[0][1].branches[0].part, n_experts=8)
    base = kept(more, Pass(1, 10))
    three = replace(more, router=replace(more.router, n_chosen=3))
    assert kept(three, Pass(1, 10)) - base == kept(more.expert, Pass(1, 10)) + 2 * 10 * 4096


def test_logits_cost_ten_bytes_a_score() -> None:
    assert logits(presets["gpt2"], Pass(2, 64)) == 10 * 2 * 64 * 50257


def test_a_part_without_a_rule_gives_no_number_and_all_else() -> None:
    from plainformer.tree import PARTS

    class Unheard:
        pass

    with pytest.raises(PlainformerError, match="Unheard"):
        kept(Unheard(), Pass(1, 1))
    assert "Mamba2" in PARTS
    assert PARTS["Mamba2"] not in kept.registry


@pytest.mark.parametrize("gated", [False, True])
def test_activations_are_those_that_autograd_keeps(gated: bool) -> None:
    """A block written plainly in torch, its scores written out: bytes of all that it saves in 16 bits, parameters
    aside, each storage once. (Statistics of norms are in 32 bits, and left out here and there.)"""
    torch = pytest.importorskip("torch")
    b, s, d, heads, f = 2, 16, 24, 4, 40
    sizes = {"vocab_size": 9, "max_seq_len": s, "d_model": d, "n_layers": 1, "n_heads": heads, "d_ff": f}
    spec = llamas.llama(**sizes, n_kv_heads=heads, d_head=6) if gated else decoders.gpt2(**sizes)
    functional = torch.nn.functional

    def matrix(n_in: int, n_out: int) -> Any:
        return torch.nn.Parameter(torch.randn(n_in, n_out, dtype=torch.bfloat16) / n_in)

    gain = torch.nn.Parameter(torch.ones(d, dtype=torch.bfloat16))
    q, k, v, out = (matrix(d, d) for _ in range(4))
    up, gate, down = matrix(d, f), matrix(d, f), matrix(f, d)
    parameters = {p.untyped_storage().data_ptr() for p in (gain, q, k, v, out, up, gate, down)}
    saved: dict[int, Any] = {}

    def keep(tensor: Any) -> Any:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    x = torch.randn(b, s, d, dtype=torch.bfloat16, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = functional.layer_norm(x, (d,), gain)
        query, key, value = ((y @ w).view(b, s, heads, d // heads).transpose(1, 2) for w in (q, k, v))
        scores = functional.softmax(query @ key.transpose(-1, -2), -1)
        x = x + (scores @ value).transpose(1, 2).reshape(b, s, d) @ out
        y = functional.layer_norm(x, (d,), gain)
        inner = functional.silu(y @ gate) * (y @ up) if gated else functional.gelu(y @ up)
        x = x + inner @ down
    stream = [
        t for at, t in saved.items() if at not in parameters and t.dtype == torch.bfloat16 and t.numel() >= b * s * 6
    ]
    kept_here = sum(t.untyped_storage().nbytes() for t in stream)
    assert kept_here == sum(kept(residual, Pass(b, s, fused=False)) for residual in spec.decoder.layers[0])


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

"""The laws of a training step, and of an evaluation.

B batch, T positions, N tokens of a text, V vocabulary.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from plainformer import reference, training
from plainformer.faults import PlainformerError
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.presets import presets
from plainformer.spec import Spec
from plainformer.training import BadStep, Muon, Optimizers, Schedule, decisions, evaluate, evaluation, gradients
from plainformer.training.finetuning import adapted
from plainformer.training.forecast import fitted, memory_of
from plainformer.training.optimizers import orthogonal
from plainformer.training.processes import ALONE, Processes
from plainformer.training.progress import Speed, clock
from plainformer.training.recipe import RECIPES, Rates, Recipe
from plainformer.training.step import check, products_in
from specs import GPT2, LLAMA, MIXTRAL

SPECS = {"gpt2": GPT2, "llama": LLAMA, "mixtral": MIXTRAL}


def batch(spec: Spec, n_rows: int, n_positions: int = 7, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Tokens and targets, some of them not real."""
    rng = np.random.default_rng(seed)
    x_BT, y_BT = rng.integers(spec.vocab_size, size=(2, n_rows, n_positions))
    y_BT[0, 2:] = -1
    y_BT[-1, :3] = -1
    return torch.from_numpy(x_BT), torch.from_numpy(y_BT)


# --- the rate ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, warmup",
    [
        ("peak 1e-3, floor 1e-4, warmup 10, decay ends 100", 10),
        ("same, warmup 0", 0),
        ("same, warmup 100 = decay end 100", 100),
    ],
)
def test_f25_the_cosine_is_the_field_s_table(cases: Path, name: str, warmup: int) -> None:
    expected = json.loads((cases / "cases/field/hand/expected.json").read_text(encoding="utf-8"))["schedule"][name]
    schedule = Schedule(shape="cosine", steps=100, warmup=warmup, floor=0.1)
    for step, rate in expected.items():
        assert 1e-3 * schedule.at(int(step)) == pytest.approx(rate, rel=1e-4)


def test_a_linear_rate_warms_up_stays_and_falls() -> None:
    schedule = Schedule(shape="linear", steps=10, warmup=3, decay_from=6)
    shares = [schedule.at(step) for step in range(11)]
    assert shares == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 0.75, 0.5, 0.25, 0])


@given(
    shape=st.sampled_from(["linear", "cosine", "constant"]),
    steps=st.integers(1, 60),
    warmup=st.integers(0, 120),
    decay_from=st.integers(0, 120),
    floor=st.floats(0, 1),
)
def test_no_schedule_divides_by_zero_or_begins_at_zero(
    shape: training.schedule.Shape, steps: int, warmup: int, decay_from: int, floor: float
) -> None:
    schedule = Schedule(shape=shape, steps=steps, warmup=warmup, decay_from=decay_from, floor=floor)
    shares = [schedule.at(step) for step in range(steps + 3)]
    assert all(0 < share <= 1 for share in shares[:steps])
    assert all(share == (1 if shape == "constant" else floor) for share in shares[steps:])
    if warmup < steps:
        assert shares[warmup] == 1


# --- one step ---------------------------------------------------------------------------------------------------------


def trained(spec: Spec, recipe: Recipe, micro_batch: int, steps: int = 3) -> dict[str, Tensor]:
    model = Transformer(spec, seed=3).double()
    optimizers = Optimizers(model, recipe.rates)
    for step in range(steps):
        x_BT, y_BT = batch(spec, n_rows=8, seed=step)
        optimizers.clear()
        loss = gradients(model, x_BT, y_BT, spec.vocab_size, micro_batch)
        check(loss, optimizers, recipe.clip)
        optimizers.set(1.0, step)
        optimizers.step()
    return {name: w.detach() for name, w in model.named_parameters()}


@pytest.mark.parametrize("optimizer", list(RECIPES))
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_l7_a_split_batch_is_the_whole_batch(spec: Spec, optimizer: str) -> None:
    whole = trained(spec, RECIPES[optimizer], 8)
    assert any(not torch.equal(w, whole[name]) for name, w in Transformer(spec, seed=3).double().named_parameters())
    for micro_batch in (1, 2, 3, 5):
        split = trained(spec, RECIPES[optimizer], micro_batch)
        for name, w in whole.items():
            torch.testing.assert_close(split[name], w, rtol=0, atol=1e-12)


@pytest.mark.parametrize("micro_batch", [1, 2])
def test_f23_the_loss_is_the_mean_of_targets_not_of_micro_batches(micro_batch: int) -> None:
    model = Transformer(LLAMA, seed=3).double()
    x_BT, y_BT = batch(LLAMA, n_rows=2)  # 2 real targets in one row, 4 in the other
    arrays = model.arrays()
    nats = []
    for x_T, y_T in zip(x_BT.numpy(), y_BT.numpy(), strict=True):
        nats += reference.cross_entropy(reference.logits(LLAMA, arrays, x_T), y_T)[y_T >= 0].tolist()
    assert len(nats) == 6
    assert gradients(model, x_BT, y_BT, LLAMA.vocab_size, micro_batch) == pytest.approx(np.mean(nats), abs=1e-12)


def test_rows_of_the_head_beyond_the_tokenizer_are_never_scored() -> None:
    model = Transformer(GPT2, seed=3).double()
    n_tokens = GPT2.vocab_size - 4
    x_BT, y_BT = (block % n_tokens for block in batch(GPT2, n_rows=2))
    loss = gradients(model, x_BT, y_BT, n_tokens, 2)
    nats = []
    for x_T, y_T in zip(x_BT.numpy(), y_BT.numpy(), strict=True):
        nats += reference.cross_entropy(reference.logits(GPT2, model.arrays(), x_T)[:, :n_tokens], y_T).tolist()
    assert loss == pytest.approx(np.mean(nats), abs=1e-12)
    assert model.embedding.weight.grad is not None
    assert not model.embedding.weight.grad[n_tokens:].any()


def test_products_in_bfloat16_leave_the_weights_and_gradients_in_float32() -> None:
    model = Transformer(LLAMA, seed=3)
    x_BT, y_BT = batch(LLAMA, n_rows=4)
    exact = gradients(model, x_BT, y_BT, LLAMA.vocab_size, 4)
    for weight in model.parameters():
        weight.grad = None
    near = gradients(model, x_BT, y_BT, LLAMA.vocab_size, 4, "bfloat16")
    assert near != exact
    assert near == pytest.approx(exact, rel=1e-2)
    assert {w.grad.dtype for w in model.parameters() if w.grad is not None} == {torch.float32}
    with products_in("bfloat16", 7):
        assert torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    assert not torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    assert not torch.is_autocast_enabled("cpu")


def test_a_loss_or_a_gradient_that_is_no_number_is_told_by_name() -> None:
    model = Transformer(LLAMA, seed=3)
    optimizers = Optimizers(model, RECIPES["adamw"].rates)
    gradients(model, *batch(LLAMA, n_rows=2), LLAMA.vocab_size, 2)
    assert check(1.0, optimizers, None) > 0
    with pytest.raises(BadStep, match="the loss is nan"):
        check(math.nan, optimizers, None)
    name = "decoder.layers.1.attention.q.weight"
    grad = dict(model.named_parameters())[name].grad
    assert grad is not None
    grad[0, 0] = math.inf
    with pytest.raises(BadStep, match=f"gradient of {name}"):
        check(1.0, optimizers, None)


def test_a_gradient_is_cut_to_the_length_asked_for() -> None:
    model = Transformer(LLAMA, seed=3)
    optimizers = Optimizers(model, RECIPES["adamw"].rates)
    gradients(model, *batch(LLAMA, n_rows=2), LLAMA.vocab_size, 2)
    length = check(1.0, optimizers, None)
    assert check(1.0, optimizers, length / 2) == pytest.approx(length)
    assert check(1.0, optimizers, None) == pytest.approx(length / 2, rel=1e-4)


# --- optimisers -------------------------------------------------------------------------------------------------------


def plain_muon(weight: np.ndarray, grads: list[np.ndarray], lr: float, momentum: float, decay: float) -> np.ndarray:
    """Jordan et al. 2024, one matrix, NumPy."""
    kept = np.zeros_like(weight)
    for grad in grads:
        kept = momentum * kept + (1 - momentum) * grad
        x = (1 - momentum) * grad + momentum * kept
        turned = x.shape[0] > x.shape[1]
        x = x.T if turned else x
        x = x / (np.linalg.norm(x) * 1.02 + 1e-7)
        for _ in range(5):
            xx = x @ x.T
            x = 3.4445 * x + (-4.7750 * xx + 2.0315 * xx @ xx) @ x
        x = x.T if turned else x
        weight = (1 - lr * decay) * weight - lr * math.sqrt(max(1, x.shape[0] / x.shape[1])) * x
    return weight


def test_muon_is_its_formula_for_every_matrix_whatever_lies_beside_it() -> None:
    rng = np.random.default_rng(0)
    shapes = [(4, 6), (6, 4), (6, 4), (5, 5), (3, 4, 6), (2, 6, 4)]
    weights, grads = ([rng.normal(size=(n, *shape)) for shape in shapes] for n in (1, 3))
    tensors = [torch.from_numpy(weight[0].copy()).requires_grad_() for weight in weights]
    muon = Muon(tensors, lr=0.1, momentum=0.9, weight_decay=0.2)
    for i in range(3):
        for tensor, grad in zip(tensors, grads, strict=True):
            tensor.grad = torch.from_numpy(grad[i].copy())
        muon.step()
    for tensor, weight, grad in zip(tensors, weights, grads, strict=True):
        pairs = [(weight[0], list(grad))]
        if weight.ndim == 4:  # a stack of matrices: each by itself
            pairs = [(weight[0][e], list(grad[:, e])) for e in range(weight.shape[1])]
        expected = np.stack([plain_muon(w, g, 0.1, 0.9, 0.2) for w, g in pairs])
        np.testing.assert_allclose(tensor.detach().numpy(), expected.reshape(tensor.shape), rtol=0, atol=1e-12)


def test_orthogonal_matrices_have_singular_values_near_1() -> None:
    rng = np.random.default_rng(0)
    for dtype in (torch.float64, torch.bfloat16):
        made_NRC = orthogonal(torch.from_numpy(rng.normal(size=(3, 8, 16))).to(dtype))
        values = torch.linalg.svdvals(made_NRC.double())
        assert values.min() > 0.6
        assert values.max() < 1.3
    assert not orthogonal(torch.zeros(1, 3, 4)).any()


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_each_weight_is_moved_by_one_optimiser_by_its_kind(spec: Spec) -> None:
    optimizers = Optimizers(Transformer(spec), RECIPES["muon"].rates)
    names = {w: name for name, w in optimizers.named.items()}
    muon, adamw = ([names[w] for group in inner.param_groups for w in group["params"]] for inner in optimizers.inner)
    assert sorted(muon + adamw) == sorted(w.name for w in Ledger.of(spec).weights)
    kinds = {w.name: (w.kind, len(w.shape)) for w in Ledger.of(spec).weights}
    assert {kinds[name][0] for name in muon} <= {"attention", "feed_forward", "expert"}
    assert all(kinds[name][1] >= 2 for name in muon)
    assert not any(kinds[name] in (("attention", 2), ("expert", 3)) for name in adamw)


def test_what_optimisers_remember_goes_out_and_back() -> None:
    model, twin = Transformer(LLAMA, seed=3), Transformer(LLAMA, seed=3)
    first, second = (Optimizers(each, RECIPES["muon"].rates) for each in (model, twin))
    x_BT, y_BT = batch(LLAMA, n_rows=2)
    for optimizers, each in ((first, model), (second, twin)):
        gradients(each, x_BT, y_BT, LLAMA.vocab_size, 2)
        optimizers.step()
    fresh = Optimizers(twin, RECIPES["muon"].rates)
    fresh.restore(first.tensors().items(), "here")
    for optimizers in (first, fresh):
        optimizers.step()
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(PlainformerError, match=r"here: momentum\.nobody"):
        fresh.restore([("momentum.nobody.weight", torch.zeros(1))], "here")


def test_what_optimisers_remember_goes_back_to_where_the_weights_are() -> None:
    model = Transformer(LLAMA, seed=3)
    first = Optimizers(model, RECIPES["muon"].rates)
    gradients(model, *batch(LLAMA, n_rows=2), LLAMA.vocab_size, 2)
    first.step()
    elsewhere = Optimizers(Transformer(LLAMA, initial=None).to("meta"), RECIPES["muon"].rates)
    elsewhere.restore(first.tensors().items(), "here")
    assert {tensor.device.type for tensor in elsewhere.tensors().values()} == {"meta"}


def test_muon_s_momentum_rises_to_its_last_value() -> None:
    rates = replace(RECIPES["muon"].rates, momentum=0.95, momentum_steps=100)
    assert [rates.momentum_at(step) for step in (0, 50, 100, 900)] == pytest.approx([0.85, 0.9, 0.95, 0.95])
    rates = Rates(optimizer="muon", matrices=1, embedding=1, head=1, rest=1, momentum=0.5, momentum_steps=0)
    assert rates.momentum_at(0) == 0.5


# --- evaluation -------------------------------------------------------------------------------------------------------


def by_hand(spec: Spec, model: Transformer, tokens_N: np.ndarray, context: int, stride: int, n_tokens: int) -> float:
    """Nats of each target once, by the reference, a block at a time."""
    nats, scored = 0.0, 0
    arrays = model.arrays()
    for start in range(0, len(tokens_N) - 1, stride):
        window = tokens_N[start : start + context + 1]
        logits = reference.logits(spec, arrays, window[:-1])[:, :n_tokens]
        each = reference.cross_entropy(logits, window[1:])
        new = start + len(window) - 1 - scored
        if new > 0:
            nats += each[len(each) - new :].sum()
            scored += new
    assert scored == len(tokens_N) - 1
    return nats


@pytest.mark.parametrize("context, stride", [(8, None), (8, 3), (8, 1), (None, None)])
def test_an_evaluation_is_the_reference_s_each_target_once(context: int | None, stride: int | None) -> None:
    model, n_tokens = Transformer(LLAMA, seed=3).double(), LLAMA.vocab_size - 2
    tokens_N = np.random.default_rng(0).integers(n_tokens, size=59).astype(np.uint8)
    length_V = np.arange(1, n_tokens + 1)
    found = evaluate(model, tokens_N, length_V, context, stride)
    assert found is not None
    width = context or LLAMA.max_seq_len
    nats = by_hand(LLAMA, model, tokens_N, width, stride or width, n_tokens)
    assert found.nats == pytest.approx(nats, abs=1e-10)
    assert (found.targets, found.context, found.stride) == (58, width, stride or width)
    assert found.bytes == length_V[tokens_N[1:]].sum()
    assert found.loss == pytest.approx(nats / 58)
    assert found.perplexity == pytest.approx(math.exp(nats / 58))
    assert found.bits_per_token == pytest.approx(nats / 58 / math.log(2))
    assert found.bits_per_byte == pytest.approx(nats / math.log(2) / found.bytes)


def test_how_many_blocks_are_read_at_once_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(LLAMA, seed=3).double()
    tokens_N = np.random.default_rng(0).integers(LLAMA.vocab_size, size=200)
    found = []
    for at_once in (8192, 16, 1):
        monkeypatch.setattr(evaluation, "AT_ONCE", at_once)
        found.append(evaluate(model, tokens_N, np.ones(LLAMA.vocab_size, np.int64), context=8))
    assert found[0] is not None
    for other in found[1:]:
        assert other is not None
        assert other.nats == pytest.approx(found[0].nats, abs=1e-10)
        assert (other.targets, other.bytes) == (199, 199)
    assert found[0].nats == pytest.approx(by_hand(LLAMA, model, tokens_N, 8, 8, LLAMA.vocab_size), abs=1e-10)


def test_an_evaluation_can_be_given_up_and_needs_two_tokens() -> None:
    model, length_V = Transformer(LLAMA), np.ones(LLAMA.vocab_size, np.int64)
    assert evaluate(model, np.zeros(9, np.uint8), length_V, go_on=lambda: False) is None
    with pytest.raises(PlainformerError, match="at least 2 are needed"):
        evaluate(model, np.zeros(1, np.uint8), length_V)


# --- memory -----------------------------------------------------------------------------------------------------------

LLAMA_8B = {"base": "llama", "micro_batch": 1, "context": 512}
GB = 10**9


def needing(asked: dict[str, object], memory: int, processes: Processes = ALONE) -> str:
    """What is said against training Llama 3 8B in so many bytes, or ""."""
    spec = adapted(presets["llama-3-8b"], asked)
    settings = decisions.decide(asked, decisions.Text(9999, 9000, 999, spec.vocab_size), spec)
    try:
        decisions.check_memory(spec, settings, memory, processes)
    except PlainformerError as refused:
        return str(refused)
    return ""


def test_what_is_not_trained_needs_room_for_its_weights_alone() -> None:
    assert "at least 129 GB" in needing(LLAMA_8B, 100 * GB)
    assert "begin from a smaller one, or train adapters alone: --lora R" in needing(LLAMA_8B, 100 * GB)
    adapters = LLAMA_8B | {"lora": 8}
    assert needing(adapters, 100 * GB) == ""
    assert "at least 32.7 GB" in needing(adapters, 30 * GB)
    assert needing(adapters, 30 * GB).endswith("begin from a smaller one")
    assert needing(LLAMA_8B | {"optimizer": "muon"}, 100 * GB) == ""  # one average of each matrix


def test_what_processes_share_or_split_must_fit_into_each_of_them_alone() -> None:
    assert needing(LLAMA_8B, 20 * GB, Processes(world=8, shard=True)) == ""
    assert needing(LLAMA_8B, 20 * GB, Processes(world=8))
    rows = LLAMA_8B | {"lora": 8, "batch_size": 64, "micro_batch": 64}
    assert "--micro-batch = 64" in needing(rows | {"context": 8192}, 100 * GB)
    assert needing(rows | {"context": 8192}, 100 * GB, Processes(world=64)) == ""


def test_activations_are_made_again_where_a_process_s_own_part_lacks_room() -> None:
    settings = decisions.decide({"preset": "tiny"}, decisions.Text(9999, 9000, 999, 13), LLAMA)
    settings = replace(settings, context=16, lanes=1)
    alone = memory_of(LLAMA, settings)
    assert alone is not None
    shared = Processes(world=4, shard=True)
    assert fitted(LLAMA, settings, {}, alone - 1).recompute != "none"
    assert fitted(LLAMA, settings, {}, alone // 2, shared) == settings
    assert fitted(LLAMA, settings, {}, alone // 16, shared).recompute != "none"


def test_the_room_of_a_process_is_a_gpu_s_or_its_part_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "installed_memory", lambda: 64 * GB)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (decisions.room_there(), decisions.where_there()) == (64 * GB, "this machine")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert decisions.room_there() == 16 * GB
    assert decisions.where_there() == "each of 4 processes on this machine"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=80 * GB))
    assert decisions.room_there() == 80 * GB
    assert decisions.where_there() == "this GPU"
    monkeypatch.setattr(decisions, "fastest_dtype", lambda: "bfloat16")
    assert "at least 96.4 GB are needed beside the GPU" in needing(LLAMA_8B, 200 * GB)
    assert needing(LLAMA_8B, 200 * GB, Processes(world=8, shard=True)) == ""


# --- progress ---------------------------------------------------------------------------------------------------------


def test_f37_time_left_counts_the_steps_of_this_process_alone() -> None:
    times = iter([1000.0, 1040.0])
    speed = Speed(400, 500, now=lambda: next(times))
    assert speed.left(400) is None
    assert speed.left(420) == 160.0


def test_a_clock_is_read_at_a_glance() -> None:
    assert [clock(seconds) for seconds in (0, 75, 4000)] == ["0:00", "1:15", "1:06:40"]

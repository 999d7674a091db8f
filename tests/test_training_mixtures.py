"""Mixtures in training: the balance loss is the formula's, over the whole batch however it is cut; loads are kept.

B batch, M rows at once, T positions, E experts, N tokens of all rows.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from plainformer import formulas, reference
from plainformer import spec as s
from plainformer.checkpoint import load
from plainformer.cli import main
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.presets import presets
from plainformer.training import balance, gradients, step
from runs import SHORT, metrics, write_text
from specs import MIXTRAL, TINY, arrays_of, change, shared

WEIGHT = 0.3
BALANCED = change(MIXTRAL, s.Experts, balance=WEIGHT)
SPECS = {
    "mixtral": BALANCED,
    "after the softmax": change(TINY["qwen2-moe"], s.Experts, balance=WEIGHT),
    "dense first": change(TINY["deepseek-v2"], s.Experts, balance=WEIGHT),
    "sigmoid": change(TINY["deepseek-v3"], s.Experts, balance=WEIGHT),
    "layers shared": shared(BALANCED, 0, 1, 1),
}
each_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def batch(spec: s.Spec, n_rows: int = 5) -> tuple[Tensor, Tensor]:
    """Rows with padding at their ends, one of padding alone."""
    rng = np.random.default_rng(0)
    x_BT, y_BT = rng.integers(spec.vocab_size, size=(2, n_rows, 7))
    y_BT[0, 2:], y_BT[3] = -1, -1
    return torch.from_numpy(x_BT), torch.from_numpy(y_BT)


def double(spec: s.Spec) -> Transformer:
    model = Transformer(spec, initial=None).double()
    model.take(arrays_of(spec).items())
    return model


def stepped(spec: s.Spec, micro_batch: int) -> tuple[float, dict[str, Tensor], balance.Traffic]:
    """(loss, gradients, tokens by expert) of one batch."""
    model, traffic = double(spec), balance.Traffic()
    loss = gradients(model, *batch(spec), spec.vocab_size, micro_batch, traffic=traffic)
    return loss, {name: w.grad for name, w in model.named_parameters() if w.grad is not None}, traffic


def by_the_formulas(spec: s.Spec, arrays: dict[str, np.ndarray]) -> tuple[float, float, dict[str, list[int]]]:
    """The reference's (loss, balance losses weighed and summed, tokens by expert), the batch at once."""
    x_BT, y_BT = (block.numpy() for block in batch(spec))
    nats, kept = 0.0, [{} for _ in x_BT]
    for x_T, y_T, trace in zip(x_BT, y_BT, kept, strict=True):
        logits = reference.logits(spec, arrays, x_T, trace=trace)
        nats += reference.cross_entropy(logits[y_T >= 0], y_T[y_T >= 0]).sum()
    real_N, total, loads = y_BT.flatten() >= 0, 0.0, {}
    for place in (place for place in kept[0] if ".router." in place and place.endswith("scores")):
        scores_NE = np.concatenate([trace[place] for trace in kept])[real_N]
        chosen_NE = np.concatenate([trace[place.removesuffix("scores") + "chosen"] for trace in kept])[real_N]
        share_E = chosen_NE.sum(0) / chosen_NE.sum()
        total += WEIGHT * len(share_E) * float(share_E @ formulas.softmax(scores_NE).mean(0))
        loads[place.removesuffix(".scores").replace(".router", "")] = chosen_NE.sum(0).tolist()
        if "group" not in str(spec):
            n_chosen = int(chosen_NE[0].sum())
            plain = formulas.balance_loss(scores_NE, n_chosen)
            assert WEIGHT * plain == pytest.approx(
                WEIGHT * len(share_E) * share_E @ formulas.softmax(scores_NE).mean(0)
            )
    return nats / real_N.sum(), total, loads


@each_spec
def test_the_gradient_is_that_of_the_loss_and_the_balance_together(spec: s.Spec) -> None:
    """Against finite differences of the reference: weights of every kind, a router's above all."""
    loss, grads, _ = stepped(spec, 2)
    arrays = arrays_of(spec)
    assert loss == pytest.approx(by_the_formulas(spec, arrays)[0], abs=1e-12)  # the balance is not in what is told
    rng = np.random.default_rng(1)
    names = [name for name in grads if ".router." in name or name.endswith(("attention.q.weight", "embedding.weight"))]
    assert any(".router." in name for name in names)
    for name in names:
        at = tuple(int(rng.integers(n)) for n in arrays[name].shape)
        slope = []
        for by in (1e-6, -1e-6):
            moved = arrays | {name: arrays[name].copy()}
            moved[name][at] += by
            nats, uneven, _ = by_the_formulas(spec, moved)
            slope.append(nats + uneven)
        assert grads[name][at].item() == pytest.approx((slope[0] - slope[1]) / 2e-6, rel=1e-5, abs=1e-8), name


@each_spec
def test_l7_a_split_batch_is_the_whole_batch_with_balance_too(spec: s.Spec) -> None:
    loss, whole, traffic = stepped(spec, 5)
    for micro_batch in (1, 2, 3, 4):
        cut_loss, cut, cut_traffic = stepped(spec, micro_batch)
        assert cut_loss == pytest.approx(loss, abs=1e-12)
        for name, grad in whole.items():
            torch.testing.assert_close(cut[name], grad, rtol=0, atol=1e-12)
        assert {place: n.tolist() for place, n in cut_traffic.items()} == {p: n.tolist() for p, n in traffic.items()}


def test_balance_counted_in_each_part_of_a_batch_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, whole, _ = stepped(BALANCED, 5)
    monkeypatch.setattr(step, "counted", lambda *_: None)  # each part then takes its own counts
    _, cut, _ = stepped(BALANCED, 1)
    gap = max((cut[name] - grad).abs().max().item() for name, grad in whole.items())
    assert gap > 1e-6


@each_spec
def test_loads_are_the_choices_of_real_tokens_by_the_mixture_s_place(spec: s.Spec) -> None:
    _, _, traffic = stepped(spec, 2)
    assert {place: n.tolist() for place, n in traffic.items()} == by_the_formulas(spec, arrays_of(spec))[2]
    n_real = int((batch(spec)[1] >= 0).sum())
    experts = [part for _, part in balance.mixtures(spec)]
    assert [int(n.sum()) for n in traffic.values()] == [n_real * part.router.n_chosen for part in experts]


def test_padding_moves_no_balance() -> None:
    model, grads = double(BALANCED), []
    x_BT, y_BT = batch(BALANCED)
    other_BT = x_BT.clone()
    other_BT[0, 3:], other_BT[3] = (
        (other_BT[0, 3:] + 1) % 13,
        (other_BT[3] + 5) % 13,
    )  # what is read there counts nowhere
    for rows_BT in (x_BT, other_BT):
        for w in model.parameters():
            w.grad = None
        gradients(model, rows_BT, y_BT, 13, 5)
        grads.append({name: w.grad.clone() for name, w in model.named_parameters() if w.grad is not None})
    for name, grad in grads[0].items():
        torch.testing.assert_close(grads[1][name], grad, rtol=0, atol=1e-12)


def test_a_batch_of_padding_alone_has_no_gradient_and_no_fault() -> None:
    model = double(BALANCED)
    x_BT, y_BT = batch(BALANCED)
    assert gradients(model, x_BT, torch.full_like(y_BT, -1), 13, 2) == 0
    assert not any(w.grad.any() for w in model.parameters() if w.grad is not None)


def test_without_a_coefficient_nothing_is_added() -> None:
    _, plain, _ = stepped(MIXTRAL, 5)
    _, none, _ = stepped(change(BALANCED, s.Experts, balance=0.0), 2)
    _, some, _ = stepped(BALANCED, 5)
    router = "decoder.layers.0.feed_forward.router.scores.weight"
    torch.testing.assert_close(none[router], plain[router], rtol=0, atol=1e-12)
    assert (some[router] - plain[router]).abs().max() > 1e-4


def test_products_in_bfloat16_balance_too() -> None:
    grads = []
    for dtype in ("float32", "bfloat16"):
        model = double(BALANCED).float()
        gradients(model, *batch(BALANCED), 13, 2, dtype)
        grads.append(model.get_parameter("decoder.layers.1.feed_forward.router.scores.weight").grad)
    assert grads[1].dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(*(grad.flatten() for grad in grads), dim=0) > 0.9


# --- a run ------------------------------------------------------------------------------------------------------------


def test_a_mixture_is_trained_by_its_preset_and_its_loads_are_kept(tmp_path: Path) -> None:
    text, run = write_text(tmp_path), tmp_path / "run"
    flags = (*SHORT, "--preset", "small-moe", "--n-layers", "2")
    assert main(["train", str(text), "--out", str(run), *flags]) == 0
    rows = metrics(run)
    places = [f"decoder.layers.{i}.feed_forward" for i in range(2)]
    for row in rows:
        assert list(row["tokens_per_expert"]) == places
        assert all(len(load) == 8 and sum(load) == 4 * 16 * 2 for load in row["tokens_per_expert"].values())
    assert rows[-1]["loss"] < rows[0]["loss"]
    experts = {part for _, part in balance.mixtures(load(run).spec)}
    assert {(part.n_experts, part.router.n_chosen, part.balance) for part in experts} == {(8, 2, 0.01)}


def test_l6_a_mixture_s_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    """Killed after 8 of 12 steps, in micro-batches: the weights of the run that was left alone."""
    text = str(write_text(tmp_path))
    flags = ("--preset", "small-moe", "--micro-batch", "3", "--save-every", "4")
    for name in ("whole", "killed"):
        assert main(["train", text, "--out", str(tmp_path / name), *SHORT, *flags]) == 0
    shutil.rmtree(tmp_path / "killed" / "checkpoints" / "step-12")
    assert main(["train", "--out", str(tmp_path / "killed"), "--resume", "--quiet"]) == 0
    assert [row["step"] for row in metrics(tmp_path / "killed")] == list(range(1, 13))
    whole, killed = (load(tmp_path / name) for name in ("whole", "killed"))
    assert all(torch.equal(w, killed.get_parameter(name)) for name, w in whole.named_parameters())


def test_the_preset_is_as_much_work_a_token_as_the_dense_one() -> None:
    mixed, dense = (Ledger.of(presets[name]) for name in ("small-moe", "small"))
    assert mixed.active == dense.total + len(presets["small"].main.layers) * 8 * presets["small"].d_model  # the routers
    assert mixed.total > 2.5 * dense.total

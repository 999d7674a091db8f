"""What the lessons have measured can be measured again; the measures themselves measure what they say."""

from __future__ import annotations

from math import log
from typing import Any

import pytest
import torch

from plainformer.lessons.telling import measured
from plainformer.measuring import MEASUREMENTS, families, jobs, measure, norms, residuals, scores, spread, stacks


def test_bytes_kept_are_those_of_the_storages_each_once() -> None:
    x = torch.randn(100, requires_grad=True)
    assert scores.kept_bytes(lambda: x * x) == 400
    assert scores.kept_bytes(lambda: x + x) == 0
    assert scores.kept_bytes(lambda: x.exp() * 2) == 400


def test_scores_written_out_grow_with_the_square_and_fused_with_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "LENGTHS", (64, 128))
    rows = measure("scores")["rows"]
    (plain, fused), (plain_twice, fused_twice) = (
        [int(row[name].split()[0].replace(",", "")) for name in ("written out", "fused")] for row in rows
    )
    assert fused_twice == 2 * fused
    assert 2 * plain < plain_twice < 4 * plain


def test_a_row_says_its_first_half_again_and_is_asked_for_the_second_alone() -> None:
    tokens_BT, targets_BT = stacks.rows(torch.Generator().manual_seed(0))
    half = stacks.HALF
    assert torch.equal(tokens_BT[:, :half], tokens_BT[:, half:])
    asked = targets_BT >= 0
    assert asked.sum(1).unique().tolist() == [half]
    assert torch.equal(tokens_BT[:, 1:][asked[:, :-1]], targets_BT[asked])


def test_a_layout_is_what_its_name_says() -> None:
    for name, change in stacks.LAYOUTS.items():
        (attention, feed_forward), *_ = change(stacks.stack(2)).decoder.layers
        for residual in (attention, feed_forward):
            assert residual.add == name.startswith("added")
            assert (residual.branches[0].norm_in is not None) == name.endswith("norm before")
            assert (residual.norm_sum is not None) == name.endswith("norm after")


def test_the_bare_stack_loses_its_gradient_and_the_whole_one_learns() -> None:
    assert stacks.first_over_last(stacks.bare(stacks.stack(12)), seed=0) < 1e-10
    assert stacks.first_over_last(stacks.stack(12), seed=0) > 0.1
    assert stacks.trained(stacks.stack(1), seed=0, n_steps=60, lr=1e-2) < 3.5


def test_the_three_tasks_ask_for_what_they_say() -> None:
    generator = torch.Generator().manual_seed(0)
    gap = families.gap(generator)
    left, hidden, right = gap.tokens_BT.unbind(1)
    assert hidden.eq(families.GAP).all()
    assert torch.equal(gap.targets_BT[:, 1], (left + right) % families.SYMBOLS)
    assert gap.targets_BT[:, [0, 2]].eq(-1).all()
    sums = families.sums(generator)
    x_BT = sums.tokens_BT
    assert torch.equal(x_BT[:, 2:], (x_BT[:, :-2] + x_BT[:, 1:-1]) % families.SYMBOLS)
    assert torch.equal(sums.targets_BT[:, 1:-1], x_BT[:, 2:])
    turned, blind = families.turned(generator), families.hidden(generator)
    assert torch.equal(turned.targets_BT, turned.source_BS.flip(1))
    assert not torch.equal(blind.targets_BT, blind.source_BS.flip(1))
    assert torch.equal(turned.tokens_BT[:, 1:], turned.targets_BT[:, :-1])


def test_who_sees_the_answer_does_not_learn_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "STEPS", 160)
    monkeypatch.setattr(families, "BATCH", 32)
    model, loss = families.trained(families.all_seen(), families.sums, seed=0)
    assert loss < 0.5
    assert families.writing(model, seed=0) > 2


def test_a_measurement_says_how_it_was_made_and_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scores, "LENGTHS", (16, 32))
    data: dict[str, Any] = measure("scores")
    assert all(data[key] for key in ("command", "machine", "date", "seeds", "note", "columns", "rows"))
    assert "torch" in data["machine"]
    said = capsys.readouterr().err
    assert "0 of 2 done" in said
    assert "left" in said
    assert list(jobs([])) == []


def test_a_spread_is_the_median_the_least_and_the_most() -> None:
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00 to 3.00)"
    assert spread([1.0]) == "1.00"


@pytest.mark.proof
def test_what_is_stored_comes_out_again() -> None:
    """Bytes are the same on every machine; losses are not, but what the lesson says of them must hold."""
    assert measure("scores")["rows"] == measured("scores")["rows"]
    assert measure("untrained")["rows"] == measured("untrained")["rows"]
    assert set(MEASUREMENTS) >= {"residuals", "norms", "scores"}
    again = {(row["layers"], row["layout"]): float(row["loss in nats"].split()[0]) for row in residuals.measure().rows}
    learned = {name for (n_layers, name), loss in again.items() if n_layers == 12 and loss < 4}
    assert learned == {"added, norm before", "added, norm after"}
    last = {row["warm-up"]: row for row in norms.measure().rows if row["rate"] == "0.03"}
    assert float(last["none"]["norm after"].split()[0]) > 4 > float(last["100 steps"]["norm after"].split()[0])
    assert float(last["none"]["norm before"].split()[0]) < 0.5
    seen = {(row["task"], row["a token sees"]): row for row in families.measure().rows}
    assert float(seen["fill a gap", "all of the row"]["loss in training"].split()[0]) < 1
    assert float(seen["fill a gap", "what came before"]["loss in training"].split()[0]) > 2
    both = ("all of the row", "what came before")
    trained, written = (
        [float(seen["go on", sees][column].split()[0]) for sees in both]
        for column in ("loss in training", "loss when writing")
    )
    assert written[0] - trained[0] > 1
    assert abs(written[1] - trained[1]) < 0.3
    assert written[1] < log(families.SYMBOLS) < written[0]  # what says nothing has the logarithm

"""The measurements that train on a text: what they count is what a plain count gives, and what they train learns.

N characters, V letters.
"""

from __future__ import annotations

from collections import Counter
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch

from plainformer.faults import PlainformerError
from plainformer.lessons.ngrams import surprisal_by_counts, windows
from plainformer.lessons.telling import measured
from plainformer.measuring import (
    MEASUREMENTS,
    OF_TEXT,
    balances,
    caches,
    checkpoints,
    curves,
    depths,
    measure,
    ngrams,
    optimisers,
    precisions,
    shapes,
    temperatures,
    texts,
    training,
    tying,
)
from plainformer.measuring.scores import kept_bytes

WORDS = "the cat sat on the mat; the dog sat on the log. " * 60
VALID = "the dog sat on the mat. the cat sat on the log; "


@pytest.fixture
def text(tmp_path: Path) -> texts.Text:
    path = tmp_path / "words.txt"
    path.write_text(WORDS)
    return texts.text_of(path)


def by_hand(train: str, before: str, target: str, V: int) -> float:
    """Witten and Bell's method C, one probability at a time."""
    if not before:
        return (train.count(target) + 1) / (len(train) + V) if len(target) == 1 else 0.0
    follow = Counter(train[i + len(before)] for i in range(len(train) - len(before)) if train[i:].startswith(before))
    shorter = by_hand(train, before[1:], target, V)
    n, u = follow.total(), len(follow)
    return (follow[target] + u * shorter) / (n + u) if n else shorter


def test_counting_is_what_a_plain_count_gives() -> None:
    letters = sorted(set(WORDS))
    train_N, valid_N = (np.array([letters.index(one) for one in some]) for some in (WORDS[:400], VALID))
    found = surprisal_by_counts(train_N, valid_N, len(letters), 3)
    for length, nats_N in enumerate(found):
        want = [
            -log(by_hand(WORDS[:400], VALID[max(0, i - length) : i], VALID[i], len(letters)))
            for i in range(1, len(VALID))
        ]
        np.testing.assert_allclose(nats_N, want, rtol=1e-12)


def test_what_counting_says_adds_up_to_one() -> None:
    """Whatever came before, seen or not."""
    train_N = np.array([0, 1, 2, 0, 1, 1, 2, 0])
    for before in ([0, 1], [2, 2], [3, 3]):
        each = [surprisal_by_counts(train_N, np.array([*before, w]), 4, 2) for w in range(4)]
        for length in range(3):
            assert sum(np.exp(-one[length][-1]) for one in each) == pytest.approx(1, abs=1e-12)


def test_runs_that_do_not_fit_in_a_number_are_refused() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        windows(np.zeros(20, np.int64), 11, 65)


def test_a_text_is_split_and_named(text: texts.Text) -> None:
    both = np.concatenate((text.train_N, text.valid_N))
    assert "".join(text.letters[i] for i in both) == WORDS
    assert len(text.valid_N) == len(WORDS) // 10
    assert text.name.startswith(f"words.txt, {len(WORDS):,} bytes, sha256 ")
    assert "Python" in texts.text_of(None).name


def test_what_is_trained_learns_and_its_twin_without_attention_does_not_see(text: texts.Text) -> None:
    from plainformer.families import decoders

    spec = decoders.gpt2(vocab_size=len(text.letters), max_seq_len=16, d_model=16, n_layers=1, n_heads=2)
    first = next(texts.steps_of(spec, text, 0, 25))
    assert first[1] == pytest.approx(log(len(text.letters)), abs=0.2)
    model = texts.trained(spec, text, 0, 25)
    assert texts.nats(model, text, None) < 0.8 * first[1]
    blind = texts.trained(ngrams.without_attention(spec), text, 0, 2).eval()
    tokens_BT = torch.arange(8)[None] % len(text.letters)
    changed_BT = tokens_BT.clone()
    changed_BT[0, 2] = (changed_BT[0, 2] + 1) % len(text.letters)
    moved = (blind(tokens_BT) - blind(changed_BT)).abs().amax(-1)[0] > 0
    assert moved.nonzero().flatten().tolist() == [2]
    assert (model(tokens_BT) - model(changed_BT)).abs().amax(-1)[0][3:].min() > 0


def test_what_is_held_anyway_is_not_counted() -> None:
    w, x = torch.randn(100, requires_grad=True), torch.randn(100)
    assert kept_bytes(lambda: w * x) == 400  # the slope of w is x; x has none
    assert kept_bytes(lambda: (w * w).sum()) == 400
    assert kept_bytes(lambda: (w * w).sum(), [w]) == 0


SMALL: dict[str, list[tuple[object, str, object]]] = {
    "depths": [(depths, "DEPTHS", (1,)), (depths, "RATES", (1e-2,)), (depths, "STEPS", 10), (depths, "SEEDS", (0,))],
    "caches": [(caches, "CASES", ((1, 8), (3, 6))), (caches, "SEEDS", (0, 1))],
    "checkpoints": [(checkpoints, "LAYERS", (2,)), (checkpoints, "SEEDS", (0,)), (checkpoints, "LENGTH", 16)],
    "training": [(training, "ASKED", {"steps": 2, "n_layers": 1, "d_model": 16, "n_heads": 2, "context": 8})],
    "curves": [(curves, "STEPS", 4), (curves, "MARKS", (1, 4)), (curves, "SEEDS", (0,))],
    "ngrams": [(ngrams, "STEPS", 2), (ngrams, "LONGEST", 2), (ngrams, "SEEDS", (0,))],
    "optimisers": [(optimisers, "STEPS", 2), (optimisers, "SEEDS", (0,))],
    "shapes": [(shapes, "STEPS", 2), (shapes, "SHAPES", ((1, 32), (2, 24))), (shapes, "SEEDS", (0,))],
    "tying": [(tying, "STEPS", 2), (tying, "SEEDS", (0,))],
    "precisions": [(precisions, "STEPS", 2), (precisions, "SEEDS", (0,))],
    "temperatures": [(temperatures, "STEPS", 2), (temperatures, "SEEDS", (0,)), (temperatures, "ROWS", 2)],
    "balances": [(balances, "STEPS", 2), (balances, "SEEDS", (0,))],
}


@pytest.mark.parametrize("name", SMALL)
def test_each_measures(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Small: every row has every column, and what is exact is as it must be."""
    for module, field, value in SMALL[name]:
        monkeypatch.setattr(module, field, value)
    monkeypatch.setattr(texts, "BATCH", 2)
    path = tmp_path / "words.txt"
    path.write_text(WORDS * 10)
    data = measure(name, path if name in OF_TEXT else None)
    assert all(set(row) == set(data["columns"]) for row in data["rows"])
    assert ("words.txt" in data["note"]) == (name in OF_TEXT)
    if name == "caches":
        assert [row["positions read, no cache"] for row in data["rows"]] == ["36", "33"]
        assert [row["with one"] for row in data["rows"]] == ["8", "8"]
        assert {row["same tokens"] for row in data["rows"]} == {"yes"}
    if name == "checkpoints":
        assert data["rows"][0]["largest change of a slope"] == "below 1e-12"
    if name == "temperatures":
        bits = [float(row["entropy, bits a draw"]) for row in data["rows"]]
        assert bits == sorted(bits)
    if name == "tying":
        tied, own = (int(row["weights"].replace(",", "")) for row in data["rows"])
        assert own - tied == 64 * len(set(WORDS))


def test_each_measurement_is_tried_here_or_beside() -> None:
    beside = {"residuals", "norms", "scores", "untrained", "families"}
    assert set(MEASUREMENTS) - beside == set(SMALL)


def test_a_text_that_is_not_there_is_refused() -> None:
    with pytest.raises(PlainformerError, match="no such file"):
        measure("tying", Path("no such file"))


def test_what_is_stored_of_counting_comes_out_again(cases: Path) -> None:
    """Of the same text, to the last digit that the lesson shows; the text is named there by its hash."""
    path = cases / "data" / "tinyshakespeare.txt"
    if not path.is_file():
        pytest.skip(f"shared cases absent: {path} is no file")
    text = texts.text_of(path)
    stored = [row["nats a character"] for row in measured("ngrams")["rows"] if row["what"] == "counts"]
    assert text.name in measured("ngrams")["note"]
    found = surprisal_by_counts(text.train_N, text.valid_N, len(text.letters), len(stored) - 1)
    assert [f"{nats_N.mean():.3f}" for nats_N in found] == stored


@pytest.mark.proof
def test_what_is_exact_of_the_stored_comes_out_again() -> None:
    """Positions, bytes and weights are the same on every machine; times and losses are not."""
    for name, columns in {
        "caches": ("positions read, no cache", "with one", "work", "same tokens"),
        "checkpoints": ("bytes kept", "layers made again", "saved", "largest change of a slope"),
    }.items():
        for stored, found in zip(measured(name)["rows"], measure(name)["rows"], strict=True):
            assert {column: found[column] for column in columns} == {column: stored[column] for column in columns}
    again = {(row["layers"], row["rate"]): row for row in depths.measure().rows}
    assert float(again["24", "0.01"]["norm after"].split()[0]) > 4.1, "it learns nothing"
    assert float(again["6", "0.01"]["norm after"].split()[0]) < 4.1, "it learns"

"""Each family learns something that its twin, of the same size and budget but for one part, cannot.

B rows, T positions, S positions of a source, N answers of a row, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from laws import arrays_of, close
from plainformer import kernels, reference
from plainformer import spec as s
from plainformer.families import encoder_decoders, encoders, mixtures
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.text import mask_tokens
from plainformer.training import balance, gradients
from specs import BERT, change

Rows = tuple[np.ndarray, list[int], np.ndarray]  # tokens, real tokens of each row, answers


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def learn(model: Transformer, loss_at: Callable[[int], Tensor], steps: int, lr: float = 3e-3) -> None:
    """Adam with a short warm-up; the loss of each step is the caller's."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1.0, (step + 1) / 20)
        optimizer.zero_grad()
        loss_at(step).backward()
        optimizer.step()


def nats(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """The mean over the marked positions."""
    return kernels.cross_entropy(logits_BTV, targets_BT).sum() / (targets_BT >= 0).sum()


def right(logits_BTV: Tensor, targets_BT: Tensor) -> float:
    """The share of the marked positions whose best token is the target."""
    marked_BT = targets_BT >= 0
    return (logits_BTV.argmax(-1) == targets_BT)[marked_BT].double().mean().item()


# --- masks ------------------------------------------------------------------------------------------------------------

PAD, MASK, FIRST, N_LETTERS = 0, 1, 2, 6
N_TOKENS = FIRST + N_LETTERS
WIDTH = 12


def periodic(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, list[int]]:
    """Four letters by chance, again and again, 8 to 12 in all, then filled up; and the rows' lengths. A letter of the
    first four can only be told from one that comes after it."""
    lengths = rng.integers(8, WIDTH + 1, n_rows).tolist()
    rows_BT = np.tile(rng.integers(FIRST, N_TOKENS, (n_rows, 4)), 3)
    rows_BT[np.arange(WIDTH) >= np.array(lengths)[:, None]] = PAD
    return rows_BT, lengths


def bert(causal: bool) -> s.Spec:
    spec = encoders.bert(vocab_size=N_TOKENS, max_seq_len=WIDTH, d_model=32, n_layers=2, n_heads=2, d_ff=64)
    return replace(spec, encoder=replace(spec.encoder, causal=causal))


def hidden_letters_told(causal: bool) -> float:
    """Masked-language modelling; then one of the first four letters of each new row is hidden: how many are told."""
    model = Transformer(bert(causal), seed=1)

    def loss_at(step: int) -> Tensor:
        rows_BT, lengths = periodic(np.random.default_rng([0, step]), 32)
        x_BT, y_BT = mask_tokens(rows_BT, MASK, N_TOKENS, seed=0, step=step, lengths=lengths)
        return nats(model(torch.from_numpy(x_BT), n_new=lengths), torch.from_numpy(y_BT))

    learn(model, loss_at, 300)
    rows_BT, lengths = periodic(np.random.default_rng(1), 256)
    x_BT, y_BT = rows_BT.copy(), np.full_like(rows_BT, -1)
    at_B = np.random.default_rng(2).integers(0, 4, len(rows_BT))
    each = np.arange(len(rows_BT))
    y_BT[each, at_B], x_BT[each, at_B] = rows_BT[each, at_B], MASK
    with torch.no_grad():
        return right(model(torch.from_numpy(x_BT), n_new=lengths), torch.from_numpy(y_BT))


def test_an_encoder_fills_masks_that_its_causal_twin_cannot() -> None:
    """Chance is 1 of 6; the twin's letters come before the one that would tell them."""
    both, before = hidden_letters_told(causal=False), hidden_letters_told(causal=True)
    assert Ledger.of(bert(True)).total == Ledger.of(bert(False)).total
    assert both > 0.9
    assert before < 0.35


# --- one answer a row, and one a token --------------------------------------------------------------------------------


def encoder_with(pool: str, n_answers: int, causal: bool = False) -> s.Spec:
    head = s.Head(linear=s.Linear(n_in=32, n_out=n_answers, bias=True), tied=False, pool=pool)
    return replace(bert(causal), head=head)


def taught(spec: s.Spec, rows: Callable[[np.random.Generator, int], Rows]) -> float:
    """Trained on rows with answers; the share of right answers on new rows."""
    model = Transformer(spec, seed=1)

    def loss_at(step: int) -> Tensor:
        x_BT, lengths, y_BN = rows(np.random.default_rng([0, step]), 32)
        return nats(model(torch.from_numpy(x_BT), n_new=lengths), torch.from_numpy(y_BN))

    learn(model, loss_at, 250)
    x_BT, lengths, y_BN = rows(np.random.default_rng(1), 256)
    with torch.no_grad():
        return right(model(torch.from_numpy(x_BT), n_new=lengths), torch.from_numpy(y_BN))


def majorities(rng: np.random.Generator, n_rows: int) -> Rows:
    """5, 7, 9 or 11 letters of two kinds after a token of its own, then padding of one of the kinds: which is more."""
    lengths = (2 * rng.integers(3, 7, n_rows)).tolist()
    x_BT = rng.integers(FIRST, FIRST + 2, (n_rows, WIDTH))
    real_BT = np.arange(WIDTH) < np.array(lengths)[:, None]
    x_BT[~real_BT], x_BT[:, 0] = FIRST, MASK
    more_B = (x_BT == FIRST + 1).sum(1) * 2 > np.array(lengths) - 1
    return x_BT, lengths, more_B[:, None].astype(np.int64)


@pytest.mark.parametrize("pool", ["first", "mean"])
def test_a_classifier_learns_which_letter_a_row_has_more_of(pool: str) -> None:
    """Chance is 1 of 2; who reads the padding counts its letters, too."""
    assert taught(encoder_with(pool, 2), majorities) > 0.93


def followers(rng: np.random.Generator, n_rows: int) -> Rows:
    """The tag of each letter is the letter after it; the last one and padding have none."""
    lengths = rng.integers(6, WIDTH + 1, n_rows).tolist()
    x_BT = rng.integers(FIRST, N_TOKENS, (n_rows, WIDTH))
    y_BT = np.roll(x_BT, -1, 1) - FIRST
    y_BT[np.arange(WIDTH) >= np.array(lengths)[:, None] - 1] = -1
    return x_BT, lengths, y_BT


def test_a_tagger_learns_tags_that_its_causal_twin_cannot() -> None:
    both, before = (taught(encoder_with("no", N_LETTERS, causal), followers) for causal in (False, True))
    assert both > 0.95
    assert before < 0.3


@pytest.mark.parametrize("pool", ["no", "first", "mean"])
def test_a_head_of_a_ragged_row_is_the_reference_s_of_the_row_alone(pool: str) -> None:
    spec = replace(BERT, head=replace(BERT.head, pool=pool))
    tagged = change(spec, s.Head, linear=s.Linear(n_in=12, n_out=4, bias=True), tied=False)
    for each in (spec, tagged):
        arrays, rows_BT, lengths = arrays_of(each), np.random.default_rng(0).integers(0, 13, (3, 9)), [9, 1, 4]
        model = Transformer(each, initial=None).double()
        model.take(arrays.items())
        with torch.no_grad():
            got = model(torch.from_numpy(rows_BT), n_new=lengths)
        for b, n in enumerate(lengths):
            want = reference.logits(each, arrays, rows_BT[b, :n])
            close(got[b, : len(want)], want, f"{pool}, row {b}")


# --- a source and a target --------------------------------------------------------------------------------------------

START, END = 0, 1
LONGEST = 6


def t5(cross: bool) -> s.Spec:
    """T5's layout in small; its twin's decoder never hears the encoder."""
    spec = encoder_decoders.t5(
        vocab_size=10,
        max_seq_len=8,
        d_model=32,
        n_encoder_layers=2,
        n_decoder_layers=2,
        n_heads=2,
        d_head=16,
        d_ff=64,
        n_buckets=8,
        max_distance=8,
        tied=False,
    )
    if cross:
        return spec
    heard = tuple(residual for residual in spec.decoder.layers[0] if residual.branches[0].name != "cross_attention")
    return replace(spec, decoder=replace(spec.decoder, layers=(heard,) * 2))


def reversals(rng: np.random.Generator, n_rows: int) -> tuple[Tensor, list[int], Tensor, Tensor]:
    """Sources of 3 to 6 different letters and END; what the decoder reads; and its targets: the source from its end."""
    lengths = rng.integers(3, LONGEST + 1, n_rows).tolist()
    source_BS = np.full((n_rows, LONGEST + 1), END)
    x_BT, y_BT = np.full((n_rows, LONGEST + 1), END), np.full((n_rows, LONGEST + 1), -1)
    for b, n in enumerate(lengths):
        letters = rng.permutation(np.arange(2, 10))[:n]
        source_BS[b, :n] = letters
        y_BT[b, : n + 1] = [*letters[::-1], END]
        x_BT[b, : n + 1] = [START, *letters[::-1]]
    return torch.from_numpy(source_BS), [n + 1 for n in lengths], torch.from_numpy(x_BT), torch.from_numpy(y_BT)


def reversed_right(cross: bool) -> tuple[float, float, float]:
    """(nats a letter, the share of letters told, of whole rows written), on new sources."""
    model = Transformer(t5(cross), seed=1)

    def loss_at(step: int) -> Tensor:
        source_BS, n_source, x_BT, y_BT = reversals(np.random.default_rng([0, step]), 32)
        return nats(model(x_BT, memory=model.encode(source_BS, n_source)), y_BT)

    learn(model, loss_at, 500)
    source_BS, n_source, x_BT, y_BT = reversals(np.random.default_rng(1), 256)
    with torch.no_grad():
        memory = model.encode(source_BS, n_source)
        said_BTV = model(x_BT, memory=memory)
        written_BT = x_BT[:, :1]
        for _ in range(LONGEST + 1):
            written_BT = torch.cat((written_BT, model(written_BT, memory=memory)[:, -1:].argmax(-1)), 1)
    whole_B = ((written_BT[:, 1:] == y_BT) | (y_BT < 0)).all(1)
    return nats(said_BTV, y_BT).item(), right(said_BTV, y_BT), whole_B.double().mean().item()


def test_an_encoder_decoder_turns_a_source_round_and_its_twin_without_cross_attention_cannot() -> None:
    loss, told, whole = reversed_right(cross=True)
    deaf_loss, deaf_told, deaf_whole = reversed_right(cross=False)
    assert told > 0.95
    assert whole > 0.85
    assert deaf_told < 0.5
    assert deaf_whole < 0.05
    assert deaf_loss - loss > 1.0  # nats a letter


# --- a mixture --------------------------------------------------------------------------------------------------------


def steps_by(rng: np.random.Generator, n_rows: int) -> tuple[Tensor, Tensor]:
    """Numbers that go on by a step of their row's own, modulo 11; the first two tell it."""
    first_B1, by_B1 = rng.integers(0, 11, (2, n_rows, 1))
    rows_BT = (first_B1 + by_B1 * np.arange(9)) % 11
    y_BT = rows_BT[:, 1:].copy()
    y_BT[:, 0] = -1
    return torch.from_numpy(rows_BT[:, :-1].copy()), torch.from_numpy(y_BT)


def mixture_learned(coefficient: float) -> tuple[float, float, float]:
    """(share told, balance, the busiest expert's load over an even one) on new rows, the worst of the layers.

    One expert a token, its gate as the softmax over all gave it (Fedus et al. 2021): there a load tips over soonest."""
    spec = mixtures.small_moe(
        vocab_size=11, max_seq_len=8, d_model=32, n_layers=2, n_heads=2, d_expert=32, balance=coefficient
    )
    spec = change(spec, s.SoftmaxRouter, n_chosen=1, normalised=False)
    model = Transformer(spec, "zero_out", seed=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(300):
        optimizer.zero_grad()
        gradients(model, *steps_by(np.random.default_rng([0, step]), 32), 11, 32)
        optimizer.step()
    x_BT, y_BT = steps_by(np.random.default_rng(1), 256)
    routed: balance.Routed = []
    with torch.no_grad():
        told = right(model.logits(model.hidden(x_BT, routed=routed)), y_BT)
    worst = max(kernels.balance_loss(scores, chosen).item() for scores, chosen in routed)
    busiest = max((chosen.sum(0).max() / chosen.sum() * chosen.shape[1]).item() for _, chosen in routed)
    return told, worst, busiest


def test_a_mixture_learns_and_its_balance_loss_evens_its_load() -> None:
    told, balanced, busiest = mixture_learned(0.05)
    told_without, uneven, busiest_without = mixture_learned(0.0)
    assert min(told, told_without) > 0.9
    assert balanced < 1.1
    assert uneven > 1.2
    assert busiest_without > 1.4 * busiest

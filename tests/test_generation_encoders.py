"""Encoders: masks filled and texts as vectors, as transformers has them, in any company (L3, L4).

N rows, T positions, D d_model.
"""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import numpy as np
import pytest
import torch

import plainformer as pf
from plainformer import PlainformerError
from plainformer.generation import fill, vectors
from plainformer.model import Transformer
from strangers import STRANGERS, VOCAB, float64, made

MASK = 4
ROWS = [[3, 7, MASK, 9, 2], [3, MASK, 2], [3, 12, MASK, 14, MASK, 15, 16, 2]]
MASKED, STREAMED = ("bert", "albert", "roberta", "distilbert"), ("bert base", "roberta base")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Transformer]]:
    found = {}
    for name in (*MASKED, *STREAMED):
        model = made(STRANGERS[name])
        folder = tmp_path_factory.mktemp(name.replace(" ", "-"))
        model.float().save_pretrained(folder)
        found[name] = model.double(), pf.load(folder).double()
    return found


def asked(model: Any, rows: list[list[int]]) -> tuple[Any, torch.Tensor]:
    """transformers' answer for rows filled up to one length, and the mask that says where."""
    width, pad = max(map(len, rows)), model.config.pad_token_id or 0
    tokens_NT = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
    real_NT = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows])
    with float64(), torch.no_grad():
        return model(input_ids=tokens_NT, attention_mask=real_NT), real_NT


def test_scores_that_are_no_numbers_fill_no_mask(both: Any) -> None:
    model = copy.deepcopy(both["bert"][1])
    with torch.no_grad():
        model.embedding.weight[7] = torch.nan
    with pytest.raises(PlainformerError, match="logits = nan"):
        fill(model, ROWS, MASK)


@pytest.mark.parametrize("name", MASKED)
def test_masks_are_filled_as_by_transformers(name: str, both: Any) -> None:
    model, mine = both[name]
    p_NTV = asked(model, ROWS)[0].logits.softmax(-1)
    for row, answers, p_TV in zip(ROWS, fill(mine, ROWS, MASK, n_best=6), p_NTV, strict=True):
        assert [one.place for one in answers] == [i for i, token in enumerate(row) if token == MASK]
        for one in answers:
            best = p_TV[one.place].topk(6)
            assert [token for token, _ in one.best] == best.indices.tolist()
            assert [p for _, p in one.best] == pytest.approx(best.values.tolist(), rel=1e-9)
    for row, answers in zip(ROWS, fill(mine, ROWS, MASK), strict=True):
        ((alone,),) = (fill(mine, [row], MASK),)
        for one, other in zip(answers, alone, strict=True):
            assert [token for token, _ in one.best] == [token for token, _ in other.best]
            assert [p for _, p in one.best] == pytest.approx([p for _, p in other.best], rel=1e-12)


def test_only_tokens_that_there_are_fill_a_mask(both: Any) -> None:
    (answers,) = fill(both["bert"][1], ROWS[:1], MASK, n_best=VOCAB, n_tokens=11)
    assert sorted(token for token, _ in answers[0].best) == list(range(11))
    assert sum(p for _, p in answers[0].best) == pytest.approx(1)


@pytest.mark.parametrize("name", STREAMED)
@pytest.mark.parametrize("normalized", [False, True])
def test_a_text_s_vector_is_the_mean_over_its_tokens(name: str, normalized: bool, both: Any) -> None:
    """sentence-transformers' mean pooling: states times the mask, summed, over how many are real."""
    model, mine = both[name]
    answer, real_NT = asked(model, ROWS)
    weights_NT1 = real_NT[..., None].double()
    want_ND = (answer.last_hidden_state * weights_NT1).sum(1) / weights_NT1.sum(1)
    want_ND = torch.nn.functional.normalize(want_ND, dim=1) if normalized else want_ND
    got_ND = vectors(mine, ROWS, normalized=normalized)
    np.testing.assert_allclose(got_ND, want_ND.numpy(), rtol=0, atol=1e-9)
    alone = [vectors(mine, [row], normalized=normalized)[0] for row in ROWS]
    np.testing.assert_allclose(got_ND, alone, rtol=0, atol=1e-12)


def test_the_first_and_the_last_token_are_each_row_s_own(both: Any) -> None:
    model, mine = both["bert base"]
    states_NTD = asked(model, ROWS)[0].last_hidden_state.numpy()
    np.testing.assert_allclose(vectors(mine, ROWS, "first"), states_NTD[:, 0], rtol=0, atol=1e-9)
    ends = [states_NTD[i, len(row) - 1] for i, row in enumerate(ROWS)]
    np.testing.assert_allclose(vectors(mine, ROWS, "last"), ends, rtol=0, atol=1e-9)


def test_more_rows_than_are_read_at_once_keep_their_order(both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = both["bert base"][1]
    want = vectors(mine, ROWS * 2)
    monkeypatch.setattr("plainformer.generation.encoders.ROWS_AT_ONCE", 4)
    np.testing.assert_allclose(vectors(mine, ROWS * 2), want, rtol=0, atol=1e-12)


def test_decoders_and_encoder_decoders_give_vectors_too(tmp_path: Path) -> None:
    for name in ("gpt2", "t5"):
        model = made(STRANGERS[name])
        model.float().save_pretrained(tmp_path / name)
        mine, model = pf.load(tmp_path / name).double(), model.double()
        inner = model.get_encoder() if name == "t5" else model.transformer
        want_ND = [asked(inner, [row])[0].last_hidden_state[0].mean(0).numpy() for row in ROWS]
        np.testing.assert_allclose(vectors(mine, ROWS), want_ND, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "ask, where",
    [
        (lambda model: fill(model, [[1, 2]], MASK), "tokens[0]"),
        (lambda model: fill(model, [[1, VOCAB]], MASK), "tokens[0]"),
        (lambda model: fill(model, ROWS, MASK, n_best=0), "n_best"),
        (lambda model: vectors(model, []), "tokens"),
        (lambda model: vectors(model, [[1], []]), "tokens[1]"),
        (lambda model: vectors(model, [[1] * 99]), "tokens[0]"),
        (lambda model: vectors(model, ROWS, "max"), "pool"),
    ],
)
def test_what_cannot_be_is_refused_by_name(ask: Any, where: str, both: Any) -> None:
    with pytest.raises(PlainformerError) as refused:
        ask(both["bert"][1])
    assert refused.value.faults[0].where == where


def test_a_model_without_a_head_fills_nothing(both: Any) -> None:
    with pytest.raises(PlainformerError, match="cannot fill masks"):
        fill(both["bert base"][1], ROWS, MASK)

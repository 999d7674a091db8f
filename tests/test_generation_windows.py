"""Windows that hold only the window: memory stays bounded, and no logit knows of it (L4)."""

from __future__ import annotations

import pytest
import torch

from plainformer import PlainformerError, cost
from plainformer.generation import Decoding, generate, reading
from plainformer.generation.decoding import in_float64
from plainformer.model import Transformer
from plainformer.states import State
from specs import TINY, arrays_of, spec_of, tokens_of

WINDOWED = [name for name, spec in TINY.items() if cost.Cost.of(spec).cache.windows]


def of_weight(name: str) -> Transformer:
    model = Transformer(spec_of(name), initial=None).double()
    model.take(arrays_of(model.spec).items())
    return model


@pytest.mark.parametrize("name", WINDOWED)
@torch.no_grad()
def test_every_length_around_the_window_is_read_as_without_a_cache(name: str) -> None:
    """A first piece of every length, a second of one, two or many, single tokens after; rows together and ragged."""
    model, n = of_weight(name), 12
    tokens_BT = torch.tensor(tokens_of(model.spec, 2, n))
    want_BTV = model(tokens_BT)
    for first in range(1, 9):
        for second in {1, max(1, n - first - 2)}:
            sizes = [first, min(second, n - first)]
            sizes += [1] * (n - sum(sizes))
            state = State(2, capacity=n)
            parts = [model(part, state) for part in tokens_BT.split([size for size in sizes if size], 1)]
            gap = (torch.cat(parts, 1) - want_BTV).abs().max()
            assert gap <= 1e-12 * max(1, want_BTV.abs().max()), f"pieces of {sizes}"
        state, lengths = State(2, capacity=n), [first, max(1, first - 3)]
        model(tokens_BT[:, :first], state, n_new=lengths)
        while min(state.lengths) < n - 3:
            more = [min(3, n - length) for length in state.lengths]  # rows that are full are given padding
            width = max(more)
            new_BT = torch.zeros(2, width, dtype=torch.long)
            for b, (at, k) in enumerate(zip(state.lengths, more, strict=True)):
                new_BT[b, :k] = tokens_BT[b, at : at + k]
            if max(state.lengths) + width > n:
                break
            before = list(state.lengths)
            got_BTV = model(new_BT, state, n_new=more)
            for b, (at, k) in enumerate(zip(before, more, strict=True)):
                gap = (got_BTV[b, :k] - want_BTV[b, at : at + k]).abs().max()
                assert gap <= 1e-12 * max(1, want_BTV.abs().max()), f"ragged from {lengths}, row {b} at {at}"


@pytest.mark.parametrize("name", WINDOWED)
def test_a_window_holds_the_bytes_that_the_cost_says_however_long_the_text(name: str) -> None:
    model = of_weight(name)
    for n_new in (1, 4, 9):
        run = Decoding(model, [[1, 2, 3], [4, 5, 6]], n_new)
        while run.step():
            pass
        assert run.state is not None
        said = cost.Cost.of(model.spec, batch_size=2, seq_len=3 + n_new, kv_dtype="float64")
        assert run.state.n_bytes == said.cache_bytes


@pytest.mark.parametrize("name", ["mistral", "gpt2-window-1"])
def test_text_beyond_the_window_is_the_same_in_any_company_and_any_chunks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, row = of_weight(name), tokens_of(spec_of(name), 1, 14)[0].tolist()
    prompts = [row[:2], row[:14], row[3:9], row[:2]]
    want = [generate(model, prompt, 10, seed=3, cached=False).new[0] for prompt in prompts[:3]]
    for chunk in (512, 5, 1):
        monkeypatch.setattr(reading, "CHUNK", chunk)
        assert generate(model, prompts, 10, seed=3).new[:3] == want


@torch.no_grad()
def test_what_a_full_window_has_forgotten_is_not_taken_back() -> None:
    model = of_weight("mistral")
    tokens_BT = torch.tensor(tokens_of(model.spec, 1, 12))
    for spare, back, can in ((0, 1, False), (3, 3, True), (3, 4, False), (12, 11, True)):
        state = State(1, 12, spare=spare)
        model(tokens_BT, state)
        if not can:
            with pytest.raises(PlainformerError, match="windows have forgotten"):
                state.truncate(12 - back)
            continue
        state.truncate(12 - back)
        other_BT = tokens_BT[:, :back].flip(1)
        want_BTV = model(torch.cat((tokens_BT[:, : 12 - back], other_BT), 1))[:, -back:]
        got = [model(other_BT[:, [i]], state) for i in range(back)]
        assert (torch.cat(got, 1) - want_BTV).abs().max() <= 1e-12 * max(1, want_BTV.abs().max())


def test_numbers_for_choosing_are_float64() -> None:
    assert in_float64(torch.ones(1, 2, dtype=torch.bfloat16)).dtype == "float64"

"""Tokens continued: with or without a cache, alone or in a batch, at once or in chunks, a row is the same row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from automata import chain, coin, tiny_spec
from plainformer import PlainformerError, cost
from plainformer.generation import Decoding, Generation, Rules, Sampling, decoding, generate, reading
from plainformer.generation.sampling import draw
from plainformer.model import Transformer
from specs import TINY, arrays_of, drawn, spec_of, tokens_of

NAMES = ["gpt2", "opt-narrow", "llama", "mistral", "qwen3", "olmo3", "mixtral"]
NAMES += ["layers-shared", *[str(seed) for seed in range(9) if drawn(seed).head][:6]]


def of_weight(name: str) -> Transformer:
    """A tiny model in float64 with weights that show."""
    spec = spec_of(name)
    model = Transformer(spec, initial=None).double()
    model.take(arrays_of(spec).items())
    return model


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> dict[np.random.Generator, list[np.ndarray]]:
    """The logits of which each row's tokens were drawn, by the row's draws."""
    by_row: dict[np.random.Generator, list[np.ndarray]] = {}

    def listen(logits_V: np.ndarray, sampling: Sampling, rng: np.random.Generator) -> int:
        by_row.setdefault(rng, []).append(logits_V.copy())
        return draw(logits_V, sampling, rng)

    monkeypatch.setattr(decoding, "draw", listen)
    return by_row


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_the_same_alone_and_in_a_batch_cached_and_not_at_once_and_in_chunks(
    name: str, heard: dict[np.random.Generator, list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """L4: every logit within 1e-12 of the full pass in float64, and every token the same."""
    model, n_new = of_weight(name), 9
    row = tokens_of(model.spec, 1, 15)[0].tolist()
    prompts = [row[:7], row[3:4], row[:12], row[5:7]]
    want = [generate(model, prompt, n_new, seed=5, cached=False).new[0] for prompt in prompts]
    ways: dict[str, Callable[[], list[list[int]]]] = {
        "alone": lambda: [generate(model, prompt, n_new, seed=5).new[0] for prompt in prompts],
        "uncached batch": lambda: generate(model, prompts, n_new, seed=5, cached=False).new,
        "batch": lambda: generate(model, prompts, n_new, seed=5).new,
        "other order": lambda: generate(model, prompts[::-1], n_new, seed=5).new[::-1],
    }
    for chunk in (512, 3):
        monkeypatch.setattr(reading, "CHUNK", chunk)
        for way, run in ways.items():
            heard.clear()
            assert run() == want, f"{way}, chunks of {chunk}"
            logits = list(heard.values()) if way != "other order" else list(heard.values())[::-1]
            for prompt, new, rows in zip(prompts, want, logits, strict=True):
                with torch.no_grad():
                    full_TV = model(torch.tensor([prompt + new]))[0, len(prompt) - 1 : -1].numpy()
                scale = max(1, np.abs(full_TV).max())
                assert np.abs(np.array(rows) - full_TV).max() <= 1e-12 * scale, f"{way}, chunks of {chunk}"


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "qwen3"])
def test_greedy_ids_are_the_same_in_float32_in_any_company(name: str) -> None:
    model = of_weight(name).float()
    row = tokens_of(model.spec, 1, 15)[0].tolist()
    prompts = [row[:1], row[:5], row[2:13]]
    alone = [generate(model, prompt, 8, temperature=0, cached=False).new[0] for prompt in prompts]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        both = generate(model, [prompts[i] for i in order], 8, temperature=0).new
        assert both == [alone[i] for i in order]


def test_prompts_that_several_rows_share_go_to_the_right_rows() -> None:
    model = of_weight("llama")
    a, b, c = [1, 2, 3], [4, 5], [6, 7, 8, 9]
    together = generate(model, [a, b, a, c, b], 8, seed=2)
    assert together.n_positions == 9 + 5 * 7
    assert together.new == generate(model, [a, b, a, c, b], 8, seed=2, cached=False).new
    assert [together.new[i] for i in (0, 1, 3)] == [generate(model, each, 8, seed=2).new[0] for each in (a, b, c)]


def test_many_samples_of_one_prompt_read_it_once_and_differ() -> None:
    model = Transformer(tiny_spec())
    found = generate(model, [[1, 2, 3]] * 4, 6, seed=1)
    assert found.n_positions == 3 + 4 * 5
    assert len({tuple(row) for row in found.new}) > 1


# --- what the peers' checks ask of generation (GN) and of its cache (KV) ----------------------------------------------


def test_the_best_token_is_taken_at_temperature_0_and_the_prompt_is_kept() -> None:
    model = of_weight("gpt2")
    (row,) = generate(model, [[3, 1, 4]], 5, temperature=0).tokens
    assert len(row) == 8
    assert row[:3] == [3, 1, 4]
    for t in range(3, 8):
        with torch.no_grad():
            assert row[t] == int(model(torch.tensor([row[:t]]))[0, -1].argmax())


@pytest.mark.parametrize(
    "settings, wheres",
    [
        ({"temperature": -1.0}, ["temperature"]),
        ({"temperature": float("nan")}, ["temperature"]),
        ({"temperature": float("inf")}, ["temperature"]),
        ({"top_k": 0}, ["top_k"]),
        ({"top_k": -1, "top_p": 0.0, "min_p": 1.5, "seed": -3}, ["top_k", "top_p", "min_p", "seed"]),
        ({"top_k": 2.5, "seed": float("nan")}, ["top_k", "seed"]),
        ({"top_k": float("inf")}, ["top_k"]),
        ({"top_p": 1.01}, ["top_p"]),
        ({"n_beams": 2, "length_penalty": 400.0}, ["length_penalty"]),
        ({"n_beams": 2, "length_penalty": -400.0}, ["length_penalty"]),
        ({"n_beams": 2, "length_penalty": float("nan")}, ["length_penalty"]),
        ({"top_p": float("nan"), "min_p": float("nan")}, ["top_p", "min_p"]),
    ],
)
def test_settings_that_cannot_be_are_refused_all_at_once(settings: dict[str, Any], wheres: list[str]) -> None:
    with pytest.raises(PlainformerError) as refused:
        generate(coin(), [[0]], 2, **settings)
    assert [fault.where for fault in refused.value.faults] == wheres


@pytest.mark.parametrize(
    "tokens, n_new, where",
    [
        ([[]], 1, "tokens[0]"),
        ([], 1, "tokens"),
        ([[1], []], 1, "tokens[1]"),
        ([[1]], -1, "max_new_tokens"),
        ([[0] * 30], 3, "max_new_tokens"),
        ([[0] * 33], 0, "max_new_tokens"),
        ([[1, 23]], 1, "tokens[0]"),
        ([[1], [-1]], 1, "tokens[1]"),
        ([[[1]]], 1, "tokens"),
    ],
)
def test_impossible_requests_are_refused_by_name(tokens: Any, n_new: int, where: str) -> None:
    with pytest.raises(PlainformerError) as refused:
        generate(Transformer(tiny_spec()), tokens, n_new)
    assert refused.value.faults[0].where == where


def test_the_last_place_of_the_context_is_usable() -> None:
    model = Transformer(tiny_spec())
    for cached in (True, False):
        found = generate(model, [0] * 30, 2, cached=cached)
        assert len(found.tokens[0]) == 32
        assert found.finish_reasons == ["length"]
    assert Decoding(model, [0] * 32, 5, past_context="stop").rows[0].finish_reason == "context"


def test_a_text_may_be_ended_by_the_context_if_asked_to() -> None:
    run = Decoding(Transformer(tiny_spec()), [[0] * 28, [0] * 3], 9, past_context="stop")
    while run.step():
        pass
    assert [(len(row.new), row.finish_reason) for row in run.rows] == [(4, "context"), (9, "length")]


def test_the_same_seed_repeats_and_another_does_not_and_no_new_tokens_is_the_prompt() -> None:
    model = coin()
    first, again = (generate(model, [0], 40, seed=4).new for _ in range(2))
    assert first == again
    assert generate(model, [0], 40, seed=5).new != first
    assert generate(model, [0], 0, seed=4).tokens == [[0]]
    assert generate(model, [0], 0).finish_reasons == ["length"]


def test_cached_and_uncached_text_is_the_same_request_after_request() -> None:
    model = of_weight("gpt2").float()
    for t, prompt in ((0, [3, 1, 4, 1, 5, 9, 2, 6]), (2.0, [3, 1, 4]), (2.0, [7, 7, 0, 2]), (2.0, [3, 1, 4])):
        plain, cached = (generate(model, prompt, 16, temperature=t, seed=8, cached=c).new for c in (False, True))
        assert plain == cached


@pytest.mark.parametrize("n_prompt, n_new, full, cached", [(8, 16, 248, 23), (2, 4, 14, 5), (3, 1, 3, 3), (3, 0, 0, 0)])
def test_every_position_processed_is_counted(n_prompt: int, n_new: int, full: int, cached: int) -> None:
    model = Transformer(tiny_spec())
    assert generate(model, [0] * n_prompt, n_new, cached=False).n_positions == full
    assert generate(model, [0] * n_prompt, n_new, cached=True).n_positions == cached


def test_padding_is_not_counted() -> None:
    assert generate(Transformer(tiny_spec()), [[1], [1, 2, 3]], 3).n_positions == 4 + 2 * 2
    assert generate(Transformer(tiny_spec()), [[1], [1, 2, 3]], 2, cached=False).n_positions == 4 + 6


def test_the_state_holds_the_bytes_that_the_cost_says() -> None:
    spec = tiny_spec()
    run = Decoding(Transformer(spec), [[1] * 5, [2] * 5], 7)
    run.step()
    assert run.state is not None
    sized = cost.Cost.of(spec, batch_size=2, seq_len=12, kv_dtype="float32")
    assert run.state.n_bytes == sized.cache_bytes


def test_rows_of_any_kind_are_taken() -> None:
    model = coin()
    want = generate(model, [0, 1], 3).tokens
    for tokens in (torch.tensor([0, 1]), torch.tensor([[0, 1]]), np.array([[0, 1]]), [np.array([0, 1])], ((0, 1),)):
        assert generate(model, tokens, 3).tokens == want


def test_a_model_that_sees_the_future_or_has_no_head_is_not_continued() -> None:
    from dataclasses import replace

    spec = TINY["gpt2"]
    assert spec.decoder is not None
    for other in (replace(spec, head=None), replace(spec, decoder=replace(spec.decoder, causal=False))):
        with pytest.raises(PlainformerError, match="cannot be continued"):
            generate(Transformer(other), [1], 1)


# --- past the context -------------------------------------------------------------------------------------------------


@torch.no_grad()
def slid(model: Transformer, prompt: list[int], n_new: int) -> list[int]:
    """By hand: each best token from what is read; a full row's older half is dropped."""
    read, new, full = list(prompt), [], model.spec.max_seq_len
    for _ in range(n_new):
        read = read if len(read) <= full else read[-(full // 2) :]
        new.append(int(model(torch.tensor([read]))[0, -1].argmax()))
        read = [*read, new[-1]]
    return new


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral"])
@pytest.mark.parametrize("cached", [True, False])
def test_rows_slide_past_the_context_each_at_its_own_time(name: str, cached: bool) -> None:
    """A context of 24: rows of 3, 20 and 24 tokens drop their older halves at different steps, and twice."""
    model = of_weight(name)
    row = tokens_of(model.spec, 1, 24)[0].tolist()
    prompts, n_new = [row[:3], row[4:24], row], 35
    found = generate(model, prompts, n_new, temperature=0, cached=cached, past_context="slide")
    assert found.new == [slid(model, prompt, n_new) for prompt in prompts]
    assert found.finish_reasons == ["length"] * 3
    assert [row.dropped for row in found.rows] == [13, 39, 39]


def test_what_happens_past_the_context_is_one_of_three() -> None:
    model = Transformer(tiny_spec())
    with pytest.raises(PlainformerError, match="past_context"):
        generate(model, [0], 3, past_context="wrap")  # type: ignore[arg-type]
    assert generate(model, [0] * 30, 9, past_context="stop").finish_reasons == ["context"]
    with pytest.raises(PlainformerError, match="max_seq_len"):
        generate(model, [0] * 33, 9, past_context="slide")


# --- what is forced, forbidden and told -------------------------------------------------------------------------------


def test_ln_p_of_each_token_is_the_model_s_own_whatever_narrows_the_choice() -> None:
    model = of_weight("llama")
    row = tokens_of(model.spec, 1, 9)[0].tolist()
    prompts = [row[:4], row[:9], row[:1]]
    found = generate(model, prompts, 6, temperature=1.7, top_k=3, repetition_penalty=1.5, logprobs=True)
    for prompt, new, got in zip(prompts, found.new, found.logprobs, strict=True):
        with torch.no_grad():
            ln_p_TV = model(torch.tensor([prompt + new]))[0].log_softmax(-1)
        want = [float(ln_p_TV[len(prompt) - 1 + i, token]) for i, token in enumerate(new)]
        assert got == pytest.approx(want, rel=1e-10)
    assert generate(model, prompts, 2).logprobs == [[], [], []]
    with pytest.raises(PlainformerError, match="logprobs"):
        generate(model, prompts, 2, n_beams=2, logprobs=True)


def test_what_a_row_holds_is_less_likely_by_the_penalty() -> None:
    rules, scores_V = Rules(repetition_penalty=2.0), np.array([3.0, -1.0, 2.0, -4.0])
    assert rules.apply(scores_V, [0, 3, 3], 2, 9, ()).tolist() == [1.5, -1.0, 2.0, -8.0]
    assert scores_V.tolist() == [3.0, -1.0, 2.0, -4.0]
    model = chain({0: 1, 1: 0}, n=3)
    assert generate(model, [0], 4, temperature=0).new == [[1, 0, 1, 0]]
    assert generate(model, [0], 2, temperature=0, rules=Rules(no_repeat=1)).new == [[1, 2]]


def test_rules_bar_what_they_say_when_they_say_it() -> None:
    def barred(rules: Rules, tokens: list[int], n_new: int) -> set[int]:
        said_V = rules.apply(np.arange(6) / 10, tokens, n_new, 9, [5])
        return set(np.flatnonzero(np.isneginf(said_V)).tolist())

    assert barred(Rules(min_new=2), [1, 1, 1, 1], 1) == {5}
    assert barred(Rules(min_new=2), [1, 1, 1, 1], 2) == set()
    runs = Rules(never=((1, 2), (3, 4, 0), 4))
    assert [barred(runs, row, 0) for row in ([3, 4], [2, 1], [4], [3, 4, 1])] == [{0, 4}, {2, 4}, {4}, {2, 4}]
    assert [barred(Rules(not_first=(0,)), [1, 2][: 1 + n], n) for n in (0, 1)] == [{0}, set()]
    begun = Rules(not_first=(0,), first=3)
    assert [barred(begun, [1, 3, 3][: 1 + n], n) for n in (0, 1, 2)] == [{0, 1, 2, 4, 5}, {0}, set()]
    assert barred(begun, [1, 2], 0) == {0}, "after a longer prompt nothing is forced"
    left_V = Rules(never=(0, 3), renormalised=True).apply(np.arange(6) / 10, [1], 0, 9, [])
    assert np.exp(left_V).sum() == pytest.approx(1)


# --- ends -------------------------------------------------------------------------------------------------------------


def test_a_finished_row_says_nothing_more_and_stops_no_other() -> None:
    model = chain({0: 1, 1: 2, 2: 9, 9: 3, 4: 5, 5: 6, 6: 4}, n=10)
    found = generate(model, [[0], [4], [2]], 8, temperature=0, stop_ids=[9])
    assert found.new == [[1, 2, 9], [5, 6, 4, 5, 6, 4, 5, 6], [9]]
    assert found.finish_reasons == ["stop", "length", "stop"]
    assert found.n_positions == 3 + 2 * 2 + 5  # the prompts, two steps of two rows, then one row alone
    assert found.new == generate(model, [[0], [4], [2]], 8, temperature=0, stop_ids=[9], cached=False).new


def test_the_state_of_a_finished_row_is_dropped() -> None:
    run = Decoding(chain({0: 1, 1: 9, 4: 4}, n=10), [[0], [4], [4]], 6, Sampling(temperature=0), stop_ids=[9])
    sizes = []
    while run.step():
        assert run.state is not None
        sizes.append(len(run.state.lengths))
    assert sizes == [3, 3, 2, 2, 2, 2]


def test_tokens_are_told_as_they_are_drawn() -> None:
    told: list[tuple[int, int]] = []
    found = generate(coin(), [[0], [0]], 3, on_token=lambda row, token: told.append((row, token)))
    assert [[token for row, token in told if row == i] for i in (0, 1)] == found.new
    assert [row for row, _ in told] == [0, 1] * 3


def test_a_generation_says_how_fast_it_was() -> None:
    assert Generation((decoding.Row([1], [2, 3]), decoding.Row([1], [2, 3])), 4, 0.5).tokens_per_second == 8


@pytest.mark.parametrize("name", ["llama-dynamic", "llama-longrope"])
def test_frequencies_that_grow_are_each_row_s_own(name: str) -> None:
    """L4: beside a row past the first context, one that is not is read as when it is alone."""
    model = of_weight(name)
    row = tokens_of(model.spec, 1, 14)[0].tolist()
    rows = [row[:5], row, row[3:13], row[:1]]
    with torch.no_grad():
        alone = [model(torch.tensor([one]))[0] for one in rows]
        filled = torch.tensor([[*one, *[0] * (len(row) - len(one))] for one in rows])
        together = model(filled, n_new=[len(one) for one in rows])
    for want_TV, found_TV in zip(alone, together, strict=True):
        assert (found_TV[: len(want_TV)] - want_TV).abs().max() <= 1e-12 * max(1, want_TV.abs().max())
    prompts = [row[:7], row[3:4], row[:12], row[5:7]]
    want = [generate(model, prompt, 3, cached=False, temperature=0).new[0] for prompt in prompts]
    assert generate(model, prompts, 3, cached=False, temperature=0).new == want

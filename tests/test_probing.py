"""What a probe says of a model is what the definition says, and looking changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from plainformer import PlainformerError, reference
from plainformer import spec as s
from plainformer.model import Transformer
from plainformer.probing import attention_maps, causality, log2_odds, logit_lens, surprisal
from plainformer.tree import walk
from specs import TINY, arrays_of, has_experts, tokens_of

NAMES = [
    "gpt2",
    "gpt2-no-positions",
    "opt-narrow",
    "neox",
    "llama",
    "mistral",
    "olmo3",
    "gemma2",
    "mixtral",
    "layers-shared",
]


def of_weight(spec: s.Spec) -> Transformer:
    model = Transformer(spec, initial=None).double()
    model.take(arrays_of(spec).items())
    return model


@pytest.mark.parametrize("name", NAMES)
def test_attention_maps_are_the_reference_s(name: str) -> None:
    spec, tokens_T = TINY[name], tokens_of(TINY[name], 1, 11)[0]
    trace: dict[str, np.ndarray] = {}
    reference.logits(spec, arrays_of(spec), tokens_T, trace=trace)
    want = {place.removesuffix(".weights"): kept for place, kept in trace.items() if place.endswith(".weights")}
    maps = attention_maps(of_weight(spec), tokens_T)
    assert list(maps) == list(want)
    for place, weights_HTT in maps.items():
        assert np.abs(weights_HTT - want[place]).max() <= 1e-12
        assert np.allclose(weights_HTT.sum(-1), 1, rtol=0, atol=1e-12)
        assert (np.triu(weights_HTT, 1) == 0).all(), "a key that may not be seen has exactly 0"


@pytest.mark.parametrize("name", NAMES)
def test_looking_changes_no_logit(name: str) -> None:
    model, tokens_BT = of_weight(TINY[name]), torch.tensor(tokens_of(TINY[name], 1, 11))
    with torch.no_grad():
        gap = (model(tokens_BT, trace={}) - model(tokens_BT)).abs().max()
    assert gap <= 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_surprisal_is_the_loss_of_each_token_in_bits(name: str) -> None:
    spec, tokens_T = TINY[name], tokens_of(TINY[name], 1, 11)[0]
    want = reference.cross_entropy(reference.logits(spec, arrays_of(spec), tokens_T)[:-1], tokens_T[1:]) / np.log(2)
    found = surprisal(of_weight(spec), tokens_T)
    assert found.shape == (10,)
    assert np.abs(found - want).max() <= 1e-12 * max(1, want.max())


def test_rows_of_the_head_beyond_the_tokenizer_take_no_probability() -> None:
    model = of_weight(TINY["llama"])
    odds = 2 ** log2_odds(model, [1, 2, 3], n_tokens=5)
    assert odds.shape == (3, 5)
    assert np.allclose(odds.sum(-1), 1)
    assert (surprisal(model, [1, 2, 3], n_tokens=5) < surprisal(model, [1, 2, 3])).all()


def test_one_token_surprises_nobody() -> None:
    assert surprisal(of_weight(TINY["gpt2"]), [3]).shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_the_lens_ends_at_the_logits_and_begins_at_the_embedding(name: str) -> None:
    model, tokens_T = of_weight(TINY[name]), tokens_of(TINY[name], 1, 7)[0]
    lens = logit_lens(model, tokens_T)
    stack = TINY[name].decoder
    assert stack is not None
    assert lens.shape == (len(stack.passes or stack.layers) + 1, 7, TINY[name].vocab_size)
    with torch.no_grad():
        logits_TV = model(torch.tensor(tokens_T)[None])[0].numpy()
    assert np.abs(lens[-1] - logits_TV).max() <= 1e-12 * max(1, np.abs(logits_TV).max())
    assert np.abs(lens[0] - logits_TV).max() > 1e-3
    assert np.abs(lens[0][2] - logit_lens(model, [*tokens_T[:2][::-1], *tokens_T[2:]])[0][2]).max() == 0, "no layer yet"


def asks_for_positions(spec: s.Spec) -> bool:
    """By what is in the spec: a table, a rotation, a slope or a bias by distance."""
    parts = [part for _, part in walk(spec)]
    fields = [getattr(part, name, None) for part in parts for name in ("positions", "rotary", "alibi", "relative")]
    return any(fields)


@pytest.mark.parametrize("name", NAMES)
def test_a_decoder_is_causal(name: str) -> None:
    verdict = causality(of_weight(TINY[name]).float(), tokens_of(TINY[name], 1, 12)[0])
    assert verdict.causal
    assert verdict.n_changes == 11
    assert verdict.largest == 0 or has_experts(TINY[name])
    assert verdict.uses_positions == asks_for_positions(TINY[name])


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "mixtral"])
def test_a_model_that_sees_the_future_is_told(name: str) -> None:
    spec = TINY[name]
    assert spec.decoder is not None
    verdict = causality(of_weight(replace(spec, decoder=replace(spec.decoder, causal=False))), [1, 2, 3, 4, 5])
    assert not verdict.causal
    assert verdict.largest > 1e-3


def test_a_leak_from_one_token_alone_is_told() -> None:
    """The last token, seen at the first alone: the verdict looks at every change and at every logit before it."""
    model = of_weight(TINY["gpt2"])
    forward, first_T1 = model.forward, (torch.arange(6) == 0)[:, None]
    model.forward = lambda tokens_BT, **more: forward(tokens_BT, **more) + 1e-9 * tokens_BT[:, -1:, None] * first_T1  # type: ignore[method-assign]
    assert not causality(model, [1, 2, 3, 4, 5, 6]).causal


def test_positions_that_say_nothing_are_not_used() -> None:
    model = of_weight(TINY["gpt2"])
    assert causality(model, [1, 2, 3]).uses_positions
    with torch.no_grad():
        model.decoder.positions.weight.zero_()
    assert not causality(model, [1, 2, 3]).uses_positions


def test_the_verdict_leaves_the_model_as_it_was() -> None:
    model = of_weight(TINY["llama"])
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    causality(model, [1, 2, 3])
    assert all(torch.equal(parameter, before[name]) for name, parameter in model.named_parameters())


def test_a_single_token_has_no_later_one() -> None:
    verdict = causality(of_weight(TINY["llama"]), [1])
    assert (verdict.causal, verdict.n_changes) == (True, 0)


def test_what_cannot_be_looked_at_is_refused() -> None:
    model = of_weight(TINY["gpt2"])
    headless = Transformer(replace(TINY["gpt2"], head=None))
    for probe in (surprisal, logit_lens, causality):
        with pytest.raises(PlainformerError, match="no head"):
            probe(headless, [1, 2])
    for probe in (attention_maps, surprisal, logit_lens, causality):
        with pytest.raises(PlainformerError):
            probe(model, [])
        with pytest.raises(PlainformerError):
            probe(model, [[1, 2]])
        with pytest.raises(PlainformerError, match="outside the vocabulary"):
            probe(model, [1, 13])
    with torch.no_grad():
        model.embedding.weight[1] = torch.nan
    with pytest.raises(PlainformerError, match="damaged"):
        surprisal(model, [1, 2])

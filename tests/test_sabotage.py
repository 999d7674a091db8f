"""Laws and behaviours that cannot fail prove nothing: each is asked of a product broken on purpose, and must notice.

A mutant breaks the reference or the model by patching it, as a mistake in the code would. The table says who notices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch

import adapters
import laws
from mutants import (
    Break,
    all_gains_less_one,
    breaks,
    detached_spread,
    first_row_for_all,
    flattened,
    forgets,
    honest,
    masks,
    no_positions,
    no_positions_defined,
    nudged,
    one_state_for_all,
    one_state_for_all_defined,
    pad_visible,
    residual,
    rows_mixed,
    rule,
    scores,
    slots,
    stepped,
    stuck_at_0,
    stuck_at_0_defined,
    swapped_rows,
    within,
    wrong_pairs,
)
from plainformer import experts, formulas, initial, kernels, layers, reference, states
from plainformer import model as m
from plainformer import spec as s
from plainformer.check.behaviours_whole import CHECKS
from plainformer.faults import PlainformerError
from plainformer.generation import decoding
from plainformer.states import State, Where
from specs import spec_of


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.callbacks = []  # type: ignore[attr-defined]
    yield monkeypatch
    for undo in monkeypatch.callbacks:  # type: ignore[attr-defined]
        undo()


def fails(check: Callable[[], None]) -> bool:
    """A check notices by its own word, or by a refusal of what it should have been given."""
    try:
        check()
    except (AssertionError, PlainformerError):
        return True
    return False


GELU = (
    breaks(formulas.ACTIVATIONS, "gelu", lambda _: formulas.gelu_tanh),
    breaks(kernels.ACTIVATIONS, "gelu", lambda _: kernels.gelu_tanh),
)
ALWAYS_UNTIED = breaks(adapters.decoders, "gpt2", lambda original: lambda **kw: original(**kw | {"tied": False}))
WRONG_SCALE = breaks(
    adapters.decoders,
    "dot",
    lambda original: lambda d_head, rotary=None: replace(original(d_head, rotary), scale=24**-0.5),
)


@dataclass(frozen=True)
class Mutant:
    """How to break each side (None: nothing there to break), and the checks that must notice."""

    name: str
    noticed_by: str
    in_reference: Break | None
    in_model: Break | None


def mutant(name: str, noticed_by: str, both: tuple[Break | None, Break | None]) -> Mutant:
    return Mutant(name, noticed_by, *both)


MUTANTS = (
    mutant("no causal mask", "AT6 BL2 GP1 GP2 GR1 KV1 KV2", masks(within)),
    mutant("mask off by one", "AT6 BL2 GP1 GP2 GR1 KV1 KV2", masks(lambda ago, w: (ago >= -1) & within(ago, w))),
    mutant("mask inverted", "AT1 AT2 AT3 AT4 AT6 BL2 GP1 GP2 GR1 KV2", scores(partial(honest, see=lambda seen: ~seen))),
    mutant("additive mask as 1 and 0", "AT1 AT2 AT6 GP1 GR1", scores(flattened)),
    mutant("-1e9 for -inf", "AT3 AT4", scores(partial(honest, never=-1e9))),
    mutant("scores times 0", "AT1 AT2 AT6 GP1 GR1", scores(partial(honest, score=lambda z, _: z * 0))),
    mutant("attention says nothing", "BL2 GP1 GR1", scores(partial(honest, said=0.0))),
    mutant("scores not scaled", "AT1 AT2 GP1 GR1", scores(partial(honest, score=lambda z, _: z))),
    mutant("scaled by the model's width", "GP1 GR1", (WRONG_SCALE, WRONG_SCALE)),
    mutant("positions ignored", "GP1 GP3 GR1", (rule(s.Stack, no_positions_defined), no_positions)),
    mutant("norm after the sum", "BL1 GP1 GR1", residual(lambda part: part, post=True)),
    mutant("no residual", "BL1 GP1 GR1", residual(lambda part: replace(part, add=False))),
    mutant("another GELU than said", "GP1 GR1", GELU),
    mutant("head silently untied", "GP4 GP5", (ALWAYS_UNTIED, ALWAYS_UNTIED)),
    mutant("spread detached from the gradient", "GR1 LN6", (None, detached_spread)),
    mutant(
        "the loss is always 0",
        "GR1 GR2",
        (None, breaks(kernels, "cross_entropy", lambda original: lambda *args: original(*args) * 0)),
    ),
    mutant("cache stuck at position 0", "KV1 KV2", (rule(s.Stack, stuck_at_0_defined), stuck_at_0)),
    mutant("cache kept between requests", "KV1", (one_state_for_all_defined, one_state_for_all)),
    mutant(
        "every row from the first one's scores",
        "GN5",
        (None, breaks(decoding.Decoding, "_next_logits", first_row_for_all)),
    ),
)
CASES = [
    (ad, one, broken)
    for one in MUTANTS
    for ad, broken in zip(adapters.ADAPTERS, (one.in_reference, one.in_model), strict=True)
    if broken
]


@pytest.mark.no_shape_names
@pytest.mark.parametrize("ad, one, broken", CASES, ids=[f"{one.name}, {ad.name}" for ad, one, _ in CASES])
def test_a_broken_gpt_is_noticed(ad: Any, one: Mutant, broken: Break, patch: Any) -> None:
    checks = [CHECKS[name] for name in one.noticed_by.split()]
    mine = [function for needs, function in checks if needs <= ad.caps]
    assert mine
    broken(patch)
    assert [function.__name__ for function in mine if not fails(partial(function, ad))] == []


@pytest.mark.no_shape_names
@pytest.mark.parametrize(
    "name, broken",
    [
        ("TR1", breaks(torch.optim.Adam, "step", lambda _: lambda self: None)),
        pytest.param("TR2", breaks(torch.optim.Adam, "step", lambda _: lambda self: None), marks=pytest.mark.proof),
        pytest.param("TR2", scores(partial(honest, said=0.0))[1], marks=pytest.mark.proof),
        pytest.param("TR2", scores(partial(honest, score=lambda z, _: z * 0))[1], marks=pytest.mark.proof),
    ],
    ids=["TR1, no step", "TR2, no step", "TR2, attention says nothing", "TR2, scores times 0"],
)
def test_training_that_does_not_learn_is_noticed(name: str, broken: Break, patch: Any) -> None:
    broken(patch)
    assert fails(partial(CHECKS[name][1], adapters.OfModel()))


# --- the laws ---------------------------------------------------------------------------------------------------------

NO_PAD = breaks(states, "real", lambda _: lambda lengths, slots: None)
POOLS_ALL = breaks(m, "pooled", lambda original: lambda x, pool, lengths: original(x, pool, None))
UNSELECTED = breaks(states.Memory, "select", lambda _: lambda self, rows: self)
LATENT_SCALE = breaks(
    m.LatentAttention, "compressed", lambda original: lambda self, q, *rest: original(self, q * 1.001, *rest)
)
NO_SINKS = breaks(m, "attention", lambda original: lambda *args: original(*args[:7]))
ONE_WAY = breaks(
    kernels, "relative_buckets", lambda original: lambda ago, buckets, causal: original(ago, buckets, True)
)
WORST_GROUPS = breaks(experts, "choose", lambda original: lambda z, n: original(-z if z.shape[1] == 3 else z, n))
LAWS: tuple[tuple[str, Callable[[s.Spec], None], str, Break], ...] = (
    ("rows in another order", laws.the_ledger_is_the_model, "gpt2", swapped_rows),
    (
        "a head untied",
        laws.the_ledger_is_the_model,
        "gpt2",
        breaks(m.Head, "__init__", lambda original: lambda self, part: original(self, replace(part, tied=False))),
    ),
    (
        "no bias",
        laws.the_ledger_is_the_model,
        "gpt2",
        breaks(
            layers.Linear,
            "__init__",
            lambda original: lambda self, part, *n: original(self, replace(part, bias=False), *n),
        ),
    ),
    (
        "mask off by one",
        laws.the_model_is_the_reference,
        "llama",
        masks(lambda ago, w: (ago >= -1) & within(ago, w))[1],
    ),
    ("mask off by one", laws.the_future_moves_nothing, "llama", masks(lambda ago, w: (ago >= -1) & within(ago, w))[1]),
    (
        "mask off by one",
        laws.the_future_moves_nothing,
        "mixtral",
        masks(lambda ago, w: (ago >= -1) & within(ago, w))[1],
    ),
    ("no mask", laws.a_cache_changes_no_logit, "llama", masks(within)[1]),
    ("no mask", laws.a_cache_changes_no_greedy_token, "gpt2", masks(within)[1]),
    ("no mask, in the reference", laws.a_cache_changes_no_logit, "llama", masks(within)[0]),
    (
        "window off by one",
        laws.the_model_is_the_reference,
        "mistral",
        masks(lambda ago, w: (ago >= 0) & within(ago, w, 1))[1],
    ),
    (
        "window off by one",
        laws.each_part_alone_is_the_reference,
        "gpt2-window-1",
        masks(lambda ago, w: (ago >= 0) & within(ago, w, 1))[1],
    ),
    (
        "window forgotten by the fused kernel",
        laws.the_model_is_the_reference,
        "mistral",
        breaks(Where, "mask", lambda original: lambda self, window, *rest: original(self, None, *rest)),
    ),
    ("scale forgotten", laws.the_model_is_the_reference, "llama", scores(partial(honest, score=lambda z, _: z))[1]),
    (
        "scale forgotten",
        laws.each_part_alone_is_the_reference,
        "llama",
        scores(partial(honest, score=lambda z, _: z))[1],
    ),
    (
        "rotary pairs of another kind",
        laws.the_model_is_the_reference,
        "llama",
        breaks(m.Attention, "rotate", wrong_pairs),
    ),
    (
        "rotary pairs of another kind",
        laws.each_part_alone_is_the_reference,
        "qwen3",
        breaks(m.Attention, "rotate", wrong_pairs),
    ),
    (
        "rotary unscaled",
        laws.the_model_is_the_reference,
        "llama-3.1",
        breaks(kernels, "frequencies", lambda original: lambda rotary, n: original(replace(rotary, scaling=None), n)),
    ),
    ("epsilon dropped", laws.the_model_is_the_reference, "llama", nudged("eps")),
    ("epsilon dropped", laws.each_part_alone_is_the_reference, "gpt2", nudged("eps")),
    ("gains plus one", laws.the_model_is_the_reference, "llama", nudged("plus_one")),
    ("residual dropped", laws.the_model_is_the_reference, "gpt2", residual(lambda part: replace(part, add=False))[1]),
    (
        "branches in turn",
        laws.the_model_is_the_reference,
        "neox",
        residual(lambda part: replace(part, branches=part.branches[:1]))[1],
    ),
    (
        "embedding unscaled",
        laws.the_model_is_the_reference,
        "gemma2",
        breaks(m.Tokens, "__init__", lambda original: lambda self, part: original(self, replace(part, scale=1.0))),
    ),
    (
        "head uncapped",
        laws.the_model_is_the_reference,
        "gemma2",
        breaks(m.Head, "__init__", lambda original: lambda self, part: original(self, replace(part, softcap=None))),
    ),
    (
        "LoRA unscaled",
        laws.the_model_is_the_reference,
        "gpt2-lora",
        breaks(
            m,
            "apply_linear",
            lambda original: (
                lambda module, part, x, weight, e=None: original(
                    module, replace(part, lora=part.lora and replace(part.lora, alpha=part.lora.rank)), x, weight, e
                )
            ),
        ),
    ),
    (
        "gates over all experts",
        laws.the_model_is_the_reference,
        "mixtral",
        breaks(
            experts.ChosenSoftmaxRouter,
            "forward",
            lambda original: lambda self, x: (*original(self, x)[:2], self.scores(x).softmax(-1)),
        ),
    ),
    ("positions from 0 again", laws.a_cache_changes_no_logit, "gpt2", breaks(m, "Where", stepped)),
    ("positions from 0 again", laws.a_cache_changes_no_greedy_token, "llama", breaks(m, "Where", stepped)),
    ("position 0 for each single token", laws.a_cache_changes_no_logit, "gpt2", stuck_at_0),
    (
        "passes in one slot",
        laws.a_cache_changes_no_logit,
        "layers-shared",
        breaks(Where, "at", lambda _: lambda self, place: place),
    ),
    (
        "passes in one slot, in the reference",
        laws.a_cache_changes_no_logit,
        "layers-shared",
        breaks(reference.Where, "at", lambda _: lambda self, place: place),
    ),
    ("the pad is seen", laws.ragged_rows_go_on_as_when_alone, "llama", pad_visible),
    ("the pad is seen", laws.a_row_in_a_batch_is_the_row_alone, "bert", NO_PAD),
    ("the pad is averaged", laws.a_row_in_a_batch_is_the_row_alone, "bert-mean", POOLS_ALL),
    ("the pad is heard", laws.a_source_in_a_batch_is_the_source_alone, "t5", NO_PAD),
    ("what the encoder said is of other rows", laws.a_state_keeps_what_it_is_told, "bart", UNSELECTED),
    ("latents compressed without their norm", laws.a_cache_changes_no_logit, "deepseek-v3", LATENT_SCALE),
    ("a sink that gives", laws.the_model_is_the_reference, "gpt-oss", NO_SINKS),
    ("buckets one way alone", laws.the_model_is_the_reference, "t5", ONE_WAY),
    ("the worst groups", laws.the_model_is_the_reference, "deepseek-v3", WORST_GROUPS),
    ("rows see each other", laws.a_row_in_a_batch_is_the_row_alone, "gpt2", breaks(m.Layer, "forward", rows_mixed)),
    (
        "select forgets the order",
        laws.a_state_keeps_what_it_is_told,
        "gpt2",
        breaks(State, "select", lambda original: lambda self, rows: original(self, sorted(rows))),
    ),
    (
        "truncate forgets nothing",
        laws.a_state_keeps_what_it_is_told,
        "llama",
        breaks(State, "truncate", lambda _: lambda self, n: None),
    ),
    (
        "slots written over",
        laws.a_state_keeps_what_it_is_told,
        "gpt2",
        slots(lambda state: [k.mul_(1.01) for k, _ in state.kept.values()] and None),
    ),
    ("a field forgotten", laws.a_spec_is_what_was_written, "mistral", forgets("window")),
    (
        "gains less one everywhere",
        laws.an_untrained_norm_says_one,
        "gemma2-mixed-gains",
        breaks(initial, "drawn", all_gains_less_one),
    ),
)


@pytest.mark.no_shape_names
@pytest.mark.parametrize(
    "what, law, name, broken", LAWS, ids=[f"{law.__name__}: {what}, {name}" for what, law, name, _ in LAWS]
)
def test_a_broken_law_is_noticed(
    what: str, law: Callable[[s.Spec], None], name: str, broken: Break, patch: Any
) -> None:
    spec = spec_of(name)
    law(spec)  # it holds
    broken(patch)
    with pytest.raises((AssertionError, PlainformerError)):
        law(spec)


def test_every_law_has_a_twin_that_it_catches() -> None:
    told = {
        name
        for name, law in vars(laws).items()
        if callable(law) and getattr(law, "__annotations__", {}).keys() == {"spec", "return"}
    }
    told -= {"has_experts"}
    assert told == {law.__name__ for _, law, _, _ in LAWS}

"""The laws for every tiny spec, for decoders drawn by chance, and for every preset on the meta device."""

from __future__ import annotations

import pytest

import laws
from plainformer.presets import presets
from specs import ENCODERS, PAIRS, TINY, spec_of

SEEDS = [str(seed) for seed in range(24)]
MORE = [pytest.param(str(seed), marks=pytest.mark.proof) for seed in range(24, 400)]
GROWS = {
    "llama-dynamic",
    "llama-longrope",
}  # their frequencies change with the length: what was read by others cannot be kept (a limit)
each_tiny_spec = pytest.mark.parametrize("name", [*TINY, *ENCODERS, *PAIRS, *SEEDS, *MORE])
each_tiny_decoder = pytest.mark.parametrize("name", [*TINY, *PAIRS, *SEEDS, *MORE])
each_that_keeps = pytest.mark.parametrize(
    "name", [*(name for name in TINY | PAIRS if name not in GROWS), *SEEDS, *MORE]
)
each_preset = pytest.mark.parametrize("name", list(presets))


@each_tiny_spec
def test_the_ledger_is_the_model(name: str) -> None:
    laws.the_ledger_is_the_model(spec_of(name))


@each_preset
def test_the_ledger_of_a_preset_is_its_model(name: str) -> None:
    laws.the_ledger_is_the_model(presets[name])


@each_tiny_spec
def test_the_model_is_the_reference(name: str) -> None:
    laws.the_model_is_the_reference(spec_of(name))


@each_tiny_spec
def test_each_part_alone_is_the_reference(name: str) -> None:
    laws.each_part_alone_is_the_reference(spec_of(name))


@each_that_keeps
def test_a_cache_changes_no_logit(name: str) -> None:
    laws.a_cache_changes_no_logit(spec_of(name))


@each_that_keeps
def test_a_cache_changes_no_greedy_token(name: str) -> None:
    laws.a_cache_changes_no_greedy_token(spec_of(name))


@each_tiny_spec
def test_a_row_in_a_batch_is_the_row_alone(name: str) -> None:
    laws.a_row_in_a_batch_is_the_row_alone(spec_of(name))


@each_that_keeps
def test_a_state_keeps_what_it_is_told(name: str) -> None:
    laws.a_state_keeps_what_it_is_told(spec_of(name))


@each_that_keeps
def test_ragged_rows_go_on_as_when_alone(name: str) -> None:
    laws.ragged_rows_go_on_as_when_alone(spec_of(name))


@pytest.mark.parametrize("name", PAIRS)
def test_a_source_in_a_batch_is_the_source_alone(name: str) -> None:
    laws.a_source_in_a_batch_is_the_source_alone(spec_of(name))


@each_tiny_decoder
def test_the_future_moves_nothing(name: str) -> None:
    laws.the_future_moves_nothing(spec_of(name))


@pytest.mark.parametrize("name", [*TINY, *ENCODERS, *PAIRS, *SEEDS, *presets])
def test_a_spec_is_what_was_written(name: str) -> None:
    laws.a_spec_is_what_was_written(presets[name] if name in presets and name not in TINY else spec_of(name))


@each_tiny_spec
def test_an_untrained_norm_says_one(name: str) -> None:
    laws.an_untrained_norm_says_one(spec_of(name))

"""Mistakes that public code had, made anew as small originals: each is found, and named.

When they were first tried, seven of the twenty-eight were found without a name, and none was named wrongly. Six had no
entry: theirs are `catalogue.field`. The seventh has one but for 1e-10 in the place of 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from plainformer.check.catalogue import CATALOGUE
from plainformer.check.catalogue.field import FIELD
from plainformer.check.checking import check_within
from plainformer.check.process import Theirs

FOLDER = Path(__file__).parent / "implementations" / "field"
NAMED = {  # file: (its thing, the entries that name it)
    "top_k_small_number": ("next_token_probs", {"sample-top-k-zero"}),
    "scale_by_width": ("MultiHeadAttention", {"scale-d-model"}),
    "scale_divided": ("attention", {"scale-multiplied"}),
    "scale_by_heads": ("MultiHeadAttention", {"scale-n-heads"}),
    "scale_missing": ("attention", {"scale-none"}),
    "causal_flag_lost": ("attention", {"mask-none"}),
    "rotary_mixed_pairs": ("rotary", {"rotary-pairs-mixed"}),
    "rotary_no_start": ("apply_rotary", {"rotary-start-ignored"}),
    "mean_of_means": ("cross_entropy", {"loss-mean-of-means"}),
    "balance_times_k": ("load_balancing_loss", {"balance-no-k"}),
    "balance_softmax_twice": ("load_balancing_loss", {"balance-softmax-twice"}),
    "balance_of_the_chosen": ("load_balancing_loss", {"balance-given-of-chosen"}),
    "norm_unbiased": ("LayerNorm", {"norm-unbiased", "norm-eps-outside"}),
    "norm_eps_outside": ("layer_norm", {"norm-eps-outside"}),
    "norm_squared": ("layer_norm", {"norm-spread-squared"}),
    "loss_shifted_twice": ("causal_lm_loss", {"shift-two"}),
    "loss_not_shifted": ("causal_lm_loss", {"shift-none"}),
    "heads_joined_as_they_lie": ("MultiHeadAttention", {"heads-join-view"}),
    "heads_split_as_they_lie": ("MultiHeadAttention", {"heads-view"}),
    "cache_mask_corner": ("attention_with_cache", {"mask-corner"}),
    "cache_no_mask": ("attention_with_cache", {"mask-none"}),
    "temperature_last": ("next_token_probs", {"sample-temperature-last"}),
    "nucleus_too_small": ("next_token_probs", {"sample-top-p-crossing-dropped"}),
    "sine_exponents": ("positional_encoding", {"sinusoids-base-and-exponent"}),
    "sine_precedence": ("positional_encoding", {"sinusoids-floored"}),
    "sine_each_column": ("positional_encoding", {"sinusoids-each-column"}),
    "groups_tiled": ("grouped_query_attention", {"heads-repeat-tiled"}),
    "softmax_of_queries": ("attention", {"softmax-axis-last-but-one"}),
}


@pytest.fixture(scope="module")
def theirs() -> Iterator[Theirs]:
    with Theirs(FOLDER / "scale_by_width.py") as one:
        yield one


@pytest.mark.parametrize("name", NAMED)
def test_a_mistake_of_the_field_is_named(theirs: Theirs, name: str) -> None:
    thing, keys = NAMED[name]
    (answer,) = [one for one in check_within(theirs, FOLDER / f"{name}.py").answers if one.thing == thing]
    assert (answer.verdict, answer.confident) == ("wrong", True)
    assert {mistake.key for mistake in answer.mistakes} == keys


def test_each_says_where_it_was_and_has_its_row() -> None:
    files = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.py")}
    assert set(files) == set(NAMED)
    assert all("issue" in text[:200] or "pull request" in text[:200] for text in files.values())
    assert {key for _, keys in NAMED.values() for key in keys} <= set(CATALOGUE)


def test_three_quarters_are_named_by_tables_that_did_not_know_them() -> None:
    new = {entry.key for entry in FIELD} | {"sample-top-k-zero"}
    assert sum(not keys & new for _, keys in NAMED.values()) >= 0.75 * len(NAMED)

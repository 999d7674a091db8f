"""What no total shows: where each family puts its norms, windows, rotations, scales and passes."""

from __future__ import annotations

from typing import Any

import pytest

from plainformer.huggingface import read
from plainformer.mixers import LatentAttention
from plainformer.spec import Attention, Residual, Rotary, Scaling, Spec, Stack
from plainformer.tree import walk
from published_configs import PUBLISHED

pytestmark = pytest.mark.no_shape_names  # no arrays here, and many small calls


def spec_of(name: str, **changes: Any) -> Spec:
    return read(PUBLISHED[name][2] | changes).spec


def attentions(stack: Stack | None) -> list[Attention]:
    return [part for _, part in walk(stack) if isinstance(part, Attention)]


def norms(spec: Spec) -> set[tuple[bool, bool, bool]]:
    """For each kind of residual: a norm before its first part, after it, on the sum."""
    residuals = [part for _, part in walk(spec.main) if isinstance(part, Residual)]
    first = [(residual.branches[0], residual.norm_sum) for residual in residuals]
    return {(bool(branch.norm_in), bool(branch.norm_out), bool(norm_sum)) for branch, norm_sum in first}


def test_each_family_puts_its_norms_where_its_paper_does() -> None:
    before, after, on_sum, both = (True, False, False), (False, True, False), (False, False, True), (True, True, False)
    places = {"gpt2": before, "llama-3-8b": before, "gemma-2b": before, "t5-small": before, "nemotron-3-nano": before}
    places |= {"olmo2-7b": after, "olmo3-32b": after, "gemma-2-2b": both, "gemma-3-4b": both, "gemma-4-26b-a4b": both}
    places |= {"bert-base": on_sum, "albert-xxlarge": on_sum, "bart-base": on_sum, "opt-350m": on_sum}
    assert {name: norms(spec_of(name)) for name in places} == {name: {place} for name, place in places.items()}


def test_albert_passes_through_its_groups_in_turn() -> None:
    stack = spec_of("albert-xxlarge", num_hidden_layers=6, num_hidden_groups=3, inner_group_num=2).encoder
    assert stack is not None
    assert stack.passes == (0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5)
    once = spec_of("albert-xxlarge").encoder
    assert once is not None
    assert once.passes == (0,) * 12


def test_parallel_branches_share_a_residual() -> None:
    stack = spec_of("pythia-70m").main
    assert {len(residual.branches) for layer in stack.layers for residual in layer} == {2}
    assert {len(layer) for layer in spec_of("pythia-70m", use_parallel_residual=False).main.layers} == {2}


def test_a_scaling_reaches_the_layers_that_see_all_and_no_window() -> None:
    scaling = {"rope_type": "linear", "factor": 8.0}
    text = PUBLISHED["gemma-3-4b"][2]["text_config"] | {"rope_scaling": scaling}
    stretched = Scaling(kind="linear", settings=(("factor", 8.0),))
    for spec in (spec_of("gemma-3-4b", text_config=text), spec_of("olmo3-32b", rope_scaling=scaling)):
        found = {
            (part.window is None, part.scores.rotary and part.scores.rotary.scaling) for part in attentions(spec.main)
        }
        assert found == {(True, stretched), (False, None)}


def test_a_null_old_name_leaves_the_new_one_standing() -> None:
    new = {"rope_parameters": {"rope_type": "linear", "factor": 8.0, "rope_theta": 7.0}}
    assert spec_of("llama-3-8b", rope_scaling=None, **new) == spec_of("llama-3-8b", **new)
    assert spec_of("llama-3-8b", **new) != spec_of("llama-3-8b")


def test_scores_are_scaled_as_each_family_says() -> None:
    scales = {"gpt2": 64**-0.5, "gemma-2-2b": 256**-0.5, "t5-small": 1.0, "gemma-4-26b-a4b": 1.0}
    for name, scale in scales.items():
        assert {part.scores.scale for part in attentions(spec_of(name).main)} == {scale}
    wide = spec_of("gemma-2-2b", query_pre_attn_scalar=144)
    assert {part.scores.scale for part in attentions(wide.main)} == {144**-0.5}


def test_yarn_scales_the_scores_of_deepseek_too() -> None:
    """(0.1 * 1.0 * ln 40 + 1)^2 = 1.8738; DeepSeek-V2, appendix B."""
    yarn = {
        "type": "yarn",
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
    }
    plain, scaled = spec_of("deepseek-v3"), spec_of("deepseek-v3", rope_scaling=yarn)
    first, second = (
        next(part for _, part in walk(spec) if isinstance(part, LatentAttention)) for spec in (plain, scaled)
    )
    assert first.scores.scale == 192**-0.5
    assert second.scores.scale / first.scores.scale == pytest.approx(1.8738, abs=1e-4)
    assert second.scores.rotary is not None
    assert (second.scores.rotary.n_dims, second.scores.rotary.interleaved) == (64, True)


def test_a_quarter_of_each_head_of_neox_is_turned() -> None:
    found = {part.scores.rotary for part in attentions(spec_of("pythia-70m").main)}
    assert found == {Rotary(theta=10000.0, n_dims=16)}


def test_windows_stand_where_each_family_has_them() -> None:
    seen = {
        name: [part.window for part in attentions(spec_of(name).main)][:6] for name in ("gpt-oss-20b", "gemma-2-2b")
    }
    assert seen == {"gpt-oss-20b": [128, None] * 3, "gemma-2-2b": [4096, None] * 3}
    qwen = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 26}
    assert [part.window for part in attentions(spec_of("qwen3-0.6b", **qwen).main)] == [None] * 26 + [9] * 2


def test_the_streams_of_gemma_and_t5_are_scaled_at_their_ends() -> None:
    assert spec_of("gemma-2b").embedding.scale == 2048**0.5
    tied, own = spec_of("t5-small").head, spec_of("t5-v1_1-base").head
    assert tied is not None
    assert own is not None
    assert (tied.scale, own.scale) == (512**-0.5, 1.0)

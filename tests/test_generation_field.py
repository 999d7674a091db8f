"""What people reported of other tools, on the shared checkpoints: F12 to F17, F32 and F38, through the product."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plainformer.checkpoint import load
from plainformer.cli import main
from plainformer.generation import generate
from plainformer.model import Transformer
from plainformer.probing import attention_maps
from plainformer.states import State


@pytest.fixture(scope="module")
def models(field: Path) -> dict[str, Transformer]:
    return {name: load(field / "ckpt" / name) for name in ("gpt2-tiny", "llama-tiny", "coin")}


@pytest.mark.parametrize("name, n_new", [("gpt2-tiny", 5), ("llama-tiny", 8)])
def test_a_short_prompt_is_not_changed_by_its_neighbours(
    name: str, n_new: int, models: dict[str, Transformer], expected: dict[str, Any]
) -> None:
    """F15."""
    want = {prompt: said[f"greedy{n_new}"] for prompt, said in expected[f"batch-{name}"].items()}
    for prompts in (list(want), list(want)[::-1], *([prompt] for prompt in want)):
        found = generate(models[name], [list(prompt.encode()) for prompt in prompts], n_new, temperature=0)
        assert found.new == [want[prompt] for prompt in prompts]


@pytest.mark.parametrize("name", ["gpt2-tiny", "llama-tiny"])
def test_several_new_tokens_on_top_of_a_cache_see_the_right_keys(
    name: str, models: dict[str, Transformer], expected: dict[str, Any]
) -> None:
    """F16."""
    model, said = models[name], expected[name]
    row_BT = torch.tensor([list(said["prompt"].encode())])
    with torch.inference_mode():
        whole_BTV = model(row_BT)
        assert torch.allclose(whole_BTV[0, -1, :6], torch.tensor(said["last_row_first6"]), rtol=0, atol=1e-4)
        for cuts in ([11], [5, 6], [1] * 11):
            state = State(1, 11)
            parts = [model(part, state) for part in row_BT.split(cuts, 1)]
            assert (torch.cat(parts, 1) - whole_BTV).abs().max() < 1e-4
    n_new = 5 if name == "gpt2-tiny" else 8
    for cached in (True, False):
        assert generate(model, row_BT, n_new, temperature=0, cached=cached).new == [said[f"greedy{n_new}"]]


@pytest.mark.parametrize(
    "settings, odds",
    [
        ({"top_k": 2}, [0.6, 0.4, 0, 0]),
        ({"top_k": 50}, [0.45, 0.30, 0.17, 0.08]),
        ({"top_p": 0.4}, [1, 0, 0, 0]),
        ({"top_p": 0.6}, [0.6, 0.4, 0, 0]),
        ({"top_p": 0.8}, [0.489, 0.326, 0.185, 0]),
        ({"top_p": 0.95}, [0.45, 0.30, 0.17, 0.08]),
        ({"top_p": 1.0}, [0.45, 0.30, 0.17, 0.08]),
        ({"temperature": 0.0}, [1, 0, 0, 0]),
        ({"temperature": 0.5}, [0.618, 0.275, 0.088, 0.020]),
    ],
)
def test_the_limits_of_sampling_hold(
    settings: dict[str, Any], odds: list[float], models: dict[str, Transformer]
) -> None:
    """F17: 4,000 draws; a count is further than 130 from its mean once in 10^4."""
    new = np.array(generate(models["coin"], [[0]] * 4000, 1, seed=1, **settings).new).ravel()
    counts = np.bincount(new, minlength=8)
    assert counts[[0, 5, 6, 7]].sum() == 0
    assert np.abs(counts[1:5] - 4000 * np.array(odds)).max() <= 130
    assert (counts[1:5][np.array(odds) == 0] == 0).all()


def test_a_seed_is_a_text_and_samples_differ(models: dict[str, Transformer]) -> None:
    """F38."""
    four = [generate(models["coin"], [[0]] * 4, 40, seed=seed).new for seed in (7, 7, 8)]
    assert four[0] == four[1] != four[2]
    assert len({tuple(row) for row in four[0]}) > 1
    assert generate(models["coin"], [[0]], 40, seed=7).new[0] == four[0][0]


def test_an_automaton_says_what_it_must(
    field: Path, expected: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """F12: a marker typed by a person is text. F13: no half characters. F14: a finished row ends, the other goes on."""

    def said(*words: str) -> str:
        assert main(["generate", str(field / "ckpt" / "chain"), "--greedy", *words]) == 0
        return capsys.readouterr().out

    assert said("--prompt", "A", "--max-new-tokens", "30") == f"A{expected['chain-A']['as_text']}\n"
    assert said("--prompt", "A", "--max-new-tokens", "5") == "A éB\ufffd\n"
    assert said("--prompt", "<|endoftext|>", "--max-new-tokens", "3") == "<|endoftext|>RST\n"
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("A\nx\n")
    rows = json.loads(said("--prompts", str(prompts), "--max-new-tokens", "30", "--json"))["rows"]
    assert [row["tokens"] for row in rows] == [expected["chain-A"]["new_ids"], expected["chain-x"]["new_ids"]]
    assert [row["finish_reason"] for row in rows] == ["stop", "length"]


def test_attention_maps_are_not_empty(models: dict[str, Transformer], expected: dict[str, Any]) -> None:
    """F32."""
    maps = list(attention_maps(models["gpt2-tiny"], list(b"Hello")).values())
    assert np.shape(maps) == (2, 2, 5, 5)
    want = expected["inspect-gpt2-tiny"]
    assert np.abs(maps[0][0] - want["layer0_head0"]).max() < 1e-3
    assert np.abs(maps[1][1][-1] - want["layer1_head1_last_row"]).max() < 1e-3

"""A run loads what it uses: none of torch.compile, and torch's own AdamW to the bit without its method."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.optim import AdamW

from plainformer.training.optimizers import Adam

RUN = """
import sys
from plainformer.cli import main
status = main(sys.argv[1:])
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
sys.exit(status)
"""


@pytest.mark.parametrize("optimizer", ["muon", "adamw"])
def test_a_run_from_its_text_to_its_end_loads_no_compiler(tmp_path: Path, optimizer: str) -> None:
    (tmp_path / "text.txt").write_text("a stitch in time saves nine. " * 400, encoding="utf-8")
    words = ["train", "text.txt", "--out", "run", "--preset", "tiny", "--steps", "2", "--optimizer", optimizer]
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *words, "--quiet", "--json"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_is_torch_s_to_the_bit(decay: float) -> None:
    torch.manual_seed(0)
    first = [torch.randn(5, 7), torch.randn(3)]
    both = []
    for kind in (Adam, AdamW):
        weights = [torch.nn.Parameter(w.clone()) for w in first]
        optimizer = kind([{"params": weights, "weight_decay": decay}], lr=0.01, betas=(0.8, 0.9), fused=True)
        generator = torch.Generator().manual_seed(1)
        for step in range(5):
            for w in weights:
                w.grad = torch.randn(w.shape, generator=generator)
            optimizer.param_groups[0]["lr"] = 0.01 / (1 + step)
            optimizer.step()
        both.append([*weights, *(y for w in weights for y in optimizer.state[w].values())])
    assert all(torch.equal(a, b) for a, b in zip(*both, strict=True))
    assert len(both[0]) == 2 + 2 * 3


def test_adam_moves_nothing_where_it_is_told_of_a_bad_gradient() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = Adam([weight], lr=0.1, fused=True)
    weight.grad = torch.full((3,), torch.nan)
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert torch.equal(weight, torch.ones(3))

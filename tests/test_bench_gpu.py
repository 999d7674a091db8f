"""The program that measures on a GPU: all of its way on a processor, in small; without a GPU a refusal in a line."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
import torch

from conftest import ROOT
from plainformer.training import passing

pytestmark = [
    pytest.mark.no_shape_names,  # what is traced is not watched
    pytest.mark.filterwarnings("ignore"),  # of torch's own tracing
]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "bench")
    monkeypatch.setattr(passing, "BACKEND", passing.BACKEND)  # what --tiny sets is set back
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return import_module("gpu")


def test_all_that_is_measured_on_a_gpu_is_done_on_a_processor_in_small(gpu: Any, capsys: Any) -> None:
    assert gpu.main(["--device", "cpu", "--tiny"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["what", "tokens/s", "ms", "of", "the", "peak", "memory"]
    asked = [f"a step in {what}" for what in gpu.TRAINED]
    asked += [f"a token in {what}, {n} at once" for what in gpu.DECODED for n in ("1 row", "2 rows")]
    assert [line[: len(what)] for line, what in zip(lines[1:], asked, strict=False)] == asked
    assert lines[len(asked) + 1] == ""
    for line, what in zip(lines[1:], asked, strict=False):
        speed, ms, share, held = line[len(what) :].split()
        assert float(speed.replace(",", "")) > 0
        assert float(ms.replace(",", "")) > 0
        assert share == "unknown" or 0 <= int(share.rstrip("%")) <= 100
        assert held == "-"  # of a GPU alone
    assert "64 tokens a step" in lines[-1]


@pytest.mark.parametrize("flags, said", [([], "there is no GPU here"), (["--device", "cpu", "--save"], "a GPU did")])
def test_what_cannot_be_measured_is_refused_in_a_line(
    gpu: Any, capsys: Any, monkeypatch: pytest.MonkeyPatch, flags: list[str], said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(flags) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert said in err


def test_a_share_above_the_peak_is_unknown(gpu: Any) -> None:
    assert gpu.told(64, 0.5, 0.25, 10**9) == {
        "tokens/s": "128",
        "ms": "500.00",
        "of the peak": "25%",
        "memory": "1.00 GB",
    }
    assert gpu.told(64, 0.5, 1.01, None)["of the peak"] == "unknown"


def test_the_page_says_whether_a_gpu_was_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    build, tables = import_module("build"), import_module("tables")
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert tables.gpu() in page
    (tmp_path / "docs" / "measured").mkdir(parents=True)
    for module in (build, tables):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    assert "No GPU was at hand" in tables.gpu()
    facts = {"command": "it", "machine": "one", "date": "now", "columns": ["what"], "rows": [{"what": "a step"}]}
    (tmp_path / "docs" / "measured" / "gpu.json").write_text(json.dumps(facts))
    assert "No GPU" not in tables.gpu()
    assert "| a step |" in tables.gpu()

"""docs/names.md says the truth: every row of its tables is a line that holds, or has a line in the limits."""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from plainformer.cli import main

NAMES = (ROOT / "docs" / "names.md").read_text(encoding="utf-8")
LIMITS = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
SETUP = re.compile(r"```python setup\n(.*?)```", re.S)
NOT_YET = "[not yet](limits.md)"


@dataclass(frozen=True)
class Row:
    theirs: str
    ours: str
    shown: str


def rows() -> Iterator[Row]:
    for line in NAMES.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if line.startswith("|") and not set(line) <= set("|- ") and cells[-1] != "shown":
            assert len(cells) == 3, f"a row of three cells: {line}"
            yield Row(*cells)


def name_of(row: Row) -> str:
    return row.theirs.split("`")[1].split("(")[0] if "`" in row.theirs else row.theirs[:20]


@pytest.fixture(scope="module")
def scope() -> dict[str, Any]:
    """What the page begins from."""
    found = SETUP.search(NAMES)
    assert found, "the page has lost its setup"
    made: dict[str, Any] = {}
    exec(compile(found[1], "names.md", "exec"), made)
    return made


@pytest.mark.parametrize("row", list(rows()), ids=name_of)
def test_a_name_means_what_the_page_says(
    row: Row,
    scope: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if row.shown == NOT_YET:
        name = name_of(row)
        assert f"`{name}" in LIMITS, f"{name} is not there yet, and docs/limits.md does not say so"
        return
    assert row.shown.startswith("`"), "the third cell is a line to run"
    assert row.shown.endswith("`"), "the third cell is a line to run"
    line = row.shown.strip("`")
    if line.startswith("make "):
        assert re.search(f"^{line.removeprefix('make ')}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    elif line.startswith("plainformer "):
        monkeypatch.chdir(tmp_path)
        assert main(shlex.split(line)[1:]) == 0
        assert capsys.readouterr().out or os.listdir(tmp_path)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert eval(compile(line, "names.md", "eval"), scope)


def test_the_page_has_rows() -> None:
    assert len(list(rows())) > 100

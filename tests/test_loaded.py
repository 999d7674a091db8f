"""L3 from folders: each family as its class in transformers saves it, loaded by pf.load in float32."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from conftest import ROOT
from loaded import FAMILIES, found
from plainformer.huggingface.tables import TABLES
from strangers import STRANGERS, made

CLOSE = 2e-5  # of the largest logit


@pytest.mark.parametrize("which", [which for strangers in FAMILIES.values() for which in strangers])
def test_a_family_loads_says_the_same_and_comes_back(which: str, tmp_path: Path) -> None:
    this = found(which, tmp_path)
    assert this.gap <= CLOSE
    assert this.equal == this.chosen > 0
    assert this.same


def test_every_family_with_a_table_is_held() -> None:
    """But for other names of the same layout."""
    held = {made(STRANGERS[which]).config.model_type for strangers in FAMILIES.values() for which in strangers[:1]}
    assert TABLES.keys() - held == {"xlm-roberta", "camembert"}


def test_what_is_new_counts_the_families() -> None:
    told = re.search(r"Folders of\s+(\d+) families", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert told is not None
    assert int(told[1]) == len(FAMILIES)


def test_the_page_of_models_lists_what_these_tests_hold() -> None:
    rows = json.loads((ROOT / "docs" / "measured" / "models.json").read_text(encoding="utf-8"))["rows"]
    assert [row["family"] for row in rows] == list(FAMILIES)
    for row in rows:
        assert float(row["logits, float32"]) <= CLOSE, row
        equal, _, chosen = row["best tokens"].partition(" of ")
        assert equal == chosen, row
        assert row["out again"] == "as it was", row

"""The behaviours of a GPT, asked of the reference and of the model; and the shared project's own checks of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from adapters import ADAPTERS
from plainformer.check.behaviours_whole import CHECKS

PAIRS = [(ad, name) for ad in ADAPTERS for name, (needs, _) in CHECKS.items() if needs <= ad.caps]
DEMANDED = {"LN", "FF", "AT", "BL", "GP", "GN", "KV", "MO"}  # of both; of the model also GR, TR


@pytest.mark.parametrize("ad, name", PAIRS, ids=[f"{ad.name}-{name}" for ad, name in PAIRS])
def test_a_gpt_behaves(ad: Any, name: str) -> None:
    CHECKS[name][1](ad)


def test_no_demanded_check_is_left_out() -> None:
    for ad in ADAPTERS:
        demanded = DEMANDED | ({"GR", "TR"} if ad.name == "model" else set())
        asked = {name for one, name in PAIRS if one is ad}
        left = {name for name in CHECKS if name[:2] in demanded} - asked
        assert left == ({"LN6"} if ad.name == "reference" else set())  # the reference has no gradients yet


# --- the shared checks as they stand ----------------------------------------------------------------------------------


def shared_checks(text: str) -> ModuleType:
    """The one module in the document's code blocks that binds adapters."""
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "ADAPTERS" in block]
    module = ModuleType("shared_checks")
    exec(compile(code, "behaviours.md", "exec"), vars(module))
    return module


def cases_of(function: Any) -> Iterator[dict[str, Any]]:
    """The arguments that its parametrize marks give, besides the adapter."""
    marks = [mark for mark in getattr(function, "pytestmark", []) if mark.name == "parametrize"]
    assert len(marks) <= 1
    if not marks:
        yield {}
        return
    names, rows = marks[0].args
    names = [name.strip() for name in names.split(",")]
    for row in rows:
        yield dict(zip(names, row if len(names) > 1 else [row], strict=True))


SLOW = ("TR1", "TR2")


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.proof)], ids=["quick", "training"])
@pytest.mark.parametrize("ad", ADAPTERS, ids=[ad.name for ad in ADAPTERS])
def test_the_shared_checks_hold_as_they_stand(ad: Any, slow: bool, cases: Path) -> None:
    module = shared_checks((cases / "cases" / "behaviours.md").read_text(encoding="utf-8"))
    checks = {name.split("_")[1]: f for name, f in vars(module).items() if name.startswith("test_")}
    assert set(checks) == set(CHECKS)  # ours are the same, id by id
    skipped = set()
    for name, function in checks.items():
        if (name in SLOW) != slow:
            continue
        for case in cases_of(function):
            assert set(inspect.signature(function).parameters) == {"ad", *case}
            try:
                function(ad=ad, **case)
            except pytest.skip.Exception:
                skipped.add(name)
    without = set(SLOW) if slow else {"LN6", "GR1", "GR2"}
    assert skipped == (without if ad.name == "reference" else set())  # it has no gradients yet

"""Records are the standard library's frozen data classes in all that can be seen of them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest

from plainformer import mixers, records, spec
from plainformer.faults import Fault, PlainformerError
from plainformer.ledger import Weight
from plainformer.presets import presets
from plainformer.tree import walk

CLASSES = [kind for room in (spec, mixers) for kind in vars(room).values() if hasattr(kind, "__record__")]


def twin(kind: Any, *, kw_only: bool) -> Any:
    """The same class made by the standard library."""
    body = {"__annotations__": kind.__annotations__, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    defaults = {name: vars(kind)[name] for name in kind.__annotations__ if name in vars(kind)}
    return dataclasses.dataclass(frozen=True, kw_only=kw_only)(type(kind.__name__, (), body | defaults))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: str(kind.__name__))
def test_a_record_is_seen_as_the_standard_library_would_have_it(kind: Any) -> None:
    other = twin(kind, kw_only=True)
    assert dataclasses.is_dataclass(kind)
    for ours, theirs in zip(dataclasses.fields(kind), dataclasses.fields(other), strict=True):
        assert (ours.name, ours.type, ours.default) == (theirs.name, theirs.type, theirs.default)
    assert inspect.signature(kind) == inspect.signature(other)
    assert kind.__match_args__ == other.__match_args__
    assert records.fields_of(kind) == tuple(field.name for field in dataclasses.fields(other))
    assert records.fields_of(other) == records.fields_of(kind)


def test_records_print_compare_hash_and_copy_as_the_standard_library_has_it() -> None:
    other = twin(Weight, kw_only=False)
    ours, theirs = Weight("a.weight", (2, 3), begins=0.0), other("a.weight", (2, 3), begins=0.0)
    assert repr(ours) == repr(theirs)
    assert hash(ours) == hash(theirs)
    assert ours == Weight(begins=0.0, shape=(2, 3), name="a.weight") != dataclasses.replace(ours, name="b")
    assert ours != theirs
    assert dataclasses.replace(ours, kind="head") == records.replace(ours, kind="head") != ours
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert list(vars(ours)) == list(vars(theirs))
    whole = presets["gpt2"]
    assert pickle.loads(pickle.dumps(whole)) == copy.deepcopy(whole) == whole
    assert {part for _, part in walk(whole)} == {part for _, part in walk(copy.deepcopy(whole))}


def test_a_copy_is_checked_where_the_first_was() -> None:
    """A whole spec is held to its rules however it is made."""
    whole = presets["gpt2"]
    with pytest.raises(PlainformerError, match="max_seq_len"):
        records.replace(whole, max_seq_len=0)


def test_nothing_of_a_record_is_changed_and_nothing_is_made_of_wrong_fields() -> None:
    fault = Fault("n_heads", 3, "must be even")
    with pytest.raises(dataclasses.FrozenInstanceError):
        fault.value = 4  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del fault.value
    for args, given in (
        ((), {"where": "a"}),
        (("a", 1, "b"), {"other": 2}),
        (("a", 1, "b"), {"where": "a"}),
        (("a", 1, "b", "c", "d"), {}),
    ):
        with pytest.raises(TypeError, match="Fault"):
            Fault(*args, **given)
    with pytest.raises(TypeError, match="Linear"):
        spec.Linear(4, 4)  # type: ignore[misc]
    with pytest.raises(TypeError, match="Linear"):
        records.replace(spec.Linear(n_in=4, n_out=4), n_heads=1)


def test_sizing_a_config_loads_none_of_what_standard_data_classes_need(tmp_path: Any) -> None:
    """And few modules in all: how many bounds the time to start, whatever the machine."""
    code = (
        "import sys; before = set(sys.modules); from plainformer.cli import main; main(['size', 'gpt2', '--json']);"
        "print(len(set(sys.modules) - before), *sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    n, *loaded = done.stderr.split()
    assert not {"dataclasses", "inspect", "ast", "tokenize", "pathlib", "difflib", "rich", "numpy"} & {*loaded}
    assert int(n) < 75


def test_a_model_of_61_layers_takes_little_more_work_than_one_of_12(capsys: pytest.CaptureFixture[str]) -> None:
    """Layers that are alike are read once: what is left is to name their weights. Counted in calls, so that no machine
    is too slow; read layer by layer it was twenty times as many."""
    from plainformer.cli import main

    def calls(name: str) -> int:
        main(["size", name, "--json"])  # modules are loaded, presets made
        found = 0

        def count(frame: object, event: str, _: object) -> None:
            nonlocal found
            found += event == "call"

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            main(["size", name, "--json"])
        finally:
            sys.setprofile(before)
        return found

    small, large = calls("gpt2"), calls("deepseek-v3")
    assert large < 5 * small, (small, large)

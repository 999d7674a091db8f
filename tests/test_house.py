"""The laws of the house: one reading a room, imports one way, one version, plain files, names that tell the truth."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import plainformer
from conftest import ROOT, ShapeNames, is_a_known_limit, package_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SOURCE = ROOT / "src" / "plainformer"
ROOM_CAPS = {"spec": 300, "ledger": 250, "reference": 450, "model": 600}  # a room, be it a file or a folder
FILE_CAP = 400
LIGHT = [
    *("records", "faults", "spec", "tree", "mixers", "fitting", "families", "ledger"),
    *("presets", "huggingface", "conventions", "cost", "report", "source", "cli"),
]
TOP_LEVEL = {
    *("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md"),
    *("Makefile", "pyproject.toml", "constraints.txt", ".gitignore", ".ci"),
    *("src", "tests", "docs", "bench"),
}
FORBIDDEN = {  # spelled so that this file holds none of them
    "a path of one machine": r"(?<![\w.])/" + r"(?:work|tmp|root|home)\b",
    "a promise instead of code": r"\b(?:TO" + r"DO|FIX" + r"ME)\b",
    "a registry's host": r"(?i)py" + r"pi\.org|python" + r"hosted|download\.py" + r"torch|npm" + r"js|index-" + r"url",
}


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def rooms() -> dict[str, list[Path]]:
    """Each room and its files."""
    found = {path.stem: [path] for path in SOURCE.glob("*.py") if not path.stem.startswith("__")}
    return found | {path.parent.name: sorted(path.parent.rglob("*.py")) for path in SOURCE.glob("*/__init__.py")}


def project_files() -> list[Path]:
    """What git keeps or would keep, as paths below the project."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(line) for line in listed.splitlines() if (ROOT / line).is_file()]


def n_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_a_room_is_read_in_one_sitting() -> None:
    for room, files in rooms().items():
        if room in ROOM_CAPS:
            assert sum(map(n_lines, files)) <= ROOM_CAPS[room], f"{room} outgrew its {ROOM_CAPS[room]} lines"
        else:
            for path in files:
                assert n_lines(path) <= FILE_CAP, f"{path} outgrew its {FILE_CAP} lines"
    assert n_lines(SOURCE / "__init__.py") <= FILE_CAP


def test_every_room_stands_in_the_import_contracts() -> None:
    layers, light, no_torch, *_ = pyproject()["tool"]["importlinter"]["contracts"]
    ordered = {room for line in layers["layers"] for room in re.findall(r"\w+", line)}
    assert set(rooms()) <= ordered, "a room without a place among the layers"
    # The rooms that stand on PyTorch, tokenizers or files; every other one is listed among those that may not.
    heavy = {
        "adapters",
        "rows",
        "fused",
        "model",
        "experts",
        "layers",
        "kernels",
        "states",
        "text",
        "checkpoint",
        "training",
        "generation",
        "probing",
        "porting",
        "measuring",
        "cli",
    }
    with_numpy = {"formulas", "reference", "gradients", "initial", "lessons", "check", "exercises"}
    expected = {f"plainformer.{room}" for room in set(rooms()) - heavy}
    numpy_rooms = {f"plainformer.{room}" for room in with_numpy}
    assert set(light["source_modules"]) == expected - numpy_rooms, "the contract of the light rooms lists other rooms"
    assert set(no_torch["source_modules"]) == expected & numpy_rooms, "the contract without torch lists other rooms"


@pytest.mark.parametrize("module", ["plainformer", *(f"plainformer.{room}" for room in LIGHT if room in rooms())])
def test_a_light_module_loads_neither_torch_nor_numpy(module: str) -> None:
    asked = f"import sys, {module}; print(sorted({{'torch', 'numpy', 'rich'}} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_public_names_are_a_sorted_list_and_all_there() -> None:
    assert list(plainformer.__all__) == sorted(set(plainformer.__all__))
    assert [name for name in plainformer.__all__ if not hasattr(plainformer, name)] == []
    assert set(plainformer.__all__) <= set(dir(plainformer))


def test_the_version_is_the_newest_heading_of_the_changelog() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None
    assert pyproject()["project"]["version"] == newest[1]


def test_the_installed_version_is_the_project_s() -> None:
    assert metadata.version("plainformer") == pyproject()["project"]["version"]


def test_every_requirement_is_pinned_for_this_python() -> None:
    """All that `make` installs by name, and all that this brings; torch pins its own CUDA parts."""
    from packaging.markers import Marker
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    pins: dict[str, str] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        found = re.match(r"(\S+)==([^\s;]+)(?:; (.+))?$", line)
        if found and (found[3] is None or Marker(found[3]).evaluate()):
            assert found[1] not in pins, f"{found[1]} is pinned twice"
            pins[found[1]] = found[2]
    extras = pyproject()["project"]["optional-dependencies"]
    first = [*pyproject()["project"]["dependencies"], *(one for extra in extras.values() for one in extra)]
    waiting = [one for text in first if (one := Requirement(text)).name != "plainformer"]
    seen: set[str] = set()
    while waiting:
        name = canonicalize_name((requirement := waiting.pop()).name)
        if name in seen:
            continue
        seen.add(name)
        assert name in pins, f"{requirement} has no pin in constraints.txt"
        try:
            installed = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # an extra that the tests don't need
            continue
        assert installed.version.split("+")[0] == pins[name], f"{name} {installed.version} is not what is pinned"
        needs = [Requirement(text) for text in installed.requires or () if name != "torch"]
        waiting += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]


def test_first_sight_is_short() -> None:
    assert {path.parts[0] for path in project_files()} <= TOP_LEVEL


def test_no_file_speaks_of_one_machine_or_puts_off_its_work() -> None:
    found = []
    for path in project_files():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for what, pattern in FORBIDDEN.items():
            found += [f"{path}: {what}: {hit[0]}" for hit in re.finditer(pattern, text)]
    assert found == []


def test_types_are_shipped() -> None:
    assert (SOURCE / "py.typed").is_file()


def test_a_skip_is_known_only_by_its_row_in_the_limits() -> None:
    assert is_a_known_limit("shared cases absent: here or there")
    assert not is_a_known_limit("could not import 'torch'")


# --- the hook that compares names with arrays -------------------------------------------------------------------------

LAW = """
def f(q_BTHK, k_BSHK, fails=False):
    scores_BHTS = q_BTHK.transpose(0, 2, 1, 3) @ k_BSHK.transpose(0, 2, 3, 1)
    {line}
    if fails:
        raise ValueError
"""
TRUE = ["pass", "out_1BHTS = scores_BHTS[None]", "count_T = 3", "mask_TT = scores_BHTS[0, 0][:, :2]", "x_1 = q_BTHK"]
FALSE = {
    "out_BTHS = scores_BHTS": "T is 2 in q_BTHK but 5 in out_BTHS",
    "out_HTS = scores_BHTS": "out_HTS has shape (3, 5, 2, 4), which is 4 axes for 3 letters",
    "mask_SS = scores_BHTS[0, 0]": "S is 4 in k_BSHK but 2 in mask_SS",
    "out_1HTS = scores_BHTS": "1 is 1 in its own letter but 3 in out_1HTS",
    "scores_BHTS = scores_BHTS[1:]": "B is 3 in q_BTHK but 2 in scores_BHTS",
    "one_T = (lambda: q_BTHK)() and 0 if False else q_BTHK[0, :1, 0, 0]": "T is 2 in q_BTHK but 1 in one_T",
}


def as_if_in(folder: str, line: str) -> Callable[..., None]:
    scope: dict[str, Any] = {}
    exec(compile(LAW.format(line=line), folder + "imagined.py", "exec"), scope)
    f: Callable[..., None] = scope["f"]
    return f


@pytest.fixture
def heads() -> tuple[Any, Any]:
    return np.ones((3, 2, 5, 7)), np.ones((3, 4, 5, 7))


@pytest.mark.no_shape_names
@pytest.mark.parametrize("line", TRUE)
def test_a_true_name_passes(line: str, heads: tuple[Any, Any]) -> None:
    with ShapeNames(package_folder()).watching():
        as_if_in(package_folder(), line)(*heads)


@pytest.mark.no_shape_names
@pytest.mark.parametrize("line", FALSE)
def test_a_name_that_lies_is_told_by_file_function_and_letter(line: str, heads: tuple[Any, Any]) -> None:
    f = as_if_in(package_folder(), line)
    with pytest.raises(AssertionError) as told, ShapeNames(package_folder()).watching():
        f(*heads)
    assert "imagined.py:" in str(told.value)
    assert f"in f: {FALSE[line]}" in str(told.value)


@pytest.mark.no_shape_names
def test_a_name_is_held_to_a_tensor_too(heads: tuple[Any, Any]) -> None:
    import torch

    f = as_if_in(package_folder(), "out_BTHS = torch.zeros(scores_BHTS.shape)")
    f.__globals__["torch"] = torch
    told = pytest.raises(AssertionError, match="T is 2 in q_BTHK but 5 in out_BTHS")
    with told, ShapeNames(package_folder()).watching():
        f(*heads)


@pytest.mark.no_shape_names
def test_code_of_others_may_use_any_names(heads: tuple[Any, Any]) -> None:
    with ShapeNames(package_folder()).watching():
        as_if_in("elsewhere/", "out_BTHS = scores_BHTS")(*heads)


@pytest.mark.no_shape_names
def test_a_function_that_refuses_its_input_has_told_no_lie(heads: tuple[Any, Any]) -> None:
    with ShapeNames(package_folder()).watching(), pytest.raises(ValueError):
        as_if_in(package_folder(), "out_BTHS = scores_BHTS")(*heads, fails=True)


def test_the_watched_folder_is_where_the_package_comes_from() -> None:
    from plainformer import faults

    assert faults.refuse.__code__.co_filename.startswith(package_folder())

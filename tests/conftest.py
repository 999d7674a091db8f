"""What every test stands on: one thread, warnings as errors, the shared cases, and names that tell the truth.

A local named like `q_BTHK` promises a tensor with four axes, and one size for each letter within its function. While a
test runs, every function of plainformer that returns is held to that; the test that made a name lie fails.
"""

from __future__ import annotations

import os

# Before numpy or torch are loaded: the workers share the cores, and a sum keeps its order.
os.environ.update({"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"})

import dis
import importlib.util
import json
import re
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

settings.register_profile("plainformer", deadline=None, derandomize=True, database=None)
settings.load_profile("plainformer")


@pytest.fixture(scope="session")
def cases() -> Path:
    """The root of the shared cases: PLAINFORMER_CASES, or `../shared` beside the project."""
    root = Path(os.environ.get("PLAINFORMER_CASES") or ROOT.parent / "shared")
    if root.is_dir():
        return root
    reason = f"shared cases absent: {root} is no folder; PLAINFORMER_CASES names another"
    if os.environ.get("PLAINFORMER_REQUIRE_CASES"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def field(cases: Path) -> Path:
    """The hand-made inputs of the faults that users met."""
    return cases / "cases" / "field" / "hand"


@pytest.fixture(scope="module")
def expected(field: Path) -> dict[str, Any]:
    """What is right for each of them."""
    said: dict[str, Any] = json.loads((field / "expected.json").read_text(encoding="utf-8"))
    return said


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What a command says that must end with 2, in two lines at most and without a fault of ours."""

    from plainformer.cli import main

    def of(*words: object) -> str:
        capsys.readouterr()
        assert main([str(word) for word in words]) == 2
        said = capsys.readouterr().err
        assert len(said.splitlines()) <= 2
        assert "our fault" not in said
        return said

    return of


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Exit status, stdout and stderr of a command line."""

    from plainformer.cli import main

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = main(words)
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


# --- no silent skip ---------------------------------------------------------------------------------------------------


def is_a_known_limit(reason: str) -> bool:
    """Whether docs/limits.md says, between backticks at the start of a row, what this reason begins with."""
    rows = re.findall(r"^\| `([^`]+)`", (ROOT / "docs" / "limits.md").read_text(encoding="utf-8"), re.MULTILINE)
    return any(reason.startswith(row) for row in rows)


def refuse_unknown_skips(report: pytest.TestReport | pytest.CollectReport) -> None:
    """With PLAINFORMER_STRICT_SKIPS set, a skip that docs/limits.md doesn't list (a missing extra) is a failure."""
    if not os.environ.get("PLAINFORMER_STRICT_SKIPS") or not report.skipped or hasattr(report, "wasxfail"):
        return
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not is_a_known_limit(said.removeprefix("Skipped: ")):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: skipped for a reason that docs/limits.md does not list: {said}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    refuse_unknown_skips(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    refuse_unknown_skips(report)
    return report


# --- names that tell the truth ----------------------------------------------------------------------------------------

SHAPED = re.compile(r"_([A-Z1]*[A-Z][A-Z1]*)$")  # `bias_1HTS`: the first axis has size 1
LEAVES = {dis.opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE") if name in dis.opmap}


def package_folder() -> str:
    """Where the package that the tests import lies, in place or installed."""
    found = importlib.util.find_spec("plainformer")
    assert found, "plainformer is not installed"
    assert found.submodule_search_locations
    return os.path.join(next(iter(found.submodule_search_locations)), "")


class ShapeNames:
    """A function for `sys.setprofile`. It collects the lies: an error raised in a profile function unsets it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.lies: dict[str, None] = {}  # in order, each once
        # By id, for hashing a code object reads all of it; the code is kept, so that its id stays its own.
        self.seen: dict[int, tuple[CodeType, list[tuple[str, str]]]] = {}

    def __call__(self, frame: FrameType, event: str, returned: object) -> None:
        if event == "return" and frame.f_code.co_filename.startswith(self.folder):
            code = frame.f_code
            known = self.seen.get(id(code))
            if known is None:
                own = dict.fromkeys(code.co_varnames + code.co_cellvars)
                shaped = [(name, found[1]) for name in own if (found := SHAPED.search(name))]
                known = self.seen[id(code)] = (code, shaped)
            if known[1] and not (returned is None and is_unwinding(frame)):
                self.compare(frame, known[1])

    def compare(self, frame: FrameType, shaped: list[tuple[str, str]]) -> None:
        kinds = array_kinds()
        sizes: dict[str, tuple[int, str]] = {"1": (1, "its own letter")}
        values = frame.f_locals
        for name, letters in shaped:
            value = values.get(name)
            if type(value) not in kinds:  # exactly: what a compiler puts in a tensor's place has no sizes yet
                continue
            shape = tuple(value.shape)  # type: ignore[union-attr]
            if len(shape) != len(letters):
                self.tell(frame, f"{name} has shape {shape}, which is {len(shape)} axes for {len(letters)} letters")
                continue
            for letter, size in zip(letters, shape, strict=True):
                first, owner = sizes.setdefault(letter, (size, name))
                if size != first:
                    self.tell(frame, f"{letter} is {first} in {owner} but {size} in {name}, of shape {shape}")

    def tell(self, frame: FrameType, lie: str) -> None:
        code = frame.f_code
        self.lies[f"{code.co_filename}:{frame.f_lineno} in {code.co_name}: {lie}"] = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch this thread and those started meanwhile; at the end, if nothing else went wrong, tell the lies."""
        before, before_threads = sys.getprofile(), threading.getprofile()
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(before)
            threading.setprofile(before_threads)
            lies, self.lies = list(self.lies), {}
        if lies:
            raise AssertionError("names that are not true:\n" + "\n".join(lies))


def is_unwinding(frame: FrameType) -> bool:
    """Whether the frame ends by an exception: then its last instruction is not one that returns or yields.

    A function that refuses an array of the wrong shape has told no lie.
    """
    return frame.f_code.co_code[frame.f_lasti] not in LEAVES


def array_kinds() -> tuple[type, ...]:
    """The classes of arrays that are loaded by now; loads none."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    arrays = (numpy.ndarray, numpy.memmap) if hasattr(numpy, "memmap") else ()
    return (*arrays, torch.Tensor, torch.nn.Parameter) if hasattr(torch, "nn") else arrays


shape_names = ShapeNames(package_folder())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    yield from watched(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    yield from watched(item)


def watched(item: pytest.Item) -> Generator[None, None, None]:
    if item.get_closest_marker("no_shape_names"):
        return (yield)
    with shape_names.watching():
        return (yield)

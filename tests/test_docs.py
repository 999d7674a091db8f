"""The pages say what the code does: generated parts are as new, values true, commands there, links alive."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from conftest import ROOT

PAGE_NAMES = ["README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
LESSON_NAMES = [f"docs/lessons/{path.name}" for path in sorted((ROOT / "docs" / "lessons").glob("*.md"))]


def load_build() -> ModuleType:
    found = importlib.util.spec_from_file_location("build", ROOT / "docs" / "build.py")
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


build = load_build()


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in PAGE_NAMES if name != "docs/commands.md"])
def test_every_page_is_what_the_code_gives_now(name: str) -> None:
    assert build.made(text_of(name)) == text_of(name), "out of date; `make docs` makes it anew"


def test_the_help_of_every_command_is_on_its_page() -> None:
    from plainformer.cli import COMMANDS

    page = text_of("docs/commands.md")
    assert re.findall(r"^## (.+)$", page, re.M) == ["plainformer", *(f"plainformer {name}" for name in COMMANDS)]
    if sys.version_info[:2] == build.HELP_PYTHON:
        assert page == build.commands()


@pytest.mark.parametrize("name", PAGE_NAMES + LESSON_NAMES)
def test_what_a_page_says_by_hand_is_true(name: str) -> None:
    assert list(build.faults(ROOT / name, text_of(name))) == []


def known_tests() -> set[str]:
    return {
        f"tests/{path.name}::{node.name}"
        for path in (ROOT / "tests").glob("test_*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }


def test_every_law_names_tests_that_are_there() -> None:
    page = text_of("docs/laws.md")
    sections = re.split(r"^## (L\d+): ", page, flags=re.M)
    laws = dict(zip(sections[1::2], sections[2::2], strict=True))
    assert list(laws) == [f"L{n}" for n in range(1, 11)]
    for law, section in laws.items():
        named = re.findall(r"`(tests/\w+\.py::\w+)`", section)
        assert named, f"{law} names no test"
        assert set(named) <= known_tests(), law


def test_a_part_without_a_rule_is_named_in_the_limits() -> None:
    limits = text_of("docs/limits.md")
    for name, cells in build.tables.rules().items():
        for reading, said in cells.items():
            assert said or f"`{name}`" in limits, f"{name} has no rule in {reading}, and docs/limits.md does not say so"


def test_every_measured_table_says_how_it_was_made() -> None:
    every_page = "".join(map(text_of, PAGE_NAMES))
    for path in (ROOT / "docs" / "measured").glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        for key in ("command", "machine", "date", *(["text"] if "text" in data else ["columns", "rows"])):
            assert data.get(key), f"{path.name} lacks {key}"
        assert all(column in row for row in data.get("rows", []) for column in data["columns"]), path.name
        assert f"<!-- measured: {path.stem} -->" in every_page, f"{path.name} is shown nowhere"


def test_a_table_that_was_never_measured_says_so() -> None:
    page = "<!-- measured: nothing -->\n<!-- end -->\n"
    assert "Not measured here yet" in build.made(page)
    shown = {name for page in PAGE_NAMES for name in re.findall(r"<!-- measured: (\S+) -->", text_of(page))}
    assert {f"{name}.json" for name in shown} <= {path.name for path in (ROOT / "docs" / "measured").glob("*.json")}


def test_every_picture_is_shown_and_suits_light_and_dark() -> None:
    pictures = ROOT / "docs" / "pictures"
    for path in (path for path in pictures.rglob("*") if path.is_file()):
        assert path.suffix == ".svg"
        assert "prefers-color-scheme:dark" in path.read_text(encoding="utf-8"), path.name
        shown = f"pictures/{path.relative_to(pictures).as_posix()}"
        assert shown in "".join(map(text_of, PAGE_NAMES + LESSON_NAMES)), f"{path.name} is shown nowhere"


@pytest.mark.parametrize("name", list(build.DRAWN))
def test_a_picture_of_an_output_is_what_the_command_says_now(name: str) -> None:
    assert (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8") == build.picture(name)


@pytest.mark.parametrize("name", list(build.SHOWN))
def test_a_file_that_a_command_writes_is_what_it_writes_now(name: str) -> None:
    assert text_of(f"docs/examples/{name}") == build.output(build.SHOWN[name])
    assert f"(docs/examples/{name})" in text_of("README.md")


# --- the checker checks -----------------------------------------------------------------------------------------------

WRONG = {
    "a false value": ("<!-- checked -->\n```python\n1 + 1  # 3\n```\n", "gives 2, the page says 3"),
    "a command that is none": ("```sh\nplainformer sise gpt2\n```\n", "sise"),
    "a flag that is none": ("```sh\nplainformer size gpt2 --bach 8\n```\n", "--bach"),
    "a value that cannot be": ("Say `plainformer size gpt2 --batch none`.\n", "--batch"),
    "a verb that is none": ("Say `make coffee`.\n", "coffee"),
    "a dead link": ("[here](nowhere.md)\n", "nowhere.md leads nowhere"),
    "a dead picture": ('<img src="nowhere.svg">\n', "nowhere.svg leads nowhere"),
    "a title that is none": ("[here](docs/laws.md#l11)\n", "no such title"),
    "an option of nothing": ("Give `--bach`.\n", "--bach is an option of no command"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_page_that_is_wrong_is_told(what: str) -> None:
    page, words = WRONG[what]
    assert any(words in fault for fault in build.faults(ROOT / "README.md", page))


def test_a_generated_part_that_was_edited_is_noticed() -> None:
    page = text_of("README.md")
    assert build.made(page.replace("46,702,792,704", "46,702,792,705")) == build.made(page) == page
    edited = text_of("docs/design.md").replace("yield from weights(part.linear)", "yield from weights(part)")
    assert edited != text_of("docs/design.md")
    assert build.made(edited) != edited


def test_check_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale = tmp_path / "stale.md"
    stale.write_text("<!-- runs: plainformer size gpt2 -->\n```text\n```\n", encoding="utf-8")
    monkeypatch.setattr(build, "pages", lambda: [stale])
    monkeypatch.setattr(build, "HELP_PYTHON", (2, 7))
    monkeypatch.setattr(build, "DRAWN", {})
    monkeypatch.setattr(build, "SHOWN", {})
    monkeypatch.setattr(build, "lessons", list)
    monkeypatch.setattr(build.book, "made", list)
    monkeypatch.setattr(build.book, "faults", list)
    said: list[str] = []
    before = stale.read_text(encoding="utf-8")
    assert build.main(["--check"], said.append) == 1
    assert stale.read_text(encoding="utf-8") == before
    assert said == ["stale.md: out of date; `make docs` makes it anew"]
    assert build.main([], said.append) == 0
    assert "124,439,808" in stale.read_text(encoding="utf-8")
    assert build.main(["--check"], said.append) == 0

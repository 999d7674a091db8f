"""The site: it builds without a word, every link on it leads somewhere, nothing is loaded from elsewhere, and what runs
in the reader's browser runs here without torch and NumPy."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

from conftest import ROOT
from plainformer.lessons import Lesson, pages
from plainformer.lessons.cells import written
from plainformer.lessons.telling import all_cells, tell

pytest.importorskip("mkdocs", reason="the extra docs is not installed")
pytest.importorskip("latex2mathml", reason="the extra docs is not installed")
pytestmark = pytest.mark.no_shape_names  # lessons are told; their own tests compare names with arrays

WEB = ROOT / "docs" / "web"
QUIET = {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
each_lesson = pytest.mark.parametrize("lesson", written(), ids=lambda lesson: lesson.name)


def part(name: str) -> ModuleType:
    """A module of docs/web, found as mkdocs finds its hooks."""
    sys.path.insert(0, str(WEB))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(WEB))


class Reader(HTMLParser):
    """A page as a browser takes it in: its places, its links and its menu, what it loads, its blocks of code, its
    words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.menu: set[str] = set()
        self.loaded: list[str] = []
        self.codes: list[str] = []
        self.words = ""
        self.within: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {key: value or "" for key, value in attrs}
        self.ids |= {said[key] for key in ("id", "name") if key in said}
        if tag == "a" and "href" in said:
            self.links.append(said["href"])
            if "nav" in self.within:
                self.menu.add(said["href"].partition("#")[0])
        elif tag in ("img", "script", "link", "iframe") and said.get("rel") not in ("prev", "next"):
            self.loaded += [said[key] for key in ("src", "href") if key in said]
        if tag not in ("img", "link", "meta", "input", "br", "hr"):
            self.within.append(tag)
        if tag == "code" and "pre" in self.within:
            self.codes.append("")

    def handle_endtag(self, tag: str) -> None:
        while tag in self.within and self.within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "code" in self.within:
            if "pre" in self.within:
                self.codes[-1] += data
        elif "article" in self.within:
            self.words += data


def build(to: Path) -> str:
    """Build the site into a folder: what mkdocs had to say."""
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "-f", str(WEB / "mkdocs.yml"), "-d", str(to)]
    ran = subprocess.run(command, env={**os.environ, **QUIET}, capture_output=True, text=True, encoding="utf-8")
    return f"{ran.stdout}{ran.stderr}" if ran.returncode == 0 else f"ended with {ran.returncode}: {ran.stderr}"


def dead(site: Path, found: dict[Path, Reader]) -> list[str]:
    """Links of pages, and what they load, that are no file of the site or no place on its pages."""
    wrong = []
    for path, page in found.items():
        for link in [*page.links, *page.loaded]:
            if re.match(r"(https?:|data:|mailto:|javascript:)", link):
                continue
            where, _, place = unquote(link).partition("#")
            target = (path.parent / where).resolve() if where else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                wrong.append(f"{path.relative_to(site)}: {link}")
            elif place and target in found and place not in found[target].ids:
                wrong.append(f"{path.relative_to(site)}: {link}: no such place")
    return wrong


def test_the_site_builds_and_is_whole(tmp_path: Path) -> None:
    site = tmp_path.resolve() / "site"
    assert build(site) == ""
    found = {path: Reader(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    assert dead(site, found) == []
    for path, page in found.items():
        outside = [link for link in page.loaded if re.match(r"(https?:)?//", link)]
        assert outside == [], f"{path.name} loads what is elsewhere"
        if "source" not in path.relative_to(site).parts:
            assert re.search(r"\$\$|\\[(\[]|markdown=|`|\*\*|\]\(|\| ?--", page.words) is None, (
                f"{path.name}: left as it was typed"
            )

    menu = found[site / "index.html"].menu
    assert {f"{path.stem}.html" for path in (ROOT / "docs").glob("*.md")} <= menu
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    titles = {entry["title"] for entry in index["docs"]}
    assert {"Sizing", "Names", "Limits"} <= titles
    for lesson in written():
        html, book = (site / "lessons" / f"{lesson.page}.{kind}" for kind in ("html", "ipynb"))
        assert f"lessons/{html.name}" in menu
        assert "runs" in found[html].ids
        # The page's buttons find a cell by its text.
        cells = list(all_cells(lesson))
        in_page = {code.strip() for code in found[html].codes}
        in_book = {"".join(cell["source"]).strip() for cell in json.loads(book.read_text(encoding="utf-8"))["cells"]}
        codes = {cell.text.strip() for cell in cells if cell.kind in ("code", "hidden")}
        assert codes - (in_page & in_book) == set(), "a cell that the page or the notebook shows otherwise"
        drawn = [link for link in found[html].loaded if link.endswith(".svg") and "/lessons/" in link]
        n_figures = sum(cell.kind == "figure" for cell in cells)
        assert len(drawn) == 2 * n_figures, "a picture for light pages and one for dark ones"

    wheel = next((site / "web").glob("plainformer-*-py3-none-any.whl"))
    script = "import sys; sys.path.insert(0, sys.argv[1]); from plainformer import cli; cli.main(['size', 'gpt2'])"
    script += "; assert cli.__file__.startswith(sys.argv[1]), cli.__file__"
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    said = subprocess.run(
        [sys.executable, "-c", script, str(wheel)], capture_output=True, text=True, env=env, check=True
    )
    assert "124,439,808" in said.stdout


# --- what a page becomes ----------------------------------------------------------------------------------------------


def test_links_lead_to_the_same_things_on_the_site() -> None:
    page = "[a](../src/plainformer/spec.py) [b](laws.md#l6) [c](../README.md) [d](#here) [e](https://example.org/x)"
    assert part("hooks").relinked(page, "docs/design.md") == (
        "[a](source/src/plainformer/spec.py.md) [b](laws.md#l6) [c](index.md) [d](#here) [e](https://example.org/x)"
    )
    page = '<img src="docs/pictures/size.svg"> [d](docs/design.md) [c](CONTRIBUTING.md)\n```\n[x](docs/y.md)\n```\n'
    assert part("hooks").relinked(page, "README.md") == (
        '<img src="pictures/size.svg"> [d](design.md) [c](contributing.md)\n```\n[x](docs/y.md)\n```\n'
    )
    page = "[s](../../src/plainformer/formulas.py) ![p](../pictures/lessons/block-stream.svg) [c](README.md)"
    assert part("hooks").relinked(page, "docs/lessons/01-block.md") == (
        "[s](../source/src/plainformer/formulas.py.md) ![p](../pictures/lessons/block-stream.svg) [c](README.md)"
    )


def test_a_bar_in_a_table_s_code_is_a_bar() -> None:
    page = "| a | `x \\| y` | b |\nno table: `x \\| y`\n```\n| `x \\| y` |\n```\n"
    assert part("hooks").without_bars(page) == ("| a | `x | y` | b |\nno table: `x \\| y`\n```\n| `x \\| y` |\n```\n")


def test_a_picture_keeps_seven_tenths_of_its_width() -> None:
    hooks = part("hooks")
    found = hooks.PICTURE.search('<p><img alt="a" src="pictures/size.svg" width="645" /></p>')
    made = hooks.in_colour(found, ROOT / "docs")
    assert made.count("min-width: 451px") == 2
    assert 'src="pictures/size.light.svg" class="on-light"' in made
    assert 'src="pictures/size.dark.svg" class="on-dark"' in made


def test_a_linked_folder_brings_its_files() -> None:
    found = part("hooks").linked_sources({"docs/x.md": "[g](../src/plainformer/gradients) [l](laws.md)"})
    assert "src/plainformer/gradients/parts.py" in found
    assert "docs/laws.md" not in found
    page = part("hooks").source_page("src/plainformer/gradients")
    assert "[`parts.py`](gradients/parts.py.md)" in page


def test_a_picture_has_one_form_for_each_colour_of_the_page() -> None:
    picture = (ROOT / "docs" / "pictures" / "size.svg").read_text(encoding="utf-8")
    made = part("hooks").in_both_colours(picture)
    assert set(made) == {".light.svg", ".dark.svg"}
    assert "@media not all" in made[".light.svg"]
    assert "@media all" in made[".dark.svg"]
    assert "prefers-color-scheme" in picture
    assert not any("prefers-color-scheme" in one for one in made.values())


@pytest.mark.parametrize(
    ("tex", "told"),
    [
        (r"\lVert a \rVert", '<mo stretchy="false" lspace="0" rspace="0">‖</mo><mi>a</mi>'),
        (r"\ln p", '<mi>ln</mi><mspace width="0.167em" /><mi>p</mi>'),
        (r"2 \cos(x)", '<mn>2</mn><mspace width="0.167em" /><mi>cos</mi><mo stretchy="false">(</mo>'),
        (r"a = -b", '<mo form="prefix" lspace="0" rspace="0">−</mo><mi>b</mi>'),
        (r"a - b", "<mi>a</mi><mo>−</mo><mi>b</mi>"),
        (r"(a) - b", '<mo stretchy="false">)</mo><mo>−</mo>'),
        (r"\mathbf{1}", "<mn>\U0001d7cf</mn>"),
        (r"\left(\sum_i x_i\right)", "<munder><mo>∑</mo><mi>i</mi></munder>"),
        (r"\frac{1}{\sum_i x_i}", "<msub><mo>∑</mo><mi>i</mi></msub>"),
        (r"x \sim N", '<mo lspace="0.278em" rspace="0.278em">∼</mo>'),
    ],
)
def test_a_formula_is_set_as_latex_sets_it(tex: str, told: str) -> None:
    assert told in part("formulas").mathml(tex, block=True)


def test_a_formula_keeps_its_latex_and_is_left_out_of_the_search() -> None:
    made = part("formulas").mathml(r"a < b", block=False)
    assert 'alttext="a &lt; b"' in made
    assert "data-search-exclude" in made
    assert 'display="inline"' in made


def test_an_unknown_command_in_a_formula_stops_the_build() -> None:
    with pytest.raises(ValueError, match=r"\\nosuch is no command"):
        part("formulas").mathml(r"a \nosuch b", block=False)


# --- Python in the reader's browser -----------------------------------------------------------------------------------

WITHOUT = """
import sys
for name in ("torch", "numpy", "tokenizers", "safetensors"):
    sys.modules[name] = None
exec(open(sys.argv[1], encoding="utf-8").read())
print(command(*sys.argv[2:]))
"""
CONFIG = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}


def asked(line: str, config: str = json.dumps(CONFIG)) -> dict[str, object]:
    """What the box of the sizing page answers, in a Python that has neither torch nor NumPy."""
    command = [sys.executable, "-c", WITHOUT, str(WEB / "cells.py"), line, config]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"}
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", env=env, check=True)
    answer: dict[str, object] = json.loads(ran.stdout)
    return answer


def test_the_box_tells_the_sheet_and_draws_without_torch_and_numpy() -> None:
    said = asked("plainformer size config.json --plot a.svg")
    assert "124,439,808" in str(said["text"])
    assert isinstance(said["pictures"], list)
    assert len(said["pictures"]) == 1
    assert said["pictures"][0].startswith("<svg")


def test_the_box_writes_the_model_s_file() -> None:
    said = asked("plainformer show config.json")
    assert "class " in str(said["text"])
    compile(str(said["text"]), "shown", "exec")


@pytest.mark.parametrize(
    ("line", "config", "told"),
    [
        ("plainformer size config.json", "{", "config.json"),
        ("plainformer size config.json", '{"model_type": "gpt2", "n_embd": -1}', "n_embd"),
        ("plainformer size --nosuch", "{}", "--nosuch"),
        ("plainformer train x.txt --out x", "{}", "begins with plainformer size or plainformer show"),
        ("rm -r x", "{}", "begins with plainformer size"),
        ("plainformer", "{}", "begins with plainformer size"),
        ("", "{}", "begins with plainformer size"),
        ("plainformer size 'x", "{}", "cannot be read"),
    ],
)
def test_the_box_says_what_is_wrong_and_goes_on(line: str, config: str, told: str) -> None:
    said = asked(line, config)
    assert told in str(said["text"])
    assert "Traceback" not in str(said["text"])
    assert said["pictures"] == []


def test_a_cell_runs_after_those_before_it_and_shows_what_it_gives() -> None:
    cells = part("cells")
    cells.lesson.clear()
    assert json.loads(cells.cell(["a = 2", "print('not shown')"], "print(a)\na + 1")) == {
        "text": "2\n3\n",
        "pictures": [],
        "failed": False,
    }
    assert json.loads(cells.cell([], "a"))["text"] == "2\n"
    said = json.loads(cells.cell(["b = 1 / 0"], "a"))
    assert said == {"text": "ZeroDivisionError: division by zero", "pictures": [], "failed": True}
    drawn = "from plainformer.report.drawings import shares\nprint('x')\nshares('t', {'a': {'b': 1}})"
    said = json.loads(cells.cell([], drawn))
    assert said["text"] == "x\n"
    assert said["pictures"][0].startswith("<svg")


@pytest.mark.parametrize(
    "lesson",
    [pytest.param(one, id=one.name, marks=[] if one.name == "block" else pytest.mark.proof) for one in written()],
)
def test_the_last_cell_of_a_lesson_s_page_prints_there_what_the_page_shows(lesson: Lesson) -> None:
    """The whole way of a reader who asks for one cell alone: all before it run first."""
    cells = part("cells")
    cells.lesson.clear()
    told = tell(lesson)
    codes = [p for p in told.pieces if p.kind in ("code", "hidden", "figure", "numbers")]
    last = max(i for i, piece in enumerate(codes) if piece.kind == "code")
    said = json.loads(cells.cell([piece.text for piece in codes[:last]], codes[last].text))
    assert said["text"] == codes[last].output


# --- what is loaded, and who sees it ----------------------------------------------------------------------------------


def test_the_page_served_at_work_is_seen_on_this_machine_alone() -> None:
    from mkdocs.config import load_config

    assert load_config(str(WEB / "mkdocs.yml")).dev_addr == ("127.0.0.1", 8000)


def test_python_for_the_browser_is_one_version() -> None:
    text = (WEB / "mkdocs.yml").read_text(encoding="utf-8")
    assert re.search(r"pyodide: !ENV \[PYODIDE, \"https://[\w./]+/v\d+\.\d+\.\d+/full/\"\]", text)
    scripts = "".join(path.read_text(encoding="utf-8") for path in WEB.glob("*.js"))
    assert re.findall(r"https?://[^\s\"'`]+", scripts) == [], "a script that loads something else"


@pytest.mark.parametrize("name", sorted(path.name for path in WEB.glob("*.js")))
def test_a_script_can_be_read(name: str) -> None:
    node = shutil.which("node")
    if not node:
        pytest.skip("no node")
    ran = subprocess.run([node, "--check", str(WEB / name)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.proof
@each_lesson
def test_a_notebook_runs_in_a_kernel(lesson: Lesson) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed")
    command = "import sys, nbclient, nbformat; nbclient.execute(nbformat.read(sys.stdin, 4), timeout=300)"
    assert nbclient.execute
    assert nbformat.read
    book = pages.notebook(tell(lesson))
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "JUPYTER_PLATFORM_DIRS": "1"}
    ran = subprocess.run([sys.executable, "-c", command], input=book, capture_output=True, encoding="utf-8", env=env)
    assert ran.returncode == 0, ran.stderr[-2000:]

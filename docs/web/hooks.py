"""What the site adds to the pages of docs/: the README as its start, the source that pages link to, notebooks, the
package itself for Python in the browser, formulas as MathML, and pictures for both colours of the page."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from functools import lru_cache
from html import escape, unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from formulas import mathml  # beside this file
from hatchling.builders.wheel import WheelBuilder
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import plainformer as pf
from plainformer.huggingface import write
from plainformer.lessons import pages
from plainformer.lessons.cells import written
from plainformer.lessons.telling import tell

ROOT = Path(__file__).resolve().parent.parent.parent
FIRST = ["sizing", "models", "commands", "recipe", "texts", "scale", "design", "laws", "names", "limits"]
FIRST += ["measurements", "benchmarks", "errata"]
FENCE = re.compile(r"(^```.*?^```[^\n]*$)", re.S | re.M)
LINK = re.compile(r"(\]\(|\b(?:src|href)=\")([^)\s\"]+)")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)
PICTURE = re.compile(r'<img[^>]*?src="([^":]+)\.svg"[^>]*?>')
BY_THE_READER = "@media(prefers-color-scheme:dark)"
LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml", ".sh": "sh", "": "text", ".txt": "text"}


# --- where each file of the project stands on the site ----------------------------------------------------------------


def place(path: str) -> str:
    """Where a file of the project (a path below its root) stands among the site's sources."""
    if path == "README.md":
        return "index.md"
    if "/" not in path and path.endswith(".md"):
        return path.lower()
    if path.startswith("docs/") and path.endswith((".md", ".svg")):
        return path.removeprefix("docs/")
    return f"source/{path}.md"


def origin(site_path: str) -> str:
    """The file of the project behind one of the site's pages."""
    return {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md"}.get(site_path, f"docs/{site_path}")


def targets(text: str, path: str) -> Iterator[tuple[re.Match[str], str, str]]:
    """Each link to a file of the project in a page at that path: where it is said, the file, and the title in it."""
    for part in FENCE.split(text):
        if not part.startswith("```"):
            for said in LINK.finditer(part):
                link, _, title = said[2].partition("#")
                if link and not re.match(r"[a-z]+:", link):
                    yield said, posixpath.normpath(posixpath.join(posixpath.dirname(path), link)), title


def relinked(text: str, path: str) -> str:
    """The page with its links as they must be on the site."""

    def led(said: re.Match[str]) -> str:
        link, mark, title = said[2].partition("#")
        if not link or re.match(r"[a-z]+:", link):
            return said[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link))
        return said[1] + posixpath.relpath(place(target), posixpath.dirname(place(path)) or ".") + mark + title

    return "".join(part if part.startswith("```") else LINK.sub(led, part) for part in FENCE.split(text))


def without_bars(text: str) -> str:
    """The page with `a \\| b` in a table's code as `a | b`: this Markdown would show the stroke that forges want."""

    def bare(row: re.Match[str]) -> str:
        return re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "|"), row[0])

    return "".join(
        part if part.startswith("```") else re.sub(r"^\|.*$", bare, part, flags=re.M) for part in FENCE.split(text)
    )


def source_page(path: str) -> str:
    """A file of the project as a page; of a folder, the files in it."""
    there = ROOT / path
    head = f"---\nsearch:\n  exclude: true\nhide: [toc]\n---\n\n# {there.name}\n\n"
    if there.is_dir():
        names = sorted(file.name for file in there.glob("*.py"))
        return head + "\n".join(f"- [`{name}`]({there.name}/{name}.md)" for name in names) + "\n"
    return f"{head}`{path}`\n\n````{LANGUAGES[there.suffix]}\n{there.read_text(encoding='utf-8').rstrip()}\n````\n"


def linked_sources(texts: dict[str, str]) -> set[str]:
    """The files that the pages link to and that are no pages themselves, and those in folders linked to."""
    found = {target for path, text in texts.items() for _, target, _ in targets(text, path)}
    found = {target for target in found if place(target).startswith("source/")}
    folders = [ROOT / target for target in found if (ROOT / target).is_dir()]
    return found | {str(file.relative_to(ROOT).as_posix()) for folder in folders for file in folder.glob("*.py")}


# --- files ------------------------------------------------------------------------------------------------------------


@lru_cache
def wheel() -> tuple[str, bytes]:
    """The package as pip would install it: pure Python, so a browser's Python takes it too."""
    with TemporaryDirectory() as folder:
        path = Path(next(iter(WheelBuilder(str(ROOT)).build(directory=folder, versions=["standard"]))))
        return path.name, path.read_bytes()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The menu: the lessons in their order, the pages in ours, then any other page of docs/."""
    lessons = [{"All lessons": "lessons/README.md"}]
    lessons += [{f"{one.number}. {one.title}": f"lessons/{one.page}.md"} for one in written()]
    others = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))
    ordered = [*(name for name in FIRST if name in others), *(name for name in others if name not in FIRST)]
    config.nav = [{"Start": "index.md"}, {"Lessons": lessons}, *(f"{name}.md" for name in ordered)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Every file that docs/ has not."""
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")}
    for file in files.documentation_pages():
        texts[f"docs/{file.src_uri}"] = file.content_string
    made: dict[str, str | bytes] = {place(name): texts[name] for name in ("README.md", "CONTRIBUTING.md")}
    made |= {place(path): source_page(path) for path in linked_sources(texts)}
    made |= {f"lessons/{one.page}.ipynb": pages.notebook(tell(one)) for one in written()}
    name, content = wheel()
    made[f"web/{name}"] = content
    for file in list(files):
        if file.src_uri.endswith(".svg"):
            for ending, picture in in_both_colours(file.content_string).items():
                made[file.src_uri.removesuffix(".svg") + ending] = picture
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


# --- pages ------------------------------------------------------------------------------------------------------------


def in_both_colours(picture: str) -> dict[str, str]:
    """A picture that follows the reader's system, as two: for a page that follows the reader's choice on it."""
    dark = picture.replace(BY_THE_READER, "@media all")
    return {".light.svg": picture.replace(BY_THE_READER, "@media not all"), ".dark.svg": dark}


def runs(**what: str) -> str:
    """The mark for run.js that this page's code can run."""
    said = " ".join(f'data-{key}="{escape(value)}"' for key, value in what.items())
    return f'<div id="runs" {said}></div>\n\n'


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links led right, its folds opened to Markdown, and its marks for Python in the browser."""
    where = page.file.src_uri
    if where.startswith("source/"):
        return markdown
    text = without_bars(relinked(markdown, origin(where))).replace("<details>", '<details markdown="1">')
    text = re.sub(r"^(```\w+) .+$", r"\1", text, flags=re.M)  # words after a fence's language are for the tests
    needs = {"pyodide": config.extra["pyodide"], "wheel": wheel()[0]}
    if lesson := next((one for one in written() if where == f"lessons/{one.page}.md"), None):
        book = f"{lesson.page}.ipynb"
        mark = runs(notebook=book, command=f"plainformer learn {lesson.number}", **needs)
        text = re.sub(r"^(In a terminal: .*)$", rf"\1 [As a notebook]({book}).\n\n{mark}", text, count=1, flags=re.M)
    if where == "sizing.md":
        example = json.dumps(write(pf.presets["llama-3-8b"]), indent=2)
        mark = runs(example=example, command="plainformer size config.json --context 8192", **needs)
        text = text.replace("## The sheet", f"{mark}## The sheet", 1)
    return text


def as_mathml(found: re.Match[str]) -> str:
    """A formula that the browser draws itself; search leaves it out."""
    block = found[1] == "div"
    drawn = mathml(unescape(found[2]).strip(), block)
    return f'<div class="formula">{drawn}</div>' if block else drawn


def in_colour(found: re.Match[str], folder: Path) -> str:
    """A picture twice; the page's colours show one of them. It scrolls before its words grow too small to read."""
    width = re.search(r'width="([\d.]+)"', (folder / f"{found[1]}.svg").read_text(encoding="utf-8"))
    assert width, found[1]
    least = f'style="min-width: {0.7 * float(width[1]):.0f}px" loading="lazy"'
    both = (found[0].replace('.svg"', f'.{kind}.svg" class="on-{kind}" {least}', 1) for kind in ("light", "dark"))
    return f'<span class="picture">{"".join(both)}</span>'


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Formulas and pictures as only a site can show them."""
    folder = ROOT / "docs" / posixpath.dirname(page.file.src_uri)
    return PICTURE.sub(lambda found: in_colour(found, folder), FORMULA.sub(as_mathml, html))

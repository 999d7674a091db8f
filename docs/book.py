"""The lessons as pages and pictures: docs/lessons/NN-name.md and docs/pictures/lessons/name-figure.svg."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from plainformer.lessons import pages
from plainformer.lessons.cells import written
from plainformer.lessons.telling import tell

ROOT = Path(__file__).resolve().parent.parent
PAGES, PICTURES = ROOT / "docs" / "lessons", ROOT / "docs" / "pictures" / "lessons"


def made(names: Sequence[str] = ()) -> Iterator[tuple[Path, str]]:
    """Every file of the book and what it holds; with names, the contents and those lessons alone."""
    lessons = written()
    yield PAGES / "README.md", pages.contents(lessons)
    for lesson in (one for one in lessons if not names or one.name in names):
        told = tell(lesson)
        yield PAGES / f"{lesson.page}.md", pages.page(told)
        for name, drawing in told.drawings().items():
            yield PICTURES / name, drawing.svg


def faults(names: Sequence[str] = ()) -> Iterator[str]:
    """What is wrong with the lessons themselves, by file and line; and files that no lesson makes any more."""
    for lesson in written():
        if not names or lesson.name in names:
            yield from tell(lesson).faults
    if names:
        return
    wanted = {path for path, _ in made()}
    for path in sorted([*PAGES.glob("*"), *PICTURES.glob("*")]):
        if path not in wanted:
            yield f"{path.relative_to(ROOT)}: no lesson makes it"

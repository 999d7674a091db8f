"""The outline that every lesson keeps, so that a reader finds the same thing in the same place.

    # Title                              the title in the table of lessons
    ## In practice                       seven labels, in order: PRACTICE
    ## Where it fits                     what came before, what comes after
    ## ...                               sections that build; each has the labels and cells of SECTION, in order
    ## Going deeper                      proofs: each ### has code that runs the proof on numbers
    ## Misconceptions                    **Misconception.** and **Correction.**, in pairs
    ## In twenty seconds                 what to keep
    ## Self-test                         **Question.** and **Answer.**, in pairs
    ## Papers                            the [papers] cell

Everywhere: a figure is followed by **How to read it.**, and a displayed formula outside "Going deeper" by **Symbols.**,
**In words.**, **With the numbers.** and code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

PRACTICE = (
    "In one sentence.",
    "When you need it.",
    "Options.",
    "How to choose.",
    "What it costs.",
    "What breaks.",
    "In the wild.",
)
SECTION = (
    "Everyday picture.",
    "Where the analogy breaks.",
    "Tiny worked example.",
    "<figure>",
    "How to read it.",
    "<formula>",
    "Symbols.",
    "In words.",
    "With the numbers.",
    "<code>",
    "In the library.",
    "<source>",
    "Why it matters.",
)
AFTER_FORMULA = ("Symbols.", "In words.", "With the numbers.", "<code>")
FIRST, LAST = (
    ("In practice", "Where it fits"),
    ("Going deeper", "Misconceptions", "In twenty seconds", "Self-test", "Papers"),
)
PAIRS = {"Misconceptions": ("Misconception.", "Correction."), "Self-test": ("Question.", "Answer.")}
LEAST_PAIRS = 3


@dataclass
class Section:
    """One `##` part of a lesson: what stands in it, in order. A mark is a label, or <figure>, <code>, <source> ..."""

    title: str
    place: str  # file:line
    marks: list[tuple[str, str]] = field(default_factory=list)  # (mark, its place)
    parts: list[tuple[str, str, bool]] = field(default_factory=list)  # (### title, its place, whether it has code)
    n_words: int = 0

    def names(self) -> list[str]:
        return [mark for mark, _ in self.marks]


def missing(wanted: Sequence[str], there: Sequence[str]) -> str | None:
    """The first of `wanted` that does not stand in `there` after those before it."""
    at = 0
    for mark in wanted:
        if mark not in there[at:]:
            return mark
        at = there.index(mark, at) + 1
    return None


def faults(title: str, asked: str, sections: Sequence[Section]) -> Iterator[str]:
    """What is wrong with a lesson's outline. `title`: of the page; `asked`: of the table of lessons."""
    if title != asked:
        yield f"the page is called {title!r}, the table of lessons says {asked!r}"
    titles = [section.title for section in sections]
    for name in (*FIRST, *LAST):
        if titles.count(name) != 1:
            yield f"there must be one section {name!r}"
    if tuple(titles[:2]) != FIRST or tuple(titles[-len(LAST) :]) != LAST:
        yield f"the order is {', '.join((*FIRST, '...', *LAST))}"
    if not set(titles) - {*FIRST, *LAST}:
        yield "no section builds anything"
    for section in sections:
        for fault in section_faults(section):
            yield f"{section.place}: {section.title}: {fault}"
        yield from followed(section)


def section_faults(section: Section) -> Iterator[str]:
    """What one section lacks."""
    there = section.names()
    if section.title == FIRST[0]:
        if lacks := missing(PRACTICE, there):
            yield f"lacks **{lacks}** or has it out of order"
    elif section.title == "Going deeper":
        if not section.parts:
            yield "has no ### part"
        for title, place, code in section.parts:
            if not code:
                yield f"{title} ({place}): a proof is run on numbers: it needs code"
    elif section.title in PAIRS:
        first, second = PAIRS[section.title]
        marks = [mark for mark in there if mark in (first, second)]
        if marks[0::2] != [first] * (len(marks) // 2) or marks[1::2] != [second] * (len(marks) // 2) or len(marks) % 2:
            yield f"every **{first}** is followed by one **{second}**"
        elif len(marks) < 2 * LEAST_PAIRS:
            yield f"has fewer than {LEAST_PAIRS}"
    elif section.title == "Papers":
        if "<papers>" not in there:
            yield "lacks its [papers] cell"
    elif section.title in (*FIRST, *LAST):
        if not section.n_words:
            yield "is empty"
    elif lacks := missing(SECTION, there):
        yield f"lacks {lacks if lacks.startswith('<') else f'**{lacks}**'} or has it out of order"


def followed(section: Section) -> Iterator[str]:
    """Figures without their reading, formulas without their symbols, words, numbers and code."""
    names = section.names()
    for i, (mark, place) in enumerate(section.marks):
        if mark == "<figure>" and names[i + 1 : i + 2] != ["How to read it."]:
            yield f"{place}: a figure is followed at once by **How to read it.**"
        if mark == "<formula>" and section.title != "Going deeper":
            until = names.index("<formula>", i + 1) if "<formula>" in names[i + 1 :] else len(names)
            if lacks := missing(AFTER_FORMULA, names[i + 1 : until]):
                yield f"{place}: a formula is followed by **{lacks}**".replace("**<code>**", "code that runs it")

"""LaTeX as MathML that a browser sets as LaTeX would: latex2mathml reads it; what it leaves to chance is settled."""

from __future__ import annotations

from html import unescape
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import convert_to_element

BARS = ("‖", "∥", "∣", "|")
CLOSING = (")", "]", "}", *BARS, "!")
WITH_LIMITS = ("∑", "∏")
RELATIONS = {":": "0.278em", "∼": "0.278em", "~": "0.278em"}  # read as letters; each stands at this distance
ROWS = ("math", "mrow", "mtd", "msqrt")
THIN = "0.167em"
BOLD_ZERO = 0x1D7CE  # of Unicode's bold digits, which browsers want instead of a style


def mathml(tex: str, block: bool) -> str:
    """A formula for a page, in its own line or in a sentence. Raises ValueError for a command that is not known."""
    element = convert_to_element(tex, display="block" if block else "inline")
    settle(element, block)
    element.set("alttext", tex)
    element.set("data-search-exclude", "")
    if unknown := [text for text in element.itertext() if "\\" in text]:
        raise ValueError(f"{tex}: {unknown[0]} is no command that is known")
    return tostring(element, encoding="unicode")


def words(element: Element) -> str:
    """What an element with no parts shows."""
    return unescape(element.text or "") if not len(element) else ""


def is_function(element: Element) -> bool:
    """log, max, Var; and log with its base."""
    if element.tag in ("msub", "msup", "munder"):
        return is_function(element[0])
    return element.tag in ("mi", "mo") and len(words(element)) > 1 and words(element).isalpha()


def settle(element: Element, tall: bool) -> None:
    """All below an element: bars no higher than letters, signs and functions at LaTeX's distances, limits of sums
    above and below where lines are tall."""
    before: Element | None = None
    children = list(element)
    for child, after in zip(children, [*children, None][1:], strict=True):
        if child.text:
            child.text = unescape(child.text)
        if child.tag == "mo" and words(child) in BARS and "fence" not in child.attrib:
            child.set("stretchy", "false")
            if words(child) != "∣":  # the bar of "given" keeps its distance
                child.attrib |= {"lspace": "0", "rspace": "0"}
        if child.tag == "mo" and words(child) == "−" and stands_alone(before):
            child.attrib |= {"form": "prefix", "lspace": "0", "rspace": "0"}
        if words(child).isdigit() and child.attrib.pop("mathvariant", "") == "bold":
            child.text = "".join(chr(BOLD_ZERO + int(digit)) for digit in words(child))
        if words(child) in RELATIONS:
            child.tag, child.text = "mo", words(child).replace("~", "∼")
            child.attrib |= {"lspace": RELATIONS[words(child)], "rspace": RELATIONS[words(child)]}
        if tall and child.tag in ("msub", "msubsup") and words(child[0]) in WITH_LIMITS:
            child.tag = "munder" if child.tag == "msub" else "munderover"
        settle(child, tall and child.tag in ROWS)
        if element.tag in ROWS and is_function(child):
            space_out(element, child, before, after)
        before = child


def stands_alone(before: Element | None) -> bool:
    """Whether a sign after this belongs to what follows: -x, not a - x."""
    if before is None or before.tag in ("mspace", "mtext"):
        return True
    return before.tag == "mo" and words(before) not in CLOSING


def space_out(row: Element, function: Element, before: Element | None, after: Element | None) -> None:
    """A function stands a thin space from letters, and at no distance from brackets."""
    name = function[0] if len(function) else function
    if name.tag == "mo":
        name.attrib |= {"lspace": "0", "rspace": "0"}
    if after is not None and after.tag not in ("mo", "mspace", "mtext"):
        row.insert(list(row).index(function) + 1, Element("mspace", width=THIN))
    if before is not None and (before.tag not in ("mo", "mspace", "mtext") or words(before) in CLOSING):
        row.insert(list(row).index(function), Element("mspace", width=THIN))

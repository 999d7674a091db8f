"""The prose of a lesson: numbers come from slots, claims carry tags, and what does neither is a fault.

{{expression:format}}            a slot: evaluated where it stands, formatted as in an f-string
`expression`                     code: evaluated too, unless it is a bare word, a file or one of our commands
$...$ and $$...$$                formulas: their constants are their own
[computed]                       ends a claim whose number is in a slot of it, and not typed there
[computed: expression]           ends a claim; the expression must be True
[measured: NAME]                 the claim is what lessons/measured/NAME.json holds
[paper: Vaswani et al. 2017, section 3.2.1]
[source: owner/name@commit, path]
[inference]                      ours: follows from what was said, or is our judgement
[definition]                     says how a word or a letter is used, and claims nothing
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from plainformer.lessons.papers import PAPERS

Names = dict[str, Any]

MATH = re.compile(r"\$\$.+?\$\$|\$[^$\n]+?\$", re.S)
SLOT = re.compile(r"\{\{(.+?)\}\}(?!\})", re.S)
SPAN = re.compile(r"`([^`]+)`")
NESTED = r"\[(?:[^\[\]]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])*\]"  # brackets in brackets, three deep
TAG = re.compile(rf"\[(computed|measured|paper|source|inference|definition)(?::\s+((?:[^\[\]]|{NESTED})+))?\](?!\()")
LABEL = re.compile(r"\*\*([^*]+?[.?!])\*\*\s*")
COMMIT = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{7,40}, \S.*", re.S)
WHERE = "abstract|(sections?|figures?|tables?|pages?|appendix|equations?|algorithm|theorem) "
PLACE = re.compile(WHERE + r"[\w\"'. ,-]+")
# What may stand in a code span without being evaluated: a word, a file's name, a key, a command of ours, a flag.
WORD = re.compile(r"[A-Za-z_]+(?:-[a-z]+)*|[\w./-]+\.(jsonl?|md|py|svg|safetensors|txt|bin|ipynb)|--[a-z-]+")
# Names that hold digits and are no numbers.
NAMED = (
    r"GPT-3\.5|GPT-(?:2|3|4|J)(?: (?:small|medium|large|XL))?|Llama (?:2|3(?:\.1)?)(?: \d+B)?|Mixtral 8x7B|"
    r"Mistral 7B|\bT5\b|"
    r"Qwen[23](?:\.5)?|Gemma [1-4]|OLMo 2|Phi-\d|Pythia-\w+|DeepSeek-V[23]|PaLM 2|BERT-\w+|OPT-\w+|GLM-4|"
    r"H800|Falcon-\w+|"
    r"b?float(?:8|16|32|64)|u?int(?:4|8|16|32|64)|fp(?:8|16|32)|bf16|[AHV]100|H200|T4|4090|8x7B|UTF-8|utf8|base64|"
    r"\bL10\b|\bL[1-9]\b|\b2N\b|\b6ND\b|\bk8s\b|\b[23]D\b|ImageNet-1k|tiktoken"
)
NAMES = re.compile(NAMED.replace(" ", r"\s+"))  # a name may be broken over two lines
DIGIT = re.compile(r"[\w.,]*[\d½⅓¼¾²³⁴][\w.,%]*")

# Blocks that assert nothing of the world, by the label that they begin with; every other one ends with a tag.
UNTAGGED = ("Everyday picture.", "Formula.", "Symbols.", "In words.", "Question.", "Misconception.")


@dataclass(frozen=True)
class Block:
    """A paragraph, an item of a list, a row of a table, a heading, a formula."""

    kind: str  # "heading", "formula", "row", "head" (of a table), "item", "words", "rule"
    text: str
    line: int

    @property
    def label(self) -> str:
        found = LABEL.match(self.text)
        return found[1] if found else ""


def chunks(text: str, line: int) -> Iterator[tuple[str, int]]:
    """The parts between empty lines, each with its first line; a formula's own lines stay together."""
    held: list[str] = []
    for i, one in enumerate(text.splitlines()):
        if one.strip():
            held.append(one)
        elif held:
            yield "\n".join(held), line + i - len(held)
            held = []
    if held:
        yield "\n".join(held), line + len(text.splitlines()) - len(held)


def blocks(text: str, line: int = 1) -> Iterator[Block]:
    """A cell's prose as blocks."""
    for chunk, at in chunks(text, line):
        lines = chunk.splitlines()
        if lines[0].startswith("#"):
            yield Block("heading", lines[0], at)
            if lines[1:]:
                yield Block("words", "\n".join(lines[1:]), at + 1)
        elif chunk.startswith("$$"):
            yield Block("formula", chunk, at)
        elif lines[0].startswith("|"):
            rows: list[tuple[str, int]] = []
            for i, one in enumerate(lines):
                if one.startswith("|"):
                    rows.append((one, at + i))
                else:  # a long row goes on, indented
                    rows[-1] = f"{rows[-1][0]} {one.strip()}", rows[-1][1]
            for i, (row, where) in enumerate(rows):
                yield Block("head" if i == 0 else "rule" if i == 1 else "row", row, where)
        else:
            held: list[str] = []
            first = at
            for i, one in enumerate(lines):
                if re.match(r"(-|\d+\.) ", one) and held:
                    yield Block("item" if re.match(r"(-|\d+\.) ", held[0]) else "words", "\n".join(held), first)
                    held, first = [], at + i
                held.append(one)
            yield Block("item" if re.match(r"(-|\d+\.) ", held[0]) else "words", "\n".join(held), first)


def without(text: str, *patterns: re.Pattern[str]) -> str:
    for pattern in patterns:
        text = pattern.sub(" ", text)
    return text


def numbers(block: Block) -> Iterator[str]:
    """Digits that no code made."""
    for formula in MATH.findall(block.text):
        if not re.search(r"[A-Za-z]", formula):
            yield f"a number dressed as a formula: {formula}; use a slot"
    bare = re.sub(r"^\d+\. ", "", block.text) if block.kind == "item" else block.text
    bare = without(bare, MATH, SLOT, SPAN, TAG, re.compile(r"\]\([^)]*\)"), NAMES)
    for found in DIGIT.findall(bare):
        yield f"a number that no code made: {found}; use a slot, as {{{{n:,}}}}"


def tagged(block: Block, then: Block | None, label: str = "") -> bool:
    """Whether a block need not end with a tag, or does. `then`: the block after it; `label`: of what a row or an item
    stands under."""
    if block.kind in ("heading", "formula", "head", "rule") or block.label in UNTAGGED:
        return True
    if block.kind in ("row", "item") and label in UNTAGGED:
        return True
    text = block.text.rstrip().rstrip("|").rstrip()
    if LABEL.fullmatch(block.text.rstrip()) or (
        text.endswith(":") and then and then.kind in ("item", "head", "formula", "code")
    ):
        return True  # it only leads to what follows
    return any(tag.end() == len(text) for tag in TAG.finditer(text))


def value(expression: str, names: Names) -> str:
    """What a slot says. Raises whatever the expression raises."""
    return str(eval(compile(f'f"""{{{expression.strip()}}}"""', "slot", "eval"), names))


@dataclass
class Claim:
    """What a tag stands behind: the words since the tag before, or, where two tags stand together, theirs."""

    end: int = 0
    n_slots: int = 0

    def slots(self, tag: re.Match[str]) -> int:
        words = tag.string[self.end : tag.start()]
        if words.strip():
            self.n_slots = sum(map(computes, SLOT.findall(words)))
        self.end = tag.end()
        return self.n_slots


def computes(slot: str) -> bool:
    """Whether a slot says more than a number that was typed: {{12}} is given, {{len(layers)}} computed."""
    try:
        tree = ast.parse(f'f"""{{{slot.strip()}}}"""', mode="eval")
    except SyntaxError:
        return False  # filling it says why
    return not any(isinstance(n, ast.FormattedValue) and isinstance(n.value, ast.Constant) for n in ast.walk(tree))


def told(block: Block, names: Names, faults: list[str]) -> str:
    """The block with slots filled and tags made readable; what is wrong is added to `faults`."""
    kept: list[str] = []
    claim = Claim()

    def keep(text: str) -> str:
        kept.append(text)
        return f"\x00{len(kept) - 1}\x00"

    def fill(found: re.Match[str]) -> str:
        try:
            return keep(value(found[1], names))
        except Exception as fault:
            faults.append(f"the slot {found[0]} cannot be filled: {type(fault).__name__}: {fault}")
            return keep(found[0])

    def span(found: re.Match[str]) -> str:
        code = found[1]
        if not (WORD.fullmatch(code) or code.startswith("plainformer ")):
            try:
                eval(compile(code, "code span", "eval"), names)
            except Exception as fault:
                faults.append(f"the code `{code}` does not run: {type(fault).__name__}: {fault}")
        return keep(found[0])

    def tag(found: re.Match[str]) -> str:
        kind, what = found[1], re.sub(r"\s+", " ", found[2] or "").strip()
        if why := wrong_tag(kind, what, claim.slots(found), names):
            faults.append(f"{re.sub(chr(0) + '.*?' + chr(0), '', found[0])}: {why}")
        return shown_tag(kind, what)

    text = MATH.sub(lambda found: keep(found[0]), block.text)
    text = TAG.sub(tag, text) if block.kind != "formula" else text
    text = SPAN.sub(span, SLOT.sub(fill, text))
    while "\x00" in text:
        text = re.sub("\x00(\\d+)\x00", lambda found: kept[int(found[1])], text)
    return re.sub(r"\s*\x01", "", text)


def wrong_tag(kind: str, what: str, slots: int, names: Names) -> str | None:
    """Why a tag proves nothing; None if it does."""
    if kind == "computed" and not what:
        return None if slots else "no slot of this claim computes anything; give an expression that must be True"
    if kind == "computed":
        try:
            said = eval(compile(what, "tag", "eval"), names)
        except Exception as fault:
            return f"does not run: {type(fault).__name__}: {fault}"
        true = isinstance(said, bool | np.bool_) and bool(said)
        return None if true else f"gives {said!r}, and must give True"
    if kind == "measured":
        there = (files("plainformer.lessons") / "measured" / f"{what}.json").is_file()
        return None if there else f"there is no lessons/measured/{what}.json"
    if kind == "paper":
        name, _, place = what.partition(", ")
        if name not in PAPERS:
            return "lessons/papers.py has no such paper"
        return None if PLACE.fullmatch(place) else "say where in it: section, figure, table, page, abstract"
    if kind == "source":
        return None if COMMIT.fullmatch(what) else "is `owner/name@commit, path`"
    return f"takes no {what}" if what else None


def shown_tag(kind: str, what: str) -> str:
    """A tag as the page shows it; what claims nothing shows nothing."""
    if kind == "definition":
        return "\x01"
    words = {"computed": "computed here", "inference": "our inference"}
    said = words.get(kind) or {"measured": f"measured: {what}", "paper": what, "source": what}[kind]
    return f"<sup>[{said}]</sup>"


def papers_in(text: str) -> Iterator[str]:
    """The papers that tags name."""
    for kind, what in TAG.findall(text):
        if kind == "paper":
            yield re.sub(r"\s+", " ", what).partition(", ")[0]

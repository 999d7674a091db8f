"""What a person is told: one line of verdict, then the formula, both numbers by hand, what to change, their line."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite
from typing import IO, Any

from plainformer.check import examples
from plainformer.check.binding import Plan
from plainformer.check.catalogue import Entry
from plainformer.check.process import Trouble
from plainformer.check.steps import LINES

LIKELY = {  # what a line of code for a step looks like
    "attn.scale": r"sqrt|\*\*|scale|/ ?\w*d\w*$",
    "attn.mask": r"mask|inf|1e9|where|tril|triu|allowed|-1e",
    "attn.causal": r"tril|triu|mask",
    "attn.weights": r"softmax|weights|att",
    "attn.mix": r"@|matmul|einsum|bmm",
    "attn.scores": r"@|matmul|einsum|bmm|scores",
    "attention": r"softmax|@|matmul",
    "softmax": r"exp|softmax|sum\(",
    "heads.split": r"view|reshape|rearrange|split|transpose|swapaxes",
    "heads.join": r"view|reshape|rearrange|concat|cat\(|transpose|swapaxes",
    "heads.repeat": r"repeat|tile|expand",
    "heads.roles": r"split|chunk|[qkv] *[,=]",
    "heads.out": r"out|proj|w_o|W_o",
    "norm.variance": r"var|\*\* ?2|std|pow|square",
    "norm.spread": r"sqrt|eps|std",
    "norm.mean": r"mean",
    "norm.centre": r"mean| - ",
    "norm.divide": r"sqrt| / |std",
    "norm.affine": r"gain|gamma|weight|beta|bias|shift",
    "norm": r"mean|var|std",
    "rms": r"mean|sqrt|pow|\*\* ?2",
    "act": r"tanh|erf|gelu|relu|sigmoid|exp",
    "rotary.positions": r"arange|position|start|offset",
    "rotary.frequencies": r"theta|base|\*\*|pow",
    "rotary": r"cos|sin",
    "embed": r"embed|wte|wpe|pos|arange|token",
    "sinusoids": r"sin|cos|\*\*|exp|arange",
    "ff": r"gelu|act|up|down|fc|proj|linear|relu|silu",
    "residual": r"\+|norm|ln",
    "block": r"\+|norm|ln",
    "gpt": r"ln_f|norm|head|block|logits",
    "loss": r"log|softmax|mean|sum|nll",
    "next": r"\[.*:.*\]|shift|roll",
    "gates": r"topk|argsort|softmax|sort|where|scatter",
    "balance": r"mean|sum|\*",
    "sample.temperature": r"temp|/",
    "sample.top_k": r"topk|top_k|sort|\bk\b",
    "sample.top_p": r"cumsum|top_p|\bp\b",
    "sample": r"multinomial|choice|argmax|random|softmax",
    "dropout": r"rand|mask|train|drop|bernoulli",
}


@dataclass(frozen=True)
class Mistake:
    """One named mistake, for people and programs."""

    key: str
    said: str
    formula: str
    given: str
    right: str
    yours: str
    change: str
    line: str = ""  # theirs, as file:line and its text, where one line alone looks like the step
    also: tuple[str, ...] = ()

    @classmethod
    def of(cls, entry: Entry, plan: Plan, file: str, also: Sequence[Entry] = ()) -> Mistake:
        shown = examples.of(entry)
        line = line_of(entry, plan, file)
        formula = LINES[entry.step] if entry.step in LINES else LINES["attention"]
        return cls(entry.key, entry.said, formula, shown.given, shown.right, shown.wrong, entry.change, line,
                   tuple(one.key for one in also))  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """About one thing of theirs. verdict: "right", "wrong" (their numbers differ), "broke" (no numbers came),
    "unclear" (we do not know how to call it), "blank" (nobody has written it yet)."""

    topic: str
    thing: str
    file: str
    line: int
    verdict: str
    said: str
    mistakes: tuple[Mistake, ...] = ()
    confident: bool = False  # their numbers are those of the mistakes, on every draw
    looks_like: str = ""  # the nearest mistake, where none gives their numbers
    at: str = ""  # where the largest difference is
    gap: float = 0.0
    trouble_line: str = ""  # file:line and text of theirs where it broke
    notes: tuple[str, ...] = ()
    held: str = ""  # what it was held against
    seconds: float = field(default=0.0, compare=False)

    @property
    def is_fine(self) -> bool:
        return self.verdict == "right"

    def as_json(self) -> dict[str, Any]:
        """As plain data; a gap that is no number is None."""
        return asdict(self) | {"gap": self.gap if isfinite(self.gap) else None}

    def lines(self) -> Iterator[tuple[str, str]]:
        """(what it is, the words): what is told, a row each."""
        for mistake in self.mistakes:
            if len(self.mistakes) > 1:
                yield "mistake", f"{mistake.said}  [{mistake.key}]"
            yield "the formula", mistake.formula
            yield "by hand", mistake.given
            yield "  right", mistake.right
            yield "  yours", mistake.yours
            yield "change", mistake.change
            if mistake.line:
                yield "your line", mistake.line
            if mistake.also:
                yield "or", f"the same numbers come of {', '.join(mistake.also)}"
        if self.trouble_line:
            yield "your line", self.trouble_line
        if self.at:
            yield "it differs", self.at
        if self.looks_like:
            yield "looks like", self.looks_like
        for note in self.notes:
            yield "note", note
        if self.held:
            yield "held against", self.held


NO_STEP = ("def ", "class ", '"""', "@", "import ", "from ", "self.", "super(", "if ", "assert ", "for ", "raise ")


def line_of(entry: Entry, plan: Plan, file: str) -> str:
    """Their line for the step, where just one looks like it; of several the likeliest, where to begin."""
    pattern = next((LIKELY[s] for s in prefixes(entry.step) if s in LIKELY), None)
    if pattern is None or not plan.source:
        return ""
    found = []
    for i, text in enumerate(plan.source.splitlines()):
        code = text.split("#")[0].strip()
        if code and not code.startswith(NO_STEP) and re.search(pattern, code):
            found.append((plan.line + i, code))
    if not found:
        return ""
    number, code = max(found, key=lambda one: len(re.findall(pattern, one[1])))
    return f"{file}:{number}  {code}" + ("" if len(found) == 1 else "  (or a line like it)")


def prefixes(step: str) -> Iterator[str]:
    while step:
        yield step
        step = step.rpartition(".")[0]


def line_said(trouble: Trouble) -> str:
    return f"{trouble.place}  {trouble.text}".strip()


def broke(answer: Callable[..., Answer], trouble: Trouble, **more: Any) -> Answer:
    said = {"hang": f"it does not end: {trouble.says}", "crash": f"it crashed: {trouble.says}"}
    return answer("broke", said.get(trouble.kind, f"it raises {trouble.says}"), trouble_line=line_said(trouble), **more)


MARKS = {"right": "right", "wrong": "WRONG", "broke": "BROKE", "unclear": "unclear", "blank": "blank"}
COLOURS = {"right": "green", "wrong": "bold red", "broke": "bold red", "unclear": "yellow", "blank": "dim"}


def write(file: IO[str], answers: Sequence[Answer], width: int = 100) -> None:
    """All answers as text; in colour where the stream is a terminal."""
    if file.isatty():
        write_in_colour(file, answers, width)
        return
    for answer in answers:
        print(head_of(answer), file=file)
        for what, words in answer.lines():
            for line in wrapped(what, words, width):
                print(line, file=file)


def head_of(answer: Answer) -> str:
    key = f"  [{answer.mistakes[0].key}]" if len(answer.mistakes) == 1 else ""
    return f"{MARKS[answer.verdict]:<7} {answer.thing}  {answer.file}:{answer.line}  {answer.said}{key}"


def wrapped(what: str, words: str, width: int) -> list[str]:
    first = f"        {what:<13} "
    return textwrap.wrap(words, max(width, 60), initial_indent=first, subsequent_indent=" " * len(first)) or [
        first.rstrip()
    ]


def write_in_colour(file: IO[str], answers: Sequence[Answer], width: int) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=True)
    for answer in answers:
        line, mark = Text(head_of(answer)), MARKS[answer.verdict]
        line.stylize(COLOURS[answer.verdict], 0, len(mark))
        console.print(line)
        for what, words in answer.lines():
            for number, row in enumerate(wrapped(what, words, min(width, console.width))):
                text = Text(row)
                if number == 0:
                    text.stylize("dim", 0, 22)
                if what.strip() in ("right", "yours"):
                    text.stylize("green" if what.strip() == "right" else "red", 22, len(row))
                console.print(text)

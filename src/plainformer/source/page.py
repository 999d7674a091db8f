"""The page that a model's code is written on. Parts whose code differs in nothing but numbers are one class: numbers
that differ are its arguments, numbers that are the same all over the model are constants at the top.

While it is written, a number stands in the text as ⟨name=value⟩, the making of a module as ⟪n⟫, the n-th class that was
asked for, and a list of layers as ⟦count:n,n⟧; `whole` puts names, arguments and constants in their place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import indent

from plainformer import spec as s
from plainformer.tree import walk

SIZE = re.compile(r"⟨(\w+)=([^⟩]*)⟩")
CALL = re.compile(r"⟪(\d+)⟫")
LAYERS = re.compile(r"⟦(\w+):([\d,]+)⟧")
WIDTH = 120

# The numbers that are named where a model has one value for each, in the order in which they are listed.
CONSTANTS: dict[str, str] = {
    "vocab_size": "tokens of the vocabulary",
    "max_seq_len": "tokens of the longest text",
    "d_embed": "numbers for each token in the table",
    "d_model": "numbers for each token in the stream from layer to layer",
    "n_layers": "",
    "n_encoder_layers": "",
    "n_decoder_layers": "",
    "n_heads": "heads of an attention, each with queries of its own",
    "n_kv_heads": "of keys and values; each serves n_heads / n_kv_heads heads",
    "d_head": "numbers of a query or a key",
    "d_nope": "of each head's query and key, numbers that are not turned",
    "d_rope": "of each head's query and key, numbers that are turned",
    "d_value": "numbers of a value",
    "d_latent": "numbers that keys and values of all heads are made from",
    "d_query": "numbers that queries are made from",
    "window": "tokens that a query may look back on, itself included",
    "n_buckets": "learned additions to a head's scores, by distance",
    "max_distance": "from here on all distances share one",
    "theta": "base of the rotary angles",
    "d_ff": "numbers of a token inside a feed-forward",
    "n_experts": "feed-forwards that a token may be sent to",
    "n_chosen": "of them, how many it is sent to",
    "d_expert": "numbers of a token inside each of them",
    "eps": "keeps norms from dividing by zero",
}


def size(name: str, value: object) -> str:
    """A number on the page, by the name that it has if it gets one."""
    return f"⟨{name}={value!r}⟩"


@dataclass(frozen=True)
class Made:
    """A class as its part asked for it: every number in its place."""

    base: str  # its name, unless another class has it
    doc: str
    init: str  # lines of __init__; none: it holds nothing
    methods: str
    called: tuple[tuple[str, str], ...] = ()  # what the one that holds it calls these numbers

    @property
    def text(self) -> str:
        return "\x00".join((self.base, self.doc, self.init, self.methods))


class Page:
    """Classes and functions, in the order in which they were first asked for."""

    def __init__(self, spec: s.Spec) -> None:
        self.spec = spec
        self.stack: s.Stack | None = None  # the one that is being written
        self.flat = any(isinstance(part, s.Experts) and part.shared for _, part in walk(spec, seen=set()))
        self.made: list[Made] = []
        self.functions: dict[str, str] = {}  # text to name
        self.order: list[int | str] = []
        self.tops: set[str] = set()  # constants that the text names
        self.values: dict[str, set[str]] = {}  # of each number, by name
        self.calls: dict[int, str] = {}  # what makes one of each class, its numbers as its holder calls them
        self.bare: dict[int, str] = {}  # the same with plain numbers

    def a_class(self, base: str, doc: str, init: str, methods: str, **called: str) -> str:
        """The class is written where there is none like it; gives what makes one of it. `called`: what the one that
        holds it calls its numbers."""
        one = Made(base, doc, init, methods, tuple(called.items()))
        if one not in self.made:
            self.order.append(len(self.made))
            self.made.append(one)
        return f"⟪{self.made.index(one)}⟫"

    def a_function(self, base: str, text: str) -> str:
        """The function `def base` and text, unless it is there; gives its name."""
        if text not in self.functions:
            self.functions[text] = free(base, set(self.functions.values()))
            self.order.append(text)
        return self.functions[text]

    def whole(self, main: str) -> str:
        """Constants, functions, classes, and what is run in the end."""
        said = [text for one in self.made for text in (one.text, *(text for _, text in one.called))]
        for text in (*said, *self.functions, main):
            for name, value in SIZE.findall(text):
                self.values.setdefault(name, set()).add(value)
            for name, ids in LAYERS.findall(text):
                self.values.setdefault(name, set()).add(str(ids.count(",") + 1))
        groups, taken = self.grouped(), {*self.functions.values()}
        written: dict[int | str, str] = {}
        for members in groups:
            name = free(self.made[members[0]].base, taken)
            taken.add(name)
            written[members[0]] = self.class_of(name, members)
        for text, name in self.functions.items():
            written[text] = f"def {name}{SIZE.sub(lambda m: self.number(m[1], m[2]), text)}"
        end = SIZE.sub(lambda m: self.number(m[1], m[2]), main)
        parts = [written[key].strip("\n") for key in self.order if key in written]
        text = "\n\n\n".join(part for part in ("\n".join(self.constants()), *parts, end.strip("\n")) if part)
        return "".join(f"{folded(line)}\n" for line in text.split("\n"))

    def grouped(self) -> list[list[int]]:
        """The classes that differ in nothing but numbers, together; what is inside comes before what holds it."""
        found: dict[str, int] = {}
        group_of: dict[int, int] = {}
        groups: list[list[int]] = []
        for i, one in enumerate(self.made):
            bare = SIZE.sub(r"⟨\1⟩", one.text)
            key = CALL.sub(lambda m: f"⟪{group_of[int(m[1])]}⟫", bare)
            if key not in found:
                found[key] = len(groups)
                groups.append([])
            group_of[i] = found[key]
            groups[found[key]].append(i)
        return groups

    def class_of(self, name: str, members: list[int]) -> str:
        """The text of a class, and from then on what makes each of its members."""
        texts = [CALL.sub(lambda m: self.calls[int(m[1])], self.made[i].text) for i in members]
        if len({tuple(name for name, _ in SIZE.findall(text)) for text in texts}) > 1:  # called differently: by numbers
            texts = [CALL.sub(lambda m: self.bare[int(m[1])], self.made[i].text) for i in members]
        columns = [
            (found[0][0], tuple(value for _, value in found))
            for found in zip(*(SIZE.findall(text) for text in texts), strict=True)
        ]
        labels: dict[tuple[str, tuple[str, ...]], str] = {}
        for column in dict.fromkeys(columns):
            if len(set(column[1])) > 1:
                labels[column] = free(column[0], set(labels.values()))
        for place, i in enumerate(members):
            told = {label: f"⟨{column[0]}={column[1][place]}⟩" for column, label in sorted(labels.items())}
            self.bare[i] = f"{name}({', '.join(f'{label}={value}' for label, value in told.items())})"
            told |= {label: text for label, text in self.made[i].called if label in told and same(text, told[label])}
            self.calls[i] = f"{name}({', '.join(f'{label}={value}' for label, value in told.items())})"
        place_of = iter(columns)

        def put(text: str, own: str) -> str:
            def one(match: re.Match[str]) -> str:
                column = next(place_of)
                return own + labels[column] if column in labels else self.number(column[0], column[1][0])

            return SIZE.sub(one, text)

        _, doc, init, methods = texts[0].split("\x00")
        doc, init, methods = put(doc, ""), put(init, ""), put(methods, "self.")
        init = LAYERS.sub(lambda m: self.layer_list(m[1], [int(i) for i in m[2].split(",")]), init)
        kept = "".join(f"self.{label} = {label}\n" for label in labels.values() if f"self.{label}" in methods)
        signed = "".join(f", {label}: {kind(column[1])}" for column, label in sorted(labels.items()))
        begin = f"def __init__(self{signed}) -> None:\n    super().__init__()\n" + indent(kept + init, "    ")
        body = [f'"""{doc}"""\n', *([begin] if kept or init else []), *([methods] if methods else [])]
        return f"class {name}(nn.Module):\n" + indent("\n".join(part.rstrip("\n") + "\n" for part in body), "    ")

    def number(self, name: str, value: str) -> str:
        """The constant of that name, if the model has one value for it; else the value."""
        if name in CONSTANTS and len(self.values[name]) == 1:
            self.tops.add(name)
            return name.upper()
        return value

    def constants(self) -> Iterator[str]:
        for name, words in CONSTANTS.items():
            if name in self.tops:
                (value,) = self.values[name]
                yield f"{name.upper()} = {value}" + (f"  # {words}" if words else "")

    def layer_list(self, count: str, ids: list[int]) -> str:
        """A list of layers as short as it can be said: one for all, a pattern of arguments, or run by run."""
        calls = [SIZE.sub(lambda m: self.number(m[1], m[2]), self.calls[i]) for i in ids]
        if len(set(calls)) == 1:
            return f"nn.ModuleList({calls[0]} for _ in range({self.number(count, str(len(ids)))}))"
        found = [re.fullmatch(r"(\w+)\((\w+)=([^,=]+)\)", call) for call in calls]
        if len({(one[1], one[2]) for one in found if one}) == 1 and all(found):
            (_, name, argument, _), values = one_of(found), [one[3] for one in found if one]
            text = f"nn.ModuleList({name}({argument}) for {argument} in {pattern(values)})"
            if len(text) < WIDTH - 30:
                return text
        runs: list[tuple[str, int]] = []
        for call in calls:
            runs = [*runs[:-1], (call, runs[-1][1] + 1)] if runs and runs[-1][0] == call else [*runs, (call, 1)]
        items = [call if n == 1 else f"*({call} for _ in range({n}))" for call, n in runs]
        text = f"nn.ModuleList([{', '.join(items)}])"
        if len(text) < WIDTH - 30:
            return text
        return "nn.ModuleList(\n    [\n" + "".join(f"        {item},\n" for item in items) + "    ]\n)"


def folded(line: str) -> str:
    """A line, in the formatter's way on several where it is too long: at the bracket that its last one closes."""
    if len(line) <= WIDTH or not line.endswith((")", "):")):
        return line
    depth, opening, end = 0, -1, line.rindex(")")
    for i in range(end, -1, -1):
        depth += (line[i] in ")]}") - (line[i] in "([{")
        if depth == 0:
            opening = i
            break
    space = " " * (len(line) - len(line.lstrip()))
    return f"{line[: opening + 1]}\n{space}    {line[opening + 1 : end]}\n{space}{line[end:]}"


def one_of(found: list[re.Match[str] | None]) -> tuple[str, str, str, str]:
    first = found[0]
    assert first
    return first[0], first[1], first[2], first[3]


def same(text: str, other: str) -> bool:
    """Whether two texts come to one number: what a number is called must be that number."""
    first, second = (eval(SIZE.sub(r"\2", each)) for each in (text, other))  # our own numbers and products of them
    return bool(first == second)


def kind(values: tuple[str, ...]) -> str:
    """The type of an argument that takes these values."""
    kinds = {type(eval(value)).__name__ for value in values}  # our own numbers, as repr wrote them
    named = [name for name in ("bool", "int", "float") if name in kinds]
    return " | ".join(named + (["None"] if "NoneType" in kinds else []))


def pattern(values: list[str]) -> str:
    """A tuple of these values: the shortest that, repeated, gives them all."""
    n = len(values)
    short = next(p for p in range(1, n + 1) if n % p == 0 and values[:p] * (n // p) == values)
    told = "(" + ", ".join(values[:short]) + (",)" if short == 1 else ")")
    return told if short == n else f"{told} * {n // short}"


def free(base: str, taken: set[str]) -> str:
    """The name, with a number behind it where it is taken."""
    names = (base if n == 1 else f"{base}{n}" if base[0].isupper() else f"{base}_{n}" for n in range(1, 10**6))
    return next(name for name in names if name not in taken)

"""A chat as its model was taught to read it: the publisher's template, and ids in which only the template makes control
tokens. What people say stays text, whatever it looks like.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from plainformer.faults import refuse

if TYPE_CHECKING:
    from plainformer.text.tokenizers import Ids, Tokenizer

APART = "\ue0f1"  # of a private area: put inside a marker that a person wrote, and taken out of the text again
LONGEST = 1_000_000  # characters that a template may make of nothing, numbers that it may count through, digits


def chat(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], *, answer: bool = True, **told: object) -> Ids:
    """The ids_T of a chat.

    messages: [{"role": "user", "content": "..."}, ...]; answer: end where the model is to speak; told: what else a
    template asks for, by name. A marker such as <|im_end|> inside a content is encoded as its letters.
    Raises PlainformerError: no template, jinja2 absent, or what the template itself refuses.
    """
    text = written(tokenizer, messages, answer=answer, **told)
    if not tokenizer.control:
        return tokenizer.encode(text.replace(APART, ""))
    cut = re.split("|".join(map(re.escape, sorted(tokenizer.control, key=len, reverse=True))), text)
    marks = re.findall("|".join(map(re.escape, sorted(tokenizer.control, key=len, reverse=True))), text)
    parts: list[Any] = []
    for i, piece in enumerate(cut):
        plain = piece.replace(APART, "")
        parts += [tokenizer.encode(plain)] if plain else []
        parts += [[tokenizer.control[marks[i]]]] if i < len(marks) else []
    return np.concatenate([np.asarray(part, np.int32) for part in parts] or [np.zeros(0, np.int32)])


def written(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], *, answer: bool, **told: object) -> str:
    """The chat as the template writes it; markers in what people say have APART inside."""
    if tokenizer.chat_template is None:
        raise refuse("chat", None, "this tokenizer has no chat template", "a folder of an instruct model has one")
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise refuse("chat", "jinja2", "needs the jinja2 package", "pip install 'plainformer[torch]'") from None

    def wrong(said: str) -> NoReturn:
        raise jinja2.TemplateError(said)

    class Room(ImmutableSandboxedEnvironment):
        """The sandbox, in which nothing grows to any size by one sign."""

        intercepted_binops = frozenset(("*", "**", "%"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if too_large(operator, left, right):
                raise OverflowError(f"{operator} makes too much")
            return super().call_binop(context, operator, left, right)

    counted = 0

    def counting(*ends: int) -> range:
        nonlocal counted
        counted += len(numbers := range(*ends))
        if counted > LONGEST:
            raise OverflowError("it counts too far")
        return numbers

    room = Room(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"], autoescape=False)
    room.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    room.globals |= {"raise_exception": wrong, "range": counting}
    room.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    safe = [apart(message, tokenizer.control) for message in messages]
    try:
        template = room.from_string(tokenizer.chat_template)
        pieces = template.generate(messages=safe, add_generation_prompt=answer, **(dict(tokenizer.named) | told))
        return joined(pieces, LONGEST + 10 * sum(len(str(message)) for message in messages))
    except jinja2.TemplateError as error:
        raise refuse("chat", str(error)[:200], "the template does not take these messages") from None
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise refuse("chat", f"{type(error).__name__}: {error}"[:200], "the template fails on these messages") from None


def too_large(operator: str, left: Any, right: Any) -> bool:
    """Whether a product, a power or a text by a form would take more than LONGEST signs."""
    if operator == "%":
        return isinstance(left, str) and any(len(digits) > 4 for digits in re.findall(r"\d+", left))
    if operator == "**":
        whole = isinstance(left, int) and isinstance(right, int)
        return whole and left.bit_length() * abs(right) > LONGEST
    for many, times in ((left, right), (right, left)):
        if hasattr(many, "__len__") and isinstance(times, int):
            return len(many) * times > LONGEST
    return False


def joined(pieces: Iterable[str], most: int) -> str:
    out, n = [], 0
    for piece in pieces:
        n += len(piece)
        if n > most:
            raise refuse("chat", n, f"the template writes more than {most:,} characters")
        out.append(piece)
    return "".join(out)


def apart(value: Any, markers: Mapping[str, int]) -> Any:
    """The same with every marker in every string broken: none is made by a text, nor by two that stand together."""
    if isinstance(value, str):
        for marker in markers:
            value = value.replace(marker, marker[:1] + APART + marker[1:])
            for n in range(1, len(marker)):
                value = value + APART if value.endswith(marker[:n]) else value
                value = APART + value if value.startswith(marker[n:]) else value
        return value
    if isinstance(value, Mapping):
        return {key: value if key == "role" else apart(value, markers) for key, value in value.items()}
    return [apart(one, markers) for one in value] if isinstance(value, list | tuple) else value

"""What runs in a process of its own and writes chats by their templates: a line in JSON for each, and one as answer.

It stands alone and imports nothing of plainformer. What a sandbox cannot tell beforehand, its limits end: texts that
double, loops in loops, lists of themselves that are compared.
"""

from __future__ import annotations

import datetime
import json
import re
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NoReturn

LONGEST = 1_000_000  # characters that a template may make of nothing, numbers that it may count through, digits


def limited(memory: int) -> None:
    """No more memory than allowed, no large files, no core: where the system has such limits."""
    try:
        import resource
    except ImportError:
        return
    for name, most in {"RLIMIT_DATA": memory, "RLIMIT_FSIZE": 0, "RLIMIT_CORE": 0}.items():
        with suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (most, most))


def end_in(seconds: float) -> None:
    """End this process then, whatever it does; 0: do not. Where the system has such a clock."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, seconds)


def main(memory: int, seconds: float, path: list[str]) -> None:
    sys.path[:] = path
    from jinja2 import TemplateError

    limited(memory)
    for line in sys.stdin:
        end_in(seconds)
        try:
            said = json.dumps({"text": written(**json.loads(line))})
        except TemplateError as error:
            said = failed(str(error), "does not take these messages")
        except Exception as error:
            said = failed(f"{type(error).__name__}: {error}", "fails on these messages")
        print(said, flush=True)
        end_in(0)


def failed(error: str, what: str) -> str:
    return json.dumps({"error": error[:200], "rule": f"the template {what}"})


def written(template: str, names: dict[str, Any]) -> str:
    """What the template makes of these names."""
    import jinja2
    from jinja2 import nodes
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def wrong(said: str) -> NoReturn:
        raise jinja2.TemplateError(said)

    class Room(ImmutableSandboxedEnvironment):
        """The sandbox, in which no product, power or form makes too much at once."""

        intercepted_binops = frozenset(("*", "**", "%"))

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            if too_large(operator, left, right):
                raise OverflowError(f"{operator} makes too much")
            return super().call_binop(context, operator, left, right)

    class Generation(Extension):
        """{% generation %}, which says what a model has said: written like the rest."""

        tags = frozenset(("generation",))  # type: ignore[assignment]

        def parse(self, parser: Parser) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    counted = 0

    def counting(*ends: int) -> range:
        nonlocal counted
        counted += len(numbers := range(*ends))
        if counted > LONGEST:
            raise OverflowError("it counts too far")
        return numbers

    def tojson(value: Any, ensure_ascii: bool = False, **form: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **form)

    extensions = [Generation, "jinja2.ext.loopcontrols"]
    room = Room(trim_blocks=True, lstrip_blocks=True, extensions=extensions, autoescape=False)
    room.filters["tojson"] = tojson
    room.globals |= {"raise_exception": wrong, "range": counting}
    room.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    most = LONGEST + 10 * sum(len(str(message)) for message in names["messages"])
    return joined(room.from_string(template).generate(**names), most)


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
            raise OverflowError(f"it writes more than {most:,} characters")
        out.append(piece)
    return "".join(out)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3]))

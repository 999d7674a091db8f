"""A chat as its model was taught to read it: the publisher's template, and ids in which only the template makes control
tokens. What people say stays text, whatever it looks like.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plainformer.faults import refuse

if TYPE_CHECKING:
    from plainformer.text.tokenizers import Ids, Tokenizer

APART = "\ue0f1"  # of a private area: put inside a marker that a person wrote, and taken out of the text again
MEMORY, SECONDS = 10**9, 10.0  # bytes of data and seconds for one chat: a template is a stranger's program
START = 30.0  # seconds that its process may take besides; where a system has no such clock, the template too


def chat(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]], *, answer: bool = True, **told: object) -> Ids:
    """The ids_T of a chat.

    messages: [{"role": "user", "content": "..."}, ...]; answer: end where the model is to speak; told: what else a
    template asks for, by name. A marker such as <|im_end|> inside a content is encoded as its letters.
    Raises PlainformerError: no template, jinja2 absent, no Python to run it, what JSON cannot hold, what the template
    itself refuses or is not done with in time.
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
    if find_spec("jinja2") is None:
        raise refuse("chat", "jinja2", "needs the jinja2 package", "pip install 'plainformer[torch]'")
    safe = [apart(message, tokenizer.control) for message in messages]
    names = {"messages": safe, "add_generation_prompt": answer, "tools": None, "documents": None}
    try:
        said_to_it = in_json(names | dict(tokenizer.named) | told)
        question = json.dumps({"template": tokenizer.chat_template, "names": said_to_it})
    except (TypeError, ValueError, RecursionError) as error:
        hint = "strings, numbers, True, False, None, lists of them, mappings by strings"
        raise refuse("chat", str(error), "what a template is told must be what JSON can hold", hint) from None
    said = WRITERS.setdefault(os.getpid(), Writer()).ask(question)
    if "text" not in said:
        raise refuse("chat", said["error"], said["rule"])
    return said["text"]


class Writer:
    """A process that writes chats by their templates, one at a time; another is started where it has ended."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None
        self.alone = threading.Lock()

    def ask(self, question: str) -> dict[str, str]:
        """Its answer, or why it has none: no template gets more time and memory than it may have."""
        with self.alone:
            if self.child is not None and self.child.poll() is not None:
                self.end()
            child = self.child = self.child or started()
            assert child.stdin is not None
            assert child.stdout is not None
            line, clock = b"", threading.Timer(START + SECONDS, child.kill)
            begun = time.monotonic()
            clock.start()
            try:
                with suppress(OSError):
                    child.stdin.write(question.encode() + b"\n")
                    child.stdin.flush()
                    line = child.stdout.readline()
                if not line.endswith(b"\n"):
                    child.wait()
            finally:
                clock.cancel()
                if not is_answer(line):  # one that nobody waited for would be taken for the next one's
                    self.end()
            if is_answer(line):
                said: dict[str, str] = json.loads(line)
                return said
            return {"error": "no answer", "rule": why(line, child.returncode, time.monotonic() - begun)}

    def end(self) -> None:
        if (child := self.child) is not None:
            self.child = None
            child.kill()
            with suppress(OSError):
                child.communicate()


WRITERS: dict[int, Writer] = {}  # by process: a forked one has its own


@atexit.register
def end_writer() -> None:
    if (writer := WRITERS.get(os.getpid())) is not None:
        writer.end()


def is_answer(line: bytes) -> bool:
    return line.startswith(b"{") and line.endswith((b"}\n", b"}\r\n"))


def why(line: bytes, status: int, seconds: float) -> str:
    """Why a process for templates gave no answer: what it wrote instead, how it ended, after what time."""
    if line.endswith(b"\n"):
        return f"{sys.executable} is no Python: it writes {line[:50]!r}"
    if seconds >= START + SECONDS:
        return f"none in {START + SECONDS:g} seconds: the template takes too long, or {sys.executable} does not begin"
    if status in {-getattr(signal, name) for name in ("SIGALRM", "SIGKILL", "SIGABRT") if hasattr(signal, name)}:
        return f"the template takes more than {SECONDS:g} seconds or {MEMORY / 1e9:g} GB"
    return f"the process for templates, of {sys.executable}, ended with status {status}"


def started() -> subprocess.Popen[bytes]:
    """A process for templates, which finds the same modules as this one. Refuses where there is no Python for it."""
    script, limits = Path(__file__).with_name("chats_child.py"), (str(MEMORY), str(SECONDS))
    path = [place for place in sys.path if isinstance(place, str)]  # an import passes over anything else too
    needs = "a template is run by a Python of its own, and here is none for it"
    if not sys.executable or getattr(sys, "frozen", False) or not script.is_file():
        raise refuse("chat", sys.executable, needs)
    try:
        return subprocess.Popen(
            [sys.executable, "-I", str(script), *limits, json.dumps(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise refuse("chat", sys.executable, f"{needs}: {error.strerror}") from None


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


def in_json(value: Any) -> Any:
    """The same in what JSON gives back as it was: numpy's scalars as Python's, tuples as lists.

    Raises TypeError: anything else, also keys that are no strings, which JSON would turn into them.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        if wrong := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"the key {wrong[0]!r}")
        return {key: in_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [in_json(one) for one in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} {value!r}")

"""A file between theirs and ours: functions with the documented signatures that call their code."""

from __future__ import annotations

import ast
from pathlib import Path

from plainformer.check.binding import find, short
from plainformer.check.topic import REQUIRED, Topic
from plainformer.check.topics import TOPICS
from plainformer.faults import refuse

FIRST = ("softmax", "layer_norm", "attention", "multi_head_attention", "feed_forward", "cross_entropy")


def adapter_for(path: Path) -> str:
    """The text: a function for each of their names that is near a known one, else for the first things one writes.

    Their file is read, not run.
    """
    if not path.is_file():
        raise refuse("FILE", str(path), "is no file", "give a Python file")
    try:
        tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, UnicodeDecodeError) as fault:
        raise refuse("FILE", str(path), f"is no Python: {fault}") from None
    kinds = (ast.FunctionDef, ast.ClassDef)
    own = [(node.name, isinstance(node, ast.ClassDef)) for node in tree.body if isinstance(node, kinds)]
    functions = [name for name, is_class in own if not is_class]
    known = {topic.name: thing["name"] for topic, thing in find([{"name": n, "class": False} for n in functions])}
    near = {topic.name: name for name in functions for topic in TOPICS.values() if is_near(topic, name)}
    chosen = {**near, **known} or dict.fromkeys(FIRST, functions[0] if functions else "your_function")
    parts = [written(TOPICS[name], path.stem, theirs) for name, theirs in chosen.items()]
    head = f'"""How `plainformer check` calls {path.name}: our signature in, the answer out. Mend what does not fit."""'
    return "\n\n\n".join([f"{head}\n\nimport {path.stem}", *parts]) + "\n"


def is_near(topic: Topic, name: str) -> bool:
    words = [short(word) for word in (topic.name, *topic.aliases) if len(word) > 4]
    return any(word in short(name) or short(name) in word for word in words if len(short(name)) > 3)


def written(topic: Topic, module: str, theirs: str) -> str:
    names = [a.name.replace(".", "_") for a in topic.arguments if a.without is REQUIRED]
    return f"def {topic.name}({', '.join(names)}):  # {topic.about}\n    return {module}.{theirs}({', '.join(names)})"

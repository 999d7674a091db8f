"""What runs in the process of its own, beside someone's code: loads their file, calls it, answers in JSON.

It stands alone, imports nothing of plainformer, and loads numpy or torch only where their file does (numpy also to
count what it was sent). Its answers go through a pipe of its own; what their code prints goes nowhere.
"""

from __future__ import annotations

import copy
import faulthandler
import importlib.util
import inspect
import json
import linecache
import math
import os
import random
import signal
import sys
import time
import traceback
import types
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from plainformer.check.child_models import learnt, walked
    from plainformer.check.child_values import SIMPLE, Values
else:
    from child_models import learnt, walked
    from child_values import SIMPLE, Values


def limited(memory: int, seconds: int) -> None:
    """No more memory and time than allowed, no large files, no core: where the system has such limits."""
    try:
        import resource
    except ImportError:
        return
    limits = {"RLIMIT_DATA": memory, "RLIMIT_CPU": seconds, "RLIMIT_FSIZE": 64 << 20, "RLIMIT_CORE": 0}
    for name, most in limits.items():
        with suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (most, most))


# --- their file ------------------------------------------------------------------------------------------------------


def load(path: Path) -> ModuleType:
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def parameters_of(function: Any) -> list[dict[str, Any]] | None:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [
        {
            "name": p.name,
            "kind": p.kind.name,
            "default": p.default if isinstance(p.default, SIMPLE) and not weird(p.default) else None,
            "required": p.default is p.empty,
        }
        for p in found
    ]


def weird(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def described(module: ModuleType, path: Path) -> list[dict[str, Any]]:
    """Every function and class that the file itself defines."""
    found = []
    for name, thing in vars(module).items():
        if not callable(thing) or getattr(thing, "__module__", None) != module.__name__ or name.startswith("__"):
            continue
        try:
            lines, first = inspect.getsourcelines(thing)
        except (OSError, TypeError):
            lines, first = [], 0
        one: dict[str, Any] = {"name": name, "line": first, "source": "".join(lines), "class": inspect.isclass(thing)}
        one["parameters"] = parameters_of(thing)
        if inspect.isclass(thing):
            call = vars(thing).get("forward") or vars(thing).get("__call__")
            one["forward"] = (parameters_of(call) or [])[1:] if inspect.isfunction(call) else None
            fields = getattr(thing, "__dataclass_fields__", None)
            one["fields"] = list(fields) if fields else []
            torch: Any = sys.modules.get("torch")
            one["module"] = bool(torch) and issubclass(thing, torch.nn.Module)
        found.append(one)
    return found


def kind_of(module: ModuleType, name: str) -> str:
    """What a thing of theirs takes: the library that it, or what it calls in their files, speaks of."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    folder = os.path.dirname(getattr(module, "__file__", ""))
    waiting, seen, met = [(module, name)], set(), set()
    while waiting:
        home, word = waiting.pop()
        thing = vars(home).get(word)
        if id(thing) in seen or getattr(thing, "__module__", None) != home.__name__:
            continue
        seen.add(id(thing))
        for code in codes_of(thing):
            for used in code.co_names:
                value = vars(home).get(used)
                waiting.append((home, used))
                if isinstance(value, ModuleType) and (getattr(value, "__file__", None) or "").startswith(folder):
                    waiting += [(value, other) for other in code.co_names]
                elif isinstance(value, ModuleType):
                    met.add(value.__name__.split(".")[0])
    theirs = vars(module).get("Tensor")
    if inspect.isclass(theirs) and theirs.__module__.split(".")[0] != "torch":
        return "theirs"
    uses = {value.__name__.split(".")[0] for value in vars(module).values() if isinstance(value, ModuleType)}
    uses |= {str(getattr(value, "__module__", "")).split(".")[0] for value in vars(module).values()}
    for speaks in (met, uses):
        if torch and "torch" in speaks:
            return "torch"
        if numpy and "numpy" in speaks:
            return "numpy"
    return "lists"


def codes_of(thing: Any) -> Iterator[Any]:
    if inspect.isclass(thing):
        for value in vars(thing).values():
            yield from codes_of(value)
    elif code := getattr(thing, "__code__", None):
        yield code
        yield from (one for one in code.co_consts if inspect.iscode(one))


# --- their objects ---------------------------------------------------------------------------------------------------


def named(thing: Any, path: str = "", seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, Any, str, str]]:
    """(path, holder, attribute, class of holder) of each array that an object holds, torch's modules in their order."""
    if id(thing) in seen:
        return
    seen = seen | {id(thing)}
    if hasattr(thing, "named_parameters"):
        for name, _ in thing.named_parameters():
            *places, leaf = name.split(".")
            holder = thing
            for place in places:
                holder = getattr(holder, place)
            yield name, holder, leaf, class_of(holder)
        return
    if isinstance(thing, (list, tuple)):
        for i, one in enumerate(thing):
            yield from named(one, f"{path}{i}.", seen)
        return
    for name, value in vars(thing).items() if hasattr(thing, "__dict__") else ():
        if isinstance(value, (list, tuple)) or (
            hasattr(value, "__dict__") and not is_array(value) and not callable_only(value)
        ):
            yield from named(value, f"{path}{name}.", seen)
        elif is_array(value) and len(value.shape) > 0 and is_real(value):
            yield f"{path}{name}", thing, name, class_of(thing)


def class_of(thing: Any) -> str:
    return f"{type(thing).__module__.split('.')[0]}.{type(thing).__name__}"


def callable_only(value: Any) -> bool:
    return inspect.isfunction(value) or inspect.ismodule(value) or inspect.isclass(value)


def is_array(value: Any) -> bool:
    return hasattr(value, "shape") and (hasattr(value, "dtype") or hasattr(value, "data"))


def is_real(value: Any) -> bool:
    kind = getattr(getattr(value, "dtype", getattr(getattr(value, "data", None), "dtype", None)), "kind", "f")
    return bool(kind == "f")


def assigned(thing: Any, values: dict[str, Any], make: Values) -> None:
    for path, holder, leaf, _ in list(named(thing)):
        if path in values:
            old, new = getattr(holder, leaf), make.taken(values[path])
            if make.kind == "torch":
                old.data = new.to(old.dtype)
            elif make.kind == "theirs" and hasattr(old, "data"):
                old.data = new.data
            else:
                setattr(holder, leaf, new)


class Session:
    """Their module, the object that was made of it, and what is asked of them."""

    def __init__(self, module: ModuleType, path: Path) -> None:
        self.module, self.path = module, path
        self.made: Any = None

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked["do"] in ("load", "describe"):
            loaded = [name for name in ("torch", "numpy") if name in sys.modules]
            return {"things": described(self.module, self.path), "loaded": loaded}
        kind = asked.get("kind") or kind_of(self.module, asked["name"])
        values = Values(self.module, kind, asked.get("precision", "float64"))
        thing = vars(self.module)[asked["name"]]
        if asked["do"] == "make":
            return {"kind": kind, **self.make(thing, asked, kind)}
        if asked["do"] == "values":
            return {"out": {"tree": [values.sent(getattr(holder, leaf)) for _, holder, leaf, _ in named(self.made)]}}
        if asked["do"] == "assign":
            if kind == "torch" and hasattr(self.made, "to"):
                self.made.to(getattr(sys.modules["torch"], asked["precision"]))
            assigned(self.made, asked["values"], values)
            return {}
        if asked["do"] in ("walk", "learn"):
            return self.whole(asked, values)
        return {"kind": kind, **self.call(self.forward() if asked["do"] == "forward" else thing, asked, values)}

    def make(self, thing: Any, asked: dict[str, Any], kind: str) -> dict[str, Any]:
        named_args = dict(asked["kwargs"])
        if (config := asked.get("config")) is not None:
            of = vars(self.module).get(config["class"]) if config["class"] else None
            if of is not None:
                made = of(**{k: v for k, v in config["values"].items() if k in config["fields"]})
            else:
                made = types.SimpleNamespace(**config["values"])
            named_args[config["argument"]] = made
        for name, size in (asked.get("globals") or {}).items():  # sizes that are said once, atop their file
            if type(vars(self.module).get(name)) in (int, float):
                setattr(self.module, name, size)
        if kind == "torch":
            sys.modules["torch"].manual_seed(0)
        self.made = thing(**named_args)
        if hasattr(self.made, "eval"):
            self.made.eval()
        return {"parameters": [
            {"path": path, "shape": list(getattr(holder, leaf).shape), "of": of}
            for path, holder, leaf, of in named(self.made)
        ]}  # fmt: skip

    def whole(self, asked: dict[str, Any], values: Values) -> dict[str, Any]:
        """A PyTorch model module by module, or taught one batch."""
        kwargs = {name: values.taken(one) for name, one in asked["kwargs"].items()}
        if asked["do"] == "walk":
            paths, tensors = walked(self.made, lambda: self.forward()(**kwargs))
            return {"paths": paths, "out": {"tree": [values.sent(one) for one in tensors]}}
        ids = values.taken(asked["ids"])
        return learnt(self.made, lambda: self.forward()(**kwargs), ids, asked["vocab"], asked["steps"], asked["lr"])

    def forward(self) -> Any:
        return self.made if callable(self.made) else self.made.forward

    def call(self, thing: Any, asked: dict[str, Any], values: Values) -> dict[str, Any]:
        args = [values.taken(one) for one in asked["args"]]
        kwargs = {name: values.taken(one) for name, one in asked["kwargs"].items()}
        before = copy.deepcopy((args, kwargs)) if asked.get("watch") else None
        grads = asked.get("grads")
        leaves = [args[i] if isinstance(i, int) else kwargs[i] for i in grads["of"]] if grads else []
        for leaf in leaves:
            leaf.requires_grad_()
        if repeat := asked.get("repeat"):
            seed(values.kind, asked.get("seed", 0))
            drawn, until = [], time.monotonic() + asked["within"]
            for i in range(repeat):  # a seed is another one each time
                if time.monotonic() > until and i >= 200:
                    break
                drawn.append(thing(*args, **{k: i if k == asked.get("each") else v for k, v in kwargs.items()}))
            return {"out": {"tree": [values.sent(one) for one in drawn]}}
        out = thing(*args, **kwargs)
        reply: dict[str, Any] = {"out": values.sent(out)}
        if before is not None:
            now = (args, kwargs)
            reply["changed"] = [
                *(i for i, (a, b) in enumerate(zip(before[0], now[0], strict=True)) if differs(a, b)),
                *(name for name in kwargs if differs(before[1][name], now[1][name])),
            ]
        if grads:
            first = out[0] if isinstance(out, tuple) else out
            if not getattr(first, "requires_grad", False):
                return reply | {"grads": None}
            along = values.taken(grads["along"]).to(first.dtype)
            (first.reshape(along.shape) * along).sum().backward()
            reply["grads"] = [values.sent(leaf.grad) for leaf in leaves]
        return reply


def seed(kind: str, number: int) -> None:
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)
    if kind == "torch":
        sys.modules["torch"].manual_seed(number)


def differs(a: Any, b: Any) -> bool:
    if hasattr(a, "data") and not hasattr(a, "__array_interface__") and not hasattr(a, "detach"):
        a, b = a.data, b.data
    if hasattr(a, "shape"):
        same = (a == b) | ((a != a) & (b != b))
        return not bool(same.all())
    return bool(a != b)


def is_theirs(file: str, path: Path) -> bool:
    return file.startswith(str(path.parent)) and "site-packages" not in file


def fault_of(error: BaseException, path: Path) -> dict[str, Any]:
    """What went wrong, at the innermost line of theirs."""
    theirs = [one for one in traceback.extract_tb(error.__traceback__) if is_theirs(one.filename, path)]
    line, file = (theirs[-1].lineno, theirs[-1].filename) if theirs else (None, None)
    if isinstance(error, SyntaxError):
        line, file = error.lineno, error.filename
    text = linecache.getline(file, line).strip() if file and line else ""
    return {"error": type(error).__name__, "says": str(error)[:500], "file": file, "line": line, "text": text}


def main() -> None:
    path = Path(sys.argv[1])
    asks, tells, errors, memory, seconds = map(int, sys.argv[2:])
    limited(memory, seconds)
    with os.fdopen(errors, "w") as trouble, os.fdopen(asks, "rb") as come, os.fdopen(tells, "wb") as go:
        faulthandler.enable(trouble)
        if hasattr(faulthandler, "register"):
            faulthandler.register(signal.SIGUSR1, trouble)
        session = None
        for line in come:
            asked = json.loads(line)
            try:
                if asked["do"] == "load":
                    path, session = Path(asked["path"]), None
                if session is None:
                    session = Session(load(path), path)
                reply = session.answer(asked)
            except BaseException as error:
                reply = {"fault": fault_of(error, path), "loading": session is None}
            go.write(json.dumps(reply).encode() + b"\n")
            go.flush()


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file: theirs comes first
    main()

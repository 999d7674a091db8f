"""What nobody has begun to write: a signature, words, and NotImplementedError."""

from __future__ import annotations

import ast
import textwrap


def is_blank(source: str) -> bool:
    """Whether a function, or a class's call, does nothing but raise NotImplementedError."""
    try:
        (node,) = ast.parse(textwrap.dedent(source)).body
    except (SyntaxError, ValueError):
        return False
    if isinstance(node, ast.ClassDef):
        calls = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name in ("__call__", "forward")]
        return bool(calls) and all(map(raises_alone, calls))
    return isinstance(node, ast.FunctionDef) and raises_alone(node)


def raises_alone(function: ast.FunctionDef) -> bool:
    body = [one for one in function.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    if len(body) != 1 or not isinstance(body[0], ast.Raise):
        return False
    raised = body[0].exc.func if isinstance(body[0].exc, ast.Call) else body[0].exc
    return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"

"""Makes what the pages show of the code: outputs, values and measured tables. `--check` writes nothing and says what
has drifted.

    <!-- runs: plainformer size gpt2 -->     the fenced block after it is that command's output
    <!-- checked -->                         the Python block after it runs, and each `# value` at a line's end is true
    <!-- measured: NAME -->  ... <!-- end --> a table of docs/measured/NAME.json
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
RUNS = re.compile(r"(<!-- runs: (.+?) -->\n```text\n).*?(```)", re.S)
CHECKED = re.compile(r"<!-- checked -->\n```python\n(.*?)```", re.S)
MEASURED = re.compile(r"(<!-- measured: (\S+) -->\n).*?(<!-- end -->)", re.S)


def output(command: str) -> str:
    """A command as a reader sees it: the line typed, then what it said to stdout."""
    name, *words = shlex.split(command)
    assert name == "plainformer", f"pages run plainformer alone, not {name}"
    said = subprocess.run(
        [sys.executable, "-m", "plainformer", *words],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "88", "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    return f"$ {command}\n{said.stdout}"


def table(name: str) -> str:
    """A measured file as a table, with how it was made."""
    file = ROOT / "docs" / "measured" / f"{name}.json"
    data = json.loads(file.read_text(encoding="utf-8"))
    columns = data["columns"]
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(str(row[c]) for c in columns) + " |" for row in data["rows"]]
    return "\n".join(lines) + f"\n\n`{data['command']}`, {data['machine']}, {data['date']}.\n"


def made(page: str) -> str:
    """The page with every generated part made anew."""
    page = RUNS.sub(lambda m: m[1] + output(m[2]) + m[3], page)
    return MEASURED.sub(lambda m: m[1] + table(m[2]) + m[3], page)


def false_values(page: str) -> list[str]:
    """The lines of checked blocks whose `# value` is not what the line gives."""
    wrong = []
    for block in CHECKED.findall(page):
        names: dict[str, object] = {}
        for node in ast.parse(block).body:
            source = ast.get_source_segment(block, node) or ""
            line = block.splitlines()[(node.end_lineno or 1) - 1]
            if isinstance(node, ast.Expr):
                value = eval(compile(ast.Expression(node.value), "page", "eval"), names)
                told = line.rpartition("  # ")[2].strip()
                if "  # " in line and ast.literal_eval(told) != value:
                    wrong.append(f"{source} gives {value!r}, the page says {told}")
            else:
                exec(compile(ast.Module([node], []), "page", "exec"), names)
    return wrong


def main(say: Callable[[str], None] = print) -> int:
    check, status = "--check" in sys.argv[1:], 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for line in false_values(text):
            say(f"{page.name}: {line}")
            status = 1
        if (new := made(text)) != text:
            if check:
                say(f"{page.name}: out of date; `make docs` makes it anew")
                status = 1
            else:
                page.write_text(new, encoding="utf-8")
                say(f"{page.name}: made anew")
    return status


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    raise SystemExit(main())

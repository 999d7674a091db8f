"""What a page of the site asks of the Python in the reader's browser. Plain Python, so that tests run it as well."""

import io
import json
import os
import shlex
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

WIDTH = 88
HERE = ("size", "show")  # the commands that need the standard library and rich alone
lesson: dict[str, Any] = {"__name__": "lesson"}  # the names that a lesson's cells have made


def command(line: str, config: str) -> str:
    """Run a command of plainformer in a folder that holds this config.json: what it said, and the pictures it made,
    as JSON."""
    from plainformer.cli import main

    os.environ.update(COLUMNS=str(WIDTH), NO_COLOR="1")
    said, before = io.StringIO(), Path.cwd()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(said), redirect_stderr(said):
        os.chdir(folder)
        try:
            Path("config.json").write_text(config, encoding="utf-8")
            name, *words = shlex.split(line) or [""]
            if name == "plainformer" and words[:1] and words[0] in HERE:
                main(words)
            else:
                print("on this page the line begins with plainformer " + " or plainformer ".join(HERE))
            pictures = [path.read_text(encoding="utf-8") for path in sorted(Path().glob("*.svg"))]
        except ValueError as fault:  # a quotation mark without its other
            print(f"the line cannot be read: {fault}")
            pictures = []
        finally:
            os.chdir(before)
    return json.dumps({"text": said.getvalue(), "pictures": pictures})


def cell(earlier: Sequence[str], source: str) -> str:
    """Run a lesson's cells that have not run yet, then this one: what it printed, what its last line gives, as JSON."""
    from plainformer.lessons.cells import Cell
    from plainformer.lessons.telling import run
    from plainformer.report.drawings import Drawing

    text, pictures, failed = "", [], False
    try:
        for one in earlier:
            run(Cell("hidden", one, file="an earlier cell"), lesson)
        given, text = run(Cell("code", source, file="this cell", line=1), lesson)
        if isinstance(given, Drawing):
            text, pictures = text.removesuffix(f"{given!r}\n"), [given.svg]
    except Exception as fault:
        text, failed = f"{type(fault).__name__}: {fault}", True
    return json.dumps({"text": text, "pictures": pictures, "failed": failed})

"""Makes what the pages show of the code: outputs, values, code, help and measured tables. `--check` writes nothing and
says what has drifted.

    <!-- runs: plainformer size gpt2 -->       the fenced block after it is that command's output
    <!-- checked -->                           the Python block after it runs, and each `# value` ending a line is true
    <!-- code: spec.NormedLinear -->           the Python block after it is that class; `ledger: NormedLinear` that rule
    <!-- made: NAME --> ... <!-- end -->       what the function of that name in tables.py gives
    <!-- measured: NAME --> ... <!-- end -->   a table, or a transcript, of docs/measured/NAME.json

The pictures in DRAWN are made of commands' outputs, the files of docs/examples in SHOWN are such outputs; the pages of
docs/lessons and their pictures by book.py. Every command on a page is parsed, and every link is followed as far as it
leads inside the project.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "src")]
import book  # noqa: E402
import tables  # noqa: E402

HELP_PYTHON = (3, 11)  # argparse lays its help out differently in each version: the page is one version's
WIDTH = 88

DRAWN = {"size.svg": "plainformer size llama-3-8b --batch 8 --context 8192"}
SHOWN = {"gpt2.py": "plainformer show gpt2", "llama-3-8b.py": "plainformer show llama-3-8b"}

RUNS = re.compile(r"(<!-- runs: (.+?) -->\n```text\n).*?(```)", re.S)
CHECKED = re.compile(r"<!-- checked -->\n```python\n(.*?)```", re.S)
CODE = re.compile(r"(<!-- code: (\w+)(\.|: )(\w+) -->\n```python\n).*?(```)", re.S)
MADE_PART = re.compile(r"(<!-- made: (\S+) -->\n).*?(<!-- end -->)", re.S)
MEASURED = re.compile(r"(<!-- measured: (\S+) -->\n).*?(<!-- end -->)", re.S)


def pages() -> list[Path]:
    """Pages written by hand, with parts that are made."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def lessons() -> list[Path]:
    """Pages that are made whole."""
    return sorted((ROOT / "docs" / "lessons").glob("*.md"))


# --- outputs of commands ----------------------------------------------------------------------------------------------


def output(command: str, width: int = WIDTH) -> str:
    """What a command says to stdout, as a reader in a window of that width sees it."""
    name, *words = shlex.split(command)
    if name != "plainformer":
        raise ValueError(f"pages run plainformer alone, not {name}")
    quiet = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "CLICOLOR_FORCE")}
    ran = subprocess.run(
        [sys.executable, "-m", "plainformer", *words],
        cwd=ROOT,
        env=quiet | {"COLUMNS": str(width), "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"},
        capture_output=True,
        encoding="utf-8",
    )
    if ran.returncode not in (0, 4):  # 4: what `check` was given differs
        raise ValueError(f"{command} ended with {ran.returncode}: {ran.stderr.strip()}")
    return "\n".join(line.rstrip() for line in ran.stdout.splitlines()) + "\n"


# --- parts made from the code -----------------------------------------------------------------------------------------


def commands() -> str:
    """docs/commands.md: the help of every command, as one version of Python lays it out."""
    from plainformer.cli import COMMANDS

    version = ".".join(map(str, HELP_PYTHON))
    text = [
        "# Commands\n",
        f"What each command says with `--help`, in a window 80 wide (Python {version}; others lay it out a little",
        "differently). Facts go to stdout, words to stderr. A command ends with 0: done; 1: our fault; 2: the request",
        "cannot be; 3: stopped on a bad loss; 130: stopped by you, after saving.\n",
    ]
    for words in ([], *([name] for name in COMMANDS)):
        line = " ".join(["plainformer", *words])
        text += [f"## {line}\n", f"```text\n{output(f'{line} --help', width=80)}```\n"]
    return "\n".join(text)


def measured(name: str) -> str:
    """A measured file as a table, with how it was made."""
    file = ROOT / "docs" / "measured" / f"{name}.json"
    if not file.is_file():
        return f"Not measured here yet: there is no docs/measured/{name}.json.\n"
    data = json.loads(file.read_text(encoding="utf-8"))
    how = f"`{data['command']}`, {data['machine']}, {data['date']}"
    how = f"{how}. {data['note']}" if data.get("note") else f"{how}."
    if (busy := data.get("load_before")) and busy >= 1:
        how += f" Others were at work on the machine: a load of {busy} before."
    if "text" in data:
        return f"```text\n{data['text']}```\n\n{how}\n"
    lines = tables.head(*data["columns"]) + [tables.row(*(one[c] for c in data["columns"])) for one in data["rows"]]
    return "\n".join([*lines, "", how, ""])


def picture(name: str) -> str:
    """A picture of a command's output."""
    from terminal import terminal

    return terminal(DRAWN[name], output(DRAWN[name]))


def made(page: str) -> str:
    """The page with every generated part made anew."""
    page = RUNS.sub(lambda m: f"{m[1]}$ {m[2]}\n{output(m[2])}{m[3]}", page)
    page = CODE.sub(lambda m: m[1] + tables.code(m[2], m[3], m[4]) + m[5], page)
    page = MADE_PART.sub(lambda m: m[1] + tables.table(m[2]) + m[3], page)
    return MEASURED.sub(lambda m: m[1] + measured(m[2]) + m[3], page)


# --- what is written by hand, checked ---------------------------------------------------------------------------------


def false_values(page: str) -> Iterator[str]:
    """The lines of checked blocks whose `# value` is not what the line gives. A page's blocks go on from each other."""
    names: dict[str, object] = {}
    for block in CHECKED.findall(page):
        for node in ast.parse(block).body:
            source = ast.get_source_segment(block, node) or ""
            line = block.splitlines()[(node.end_lineno or 1) - 1]
            if isinstance(node, ast.Expr):
                value = eval(compile(ast.Expression(node.value), "page", "eval"), names)
                told = line.rpartition("  # ")[2].strip()
                if "  # " in line and ast.literal_eval(told) != value:
                    yield f"{source} gives {value!r}, the page says {told}"
            else:
                exec(compile(ast.Module([node], []), "page", "exec"), names)


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Each fenced block: its language and its text."""
    yield from re.findall(r"^```([\w ]*)\n(.*?)^```", page, re.S | re.M)


def commands_on(page: str) -> Iterator[str]:
    """Every command of ours and of make that a page shows: lines of blocks, and code inside sentences."""
    for language, text in blocks(page):
        if language in ("", "sh", "text"):
            for line in text.splitlines():
                if found := re.match(r"(?:\$ )?((?:plainformer|make) [^#]+?)\s*(?:#.*)?$", line):
                    yield found[1]
    prose = re.sub(r"^```.*?^```", "", page, flags=re.S | re.M)
    for line in prose.splitlines():
        if "not yet" not in line.lower() and "the command `" not in line:
            yield from re.findall(r"`((?:plainformer|make) [^`]+)`", line)


def wrong_command(command: str) -> str | None:
    """Why a command shown on a page cannot be given; None if it can."""
    words = shlex.split(command)
    if words[0] == "make":
        verbs = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
        asked = [word for word in words[1:] if "=" not in word]
        return next((f"make has no {verb}" for verb in asked if verb not in verbs), None)
    from plainformer.cli import parser_for

    said = StringIO()
    try:
        with redirect_stderr(said):
            parser, module = parser_for(words[1:])
            if "--help" not in words:
                parser.parse_args(words[1:])
    except SystemExit:
        return said.getvalue().strip().splitlines()[-1]
    return None if module or words[1] == "--version" else f"no such command: {words[1]}"


def flags() -> set[str]:
    """Every option of every command."""
    from plainformer.cli import COMMANDS, parser_for

    found = {"--help"}
    for name in COMMANDS:
        parser, _ = parser_for([name])
        subs = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        found |= {option for each in (parser, subs.choices[name]) for option in each._option_string_actions}
    return found


def anchors(page: str) -> set[str]:
    """The places in a page that a link can name."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def dead_links(path: Path, page: str) -> Iterator[str]:
    """Links and pictures that lead to no file of the project, or to no title in it."""
    prose = re.sub(r"^```.*?^```", "", page, flags=re.S | re.M)
    found = re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r"(?:src|srcset|href)=\"([^\"]+)\"", page)
    for link in found:
        if re.match(r"[a-z]+:", link):
            continue
        where, _, anchor = link.partition("#")
        target = (path.parent / where).resolve() if where else path
        if not target.exists():
            yield f"{link} leads nowhere"
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield f"{link}: there is no such title"


def faults(path: Path, page: str) -> Iterator[str]:
    """What is wrong with a page as it was written."""
    yield from false_values(page)
    yield from dead_links(path, page)
    for command in commands_on(page):
        if why := wrong_command(command):
            yield f"{command}: {why}"
    if path.name == "README.md":
        known = flags()
        said = re.findall(r"`(--[\w-]+)", page)
        yield from (f"{flag} is an option of no command" for flag in dict.fromkeys(said) if flag not in known)
    for language, text in blocks(page):
        if language.startswith("python"):
            compile(text, path.name, "exec")


def drifted() -> Iterator[tuple[Path, str]]:
    """Each page whose generated parts are not what the code gives now, with what they should be."""
    for path in pages():
        if path.name == "commands.md":
            continue
        page = path.read_text(encoding="utf-8")
        if (new := made(page)) != page:
            yield path, new
    for name in DRAWN:
        path, new = ROOT / "docs" / "pictures" / name, picture(name)
        if not path.is_file() or path.read_text(encoding="utf-8") != new:
            yield path, new
    for name, command in SHOWN.items():
        path, new = ROOT / "docs" / "examples" / name, output(command)
        if not path.is_file() or path.read_text(encoding="utf-8") != new:
            yield path, new
    for path, new in book.made():
        if not path.is_file() or path.read_text(encoding="utf-8") != new:
            yield path, new
    help_page = ROOT / "docs" / "commands.md"
    if sys.version_info[:2] == HELP_PYTHON:
        new = commands()
        if not help_page.is_file() or help_page.read_text(encoding="utf-8") != new:
            yield help_page, new


def write_lessons(names: list[str], say: Callable[[str], Any]) -> int:
    """The pages and pictures of these lessons, or of all, and nothing else."""
    for path, new in book.made(names):
        if not path.is_file() or path.read_text(encoding="utf-8") != new:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new, encoding="utf-8", newline="\n")
            say(f"{path.name}: made anew")
    found = list(book.faults(names))
    for fault in found:
        say(fault)
    return 1 if found else 0


def main(argv: list[str], say: Callable[[str], Any] = print) -> int:
    check, status = "--check" in argv, 0
    if "--lessons" in argv:
        names = [word for word in argv if not word.startswith("-")]
        return write_lessons(names, say)
    for path, new in list(drifted()):
        if check:
            say(f"{path.name}: out of date; `make docs` makes it anew")
            status = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(new, encoding="utf-8", newline="\n")
            say(f"{path.name}: made anew")
    for fault in book.faults():
        say(fault)
        status = 1
    for path in [*pages(), *lessons()]:
        for fault in faults(path, path.read_text(encoding="utf-8")):
            say(f"{path.name}: {fault}")
            status = 1
    return status


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""The command line. Facts go to stdout, words to stderr; a command's module is loaded when the command is asked for."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType

from plainformer.faults import PlainformerError

# Each module offers `arguments(parser)` and `run(args) -> exit status`.
COMMANDS = {
    "demo": ("plainformer.cli.demo", "what this is, in two acts: sizes and attention; a GPT trained while you wait"),
    "size": ("plainformer.cli.size", "parameters, bytes, cache and operations of any transformer, exact"),
    "show": ("plainformer.cli.show", "the model as one PyTorch file to read; it needs nothing else of ours"),
    "tokenize": ("plainformer.cli.tokenize", "a text of any size as tokens, made once and trained on often"),
    "train": ("plainformer.cli.train", "a GPT from a text; killed at any moment, it goes on from there"),
    "generate": ("plainformer.cli.generate", "text from a trained model, written as it comes"),
    "embed": ("plainformer.cli.embed", "texts as vectors: the mean over a model's last states, or one of them"),
    "eval": ("plainformer.cli.evaluate", "how well a model predicts a text: each token once"),
    "inspect": ("plainformer.cli.inspect", "what a model does with a prompt: surprisal, causality, attention maps"),
    "check": ("plainformer.cli.check", "your own code held against the formulas, and the name of its mistake"),
    "learn": ("plainformer.cli.learn", "lessons that run: how a transformer works, every number computed"),
    "exercise": ("plainformer.cli.exercise", "blanks to fill, from a softmax to a GPT that trains; how far you are"),
    "export": ("plainformer.cli.export", "a folder that transformers loads, from a trained model"),
}
EXTRAS = {"torch": "torch", "tokenizers": "torch", "gguf": "gguf", "matplotlib": "plots", "huggingface_hub": "hub"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. 0: done; 1: our fault; 2: the request cannot be; 3: stopped on a bad loss; 4: check
    found something that is not right; 130: stopped by the user."""
    words = list(sys.argv[1:] if argv is None else argv)
    if sys.stdout is None:
        return say("there is nowhere to write to: stdout is closed", 2)
    parser, module = parser_for(words)
    args = parsed(parser, words)
    if isinstance(args, str):
        return say(args, 2)
    if args.version:
        print(f"plainformer {version()}")
        return 0
    if module is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        status: int = module.run(args)
        sys.stdout.flush()
        return status
    except PlainformerError as refused:
        return say(in_two_lines(refused), 2)
    except KeyboardInterrupt:
        return say("stopped", 130)
    except BrokenPipeError:  # the reader has had enough: not a fault
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as fault:
        if args.traceback:
            raise
        if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF):
            nowhere = os.open(os.devnull, os.O_WRONLY)  # what is still held back must not fail again at the end
            os.dup2(nowhere, sys.stdout.fileno())
            return say(f"what was asked cannot be written: {fault.strerror}", 2)
        missing = (fault.name or "").partition(".")[0] if isinstance(fault, ImportError) else ""
        if missing in EXTRAS:
            return say(f"this needs {missing}: pip install 'plainformer[{EXTRAS[missing]}]'", 2)
        kind = type(fault).__name__
        return say(f"our fault, not yours: {kind}: {fault} (--traceback shows where)", 1)


def parsed(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Namespace | str:
    """The arguments; where argparse refuses them, its reason in one line, without its page of usage."""
    import io
    from contextlib import redirect_stderr

    said = io.StringIO()
    try:
        with redirect_stderr(said):
            return parser.parse_args(words)
    except SystemExit as stop:
        if not stop.code:
            raise  # --help has been given
        command = next((word for word in words if word in COMMANDS), "")
        _, _, reason = said.getvalue().partition("error: ")
        return f"{' '.join(reason.split())} ({' '.join(('plainformer', command)).strip()} --help)"


def parser_for(words: Sequence[str]) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    """The parser, with the arguments of the command that `words` name, and that command's module."""
    about = "Transformers in plain sight."
    parser = argparse.ArgumentParser(prog="plainformer", description=about, formatter_class=formatter)
    parser.add_argument("--version", action="store_true", help="say which version this is")
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", prog="plainformer")
    chosen = next((word for word in words if not word.startswith("-")), None)
    module = None
    for name in [chosen] if chosen in COMMANDS else COMMANDS:  # the others' parsers would only take time
        place, about = COMMANDS[name]
        described = f"{about[0].upper()}{about[1:]}."
        command = commands.add_parser(name, help=about, description=described, formatter_class=formatter)
        command.add_argument("--traceback", action="store_true", help="show where in our code a fault happened")
        if name == chosen:
            module = import_module(place)
            module.arguments(command)
    return parser, module


def formatter(prog: str) -> argparse.HelpFormatter:
    """argparse's own, told the width of the window: it would load a library of files to ask."""
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else 0
    if not width:
        try:
            width = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns
        except (OSError, ValueError):
            width = 80
    return argparse.HelpFormatter(prog, width=(width or 80) - 2)


def version() -> str:
    """The installed version; looked up only when it is asked for."""
    from importlib import metadata

    try:
        return metadata.version("plainformer")
    except metadata.PackageNotFoundError:
        return "(run in place, not installed)"


def in_two_lines(refused: PlainformerError) -> str:
    """The first faults: a wrong size in one layer is wrong in all of them."""
    first, *rest = refused.faults
    if len(rest) > 1:
        return f"{first}\n(and {len(rest)} more faults, this one's likes among them)"
    return str(refused)


def say(line: str, status: int) -> int:
    """Words for the person, and the exit status that goes with them."""
    print(f"plainformer: {line}", file=sys.stderr)
    return status

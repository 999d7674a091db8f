"""`plainformer learn`: the lessons, told in the terminal as they are computed. NumPy only."""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from plainformer.faults import refuse

if TYPE_CHECKING:
    from rich.console import RenderableType

    from plainformer.lessons.telling import Piece, Told


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lesson", nargs="?", metavar="LESSON", help="a lesson's number or name; without: the contents")
    parser.add_argument("--all", action="store_true", help="every lesson, one after the other")
    parser.add_argument("--notebook", metavar="FILE", help="write the lesson as a notebook instead of telling it")
    parser.add_argument("--figures", metavar="DIR", help="write the lesson's pictures as SVG files into a folder")
    parser.add_argument("--measure", action="store_true", help="measure again what the lesson has stored; needs torch")
    parser.add_argument("--text", metavar="FILE", help="what --measure trains on; without: Python's own documentation")


def run(args: argparse.Namespace) -> int:
    from plainformer.lessons.cells import found, written
    from plainformer.lessons.telling import tell

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a stream without Greek letters shows the rest
    if args.all and args.lesson:
        raise refuse("--all", args.lesson, "takes no lesson", "give one of them")
    asked = [flag for flag in ("notebook", "figures", "measure") if getattr(args, flag)]
    if args.text and not args.measure:
        raise refuse("--text", args.text, "is what --measure trains on", "add --measure")
    if args.measure and len(asked) > 1:
        raise refuse(f"--{asked[0]}", getattr(args, asked[0]), "is of a lesson that is told; --measure tells none")
    if asked and not args.lesson and not (args.all and asked == ["figures"]):
        raise refuse(f"--{asked[0]}", getattr(args, asked[0]), "is of one lesson", "plainformer learn LESSON ...")
    if not (args.all or args.lesson):
        contents()
        return 0
    for lesson in written() if args.all else [found(args.lesson)]:
        told = tell(lesson)
        if args.measure:
            measure(told, args.text)
        elif args.notebook or args.figures:
            write(told, args.notebook, args.figures)
        else:
            show(told)
    return 0


def contents() -> None:
    from plainformer.lessons.cells import written

    print("Lessons that run: every number is computed as it is told.\n")
    for lesson in written():
        print(f"  plainformer learn {lesson.number:<3} {lesson.title}\n  {'':21} {lesson.sentence}")
    print("\n  plainformer learn --all")


def write(told: Told, notebook: str | None, figures: str | None) -> None:
    """Files of a lesson: whole, or refused."""
    from plainformer.lessons.pages import notebook as made

    files = {Path(notebook): made(told)} if notebook else {}
    if figures:
        files |= {Path(figures) / name: drawing.svg for name, drawing in told.drawings().items()}
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        except OSError as fault:
            raise refuse("file", str(path), f"cannot be written: {fault.strerror}") from None
        print(path)


def measure(told: Told, text: str | None) -> None:
    """Measure again what the lesson shows as stored, and print both."""
    from rich.markdown import Markdown

    from plainformer.lessons.telling import measured, table
    from plainformer.measuring import measure as again
    from plainformer.report.tables import draw

    names = [piece.name for piece in told.pieces if piece.kind == "measured"]
    if not names:
        raise refuse("--measure", told.lesson.number, "this lesson has measured nothing", "plainformer learn")
    for name in names:
        print(f"{name}: stored was {measured(name)['machine']}, {measured(name)['date']}", file=sys.stderr)
        data = again(name, Path(text) if text else None)
        for title, one in (("stored", measured(name)), ("here and now", data)):
            rows = [[row[column] for column in one["columns"]] for row in one["rows"]]
            draw(sys.stdout, Markdown(f"**{name}, {title}**\n\n{table(one['columns'], rows)}\n\n{one['note']}"))


# --- in the terminal --------------------------------------------------------------------------------------------------

# Letters and signs by their LaTeX names; a name that is not here stands for itself (log, tanh, max).
NAMED = """
alpha=α beta=β gamma=γ delta=δ epsilon=ε theta=θ lambda=λ mu=μ pi=π rho=ρ sigma=σ tau=τ phi=φ omega=ω Sigma=Σ Phi=Φ
Delta=Δ cdot=· times=× le=≤ ge=≥ ne=≠ leq=≤ geq=≥ neq=≠ approx=≈ in=∈ infty=∞ to=→ leftarrow=← rightarrow=→ equiv=≡
sum=Σ prod=Π top=ᵀ ldots=... dots=... cdots=... pm=± sqrt=√ odot=⊙ mid=∣ partial=∂ Vert=‖ lVert=‖ rVert=‖ lvert=∣
rvert=∣ varphi=φ vdots=⋮ propto=∝ ell=l lfloor=⌊ rfloor=⌋ iff=⇔ implies=⇒ langle=⟨ rangle=⟩ left= right= big= Big=
bigl= bigr= qquad=~~~ quad=~~
"""
SIGNS: dict[str, str] = dict(re.findall(r"(\w+)=(\S*)", NAMED))
INNER = r"\{((?:[^{}]|\{[^{}]*\})*)\}"


def grouped(text: str) -> str:
    """A part of a fraction; in brackets where it is more than one letter or number."""
    return text if re.fullmatch(r"\\?\w+", text) else f"({text})"


def plain(formula: str) -> str:
    """A formula for people with a terminal: letters and signs instead of their names."""
    text = formula.strip("$").strip()
    for _ in range(4):  # innermost first
        text = re.sub(r"\\(?:mathrm|text|mathbf|operatorname|mathcal|mathbb|boldsymbol)" + INNER, r"\1", text)
        text = re.sub(r"\\d?frac" + INNER + INNER, lambda m: f"{grouped(m[1])} / {grouped(m[2])}", text)
        text = re.sub(r"\\sqrt" + INNER, r"√(\1)", text)
        text = re.sub(r"\\(?:bar|hat|tilde|vec|underbrace|overline)" + INNER, r"\1", text)
    text = re.sub(r"\\begin\{\w+\}|\\end\{\w+\}|\\[,;!:]|&", " ", text).replace("\\\\", "\n")
    text = re.sub(r"\\([A-Za-z]+)", lambda m: SIGNS.get(m[1], m[1]), text)
    text = re.sub(r"([_^])\{([^{}]*)\}", lambda m: m[1] + (m[2] if len(m[2]) == 1 else f"({m[2]})"), text)
    text = text.replace("\\{", "{").replace("\\}", "}").replace("\\ ", " ").replace("\\", "")
    text = re.sub(r"(?<=[({]) +| +(?=[)}])", "", text.replace("^ᵀ", "ᵀ").replace("^(ᵀ)", "ᵀ"))
    return "\n".join(re.sub(" +", " ", line).replace("~", " ").strip() for line in text.splitlines())


def prose(text: str) -> str:
    """A lesson's Markdown as rich can draw it: formulas in letters, tags in brackets, links by their words."""
    text = re.sub(r"\$\$(.+?)\$\$", lambda m: f"```\n{plain(m[1])}\n```", text, flags=re.S)
    text = re.sub(r"\$([^$\n]+?)\$", lambda m: f"`{plain(m[1])}`", text)
    text = re.sub(r"<sup>\[(.+?)\]</sup>", r"*\[\1\]*", text)
    return re.sub(r"\[([^\]]+)\]\([^)\s]+\.md\)", r"\1", text)


def drawn(piece: Piece) -> Iterator[RenderableType]:
    """One piece as rich draws it; nothing for what is hidden."""
    from rich.markdown import Markdown
    from rich.padding import Padding
    from rich.syntax import Syntax
    from rich.text import Text

    from plainformer.report.tables import draws_blocks

    if piece.kind in ("markdown", "papers", "measured") and piece.text:
        yield Markdown(prose(piece.text))
    elif piece.kind == "numbers":
        yield Markdown(prose(piece.output))
    elif piece.kind in ("code", "source"):
        if piece.name:
            yield Text(f"{piece.name}:")
        yield Padding(Syntax(piece.text, "python", background_color="default", word_wrap=True), (0, 2))
        if piece.output.strip():
            yield Padding(Text(piece.output.rstrip()), (1, 4, 0, 4))
    elif piece.drawing and draws_blocks(sys.stdout) and max(map(len, piece.drawing.text)) <= window():
        yield Padding(Text("\n".join(piece.drawing.text), no_wrap=True, overflow="crop"), (0, 2))
    elif piece.drawing:
        yield Text(f"(a picture that this window can't hold: {piece.drawing.title}; --figures DIR draws it)")


def window() -> int:
    """How many columns a picture may have."""
    from shutil import get_terminal_size

    return get_terminal_size().columns - 2


def show(told: Told) -> None:
    """The whole lesson, a piece at a time, so that a reader with a pager need not wait."""
    from plainformer.report.tables import draw

    for piece in told.pieces:
        for thing in drawn(piece):
            draw(sys.stdout, thing, "")

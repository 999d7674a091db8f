"""A command and its output as a picture of a terminal, on light and dark pages alike."""

from __future__ import annotations

import re

from plainformer.report import svg

WIDE, TALL, SIDE, TOP = 7.25, 17.0, 18.0, 34.0  # of a character, of a line, of the margins
MONOSPACE = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"
BAR = re.compile(r"[█▏▎▍▌▋▊▉]+$")
PHRASE = re.compile(r"\S+(?: \S+)*")  # words that stand together; a gap is left by where the next begin


def terminal(command: str, said: str) -> str:
    """A command and its output as a window would show them; bars in colour."""
    lines = [f"$ {command}", *said.rstrip("\n").splitlines()]
    wide, tall = 2 * SIDE + WIDE * max(map(len, lines)), TOP + TALL * len(lines) + 10
    body = [svg.box(0.5, 0.5, wide - 1, tall - 1, "g", ' rx="8" style="fill:none;stroke:var(--line)"')]
    body += [f'<circle cx="{20 + 16 * i}" cy="17" r="5" style="fill:var(--line)"/>' for i in range(3)]
    for i, line in enumerate(lines):
        y = TOP + TALL * (i + 1) - 4
        bar = BAR.search(line)
        for words in PHRASE.finditer(line[: bar.start()] if bar else line):
            body.append(typed(words.start(), y, words[0], "s" if i == 0 else ""))
        if bar:
            x = SIDE + WIDE * bar.start()
            eighths = 8 * bar[0].count("█") + sum(0x2590 - ord(c) for c in bar[0] if c != "█")
            body.append(svg.box(x, y - 10, WIDE * eighths / 8, 12, "f c0"))
    return svg.page(wide, tall, f"What {command} says", body)


def typed(column: int, y: float, text: str, kind: str) -> str:
    """Text from a column on, as wide as its characters whatever the font."""
    more = f' style="{MONOSPACE}" textLength="{svg.number(WIDE * len(text))}" lengthAdjust="spacingAndGlyphs"'
    return svg.words(SIDE + WIDE * column, y, text, kind, more)

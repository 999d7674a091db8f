"""The first page's session and pictures, from one real run on a text."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from measures import ROOT, load, machine

from plainformer.report.svg import heat_maps

PICTURES = ROOT / "docs" / "pictures"
SHOWN = 3  # lines of progress that a session keeps at each end


def shortened(said: str) -> str:
    """A transcript with the middle of its progress left out."""
    lines = said.splitlines()
    steps = [i for i, line in enumerate(lines) if line.startswith("step ")]
    if len(steps) > 2 * SHOWN:
        left_out = set(steps[SHOWN:-SHOWN])
        at = min(left_out)
        lines = ["..." if i == at else line for i, line in enumerate(lines) if i == at or i not in left_out]
    return "\n".join(lines) + "\n"


def maps(seen: dict[str, Any]) -> str:
    """The last head of the first layer, the last layer, and of those between, two at most."""
    places = list(seen["attention"])
    chosen = dict.fromkeys(places[i * (len(places) - 1) // 3] for i in range(4))
    texts = ["␣" if text == " " else text for text in seen["texts"]]
    each = [(place.removeprefix("decoder."), seen["attention"][place][-1]) for place in chosen]
    return heat_maps(each, "Where each character looks, of those before it", texts, texts, across=len(each), cell=11)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path, metavar="TEXT", help="tiny Shakespeare, for the page as it is")
    args = parser.parse_args()
    before, transcript = load(), []
    with TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(args.text, folder / "shakespeare.txt")
        for command in (
            "plainformer train shakespeare.txt --out run",
            'plainformer generate run --prompt "ROMEO:" --seed 1',
            'plainformer inspect run --prompt "To be, or not to be" --json',
        ):
            ran = subprocess.run(
                [sys.executable, "-m", "plainformer", *shlex.split(command)[1:]],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1", "COLUMNS": "88", "NO_COLOR": "1"},
                stdout=subprocess.PIPE,
                stderr=None if command.endswith("--json") else subprocess.STDOUT,
                encoding="utf-8",
                check=True,
            )
            transcript.append(f"$ {command}\n{shortened(ran.stdout)}")
        PICTURES.mkdir(exist_ok=True)
        shutil.copy(folder / "run" / "loss.svg", PICTURES / "loss.svg")
        (PICTURES / "attention.svg").write_text(maps(json.loads(ran.stdout)), encoding="utf-8")
    session = {
        "command": "python bench/session.py TEXT",
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
        "load_before": before,
        "text": "\n".join(transcript[:2]),
    }
    to = ROOT / "docs" / "measured" / "session.json"
    to.write_text(json.dumps(session, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

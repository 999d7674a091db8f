"""What an install takes: seconds and bytes, light and with PyTorch, each into a fresh environment."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from measures import ROOT, Row, load, tell

PIP = ("-m", "pip", "--disable-pip-version-check", "install", "-qq", "-c", str(ROOT / "constraints.txt"))


def size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def install(what: str) -> tuple[float, int]:
    """Seconds that pip takes, and the bytes that are there after that were not before."""
    with TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python, before = str(Path(folder) / "bin" / "python"), size(Path(folder))
        begun = perf_counter()
        subprocess.run([python, *PIP, f"{ROOT}{what}"], check=True)
        return perf_counter() - begun, size(Path(folder)) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args = parser.parse_args()
    before, rows = load(), []
    for words, what, gives in (
        ("pip install .", "", "`size`, presets, the reference, lessons"),
        ("pip install '.[torch]'", "[torch]", "all commands"),
    ):
        taken, n_bytes = install(what)
        row: Row = {"install": f"`{words}`", "gives": gives, "MB": f"{n_bytes / 1e6:,.0f}", "seconds": f"{taken:,.0f}"}
        rows.append(row)
    note = "One install each, of this folder; PyTorch's build for CPUs. The seconds are mostly the network's doing."
    tell("install", "python bench/install.py --save", rows, note, before, args.save)


if __name__ == "__main__":
    main()

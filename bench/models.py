"""How close every family that loads is to transformers, through a folder as its class saves it and back."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from measures import ROOT, load, tell

sys.path.insert(0, str(ROOT / "tests"))
from loaded import FAMILIES, NEW, found
from strangers import STRANGERS


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args, before = asked.parse_args(), load()
    rows = []
    for family, strangers in FAMILIES.items():
        with TemporaryDirectory() as room:
            all_found = [found(which, Path(room) / str(i)) for i, which in enumerate(strangers)]
        rows.append(
            {
                "family": family,
                "held against": ", ".join(dict.fromkeys(f"`{STRANGERS[which].name}`" for which in strangers)),
                "forms": len(strangers),
                "logits, float32": f"{max(one.gap for one in all_found):.1e}",
                "best tokens": f"{sum(one.equal for one in all_found)} of {sum(one.chosen for one in all_found)}",
                "out again": "as it was" if all(one.same for one in all_found) else "changed",
            }
        )
        print(family, file=sys.stderr)
    import torch
    import transformers

    note = (
        f"transformers {transformers.__version__}, torch {torch.__version__.partition('+')[0]}. Logits: the largest "
        f"difference as a share of the largest logit (at least 1). Best tokens: of a decoder {NEW} new ones a row, "
        "greedy and with a cache; of an encoder or a base class the best at each place. Out again: every tensor of the "
        "folder that `export` writes."
    )
    tell("models", "python bench/models.py --save", rows, note, before, args.save)


if __name__ == "__main__":
    main()

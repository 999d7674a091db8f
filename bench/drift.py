"""Which text models of the installed transformers are sized exactly, which are refused, by name."""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from measures import ROOT, load, tell

sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help="keep the table in docs/measured")
    args = parser.parse_args()
    import torch
    import transformers

    import drift
    import drift_media

    before = load()
    transformers.logging.set_verbosity_error()
    types = sorted(drift.text_types())
    verdicts = {model_type: drift.verdict(drift.answers(model_type)) for model_type in types}
    counted = Counter(verdicts.values())
    rows = [
        {"verdict": name, "types": counted[name], "share": f"{counted[name] / len(types):.1%}", "what": what}
        for name, what in (
            ("exact", "parameters equal to the class on the meta device, to the last one"),
            ("refused", "refused by name: no reader, or a part that cannot be said"),
            ("unbuilt", "the class builds neither its default nor a drawn config"),
            ("wrong", "none may be"),
        )
    ]
    note = (
        f"{len(types)} model types of the causal, masked and sequence-to-sequence classes; transformers "
        f"{transformers.__version__}, torch {torch.__version__.partition('+')[0]}; the default config and three drawn "
        "ones of each, as saved and as bare keys."
    )
    names = {name: [model_type for model_type in types if verdicts[model_type] == name] for name in sorted(counted)}
    # the first answer of a type is its default config's, in the first of its classes
    firsts = {model_type: next(iter(drift.answers(model_type)), None) for model_type in types}
    firsts |= {model_type: next(iter(drift_media.default(model_type)), None) for model_type in drift_media.CLASSES}
    defaults = {one.model_type: [one.class_name, one.total] for one in firsts.values() if one and one.total}
    tell("drift", "make bench BENCH=drift", rows, note, before, args.save, names=names, defaults=defaults)


if __name__ == "__main__":
    main()

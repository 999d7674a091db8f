"""`plainformer check --weights THEIRS --like MODEL`: which convention explains other logits."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from plainformer.cli.trained import has_weights, wait_asleep
from plainformer.faults import refuse

if TYPE_CHECKING:
    from plainformer.porting import Verdict

DIFFERS = 4


def compared(args: argparse.Namespace) -> int:
    """The verdict: 0 where the logits are the same, 4 where they are not."""
    if not args.weights or not args.like:
        raise refuse("--weights, --like", args.weights or args.like, "go together", "--weights THEIRS --like MODEL")
    if args.file:
        raise refuse("FILE.py", args.file, "is not asked beside --weights", "give one of them")
    if not args.logits and not has_weights(args.like):
        hint = "--logits FILE: tokens and the logits that their own code gave, .npz or .safetensors"
        raise refuse("--like", args.like, "has no weights: nothing says which logits are right", hint)
    wait_asleep()
    from plainformer.porting import both_folders, explain, read_logits, read_weights

    theirs = read_weights(Path(args.weights), Path(args.like))
    tokens, logits = read_logits(Path(args.logits)) if args.logits else both_folders(Path(args.like), args.seed)
    verdict = explain(theirs.ported, tokens, logits, told=lambda words: print(words, file=sys.stderr))
    if args.json:
        print(json.dumps({**asdict(verdict), "same": verdict.same, "explained": verdict.explained,
                          "left": verdict.left, "notes": theirs.notes}))  # fmt: skip
    else:
        for note in theirs.notes:
            print(f"note      {note}")
        told(verdict, f"{args.logits or args.like}")
    return 0 if verdict.same else DIFFERS


def told(verdict: Verdict, truth: str) -> None:
    """The gap, then each convention and what is left with it."""
    if verdict.same:
        print(f"same      the logits are those of {truth}: they differ by {verdict.gap:.2g} of their spread")
        return
    print(f"differs   by {verdict.gap:.2g} of the spread of the logits of {truth}")
    for step in verdict.steps:
        print(f"because   {step.said}  [{step.key}]: {step.gap:.2g} is left")
        if step.also:
            print(f"  or      the same comes of {', '.join(step.also)}")
    if verdict.explained:
        print(f"explained what is left is rounding: {verdict.left:.2g}")
    elif verdict.steps:
        print(f"in part   {verdict.left:.2g} is left, and no known convention explains it")
    else:
        print("unknown   no known convention, nor two, bring it nearer")
    if not verdict.finished:
        print(f"time was up after {verdict.tried} tries: not every pair was tried", file=sys.stderr)

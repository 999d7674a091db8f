"""Weights that came from elsewhere give other logits: which convention explains the gap.

Each convention is a change of the spec or of the weights; those that bring our logits to theirs are named.
"""

from __future__ import annotations

from plainformer.porting.conventions import CONVENTIONS, Convention
from plainformer.porting.reading import Theirs, both_folders, read_logits, read_weights
from plainformer.porting.searching import Step, Verdict, explain

__all__ = ["CONVENTIONS", "Convention", "Step", "Theirs", "Verdict", "both_folders", "explain", "read_logits",
           "read_weights"]  # fmt: skip

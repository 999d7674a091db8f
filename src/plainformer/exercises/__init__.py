"""Blanks to fill: from a softmax to a GPT that trains, each with its law and an example for a hand.

`plainformer check` judges what is written into them: its topics are the exercises' answers.
"""

from __future__ import annotations

from plainformer.exercises.blanks import blank, put
from plainformer.exercises.progress import Progress
from plainformer.exercises.table import EXERCISES, Exercise, found

__all__ = ["EXERCISES", "Exercise", "Progress", "blank", "found", "put"]

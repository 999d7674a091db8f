"""Hold someone's own code against the formulas, and name its mistake.

Their code runs in a process of its own; what it answers is compared with the formulas and, where it differs, with the
formulas done with one thing wrong, then two. No torch is loaded here.
"""

from __future__ import annotations

from plainformer.check.answer import Answer, Mistake
from plainformer.check.catalogue import CATALOGUE, Entry
from plainformer.check.checking import Report, check_file
from plainformer.check.topics import TOPICS

__all__ = ["CATALOGUE", "TOPICS", "Answer", "Entry", "Mistake", "Report", "check_file"]

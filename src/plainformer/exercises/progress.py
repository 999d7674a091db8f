"""How far someone is: a plain file beside their work, `plainformer-progress.json`, {file: {exercise: verdict}}."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plainformer.check import Answer
from plainformer.check.topic import Topic
from plainformer.exercises.blanks import store
from plainformer.exercises.table import EXERCISES, Exercise
from plainformer.faults import refuse

NAME = "plainformer-progress.json"
NOT_BEGUN, VERDICTS = "not begun", {"blank": "not begun"}


@dataclass
class Progress:
    """Of one folder. `verdicts`: of each file the last verdict on each exercise."""

    folder: Path
    verdicts: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Progress:
        """As it is kept in a folder; empty where nothing is. Refuses a file that is something else."""
        path = folder / NAME
        try:
            told = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            whole = all(isinstance(file, dict) and all(map(isinstance_of_str, file.values())) for file in told.values())
        except (OSError, ValueError, AttributeError):
            whole = False
        if not whole:
            raise refuse(NAME, str(path), "is not as it was written", "mend it, or delete it: check judges anew")
        return cls(folder, told)

    def begun(self, file: str, exercises: Iterable[Exercise]) -> None:
        for one in exercises:
            self.verdicts.setdefault(file, {})[one.name] = NOT_BEGUN

    def judged(self, file: str, answers: Iterable[Answer]) -> None:
        """The verdicts of a check, on exercises of this file alone: other things of theirs are no exercises."""
        mine = self.verdicts.get(file, {})
        for answer in answers:
            if answer.thing in mine:
                mine[answer.thing] = VERDICTS.get(answer.verdict, answer.verdict)

    def judged_as(self, file: str) -> Mapping[str, Topic]:
        """Of the exercises in a file, what their words ask."""
        return {one.name: one.judged_as for one in EXERCISES if one.name in self.verdicts.get(file, {})}

    def of_exercise(self, exercise: Exercise) -> str:
        """Right, if it is so in any file; else the newest word on it."""
        said = [file[exercise.name] for file in self.verdicts.values() if exercise.name in file]
        return "right" if "right" in said else said[-1] if said else ""

    @property
    def next(self) -> Exercise | None:
        """The first that is not right."""
        return next((one for one in EXERCISES if self.of_exercise(one) != "right"), None)

    def keep(self) -> None:
        store(self.folder / NAME, json.dumps(self.verdicts, indent=2) + "\n")


def isinstance_of_str(value: object) -> bool:
    return isinstance(value, str)

"""The training room: a GPT from a text, and how well it predicts another."""

from __future__ import annotations

from plainformer.training.evaluation import Evaluation, evaluate
from plainformer.training.loop import Outcome, carry_on
from plainformer.training.optimizers import Muon, Optimizers
from plainformer.training.schedule import Schedule
from plainformer.training.starting import check_resume, plan, start
from plainformer.training.step import BadStep, gradients

__all__ = [
    "BadStep",
    "Evaluation",
    "Muon",
    "Optimizers",
    "Outcome",
    "Schedule",
    "carry_on",
    "check_resume",
    "evaluate",
    "gradients",
    "plan",
    "start",
]

"""Gradients by hand: how much a loss grows with each weight, and what a step makes of it. NumPy, float64."""

from __future__ import annotations

from plainformer.gradients import experts as experts
from plainformer.gradients.formulas import attention_back as attention_back
from plainformer.gradients.parts import Met as Met
from plainformer.gradients.parts import Slopes as Slopes
from plainformer.gradients.parts import backward as backward
from plainformer.gradients.parts import chain as chain
from plainformer.gradients.parts import rule as rule
from plainformer.gradients.steps import Moments as Moments
from plainformer.gradients.steps import adamw_step as adamw_step
from plainformer.gradients.steps import clipped as clipped
from plainformer.gradients.steps import muon_step as muon_step
from plainformer.gradients.whole import loss_and_gradients as loss_and_gradients
from plainformer.gradients.whole import nudged as nudged

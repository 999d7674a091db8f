"""How long a step takes: measured on a few that are thrown away."""

from __future__ import annotations

import time

import torch

from plainformer.model import Transformer
from plainformer.spec import Spec
from plainformer.text import Batches, TokenFile, split
from plainformer.training.evaluation import passes, scored
from plainformer.training.finetuning import choose_trained
from plainformer.training.optimizers import optimizers_for
from plainformer.training.passing import as_decided
from plainformer.training.peak import wait_for
from plainformer.training.processes import Scores
from plainformer.training.recipe import Settings
from plainformer.training.step import gradients

WARM, TIMED = 2, 4


def seconds_a_step(
    spec: Spec, settings: Settings, tokens: TokenFile, warm: int = WARM, timed: int = TIMED
) -> tuple[float, float]:
    """(seconds of a step, seconds of an evaluation of the whole validation part), on a model that is thrown away."""
    train, validation = split(tokens.n_tokens, settings.validation)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Transformer(spec, initial=settings.initial, seed=settings.seed).to(device)
    choose_trained(model, settings)
    as_decided(model, settings, device.type)
    optimizers = optimizers_for(model, settings)
    batches = Batches(tokens.slice(train), settings.context, settings.batch_size, settings.seed)
    times = []
    for step in range(warm + timed):
        at = time.monotonic()
        x_BT, y_BT = (torch.from_numpy(block).to(device) for block in batches.at(step))
        parts = settings.micro_batch, settings.dtype
        gradients(model, x_BT, y_BT, spec.vocab_size, *parts, loss_rows=settings.loss_rows)
        optimizers.step()
        optimizers.clear()
        wait_for(device)
        times.append(time.monotonic() - at)
    evaluation = 0.0
    if len(validation):
        xs, ys, first = next(passes(tokens.slice(validation), settings.context, None, spec.vocab_size))
        scored(Scores(model), xs, ys, first, spec.vocab_size, device)  # the first one makes room in memory
        at = time.monotonic()
        scored(Scores(model), xs, ys, first, spec.vocab_size, device)
        evaluation = (time.monotonic() - at) * len(validation) / ys.size
    return sorted(times[warm:])[timed // 2], evaluation

"""How long a step takes: measured on a few that are thrown away."""

from __future__ import annotations

import time
from functools import partial
from itertools import islice

import torch

from plainformer.model import Transformer
from plainformer.spec import Spec
from plainformer.text import Batches, TokenFile, split
from plainformer.training.evaluation import passes, scored
from plainformer.training.finetuning import choose_trained
from plainformer.training.lanes import reading, side_by_side, threads
from plainformer.training.optimizers import optimizers_for
from plainformer.training.passing import as_decided, as_it_is
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

    def step_of(step: int) -> float:
        at = time.monotonic()
        x_BT, y_BT = (torch.from_numpy(block).to(device) for block in batches.at(step))
        parts = settings.micro_batch, settings.dtype
        how = partial(gradients, loss_rows=settings.loss_rows, lanes=settings.lanes)
        how(model, x_BT, y_BT, spec.vocab_size, *parts)
        optimizers.step()
        optimizers.clear()
        wait_for(device)
        return time.monotonic() - at

    def evaluation_of(lanes: int) -> float:
        blocks = passes(tokens.slice(validation), settings.context, None, spec.vocab_size)
        turn = list(islice(blocks, lanes))
        at = time.monotonic()
        side_by_side(lambda block: scored(Scores(model), *block, n_tokens=spec.vocab_size, device=device), turn)
        return (time.monotonic() - at) * len(validation) / sum(ys.size for _, ys, _ in turn)

    with threads(settings.threads // settings.lanes):
        times = [step_of(step) for step in range(warm + timed)]
    found = [0.0]
    if len(validation):
        with as_it_is(model), reading(spec, settings.threads) as lanes:
            found = [evaluation_of(lanes) for _ in range(2)]  # the first makes room in memory
    return sorted(times[warm:])[timed // 2], found[-1]

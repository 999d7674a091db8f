"""How a pass of training is run, as a run's settings say: what it keeps for the way back, and what it makes again.

B batch, T positions, D d_model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from shutil import which
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from plainformer.faults import refuse
from plainformer.fused import fuse
from plainformer.fused.steps import MOST_POSITIONS
from plainformer.model import Attention, LatentAttention, Layer, Transformer
from plainformer.states import Where
from plainformer.training.recipe import Settings
from plainformer.training.step import PLAIN_ATTENTION, products_in

BACKEND = "inductor"  # of torch.compile
Within = Callable[[], AbstractContextManager[None]]


def as_decided(model: Transformer, settings: Settings, device: str = "cpu", lanes: int | None = None) -> None:
    """From now on the model's passes are run as the settings say. Answers and gradients stay what they are; compiled,
    within rounding. Refuses to compile where nothing can. lanes: None: the settings' own."""
    within = partial(products_in, settings.dtype, settings.context, device, (lanes or settings.lanes) == 1)
    if settings.fused:
        fuse(model)
    if settings.compile:
        if missing := compiler_missing():
            raise refuse("--compile", True, f"needs {missing}, and there is none here", "install one")
        for layer in layers_of(model):
            vars(layer)["forward"] = compiled(layer.forward)
    if settings.recompute == "full":
        for layer in layers_of(model):
            vars(layer)["forward"] = made_again(layer.forward, within)
    elif settings.recompute == "selective":
        for module in written(model, settings):
            inside = "attend" if isinstance(module, Attention) else "expanded"
            attend = scores_again(getattr(module, inside), within)
            vars(module)[inside] = torch.compiler.disable(attend) if settings.compile else attend


def compiler_missing() -> str:
    """What torch.compile would need here and does not find, or ""."""
    if BACKEND != "inductor":
        return ""
    if torch.cuda.is_available():
        return "" if find_spec("triton") else "Triton"
    found = any(which(name) for name in (os.environ.get("CXX"), "g++", "clang++", "c++", "cl") if name)
    return "" if found else "a C++ compiler"


def compiled(forward: Callable[[Tensor, Where], Tensor]) -> Callable[[Tensor, Where], Tensor]:
    """A layer whose training pass is compiled. Layers of one kind share what is compiled; each makes the tables for
    itself, so that the first is like the others. An evaluation, whose rows are others, and generation run as written.
    """
    quick = torch.compile(forward, dynamic=False, backend=BACKEND)

    def run(x_BTD: Tensor, where: Where) -> Tensor:
        return quick(x_BTD, replace(where, made={})) if torch.is_grad_enabled() else forward(x_BTD, where)

    return run


@contextmanager
def as_it_is(model: Transformer) -> Iterator[None]:
    """The model's own passes for a while, each operation once: to count them, or to evaluate."""
    modules = list(model.modules())
    own = [(one, name) for one in modules for name in vars(one) if callable(getattr(type(one), name, None))]
    held = [(module, name, vars(module).pop(name)) for module, name in own]
    try:
        yield
    finally:
        for module, name, method in held:
            vars(module)[name] = method


def layers_of(model: Transformer) -> Iterator[Layer]:
    yield from (module for module in model.modules() if isinstance(module, Layer))


def written(model: nn.Module, settings: Settings) -> list[Attention | LatentAttention]:
    """The attentions that write scores down for their backward pass: those that no fused kernel of torch's runs."""
    on_processor, n_positions = not torch.cuda.is_available(), settings.context
    plain = on_processor and settings.dtype == "bfloat16" and n_positions <= PLAIN_ATTENTION  # as `products_in` has it
    steps = settings.fused and n_positions <= MOST_POSITIONS

    def writes(one: Attention | LatentAttention) -> bool:
        unlike = isinstance(one, LatentAttention) and one.part.d_nope + one.part.d_rope != one.part.d_value
        whole = isinstance(one, Attention) and (one.part.window is None or n_positions <= one.part.window)
        return (
            plain
            or (steps and whole)
            or one.part.scores.softcap is not None
            or one.part.scores.sinks
            or (on_processor and unlike)
        )

    attentions = (module for module in model.modules() if isinstance(module, (Attention, LatentAttention)))
    return [one for one in attentions if writes(one)]


def made_again(forward: Callable[[Tensor, Where], Tensor], within: Within) -> Callable[[Tensor, Where], Tensor]:
    """A layer that keeps what it reads alone, and runs once more on the way back (Chen et al. 2016, "Training deep nets
    with sublinear memory cost"). No part of it draws by chance, so what is made again is the same to the bit.

    within: what surrounds the first run, for the second: by then the step has left it.
    """

    def run(x_BTD: Tensor, where: Where) -> Tensor:
        if not torch.is_grad_enabled():
            return forward(x_BTD, where)
        told = [where.routed]  # routers say what they have chosen once

        def inside(x_BTD: Tensor) -> Tensor:  # tables that layers share are each layer's own here: both runs make them
            return forward(x_BTD, replace(where, made={}, routed=told.pop() if told else None))

        return again(inside, x_BTD, within=within)

    return run


def scores_again(attend: Callable[..., Tensor], within: Within) -> Callable[..., Tensor]:
    """Attention that keeps queries, keys and values, and not the scores between them (Korthikanti et al. 2022, section
    5); of latents also the keys and values of every head are made again."""

    def run(*inputs: Any, **named: Any) -> Tensor:
        return again(attend, *inputs, within=within, **named) if torch.is_grad_enabled() else attend(*inputs, **named)

    return run


def again(run: Callable[..., Tensor], *inputs: Any, within: Within, **named: Any) -> Tensor:
    made = checkpoint(
        run,
        *inputs,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=lambda: (nullcontext(), within()),
        **named,
    )
    return cast(Tensor, made)

"""How a pass of training is run, as a run's settings say: what it keeps for the way back, and what it makes again.

B batch, T positions, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from plainformer.model import Attention, LatentAttention, Layer, Transformer
from plainformer.states import Where
from plainformer.training.recipe import Settings
from plainformer.training.step import PLAIN_ATTENTION, products_in

Within = Callable[[], AbstractContextManager[None]]


def as_decided(model: Transformer, settings: Settings, device: str = "cpu") -> None:
    """From now on the model's passes are run as the settings say. Answers and gradients stay what they are."""
    within = partial(products_in, settings.dtype, settings.context, device)
    if settings.recompute == "full":
        for layer in layers_of(model):
            vars(layer)["forward"] = made_again(layer.forward, within)
    elif settings.recompute == "selective":
        for module in written(model, settings.dtype, settings.context):
            inside = "attend" if isinstance(module, Attention) else "expanded"
            vars(module)[inside] = scores_again(getattr(module, inside), within)


INSTEAD = ("forward", "attend", "expanded")  # methods that `as_decided` gives a module of its own


@contextmanager
def as_it_is(model: Transformer) -> Iterator[None]:
    """The model's own passes for a while, each operation once: to count them."""
    own = [(module, name) for module in model.modules() for name in INSTEAD if name in vars(module)]
    held = [(module, name, vars(module).pop(name)) for module, name in own]
    try:
        yield
    finally:
        for module, name, method in held:
            vars(module)[name] = method


def layers_of(model: Transformer) -> Iterator[Layer]:
    yield from (module for module in model.modules() if isinstance(module, Layer))


def written(model: nn.Module, dtype: str, n_positions: int) -> list[Attention | LatentAttention]:
    """The attentions that write scores down for their backward pass: those that no fused kernel runs."""
    on_processor = not torch.cuda.is_available()
    plain = on_processor and dtype == "bfloat16" and n_positions <= PLAIN_ATTENTION  # as `products_in` has it

    def writes(one: Attention | LatentAttention) -> bool:
        unlike = isinstance(one, LatentAttention) and one.part.d_nope + one.part.d_rope != one.part.d_value
        return plain or one.part.scores.softcap is not None or one.part.scores.sinks or (on_processor and unlike)

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

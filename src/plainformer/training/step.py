"""The gradient of one batch, whole or in parts.

B batch, M rows of it at once, T positions, V vocabulary, E experts, N tokens of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from plainformer.model import Transformer, cross_entropy
from plainformer.training.balance import Routed, Traffic, choices, mixtures, unevenness
from plainformer.training.optimizers import Optimizers

PLAIN_ATTENTION = 512


class BadStep(ArithmeticError):
    """A loss or a gradient that is no number: told before any weight has moved."""


@contextmanager
def products_in(dtype: str, n_positions: int) -> Iterator[None]:
    """Matrix products in bfloat16 where that is the run's dtype; weights and the stream stay as they are.

    Attention is then the plain product up to PLAIN_ATTENTION positions: torch's fused kernel for processors takes
    three times as long in bfloat16, and saves memory only beyond them.
    """
    if dtype != "bfloat16":
        yield
        return
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()  # the plain product asks it on processors, too
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    kernels = [SDPBackend.MATH] if n_positions <= PLAIN_ATTENTION else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    try:
        with torch.autocast("cpu", torch.bfloat16), sdpa_kernel(kernels):
            yield
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


def gradients(
    model: Transformer,
    x_BT: Tensor,
    y_BT: Tensor,
    n_tokens: int,
    micro_batch: int,
    dtype: str = "float32",
    traffic: Traffic | None = None,
) -> float:
    """Add to each weight's gradient that of the loss of this batch; the loss in nats.

    The loss is the sum over the real targets (those that are not -1) divided by their number in the whole batch, so
    that cutting the batch into parts of `micro_batch` rows changes nothing. Tokens from n_tokens on are never scored:
    they are rows that the tokenizer does not have.

    A mixture whose spec says so (Experts.balance) adds its balance loss to the gradient, not to the answer: over the
    tokens with a real target, with the choices of the whole batch. Where that is cut, they are counted by a pass of
    its own first. traffic: filled with how many of these tokens chose each expert, by the mixture's place.
    """
    n_targets, total, mixed = int((y_BT >= 0).sum()), 0.0, mixtures(model.spec)
    parts = list(zip(x_BT.split(micro_batch), y_BT.split(micro_batch), strict=True))
    balanced = any(part.balance for _, part in mixed)
    counts = counted(model, parts, dtype) if balanced and len(parts) > 1 else None
    for some_MT, targets_MT in parts:
        routed: Routed | None = [] if mixed else None
        with products_in(dtype, x_BT.shape[1]):
            logits_MTV = model.logits(model.hidden(some_MT, routed=routed))[..., :n_tokens]
        exact_MTV = logits_MTV.float() if logits_MTV.dtype == torch.bfloat16 else logits_MTV
        loss = cross_entropy(exact_MTV, targets_MT).sum() / max(1, n_targets)
        total += loss.item()
        here = choices(routed or [], targets_MT)
        if balanced:
            loss = loss + unevenness(mixed, routed or [], targets_MT, counts or here)
        if traffic is not None:
            for (place, _), count_E in zip(mixed, here, strict=True):
                traffic[place] = traffic.get(place, 0) + count_E
        loss.backward()
    return total


@torch.no_grad()
def counted(model: Transformer, parts: list[tuple[Tensor, Tensor]], dtype: str) -> list[Tensor]:
    """How many tokens of all parts chose each expert, mixture by mixture."""
    found = []
    for some_MT, targets_MT in parts:
        routed: Routed = []
        with products_in(dtype, some_MT.shape[1]):
            model.hidden(some_MT, routed=routed)
        found.append(choices(routed, targets_MT))
    return [torch.stack(each).sum(0) for each in zip(*found, strict=True)]


def check(loss: float, optimizers: Optimizers, clip: float | None) -> float:
    """The length of the gradient, all weights together, cut to `clip` where that is shorter.

    Raises BadStep where the loss or the gradient is no number, naming the weight.
    """
    if not isfinite(loss):
        raise BadStep(f"the loss is {loss}")
    grads = {name: w.grad for name, w in optimizers.named.items() if w.grad is not None}
    length = torch.nn.utils.get_total_norm(list(grads.values()))
    if not isfinite(float(length)):
        bad = next((name for name, grad in grads.items() if not grad.isfinite().all()), "all weights together")
        raise BadStep(f"the gradient of {bad} is not finite")
    if clip is not None:
        torch.nn.utils.clip_grads_with_norm_(list(optimizers.named.values()), clip, length)
    return float(length)

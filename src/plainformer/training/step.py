"""The gradient of one batch, whole or in parts.

B batch, M rows of it at once, T positions, E experts, N tokens of all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from plainformer.model import Transformer
from plainformer.spec import Experts
from plainformer.training.balance import Routed, Traffic, choices, mixtures, unevenness
from plainformer.training.lanes import add_gradients, side_by_side
from plainformer.training.loss import Targets
from plainformer.training.optimizers import Optimizers
from plainformer.training.processes import ALONE, Processes, Scores, whole

PLAIN_ATTENTION = 512
Rows = tuple[Tensor, ...]  # tokens and targets of some rows


class BadStep(ArithmeticError):
    """A loss or a gradient that is no number: told before any weight has moved."""


@contextmanager
def products_in(dtype: str, n_positions: int, device: str = "cpu", alone: bool = True) -> Iterator[None]:
    """Matrix products in bfloat16 where that is the run's dtype; weights and the stream stay as they are.

    On processors attention is then the plain product up to PLAIN_ATTENTION positions: torch's fused kernel takes three
    times as long there in bfloat16, and saves memory only beyond them.

    alone: no other thread is in a pass: torch keeps each weight as it was rounded first for all threads together, and
    which of them finds it there would be a matter of chance, down to the bits of a weight that is met twice.
    """
    if dtype != "bfloat16":
        yield
        return
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()  # the plain product asks it on processors, too
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    kernels = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    if device == "cuda":
        kernels.insert(1, SDPBackend.EFFICIENT_ATTENTION)
    elif n_positions <= PLAIN_ATTENTION:
        kernels = [SDPBackend.MATH]
    try:
        with torch.autocast(device, torch.bfloat16, cache_enabled=alone), sdpa_kernel(kernels):
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
    processes: Processes = ALONE,
    scores: nn.Module | None = None,
    loss_rows: int = 0,
    lanes: int = 1,
) -> float:
    """Add to each weight's gradient that of the loss of this batch; the loss in nats. Arguments as in `backward`."""
    how = micro_batch, dtype, traffic, processes, scores, loss_rows, lanes
    return backward(model, x_BT, y_BT, n_tokens, *how).item()


def backward(
    model: Transformer,
    x_BT: Tensor,
    y_BT: Tensor,
    n_tokens: int,
    micro_batch: int,
    dtype: str = "float32",
    traffic: Traffic | None = None,
    processes: Processes = ALONE,
    scores: nn.Module | None = None,
    loss_rows: int = 0,
    lanes: int = 1,
) -> Tensor:
    """The same, and the loss as float64 where the model is: a GPU that is asked for no number is not waited for.

    The loss is the sum over the real targets (those that are not -1) divided by their number in the whole batch, so
    that cutting the batch into parts of `micro_batch` rows changes nothing. Tokens from n_tokens on are never scored:
    they are rows that the tokenizer does not have.

    A mixture whose spec says so (Experts.balance) adds its balance loss to the gradient, not to the answer: over the
    tokens with a real target, with the choices of the whole batch. Where that is cut, they are counted by a pass of
    its own first. traffic: filled with how many of these tokens chose each expert, by the mixture's place.

    processes: then x_BT and y_BT are this process's rows, as many as every other's (Processes.rows), and the answer
    and all counts are those of the whole batch. scores: the model as `processes.wrapped` gave it.

    loss_rows: positions whose logits are there at once (see `loss`); 0: all of a part's.

    lanes: how many parts its rows are cut into, side by side (see `lanes`); 1 of one process among many.
    """
    mixed, scores = mixtures(model.spec), scores or Scores(model)
    n_targets, total = processes.added((y_BT >= 0).sum()), torch.zeros((), dtype=torch.float64, device=x_BT.device)
    parts = list(zip(x_BT.split(micro_batch), y_BT.split(micro_batch), strict=True))
    balanced = any(part.balance for _, part in mixed)
    cuts = [cut(part, lanes) for part in parts]
    counts = counted(scores, cuts, dtype, processes) if balanced and len(parts) > 1 else None
    if lanes > 1:
        for rows in cuts:
            total += in_lanes(model, scores, rows, n_targets, n_tokens, dtype, traffic, counts, loss_rows)
        return total
    for n_done, (some_MT, targets_MT) in enumerate(parts, start=1):
        with processes.quiet(scores, last=n_done == len(parts)):
            with products_in(dtype, x_BT.shape[1], x_BT.device.type):
                nats, routed = scores(some_MT, 0, bool(mixed), Targets(targets_MT, n_tokens, loss_rows))
            loss = nats / n_targets.clamp(min=1)
            total += loss.detach()
            here = choices(routed, targets_MT)
            if balanced:
                loss = loss + unevenness(mixed, routed, targets_MT, counts or processes.counted(here))
            note(traffic, mixed, processes.counted(here))
            (loss * processes.world if processes.world > 1 else loss).backward()  # both engines give the mean
    return processes.added(total)


def cut(part: Rows, lanes: int) -> list[Rows]:
    return list(zip(*(some.tensor_split(min(lanes, len(some))) for some in part), strict=True))


def in_lanes(
    model: Transformer,
    scores: nn.Module,
    parts: list[Rows],
    n_targets: Tensor,
    n_tokens: int,
    dtype: str,
    traffic: Traffic | None,
    counts: list[Tensor] | None,
    loss_rows: int,
) -> Tensor:
    """The gradient and the loss of rows side by side. counts: the choices of the whole batch, where it is more."""
    how, mixed = (dtype, parts[0][0].shape[1], model.device.type, False), mixtures(model.spec)

    def passed(rows: Rows) -> tuple[Tensor, Routed]:
        with products_in(*how):  # which products are rounded, each thread is told
            nats, routed = scores(rows[0], 0, bool(mixed), Targets(rows[1], n_tokens, loss_rows))
        return nats / n_targets.clamp(min=1), routed

    with products_in(*how):  # and which kernels run, all of them are told at once
        found = side_by_side(passed, parts)
        chose = [choices(routed, rows[1]) for (_, routed), rows in zip(found, parts, strict=True)]
        here = [torch.stack(each).sum(0) for each in zip(*chose, strict=True)]
        note(traffic, mixed, here)
        losses = [loss for loss, _ in found]
        with torch.autocast(model.device.type, enabled=False):  # on the way back nobody rounds
            if any(part.balance for _, part in mixed):
                both = zip(found, parts, strict=True)
                more = (unevenness(mixed, routed, rows[1], counts or here) for (_, routed), rows in both)
                losses = [loss + uneven for loss, uneven in zip(losses, more, strict=True)]
            add_gradients([w for w in model.parameters() if w.requires_grad], losses)
    return torch.stack([loss.detach() for loss, _ in found]).sum(dtype=torch.float64)


def note(traffic: Traffic | None, mixed: list[tuple[str, Experts]], counts: list[Tensor]) -> None:
    """Add these choices to those of the step so far."""
    if traffic is not None:
        for (place, _), count_E in zip(mixed, counts, strict=True):
            traffic[place] = traffic.get(place, 0) + count_E


@torch.no_grad()
def counted(scores: nn.Module, cuts: list[list[Rows]], dtype: str, processes: Processes = ALONE) -> list[Tensor]:
    """How many tokens of all parts, of all processes, chose each expert, mixture by mixture. cuts: the rows of each
    part as they will be passed: what is nearly even may be chosen otherwise in products of another size."""
    found, alone = [], len(cuts[0]) == 1

    @torch.no_grad()
    def of(rows: Rows) -> list[Tensor]:
        with products_in(dtype, rows[0].shape[1], rows[0].device.type, alone):
            _, routed = scores(rows[0], 0, True)
        return choices(routed, rows[1])

    for cut in cuts:
        found.extend(side_by_side(of, cut))
    return processes.counted([torch.stack(each).sum(0) for each in zip(*found, strict=True)])


def check(loss: float, optimizers: Optimizers, clip: float | None) -> float:
    """The length of the gradient, all weights together, cut to `clip` where that is shorter.

    Raises BadStep where the loss or the gradient is no number, naming the weight.
    """
    if not isfinite(loss):
        raise BadStep(f"the loss is {loss}")
    grads, length = lengths(optimizers)
    found = float(whole(length))
    if not isfinite(found):
        bad = next((name for name, grad in grads.items() if not whole(grad.isfinite().all())), "all weights together")
        raise BadStep(f"the gradient of {bad} is not finite")
    if clip is not None:
        torch.nn.utils.clip_grads_with_norm_(list(optimizers.named.values()), clip, length)
    return found


def lengths(optimizers: Optimizers) -> tuple[dict[str, Tensor], Tensor]:
    """(the gradients by name, the length of all of them together)."""
    grads = {name: w.grad for name, w in optimizers.named.items() if w.grad is not None}
    return grads, torch.nn.utils.get_total_norm(list(grads.values()))


def watched(loss: Tensor, optimizers: Optimizers, clip: float | None, most: float) -> Tensor:
    """What `check` finds, without waiting for it: 1 where the loss or the gradient is no number or the loss is above
    `most`, else 0; for `Optimizers.step`, which then moves nothing. Cuts the gradient as `check` does."""
    _, length = lengths(optimizers)
    good = length.isfinite() & loss.isfinite() & (loss <= most)
    if clip is not None:
        torch.nn.utils.clip_grads_with_norm_(list(optimizers.named.values()), clip, length)
    return (~good).float()

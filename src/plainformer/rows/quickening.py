"""A model made quick: its products, attentions and layers taken by the compiled library where few rows are read."""

from __future__ import annotations

import torch
from torch import nn

from plainformer.faults import refuse
from plainformer.layers import Linear, NormedLinear
from plainformer.model import Attention, Head, LatentAttention, Stack, Transformer
from plainformer.rows.compiled import library
from plainformer.rows.products import RowAttention, RowProduct, rounded
from plainformer.rows.stacks import RowStack


def quicken(model: Transformer, weights: str | None = None) -> tuple[Transformer, str, float]:
    """The model itself, its matrices taking the compiled product where few rows are read without gradients, and its
    stack all layers in one compiled call where each row goes on by a token (hooks on them are not called then).

    weights: "int8" rounds every matrix of linear parts (and a tied head's copy of the table) to 8 bits with a scale a
    row; the model can then be run, not trained. Gives (model, why the library is absent or "", error): the error is the
    root of the mean square of what rounding changed, over that of the weights; 0 without rounding.
    """
    if weights not in (None, "int8"):
        raise refuse("weights", weights, 'must be "int8" or None (as they are)')
    rows, reason = library()
    changed = total = 0.0
    kept = {id(module.kv_up) for module in model.modules() if isinstance(module, LatentAttention)}  # used unmultiplied
    for module in model.modules():
        if isinstance(module, Attention) and rows is not None:
            module.fused = RowAttention(rows)
        if isinstance(module, Stack) and rows is not None:
            module.at_once = RowStack(rows)
        if not isinstance(module, (Linear, NormedLinear, Head)) or id(module) in kept:
            continue
        tied = isinstance(module, Head) and module.part.tied
        weight = model.embedding.weight if tied else module.weight
        if weights is None:
            module.product = RowProduct(rows)
            if rows is not None and not weight.is_contiguous():  # as it lies in its file: turned
                module.weight = nn.Parameter(weight.detach().contiguous(), weight.requires_grad)
            continue
        if weight.dtype is torch.int8:
            raise refuse("weights", "int8", "have been rounded already")
        steps, scale = rounded(weight)
        wide = weight.detach().float()
        changed += float((steps * scale[..., None] - wide).square().sum())
        total += float(wide.square().sum())
        scales = scale.reshape(-1, scale.shape[-1])
        module.product = RowProduct(rows, scales, steps if tied else None)
        if not tied:
            module.weight = nn.Parameter(steps, requires_grad=False)
    return model, reason, (changed / total) ** 0.5 if total else 0.0

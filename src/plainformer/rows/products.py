"""The product that a model's matrices take when few rows are read: compiled, from float32, bfloat16 or int8 weights.

B rows of x, O outputs, I inputs.
"""

from __future__ import annotations

import ctypes
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plainformer.faults import refuse
from plainformer.layers import Linear, NormedLinear
from plainformer.model import Head, LatentAttention, Transformer
from plainformer.rows.compiled import library

KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
FEW = 8  # rows; torch's own product, which makes blocks of both sides, wins above


class RowProduct:
    """x W^T + b as F.linear has it; for few rows without gradients by the compiled library.

    scales: of int8 weights, what each row of W is multiplied by, (1, O), or (E, O) of stacked experts, float32.
    """

    def __init__(self, rows: ctypes.CDLL | None, scales: Tensor | None = None, own: Tensor | None = None) -> None:
        self.rows, self.scales, self.own = rows, scales, own

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        weight = weight if self.own is None else self.own
        n_in, n_out = weight.shape[1], weight.shape[0]
        n_rows = x.numel() // n_in
        scale = None if self.scales is None else self.scales[weight.storage_offset() // weight.numel()]
        if self.rows is None or n_rows > FEW or not self._can(x, weight):
            return F.linear(x, weight if scale is None else widened(weight, scale, x.dtype), bias)
        x, y = x.contiguous(), x.new_empty(*x.shape[:-1], n_out)
        failed = self.rows.rows(
            KINDS[weight.dtype],
            weight.data_ptr(),
            x.data_ptr(),
            None if bias is None else bias.data_ptr(),
            None if scale is None else scale.data_ptr(),
            y.data_ptr(),
            *(n_rows, n_out, n_in),
            x.dtype is torch.bfloat16,
            torch.get_num_threads(),
        )
        if failed:
            raise MemoryError("no memory for a row of numbers")
        return y

    def _can(self, x: Tensor, weight: Tensor) -> bool:
        fits = x.dtype is weight.dtype or (weight.dtype is torch.int8 and x.dtype in (torch.float32, torch.bfloat16))
        return fits and weight.dtype in KINDS and x.is_cpu and not torch.is_grad_enabled() and weight.is_contiguous()


def widened(weight_OI: Tensor, scale_O: Tensor, dtype: torch.dtype) -> Tensor:
    """int8 weights as the numbers that they stand for."""
    return (weight_OI.float() * scale_O[:, None]).to(dtype)


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(int8 weights, scales): each row of W in steps of a 127th of its largest number, so that an entry is off by at
    most half a step. "Absmax", vector by vector: LLM.int8() (Dettmers et al. 2022), section 2."""
    wide = weight.detach().float()
    scale = wide.abs().amax(-1) / 127
    steps = (wide / scale.clamp(min=torch.finfo(torch.float32).tiny)[..., None]).round_().clamp_(-127, 127)
    return steps.to(torch.int8), scale


def quicken(model: Transformer, weights: str | None = None) -> tuple[Transformer, str, float]:
    """The model itself, its matrices taking the compiled product where few rows are read without gradients.

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
        if not isinstance(module, (Linear, NormedLinear, Head)) or id(module) in kept:
            continue
        tied = isinstance(module, Head) and module.part.tied
        weight = cast(Tensor, model.embedding.weight if tied else module.weight)
        if weights is None:
            module.product = RowProduct(rows)
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

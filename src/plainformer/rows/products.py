"""What a model's matrices and attentions do when few rows are read: compiled, from float32, bfloat16 or int8 weights.

O outputs, I inputs; B rows, H heads, G kv heads, T new positions (one), S all positions, K d_head, J d_value.
"""

from __future__ import annotations

import copy
import ctypes
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from plainformer.kernels import fused_attention

KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.int8: 2}
# Up to so many rows of x: above, torch's own product, which takes blocks of both sides, wins; later against int8, whose
# numbers it would have to be given in full.
FEW = {torch.float32: 8, torch.bfloat16: 8, torch.int8: 256}


class RowProduct:
    """x W^T + b as F.linear has it; for few rows without gradients by the compiled library (which, against int8
    weights, takes x in 13 bits: what that changes is far below what the weights' rounding does).

    scales: of int8 weights, what each row of W is multiplied by, (1, O), or (E, O) of stacked experts, float32.
    """

    def __init__(self, rows: ctypes.CDLL | None, scales: Tensor | None = None, own: Tensor | None = None) -> None:
        self.rows, self.scales, self.own = rows, scales, own

    def __deepcopy__(self, memo: dict[int, Any]) -> RowProduct:
        return RowProduct(self.rows, copy.deepcopy(self.scales, memo), copy.deepcopy(self.own, memo))

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        weight = weight if self.own is None else self.own
        n_in, n_out = weight.shape[1], weight.shape[0]
        n_rows = x.numel() // n_in
        scale = None if self.scales is None else self.scales[weight.storage_offset() // weight.numel()]
        if self.rows is None or n_rows > FEW.get(weight.dtype, 0) or not self._can(x, weight):
            return F.linear(x, weight if scale is None else widened(weight, scale, x.dtype), bias)
        x, y = x.contiguous(), x.new_empty(*x.shape[:-1], n_out)
        done = self.rows.rows(
            KINDS[weight.dtype],
            KINDS[x.dtype],
            weight.data_ptr(),
            x.data_ptr(),
            None if bias is None else bias.data_ptr(),
            None if scale is None else scale.data_ptr(),
            y.data_ptr(),
            *(n_rows, n_out, n_in),
            torch.get_num_threads(),
        )
        return finished(done, y)

    def _can(self, x: Tensor, weight: Tensor) -> bool:
        fits = x.dtype is weight.dtype or (weight.dtype is torch.int8 and x.dtype in (torch.float32, torch.bfloat16))
        return fits and x.is_cpu and not torch.is_grad_enabled() and weight.is_contiguous()


def finished(done: int, y: Tensor) -> Tensor:
    if done:
        raise MemoryError("no memory for a few rows of numbers")
    return y


class RowAttention:
    """What `kernels.fused_attention` gives; for one query a head, without gradients, by the compiled library."""

    def __init__(self, rows: ctypes.CDLL) -> None:
        self.rows = rows

    def __deepcopy__(self, memo: object) -> RowAttention:
        return RowAttention(self.rows)

    def __call__(
        self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSJ: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        (n_rows, n_heads, n_new, d_head), (_, n_kv, n_keys, d_value) = q_BHTK.shape, v_BGSJ.shape
        side_by_side = (k_BGSK.stride()[2:], v_BGSJ.stride()[2:]) == ((d_head, 1), (d_value, 1))
        seen = mask is None or (mask.dtype is torch.bool and mask.shape[1:3] == (1, 1))
        one = n_new == 1 and q_BHTK.dtype is k_BGSK.dtype and q_BHTK.dtype in (torch.float32, torch.bfloat16)
        if not (one and side_by_side and seen and q_BHTK.is_cpu) or torch.is_grad_enabled():
            return fused_attention(q_BHTK, k_BGSK, v_BGSJ, mask, causal, scale)
        q_BHTK, out_BHTJ = q_BHTK.contiguous(), q_BHTK.new_empty(n_rows, n_heads, 1, d_value)
        mask = None if mask is None else mask.expand(n_rows, 1, 1, n_keys).contiguous()
        done = self.rows.attend(
            KINDS[q_BHTK.dtype],
            q_BHTK.data_ptr(),
            k_BGSK.data_ptr(),
            v_BGSJ.data_ptr(),
            None if mask is None else mask.data_ptr(),
            out_BHTJ.data_ptr(),
            *(n_rows, n_heads, n_kv, n_keys, d_head, d_value),
            *(*k_BGSK.stride()[:2], *v_BGSJ.stride()[:2]),
            scale,
            torch.get_num_threads(),
        )
        return finished(done, out_BHTJ)


def widened(weight_OI: Tensor, scale_O: Tensor, dtype: torch.dtype) -> Tensor:
    """int8 weights as the numbers that they stand for."""
    return (weight_OI.float() * scale_O[:, None]).to(dtype)


def rounded(weight: Tensor) -> tuple[Tensor, Tensor]:
    """(int8 weights, scales): each row of W in steps of a 127th of its largest number, so that an entry is off by at
    most half a step. "Absmax", vector by vector: LLM.int8() (Dettmers et al. 2022), section 2."""
    wide = weight.detach().float().contiguous()
    scale = wide.abs().amax(-1) / 127
    steps = (wide / scale.clamp(min=torch.finfo(torch.float32).tiny)[..., None]).round_().clamp_(-127, 127)
    return steps.to(torch.int8), scale

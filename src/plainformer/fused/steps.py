"""The small steps between matrix products as functions with gradients, each in one call of the compiled library.

Each gives what its twin in `kernels` gives, to rounding, and asks it where it cannot: on another device, in another
dtype, under another mask, for rows too long for a thread's stack.
B batch, T positions, H heads, G kv heads, R = H / G, K d_head, J d_value, W width, N rows of all kinds.
"""

from __future__ import annotations

import ctypes
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from plainformer import kernels
from plainformer import spec as s

KINDS = {torch.float32: 0, torch.bfloat16: 1}
ACTIVATIONS = {"relu": 0, "relu_squared": 1, "silu": 2, "gelu": 3, "gelu_tanh": 4}
MOST_WIDTH = 1 << 15  # five rows of float32 must fit a thread's stack
MOST_POSITIONS = 512  # of attention whose weights are held whole: beyond them torch's own kernel


def able(*tensors: Tensor | None) -> bool:
    return all(y is None or (y.is_cpu and y.dtype in KINDS) for y in tensors)


class FusedNorm:
    """`kernels.normed`. narrow: what autocast would round each time that it is read is written rounded, once."""

    def __init__(self, library: ctypes.CDLL, narrow: bool) -> None:
        self.library, self.narrow = library, narrow

    def __call__(self, part: s.Norm, x: Tensor, gain_W: Tensor | None, bias_W: Tensor | None) -> Tensor:
        plain = all(y is None or y.dtype is torch.float32 for y in (gain_W, bias_W))
        if not plain or not able(x, gain_W, bias_W) or part.width > MOST_WIDTH:
            return kernels.normed(part, x, gain_W, bias_W)
        rounds = self.narrow and torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if rounds else x.dtype
        return answer(_Norm, part, x, gain_W, bias_W, dtype if dtype in KINDS else x.dtype, self.library)


def answer(function: type[torch.autograd.Function], *given: Any) -> Tensor:
    """A function's answer: torch has no types for it."""
    return cast(Tensor, function.apply(*given))


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        part: s.Norm,
        x: Tensor,
        gain_W: Tensor | None,
        bias_W: Tensor | None,
        dtype: torch.dtype,
        library: ctypes.CDLL,
    ) -> Tensor:
        x, (gain_W, bias_W) = x.contiguous(), (y if y is None else y.float().contiguous() for y in (gain_W, bias_W))
        n_rows, centred = x.numel() // part.width, part.kind == "layer"
        y, (mean_N, by_N) = x.new_empty(x.shape, dtype=dtype), x.new_empty(2, n_rows, dtype=torch.float32)
        places = x.data_ptr(), pointer(gain_W), pointer(bias_W), y.data_ptr(), mean_N.data_ptr(), by_N.data_ptr()
        sizes = n_rows, part.width, part.eps
        library.norm(KINDS[x.dtype], KINDS[dtype], centred, *places, *sizes, torch.get_num_threads())
        ctx.save_for_backward(x, gain_W, mean_N, by_N)
        ctx.library, ctx.centred = library, centred
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, gain_W, mean_N, by_N = ctx.saved_tensors
        dy, dx, width = dy.contiguous(), torch.empty_like(x), x.shape[-1]
        sums = ctx.library.norm_pieces(len(by_N), width), width
        dgain, dbias = (
            x.new_empty(sums, dtype=torch.float32) if asked else None for asked in ctx.needs_input_grad[2:4]
        )
        places = x.data_ptr(), pointer(gain_W), mean_N.data_ptr(), by_N.data_ptr(), dy.data_ptr(), dx.data_ptr()
        kinds = KINDS[x.dtype], KINDS[dy.dtype], ctx.centred
        more = pointer(dgain), pointer(dbias), len(by_N), width, torch.get_num_threads()
        ctx.library.norm_back(*kinds, *places, *more)
        dgain, dbias = (y if y is None else y.sum(0) for y in (dgain, dbias))
        return None, dx, dgain, dbias, None, None


def pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


class FusedTurn:
    """`kernels.rotate`; the answer lies as attention's products want it, heads first."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def __call__(self, x_BHTK: Tensor, cos: Tensor, sin: Tensor, rotary: s.Rotary) -> Tensor:
        fits = able(x_BHTK) and x_BHTK.stride(-1) == 1 and cos.shape[:2] == (1, 1) and x_BHTK.shape[-1] <= MOST_WIDTH
        if not fits:
            return kernels.rotate(x_BHTK, cos, sin, rotary)
        cos, sin = (y[0, 0].float().contiguous() for y in (cos, sin))
        return answer(_Turn, x_BHTK, cos, sin, rotary, self.library)


class _Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_BHTK: Tensor, cos: Tensor, sin: Tensor, rotary: s.Rotary, library: ctypes.CDLL) -> Tensor:
        y_BHTK = x_BHTK.new_empty(x_BHTK.shape)
        turn(library, x_BHTK, y_BHTK, cos, sin, rotary)
        ctx.save_for_backward(cos, sin)
        ctx.rotary, ctx.library = rotary, library
        return y_BHTK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy_BHTK: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        n_rows, n_heads, n_new, width = dy_BHTK.shape
        dy_BHTK = dy_BHTK if dy_BHTK.stride(-1) == 1 else dy_BHTK.contiguous()
        dx_BHTK = dy_BHTK.new_empty(n_rows, n_new, n_heads, width).transpose(1, 2)  # as projections lie
        turn(ctx.library, dy_BHTK, dx_BHTK, cos, -sin, ctx.rotary)
        return dx_BHTK, None, None, None, None


def turn(library: ctypes.CDLL, x: Tensor, y: Tensor, cos: Tensor, sin: Tensor, rotary: s.Rotary) -> None:
    n_rows, n_heads, n_new, width = x.shape
    steps = [z.stride(axis) for z in (x, y) for axis in (0, 2, 1)]
    places = x.data_ptr(), y.data_ptr(), cos.data_ptr(), sin.data_ptr()
    sizes = n_rows, n_new, n_heads, width, rotary.n_dims
    library.turn(KINDS[x.dtype], *places, rotary.interleaved, *sizes, *steps, torch.get_num_threads())


class FusedGate:
    """`kernels.activated`."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def __call__(self, name: str, gate: Tensor | None, up: Tensor) -> Tensor:
        same = gate is None or (gate.dtype is up.dtype and gate.shape == up.shape)
        if name not in ACTIVATIONS or not able(gate, up) or not same or up.shape[-1] > MOST_WIDTH:
            return kernels.activated(name, gate, up)
        return answer(_Gate, gate, up, ACTIVATIONS[name], self.library)


class _Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor | None, up: Tensor, kind: int, library: ctypes.CDLL) -> Tensor:
        gate, up = None if gate is None else gate.contiguous(), up.contiguous()
        y, width = torch.empty_like(up), up.shape[-1]
        sizes = up.numel() // width, width, width, width
        places = pointer(gate), up.data_ptr(), y.data_ptr()
        library.gate(KINDS[up.dtype], kind, *places, *sizes, torch.get_num_threads())
        ctx.save_for_backward(gate, up)
        ctx.kind, ctx.library = kind, library
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        gate, up = ctx.saved_tensors
        dy, dup, width = dy.contiguous(), torch.empty_like(up), up.shape[-1]
        dgate = None if gate is None else torch.empty_like(gate)
        places = pointer(gate), up.data_ptr(), dy.data_ptr(), pointer(dgate), dup.data_ptr()
        sizes = up.numel() // width, width, width, width
        ctx.library.gate_back(KINDS[up.dtype], ctx.kind, *places, *sizes, torch.get_num_threads())
        return dgate, dup, None, None


class FusedAttention:
    """`kernels.fused_attention`, of whole causal rows: torch's products, with one reading of the scores between."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library

    def __call__(
        self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSJ: Tensor, mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        alike = q_BHTK.dtype is k_BGSK.dtype is v_BGSJ.dtype and able(q_BHTK)
        if mask is not None or not causal or not alike or not 1 < q_BHTK.shape[2] <= MOST_POSITIONS:
            return kernels.fused_attention(q_BHTK, k_BGSK, v_BGSJ, mask, causal, scale)
        return answer(_Attention, q_BHTK, k_BGSK, v_BGSJ, scale, self.library)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q_BHTK: Tensor, k_BGTK: Tensor, v_BGTJ: Tensor, scale: float, library: ctypes.CDLL) -> Tensor:
        (n_rows, n_heads, n_new, width), n_kv = q_BHTK.shape, k_BGTK.shape[1]
        # Heads that share keys stand one below another: N is B G, and a query's position its row modulo T.
        q_NLK = q_BHTK.reshape(n_rows * n_kv, -1, width)
        k_NTK, v_NTJ = k_BGTK.reshape(-1, n_new, width), v_BGTJ.reshape(-1, n_new, v_BGTJ.shape[-1])
        weights_NLT = torch.bmm(q_NLK, k_NTK.mT)
        sizes = weights_NLT.numel() // n_new, n_new, scale
        library.weights(KINDS[q_NLK.dtype], weights_NLT.data_ptr(), *sizes, torch.get_num_threads())
        ctx.save_for_backward(q_NLK, k_NTK, v_NTJ, weights_NLT)
        ctx.scale, ctx.library = scale, library
        return torch.bmm(weights_NLT, v_NTJ).view(n_rows, n_heads, n_new, -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy_BHTJ: Tensor) -> tuple[Tensor | None, ...]:
        q_NLK, k_NTK, v_NTJ, weights_NLT = ctx.saved_tensors
        (n_rows, n_heads, n_new, _), n_kv = dy_BHTJ.shape, len(q_NLK) // len(dy_BHTJ)
        dy_NLJ = dy_BHTJ.reshape(len(q_NLK), -1, dy_BHTJ.shape[-1])
        dv_NTJ = torch.bmm(weights_NLT.mT, dy_NLJ)
        dscores_NLT = torch.bmm(dy_NLJ, v_NTJ.mT)
        places = weights_NLT.data_ptr(), dscores_NLT.data_ptr()
        sizes = weights_NLT.numel() // n_new, n_new, ctx.scale
        ctx.library.weights_back(KINDS[q_NLK.dtype], *places, *sizes, torch.get_num_threads())
        dq_NLK, dk_NTK = torch.bmm(dscores_NLT, k_NTK), torch.bmm(dscores_NLT.mT, q_NLK)
        dq, dk, dv = (y.view(n_rows, n, n_new, -1) for y, n in ((dq_NLK, n_heads), (dk_NTK, n_kv), (dv_NTJ, n_kv)))
        return dq, dk, dv, None, None

"""Quantised weights as numbers again, as they are read: fp8 in blocks with a scale each, and mxfp4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

import torch
from torch import Tensor

from plainformer.faults import refuse
from plainformer.huggingface import Reading
from plainformer.huggingface.headers import Tensor as Told

# E2M1: a sign, two bits of exponent, one of fraction (OCP Microscaling Formats 1.0, section 5.3.3).
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
SCALE, BLOCKS, SCALES = "_scale_inv", "_blocks", "_scales"
Read = Callable[[str], Tensor]
Tensors = Mapping[str, Told]


def unpacked(reading: Reading, tensors: Tensors, read: Read, where: str) -> tuple[Tensors, Read]:
    """The same tensors as if they had never been packed: bfloat16, by the names of the plain weights.

    Refuses methods without a rule, scales that do not fit their weights, and packed weights that the config denies.
    """
    told = reading.quantization or {}
    method, sides = told.get("quant_method"), told.get("weight_block_size") or [128, 128]
    if method == "fp8":
        if not isinstance(sides, list) or len(sides) != 2 or not all(isinstance(n, int) and n > 0 for n in sides):
            raise refuse(f"{where}: quantization_config.weight_block_size", sides, "must be two whole numbers above 0")
        return from_fp8(tensors, read, where, (sides[0], sides[1]))
    if method == "mxfp4":
        return from_mxfp4(tensors, read, where)
    at = f"{where}: quantization_config.quant_method"
    raise refuse(at, method, "no rule unpacks these weights yet (fp8 and mxfp4 are)", "it can be sized")


def from_fp8(tensors: Tensors, read: Read, where: str, sides: tuple[int, int]) -> tuple[Tensors, Read]:
    """Each block of a matrix times its scale (DeepSeek-V3, section 3.3.1)."""
    scaled = {name for name in tensors if f"{name}{SCALE}" in tensors}
    told: dict[str, Told] = {}
    for name, one in tensors.items():
        if name in scaled:
            grid, want = tensors[f"{name}{SCALE}"].shape, tuple(map(blocks_in, one.shape, sides))
            if len(one.shape) != 2 or (prod(grid) != 1 and grid != want):
                raise refuse(f"{where}: {name}{SCALE}", grid, f"must be {want}: one for each block of {sides}")
            told[name] = Told(one.file, "BF16", one.shape, 2 * prod(one.shape))
        elif not (name.endswith(SCALE) and name.removesuffix(SCALE) in scaled) and not name.endswith(
            "activation_scale"
        ):
            told[name] = one

    def plain(name: str) -> Tensor:
        if name not in scaled:
            return read(name)
        return blockwise(read(name).float(), read(f"{name}{SCALE}").float(), sides).to(torch.bfloat16)

    return told, plain


def blocks_in(n: int, side: int) -> int:
    """How many blocks of a side cover n, the last cut short."""
    return -(-n // side)


def blockwise(weight_FD: Tensor, scale: Tensor, sides: tuple[int, int]) -> Tensor:
    """The weight times its blocks' scales, in place."""
    if scale.numel() == 1:
        return weight_FD.mul_(scale.reshape(()))
    for i, row in enumerate(scale):  # row by row of blocks: scales as large as the matrix would be another one
        rows = slice(i * sides[0], (i + 1) * sides[0])
        weight_FD[rows] *= row.repeat_interleave(sides[1])[: weight_FD.shape[1]]
    return weight_FD


def from_mxfp4(tensors: Tensors, read: Read, where: str) -> tuple[Tensors, Read]:
    """gpt-oss: 32 numbers of 4 bits and a power of two for them all, along the inputs; the plain weight lies turned."""
    told: dict[str, Told] = {}
    packed = {name.removesuffix(BLOCKS) for name in tensors if name.endswith(BLOCKS)}
    for name, one in tensors.items():
        stem = name.removesuffix(BLOCKS)
        if stem in packed and name != stem:
            scales = tensors.get(f"{stem}{SCALES}")
            if scales is None or scales.dtype != "U8" or one.dtype != "U8" or one.shape[:-1] != scales.shape:
                shape = scales.shape if scales else None
                raise refuse(
                    f"{where}: {stem}{SCALES}", shape, f"must be bytes, one for each block of {name} {one.shape}"
                )
            if len(one.shape) != 4:
                raise refuse(f"{where}: {name}", one.shape, "must be (experts, outputs, blocks, bytes)")
            n_experts, n_out, n_blocks, n_bytes = one.shape
            shape = (n_experts, n_blocks * n_bytes * 2, n_out)
            told[stem] = Told(one.file, "BF16", shape, 4 * n_experts * n_out * n_blocks * n_bytes)
        elif not (name.endswith(SCALES) and name.removesuffix(SCALES) in packed):
            told[name] = one

    def plain(name: str) -> Tensor:
        if name not in packed:
            return read(name)
        blocks, scales = read(f"{name}{BLOCKS}"), read(f"{name}{SCALES}")
        n_experts, n_out, n_blocks, n_bytes = blocks.shape
        out = torch.empty(n_experts, n_out, n_blocks * n_bytes * 2, dtype=torch.bfloat16)
        for e in range(n_experts):
            out[e] = mxfp4(blocks[e], scales[e]).flatten(-2)
        return out.transpose(1, 2)

    return told, plain


def mxfp4(blocks: Tensor, scales: Tensor) -> Tensor:
    """(..., 2 * bytes) numbers of bfloat16 from (..., bytes), the lower half of a byte first, and scales (...): each
    2^(scale - 127)."""
    values = torch.tensor(FP4, dtype=torch.bfloat16)
    pairs = torch.stack((values[(blocks & 15).int()], values[(blocks >> 4).int()]), -1).flatten(-2)
    return torch.ldexp(pairs, scales.int()[..., None] - 127)

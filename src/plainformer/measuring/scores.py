"""What one layer's attention keeps for its backward pass, scores written out and fused, as rows grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor

from plainformer.kernels import attention, fused_attention
from plainformer.measuring import Measured, jobs

HEADS, WIDTH, LENGTHS, SEED = 8, 64, (256, 512, 1024, 2048), 0


def kept_bytes(run: Callable[[], object], held: Iterable[Tensor] = ()) -> int:
    """Bytes that autograd saves while it runs: each storage once, whatever views of it are saved. What is `held`
    anyway, as weights are, is left out."""
    known = {tensor.untyped_storage().data_ptr() for tensor in held}
    seen: dict[int, int] = {}
    alive: list[Tensor] = []  # so that no storage's place is given to another

    def keep(tensor: Tensor) -> Tensor:
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        run()
    return sum(n_bytes for place, n_bytes in seen.items() if place not in known)


def measure() -> Measured:
    rows, before = [], (0, 0)
    for n in jobs(LENGTHS):
        torch.manual_seed(SEED)
        q_BHTK, k_BHTK, v_BHTK = (torch.randn(1, HEADS, n, WIDTH, requires_grad=True) for _ in range(3))
        see_TT = torch.ones(n, n, dtype=torch.bool).tril()
        plain = kept_bytes(partial(attention, q_BHTK, k_BHTK, v_BHTK, see_TT, WIDTH**-0.5))
        fused = kept_bytes(partial(fused_attention, q_BHTK, k_BHTK, v_BHTK, None, True, WIDTH**-0.5))
        grown = ["" if not one else f" (x {now / one:.2f})" for now, one in zip((plain, fused), before, strict=True)]
        rows.append({"tokens": f"{n:,}", "written out": f"{plain:,}{grown[0]}", "fused": f"{fused:,}{grown[1]}"})
        before = plain, fused
    note = f"Bytes that autograd saves for one layer: {HEADS} heads of {WIDTH}, a batch of one, float32, causal."
    return Measured(rows, (SEED,), note)

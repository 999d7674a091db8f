"""Beside `child`, and alone like it: a whole PyTorch model of theirs, walked module by module, or taught one batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any


def first_tensor(out: Any) -> Any:
    """Of what a module gives back the first tensor."""
    if isinstance(out, (list, tuple)):
        return next((found for one in out if (found := first_tensor(one)) is not None), None)
    if hasattr(out, "logits"):
        return out.logits
    return out if hasattr(out, "detach") else None


def walked(model: Any, run: Callable[[], Any]) -> tuple[list[str], list[Any]]:
    """What each module gives in one pass, in the order in which they end: (paths, tensors)."""
    paths: list[str] = []
    tensors: list[Any] = []

    def hook(path: str) -> Callable[..., None]:
        def keep(module: Any, given: Any, out: Any) -> None:
            tensor = first_tensor(out)
            if tensor is not None and tensor.is_floating_point():
                paths.append(path)
                tensors.append(tensor.detach().clone())  # what is changed in place later is kept as it was

        return keep

    hooks = [module.register_forward_hook(hook(path)) for path, module in model.named_modules()]
    try:
        run()
    finally:
        for one in hooks:
            one.remove()
    return paths, tensors


def logits_in(out: Any, shape: tuple[int, ...]) -> Any:
    """Of an answer the tensor of this shape, or of its rows laid end to end."""
    if isinstance(out, (list, tuple)):
        return next((found for one in out if (found := logits_in(one, shape)) is not None), None)
    if hasattr(out, "logits"):
        return logits_in(out.logits, shape)
    if not hasattr(out, "detach") or out.numel() != shape[0] * shape[1] * shape[2] or out.shape[-1] != shape[2]:
        return None
    return out.reshape(shape)


def learnt(model: Any, run: Callable[[], Any], ids: Any, vocab: int, steps: int, lr: float) -> dict[str, Any]:
    """The losses of AdamW on one batch, and the parameters that had no gradient at the first step."""
    torch: Any = sys.modules["torch"]
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(parameters.values(), lr=lr, weight_decay=0.0)
    losses: list[float] = []
    dead: list[str] = []
    for step in range(steps):
        logits = logits_in(run(), (*ids.shape, vocab))
        if logits is None or not logits.requires_grad:
            return {"losses": losses, "dead": [*parameters], "detached": logits is not None}
        loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            dead = list(dict.fromkeys(without_gradient(parameters)))
        optimizer.step()
    return {"losses": [one if one == one and abs(one) < 1e30 else None for one in losses], "dead": dead}


def without_gradient(parameters: dict[str, Any]) -> Iterator[str]:
    """Those whose gradient is 0, and thirds of matrices (queries, keys and values in one) whose gradient is."""
    grads = {name: p.grad for name, p in parameters.items()}
    most = max((float(g.abs().max()) for g in grads.values() if g is not None), default=0.0)
    for name, grad in grads.items():
        if grad is None or float(grad.abs().max()) <= 1e-9 * most:
            yield name
        elif grad.dim() == 2:
            for axis in (0, 1):
                thirds = grad.chunk(3, axis) if grad.shape[axis] % 3 == 0 else ()
                yield from (f"a third of {name}" for one in thirds if float(one.abs().max()) <= 1e-9 * most)

"""Which places of a model take the compiled steps."""

from __future__ import annotations

from plainformer import spec as s
from plainformer.fused.library import library
from plainformer.fused.steps import FusedAttention, FusedGate, FusedNorm, FusedTurn
from plainformer.layers import FeedForward, Norm
from plainformer.model import Attention, Layer, Transformer


def read_by_products(model: Transformer) -> set[int]:
    """The norms, by id, whose answer nothing but linear parts reads: under autocast each of them rounds it anyway."""
    main = model.decoder if model.spec.decoder else model.encoder
    found = {id(main.norm_last)} if model.spec.head and main.part.norm_last else set()
    for layer in (layer for layer in model.modules() if isinstance(layer, Layer)):
        for branch in (branch for residual in layer.residuals for branch in residual.branches):
            if isinstance(branch.part, (s.Attention, s.FeedForward)) and branch.norm_in:
                found.add(id(layer.get_submodule(f"{branch.name}_norm")))
    return found


def fuse(model: Transformer) -> tuple[Transformer, str]:
    """The model itself, its small steps compiled, and why not, or "". From then on the process keeps freed memory."""
    loaded, reason = library()
    if loaded is None:
        return model, reason
    narrow = read_by_products(model)
    for module in model.modules():
        if isinstance(module, Norm):
            module.normed = FusedNorm(loaded, id(module) in narrow)
        elif isinstance(module, FeedForward):
            module.activated = FusedGate(loaded)
        elif isinstance(module, Attention):
            module.rotate, module.fused = FusedTurn(loaded), FusedAttention(loaded)
    loaded.keep_memory()
    return model, ""

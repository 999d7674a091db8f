"""Low-rank adapters: taken into the weights for speed, with what they stood on kept as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from plainformer import spec as s
from plainformer.model import Transformer
from plainformer.tree import rewrite


def without_lora(spec: s.Spec) -> s.Spec:
    """The spec of the merged model: no adapters. A tied head that had one stands alone: merged into the table, the
    correction would reach the embedding too."""

    def plain(part: Any) -> Any:
        if isinstance(part, s.Head) and part.linear.lora:
            return replace(part, linear=replace(part.linear, lora=None), tied=False)
        return replace(part, lora=None) if isinstance(part, s.Linear) else part

    # Heads first: once their linear has lost its adapter, nothing tells that there was one.
    head = plain(spec.head) if spec.head else None
    return rewrite(replace(spec, head=head), plain)


@torch.no_grad()
def merge(model: Transformer) -> Transformer:
    """A model without adapters that gives the same logits: each W is W + B A * alpha / rank (Hu et al. 2021, 4.1).

    The model itself is left as it was, to the bit: to unmerge is to go on with it.
    """
    merged = Transformer(without_lora(model.spec), initial=None)
    weights = dict(model.named_parameters()) | dict(model.named_buffers())
    weights.setdefault("head.weight", model.embedding.weight)
    merged.to(model.embedding.weight)
    for name, module in model.named_modules():
        part = getattr(module, "part", None)
        linear = next((p for p in (part, getattr(part, "linear", None)) if isinstance(p, s.Linear)), None)
        if linear and linear.lora:
            a, b = (weights[f"{name}.lora_{letter}"] for letter in "ab")
            weights[f"{name}.weight"] = weights[f"{name}.weight"] + b @ a * (linear.lora.alpha / linear.lora.rank)
    for name, tensor in merged.state_dict().items():
        tensor.copy_(weights[name])
    return merged.eval()

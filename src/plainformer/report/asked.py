"""Sections of the sheet that are there when they are asked for: a device, a training run, a bare size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plainformer.cost import Cost, rules
from plainformer.cost.devices import Device
from plainformer.cost.serving import Serving
from plainformer.cost.training import Plan, Training, compute_optimal_tokens
from plainformer.spec import Tower


def serving(cost: Cost, stored: Sequence[int] | None, device: Device) -> dict[str, Any]:
    """What a device makes of it: bounds, and how many are needed. stored: as for Serving.of."""
    one = Serving.of(cost, stored)
    causal = bool(cost.cache.parts)
    step = one.step_seconds(device)
    notes = [
        f"bounds on {device.name} are of its data sheet ({device.flops:.4g} FLOPs and {device.bandwidth:.4g} bytes a "
        "second): no program is faster; its memory holds weights and cache alone"
    ]
    if cost.ledger.active != cost.ledger.total and cost.batch_size > 1:
        notes.append("a step reads the experts that its batch is expected to meet, evenly routed")
    return {
        "device": {
            "name": device.name,
            "memory": device.memory,
            "memory_needed": one.memory_bytes,
            "dtype": None if stored else cost.dtype,  # of the weights in it; None: each as it is stored
            "needed": one.needed(device),
            "fits": one.needed(device) == 1,
            "bytes_read_per_step": one.weights_read + one.cache_read if causal else None,
            "decode_tokens_per_second": cost.batch_size / step if causal else None,
            "decode_bound": ("bandwidth" if one.is_bound_by_memory(device) else "operations") if causal else None,
            "prefill_seconds": one.prompt_seconds(device),
            "devices_needed": one.fits(),
        },
        "notes": notes,
    }


def training(cost: Cost, plan: Plan) -> dict[str, Any]:
    """Bytes on one device of a training run."""
    one = Training.of(cost, plan)
    notes = []
    if one.activations is None:
        notes.append("activations of this model's mixers are not worked out, so neither is the sum")
    if plan.lora is not None:
        notes.append("a frozen weight has no gradient: its products are counted forward, and backward once")
    if any(isinstance(one, Tower) for one in cost.spec.towers):
        notes.append("activations are of text alone")
    return {
        "training_memory": {
            "optimizer": plan.optimizer,
            "recompute": plan.recompute,
            "attention": "fused" if plan.fused else "plain",
            "zero": plan.zero,
            "devices": plan.n_devices,
            "trained": one.n_trained,
            "weights": one.weights,
            "gradients": one.gradients,
            "optimizer_state": one.optimizer,
            "before_activations": one.before_activations,
            "activations": one.activations,
            "logits": one.logits,
            "total": one.total,
            "flops_per_token": one.flops_per_token,
            "flops_done_per_token": one.flops_done_per_token,
            "compute_optimal_tokens": compute_optimal_tokens(cost.ledger.active),
        },
        "notes": notes,
    }


def of_a_size(
    name: str,
    parameters: int,
    *,
    tokens: float | None = None,
    sustained: float | None = None,
    price: float | None = None,
    watts: float | None = None,
    device: Device | None = None,
    dtype: str = "bfloat16",
) -> dict[str, Any]:
    """What follows from a number of parameters alone: no layer is known, so rules of thumb only. dtype: in which a
    device holds the weights; the others as in `facts`."""
    work = rules.training_flops(parameters, tokens) if tokens is not None else None
    hours = rules.device_hours(work, sustained) if work is not None and sustained else None
    sheet: dict[str, Any] = {
        "family": None,
        "model_type": None,
        "parameters": {"total": parameters},
        "weights_bytes": {
            dtype: rules.n_bytes(parameters, dtype) for dtype in ("float32", "bfloat16", "fp8", "int8", "int4")
        },
        "flops": {"forward_per_token": None, "rule_2n": rules.inference_flops_per_token(parameters), "context": None},
        "training": {
            "flops_6nd": work,
            "flops_exact": None,
            "device_hours": hours,
            "dollars": hours * price if hours is not None and price is not None else None,
            "bytes": rules.ADAMW * parameters,
            "compute_optimal_tokens": compute_optimal_tokens(parameters),
        },
        "notes": [f"{name} is a size, not a model: rules of thumb only; cache and exact operations need its layers"],
    }
    if hours is not None and watts is not None:
        sheet["energy_kwh"] = hours * watts / 1000
    if device is not None:
        from plainformer.cost.devices import needed

        held = rules.n_bytes(parameters, dtype)
        sheet["device"] = {"name": device.name, "memory_needed": held, "needed": needed(held, device), "dtype": dtype}
    return sheet

"""A run that begins from a model: its shape, its tokenizer, its weights; all of them trained, or adapters alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from plainformer.adapters import merge
from plainformer.checkpoint import load, tokenizer_of
from plainformer.conventions import LORA_TARGETS, with_lora
from plainformer.faults import refuse
from plainformer.model import Transformer
from plainformer.spec import Linear, Spec
from plainformer.text import Tokenizer
from plainformer.training.material import tell
from plainformer.training.recipe import Settings
from plainformer.tree import walk

Asked = Mapping[str, Any]
TARGETS = "q,v"  # Hu et al. 2021, section 4.2
SHAPE = ("preset", "d_model", "n_layers", "n_heads", "tokenizer")  # what the model has decided
ADAPTERS = ("lora_a", "lora_b")


def begun_from(asked: Asked) -> tuple[Transformer, Tokenizer] | None:
    """The model that is asked for, in float32, and its tokenizer; None where a run begins from nothing."""
    if "base" not in asked:
        for name in ("lora", "targets"):
            if name in asked:
                raise refuse(f"--{name}", asked[name], "adapts a model that is there", "say which: --from MODEL")
        return None
    for name in SHAPE:
        if name in asked:
            flag = "--" + name.replace("_", "-")
            raise refuse(flag, asked[name], "is the model's own, given by --from", "leave it out")
    if "targets" in asked and "lora" not in asked:
        raise refuse("--targets", asked["targets"], "are of adapters", "give their rank: --lora R")
    if asked.get("lora", 1) < 1:
        raise refuse("--lora", asked["lora"], "must be a rank of at least 1")
    # Copied: a run that goes on from its own step has its weights row by row, and products' bits depend on that.
    model, tokenizer = load(asked["base"], torch.float32, mapped=False), tokenizer_of(asked["base"])
    if model.spec.decoder is None or model.spec.encoder is not None or model.spec.head is None:
        raise refuse("--from", asked["base"], "is no decoder with a head", "train continues decoders alone")
    if tokenizer.n_tokens > model.spec.vocab_size:
        rule = f"its tokenizer has {tokenizer.n_tokens:,} tokens and its vocabulary {model.spec.vocab_size:,}"
        raise refuse("--from", asked["base"], rule, "these do not belong together")
    if "lora" in asked and any(isinstance(part, Linear) and part.lora for _, part in walk(model.spec)):
        model = merge(model)  # its own adapters are part of what new ones begin by not changing
        tell("the adapters of --from are taken into its weights, and new ones put on them")
    return model, tokenizer


def adapted(spec: Spec, asked: Asked) -> Spec:
    """The spec with the adapters that are asked for."""
    if "lora" not in asked:
        return spec
    return with_lora(spec, asked["lora"], targets=[full(name) for name in asked.get("targets", TARGETS).split(",")])


def full(name: str) -> str:
    """q -> attention.q; a name that two parts have, gate, must be said whole."""
    found = [target for target in LORA_TARGETS if name in (target, target.partition(".")[2])]
    if len(found) != 1:
        known = ", ".join(found or LORA_TARGETS)
        rule = "is a name of several projections" if found else "is no projection that takes an adapter"
        raise refuse("--targets", name, rule, f"one of {known}")
    return found[0]


@torch.no_grad()
def first_weights(spec: Spec, settings: Settings, source: Transformer | None) -> Transformer:
    """The model as its first step finds it: what `source` has, the rest drawn (adapters begin by changing nothing)."""
    model = Transformer(spec, initial=settings.initial, seed=settings.seed)
    if source is not None:
        held = source.state_dict()
        for name, tensor in model.state_dict().items():
            if name in held:
                assert tensor.shape == held[name].shape  # copy_ would spread a smaller one over it
                tensor.copy_(held[name])
    return model


def choose_trained(model: Transformer, settings: Settings) -> None:
    """Only what is trained has a gradient."""
    for name, weight in model.named_parameters():
        weight.requires_grad_(settings.trained == "all" or name.endswith(ADAPTERS))

"""What a model keeps, holds and does, measured: the other side of law L9."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from plainformer import kernels
from plainformer import model as m
from plainformer import spec as s
from plainformer.kernels import cross_entropy
from plainformer.states import Memory, Where


class Packed:
    """A tensor in autograd's keeping; it is gone when the operation that asked for it is."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class Keeping:
    """All that autograd keeps while it is on, each storage once, the model's own weights aside."""

    def __init__(self, model: torch.nn.Module) -> None:
        held = (*model.parameters(), *model.buffers())
        self.own = {tensor.untyped_storage()._cdata for tensor in held}
        self.packed: list[weakref.ref[Packed]] = []
        self.most = 0
        self.hooks = saved_tensors_hooks(self.pack, lambda packed: packed.tensor)

    def pack(self, tensor: Tensor) -> Packed:
        packed = Packed(tensor.detach().requires_grad_(tensor.requires_grad))  # without its graph: no circles
        self.packed.append(weakref.ref(packed))
        self.most = max(self.most, self.n_bytes)
        return packed

    def tensors(self) -> list[Tensor]:
        found: dict[int, Tensor] = {}
        for ref in self.packed:
            if (packed := ref()) is not None:
                found[packed.tensor.untyped_storage()._cdata] = packed.tensor
        return [tensor for at, tensor in found.items() if at not in self.own]

    @property
    def n_bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in self.tensors())


def tokens_for(spec: s.Spec, n_rows: int, n_tokens: int) -> Tensor:
    """All tokens in turn, so that a mixture's experts have enough to choose from."""
    return (torch.arange(n_rows * n_tokens) * 7 % spec.vocab_size).view(n_rows, n_tokens)


def ready(spec: s.Spec, dtype: torch.dtype = torch.float32, adapters: bool = False) -> m.Transformer:
    model = m.Transformer(spec).to(dtype)
    if adapters:
        for name, weight in model.named_parameters():
            weight.requires_grad_("lora_" in name)
    return model


def answer(model: m.Transformer, batch: int, length: int, n_source: int, plain: bool) -> Tensor:
    """The logits of one pass: with the plain attention where its weights are asked for, a trace that keeps nothing."""
    trace = Nothing() if plain else None
    memory = None
    if model.spec.encoder is not None and model.spec.decoder is not None:
        memory = model.encode(tokens_for(model.spec, batch, n_source), trace=trace)
    return model(tokens_for(model.spec, batch, length), memory=memory, trace=trace)


class Nothing(dict[str, Tensor]):
    """A trace that asks and forgets."""

    def __setitem__(self, key: str, value: Tensor) -> None:
        pass


def kept(model: m.Transformer, batch: int, length: int, n_source: int, plain: bool) -> int:
    """Bytes that autograd keeps after a forward pass."""
    keeping = Keeping(model)
    with keeping.hooks:
        said = answer(model, batch, length, n_source, plain)
    n_bytes = keeping.n_bytes
    del said
    return n_bytes


def kept_at_most(model: m.Transformer, batch: int, length: int, n_source: int, plain: bool) -> int:
    """Bytes that autograd keeps at the worst moment of a forward and a backward pass."""
    keeping = Keeping(model)
    with keeping.hooks:
        answer(model, batch, length, n_source, plain).sum().backward()
    return keeping.most


@contextmanager
def layers_again() -> Iterator[None]:
    """Every layer is made again in the backward pass, from what it read."""
    original = m.Layer.forward

    def forward(self: m.Layer, x: Tensor, where: Where) -> Tensor:
        def run(x: Tensor, said: Tensor | None) -> Tensor:
            memory = where.memory and Memory(said, where.memory.lengths)
            return original(self, x, replace(where, memory=memory, made={}))

        return checkpoint(run, x, where.memory and where.memory.said_BSD, use_reentrant=True)

    m.Layer.forward = forward  # type: ignore[method-assign]
    try:
        yield
    finally:
        m.Layer.forward = original  # type: ignore[method-assign]


@contextmanager
def scores_again() -> Iterator[None]:
    """The plain attention is made again in the backward pass, from queries, keys, values and who may see whom."""
    original: Callable[..., Any] = m.attention

    def attention(*inputs: Any) -> tuple[Tensor, Tensor]:
        return checkpoint(original, *inputs, use_reentrant=True)

    m.attention = attention
    try:
        yield
    finally:
        m.attention = original


class FusedNorm(torch.autograd.Function):
    """An RMS norm that keeps what torch's fused one for accelerators does: input, gain and one number a row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor | None, width: int, eps: float) -> Tensor:
        each = (x.square().mean(-1, keepdim=True) + eps).rsqrt()
        ctx.save_for_backward(x, gain, each)
        return torch.nn.functional.rms_norm(x, (width,), gain, eps)


@contextmanager
def fused_norms() -> Iterator[None]:
    original = kernels.F

    class Functional:
        def __getattr__(self, name: str) -> Any:
            return getattr(original, name)

        @staticmethod
        def rms_norm(x: Tensor, shape: tuple[int, ...], gain: Tensor | None, eps: float) -> Tensor:
            return cast(Tensor, FusedNorm.apply(x, gain, shape[0], eps))

    kernels.F = Functional()  # type: ignore[assignment]
    try:
        yield
    finally:
        kernels.F = original


def operations(model: m.Transformer, batch: int, length: int, n_source: int) -> tuple[int, int]:
    """Of a forward pass and of a backward pass, as torch counts them, by plain attention."""
    counter = FlopCounterMode(display=False)
    with counter:
        said = answer(model, batch, length, n_source, plain=True)
        forward = counter.get_total_flops()
        said.sum().backward()
    return forward, counter.get_total_flops() - forward


class Alive(TorchDispatchMode):
    """Bytes of all storages that operations have made and that are still held; `most`: the most at once."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}
        self.now = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **kwargs or {})
        tree_map_only(Tensor, self.see, out)
        return out

    def see(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        at = storage.data_ptr()
        if not at or at in self.held:
            return
        self.held[at] = storage.nbytes()
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self.gone, at)

    def gone(self, at: int) -> None:
        self.now -= self.held.pop(at, 0)


def most_alive(model: m.Transformer, batch: int, length: int) -> int:
    """Bytes of all that is held at the worst moment of a step: weights, activations, the loss and its gradients."""
    tokens_BT = tokens_for(model.spec, batch, length)
    with Alive() as alive:
        cross_entropy(model(tokens_BT), tokens_BT).mean().backward()
    return alive.most

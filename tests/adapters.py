"""The reference and the model behind one small face, so that the same behavioural checks can be asked of both.

A check speaks of roles (`block0.attn.q.w`) whose matrices act as x @ w, in NumPy arrays; an adapter says what they are
here. V vocabulary, T tokens, B batch, H heads, D width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from plainformer import cost, formulas, generation, kernels, reference
from plainformer import model as m
from plainformer import spec as s
from plainformer.families import decoders, llamas
from plainformer.families.parts import dot, layer_norm
from plainformer.initial import initial
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.reference import Weights
from plainformer.states import State, Where

Array = np.ndarray
CAPS = {"gelu_exact", "gelu_tanh", "tied", "attn_bias_option", "encoder", "batch_generate", "kv", "counts"}
CAPS |= {"kv_bytes", "moe"}
ROLES = (
    (r"wte", "embedding.weight"),
    (r"wpe", "decoder.positions.weight"),
    (r"head\.w", "head.weight"),
    (r"ln_f\.(\w+)", r"decoder.norm_last.\1"),
    (r"block(\d+)\.ln1\.(\w+)", r"decoder.layers.\1.attention_norm.\2"),
    (r"block(\d+)\.ln2\.(\w+)", r"decoder.layers.\1.feed_forward_norm.\2"),
    (r"block(\d+)\.attn\.o\.(\w+)", r"decoder.layers.\1.attention.out.\2"),
    (r"block(\d+)\.attn\.(\w)\.(\w+)", r"decoder.layers.\1.attention.\2.\3"),
    (r"block(\d+)\.mlp\.(\w+)\.(\w+)", r"decoder.layers.\1.feed_forward.\2.\3"),
)
LEAVES = {"w": "weight", "b": "bias", "gain": "weight", "bias": "bias"}


def name_of(role: str) -> str:
    """The ledger's name of a role."""
    for pattern, ours in ROLES:
        if found := re.fullmatch(pattern, role):
            *path, leaf = found.expand(ours).split(".")
            return ".".join([*path, LEAVES.get(leaf, leaf)])
    raise KeyError(role)


def roles_of(spec: s.Spec) -> dict[str, str]:
    """Every role that the spec's weights have, with its name here."""
    n_layers = len(spec.main.layers)
    roles = ["wte", "wpe", "ln_f.gain", "ln_f.bias", "head.w"]
    inner = [f"ln{i}.{leaf}" for i in (1, 2) for leaf in ("gain", "bias")]
    inner += [
        f"{part}.{leaf}" for part in ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.up", "mlp.down") for leaf in "wb"
    ]
    roles += [f"block{i}.{role}" for i in range(n_layers) for role in inner]
    held = {w.name for w in Ledger.of(spec).weights}
    found = {role: name_of(role) for role in roles if name_of(role) in held}
    assert set(found.values()) == held
    return found


def as_role(role: str, array: Array) -> Array:
    """Our matrices act as x @ w.T; a role's as x @ w. Its own inverse."""
    return array.T if role.endswith(".w") else array


def spec_of(
    vocab: int, width: int, layers: int, heads: int, context: int, tied: bool = True, attn_bias: bool = True
) -> s.Spec:
    return decoders.gpt2(
        vocab_size=vocab,
        max_seq_len=context,
        d_model=width,
        n_layers=layers,
        n_heads=heads,
        activation="gelu",
        tied=tied,
        qkv_bias=attn_bias,
        out_bias=attn_bias,
    )


@dataclass
class Defined:
    """What the reference calls a model: a spec and its arrays."""

    spec: s.Spec
    arrays: dict[str, Array]


class OfReference:
    """The definition: NumPy, float64."""

    name, dtype, atol, gelu_kind, caps = "reference", np.float64, 1e-9, "exact", CAPS

    def make(
        self, vocab: int, width: int, layers: int, heads: int, context: int, seed: int = 0, **more: bool
    ) -> Defined:
        spec = spec_of(vocab, width, layers, heads, context, **more)
        return Defined(spec, initial(spec, "gpt2", seed))

    def params(self, model: Any) -> dict[str, Array]:
        return {role: as_role(role, model.arrays[name]) for role, name in roles_of(model.spec).items()}

    def assign(self, model: Any, role: str, array: Array) -> None:
        model.arrays[name_of(role)] = as_role(role, np.asarray(array, np.float64))

    def param_count(self, model: Any) -> int:
        return Ledger.of(model.spec).total

    def layer_norm(self, x: Array, gain: Array, bias: Array, eps: float) -> Array:
        return formulas.layer_norm(x, gain, bias, eps)

    def gelu(self, x: Array, kind: str) -> Array:
        return {"exact": formulas.gelu, "tanh": formulas.gelu_tanh}[kind](x)

    def attention(self, q: Array, k: Array, v: Array, allowed: Array) -> tuple[Array, Array]:
        out, weights = formulas.attention(q[None], k[None], v[None], allowed, dot(q.shape[1]).scale)
        return out[0], weights[0]

    def mlp(self, model: Any, i: int, x: Array) -> Array:
        branch = model.spec.main.layers[i][1].branches[0]
        w = Weights(model.arrays, f"decoder.layers.{i}.feed_forward")
        return reference.run(branch.part, w, x, reference.Where(np.arange(len(x))))

    def block(self, model: Any, i: int, x: Array, causal: bool) -> Array:
        where = reference.Where(np.arange(len(x)), causal)
        for residual in model.spec.main.layers[i]:
            x = reference.run(residual, Weights(model.arrays, f"decoder.layers.{i}"), x, where)
        return x

    def attention_weights(self, model: Any, ids: Array) -> list[Array]:
        trace: dict[str, Array] = {}
        reference.logits(model.spec, model.arrays, ids, trace=trace)
        return [array for place, array in trace.items() if place.endswith("attention.weights")]

    def logits(self, model: Any, ids: Array) -> Array:
        return np.stack([reference.logits(model.spec, model.arrays, row) for row in ids])

    def probs(self, z: Array, temperature: float) -> Array:
        return formulas.probabilities(z, temperature)

    def generate(
        self, model: Any, prompt: Array, n: int, temperature: float, seed: int, cache: bool
    ) -> tuple[Array, int]:
        with counted(reference, "logits") as positions:
            rows = [
                reference.generate(
                    model.spec, model.arrays, row, n, temperature, seed, reference.State() if cache else None
                )
                for row in prompt
            ]
        return np.stack(rows), sum(positions)

    def stepwise_logits(self, model: Any, ids: Array) -> Array:
        state = reference.State()
        return np.concatenate([reference.logits(model.spec, model.arrays, ids[[t]], state) for t in range(len(ids))])

    def kv_bytes(self, batch: int, tokens: int, layers: int, kv_heads: int, head: int, bytes_per: int) -> int:
        """By the account, from a spec of that shape."""
        spec = llamas.llama(
            vocab_size=5,
            max_seq_len=tokens,
            d_model=8,
            n_layers=layers,
            n_heads=kv_heads,
            n_kv_heads=kv_heads,
            d_head=head,
            d_ff=8,
        )
        kept = cost.Cost.of(spec, batch_size=batch, kv_dtype={2: "bfloat16", 4: "float32"}[bytes_per])
        return kept.cache_bytes

    def gates(self, scores: Array, k: int) -> Array:
        return formulas.top_k_gates(scores, k)

    def balance_loss(self, scores: Array, k: int) -> float:
        return formulas.balance_loss(scores, k)


@contextmanager
def counted(room: Any, name: str) -> Iterator[list[int]]:
    """Counts the tokens of each call of a function that takes them third."""
    original, seen = getattr(room, name), []

    def call(spec: Any, arrays: Any, tokens: Array, *rest: Any, **more: Any) -> Any:
        seen.append(len(tokens))
        return original(spec, arrays, tokens, *rest, **more)

    setattr(room, name, call)
    try:
        yield seen
    finally:
        setattr(room, name, original)


def tensor(x: Array) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.long if np.asarray(x).dtype.kind in "iu" else torch.float64)


class OfModel:
    """The model in PyTorch, in float64."""

    name, dtype, atol, gelu_kind, caps = "model", np.float64, 1e-9, "exact", CAPS | {"grad", "train"}

    def make(
        self, vocab: int, width: int, layers: int, heads: int, context: int, seed: int = 0, **more: bool
    ) -> Transformer:
        spec = spec_of(vocab, width, layers, heads, context, **more)
        model = Transformer(spec, initial=None).double()
        model.take(initial(spec, "gpt2", seed).items())
        return model

    def params(self, model: Transformer) -> dict[str, Array]:
        mine = model.arrays()
        return {role: as_role(role, mine[name]).copy() for role, name in roles_of(model.spec).items()}

    def assign(self, model: Transformer, role: str, array: Array) -> None:
        model.take([(name_of(role), np.ascontiguousarray(as_role(role, np.asarray(array))))])

    def param_count(self, model: Transformer) -> int:
        return sum(p.numel() for p in model.parameters())

    def norm(self, gain: Array, bias: Array, eps: float) -> torch.nn.Module:
        built = m.build(layer_norm(len(gain), eps)).double()
        with torch.no_grad():
            built.weight.copy_(tensor(gain))
            built.bias.copy_(tensor(bias))
        return built

    def layer_norm(self, x: Array, gain: Array, bias: Array, eps: float) -> Array:
        return self.norm(gain, bias, eps)(tensor(x)).detach().numpy()

    def layer_norm_grad(self, x: Array, gain: Array, bias: Array, eps: float, upstream: Array) -> tuple[Array, ...]:
        built, x_leaf = self.norm(gain, bias, eps), tensor(x).requires_grad_()
        built(x_leaf).backward(tensor(upstream))
        return tuple(leaf.grad.numpy() for leaf in (x_leaf, built.weight, built.bias))

    def gelu(self, x: Array, kind: str) -> Array:
        return kernels.ACTIVATIONS[{"exact": "gelu", "tanh": "gelu_tanh"}[kind]](tensor(x)).numpy()

    def attention(self, q: Array, k: Array, v: Array, allowed: Array) -> tuple[Array, Array]:
        """The output of the fused kernel, the weights of its plain twin; the twin's output must be the same."""
        heads, see, scale = [tensor(y)[None, None] for y in (q, k, v)], torch.tensor(allowed), dot(q.shape[1]).scale
        plain, weights = kernels.attention(*heads, see, scale)
        fused = kernels.fused_attention(*heads, see[None, None], False, scale)
        assert torch.allclose(plain, fused, atol=1e-9)
        return fused[0, 0].numpy(), weights[0, 0].numpy()

    @torch.no_grad()
    def mlp(self, model: Transformer, i: int, x: Array) -> Array:
        return model.decoder.layers[i].feed_forward(tensor(x)).numpy()

    @torch.no_grad()
    def block(self, model: Transformer, i: int, x: Array, causal: bool) -> Array:
        where = Where(torch.arange(len(x))[None], causal)
        return model.decoder.layers[i](tensor(x)[None], where)[0].numpy()

    @torch.no_grad()
    def attention_weights(self, model: Transformer, ids: Array) -> list[Array]:
        trace: dict[str, torch.Tensor] = {}
        model(tensor(ids)[None], trace=trace)
        return [kept[0].numpy() for place, kept in trace.items() if place.endswith("attention.weights")]

    @torch.no_grad()
    def logits(self, model: Transformer, ids: Array) -> Array:
        return model(tensor(ids)).numpy()

    def loss(self, model: Transformer, x: Array, y: Array) -> torch.Tensor:
        return kernels.cross_entropy(model(tensor(x)), tensor(y)).mean()

    def loss_and_grads(self, model: Transformer, x: Array, y: Array) -> tuple[float, dict[str, Array]]:
        model.zero_grad()
        loss = self.loss(model, x, y)
        loss.backward()
        grads = {name: p.grad.numpy() for name, p in model.named_parameters()}
        return loss.item(), {role: as_role(role, grads[name]) for role, name in roles_of(model.spec).items()}

    def fit(self, model: Transformer, data: Array, steps: int, lr: float, batch: int) -> list[float]:
        optimizer, rng, history = torch.optim.Adam(model.parameters(), lr), np.random.default_rng(0), []
        model.float()  # twice as fast, and no check of training looks at the twelfth digit
        for _ in range(steps):
            rows = data[rng.permutation(len(data))[:batch]]
            optimizer.zero_grad()
            loss = self.loss(model, rows[:, :-1], rows[:, 1:])
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        model.double()
        return history

    def probs(self, z: Array, temperature: float) -> Array:
        return generation.probabilities(z, generation.Sampling(temperature=temperature))

    def generate(
        self, model: Transformer, prompt: Array, n: int, temperature: float, seed: int, cache: bool
    ) -> tuple[Array, int]:
        done = generation.generate(model, prompt.tolist(), n, temperature=temperature, seed=seed, cached=cache)
        return np.array(done.tokens), done.n_positions

    @torch.no_grad()
    def stepwise_logits(self, model: Transformer, ids: Array) -> Array:
        state = State(1, capacity=len(ids))
        return torch.cat([model(tensor(ids[[t]])[None], state)[0] for t in range(len(ids))]).numpy()

    def kv_bytes(self, batch: int, tokens: int, layers: int, kv_heads: int, head: int, bytes_per: int) -> int:
        """By the state itself, on the meta device."""
        state, dtype = State(batch, capacity=tokens), {2: torch.bfloat16, 4: torch.float32}[bytes_per]
        new = torch.empty(batch, kv_heads, 1, head, dtype=dtype, device="meta")
        for i in range(layers):
            state.append(f"decoder.layers.{i}.attention", new, new, torch.zeros(1, 1, dtype=torch.long, device="meta"))
        return state.n_bytes

    def gates(self, scores: Array, k: int) -> Array:
        """By the router's module, whose linear gives each token its own scores back."""
        n = scores.shape[1]
        router = m.build(s.ChosenSoftmaxRouter(scores=s.Linear(n_in=n, n_out=n), n_chosen=k)).double()
        with torch.no_grad():
            router.scores.weight.copy_(torch.eye(n))
            return router(tensor(scores))[2].numpy()

    def balance_loss(self, scores: Array, k: int) -> float:
        return kernels.balance_loss(tensor(scores), kernels.choose(tensor(scores), k)).item()


ADAPTERS: tuple[Any, ...] = (OfReference(), OfModel())
Check = Callable[[Any], None]

"""The same transformer in PyTorch, fast. Same parts, same names; tests hold it to the reference.

B batch, T new positions, S all positions, D d_model, H heads, G kv heads, K d_head, F d_ff, V vocabulary, E experts,
N tokens of all rows, R rows of positions: B, or 1 where all rows stand together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import singledispatch
from math import pi
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plainformer import mixers
from plainformer import spec as s
from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.initial import draws
from plainformer.ledger import weights
from plainformer.states import State
from plainformer.tree import walk

# What a pass knows


@dataclass(frozen=True)
class Where:
    """What a part may ask beyond its input. Built once a pass; only attention opens it."""

    positions_RT: Tensor
    causal: bool
    starts: tuple[int, ...] = (0,)  # each row's tokens before this pass
    state: State | None = None
    trace: dict[str, Tensor] | None = None  # asked for: attention weights and the stream, by place
    made: dict[object, Tensor] = field(default_factory=dict)  # rotary tables and masks, once for all layers
    n_pass: int = 0  # where layers are shared: which pass this is, from 1

    @property
    def together(self) -> bool:
        return len(set(self.starts)) == 1

    def at(self, place: str) -> str:
        """The place's name in states and traces: shared layers have one for each pass."""
        return f"{place}.pass.{self.n_pass}" if self.n_pass else place

    def keep(self, place: str, tensor: Tensor) -> None:
        if self.trace is not None:
            self.trace[place] = tensor

    def turns(self, rotary: s.Rotary, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin of each pair's angle, (B, 1, T, n_dims / 2): made in float64, then rounded once."""
        if (rotary, "cos") not in self.made:
            angle = self.positions_RT[:, None, :, None] * frequencies(rotary).to(self.positions_RT.device)
            self.made[rotary, "cos"], self.made[rotary, "sin"] = angle.cos().to(dtype), angle.sin().to(dtype)
        return self.made[rotary, "cos"], self.made[rotary, "sin"]

    def allowed(self, window: int | None, n_keys: int) -> Tensor:
        """(B, 1, T, S), True where a query may see a key: no later one in a causal stack, none beyond the window."""
        if (window, n_keys) not in self.made:
            slots_S = torch.arange(n_keys, device=self.positions_RT.device)
            ago = self.positions_RT[:, None, :, None] - slots_S
            see = ago >= 0 if self.causal else torch.ones_like(ago, dtype=torch.bool)
            self.made[window, n_keys] = see if window is None else see & (ago.abs() < window)
        return self.made[window, n_keys]

    def mask(self, window: int | None, n_keys: int) -> tuple[Tensor | None, bool]:
        """(mask, is_causal) for the fused kernel: a plain triangle or nothing where that says it all."""
        n_new = self.positions_RT.shape[1]
        if self.together and (window is None or n_keys <= window):
            if n_new == n_keys or not self.causal:
                return None, self.causal
            if n_new == 1:
                return None, False  # the newest token sees all
        return self.allowed(window, n_keys), False


# Formulas on plain tensors


def frequencies(rotary: s.Rotary) -> Tensor:
    """Radians a position for each pair, (n_dims / 2,), float64. Su et al. 2021, section 3.4.2."""
    turn = rotary.theta ** (-torch.arange(0, rotary.n_dims, 2, dtype=torch.float64) / rotary.n_dims)
    if rotary.scaling is None:
        return turn
    settings = dict(rotary.scaling.settings)
    if rotary.scaling.kind == "linear":
        return turn / settings["factor"]
    low, high = (
        settings["low_freq_factor"],
        settings["high_freq_factor"],
    )  # llama3, the only other that `unready` lets by
    share = (settings["original_max_position_embeddings"] * turn / (2 * pi) - low) / (high - low)
    return turn * torch.lerp(torch.full_like(turn, 1 / settings["factor"]), torch.ones_like(turn), share.clamp(0, 1))


def rotate(x_BHTK: Tensor, cos: Tensor, sin: Tensor, rotary: s.Rotary) -> Tensor:
    """Turn each pair of the first n_dims; the rest stays as it is."""
    n = rotary.n_dims
    turned, rest = x_BHTK[..., :n], x_BHTK[..., n:]
    a, b = (turned[..., 0::2], turned[..., 1::2]) if rotary.interleaved else turned.chunk(2, -1)
    a, b = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack((a, b), -1).flatten(-2) if rotary.interleaved else torch.cat((a, b), -1)
    return turned if n == x_BHTK.shape[-1] else torch.cat((turned, rest), -1)


def attention(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, allowed: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """The plain twin of the fused kernel: (output, weights). A query that may see nothing gets weights 0, output 0."""
    n_groups = q_BHTK.shape[-3] // k_BGSK.shape[-3]
    k_BHSK, v_BHSK = (y.repeat_interleave(n_groups, -3) if n_groups > 1 else y for y in (k_BGSK, v_BGSK))
    scores_BHTS = (q_BHTK @ k_BHSK.transpose(-1, -2) * scale).masked_fill(~allowed, -torch.inf)
    weights_BHTS = scores_BHTS.softmax(-1).masked_fill(~allowed, 0)
    return weights_BHTS @ v_BHSK, weights_BHTS


def fused_attention(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """The same output without ever holding all weights. `causal` only where queries and keys are as many."""
    grouped = q_BHTK.shape[1] != k_BGSK.shape[1]
    return F.scaled_dot_product_attention(
        q_BHTK, k_BGSK, v_BGSK, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu_squared": relu_squared,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
}


def cross_entropy(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """-ln p(target) in nats, (B, T); 0 where the target is -1. The loss is its sum over the number of real targets."""
    nats = F.cross_entropy(logits_BTV.flatten(0, -2), targets_BT.flatten(), ignore_index=-1, reduction="none")
    return nats.view(targets_BT.shape)


# One module for each part


@singledispatch
def build(part: object) -> nn.Module:
    """The module of a part, with empty weights named as in the ledger."""
    raise refuse("part", type(part).__name__, "no rule builds this part yet", "it can be sized")


def own_linear(module: nn.Module, part: s.Linear, *stacked: int) -> None:
    """A linear's weights as the module's own."""
    module.weight = nn.Parameter(torch.empty(*stacked, part.n_out, part.n_in))
    if part.bias:
        module.bias = nn.Parameter(torch.empty(*stacked, part.n_out))
    if part.lora:
        module.lora_a = nn.Parameter(torch.empty(*stacked, part.lora.rank, part.n_in))
        module.lora_b = nn.Parameter(torch.empty(*stacked, part.n_out, part.lora.rank))


def apply_linear(module: nn.Module, part: s.Linear, x: Tensor, weight: Tensor, expert: int | None = None) -> Tensor:
    def own(name: str) -> Tensor:
        tensor = cast(Tensor, getattr(module, name))
        return tensor if expert is None else tensor[expert]

    y = F.linear(x, weight, own("bias") if part.bias else None)
    if part.lora:
        y = y + F.linear(F.linear(x, own("lora_a")), own("lora_b")) * (part.lora.alpha / part.lora.rank)
    return y


@build.register(s.Linear)
class Linear(nn.Module):
    weight: Tensor

    def __init__(self, part: s.Linear, *stacked: int) -> None:
        super().__init__()
        self.part = part
        own_linear(self, part, *stacked)

    def forward(self, x: Tensor) -> Tensor:
        return apply_linear(self, self.part, x, self.weight)


@build.register(s.Norm)
class Norm(nn.Module):
    def __init__(self, part: s.Norm) -> None:
        super().__init__()
        self.part = part
        self.weight = nn.Parameter(torch.empty(part.width)) if part.gain else None
        self.bias = nn.Parameter(torch.empty(part.width)) if part.bias else None

    def forward(self, x: Tensor) -> Tensor:
        gain = self.weight + 1 if self.part.plus_one and self.weight is not None else self.weight
        if self.part.kind == "layer":
            return F.layer_norm(x, (self.part.width,), gain, self.bias, self.part.eps)
        y = F.rms_norm(x, (self.part.width,), gain, self.part.eps)
        return y if self.bias is None else y + self.bias


@build.register(s.NormedLinear)
class NormedLinear(nn.Module):
    weight: Tensor

    def __init__(self, part: s.NormedLinear) -> None:
        super().__init__()
        self.part = part
        own_linear(self, part.linear)
        self.norm = Norm(part.norm)

    def forward(self, x: Tensor) -> Tensor:
        y = apply_linear(self, self.part.linear, x, self.weight)
        return cast(Tensor, self.norm(y.unflatten(-1, (-1, self.part.norm.width)))).flatten(-2)


@build.register(s.Table)
class Table(nn.Module):
    def __init__(self, part: s.Table) -> None:
        super().__init__()
        self.part = part
        self.weight = nn.Parameter(torch.empty(part.n_rows, part.width))

    def forward(self, rows: Tensor) -> Tensor:
        return F.embedding(rows + self.part.offset if self.part.offset else rows, self.weight)


@build.register(s.Attention)
class Attention(nn.Module):
    place = ""
    q: nn.Module
    k: nn.Module
    v: nn.Module
    out: nn.Module

    def __init__(self, part: s.Attention) -> None:
        super().__init__()
        self.part = part
        if part.scores.sinks:
            self.sinks = nn.Parameter(torch.empty(part.n_heads))
        add(self, part, "q", "k", "v", "out")

    def forward(self, x_BTD: Tensor, where: Where) -> Tensor:
        part = self.part
        q_BHTK, k_BGTK, v_BGTK = (
            cast(Tensor, projection(x_BTD)).unflatten(-1, (-1, part.d_head)).transpose(1, 2)
            for projection in (self.q, self.k, self.v)
        )
        if part.scores.rotary:
            cos, sin = where.turns(part.scores.rotary, q_BHTK.dtype)
            q_BHTK, k_BGTK = (rotate(y, cos, sin, part.scores.rotary) for y in (q_BHTK, k_BGTK))
        k_BGSK, v_BGSK = (
            where.state.append(where.at(self.place), k_BGTK, v_BGTK, where.positions_RT)
            if where.state
            else (k_BGTK, v_BGTK)
        )
        n_keys = k_BGSK.shape[2]
        if where.trace is None:
            out_BHTK = fused_attention(q_BHTK, k_BGSK, v_BGSK, *where.mask(part.window, n_keys), part.scores.scale)
        else:
            allowed = where.allowed(part.window, n_keys)
            out_BHTK, weights_BHTS = attention(q_BHTK, k_BGSK, v_BGSK, allowed, part.scores.scale)
            where.keep(f"{where.at(self.place)}.weights", weights_BHTS)
        return cast(Tensor, self.out(out_BHTK.transpose(1, 2).flatten(-2)))


@build.register(s.FeedForward)
class FeedForward(nn.Module):
    gate: nn.Module
    up: nn.Module
    down: nn.Module

    def __init__(self, part: s.FeedForward) -> None:
        super().__init__()
        self.part = part
        add(self, part, "gate", "up", "down")

    def forward(self, x: Tensor, where: Where | None = None) -> Tensor:
        act = ACTIVATIONS[self.part.activation]
        up = self.up(x)
        return cast(Tensor, self.down(act(self.gate(x)) * up if self.part.gate else act(up)))


@build.register(s.Experts)
class Experts(nn.Module):
    place = ""

    def __init__(self, part: s.Experts) -> None:
        super().__init__()
        self.part = part
        self.router = build(part.router)
        self.experts = nn.Module()
        for name in ("gate", "up", "down"):
            if linear := getattr(part.expert, name):
                self.experts.add_module(name, Linear(linear, part.n_experts))
        add(self, part, "shared", "shared_gate")

    def expert(self, e: int, x_ND: Tensor) -> Tensor:
        """What expert e says of these tokens."""
        act = ACTIVATIONS[self.part.expert.activation]

        def linear(name: str, x: Tensor) -> Tensor:
            of_all = cast(Linear, getattr(self.experts, name))
            return apply_linear(of_all, of_all.part, x, of_all.weight[e], e)

        up = linear("up", x_ND)
        return linear("down", act(linear("gate", x_ND)) * up if self.part.expert.gate else act(up))

    def forward(self, x_BTD: Tensor, where: Where) -> Tensor:
        x_ND = x_BTD.flatten(0, -2)  # every token of every row: routing knows no rows
        gates_NE, chosen_NE = self.router(x_ND)
        where.keep(f"{where.at(self.place)}.gates", gates_NE)
        out_ND = torch.zeros_like(x_ND)
        for e in range(self.part.n_experts):
            rows = chosen_NE[:, e].nonzero(as_tuple=True)[0]
            if len(rows):  # an expert runs only on its tokens
                out_ND = out_ND.index_add(0, rows, gates_NE[rows, e, None] * self.expert(e, x_ND[rows]))
        return out_ND.view_as(x_BTD)


@build.register(s.ChosenSoftmaxRouter)
class ChosenSoftmaxRouter(nn.Module):
    def __init__(self, part: s.ChosenSoftmaxRouter) -> None:
        super().__init__()
        self.part = part
        self.scores = Linear(part.scores)

    def forward(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Gates (T, E) and the choices (T, E) as booleans: a gate may underflow to 0, a choice may not."""
        scores_TE = self.scores(x_TD)
        best_TC = scores_TE.sort(dim=-1, descending=True, stable=True).indices[:, : self.part.n_chosen]
        chosen_TE = torch.zeros_like(scores_TE, dtype=torch.bool).scatter(1, best_TC, True)
        return scores_TE.masked_fill(~chosen_TE, -torch.inf).softmax(-1), chosen_TE


def add(module: nn.Module, part: object, *names: str) -> None:
    """The modules of the parts that stand in these fields, under the fields' names."""
    for name in names:
        if (inner := getattr(part, name)) is not None:
            module.add_module(name, build(inner))


def holds(*names: str) -> type[nn.Module]:
    """A module for a part that has its weights in these fields and no rule that runs it yet."""

    class Holds(nn.Module):
        def __init__(self, part: object) -> None:
            super().__init__()
            for w in weights(part):
                if w.buffer:
                    self.register_buffer(w.name, torch.empty(w.shape))
                elif "." not in w.name:
                    self.register_parameter(w.name, nn.Parameter(torch.empty(w.shape)))
            add(self, part, *names)

    return Holds


build.register(s.Bottleneck)(holds("down", "norm", "up"))
build.register(mixers.LatentAttention)(holds("q", "kv_down", "kv_norm", "kv_up", "out"))
build.register(s.SoftmaxRouter)(holds("scores"))
build.register(s.SigmoidRouter)(holds("scores"))


@build.register(s.RelativeBias)
def _(part: s.RelativeBias) -> nn.Module:
    return Table(s.Table(n_rows=part.n_buckets, width=part.n_heads))


class Layer(nn.Module):
    """Residuals one after another; their parts stand side by side under the names that the spec gives."""

    def __init__(self, residuals: tuple[s.Residual, ...]) -> None:
        super().__init__()
        self.residuals = residuals
        for residual in residuals:
            for name, part in residual.parts():
                if part is not None:
                    self.add_module(name, build(part))

    def normed(self, name: str, x: Tensor) -> Tensor:
        return cast(Tensor, self._modules[name](x)) if name in self._modules else x  # type: ignore[misc]

    def forward(self, x: Tensor, where: Where) -> Tensor:
        for residual in self.residuals:
            first = residual.branches[0].name
            read = self.normed(f"{first}_norm_shared", x)
            said = None
            for branch in residual.branches:
                y = self.get_submodule(branch.name)(self.normed(f"{branch.name}_norm", read), where)
                y = self.normed(f"{branch.name}_norm_out", y)
                said = y if said is None else said + y
            said = self.normed(f"{first}_norm_together", cast(Tensor, said))
            x = self.normed(f"{first}_norm_sum", x + said if residual.add else said)
        return x


@build.register(s.Stack)
class Stack(nn.Module):
    place = ""
    positions: nn.Module
    norm_first: nn.Module
    norm_last: nn.Module

    def __init__(self, part: s.Stack) -> None:
        super().__init__()
        self.part = part
        add(self, part, "positions", "relative", "norm_first")
        self.layers = nn.ModuleList(Layer(residuals) for residuals in part.layers)
        add(self, part, "norm_last")

    def forward(self, x: Tensor, where: Where) -> Tensor:
        part = self.part
        if part.positions:
            x = x + self.positions(where.positions_RT)
        x = self.norm_first(x) if part.norm_first else x
        where.keep(f"{self.place}.stream.0", x)
        for n_done, i in enumerate(part.passes or range(len(self.layers)), start=1):
            x = self.layers[i](x, replace(where, n_pass=n_done) if part.passes else where)
            where.keep(f"{self.place}.stream.{n_done}", x)
        return cast(Tensor, self.norm_last(x)) if part.norm_last else x


@build.register(s.Tokens)
class Tokens(nn.Module):
    norm: nn.Module
    project: nn.Module

    def __init__(self, part: s.Tokens) -> None:
        super().__init__()
        self.part = part
        self.weight = nn.Parameter(torch.empty(part.table.n_rows, part.table.width))
        add(self, part, "types", "positions", "norm", "project")

    def forward(self, tokens_BT: Tensor) -> Tensor:
        x_BTD = F.embedding(tokens_BT, self.weight)
        x_BTD = x_BTD if self.part.scale == 1 else x_BTD * self.part.scale
        x_BTD = self.norm(x_BTD) if self.part.norm else x_BTD
        return cast(Tensor, self.project(x_BTD)) if self.part.project else x_BTD


@build.register(s.Head)
class Head(nn.Module):
    weight: Tensor
    transform: nn.Module
    norm: nn.Module

    def __init__(self, part: s.Head) -> None:
        super().__init__()
        self.part = part
        own_linear(self, part.linear)
        if part.tied:
            del self.weight  # the token table's, given at each call: there is no second parameter
        add(self, part, "transform", "norm")

    def forward(self, x: Tensor, table_VD: Tensor) -> Tensor:
        part = self.part
        x = self.transform(x) if part.transform else x
        x = ACTIVATIONS[part.activation](x) if part.activation else x
        x = self.norm(x) if part.norm else x
        x = x if part.scale == 1 else x * part.scale
        logits = apply_linear(self, part.linear, x, table_VD if part.tied else self.weight)
        return part.softcap * (logits / part.softcap).tanh() if part.softcap else logits


def unready(spec: s.Spec) -> Iterator[Fault]:
    """What the modules hold but no rule here runs yet: by the part's name."""
    never = (s.Bottleneck, s.SoftmaxRouter, s.SigmoidRouter, s.RelativeBias, mixers.LatentAttention)
    for where, part in walk(spec):
        asked = {
            s.Attention: {"v": "shared keys and values", "cross": "cross-attention"},
            s.Scores: {"softcap": "a soft cap", "sinks": "sinks", "alibi": "ALiBi"},
            s.Experts: {"shared": "shared experts"},
            s.Tokens: {"types": "token types", "positions": "positions in the table's width"},
            s.Spec: {"encoder": "encoders"},
        }.get(type(part), {})
        for name, what in asked.items():
            value = getattr(part, name)
            if (value is None) if name == "v" else (value not in (None, False)):
                yield Fault(f"{where}.{name}".lstrip("."), what, "no rule runs this yet", "it can be sized")
        if isinstance(part, never):
            yield Fault(where, type(part).__name__, "no rule runs this part yet", "it can be sized")
        if isinstance(part, s.Scaling) and part.kind not in ("linear", "llama3"):
            yield Fault(where, part.kind, "no rule runs this scaling yet", "it can be sized")
        if isinstance(part, s.FeedForward) and part.activation not in ACTIVATIONS:
            yield Fault(f"{where}.activation", part.activation, "no rule runs this yet", "it can be sized")


class Transformer(nn.Module):
    """A whole model. `initial` names the recipe of its first weights; None leaves them empty, to be loaded."""

    embedding: Tokens
    decoder: Stack
    head: Head

    def __init__(self, spec: s.Spec, initial: str | None = "gpt2", seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        add(self, spec, "embedding", "encoder", "decoder")
        if spec.towers:
            raise refuse("towers", len(spec.towers), "no rule builds towers yet", "they can be sized")
        add(self, spec, "head")
        for name, module in self.named_modules():
            if isinstance(module, (Attention, Experts, Stack)):
                module.place = name
        self.unready = tuple(unready(spec))
        if initial is not None and self.device.type != "meta":
            self.take(draws(spec, initial, seed))

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @torch.no_grad()
    def take(self, arrays: Iterable[tuple[str, np.ndarray]]) -> None:
        """Copy weights in by name, rounded to the model's dtype."""
        mine = dict(self.named_parameters()) | dict(self.named_buffers())
        for name, array in arrays:
            if name not in mine or tuple(mine[name].shape) != array.shape:
                raise refuse(name, array.shape, f"must be {tuple(mine[name].shape) if name in mine else 'absent'}")
            mine[name].copy_(torch.from_numpy(array))

    def arrays(self) -> dict[str, np.ndarray]:
        """The weights by name, float64, as the reference takes them."""
        return {name: p.detach().double().cpu().numpy() for name, p in self.named_parameters()}

    def where(self, tokens_BT: Tensor, state: State | None, trace: dict[str, Tensor] | None) -> Where:
        """What the parts may ask in this pass; refuses tokens that cannot be."""
        n_rows, n_new = tokens_BT.shape
        starts = tuple(state.lengths) if state else (0,) * n_rows
        if not n_rows or not n_new:
            raise refuse("tokens", tuple(tokens_BT.shape), "must be rows of at least one token")
        room = min(self.spec.max_seq_len, state.capacity if state else self.spec.max_seq_len)
        if max(starts) + n_new > room:
            raise refuse("tokens", max(starts) + n_new, f"more positions than there are ({room})")
        if state and not self.spec.main.causal:
            raise refuse("state", "a stack that is not causal", "each token would change what was said before")
        if state and len(starts) != n_rows:
            raise refuse("tokens", n_rows, f"the state has {len(starts)} rows")
        if tokens_BT.device.type == "cpu" and not torch.compiler.is_compiling():
            low, high = (int(end) for end in tokens_BT.aminmax())
            if low < 0 or high >= self.spec.vocab_size:
                bad = low if low < 0 else high
                raise refuse("tokens", bad, f"outside the vocabulary (0 to {self.spec.vocab_size - 1})")
        first = torch.tensor(starts[:1] if len(set(starts)) == 1 else starts, device=tokens_BT.device)
        positions_RT = first[:, None] + torch.arange(n_new, device=tokens_BT.device)
        return Where(positions_RT, self.spec.main.causal, starts, state, trace)

    def hidden(
        self,
        tokens_BT: Tensor,
        state: State | None = None,
        trace: dict[str, Tensor] | None = None,
        n_new: list[int] | None = None,
    ) -> Tensor:
        """The stream (B, T, D) after the last norm. With a state, each row goes on from what it has read; rows that
        are shorter than T are filled up at their end, and `n_new` says how many tokens of each are real."""
        if self.unready:
            raise PlainformerError(self.unready)
        where = self.where(tokens_BT, state, trace)
        x_BTD = cast(Tensor, self.decoder(self.embedding(tokens_BT), where))
        if state:
            state.lengths = [
                a + b for a, b in zip(where.starts, n_new or [tokens_BT.shape[1]] * len(where.starts), strict=True)
            ]
        return x_BTD

    def logits(self, x_BTD: Tensor) -> Tensor:
        """Scores (B, T, V) from the stream; the stream itself where the spec has no head."""
        return cast(Tensor, self.head(x_BTD, self.embedding.weight)) if self.spec.head else x_BTD

    def forward(self, tokens_BT: Tensor, state: State | None = None, trace: dict[str, Tensor] | None = None) -> Tensor:
        """Logits (B, T, V): row i scores every token as the one after tokens i. Refuses what cannot be (ValueError)."""
        return self.logits(self.hidden(tokens_BT, state, trace))


@build.register(s.Spec)
def _(part: s.Spec) -> Transformer:
    return Transformer(part, initial=None)

"""The same transformer in PyTorch, fast. Same parts, same names; tests hold it to the reference.

B batch, T new positions, S all positions, D d_model, H heads, G kv heads, K d_head, V vocabulary, L latent, J d_value,
P d_rope.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plainformer import experts as experts  # its rules join `build`
from plainformer import mixers
from plainformer import spec as s
from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.initial import draws
from plainformer.kernels import ACTIVATIONS, attention, fused_attention, rotate
from plainformer.kernels import cross_entropy as cross_entropy
from plainformer.layers import Product, add, apply_linear, own_linear, through
from plainformer.layers import build as build
from plainformer.states import Memory, State, Where
from plainformer.tree import walk


def heads(x_BTN: Tensor, width: int) -> Tensor:
    """(B, heads, T, width) from the heads side by side."""
    return cast(Tensor, x_BTN.unflatten(-1, (-1, width))).transpose(1, 2)


@build.register(s.Attention)
class Attention(nn.Module):
    place = ""
    fused = staticmethod(fused_attention)  # another with the same answer may take its place: `rows`, `fused`
    rotate = staticmethod(rotate)
    q: nn.Module
    k: nn.Module
    v: nn.Module
    out: nn.Module

    def __init__(self, part: s.Attention) -> None:
        super().__init__()
        self.part = part
        self.sinks = nn.Parameter(torch.empty(part.n_heads)) if part.scores.sinks else None
        add(self, part, "q", "k", "v", "out")

    def keys_and_values(self, x_BSD: Tensor) -> tuple[Tensor, Tensor]:
        return heads(self.k(x_BSD), self.part.d_head), heads(self.v(x_BSD), self.part.d_head)

    def forward(self, x_BTD: Tensor, where: Where) -> Tensor:
        part, place = self.part, where.at(self.place)
        q_BHTK = heads(self.q(x_BTD), part.d_head)
        if part.cross:
            memory = cast(Memory, where.memory)
            k_BGSK, v_BGSK = (
                where.state.once(place, lambda: self.keys_and_values(memory.said_BSD))
                if where.state
                else self.keys_and_values(memory.said_BSD)
            )
            out_BHTK = self.attend(q_BHTK, k_BGSK, v_BGSK, where, place)
        else:
            k_BGSK, v_BGSK = self.keys_and_values(x_BTD)
            if part.scores.rotary:
                cos, sin = where.turns(part.scores.rotary, q_BHTK.dtype)
                q_BHTK, k_BGSK = (self.rotate(y, cos, sin, part.scores.rotary) for y in (q_BHTK, k_BGSK))
            if where.state:
                k_BGSK, v_BGSK = where.state.append(
                    place, k_BGSK, v_BGSK, where.positions_RT, part.window, where.lengths
                )
            bias = where.bias(part.window, k_BGSK.shape[2], part.n_heads if part.scores.alibi else None, q_BHTK.dtype)
            out_BHTK = self.attend(q_BHTK, k_BGSK, v_BGSK, where, place, bias)
        return cast(Tensor, self.out(out_BHTK.transpose(1, 2).flatten(-2)))

    def attend(
        self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, where: Where, place: str, bias: Tensor | None = None
    ) -> Tensor:
        """By the fused kernel; by its plain twin where the weights are asked for or the kernel lacks the rule."""
        part, scores, n_keys = self.part, self.part.scores, k_BGSK.shape[2]
        if where.trace is None and scores.softcap is None and self.sinks is None:
            mask, causal = (where.across(n_keys), False) if part.cross else where.mask(part.window, n_keys, bias)
            return self.fused(q_BHTK, k_BGSK, v_BGSK, mask, causal, scores.scale)
        allowed = where.across(n_keys) if part.cross else where.allowed(part.window, n_keys)
        out_BHTK, weights_BHTS = attention(
            q_BHTK, k_BGSK, v_BGSK, allowed, scores.scale, bias, scores.softcap, self.sinks
        )
        where.keep(f"{place}.weights", weights_BHTS)
        return out_BHTK


@build.register(mixers.LatentAttention)
class LatentAttention(nn.Module):
    place = ""
    q: nn.Module
    kv_down: nn.Module
    kv_norm: nn.Module
    kv_up: nn.Module
    out: nn.Module

    def __init__(self, part: mixers.LatentAttention) -> None:
        super().__init__()
        self.part = part
        add(self, part, "q", "kv_down", "kv_norm", "kv_up", "out")

    def forward(self, x_BTD: Tensor, where: Where) -> Tensor:
        part, place, rotary = self.part, where.at(self.place), self.part.scores.rotary
        q_BHTK, turned_q_BHTP = heads(self.q(x_BTD), part.d_nope + part.d_rope).split((part.d_nope, part.d_rope), -1)
        down_BTL, turned_BTP = self.kv_down(x_BTD).split((part.kv_norm.width, part.d_rope), -1)
        latent_B1SL, turned_B1SP = self.kv_norm(down_BTL)[:, None], turned_BTP[:, None]
        if rotary:
            cos, sin = where.turns(rotary, q_BHTK.dtype)
            turned_q_BHTP, turned_B1SP = (rotate(y, cos, sin, rotary) for y in (turned_q_BHTP, turned_B1SP))
        if where.state:
            latent_B1SL, turned_B1SP = where.state.append(place, latent_B1SL, turned_B1SP, where.positions_RT)
        # Per head and key the compressed form multiplies latent rows, the expanded one heads made from all of them
        # anew: with fewer new tokens than the latent is wide the making is what costs.
        few = where.state is not None and x_BTD.shape[1] < part.kv_norm.width
        plain = not part.kv_up.bias and not part.kv_up.lora
        form = self.compressed if few and plain and where.trace is None else self.expanded
        out_BHTJ = form(q_BHTK, turned_q_BHTP, latent_B1SL, turned_B1SP, where, place)
        return cast(Tensor, self.out(out_BHTJ.transpose(1, 2).flatten(-2)))

    def expanded(
        self, q_BHTK: Tensor, turned_q: Tensor, latent_B1SL: Tensor, turned_k: Tensor, where: Where, place: str
    ) -> Tensor:
        """Keys and values of every head made from the latents."""
        part = self.part
        k_BHSK, v_BHSJ = heads(self.kv_up(latent_B1SL[:, 0]), part.d_nope + part.d_value).split(
            (part.d_nope, part.d_value), -1
        )
        q = torch.cat((q_BHTK, turned_q), -1)
        k = torch.cat((k_BHSK, turned_k.expand(-1, part.n_heads, -1, -1)), -1)
        if where.trace is None:
            return fused_attention(q, k, v_BHSJ, *where.mask(None, k.shape[2], None), part.scores.scale)
        out_BHTJ, weights_BHTS = attention(q, k, v_BHSJ, where.allowed(None, k.shape[2]), part.scores.scale)
        where.keep(f"{place}.weights", weights_BHTS)
        return out_BHTJ

    def compressed(
        self, q_BHTK: Tensor, turned_q: Tensor, latent_B1SL: Tensor, turned_k: Tensor, where: Where, place: str
    ) -> Tensor:
        """The same with each head's share of kv_up moved to the queries and the output: all heads read one latent."""
        part = self.part
        both_HNL = cast(Tensor, self.kv_up.weight).unflatten(0, (part.n_heads, -1))
        to_k_HKL, to_v_HJL = both_HNL.split((part.d_nope, part.d_value), 1)
        q = torch.cat((q_BHTK @ to_k_HKL, turned_q), -1)
        k = torch.cat((latent_B1SL, turned_k), -1)
        out_BHTL = attention(q, k, latent_B1SL, where.allowed(None, k.shape[2]), part.scores.scale)[0]
        return out_BHTL @ cast(Tensor, to_v_HJL).transpose(1, 2)


class Layer(nn.Module):
    """Residuals one after another; their parts stand side by side under the names that the spec gives."""

    def __init__(self, residuals: tuple[s.Residual, ...]) -> None:
        super().__init__()
        self.residuals = residuals
        for residual in residuals:
            for name, part in residual.parts():
                if part is not None:
                    self.add_module(name, build(part))

    def forward(self, x: Tensor, where: Where) -> Tensor:
        for residual in self.residuals:
            first = residual.branches[0].name
            read, said = through(self, f"{first}_norm_shared", x), []
            for branch in residual.branches:
                y = self.get_submodule(branch.name)(through(self, f"{branch.name}_norm", read), where)
                said.append(through(self, f"{branch.name}_norm_out", y))
            together = through(self, f"{first}_norm_together", sum(said[1:], start=said[0]))
            x = through(self, f"{first}_norm_sum", x + together if residual.add else together)
        return x


@build.register(s.Stack)
class Stack(nn.Module):
    place = ""
    at_once: Callable[[Stack, Tensor, Where], Tensor | None] | None = None  # all layers, where it can: `rows`
    positions: nn.Module
    relative: nn.Module

    def __init__(self, part: s.Stack) -> None:
        super().__init__()
        self.part = part
        add(self, part, "positions", "relative", "norm_first")
        self.layers = nn.ModuleList(Layer(residuals) for residuals in part.layers)
        add(self, part, "norm_last")
        tell_places(self)

    def forward(self, x: Tensor, where: Where) -> Tensor:
        part = self.part
        if part.positions:
            x = x + self.positions(where.positions_RT).to(x.dtype)
        if part.relative:
            where = replace(where, relative=(cast(Tensor, self.relative.weight), part.relative))
        x = through(self, "norm_first", x)
        if self.at_once is not None and (y := self.at_once(self, x, where)) is not None:
            return y
        where.keep(f"{self.place}.stream.0", x)
        for n_done, i in enumerate(part.passes or range(len(self.layers)), start=1):
            x = self.layers[i](x, replace(where, n_pass=n_done) if part.passes else where)
            where.keep(f"{self.place}.stream.{n_done}", x)
        return through(self, "norm_last", x)


@build.register(s.Tokens)
class Tokens(nn.Module):
    types: nn.Module
    positions: nn.Module

    def __init__(self, part: s.Tokens) -> None:
        super().__init__()
        self.part = part
        self.weight = nn.Parameter(torch.empty(part.table.n_rows, part.table.width))
        add(self, part, "types", "positions", "norm", "project")

    def forward(self, tokens_BT: Tensor, where: Where | None = None) -> Tensor:
        part = self.part
        x_BTD = F.embedding(tokens_BT, self.weight)
        x_BTD = x_BTD if part.scale == 1 else x_BTD * part.scale
        if part.types:
            first = where is None or where.types_BT is None
            x_BTD = x_BTD + self.types(torch.zeros_like(tokens_BT) if first else cast(Where, where).types_BT)
        if part.positions:
            x_BTD = x_BTD + self.positions(cast(Where, where).positions_RT)
        return through(self, "project", through(self, "norm", x_BTD))


@build.register(s.Head)
class Head(nn.Module):
    weight: Tensor
    product: Product = staticmethod(F.linear)

    def __init__(self, part: s.Head) -> None:
        super().__init__()
        self.part = part
        own_linear(self, part.linear)
        if part.tied:
            del self.weight  # the token table's, given at each call: there is no second parameter
        add(self, part, "transform", "norm")

    def forward(self, x: Tensor, table: Tensor, lengths: tuple[int, ...] | None = None) -> Tensor:
        part, x = self.part, pooled(x, self.part.pool, lengths)
        x = through(self, "transform", x)
        x = ACTIVATIONS[part.activation](x) if part.activation else x
        x = through(self, "norm", x)
        x = x if part.scale == 1 else x * part.scale
        logits = apply_linear(self, part.linear, x, table if part.tied else self.weight)
        return part.softcap * (logits / part.softcap).tanh() if part.softcap else logits


def tell_places(whole: nn.Module) -> None:
    """Each module that keeps something, in states or traces, learns the name it stands under."""
    for name, module in whole.named_modules():
        if hasattr(type(module), "place"):
            module.place = name


def pooled(x: Tensor, pool: str, lengths: tuple[int, ...] | None) -> Tensor:
    """The stream itself; or one position a row: its first, or the mean of those that are real."""
    if pool == "no":
        return x
    if pool == "first":
        return x[:, :1]
    n_B11 = torch.tensor(lengths or (x.shape[1],), device=x.device)[:, None, None]
    real_BT1 = torch.arange(x.shape[1], device=x.device)[None, :, None] < n_B11
    return (x * real_BT1).sum(1, keepdim=True) / n_B11


def unready(spec: s.Spec) -> Iterator[Fault]:
    """What the modules hold but no rule here runs yet: by the part's name."""
    for where, part in walk(spec, seen=set()):
        faults = {
            "v": isinstance(part, s.Attention) and part.v is None,
            "scaled": isinstance(part, s.SoftmaxRouter) and part.scaled,
            "kind": isinstance(part, s.Scaling) and part.kind == "other",
        }
        for name in (name for name, bad in faults.items() if bad):
            yield Fault(f"{where}.{name}".lstrip("."), getattr(part, name), "no rule runs this yet", "it can be sized")
        scores = part.scores if isinstance(part, mixers.LatentAttention) else None
        for name in ("softcap", "sinks", "alibi") if scores else ():
            if asked := getattr(scores, name):
                yield Fault(f"{where}.scores.{name}".lstrip("."), asked, "no rule runs this yet", "it can be sized")


class Transformer(nn.Module):
    """A whole model. `initial` names the recipe of its first weights; None leaves them empty, to be loaded."""

    embedding: Tokens
    encoder: Stack
    decoder: Stack
    head: Head

    def __init__(self, spec: s.Spec, initial: str | None = "gpt2", seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        add(self, spec, "embedding", "encoder", "decoder")
        if spec.towers:
            raise refuse("towers", len(spec.towers), "no rule builds towers yet", "they can be sized")
        add(self, spec, "head")
        tell_places(self)
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
        """The weights and buffers by name, float64, as the reference takes them."""
        held = (*self.named_parameters(), *self.named_buffers())
        return {name: tensor.detach().double().cpu().numpy() for name, tensor in held}

    def check(self, tokens_BT: Tensor, starts: tuple[int, ...], room: int, n_real: list[int] | None) -> None:
        """Refuse tokens that cannot be: none, too many, outside the vocabulary (seen on the CPU alone)."""
        n_rows, n_new = tokens_BT.shape
        if self.unready:
            raise PlainformerError(self.unready)
        if not n_rows or not n_new:
            raise refuse("tokens", tuple(tokens_BT.shape), "must be rows of at least one token")
        if max(starts) + n_new > room:
            raise refuse("tokens", max(starts) + n_new, f"more positions than there are ({room})")
        if len(starts) != n_rows:
            raise refuse("tokens", n_rows, f"the state has {len(starts)} rows")
        if n_real is not None and (len(n_real) != n_rows or not all(0 <= n <= n_new for n in n_real)):
            raise refuse("n_new", n_real, f"must say for each of {n_rows} rows how many of its {n_new} tokens are real")
        if tokens_BT.device.type == "cpu" and not torch.compiler.is_compiling():
            low, high = (int(end) for end in tokens_BT.aminmax())
            if low < 0 or high >= self.spec.vocab_size:
                bad = low if low < 0 else high
                raise refuse("tokens", bad, f"outside the vocabulary (0 to {self.spec.vocab_size - 1})")

    def encode(
        self, source_BS: Tensor, n_source: list[int] | None = None, trace: dict[str, Tensor] | None = None
    ) -> Memory:
        """What an encoder-decoder's encoder says of its text; `n_source`: how many tokens of each row are real."""
        self.check(source_BS, (0,) * len(source_BS), self.spec.max_seq_len, n_source)
        lengths = tuple(n_source) if n_source else None
        positions_1S = torch.arange(source_BS.shape[1], device=source_BS.device)[None]
        where = Where(positions_1S, self.encoder.part.causal, lengths=lengths, trace=trace)
        return Memory(self.encoder(self.embedding(source_BS, where), where), lengths)

    def hidden(
        self,
        tokens_BT: Tensor,
        state: State | None = None,
        trace: dict[str, Tensor] | None = None,
        n_new: list[int] | None = None,
        memory: Memory | None = None,
        types_BT: Tensor | None = None,
        routed: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Tensor:
        """The stream (B, T, D) after the last norm.

        state: each row goes on from what it has read. n_new: rows that are shorter than T are filled up at their end,
        and this many tokens of each are real. memory: what `encode` gave (kept in a state from its first pass on).
        routed: filled with every router's scores and choices.
        """
        spec = self.spec
        starts = tuple(state.lengths) if state else (0,) * len(tokens_BT)
        self.check(tokens_BT, starts, min(spec.max_seq_len, state.capacity if state else spec.max_seq_len), n_new)
        if state and not spec.main.causal:
            raise refuse("state", "a stack that is not causal", "each token would change what was said before")
        if state:
            if memory is not None and state.memory is not None and memory is not state.memory:
                raise refuse("memory", "another", "this state goes on with the memory of its first pass", "begin anew")
            memory = state.memory = memory or state.memory
        if (spec.encoder is not None and spec.decoder is not None) != (memory is not None):
            raise refuse("memory", memory, "is what an encoder-decoder's `encode` gives, and no other model's")
        first = torch.tensor(starts[:1] if len(set(starts)) == 1 else starts, device=tokens_BT.device)
        positions_RT = first[:, None] + torch.arange(tokens_BT.shape[1], device=tokens_BT.device)
        lengths = tuple(n_new) if n_new else None
        where = Where(
            positions_RT, spec.main.causal, starts, lengths, types_BT, memory, state=state, trace=trace, routed=routed
        )
        stack = self.decoder if spec.decoder else self.encoder
        x_BTD = cast(Tensor, stack(self.embedding(tokens_BT, where), where))
        if state:
            state.read(n_new or [tokens_BT.shape[1]] * len(starts))
        return x_BTD

    def logits(self, x_BTD: Tensor, n_new: list[int] | None = None) -> Tensor:
        """Scores (B, T, V) from the stream, (B, 1, V) where the head pools; the stream itself without a head."""
        lengths = tuple(n_new) if n_new else None
        return cast(Tensor, self.head(x_BTD, self.embedding.weight, lengths)) if self.spec.head else x_BTD

    def forward(
        self,
        tokens_BT: Tensor,
        state: State | None = None,
        trace: dict[str, Tensor] | None = None,
        n_new: list[int] | None = None,
        memory: Memory | None = None,
        types_BT: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, T, V): in a decoder [:, i] scores every token as the one after token i, in an encoder as its own.
        Refuses what cannot be (PlainformerError, a ValueError). Arguments as in `hidden`."""
        return self.logits(self.hidden(tokens_BT, state, trace, n_new, memory, types_BT), n_new)


@build.register(s.Spec)
def _(part: s.Spec) -> Transformer:
    return Transformer(part, initial=None)

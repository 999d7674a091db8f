"""Makers of parts that several families share. Each says every width; none decides anything by a model's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plainformer.faults import refuse
from plainformer.spec import (
    Activation,
    Attention,
    Branch,
    FeedForward,
    Head,
    Linear,
    Norm,
    NormedLinear,
    Part,
    Projection,
    Residual,
    Rotary,
    Scores,
    Spec,
    Stack,
    Table,
    Tokens,
)

Layer = tuple[Residual, ...]
Windows = Sequence[int | None]


def linear(n_in: int, n_out: int, bias: bool = False) -> Linear:
    return Linear(n_in=n_in, n_out=n_out, bias=bias)


def layer_norm(width: int, eps: float, bias: bool = True) -> Norm:
    return Norm(kind="layer", width=width, eps=eps, bias=bias)


def rms_norm(width: int, eps: float, plus_one: bool = False) -> Norm:
    return Norm(kind="rms", width=width, eps=eps, plus_one=plus_one)


def head_width(d_model: int, n_heads: int) -> int:
    """d_model / n_heads, for families whose heads share the stream's width. Refuses what does not divide."""
    if n_heads < 1 or d_model % n_heads:
        raise refuse("n_heads", n_heads, f"must divide d_model ({d_model})")
    return d_model // n_heads


def turned_width(d_model: int, n_heads: int) -> int:
    """The same where all of a head is turned by its position: refuses an odd width by the sizes that make it."""
    d_head = head_width(d_model, n_heads)
    if d_head % 2:
        rule = f"gives each of {n_heads} heads {d_head} numbers, which must be even: they are turned in pairs"
        raise refuse("d_model", d_model, rule)
    return d_head


def dot(d_head: int, rotary: Rotary | None = None) -> Scores:
    """q.k / sqrt(d_head) (Vaswani et al. 2017, section 3.2.1)."""
    return Scores(scale=d_head**-0.5, rotary=rotary)


def attention(
    *,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    scores: Scores,
    qkv_bias: bool = False,
    out_bias: bool = False,
    q_norm: Norm | None = None,
    k_norm: Norm | None = None,
    window: int | None = None,
    cross: bool = False,
) -> Attention:
    """Attention whose projections all read a stream of width d_model."""

    def project(n: int, norm: Norm | None) -> Projection:
        plain = linear(d_model, n * d_head, qkv_bias)
        return NormedLinear(linear=plain, norm=norm) if norm else plain

    return Attention(
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        q=project(n_heads, q_norm),
        k=project(n_kv_heads, k_norm),
        v=project(n_kv_heads, None),
        out=linear(n_heads * d_head, d_model, out_bias),
        scores=scores,
        window=window,
        cross=cross,
    )


def feed_forward(
    d_model: int, d_ff: int, activation: Activation, *, gated: bool = False, bias: bool = False
) -> FeedForward:
    return FeedForward(
        activation=activation,
        up=linear(d_model, d_ff, bias),
        down=linear(d_ff, d_model, bias),
        gate=linear(d_model, d_ff, bias) if gated else None,
    )


def sublayer(
    name: str, part: Part, *, norm_in: Norm | None = None, norm_out: Norm | None = None, norm_sum: Norm | None = None
) -> Residual:
    """A residual with one branch: pre-norm with norm_in, post-norm with norm_sum."""
    return Residual(branches=(Branch(name=name, part=part, norm_in=norm_in, norm_out=norm_out),), norm_sum=norm_sum)


def pre_norm_layer(mixer: Part, second: Part, norm: Norm) -> Layer:
    """Attention, then the feed-forward, each after a norm of its own (GPT-2, Llama)."""
    return sublayer("attention", mixer, norm_in=norm), sublayer("feed_forward", second, norm_in=norm)


def by_window(windows: Windows, layer: Callable[[int | None], Layer]) -> tuple[Layer, ...]:
    """One layer for each window; layers with the same window are the same object."""
    made = {window: layer(window) for window in set(windows)}
    return tuple(made[window] for window in windows)


def decoder(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    layers: tuple[Layer, ...],
    norm_last: Norm | None,
    tied: bool,
    positions: Table | None = None,
    scale: float = 1.0,
    softcap: float | None = None,
) -> Spec:
    """A causal stack between a token table and a bias-free head."""
    return Spec(
        embedding=Tokens(table=Table(n_rows=vocab_size, width=d_model), scale=scale),
        decoder=Stack(layers=layers, causal=True, positions=positions, norm_last=norm_last),
        head=Head(linear=linear(d_model, vocab_size), tied=tied, softcap=softcap),
        max_seq_len=max_seq_len,
    )

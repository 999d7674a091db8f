"""Gemma to Gemma 4: embedded tokens scaled by sqrt(d_model), gains stored around 0 (until Gemma 4), norms on both sides
(from Gemma 2 on), windows in a pattern."""

from __future__ import annotations

from collections.abc import Sequence

from plainformer.families.parts import (
    Layer,
    Windows,
    attention,
    by_window,
    decoder,
    dot,
    feed_forward,
    linear,
    pre_norm_layer,
    rms_norm,
    sublayer,
)
from plainformer.mixers import BorrowedAttention, Piece, Sized
from plainformer.records import replace
from plainformer.spec import (
    Activation,
    Attention,
    Branch,
    Experts,
    FeedForward,
    Norm,
    NormedLinear,
    Residual,
    Rotary,
    Scores,
    SoftmaxRouter,
    Spec,
    Table,
    Tower,
)


def gemma(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_ff: int,
    rotary: Rotary,
    activation: Activation = "gelu_tanh",
    eps: float = 1e-6,
    tied: bool = True,
    attention_bias: bool = False,
) -> Spec:
    """Gemma team 2024, section 2."""
    part = attention(
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        scores=dot(d_head, rotary),
        qkv_bias=attention_bias,
        out_bias=attention_bias,
    )
    norm = rms_norm(d_model, eps, plus_one=True)
    second = feed_forward(d_model, d_ff, activation, gated=True)
    return decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=(pre_norm_layer(part, second, norm),) * n_layers,
        norm_last=norm,
        tied=tied,
        scale=d_model**0.5,
    )


def sandwich(name: str, part: Attention | FeedForward, norm: Norm) -> Residual:
    """A norm before the part and one after it."""
    return sublayer(name, part, norm_in=norm, norm_out=norm)


def gemma2(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_ff: int,
    windows: Windows,
    rotary: Rotary,
    rotary_in_window: Rotary,
    scale: float,
    softcap: float | None = None,
    head_softcap: float | None = None,
    qk_norm: bool = False,
    activation: Activation = "gelu_tanh",
    eps: float = 1e-6,
    tied: bool = True,
    attention_bias: bool = False,
    towers: tuple[Tower, ...] = (),
) -> Spec:
    """Gemma 2 (2024), section 2; with qk_norm and two rotations Gemma 3 (2025), section 2. scale: of q.k."""
    norm = rms_norm(d_model, eps, plus_one=True)
    head_norm = rms_norm(d_head, eps, plus_one=True) if qk_norm else None

    def layer(window: int | None) -> Layer:
        part = attention(
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            scores=Scores(scale=scale, rotary=rotary_in_window if window else rotary, softcap=softcap),
            qkv_bias=attention_bias,
            out_bias=attention_bias,
            q_norm=head_norm,
            k_norm=head_norm,
            window=window,
        )
        second = feed_forward(d_model, d_ff, activation, gated=True)
        return sandwich("attention", part, norm), sandwich("feed_forward", second, norm)

    spec = decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=by_window(windows, layer),
        norm_last=norm,
        tied=tied,
        scale=d_model**0.5,
        softcap=head_softcap,
    )
    return replace(spec, towers=towers)


def gemma4(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    n_kv_heads_full: int,
    d_head: int,
    d_head_full: int,
    d_ff: int,
    windows: Windows,
    rotary: Rotary,
    rotary_in_window: Rotary,
    keys_are_values: bool = False,
    n_experts: int = 0,
    n_chosen: int = 0,
    d_expert: int = 0,
    head_softcap: float | None = None,
    activation: Activation = "gelu_tanh",
    eps: float = 1e-6,
    tied: bool = True,
    attention_bias: bool = False,
    towers: tuple[Tower, ...] = (),
    n_borrowing: int = 0,
    d_ff_borrowing: int | None = None,
    d_per_layer: int = 0,
    n_rows_per_layer: int = 0,
) -> Spec:
    """Google 2026 (Gemma 4): full layers with wider heads, whose keys may serve as values; experts beside a dense part.

    Queries, keys and values are normed, so scores are not scaled. n_experts 0: dense. The last n_borrowing layers read
    the keys of earlier ones, and may have a wider feed-forward; d_per_layer: of rows that each token has in each layer.
    """
    norm = rms_norm(d_model, eps)
    dense = feed_forward(d_model, d_ff, activation, gated=True)
    second = sandwich("feed_forward", dense, norm)
    wider = sandwich("feed_forward", feed_forward(d_model, d_ff_borrowing or d_ff, activation, gated=True), norm)
    more = (per_layer(d_model, d_per_layer, norm),) if d_per_layer else ()
    if n_experts:
        experts = Experts(
            router=SoftmaxRouter(scores=linear(d_model, n_experts), n_chosen=n_chosen, normalised=True, scaled=True),
            expert=feed_forward(d_model, d_expert, activation, gated=True),
            n_experts=n_experts,
        )
        sparse = Branch(name="experts", part=experts, norm_in=norm, norm_out=norm)
        second, wider = (Residual(branches=(*one.branches, sparse), norm_out=norm) for one in (second, wider))

    def layer(window: int | None, borrows: bool) -> Layer:
        width = d_head if window else d_head_full
        part = attention(
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads if window else n_kv_heads_full,
            d_head=width,
            scores=Scores(scale=1.0, rotary=rotary_in_window if window else rotary),
            qkv_bias=attention_bias,
            out_bias=attention_bias,
            q_norm=rms_norm(width, eps),
            k_norm=rms_norm(width, eps),
            window=window,
        )
        bare = replace(rms_norm(width, eps), gain=False)
        values = linear(d_model, part.n_kv_heads * width, attention_bias)
        values_alike = keys_are_values and not window
        part = replace(part, v=None if values_alike else NormedLinear(linear=values, norm=bare))
        if borrows:
            return sublayer("attention", borrowing(part), norm_in=norm, norm_out=norm), wider, *more
        return sandwich("attention", part, norm), second, *more

    kinds = [(window, i >= len(windows) - n_borrowing) for i, window in enumerate(windows)]
    made = {kind: layer(*kind) for kind in dict.fromkeys(kinds)}
    spec = decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=tuple(made[kind] for kind in kinds),
        norm_last=norm,
        tied=tied,
        scale=d_model**0.5,
        softcap=head_softcap,
    )
    tables = rows_per_layer(d_model, n_rows_per_layer, d_per_layer, len(windows), eps) if d_per_layer else ()
    return replace(spec, towers=(*tables, *towers))


def borrowing(part: Attention) -> BorrowedAttention:
    """The queries of this attention, on the keys and values of an earlier layer."""
    return BorrowedAttention(
        n_heads=part.n_heads, d_head=part.d_head, q=part.q, out=part.out, scores=part.scores, window=part.window
    )


def per_layer(d_model: int, d_row: int, norm: Norm) -> Residual:
    """What a layer does with the row that a token has for it: a gate to its width, and back."""
    steps = Sized(width=d_model, kind="feed_forward", pieces=(linear(d_model, d_row), linear(d_row, d_model)))
    return sublayer("per_layer", steps, norm_out=norm)


def rows_per_layer(d_model: int, n_rows: int, d_row: int, n_layers: int, eps: float) -> tuple[Sized, ...]:
    """A row for each token in each layer, and a projection of the first stream to as many."""
    wide = d_row * n_layers
    pieces = (Table(n_rows=n_rows, width=wide), linear(d_model, wide), rms_norm(d_row, eps))
    return (Sized(width=d_model, kind="embedding", pieces=pieces),)


def gemma3n(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_ffs: Sequence[int],
    windows: Windows,
    n_borrowing: int,
    rotary: Rotary,
    rotary_in_window: Rotary,
    n_streams: int,
    d_laurel: int,
    d_per_layer: int,
    n_rows_per_layer: int,
    head_softcap: float | None = None,
    activation: Activation = "gelu_tanh",
    eps: float = 1e-6,
    tied: bool = True,
    attention_bias: bool = False,
) -> Spec:
    """Google 2025 (Gemma 3n): Gemma 3's parts, a low-rank step beside attention, n_streams streams that predict each
    other, rows for each layer; the last n_borrowing layers read the keys of earlier ones."""
    norm, head_norm = rms_norm(d_model, eps), rms_norm(d_head, eps)
    low = (linear(d_model, d_laurel), linear(d_laurel, d_model), norm)
    laurel = Branch(name="laurel", part=Sized(width=d_model, kind="feed_forward", pieces=low))
    between: tuple[Piece, ...] = (linear(n_streams, n_streams), linear(n_streams, n_streams**2))
    between += (linear(d_model, n_streams), norm, Table(n_rows=1, width=d_model))
    streams = sublayer("streams", Sized(width=d_model, kind="mixer", pieces=between))

    def layer(window: int | None, borrows: bool, d_ff: int) -> Layer:
        part = attention(
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            scores=Scores(scale=1.0, rotary=rotary_in_window if window else rotary),
            qkv_bias=attention_bias,
            out_bias=attention_bias,
            q_norm=head_norm,
            k_norm=head_norm,
            window=window,
        )
        mixer = borrowing(part) if borrows else part
        first = Branch(name="attention", part=mixer, norm_in=norm, norm_out=norm)
        second = sandwich("feed_forward", feed_forward(d_model, d_ff, activation, gated=True), norm)
        return Residual(branches=(first, laurel)), second, streams, per_layer(d_model, d_per_layer, norm)

    kinds = [(w, i >= len(windows) - n_borrowing, d_ffs[i]) for i, w in enumerate(windows)]
    made = {kind: layer(*kind) for kind in dict.fromkeys(kinds)}
    spec = decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=tuple(made[kind] for kind in kinds),
        norm_last=norm,
        tied=tied,
        scale=d_model**0.5,
        softcap=head_softcap,
    )
    ends = Sized(width=d_model, kind="mixer", pieces=(linear(d_model, d_model),) * 2 * (n_streams - 1))
    return replace(spec, towers=(*rows_per_layer(d_model, n_rows_per_layer, d_per_layer, len(windows), eps), ends))

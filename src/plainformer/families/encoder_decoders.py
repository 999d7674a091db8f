"""Encoder-decoders: BART and T5. Each layer of the decoder also attends to what the encoder said."""

from __future__ import annotations

from plainformer.families.parts import Layer, attention, dot, feed_forward, head_width, layer_norm, linear, rms_norm
from plainformer.families.parts import sublayer as add
from plainformer.spec import (
    Activation,
    Attention,
    FeedForward,
    Head,
    RelativeBias,
    Scores,
    Sinusoid,
    Spec,
    Stack,
    Table,
    Tokens,
)


def bart_like(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: tuple[int, int],
    n_heads: tuple[int, int],
    d_ff: tuple[int, int],
    positions: Table | Sinusoid | None,
    pre_norm: bool = False,
    norm_first: bool = True,
    norm_last: bool = False,
    activation: Activation = "gelu",
    scale: float = 1.0,
    tied: bool = True,
    head: bool = True,
) -> Spec:
    """BART and its kin: pairs are of encoder and decoder; pre_norm: norms before the parts, not on their sums;
    norm_first, norm_last: of each stack (mBART has both)."""
    norm = layer_norm(d_model, 1e-5)

    def stack(n_layers: int, n_heads: int, d_ff: int, causal: bool) -> Stack:
        def attend(cross: bool) -> Attention:
            d_head = head_width(d_model, n_heads)
            return attention(
                d_model=d_model,
                n_heads=n_heads,
                n_kv_heads=n_heads,
                d_head=d_head,
                scores=dot(d_head),
                qkv_bias=True,
                out_bias=True,
                cross=cross,
            )

        second = feed_forward(d_model, d_ff, activation, bias=True)
        parts: dict[str, Attention | FeedForward] = {"attention": attend(cross=False)}
        parts |= {"cross_attention": attend(cross=True)} if causal else {}
        parts |= {"feed_forward": second}
        before, after = (norm, None) if pre_norm else (None, norm)
        layer = tuple(add(name, part, norm_in=before, norm_sum=after) for name, part in parts.items())
        return Stack(
            layers=(layer,) * n_layers,
            causal=causal,
            positions=positions,
            norm_first=norm if norm_first else None,
            norm_last=norm if norm_last else None,
        )

    return Spec(
        embedding=Tokens(table=Table(n_rows=vocab_size, width=d_model), scale=scale),
        encoder=stack(n_layers[0], n_heads[0], d_ff[0], causal=False),
        decoder=stack(n_layers[1], n_heads[1], d_ff[1], causal=True),
        head=Head(linear=linear(d_model, vocab_size), tied=tied) if head else None,
        max_seq_len=max_seq_len,
    )


def bart(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_encoder_layers: int,
    n_decoder_layers: int,
    n_encoder_heads: int,
    n_decoder_heads: int,
    d_encoder_ff: int,
    d_decoder_ff: int,
    activation: Activation = "gelu",
    scale: float = 1.0,
    tied: bool = True,
    head: bool = True,
) -> Spec:
    """Lewis et al. 2020, section 2: post-norm; positions start at row 2, one table in each stack."""
    return bart_like(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        n_layers=(n_encoder_layers, n_decoder_layers),
        n_heads=(n_encoder_heads, n_decoder_heads),
        d_ff=(d_encoder_ff, d_decoder_ff),
        positions=Table(n_rows=max_seq_len + 2, width=d_model, offset=2),
        activation=activation,
        scale=scale,
        tied=tied,
        head=head,
    )


def t5(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_encoder_layers: int,
    n_decoder_layers: int,
    n_heads: int,
    d_head: int,
    d_ff: int,
    activation: Activation = "relu",
    gated: bool = False,
    n_buckets: int = 32,
    max_distance: int = 128,
    eps: float = 1e-6,
    tied: bool = True,
    head: bool = True,
    head_scaled: bool = True,
) -> Spec:
    """Raffel et al. 2020, section 2.1; version 1.1 and mT5: gated, with a head of its own. 0 decoder layers: none.

    Scores are not divided by sqrt(d_head); a relative bias, shared by the layers of a stack, tells positions. It has no
    end: max_seq_len is the length of training.
    """
    norm = rms_norm(d_model, eps)

    def stack(n_layers: int, causal: bool) -> Stack:
        def attend(name: str, cross: bool) -> Layer:
            part = attention(
                d_model=d_model,
                n_heads=n_heads,
                n_kv_heads=n_heads,
                d_head=d_head,
                scores=Scores(scale=1.0),
                cross=cross,
            )
            return (add(name, part, norm_in=norm),)

        cross = attend("cross_attention", cross=True) if causal else ()
        second = add("feed_forward", feed_forward(d_model, d_ff, activation, gated=gated), norm_in=norm)
        return Stack(
            layers=((*attend("attention", cross=False), *cross, second),) * n_layers,
            causal=causal,
            relative=RelativeBias(n_buckets=n_buckets, max_distance=max_distance, n_heads=n_heads),
            norm_last=norm,
        )

    # the head turned from the token table reads a smaller stream
    scale = d_model**-0.5 if tied and head_scaled else 1.0
    return Spec(
        embedding=Tokens(table=Table(n_rows=vocab_size, width=d_model)),
        encoder=stack(n_encoder_layers, causal=False),
        decoder=stack(n_decoder_layers, causal=True) if n_decoder_layers else None,
        head=Head(linear=linear(d_model, vocab_size), tied=tied, scale=scale) if head else None,
        max_seq_len=max_seq_len,
    )

"""Encoder-decoders: BART and T5. Each layer of the decoder also attends to what the encoder said."""

from __future__ import annotations

from plainformer.families.parts import Layer, attention, dot, feed_forward, head_width, layer_norm, linear, rms_norm
from plainformer.families.parts import sublayer as add
from plainformer.spec import Activation, Head, RelativeBias, Scores, Spec, Stack, Table, Tokens


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
    norm = layer_norm(d_model, 1e-5)

    def stack(n_layers: int, n_heads: int, d_ff: int, causal: bool) -> Stack:
        def attend(name: str, cross: bool) -> Layer:
            part = attention(
                d_model=d_model,
                n_heads=n_heads,
                n_kv_heads=n_heads,
                d_head=head_width(d_model, n_heads),
                scores=dot(head_width(d_model, n_heads)),
                qkv_bias=True,
                out_bias=True,
                cross=cross,
            )
            return (add(name, part, norm_sum=norm),)

        cross = attend("cross_attention", cross=True) if causal else ()
        second = add("feed_forward", feed_forward(d_model, d_ff, activation, bias=True), norm_sum=norm)
        return Stack(
            layers=((*attend("attention", cross=False), *cross, second),) * n_layers,
            causal=causal,
            positions=Table(n_rows=max_seq_len + 2, width=d_model, offset=2),
            norm_first=norm,
        )

    return Spec(
        embedding=Tokens(table=Table(n_rows=vocab_size, width=d_model), scale=scale),
        encoder=stack(n_encoder_layers, n_encoder_heads, d_encoder_ff, causal=False),
        decoder=stack(n_decoder_layers, n_decoder_heads, d_decoder_ff, causal=True),
        head=Head(linear=linear(d_model, vocab_size), tied=tied) if head else None,
        max_seq_len=max_seq_len,
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

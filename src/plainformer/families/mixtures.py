"""Mixtures of experts: Mixtral, gpt-oss, DeepSeek-V3."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from plainformer.families.llamas import llama
from plainformer.families.parts import (
    Windows,
    attention,
    by_window,
    decoder,
    feed_forward,
    linear,
    pre_norm_layer,
    rms_norm,
    turned_width,
)
from plainformer.mixers import LatentAttention
from plainformer.records import replace
from plainformer.spec import (
    Activation,
    Bottleneck,
    ChosenSoftmaxRouter,
    Experts,
    FeedForward,
    Projection,
    Residual,
    Rotary,
    Router,
    Scaling,
    Scores,
    SoftmaxRouter,
    Spec,
)
from plainformer.tree import rewrite


def with_experts(dense: Spec, experts: Experts, sparse: Sequence[bool]) -> Spec:
    """A dense decoder with experts where its feed-forward stood, in the layers that `sparse` names."""
    assert dense.decoder is not None
    twins = {
        layer: rewrite(layer, lambda part: experts if isinstance(part, FeedForward) else part)
        for layer in set(dense.decoder.layers)
    }
    layers = tuple(twins[layer] if here else layer for layer, here in zip(dense.decoder.layers, sparse, strict=True))
    return replace(dense, decoder=replace(dense.decoder, layers=layers))


def mixtral(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_ff: int,
    n_experts: int,
    n_chosen: int,
    theta: float = 1000000.0,
    scaling: Scaling | None = None,
    windows: Windows | None = None,
    activation: Activation = "silu",
    eps: float = 1e-5,
    tied: bool = False,
    balance: float = 0.0,
) -> Spec:
    """Jiang et al. 2024, section 2: Mistral with n_experts feed-forwards in each layer, n_chosen of them met."""
    experts = Experts(
        router=ChosenSoftmaxRouter(scores=linear(d_model, n_experts), n_chosen=n_chosen),
        expert=feed_forward(d_model, d_ff, activation, gated=True),
        n_experts=n_experts,
        balance=balance,
    )
    dense = llama(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        d_ff=d_ff,
        theta=theta,
        scaling=scaling,
        windows=windows,
        activation=activation,
        eps=eps,
        tied=tied,
    )
    return with_experts(dense, experts, (True,) * n_layers)


def qwen3_moe(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_ff: int,
    sparse: Sequence[bool],
    n_experts: int,
    n_chosen: int,
    d_expert: int,
    normalised: bool,
    theta: float = 10000.0,
    scaling: Scaling | None = None,
    windows: Windows | None = None,
    activation: Activation = "silu",
    eps: float = 1e-6,
    tied: bool = False,
    attention_bias: bool = False,
    balance: float = 0.0,
) -> Spec:
    """Qwen team 2025 (Qwen3, section 2): Qwen3 with experts of width d_expert in the layers that `sparse` names."""
    experts = Experts(
        router=SoftmaxRouter(scores=linear(d_model, n_experts), n_chosen=n_chosen, normalised=normalised),
        expert=feed_forward(d_model, d_expert, activation, gated=True),
        n_experts=n_experts,
        balance=balance,
    )
    dense = llama(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        n_layers=len(sparse),
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        d_head=d_head,
        d_ff=d_ff,
        theta=theta,
        scaling=scaling,
        windows=windows,
        activation=activation,
        eps=eps,
        tied=tied,
        qkv_bias=attention_bias,
        out_bias=attention_bias,
        qk_norm=True,
    )
    return with_experts(dense, experts, sparse)


def small_moe(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_heads: int,
    n_kv_heads: int | None = None,
    n_experts: int = 8,
    n_chosen: int = 2,
    d_expert: int | None = None,
    theta: float = 10000.0,
    balance: float = 0.01,
    tied: bool = True,
) -> Spec:
    """Qwen3-MoE's layout at a size to train: what is not said follows from d_model.

    n_kv_heads: as many as n_heads; d_expert: so wide that the chosen together are as wide as the feed-forward of
    `llamas.small`, up to a multiple of 16. balance: as in Fedus et al. 2021, section 2.2.
    """
    each = d_expert or -(-8 * d_model // (48 * n_chosen)) * 16
    return qwen3_moe(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads or n_heads,
        d_head=turned_width(d_model, n_heads),
        d_ff=each,
        sparse=(True,) * n_layers,
        n_experts=n_experts,
        n_chosen=n_chosen,
        d_expert=each,
        normalised=True,
        theta=theta,
        balance=balance,
        tied=tied,
    )


def gpt_oss(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_heads: int,
    n_kv_heads: int,
    d_head: int,
    d_ff: int,
    n_experts: int,
    n_chosen: int,
    windows: Windows,
    theta: float = 150000.0,
    scaling: Scaling | None = None,
    eps: float = 1e-5,
    tied: bool = False,
    attention_bias: bool = True,
    balance: float = 0.0,
) -> Spec:
    """OpenAI 2025 (gpt-oss model card, section 2): a learned sink in each head, biased experts, clamped gates."""
    experts = Experts(
        router=ChosenSoftmaxRouter(scores=linear(d_model, n_experts, bias=True), n_chosen=n_chosen),
        expert=feed_forward(d_model, d_ff, "swiglu_clamped", gated=True, bias=True),
        n_experts=n_experts,
        balance=balance,
    )
    scores = Scores(scale=d_head**-0.5, rotary=Rotary(theta=theta, n_dims=d_head, scaling=scaling), sinks=True)

    def layer(window: int | None) -> tuple[Residual, ...]:
        part = attention(
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            scores=scores,
            qkv_bias=attention_bias,
            out_bias=attention_bias,
            window=window,
        )
        return pre_norm_layer(part, experts, rms_norm(d_model, eps))

    return decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=by_window(windows, layer),
        norm_last=rms_norm(d_model, eps),
        tied=tied,
    )


def stretched(scaling: Scaling | None) -> float:
    """YaRN's second factor on the scores: (0.1 m ln(factor) + 1)^2, m = mscale_all_dim (DeepSeek-V2, appendix B)."""
    settings = dict(scaling.settings) if scaling else {}
    m, factor = settings.get("mscale_all_dim", 0.0), settings.get("factor", 1.0)
    return (0.1 * m * log(factor) + 1.0) ** 2 if factor > 1 else 1.0


def latent(
    *,
    d_model: int,
    n_heads: int,
    d_nope: int,
    d_rope: int,
    d_value: int,
    q_rank: int | None,
    kv_rank: int,
    rotary: Rotary,
    attention_bias: bool = False,
) -> LatentAttention:
    """DeepSeek-V2 (2024), section 2.1. q_rank None: the queries come in one step (V2-Lite)."""
    inner_eps = 1e-6  # of the norms inside attention, whatever eps says
    q: Projection = linear(d_model, n_heads * (d_nope + d_rope))
    if q_rank:
        q = Bottleneck(
            down=linear(d_model, q_rank, attention_bias),
            norm=rms_norm(q_rank, inner_eps),
            up=linear(q_rank, n_heads * (d_nope + d_rope)),
        )
    return LatentAttention(
        n_heads=n_heads,
        d_nope=d_nope,
        d_rope=d_rope,
        d_value=d_value,
        q=q,
        kv_down=linear(d_model, kv_rank + d_rope, attention_bias),
        kv_norm=rms_norm(kv_rank, inner_eps),
        kv_up=linear(kv_rank, n_heads * (d_nope + d_value)),
        out=linear(n_heads * d_value, d_model, attention_bias),
        scores=Scores(scale=(d_nope + d_rope) ** -0.5 * stretched(rotary.scaling), rotary=rotary),
    )


def deepseek(
    *,
    vocab_size: int,
    max_seq_len: int,
    d_model: int,
    n_layers: int,
    n_dense: int,
    n_heads: int,
    d_nope: int,
    d_rope: int,
    d_value: int,
    q_rank: int | None,
    kv_rank: int,
    d_ff: int,
    router: Router,
    d_expert: int,
    n_shared: int,
    theta: float = 10000.0,
    scaling: Scaling | None = None,
    interleaved: bool = True,
    activation: Activation = "silu",
    eps: float = 1e-6,
    tied: bool = False,
    attention_bias: bool = False,
) -> Spec:
    """DeepSeek-V3 (2024), section 2.1: n_dense dense layers, then small experts, as many as the router scores, and
    n_shared that every token meets."""
    mixer = latent(
        d_model=d_model,
        n_heads=n_heads,
        d_nope=d_nope,
        d_rope=d_rope,
        d_value=d_value,
        q_rank=q_rank,
        kv_rank=kv_rank,
        rotary=Rotary(theta=theta, n_dims=d_rope, interleaved=interleaved, scaling=scaling),
        attention_bias=attention_bias,
    )
    experts = Experts(
        router=router,
        expert=feed_forward(d_model, d_expert, activation, gated=True),
        n_experts=router.scores.n_out,
        shared=feed_forward(d_model, n_shared * d_expert, activation, gated=True) if n_shared else None,
    )
    norm = rms_norm(d_model, eps)
    dense = pre_norm_layer(mixer, feed_forward(d_model, d_ff, activation, gated=True), norm)
    sparse = pre_norm_layer(mixer, experts, norm)
    return decoder(
        vocab_size=vocab_size,
        max_seq_len=max_seq_len,
        d_model=d_model,
        layers=tuple(dense if i < n_dense else sparse for i in range(n_layers)),
        norm_last=norm,
        tied=tied,
    )

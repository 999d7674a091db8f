"""Specs for the laws: the families in small, by name, and decoders drawn at random by seed. And weights for them.

Everything here is tiny, so that a law holds for hundreds of shapes in seconds; nothing is symmetrical by accident:
weights are large enough for every rule to show, and no two sizes that could be mixed up are alike for all seeds.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from plainformer import spec as s
from plainformer.conventions import with_lora
from plainformer.families import decoders, encoder_decoders, encoders, llamas, mixtures
from plainformer.ledger import Ledger, Weight, weights
from plainformer.mixers import LatentAttention
from plainformer.tree import rewrite, walk

P = TypeVar("P")
LENGTH = 24  # the context of every tiny spec: longer than any window
LLAMA3 = s.Scaling(
    kind="llama3",  # so small that some waves are slowed, some left alone and some between
    settings=(
        ("factor", 4.0),
        ("high_freq_factor", 4.0),
        ("low_freq_factor", 1.0),
        ("original_max_position_embeddings", 40.0),
    ),
)
YARN = s.Scaling(
    kind="yarn",
    settings=(
        ("beta_fast", 4.0),
        ("beta_slow", 1.0),
        ("factor", 4.0),
        ("original_max_position_embeddings", 40.0),
    ),
)
DYNAMIC = s.Scaling(kind="dynamic", settings=(("factor", 3.0), ("original_max_position_embeddings", 8.0)))
LONGROPE = s.Scaling(
    kind="longrope",
    settings=(
        ("attention_factor", 1.2),
        *((f"long_factor.{i}", 2.0 + i) for i in range(3)),
        ("original_max_position_embeddings", 8.0),
        *((f"short_factor.{i}", 1.0 + i / 4) for i in range(3)),
    ),
)
LINEAR = s.Scaling(kind="linear", settings=(("factor", 3.0),))
ACTIVATIONS: tuple[s.Activation, ...] = ("relu", "relu_squared", "silu", "gelu", "gelu_tanh", "tanh")

# --- the families in small --------------------------------------------------------------------------------------------

GPT2 = decoders.gpt2(vocab_size=13, max_seq_len=LENGTH, d_model=12, n_layers=2, n_heads=3)
LLAMA_SIZES = {"vocab_size": 13, "max_seq_len": LENGTH, "d_model": 12, "n_layers": 2, "d_ff": 20}
LLAMA = llamas.llama(**LLAMA_SIZES, n_heads=4, n_kv_heads=2, d_head=6, theta=100.0)
NEOX = {"vocab_size": 13, "max_seq_len": LENGTH, "d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24}
MIXTRAL = mixtures.mixtral(
    **LLAMA_SIZES, n_heads=4, n_kv_heads=2, d_head=4, n_experts=5, n_chosen=2, windows=(None, 3), theta=100.0
)


def change(part: P, kind: type, **fields: object) -> P:
    """The same with these fields on every part of a class."""
    return rewrite(part, lambda inner: replace(inner, **fields) if isinstance(inner, kind) else inner)


def residuals(spec: s.Spec, make: Callable[[s.Residual], s.Residual]) -> s.Spec:
    return rewrite(spec, lambda part: make(part) if isinstance(part, s.Residual) else part)


def post_norm(spec: s.Spec) -> s.Spec:
    """Norms on the sums, as in the 2017 layout, and none at the end."""

    def make(residual: s.Residual) -> s.Residual:
        (branch,) = residual.branches
        return replace(residual, branches=(replace(branch, norm_in=None),), norm_sum=branch.norm_in)

    spec = residuals(spec, make)
    return replace(spec, decoder=replace(spec.decoder, norm_last=None))


def sandwich(spec: s.Spec) -> s.Spec:
    """Gemma's: gains stored less 1, a norm before and one after each part, the embedding scaled, scores capped."""
    spec = change(spec, s.Norm, plus_one=True)
    spec = change(spec, s.FeedForward, activation="gelu_tanh")
    spec = rewrite(spec, lambda b: replace(b, norm_out=b.norm_in) if isinstance(b, s.Branch) else b)
    return replace(
        spec, embedding=replace(spec.embedding, scale=12**0.5), head=replace(spec.head, tied=True, softcap=2.0)
    )


def side_by_side(spec: s.Spec) -> s.Spec:
    """GPT-J's: attention and feed-forward read one norm together."""

    def layer(residuals: tuple[s.Residual, ...]) -> tuple[s.Residual, ...]:
        branches = tuple(branch for residual in residuals for branch in residual.branches)
        plain = tuple(replace(branch, norm_in=None) for branch in branches)
        return (s.Residual(branches=plain, norm_in=branches[0].norm_in),)

    return replace(spec, decoder=replace(spec.decoder, layers=tuple(map(layer, spec.decoder.layers))))


def turned(spec: s.Spec, **fields: object) -> s.Spec:
    return change(spec, s.Rotary, **fields)


def shared(spec: s.Spec, *passes: int) -> s.Spec:
    return replace(spec, decoder=replace(spec.decoder, passes=passes))


GEMMA2 = sandwich(llamas.llama(**LLAMA_SIZES, n_heads=4, n_kv_heads=2, d_head=6, windows=(None, 3)))

DEEPSEEK = {
    "vocab_size": 13,
    "max_seq_len": LENGTH,
    "d_model": 12,
    "n_layers": 2,
    "n_dense": 1,
    "n_heads": 3,
    "d_nope": 4,
    "d_rope": 2,
    "d_value": 5,
    "kv_rank": 7,
    "d_ff": 16,
    "d_expert": 8,
    "n_shared": 1,
    "theta": 100.0,
}
SIGMOID = s.SigmoidRouter(
    scores=s.Linear(n_in=12, n_out=6), n_chosen=3, n_groups=3, n_chosen_groups=2, factor=2.5, normalised=True
)
SOFTMAX = s.SoftmaxRouter(scores=s.Linear(n_in=12, n_out=6), n_chosen=2, normalised=False)
BERT = encoders.bert(vocab_size=13, max_seq_len=LENGTH, d_model=12, n_layers=2, n_heads=3, d_ff=20)
T5 = {
    "vocab_size": 13,
    "max_seq_len": LENGTH,
    "d_model": 12,
    "n_encoder_layers": 2,
    "n_decoder_layers": 2,
    "n_heads": 3,
    "d_head": 5,
    "d_ff": 20,
    "n_buckets": 8,
    "max_distance": 12,
}


def shared_experts(spec: s.Spec, gated: bool) -> s.Spec:
    """Qwen's: a router over all, and an expert that every token meets, gated or not."""
    (experts,) = {part for _, part in walk(spec) if isinstance(part, s.Experts)}
    return change(
        spec,
        s.Experts,
        router=replace(SOFTMAX, scores=s.Linear(n_in=12, n_out=5), normalised=not gated),
        shared=experts.expert,
        shared_gate=s.Linear(n_in=12, n_out=1) if gated else None,
    )


TINY: dict[str, s.Spec] = {
    "gpt2": GPT2,
    "gpt2-untied": decoders.gpt2(vocab_size=13, max_seq_len=LENGTH, d_model=8, n_layers=2, n_heads=4, tied=False),
    "gpt2-no-bias": change(change(GPT2, s.Linear, bias=False), s.Norm, bias=False),
    "gpt2-no-residual": change(GPT2, s.Residual, add=False),
    "gpt2-post-norm": post_norm(GPT2),
    "gpt2-no-positions": replace(GPT2, decoder=replace(GPT2.decoder, positions=None)),
    "gpt2-window-1": change(GPT2, s.Attention, window=1),
    "gpt2-side-by-side": side_by_side(GPT2),
    "gpt2-lora": with_lora(GPT2, rank=2, alpha=3.0, targets=("attention.q", "attention.v", "feed_forward.up", "head")),
    "opt": decoders.opt(
        vocab_size=13, max_seq_len=LENGTH, d_model=12, n_layers=2, n_heads=3, d_ff=20, d_embed=12, tied=True
    ),
    "opt-narrow": decoders.opt(
        vocab_size=13, max_seq_len=LENGTH, d_model=12, n_layers=2, n_heads=3, d_ff=20, d_embed=5, pre_norm=False
    ),
    "neox": decoders.gpt_neox(**NEOX),
    "neox-in-turn": decoders.gpt_neox(**NEOX, parallel=False, rotary_share=1.0),
    "llama": LLAMA,
    "llama-multi-query": llamas.llama(**LLAMA_SIZES, n_heads=3, n_kv_heads=1, d_head=4, tied=True),
    "llama-multi-head": llamas.llama(**LLAMA_SIZES, n_heads=3, n_kv_heads=3, d_head=4, qkv_bias=True, mlp_bias=True),
    "llama-3.1": turned(LLAMA, scaling=LLAMA3),
    "llama-stretched": turned(LLAMA, scaling=LINEAR),
    "llama-interleaved": turned(LLAMA, interleaved=True, n_dims=4),
    "mistral": change(LLAMA, s.Attention, window=4),
    "qwen2": llamas.llama(**LLAMA_SIZES, n_heads=4, n_kv_heads=2, d_head=4, qkv_bias=True, tied=True),
    "qwen3": llamas.llama(**LLAMA_SIZES, n_heads=4, n_kv_heads=2, d_head=6, qk_norm=True, tied=True),
    "olmo2": llamas.olmo2(**LLAMA_SIZES, n_heads=4, n_kv_heads=2, d_head=4),
    "olmo3": llamas.olmo2(**LLAMA_SIZES, n_heads=4, n_kv_heads=2, d_head=4, windows=(3, None), scaling=LLAMA3),
    "gemma2": GEMMA2,
    "gemma2-mixed-gains": rewrite(
        GEMMA2,
        lambda b: replace(b, norm_out=change(b.norm_out, s.Norm, plus_one=False)) if isinstance(b, s.Branch) else b,
    ),
    "mixtral": MIXTRAL,
    "mixtral-lora": with_lora(MIXTRAL, rank=2, alpha=3.0, targets=("feed_forward.up", "feed_forward.down", "head")),
    "llama-yarn": turned(LLAMA, scaling=YARN),
    "llama-dynamic": turned(LLAMA, scaling=DYNAMIC),
    "llama-longrope": turned(LLAMA, scaling=LONGROPE),
    "scores-capped": change(LLAMA, s.Scores, softcap=1.5),
    "gpt-oss": mixtures.gpt_oss(
        vocab_size=13,
        max_seq_len=LENGTH,
        d_model=12,
        n_heads=4,
        n_kv_heads=2,
        d_head=4,
        d_ff=10,
        n_experts=5,
        n_chosen=2,
        windows=(3, None),
        scaling=YARN,
    ),
    "alibi": change(replace(GPT2, decoder=replace(GPT2.decoder, positions=None)), s.Scores, alibi=True),
    "alibi-window": change(change(GPT2, s.Scores, alibi=True), s.Attention, window=4),
    "sinusoids": replace(GPT2, decoder=replace(GPT2.decoder, positions=s.Sinusoid(width=12))),
    "sinusoids-of-tensor2tensor": replace(
        GPT2, decoder=replace(GPT2.decoder, positions=s.Sinusoid(width=12, layout="tensor2tensor", offset=2))
    ),
    "distances-in-buckets": replace(
        GPT2,
        decoder=replace(GPT2.decoder, positions=None, relative=s.RelativeBias(n_buckets=6, max_distance=9, n_heads=3)),
    ),
    "deepseek-v2": mixtures.deepseek(**DEEPSEEK, q_rank=None, router=SOFTMAX, scaling=YARN),
    "deepseek-v3": mixtures.deepseek(**DEEPSEEK, q_rank=5, router=SIGMOID, attention_bias=True),
    "deepseek-lora": with_lora(
        mixtures.deepseek(**DEEPSEEK, q_rank=5, router=SIGMOID), rank=2, alpha=3.0, targets=("attention.kv_up",)
    ),
    "qwen2-moe": shared_experts(MIXTRAL, gated=True),
    "shared-expert": shared_experts(MIXTRAL, gated=False),
    "layers-shared": shared(LLAMA, 0, 1, 0, 1, 0),
    "one-layer-for-all": shared(change(GPT2, s.Attention, window=3), 0, 0, 0),
}

# Models that are not a causal stack alone: an encoder, or an encoder that a decoder reads.
ENCODERS: dict[str, s.Spec] = {
    "bert": BERT,
    "bert-first-token": replace(BERT, head=replace(BERT.head, pool="first")),
    "bert-mean": replace(BERT, head=replace(BERT.head, pool="mean")),
    "albert": encoders.albert(
        vocab_size=13, max_seq_len=LENGTH, d_model=12, d_embed=5, n_layers=3, n_heads=3, d_ff=20, n_groups=2
    ),
    "encoder-window": change(change(BERT, s.Attention, window=3), s.Scores, alibi=True),
}
PAIRS: dict[str, s.Spec] = {
    "bart": encoder_decoders.bart(
        vocab_size=13,
        max_seq_len=LENGTH,
        d_model=12,
        n_encoder_layers=2,
        n_decoder_layers=2,
        n_encoder_heads=3,
        n_decoder_heads=2,
        d_encoder_ff=20,
        d_decoder_ff=16,
    ),
    "t5": encoder_decoders.t5(**T5),
    "t5-gated": encoder_decoders.t5(**T5, gated=True, tied=False, activation="gelu_tanh"),
}

# --- decoders by chance -----------------------------------------------------------------------------------------------


class Draw:
    """One decoder's choices. Each method draws a part; the seed says all."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.d_model = self.r.choice((6, 8, 10, 12))
        self.rms = self.chance(0.5)  # mostly one kind of norm, biases mostly everywhere or nowhere
        self.biased = self.chance(0.5)

    def chance(self, p: float) -> bool:
        return self.r.random() < p

    def linear(self, n_in: int, n_out: int) -> s.Linear:
        lora = s.Lora(rank=self.r.choice((1, 2, 3)), alpha=self.r.choice((1.0, 4.0))) if self.chance(0.15) else None
        return s.Linear(n_in=n_in, n_out=n_out, bias=self.chance(0.8 if self.biased else 0.1), lora=lora)

    def norm(self, width: int) -> s.Norm:
        return s.Norm(
            kind="rms" if self.rms != self.chance(0.1) else "layer",
            width=width,
            eps=self.r.choice((1e-6, 1e-5, 1e-2)),
            bias=self.chance(0.8 if self.biased else 0.1),
            gain=self.chance(0.9),
            plus_one=self.chance(0.2),
        )

    def maybe_norm(self, p: float) -> s.Norm | None:
        return self.norm(self.d_model) if self.chance(p) else None

    def rotary(self, d_head: int) -> s.Rotary:
        return s.Rotary(
            theta=self.r.choice((10.0, 100.0, 10000.0)),
            n_dims=self.r.choice(range(2, d_head + 1, 2)),
            interleaved=self.chance(0.3),
            scaling=self.r.choice((None, None, LINEAR, LLAMA3, YARN)),
        )

    def attention(self) -> s.Attention:
        n_heads = self.r.choice((1, 2, 3, 4))
        n_kv_heads = self.r.choice([n for n in (1, 2, 3, 4) if n_heads % n == 0])
        d_head = self.r.choice((2, 4, 6))

        def projection(n: int, may_norm: bool) -> s.Projection:
            linear = self.linear(self.d_model, n * d_head)
            if may_norm and self.chance(0.3):
                return s.NormedLinear(linear=linear, norm=self.norm(self.r.choice((d_head, n * d_head))))
            return linear

        return s.Attention(
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            q=projection(n_heads, True),
            k=projection(n_kv_heads, True),
            v=projection(n_kv_heads, False),
            out=self.linear(n_heads * d_head, self.d_model),
            scores=s.Scores(
                scale=self.r.choice((d_head**-0.5, 0.3)),
                rotary=self.rotary(d_head) if self.chance(0.6) else None,
                softcap=1.5 if self.chance(0.15) else None,
                sinks=self.chance(0.15),
                alibi=self.chance(0.1),
            ),
            window=self.r.choice((None, None, None, 1, 2, 5)),
        )

    def latent(self) -> LatentAttention:
        n_heads, d_nope, d_rope, d_value, width = (self.r.choice((2, 4, 6)) for _ in range(5))
        d_q = n_heads * (d_nope + d_rope)
        narrow = s.Bottleneck(down=self.linear(self.d_model, 4), norm=self.norm(4), up=self.linear(4, d_q))
        return LatentAttention(
            n_heads=n_heads,
            d_nope=d_nope,
            d_rope=d_rope,
            d_value=d_value,
            q=narrow if self.chance(0.5) else self.linear(self.d_model, d_q),
            kv_down=self.linear(self.d_model, width + d_rope),
            kv_norm=self.norm(width),
            kv_up=self.linear(width, n_heads * (d_nope + d_value)),
            out=self.linear(n_heads * d_value, self.d_model),
            scores=s.Scores(
                scale=0.4, rotary=replace(self.rotary(d_rope), n_dims=d_rope) if self.chance(0.8) else None
            ),
        )

    def feed_forward(self) -> s.FeedForward:
        d_ff, gated = self.r.choice((5, 9, 16)), self.chance(0.5)
        return s.FeedForward(
            activation=self.r.choice((*ACTIVATIONS, "swiglu_clamped") if gated else ACTIVATIONS),
            up=self.linear(self.d_model, d_ff),
            down=self.linear(d_ff, self.d_model),
            gate=self.linear(self.d_model, d_ff) if gated else None,
        )

    def router(self, n: int) -> s.Router:
        scores, n_chosen = self.linear(self.d_model, n), self.r.choice(range(1, n + 1))
        kind = self.r.choice(("chosen", "all", "sigmoid"))
        if kind == "sigmoid" and n % 2 == 0 and n > 2:
            return s.SigmoidRouter(
                scores=scores,
                n_chosen=self.r.choice((1, 2)),
                n_groups=n // 2,
                n_chosen_groups=self.r.choice(range(1, n // 2 + 1)),
                factor=self.r.choice((1.0, 2.5)),
                normalised=self.chance(0.5),
            )
        if kind == "all":
            plain = s.SoftmaxRouter(scores=scores, n_chosen=n_chosen, normalised=self.chance(0.5))
            in_groups = replace(plain, n_chosen=1, n_groups=n // 2, n_chosen_groups=1, factor=1.5)
            return in_groups if n % 2 == 0 and self.chance(0.3) else plain
        return s.ChosenSoftmaxRouter(scores=scores, n_chosen=n_chosen)

    def experts(self) -> s.Experts:
        n, shared = self.r.choice((2, 3, 4, 6)), self.chance(0.3)
        return s.Experts(
            router=self.router(n),
            expert=self.feed_forward(),
            n_experts=n,
            shared=self.feed_forward() if shared else None,
            shared_gate=self.linear(self.d_model, 1) if shared and self.chance(0.5) else None,
        )

    def second(self, experts: float) -> s.Part:
        return self.experts() if self.chance(experts) else self.feed_forward()

    def layer(self, experts: float) -> tuple[s.Residual, ...]:
        mixer = self.latent() if self.chance(0.12) else self.attention()
        parts = [("attention", mixer), ("feed_forward", self.second(experts))]
        kind = self.r.choice(("pre", "pre", "pre", "post", "sandwich", "after", "beside", "beside", "mixer", "three"))
        if kind == "mixer":
            parts = parts[:1]
        if kind == "three":
            parts += [("feed_forward_2", self.feed_forward())]
        before, after = kind in ("pre", "sandwich", "mixer", "three"), kind in ("sandwich", "after")
        if kind == "beside":
            own = self.chance(0.5)
            branches = tuple(
                s.Branch(
                    name=name,
                    part=part,
                    norm_in=self.norm(self.d_model) if own else None,
                    norm_out=self.maybe_norm(0.2),
                )
                for name, part in parts
            )
            return (
                s.Residual(
                    branches=branches,
                    norm_in=None if own else self.norm(self.d_model),
                    norm_out=self.maybe_norm(0.3),
                    norm_sum=self.maybe_norm(0.1),
                ),
            )
        return tuple(
            s.Residual(
                branches=(
                    s.Branch(
                        name=name,
                        part=part,
                        norm_in=self.norm(self.d_model) if before else None,
                        norm_out=self.norm(self.d_model) if after else None,
                    ),
                ),
                norm_sum=self.norm(self.d_model) if kind == "post" else None,
                add=self.chance(0.93),
            )
            for name, part in parts
        )

    def stack(self) -> s.Stack:
        experts = 0.6 if self.chance(0.25) else 0.0
        one = self.layer(experts)
        layers = (one,) * self.r.choice((1, 2)) if self.chance(0.4) else (one, self.layer(experts))
        offset = self.r.choice((0, 0, 2))
        table = s.Table(n_rows=LENGTH + offset, width=self.d_model, offset=offset)
        return s.Stack(
            layers=layers,
            causal=True,
            passes=tuple(self.r.choices(range(len(layers)), k=3)) if self.chance(0.15) else None,
            positions=self.r.choice((table, table, s.Sinusoid(width=self.d_model), None, None, None)),
            relative=self.relative(layers),
            norm_first=self.maybe_norm(0.15),
            norm_last=self.maybe_norm(0.8),
        )

    def relative(self, layers: tuple[tuple[s.Residual, ...], ...]) -> s.RelativeBias | None:
        heads = {part.n_heads for _, part in walk(layers) if isinstance(part, s.Attention)}
        plain = len(heads) == 1 and not any(isinstance(part, s.Scores) and part.alibi for _, part in walk(layers))
        return s.RelativeBias(n_buckets=6, max_distance=10, n_heads=heads.pop()) if plain and self.chance(0.2) else None

    def head(self, width: int, n_rows: int) -> s.Head:
        tied = self.chance(0.5)
        narrow = width != self.d_model
        transform = self.linear(self.d_model, width) if (tied and narrow) or self.chance(0.15) else None
        n_in = width if transform else self.d_model
        return s.Head(
            linear=self.linear(n_in, n_rows),
            tied=tied,
            transform=transform,
            activation=self.r.choice(ACTIVATIONS) if transform and self.chance(0.5) else None,
            norm=self.norm(n_in) if transform and self.chance(0.5) else None,
            softcap=self.r.choice((None, None, None, 1.5)),
            scale=self.r.choice((1.0, 1.0, 0.5)),
        )

    def spec(self) -> s.Spec:
        n_rows = self.r.choice((7, 11, 14))
        width = self.d_model if self.chance(0.8) else 4
        return s.Spec(
            embedding=s.Tokens(
                table=s.Table(n_rows=n_rows, width=width),
                scale=self.r.choice((1.0, 1.0, 3.0)),
                norm=self.norm(width) if self.chance(0.2) else None,
                project=self.linear(width, self.d_model) if width != self.d_model or self.chance(0.1) else None,
            ),
            decoder=self.stack(),
            head=self.head(width, n_rows) if self.chance(0.95) else None,
            max_seq_len=LENGTH,
        )


def drawn(seed: int) -> s.Spec:
    """The decoder of this seed."""
    return Draw(seed).spec()


def spec_of(name: str) -> s.Spec:
    """A tiny spec by its name; a number is a seed."""
    return drawn(int(name)) if name.isdigit() else (TINY | ENCODERS | PAIRS)[name]


def has_experts(spec: s.Spec) -> bool:
    return any(w.kind == "expert" for w in Ledger.of(spec).rows)


# --- weights ----------------------------------------------------------------------------------------------------------


def arrays_of(part: object, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights for any part or spec, by name, large enough for every rule to show. Gains lie around 1 or 0."""
    rng = np.random.default_rng([seed, zlib.crc32(type(part).__name__.encode())])

    def draw(w: Weight) -> np.ndarray:
        if w.kind == "norm" and w.name.endswith("weight"):
            return rng.uniform(0.5, 1.5, w.shape)
        sharp = 2.0 if ".q." in f".{w.name}" or ".k." in f".{w.name}" else 1.0  # attention that looks somewhere
        return rng.normal(0, sharp * (w.shape[-1] ** -0.5 if len(w.shape) > 1 else 0.5), w.shape)

    return {w.name: draw(w) for w in weights(part) if not w.same_as}


def tokens_of(spec: s.Spec, n_rows: int, n_tokens: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, 1]).integers(0, spec.vocab_size, (n_rows, n_tokens))

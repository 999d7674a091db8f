"""What many readers share: the sizes that most decoders say by the same names, and the parts that they are made of."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from plainformer.families.parts import Layer, attention, decoder, feed_forward, linear
from plainformer.huggingface.configs_keys import Keys
from plainformer.records import dataclass, replace
from plainformer.spec import (
    Activation,
    Attention,
    ChosenSoftmaxRouter,
    Experts,
    FeedForward,
    Norm,
    Rotary,
    Router,
    Scores,
    SigmoidRouter,
    SoftmaxRouter,
    Spec,
    Table,
)

K = TypeVar("K", bound=Hashable)
CORRECTION = "The correction of each expert's score is a buffer, not a parameter: it is in the files, not in the total."


def by_kind(kinds: Sequence[K], layer: Callable[[K], Layer]) -> tuple[Layer, ...]:
    """One layer for each kind; layers of the same kind are the same object."""
    made = {kind: layer(kind) for kind in dict.fromkeys(kinds)}
    return tuple(made[kind] for kind in kinds)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The sizes of a decoder, and makers of its parts at these sizes."""

    keys: Keys
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    max_seq_len: int

    @classmethod
    def of(
        cls,
        keys: Keys,
        *,
        max_seq_len: int,
        kv_default: int | None = None,
        d_head_default: int | None = None,
        layers: str = "num_hidden_layers",
    ) -> Frame:
        """By the commonest names; the defaults are the class's, for keys that are absent."""
        n_heads, n_kv_heads, d_head = keys.heads(kv_default=kv_default, d_head_default=d_head_default, rotary=False)
        return cls(
            keys=keys,
            d_model=keys.count("hidden_size"),
            n_layers=keys.layers(layers),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            d_head=d_head,
            max_seq_len=keys.count("max_position_embeddings", default=max_seq_len),
        )

    def rotary(
        self, theta: float = 10000.0, *, share: float = 1.0, interleaved: bool = False, layer_type: str | None = None
    ) -> Rotary:
        """theta and share: the class's defaults."""
        found = self.keys.rotary(
            self.d_head, max_seq_len=self.max_seq_len, theta=theta, share=share, layer_type=layer_type
        )
        return replace(found, n_dims=max(2, found.n_dims), interleaved=interleaved)

    def attend(
        self,
        rotary: Rotary | None,
        *,
        bias: bool = False,
        out_bias: bool | None = None,
        norms: tuple[Norm, Norm] | None = None,
        window: int | None = None,
        scale: float | None = None,
        alibi: bool = False,
    ) -> Attention:
        """bias: of queries, keys and values, and of the output unless out_bias says otherwise; norms: of q and k."""
        return attention(
            d_model=self.d_model,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            d_head=self.d_head,
            scores=Scores(scale=self.d_head**-0.5 if scale is None else scale, rotary=rotary, alibi=alibi),
            qkv_bias=bias,
            out_bias=bias if out_bias is None else out_bias,
            q_norm=norms[0] if norms else None,
            k_norm=norms[1] if norms else None,
            window=window,
        )

    def dense(
        self,
        d_ff: int | None = None,
        *,
        gated: bool = True,
        bias: bool = False,
        activation: Activation | None = None,
    ) -> FeedForward:
        """d_ff and activation: what the file says by the commonest names."""
        return feed_forward(
            self.d_model,
            self.keys.count("intermediate_size") if d_ff is None else d_ff,
            activation or self.keys.activation(),
            gated=gated,
            bias=bias,
        )

    def experts(
        self,
        router: Router,
        d_expert: int,
        *,
        d_shared: int = 0,
        gated_sum: bool = False,
        balance: float = 0.0,
        activation: Activation | None = None,
    ) -> Experts:
        """d_shared: of the expert that every token meets, 0: none; gated_sum: through a gate of its own."""
        act = activation or self.keys.activation()
        return Experts(
            router=router,
            expert=feed_forward(self.d_model, d_expert, act, gated=True),
            n_experts=router.scores.n_out,
            shared=feed_forward(self.d_model, d_shared, act, gated=True) if d_shared else None,
            shared_gate=linear(self.d_model, 1) if gated_sum else None,
            balance=self.keys.real("router_aux_loss_coef", default=balance),
        )

    def chosen(self, *n_experts: str, n_chosen: str = "num_experts_per_tok", **defaults: int) -> ChosenSoftmaxRouter:
        """Softmax over the chosen; the names of the keys, and as `experts` and `chosen` the class's defaults."""
        scores = linear(self.d_model, self.keys.count(*n_experts, default=defaults.get("experts")))
        return ChosenSoftmaxRouter(scores=scores, n_chosen=self.picked(scores.n_out, n_chosen, defaults.get("chosen")))

    def softmax(
        self, *n_experts: str, normalised: bool, n_chosen: str = "num_experts_per_tok", **defaults: int
    ) -> SoftmaxRouter:
        """Softmax over all, then the choice."""
        scores = linear(self.d_model, self.keys.count(*n_experts, default=defaults.get("experts")))
        picked = self.picked(scores.n_out, n_chosen, defaults.get("chosen"))
        return SoftmaxRouter(scores=scores, n_chosen=picked, normalised=self.keys.flag("norm_topk_prob", normalised))

    def sigmoid(
        self, *n_experts: str, n_chosen: str = "num_experts_per_tok", factor: float = 1.0, **defaults: int
    ) -> SigmoidRouter:
        """Sigmoid scores with a correction, by groups where there are some."""
        self.keys.note(CORRECTION)
        scores = linear(self.d_model, self.keys.count(*n_experts, default=defaults.get("experts")))
        return SigmoidRouter(
            scores=scores,
            n_chosen=self.picked(scores.n_out, n_chosen, defaults.get("chosen")),
            n_groups=self.keys.count("n_group", default=1),
            n_chosen_groups=self.keys.count("topk_group", default=1),
            factor=self.keys.real("routed_scaling_factor", "route_scale", default=factor),
            normalised=self.keys.flag("norm_topk_prob", True),
        )

    def picked(self, n_experts: int, name: str, default: int | None) -> int:
        """How many experts a token meets; no more than there are."""
        n_chosen = self.keys.count(name, default=default)
        if n_chosen > n_experts:
            self.keys.fault(name, n_chosen, f"must not exceed the number of experts ({n_experts})")
        return n_chosen

    def whole(
        self,
        layers: tuple[Layer, ...],
        norm_last: Norm | None,
        *,
        tied: bool,
        positions: Table | None = None,
        scale: float = 1.0,
        softcap: float | None = None,
        head_bias: bool = False,
        head_scale: float = 1.0,
    ) -> Spec:
        """The layers between a token table and a head; tied: the class's default."""
        spec = decoder(
            vocab_size=self.keys.count("vocab_size"),
            max_seq_len=self.max_seq_len,
            d_model=self.d_model,
            layers=layers,
            norm_last=norm_last,
            tied=self.keys.tied(tied),
            positions=positions,
            scale=scale,
            softcap=softcap,
        )
        head = spec.head
        assert head is not None  # decoder() gives one
        head = replace(head, scale=head_scale, linear=replace(head.linear, bias=head_bias))
        return self.keys.with_head(replace(spec, head=head))


def alike(frame: Frame, layer: Layer) -> tuple[Layer, ...]:
    """All layers the same."""
    return (layer,) * frame.n_layers

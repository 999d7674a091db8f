"""What a transformer is, as data: parts within parts, each a small frozen class. A reading has one rule for a part."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from plainformer.faults import PlainformerError
from plainformer.records import dataclass

if TYPE_CHECKING:
    from plainformer import mixers as m

Activation = Literal["relu", "relu_squared", "silu", "gelu", "gelu_tanh", "tanh", "swiglu_clamped"]


@dataclass(frozen=True, kw_only=True)
class Lora:
    """A low-rank correction: x A^T B^T * alpha / rank (Hu et al. 2021, section 4.1)."""

    rank: int
    alpha: float


@dataclass(frozen=True, kw_only=True)
class Linear:
    """y = x W^T + b. The leaf that holds most weights."""

    n_in: int
    n_out: int
    bias: bool = False
    lora: Lora | None = None


@dataclass(frozen=True, kw_only=True)
class Norm:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019)."""

    kind: Literal["layer", "rms"]
    width: int
    eps: float
    bias: bool = False
    gain: bool = True  # False: holds nothing (OLMo)
    plus_one: bool = False  # the stored gain is added to 1 (Gemma)


@dataclass(frozen=True, kw_only=True)
class NormedLinear:
    """A projection, then a norm over each run of norm.width outputs: one head (Qwen3) or all of them (OLMo 2)."""

    linear: Linear
    norm: Norm


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """A projection in two steps with a norm between (the queries of DeepSeek-V2)."""

    down: Linear
    norm: Norm
    up: Linear


Projection = Linear | NormedLinear | Bottleneck


@dataclass(frozen=True, kw_only=True)
class Table:
    """One learned row for each token, type or position; position p reads row p + offset (OPT, BART: 2)."""

    n_rows: int
    width: int
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Sinusoid:
    """Fixed positions: sines and cosines of falling frequency (Vaswani et al. 2017, section 3.5)."""

    width: int
    layout: Literal["pairs", "halves", "tensor2tensor"] = "pairs"  # halves: all sines first; its: to 1/10000
    offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Rotary frequencies stretched for contexts longer than the model was made with."""

    kind: Literal["linear", "dynamic", "llama3", "yarn", "longrope", "other"]
    settings: tuple[tuple[str, float], ...]  # by the names of the published config


@dataclass(frozen=True, kw_only=True)
class Rotary:
    """Turn the first n_dims of each head by position * theta^(-2i / n_dims) (Su et al. 2021, section 3.4)."""

    theta: float
    n_dims: int
    interleaved: bool = False  # pairs (0,1), (2,3) ... instead of (i, i + n_dims / 2)
    scaling: Scaling | None = None


@dataclass(frozen=True, kw_only=True)
class Scores:
    """How a query and a key make a score: scale * q.k, and what else is done to it."""

    scale: float
    rotary: Rotary | None = None
    softcap: float | None = None  # cap * tanh(score / cap)
    sinks: bool = False  # one learned score a head that takes weight and gives no value
    alibi: bool = False


@dataclass(frozen=True, kw_only=True)
class Attention:
    n_heads: int
    n_kv_heads: int  # n_heads: multi-head; 1: multi-query; between: grouped-query
    d_head: int  # not always d_model / n_heads
    q: Projection
    k: Projection
    v: Projection | None  # None: the keys' projection serves as values too (Gemma 4)
    out: Linear
    scores: Scores
    window: int | None = None  # keys a query may see, itself included; None: all
    cross: bool = False  # keys and values come from what the encoder said


@dataclass(frozen=True, kw_only=True)
class FeedForward:
    activation: Activation
    up: Linear
    down: Linear
    gate: Linear | None = None  # act(gate x) * up x (Shazeer 2020)


@dataclass(frozen=True, kw_only=True)
class ChosenSoftmaxRouter:
    """The best n_chosen scores, softmax over those alone (Mixtral)."""

    scores: Linear
    n_chosen: int


@dataclass(frozen=True, kw_only=True)
class SoftmaxRouter:
    """Softmax over all, then the best n_chosen of the best groups, made to sum to 1 or not (DeepSeek-V2, Qwen2-MoE)."""

    scores: Linear
    n_chosen: int
    normalised: bool
    scaled: bool = False  # learned scales of the input and of each expert (Gemma 4)
    n_groups: int = 1  # a group is worth its best score
    n_chosen_groups: int = 1
    factor: float = 1.0


@dataclass(frozen=True, kw_only=True)
class SigmoidRouter:
    """Sigmoid scores, the best groups first; a correction steers the choice, not the gates (DeepSeek-V3)."""

    scores: Linear
    n_chosen: int
    n_groups: int
    n_chosen_groups: int
    factor: float
    normalised: bool


Router = ChosenSoftmaxRouter | SoftmaxRouter | SigmoidRouter


@dataclass(frozen=True, kw_only=True)
class Experts:
    router: Router
    expert: FeedForward  # one of n_experts that are alike; their weights are stacked
    n_experts: int
    shared: FeedForward | None = None  # met by every token
    shared_gate: Linear | None = None
    balance: float = 0.0  # how much the balance loss weighs in training (Fedus et al. 2021, section 2.2)


Mixer: TypeAlias = "m.GatedAttention | m.LatentAttention | m.Mamba | m.Mamba2 | m.DeltaNet | m.ShortConvolution"
Part: TypeAlias = "Attention | Mixer | FeedForward | Experts | m.Sized | m.BorrowedAttention"


@dataclass(frozen=True, kw_only=True)
class Branch:
    """What one part would add to the stream."""

    name: str  # "attention", "cross_attention", "feed_forward": where its weights stand
    part: Part
    norm_in: Norm | None = None  # pre-norm: GPT-2, Llama
    norm_out: Norm | None = None  # OLMo 2; with norm_in a sandwich: Gemma 2


@dataclass(frozen=True, kw_only=True)
class Residual:
    """x + branches(x). Several branches read the same stream: GPT-J shares their norm, NeoX has one each."""

    branches: tuple[Branch, ...]
    norm_in: Norm | None = None  # one norm for all branches
    norm_out: Norm | None = None  # on what the branches say together (Gemma 4)
    norm_sum: Norm | None = None  # post-norm: BERT, the 2017 layout
    add: bool = True  # False: to see what the residual was for

    def parts(self) -> Iterator[tuple[str, Norm | Part | None]]:
        """Its parts, each with its weights' name. A norm stands beside its part: whose own names are alike anywhere."""
        first = self.branches[0].name
        yield f"{first}_norm_shared", self.norm_in
        for one in self.branches:
            yield from ((f"{one.name}_norm", one.norm_in), (one.name, one.part), (f"{one.name}_norm_out", one.norm_out))
        yield f"{first}_norm_together", self.norm_out
        yield f"{first}_norm_sum", self.norm_sum


@dataclass(frozen=True, kw_only=True)
class RelativeBias:
    """A learned addition to each head's scores by how far apart two tokens are, in buckets (T5)."""

    n_buckets: int
    max_distance: int
    n_heads: int


@dataclass(frozen=True, kw_only=True)
class Stack:
    layers: tuple[tuple[Residual, ...], ...]  # layers may differ: dense first, windows in a pattern
    causal: bool
    passes: tuple[int, ...] | None = None  # which layer's weights each pass uses; None: each its own (ALBERT: all 0)
    positions: Table | Sinusoid | m.Distances | None = None  # BART has one in each stack
    relative: RelativeBias | None = None
    norm_first: Norm | None = None  # BERT and BLOOM normalise the embedded tokens
    norm_last: Norm | None = None


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """From token numbers to the stream: a table and what is done to its rows."""

    table: Table
    scale: float = 1.0  # Gemma: sqrt(d_model)
    types: Table | None = None  # BERT: which of two sentences
    positions: Table | None = None  # ALBERT adds them in the narrow width
    norm: Norm | None = None
    project: Linear | m.Patches | None = None  # from a narrow table to d_model (ALBERT, OPT-350m); ViT: pictures


@dataclass(frozen=True, kw_only=True)
class Head:
    """From the stream to a score for every token."""

    linear: Linear
    tied: bool  # its weight is the token table's: a row that counts 0
    transform: Linear | None = None  # BERT: dense, activation, norm; OPT-350m: to the narrow width
    activation: Activation | None = None
    norm: Norm | None = None
    softcap: float | None = None
    scale: float = 1.0  # T5's tied head: d_model^-0.5
    pool: Literal["no", "first", "mean"] = "no"  # one answer a row: from its first token, or from their mean


@dataclass(frozen=True, kw_only=True)
class Tower:
    """A stack of its own for pictures: patches in, rows of the stream out."""

    patches: Linear
    positions: Table | None  # None: its patches are turned (Qwen2-VL)
    stack: Stack
    connector: tuple[Norm | Linear | m.Sized, ...]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A whole model. Refuses to exist with parts that do not fit, naming all of them."""

    embedding: Tokens
    head: Head | None  # None: the stream itself is the answer (BartModel)
    max_seq_len: int
    decoder: Stack | None = None
    encoder: Stack | None = None
    towers: tuple[Tower | Head | m.Sized, ...] = ()  # what stands beside: for pictures; a second head (BERT); tables

    def __post_init__(self) -> None:
        from plainformer.fitting import faults_of  # the rules are a room of their own; they read these classes

        if faults := list(faults_of(self)):
            raise PlainformerError(faults)

    @property
    def vocab_size(self) -> int:
        return self.embedding.table.n_rows

    @property
    def main(self) -> Stack:
        """The stack that the head reads."""
        return cast(Stack, self.decoder or self.encoder)  # fitting: a spec has one

    @property
    def d_model(self) -> int:
        return self.embedding.project.n_out if self.embedding.project else self.embedding.table.width

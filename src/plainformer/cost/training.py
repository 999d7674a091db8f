"""The memory and the work of training: weights, gradients, optimiser, activations; shares of several devices; LoRA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from plainformer.cost import Cost
from plainformer.cost.activations import logits, taped
from plainformer.cost.flops import Work, flops, scores_and_mix
from plainformer.cost.tape import Pass, Tape
from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.ledger import Ledger, Weight
from plainformer.records import dataclass, replace
from plainformer.spec import Attention, Linear, Spec
from plainformer.tree import rewrite, walk

MATRICES = ("attention", "mixer", "feed_forward", "expert")


def moments(row: Weight) -> int:
    return 8 * row.count


def eight_bits(row: Weight) -> int:
    """Two moments of 8 bits, a float32 for each 256 of them; tensors below 4,096 numbers keep theirs in 32 bits
    (Dettmers et al. 2021, and its bitsandbytes)."""
    return 8 * row.count if row.count < 4096 else 2 * row.count + 2 * 4 * -(-row.count // 256)


def muon(row: Weight) -> int:
    """One momentum for matrices inside the layers, AdamW's two moments for all else (Jordan et al. 2024)."""
    inside = row.kind in MATRICES and len(row.shape) > 1  # a stack of biases is a matrix to it
    return 4 * row.count if inside else 8 * row.count


def is_adapter(row: Weight) -> bool:
    return row.name.endswith(("lora_a", "lora_b"))


def nothing(row: Weight) -> int:
    return 0


def momentum(row: Weight) -> int:
    return 4 * row.count


@dataclass(frozen=True)
class Optimizer:
    says: str
    weight: int  # bytes of a number of the weights that compute
    gradient: int
    master: int  # bytes of a copy that the steps are added to; 0: none
    state: Callable[[Weight], int]
    autocast: bool = False  # products in 16 bits, all else as wide as the weights


# Mixed precision as in Rajbhandari et al. 2020, section 3.1: 2 + 2 and a master copy of 4.
OPTIMIZERS = {
    "adamw": Optimizer("mixed precision: master weights and two moments in float32", 2, 2, 4, moments),
    "adamw-float32": Optimizer("float32 throughout", 4, 4, 0, moments),
    "adamw-autocast": Optimizer("float32, products in bfloat16 by autocast", 4, 4, 0, moments, autocast=True),
    "adamw-bfloat16": Optimizer("bfloat16 throughout", 2, 2, 0, lambda row: 4 * row.count),
    "adamw-8bit": Optimizer("mixed precision, the moments in 8 bits with a scale for each 256", 2, 2, 4, eight_bits),
    "muon": Optimizer("mixed precision, one momentum for matrices in the layers, AdamW for the rest", 2, 2, 4, muon),
    "sgd": Optimizer("mixed precision, nothing kept", 2, 2, 4, nothing),
    "sgd-momentum": Optimizer("mixed precision, one momentum in float32", 2, 2, 4, momentum),
}
Recompute = Literal["none", "selective", "full"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a model is to be trained. Refuses what cannot be, all at once."""

    optimizer: str = "adamw"
    recompute: str = "none"
    fused: bool = True  # attention that never writes its scores down
    zero: int = 0  # 1: the optimiser is shared among devices; 2: gradients too; 3: weights too
    n_devices: int = 1
    lora: int | None = None  # rank of adapters; all else is frozen
    quantised: bool = False  # frozen matrices in 4 bits (QLoRA)

    def __post_init__(self) -> None:
        faults = []
        if self.optimizer not in OPTIMIZERS:
            faults.append(Fault("optimizer", self.optimizer, "no such optimiser", f"one of {', '.join(OPTIMIZERS)}"))
        if self.recompute not in ("none", "selective", "full"):
            faults.append(Fault("recompute", self.recompute, "must be none, selective or full"))
        if self.zero not in (0, 1, 2, 3):
            faults.append(Fault("zero", self.zero, "must be 0, 1, 2 or 3"))
        if self.n_devices < 1:
            faults.append(Fault("devices", self.n_devices, "must be at least 1"))
        if self.zero and self.n_devices == 1:
            faults.append(Fault("zero", self.zero, "there is nobody to share with", "give --devices N"))
        if self.lora is not None and self.lora < 1:
            faults.append(Fault("lora", self.lora, "must be a rank of at least 1"))
        if self.quantised and self.lora is None:
            faults.append(Fault("qlora", None, "needs a rank"))
        if faults:
            raise PlainformerError(faults)


def adapted(spec: Spec, rank: int) -> Spec:
    """The spec with an adapter on every projection of attention and feed-forward (QLoRA, Dettmers et al. 2023,
    section 4), those of single experts, routers, heads and towers left out."""
    from plainformer.conventions import LORA_TARGETS, with_lora
    from plainformer.spec import Experts

    def plain(part: object) -> object:
        if not isinstance(part, Experts):
            return part
        return replace(part, expert=rewrite(part.expert, bare))

    def bare(part: object) -> object:
        return replace(part, lora=None) if isinstance(part, Linear) else part

    changed = with_lora(rewrite(spec, bare), rank, targets=[name for name in LORA_TARGETS if name != "head"])
    return replace(rewrite(changed, plain), towers=spec.towers)


NF4_BLOCK, NF4_SECOND = 64, 256


def nf4(row: Weight) -> int:
    """4 bits a number, 8 bits for each 64, a float32 for each 256 of these (Dettmers et al. 2023, section 3)."""
    blocks = -(-row.count // NF4_BLOCK)
    return -(-row.count // 2) + blocks + 4 * -(-blocks // NF4_SECOND)


@dataclass(frozen=True)
class Training:
    """Bytes that one of plan.n_devices holds, each for cost.batch_size sequences of cost.seq_len tokens."""

    plan: Plan
    n_trained: int
    weights: int
    gradients: int
    optimizer: int
    activations: int | None  # None: a part of the model has no rule for it
    logits: int
    flops_per_token: float  # forward and backward, without what is recomputed
    flops_done_per_token: float  # with it

    @property
    def before_activations(self) -> int:
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> int | None:
        return None if self.activations is None else self.before_activations + self.activations + self.logits

    @classmethod
    def of(cls, cost: Cost, plan: Plan) -> Training:
        spec = cost.spec if plan.lora is None else adapted(cost.spec, plan.lora)
        rows = Ledger.of(spec).weights
        trained = [row for row in rows if plan.lora is None or is_adapter(row)]
        if not trained:
            raise refuse("--lora", plan.lora, "no projection of this model takes an adapter")
        how = OPTIMIZERS[plan.optimizer]

        def share(n_bytes: int, stage: int) -> int:
            return -(-n_bytes // plan.n_devices) if plan.zero >= stage else n_bytes

        one = as_pass(cost, plan)
        tape = tape_of(spec, one)
        forward, both = operations(cost, spec, plan)
        again = recomputed(cost, spec, plan)
        n_tokens = cost.batch_size * cost.seq_len
        return cls(
            plan=plan,
            n_trained=sum(row.count for row in trained),
            weights=share(sum(frozen_or_trained(row, plan, how) for row in rows), 3),
            gradients=share(sum(how.gradient * row.count for row in trained), 2),
            optimizer=share(sum(how.master * row.count + how.state(row) for row in trained), 1),
            activations=tape.most if tape else None,
            logits=logits(spec, one),
            flops_per_token=(forward + both) / n_tokens,
            flops_done_per_token=(forward + both + again) / n_tokens,
        )


def as_pass(cost: Cost, plan: Plan) -> Pass:
    """The pass of a plan: frozen weights are 16 bits wide, and so is then the stream."""
    how, lora = OPTIMIZERS[plan.optimizer], plan.lora is not None
    sizes = (cost.batch_size, cost.seq_len, cost.source_len)
    wide, autocast = (2, False) if lora else (how.weight, how.autocast)
    return Pass(*sizes, plan.fused, plan.recompute, size=wide, autocast=autocast, adapters=lora)


def tape_of(spec: Spec, one: Pass) -> Tape | None:
    try:
        return taped(spec, one)
    except PlainformerError:  # a part without a rule
        return None


def frozen_or_trained(row: Weight, plan: Plan, how: Optimizer) -> int:
    """Bytes of the weights that compute."""
    if plan.lora is None or is_adapter(row):
        return how.weight * row.count
    packed = plan.quantised and row.kind in MATRICES and row.name.endswith("weight") and len(row.shape) > 1
    return nf4(row) if packed else 2 * row.count


def operations(cost: Cost, spec: Spec, plan: Plan) -> tuple[int, int]:
    """Forward and backward operations of a step. Every product has two gradients, each as dear as itself: one of its
    input, one of its weight; a frozen weight has none, and nothing goes back beyond the first adapter. Products of
    activations (scores) have both. Where a part has no rule for what it keeps, its input is taken to need one."""
    work = Work(cost.batch_size, cost.seq_len, cost.seq_len, cost.source_len)
    forward = flops(spec, work)
    if plan.lora is None:
        return forward, 2 * forward
    if tape := tape_of(spec, as_pass(cost, plan)):
        return forward, tape.backward
    adapters = forward - cost.forward_flops
    return forward, forward + adapters + products_of_activations(spec, work)


def products_of_activations(spec: Spec, work: Work) -> int:
    """Operations of scores and of mixing values: no weight is in them."""
    cross = sum(
        scores_and_mix(replace(work, n_all=work.n_source), part.n_heads, part.d_head, part.d_head)
        for _, part in walk(spec.main)
        if isinstance(part, Attention) and part.cross
    )
    if spec.decoder is None or spec.encoder is None:
        return flops(spec, work) - flops(spec, replace(work, n_all=0))
    source = Work(work.batch_size, work.n_source, work.n_source)
    encoder = flops(spec.encoder, source) - flops(spec.encoder, replace(source, n_all=0))
    return encoder + cross + flops(spec.decoder, work) - flops(spec.decoder, replace(work, n_all=0))


def recomputed(cost: Cost, spec: Spec, plan: Plan) -> int:
    """Operations of making activations again: the layers' forward pass, or attention's scores alone."""
    work = Work(cost.batch_size, cost.seq_len, cost.seq_len, cost.source_len)
    if plan.recompute == "full":
        return flops(spec, work) - flops(spec.head, work) - flops(spec.embedding, work)
    if plan.recompute == "selective":
        return products_of_activations(spec, work)
    return 0


def compute_optimal_tokens(parameters: float) -> float:
    """About 20 tokens a parameter (Hoffmann et al. 2022, table 3)."""
    return 20 * parameters


def energy_kwh(device_hours: float, watts: float) -> float:
    return device_hours * watts / 1000

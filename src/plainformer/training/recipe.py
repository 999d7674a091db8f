"""How a model is trained, as data: rates, schedule, sizes of a run. What is decided once, at the start, and kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from plainformer.cost.training import Recompute
from plainformer.text.reading import Documents
from plainformer.training.schedule import Schedule, Shape


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Which optimiser, and the peak rate of each group of weights."""

    optimizer: Literal["muon", "adamw"]
    matrices: float  # Muon's where the optimiser is Muon, else AdamW's
    embedding: float
    head: float
    rest: float  # gains, biases, position tables, routers
    decay: float = 0.0  # of the matrices: each step takes lr * decay of them away
    momentum: float = 0.95  # Muon's at last; it begins at 0.85
    momentum_steps: int = 100
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8

    def of(self, group: str) -> float:
        return float(getattr(self, group))

    def momentum_at(self, step: int) -> float:
        """From 0.85 to its last value in momentum_steps steps, evenly."""
        low = min(0.85, self.momentum)
        return low + (self.momentum - low) * min(1.0, step / max(1, self.momentum_steps))


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a run does where nothing else is said."""

    initial: str  # of initial.RECIPES
    rates: Rates
    batch_size: int
    steps: int
    shape: Shape
    warmup: int
    steady: float = 0.0  # the share of the steps before the decay
    floor: float = 0.0
    clip: float | None = None  # the longest gradient, all weights together


MUON = Recipe(
    initial="zero_out",
    rates=Rates(optimizer="muon", matrices=0.03, embedding=0.02, head=0.008, rest=0.008),
    batch_size=16,
    steps=900,
    shape="linear",
    warmup=10,
    steady=0.4,
)
ADAMW = Recipe(
    initial="gpt2",
    rates=Rates(optimizer="adamw", matrices=1e-3, embedding=1e-3, head=1e-3, rest=1e-3, decay=0.1, betas=(0.9, 0.99)),
    batch_size=12,
    steps=2000,
    shape="cosine",
    warmup=100,
    floor=0.1,
    clip=1.0,
)
RECIPES = {"muon": MUON, "adamw": ADAMW}
OF_PRESET = {"small": "muon", "tiny": "muon", "small-moe": "muon", "gpt2-style": "adamw"}

DTYPES = ("float32", "bfloat16", "float64")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Every decision of one run, frozen when it starts. With the text and the seed it says the weights to the bit."""

    preset: str
    tokenizer: str
    validation: float  # the share of the text, at its end, that is not trained on
    initial: str
    rates: Rates
    schedule: Schedule
    clip: float | None
    context: int
    batch_size: int
    micro_batch: int
    steps: int
    seed: int
    dtype: str  # of the products; weights and optimiser are float32 (float64 where that is asked for)
    threads: int
    eval_every: int
    save_every: int
    documents: Documents = "joined"
    field: str = "text"  # of a row of .jsonl
    base: str | None = None  # the model that it was begun from
    trained: Literal["all", "adapters"] = "all"
    recompute: Recompute = "none"  # of activations: kept, or made again on the way back
    compile: bool = False  # each layer's training pass, by torch
    fused: bool = False  # the steps between its products, by `fused`
    lanes: int = 1  # a micro-batch's rows in as many parts, side by side: each has its share of the threads
    loss_rows: int = 0  # positions whose logits are there at once; 0: all of a micro-batch's

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Settings:
        rates = Rates(**data["rates"] | {"betas": tuple(data["rates"]["betas"])})
        return Settings(**data | {"rates": rates, "schedule": Schedule(**data["schedule"])})

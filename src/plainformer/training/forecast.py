"""What a run will take, said before its first step, and beside it what it took."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from plainformer.cost import Cost
from plainformer.cost.training import OPTIMIZERS, Plan, Training
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.presets import presets
from plainformer.spec import Spec
from plainformer.text import TokenFile
from plainformer.training.material import Text
from plainformer.training.optimizers import optimizers_for
from plainformer.training.recipe import MUON, Settings
from plainformer.training.step import gradients
from plainformer.training.timing import seconds_a_step

ENOUGH_STEPS = 200  # below them, the few steps that are measured first would cost a part of the time worth telling
ADAPTERS = ("lora_a", "lora_b")


@dataclass(frozen=True)
class Forecast:
    """Of a whole run. memory: bytes that the process holds at most; seconds: of its steps and evaluations.

    None: not known, as memory is where a part of the model has no rule, and seconds of a run too short to measure.
    """

    parameters: int
    memory: int | None
    flops: float | None
    seconds: float | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def beside(self, taken: Forecast) -> dict[str, float | None]:
        """Taken over planned, by name."""
        both = {name: (value, getattr(taken, name)) for name, value in asdict(self).items()}
        return {name: then / plan if plan and then is not None else None for name, (plan, then) in both.items()}


def of_json(data: Mapping[str, Any] | None) -> Forecast | None:
    """What a run kept; None of a run that was started without."""
    known = ("parameters", "memory", "flops", "seconds")
    return Forecast(*(data[name] for name in known)) if data and all(name in data for name in known) else None


def forecast(
    spec: Spec, settings: Settings, text: Text, tokens: TokenFile | None, measured: bool | None = None
) -> Forecast:
    """measured: whether a few steps are timed for it; None: where the run is long enough."""
    n_tokens = settings.steps * settings.batch_size * settings.context
    timed = settings.steps >= ENOUGH_STEPS if measured is None else measured
    seconds = None
    if timed and tokens is not None and text.pairs is None:
        step, evaluation = seconds_a_step(spec, settings, tokens, warm=1, timed=2)
        seconds = settings.steps * step + -(-settings.steps // settings.eval_every) * evaluation
    flops = Cost.of(spec, settings.batch_size, settings.context).training_flops(n_tokens)
    whole = flops if settings.trained == "all" else None  # what is frozen has no gradient of its own
    return Forecast(Ledger.of(spec).total, memory_of(spec, settings), whole, seconds)


def memory_of(spec: Spec, settings: Settings) -> int | None:
    """What this process holds now, and what training adds: weights, gradients, the optimiser's averages, the copy that
    is being saved, activations and logits of the rows that are run at once."""
    wide = 8 if settings.dtype == "float64" else 4
    rows = Ledger.of(spec).weights
    trained = [w for w in rows if settings.trained == "all" or w.name.endswith(ADAPTERS)]
    how = OPTIMIZERS["muon" if settings.rates.optimizer == MUON.rates.optimizer else "adamw"]
    weights = wide * sum(w.count for w in rows)
    averages = wide // 4 * sum(how.state(w) for w in trained)
    gradient = wide * sum(w.count for w in trained)
    cost = Cost.of(spec, settings.micro_batch, settings.context, dtype="float32")
    of = Training.of(cost, Plan(optimizer="adamw-float32"))
    if of.activations is None:
        return None
    passing = wide // 4 * (of.activations + of.logits)
    load_all(settings)
    return resident() + 2 * (weights + averages) + gradient + passing


def load_all(settings: Settings) -> None:
    """A step of next to nothing: the code that training loads at its first one is then in memory already."""
    model = Transformer(presets.trainable("tiny", vocab_size=2, d_model=8, n_layers=1, n_heads=1), initial=None)
    x_BT = torch.zeros(1, 2, dtype=torch.long)
    gradients(model, x_BT, x_BT, 2, 1, settings.dtype)
    optimizers_for(model, settings).step()


def resident() -> int:
    """Bytes that this process holds in memory now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def most_resident() -> int | None:
    """Bytes that this process has held at most; None where the system does not say."""
    try:
        import resource
    except ImportError:
        return None
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else found * 1024


def taken(model: Transformer, settings: Settings, seconds: float) -> Forecast:
    """What a run that is at its end took. Operations are those that torch counts in a step of one row, times the rows:
    with the plain attention, whose products are all counted."""
    n_parameters = sum(w.numel() for w in model.parameters())
    return Forecast(n_parameters, most_resident(), counted(model, settings), seconds)


def counted(model: Transformer, settings: Settings) -> float | None:
    from torch.utils.flop_counter import FlopCounterMode

    if settings.trained != "all":
        return None
    x_BT = torch.zeros(1, settings.context, dtype=torch.long, device=model.device)
    counter = FlopCounterMode(display=False)
    before = {name: w.grad for name, w in model.named_parameters()}
    with counter, sdpa_kernel([SDPBackend.MATH]):
        gradients(model, x_BT, x_BT, model.spec.vocab_size, 1)
    for name, w in model.named_parameters():
        w.grad = before[name]
    return float(counter.get_total_flops()) * settings.batch_size * settings.steps

"""What a run will take, said before its first step, and beside it what it took."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from plainformer.cost.activations import logits, taped
from plainformer.cost.tape import Pass
from plainformer.cost.training import OPTIMIZERS, Recompute
from plainformer.faults import PlainformerError
from plainformer.ledger import Ledger
from plainformer.model import Transformer
from plainformer.presets import presets
from plainformer.report.figures import short
from plainformer.spec import Spec
from plainformer.text import TokenFile
from plainformer.training.decisions import Asked, of_one, room_there
from plainformer.training.finetuning import ADAPTERS
from plainformer.training.material import Text, tell
from plainformer.training.optimizers import optimizers_for
from plainformer.training.passing import as_it_is
from plainformer.training.peak import step_flops
from plainformer.training.processes import ALONE, Processes
from plainformer.training.recipe import MUON, Settings
from plainformer.training.step import gradients
from plainformer.training.timing import seconds_a_step
from plainformer.training.uncompiled import left_alone

ENOUGH_STEPS = 200  # below them, the few steps that are measured first would cost a part of the time worth telling
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


@dataclass(frozen=True)
class Forecast:
    """Of a whole run. memory: bytes that the process holds at most; seconds: of its steps and evaluations.

    None: not known, as memory is where a part of the model has no rule, and seconds of a run too short to measure.
    """

    parameters: int
    memory: int | None
    flops: float
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
    spec: Spec,
    settings: Settings,
    text: Text,
    tokens: TokenFile | None,
    measured: bool | None = None,
    seconds: float | None = None,
) -> Forecast:
    """measured: whether a few steps are timed for it; None: where the run is long enough. seconds: told already."""
    timed = settings.steps >= ENOUGH_STEPS if measured is None else measured
    if seconds is None and timed and tokens is not None and text.pairs is None:
        step, evaluation = seconds_a_step(spec, settings, tokens, warm=1, timed=2)
        seconds = settings.steps * step + -(-settings.steps // settings.eval_every) * evaluation
    flops = settings.steps * step_flops(spec, settings)
    memory = memory_of(spec, settings)
    if memory is not None and not torch.cuda.is_available():
        load_all(settings)
        memory += resident()
    return Forecast(Ledger.of(spec).total, memory, flops, seconds)


def memory_of(spec: Spec, settings: Settings, shares: int = 1) -> int | None:
    """What training adds to a process: weights, a gradient for each lane and their sum, the optimiser's averages, the
    copy that is being saved, activations and logits of the rows that are run at once. On a GPU: what it holds.
    shares: among how many processes all but the passes is shared."""
    wide = 8 if settings.dtype == "float64" else 4
    rows = Ledger.of(spec).weights
    trained = [w for w in rows if settings.trained == "all" or w.name.endswith(ADAPTERS)]
    how = OPTIMIZERS["muon" if settings.rates.optimizer == MUON.rates.optimizer else "adamw"]
    weights = wide * sum(w.count for w in rows)
    averages = wide // 4 * sum(how.state(w) for w in trained)
    gradient = wide * sum(w.count for w in trained)
    n_gradients = settings.lanes + (settings.lanes > 1)  # each lane's, and their sum
    passing = passing_bytes(spec, settings)
    if passing is None:
        return None
    if torch.cuda.is_available():  # what is saved is copied to this machine's own memory
        return (weights + averages + gradient) // shares + passing
    return (2 * (weights + averages) + n_gradients * gradient) // shares + passing


def passing_bytes(spec: Spec, settings: Settings) -> int | None:
    """Bytes of activations and logits of the rows that are run at once, at the worst moment: when the loss is there,
    or after it, when a layer is made again."""
    one = Pass(
        settings.micro_batch,
        settings.context,
        recompute=settings.recompute,
        size=8 if settings.dtype == "float64" else 4,
        autocast=settings.dtype == "bfloat16",
        adapters=settings.trained == "adapters",
        processor=not torch.cuda.is_available(),
        steps=settings.fused,
    )
    try:
        tape = taped(spec, one)
    except PlainformerError:  # a part without a rule
        return None
    at_once = min(settings.lanes * settings.loss_rows, settings.micro_batch * settings.context)
    return max(tape.n_bytes + logits(spec, one, at_once), tape.most)


def fitted(
    spec: Spec, settings: Settings, asked: Asked, memory: int | None = None, processes: Processes = ALONE
) -> Settings:
    """The settings with activations kept, or made again where a process's memory is too small for all of them: told
    where it is so. memory: another machine's, in bytes."""
    room, one = memory or room_there(), of_one(settings, processes)
    if "recompute" in asked or room is None:
        return settings
    need = {how: memory_of(spec, replace(one, recompute=how), processes.shares) for how in RECOMPUTE}
    fits = [how for how in RECOMPUTE if (n_bytes := need[how]) is not None and n_bytes <= room]
    least = fits[0] if fits else "full"
    if least == "none" or need["none"] is None:
        return settings
    tell(
        f"{short(need['none'], 'B')} would be needed and there are {short(room, 'B')}: activations are made again "
        f"(--recompute {least}), which takes {short(need[least] or 0, 'B')}"
    )
    return replace(settings, recompute=least)


def load_all(settings: Settings) -> None:
    """A step of next to nothing: the code that training loads at its first one is then in memory already."""
    model = Transformer(presets.trainable("tiny", vocab_size=2, d_model=8, n_layers=1, n_heads=1), initial=None)
    x_BT = torch.zeros(1, 2, dtype=torch.long)
    gradients(model, x_BT, x_BT, 2, 1, settings.dtype)
    optimizers_for(model, settings, lanes=1).step()


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


def most_held() -> int | None:
    """Bytes that a run has held at most, where its weights are: on the GPU, or in this process."""
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else most_resident()


def taken(model: Transformer, settings: Settings, seconds: float) -> Forecast:
    """What a run that is at its end took. Operations are those that torch counts in a step of one row, times the rows:
    with the plain attention, whose products are all counted."""
    n_parameters = sum(w.numel() for w in model.parameters())
    return Forecast(n_parameters, most_held(), counted(model, settings), seconds)


def counted(model: Transformer, settings: Settings) -> float:
    from torch.utils import flop_counter

    for kind in vars(flop_counter).values():
        if isinstance(kind, type) and "__torch_dispatch__" in vars(kind):
            left_alone(vars(kind)["__torch_dispatch__"])
    x_BT = torch.zeros(1, settings.context, dtype=torch.long, device=model.device)
    counter = flop_counter.FlopCounterMode(display=False)
    before = {name: w.grad for name, w in model.named_parameters()}
    with counter, as_it_is(model), sdpa_kernel([SDPBackend.MATH]):
        gradients(model, x_BT, x_BT, model.spec.vocab_size, 1)
    for name, w in model.named_parameters():
        w.grad = before[name]
    return float(counter.get_total_flops()) * settings.batch_size * settings.steps

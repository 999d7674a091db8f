"""L9 for every tiny spec and for decoders drawn by chance: what a cost says is what torch, autograd, a state and the
optimisers are seen to do and to hold. And each law notices a rule or a model that is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import cost_laws as laws  # noqa: E402
import measured  # noqa: E402
from mutants import Break, breaks, rule  # noqa: E402
from plainformer import kernels, layers  # noqa: E402
from plainformer import model as m  # noqa: E402
from plainformer import spec as s  # noqa: E402
from plainformer.cost import Cost, cache, serving, training  # noqa: E402
from plainformer.cost.activations import activations, keeps, logits, taped  # noqa: E402
from plainformer.cost.flops import flops  # noqa: E402
from plainformer.cost.tape import Pass, Tape  # noqa: E402
from plainformer.families import decoders, llamas, mixtures  # noqa: E402
from plainformer.presets import presets  # noqa: E402
from plainformer.states import State, Where  # noqa: E402
from plainformer.training.optimizers import Optimizers  # noqa: E402
from specs import ENCODERS, PAIRS, TINY, has_experts, spec_of  # noqa: E402

pytestmark = pytest.mark.no_shape_names  # other tests watch those; this file is three times as fast without
SEEDS = [*(str(seed) for seed in range(8)), "23"]  # 23: a bias of distances, and layers of different windows
MORE = [pytest.param(str(seed), marks=pytest.mark.proof) for seed in range(8, 200) if str(seed) not in SEEDS]
each_tiny_spec = pytest.mark.parametrize("name", [*TINY, *ENCODERS, *PAIRS, *SEEDS, *MORE])
DENSE = [seed for seed in SEEDS if not has_experts(spec_of(seed))]


def has_window(name: str) -> bool:
    return any(part.window for part in cache.Cache.of(spec_of(name)).parts)


WINDOWS = [name for name in (*TINY, *SEEDS) if has_window(name)]


@each_tiny_spec
def test_weights_take_what_is_said(name: str) -> None:
    laws.weights_take_what_is_said(spec_of(name))


@each_tiny_spec
def test_operations_are_those_that_torch_counts(name: str) -> None:
    laws.work_is_what_torch_counts(spec_of(name))


@each_tiny_spec
def test_autograd_keeps_what_is_said(name: str) -> None:
    laws.autograd_keeps_what_is_said(spec_of(name))


@pytest.mark.parametrize("name", [*TINY, *ENCODERS, *PAIRS, *DENSE])
def test_products_in_16_bits_keep_what_is_said(name: str) -> None:
    laws.autocast_keeps_what_is_said(spec_of(name))


@each_tiny_spec
def test_adapters_keep_what_is_said(name: str) -> None:
    laws.adapters_keep_what_is_said(spec_of(name))


@each_tiny_spec
def test_what_is_made_again_is_there_once_more(name: str) -> None:
    laws.what_is_made_again_is_there_once_more(spec_of(name))


@each_tiny_spec
def test_with_the_norms_of_an_accelerator_less_is_kept(name: str) -> None:
    laws.with_the_norms_of_an_accelerator_less_is_kept(spec_of(name))


@each_tiny_spec
def test_a_step_with_a_state_does_what_is_said(name: str) -> None:
    laws.a_step_with_a_state_does_what_is_said(spec_of(name))


@each_tiny_spec
def test_a_state_holds_what_is_said(name: str) -> None:
    laws.a_state_holds_what_is_said(spec_of(name))


@pytest.mark.parametrize("name", [*WINDOWS, *MORE])
def test_a_window_needs_what_is_said(name: str) -> None:
    laws.a_window_needs_what_is_said(spec_of(name))


@each_tiny_spec
def test_optimizers_hold_what_is_said(name: str) -> None:
    laws.optimizers_hold_what_is_said(spec_of(name))


@pytest.mark.parametrize("name", presets)
def test_the_two_counts_of_operations_agree_on_what_is_published(name: str) -> None:
    """A rule's own count, and the products on the tape of what a pass keeps."""
    cost = Cost.of(presets[name], batch_size=3, seq_len=16, source_len=9)
    assert taped(cost.spec, Pass(3, 16, cost.source_len)).forward == cost.forward_flops


SHOWN = ("gpt2", "llama-3-8b", "bert-base", "t5-small")
DENSE_PRESETS = [name for name in presets if not has_experts(presets[name])]  # experts are not run without numbers
OTHERS = [pytest.param(name, marks=pytest.mark.proof) for name in DENSE_PRESETS if name not in SHOWN]


@pytest.mark.parametrize("name", [*SHOWN, *OTHERS])
def test_published_models_do_and_keep_what_is_said(name: str) -> None:
    laws.published_models_do_and_keep_what_is_said(presets[name])


# --- a step's memory --------------------------------------------------------------------------------------------------

WIDE: dict[str, Any] = {"vocab_size": 256, "max_seq_len": 256, "d_model": 96, "n_layers": 4}
GROUPED = WIDE | {"n_heads": 4, "n_kv_heads": 2, "d_head": 24}
SHAPES: dict[str, Callable[[], s.Spec]] = {
    "gpt2": lambda: decoders.gpt2(**WIDE, n_heads=4),
    "llama": lambda: llamas.llama(**GROUPED, d_ff=256),
    "mixtral": lambda: mixtures.mixtral(**GROUPED, d_ff=128, n_experts=4, n_chosen=2),
}


def share_of_the_peak(name: str) -> float:
    """What the costs say of a step's worst moment, over what is held at it. No gradient of a weight is there yet."""
    spec, batch, length = SHAPES[name](), 16, 256
    of = Pass(batch, length, size=4, processor=True)
    said = Cost.of(spec).weights_bytes("float32") + activations(spec, of) + logits(spec, of)
    return said / measured.most_alive(measured.ready(spec), batch, length)


@pytest.mark.proof
@pytest.mark.parametrize("name", SHAPES)
def test_where_activations_dominate_the_peak_is_what_is_said_within_a_tenth(name: str) -> None:
    assert share_of_the_peak(name) == pytest.approx(1, abs=0.1)


@pytest.mark.proof
def test_a_peak_that_is_higher_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a GELU written out, whose every step is kept."""
    monkeypatch.setitem(kernels.ACTIVATIONS, "gelu_tanh", lambda x: 0.5 * x * (1 + (x / 2**0.5).erf()))
    assert share_of_the_peak("gpt2") < 0.9


# --- broken on purpose ------------------------------------------------------------------------------------------------


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.callbacks = []  # type: ignore[attr-defined]
    yield monkeypatch
    for undo in monkeypatch.callbacks:  # type: ignore[attr-defined]
        undo()


def two_masks(original: Any) -> Any:
    """The plain attention with a mask of its own for each use."""

    def attention(q: Any, k: Any, v: Any, allowed: Any, scale: float, *rest: Any) -> Any:
        _, weights = original(q, k, v, allowed, scale, *rest)
        again = weights.masked_fill(~allowed, 0)
        return again @ v.repeat_interleave(q.shape[-3] // v.shape[-3], -3), again

    return attention


def heads_first(original: Any) -> Any:
    """Turned heads in the order of heads: attention's answer lies so too, and is copied."""
    return staticmethod(lambda *args: original(*args).contiguous())


def with_state(one: Any, state: Any) -> Any:
    return training.Optimizer(one.says, one.weight, one.gradient, one.master, state)


NO_BIAS = breaks(
    layers.Linear, "__init__", lambda original: lambda self, part, *n: original(self, replace(part, bias=False), *n)
)
HALF_BACK = breaks(Tape, "product", lambda original: lambda self, n, *grads: original(self, n, *grads[:1]))
UNGATED = rule(s.FeedForward, lambda original: lambda part, work: original(replace(part, gate=None), work), flops)
TWICE = breaks(
    m.Head, "forward", lambda original: lambda self, *args: (original(self, *args), original(self, *args))[1]
)
NORMS_FREE = rule(s.Norm, lambda _: lambda part, x, tape: tape.new(x.n, x), keeps)
ALL_TRAIN = breaks(Tape, "trains", lambda _: property(lambda self: True))
ONE_COPY = breaks(Tape, "narrow", lambda original: lambda self, x: self.once(("narrow", x), lambda: original(self, x)))
FREE_AGAIN = breaks(Tape, "again", lambda original: lambda self, inputs, run: original(self, [], run))
ONCE = breaks(
    Tape,
    "again",
    lambda _: lambda self, inputs, run: (self.keep(*inputs), run(Tape(self.of)))[1],
)
SOURCE_ANEW = breaks(serving, "made_once", lambda _: lambda cost, step: 0)
EVERY_HEAD = rule(
    s.Attention, lambda original: lambda part: original(replace(part, n_kv_heads=part.n_heads)), cache.kept
)
NO_WINDOW = rule(s.Attention, lambda original: lambda part: original(replace(part, window=None)), cache.kept)
ROOMIER = breaks(State, "__init__", lambda original: lambda self, n, capacity, *spare: original(self, n, capacity + 1))
WIDER = breaks(
    Where, "allowed", lambda original: lambda self, window, n: original(self, None if window is None else window + 1, n)
)
SAID_ANEW = rule(s.Attention, lambda original: lambda part: original(replace(part, cross=False)), cache.kept)
MUON_FOR_ALL = breaks(Optimizers, "group_of", lambda _: lambda self, kind, n: "muon" if n >= 2 else "rest")
MOMENTS = breaks(training.OPTIMIZERS, "muon", lambda one: with_state(one, lambda row: 8 * row.count))


TWINS: tuple[tuple[str, Callable[[s.Spec], None], str, Break], ...] = (
    ("a model without biases", laws.weights_take_what_is_said, "gpt2", NO_BIAS),
    ("a product with one gradient", laws.work_is_what_torch_counts, "gpt2", HALF_BACK),
    ("a gate that is not counted", laws.work_is_what_torch_counts, "llama", UNGATED),
    ("a head that works twice", laws.work_is_what_torch_counts, "bert", TWICE),
    ("norms that keep nothing", laws.autograd_keeps_what_is_said, "t5", NORMS_FREE),
    ("a mask for each use", laws.autograd_keeps_what_is_said, "gpt2", breaks(m, "attention", two_masks)),
    ("heads in another order", laws.autograd_keeps_what_is_said, "llama", breaks(m.Attention, "rotate", heads_first)),
    ("a head that works twice", laws.published_models_do_and_keep_what_is_said, "llama", TWICE),
    ("one copy for queries, keys and values", laws.autocast_keeps_what_is_said, "gpt2", ONE_COPY),
    ("frozen weights that ask for their input", laws.adapters_keep_what_is_said, "mixtral", ALL_TRAIN),
    ("inputs of layers forgotten", laws.what_is_made_again_is_there_once_more, "bart", FREE_AGAIN),
    ("nothing there once more", laws.what_is_made_again_is_there_once_more, "gpt2", ONCE),
    ("norms that keep nothing", laws.with_the_norms_of_an_accelerator_less_is_kept, "llama", NORMS_FREE),
    ("the source read at every step", laws.a_step_with_a_state_does_what_is_said, "bart", SOURCE_ANEW),
    ("keys of every head", laws.a_state_holds_what_is_said, "llama", EVERY_HEAD),
    ("a state with room for one more", laws.a_state_holds_what_is_said, "deepseek-v3", ROOMIER),
    ("the source as a text of its own", laws.a_state_holds_what_is_said, "bart", SAID_ANEW),
    ("a window that is not held to", laws.a_window_needs_what_is_said, "mistral", NO_WINDOW),
    ("a window of one more", laws.a_window_needs_what_is_said, "gpt2-window-1", WIDER),
    ("Muon for tables", laws.optimizers_hold_what_is_said, "gpt2", MUON_FOR_ALL),
    ("two moments for all", laws.optimizers_hold_what_is_said, "gpt-oss", MOMENTS),
)


@pytest.mark.parametrize(
    "what, law, name, broken", TWINS, ids=[f"{law.__name__}: {what}, {name}" for what, law, name, _ in TWINS]
)
def test_a_cost_that_is_broken_is_noticed(
    what: str, law: Callable[[s.Spec], None], name: str, broken: Break, patch: Any
) -> None:
    law(spec_of(name))  # it holds
    broken(patch)
    with pytest.raises(AssertionError):
        law(spec_of(name))


def test_every_law_of_costs_has_a_twin_that_it_catches() -> None:
    told = {
        name
        for name, law in vars(laws).items()
        if callable(law) and getattr(law, "__annotations__", {}) == {"spec": "s.Spec", "return": "None"}
    }
    assert told == {law.__name__ for _, law, _, _ in TWINS}

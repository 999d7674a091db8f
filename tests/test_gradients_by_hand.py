"""L2, gradients by hand: those of the reference are torch's of the model, and the slopes of the reference's own loss.

B rows, T positions, S all positions, H heads, G kv heads, K d_head, J d_value, V vocabulary, E experts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import laws
import specs
import test_readings
from mutants import Break, breaks
from plainformer import formulas, gradients, kernels, reference
from plainformer import spec as s
from plainformer.faults import PlainformerError
from plainformer.gradients import experts, parts, two_tokens, whole
from plainformer.gradients import formulas as back
from plainformer.ledger import Ledger
from plainformer.mixers import LatentAttention
from plainformer.model import Transformer
from plainformer.training import optimizers
from plainformer.training.step import gradients as of_training

CLOSE = 1e-12
ALL = [*specs.TINY, *specs.ENCODERS, *specs.PAIRS, *map(str, range(40))]
BALANCED = {
    "mixtral": specs.change(specs.MIXTRAL, s.Experts, balance=0.3),
    "deepseek-v3": specs.change(specs.spec_of("deepseek-v3"), s.Experts, balance=0.5),
    "shared passes": specs.shared(specs.change(specs.MIXTRAL, s.Experts, balance=0.3), 0, 1, 0),
}


def asked(spec: s.Spec, n_rows: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(tokens, targets of which one is ignored, what the encoder reads), a row each."""
    tokens_BT, source_BS = specs.tokens_of(spec, n_rows, 7), laws.source_of(spec, n_rows)
    tokens_BT[:, 4] = tokens_BT[:, 1]  # one is met twice
    source_S = None if source_BS is None else source_BS[0]
    n_answers, n_scored = reference.logits(spec, specs.arrays_of(spec), tokens_BT[0], source_S=source_S).shape
    targets_BT = np.random.default_rng(1).integers(0, n_scored, (n_rows, n_answers))
    if n_answers > 1:
        targets_BT[0, 1] = -1
    return tokens_BT, targets_BT, source_BS


def named(model: Transformer) -> dict[str, np.ndarray]:
    """Every weight's gradient; 0 where torch has none."""
    return {
        name: np.zeros(w.shape) if w.grad is None else w.grad.numpy().copy() for name, w in model.named_parameters()
    }


def alike(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    """The same names and, to 1e-12 of the largest entry of all, the same numbers."""
    assert list(got) == list(want)
    largest = max(float(np.abs(grad).max()) for grad in want.values())
    assert largest > 1e-3
    for name, grad in want.items():
        assert got[name].shape == grad.shape, name
        gap = float(np.abs(got[name] - grad).max(initial=0)) / largest
        assert gap <= CLOSE, f"{name}: off by {gap:.3g} of the largest"


def the_gradients_by_hand_are_torch_s(spec: s.Spec) -> None:
    """Along every weight, and along what both keep on the way: attention weights, scores and gates, the stream."""
    tokens_BT, targets_BT, source_BS = asked(spec)
    arrays, seen, to = specs.arrays_of(spec), dict[str, Tensor](), gradients.Slopes.along(spec)
    model = laws.double(spec, arrays)
    memory = laws.heard(model, 1, seen)
    said_BTV = model(torch.from_numpy(tokens_BT), memory=memory, trace=seen)
    kept = {place: y for place, y in seen.items() if y.requires_grad}
    loss = kernels.cross_entropy(said_BTV, torch.from_numpy(targets_BT)).sum() / max(1, (targets_BT >= 0).sum())
    for y in kept.values():
        y.retain_grad()
    loss.backward()
    told, got = gradients.loss_and_gradients(spec, arrays, tokens_BT, targets_BT, source_BS, to=to)
    laws.close(told, loss, "loss")
    alike(got, named(model))
    met = {place: y.grad for place, y in kept.items() if y.grad is not None}
    assert met.keys() <= to.trace.keys()
    for place, grad in met.items():
        want = grad.numpy() if laws.by_token(place) else grad[0].numpy()
        met_by = seen[place].detach().numpy() > 0 if place.endswith("gates") else True  # the rest meet no expert
        laws.close(to.trace[place], np.where(met_by, want, 0), place)


@pytest.mark.parametrize("name", ALL)
def test_the_gradients_by_hand_are_torch_s(name: str) -> None:
    the_gradients_by_hand_are_torch_s(specs.spec_of(name))


# An encoder that nobody hears, a stack of distances that nobody reads, beside all else: always; the rest as proof.
SHORT = {(s.Branch, "part"), (s.Stack, "relative"), (s.Spec, "encoder")}
FIELDS = [pytest.param(*one, marks=[] if one in SHORT else pytest.mark.proof) for one in test_readings.FIELDS]


@pytest.mark.no_shape_names
@pytest.mark.parametrize("kind, field", FIELDS, ids=lambda one: getattr(one, "__name__", one))
def test_a_field_heeded_on_the_way_there_is_heeded_on_the_way_back(kind: type, field: str) -> None:
    for _, changed in test_readings.changes(kind, field, 1):
        if changed is not None and test_readings.outcomes(changed, specs.arrays_of(changed))[0].what == "ran":
            the_gradients_by_hand_are_torch_s(changed)


def a_batch_s_gradients_are_the_training_s(spec: s.Spec) -> None:
    """Several rows, targets ignored in some, balance losses over all of them."""
    tokens_BT, targets_BT, _ = asked(spec, 3)
    targets_BT[2, 2:] = -1
    model, arrays = laws.double(spec, specs.arrays_of(spec)), specs.arrays_of(spec)
    nats = of_training(model, torch.from_numpy(tokens_BT), torch.from_numpy(targets_BT), spec.vocab_size, 2)
    told, got = gradients.loss_and_gradients(spec, arrays, tokens_BT, targets_BT)
    uneven = sum(part.balance for _, part in specs.walk(spec.main.layers) if isinstance(part, s.Experts))
    assert told > nats + uneven / 4 if uneven else abs(told - nats) < CLOSE
    alike(got, named(model))


@pytest.mark.parametrize("spec", [*BALANCED.values(), specs.GPT2], ids=[*BALANCED, "gpt2"])
def test_a_batch_s_gradients_are_the_training_s(spec: s.Spec) -> None:
    a_batch_s_gradients_are_the_training_s(spec)


def test_types_of_two_sentences_are_two_rows() -> None:
    spec, types_BT = specs.BERT, np.array([[0, 0, 0, 1, 1, 1, 1]])
    tokens_BT, targets_BT, _ = asked(spec)
    model = laws.double(spec, specs.arrays_of(spec))
    said_BTV = model(torch.from_numpy(tokens_BT), types_BT=torch.from_numpy(types_BT))
    (kernels.cross_entropy(said_BTV, torch.from_numpy(targets_BT)).sum() / 6).backward()
    _, got = gradients.loss_and_gradients(spec, specs.arrays_of(spec), tokens_BT[0], targets_BT[0], types=types_BT[0])
    alike(got, named(model))
    assert (np.abs(got["embedding.types.weight"]).max(-1) > 0).all()


# --- slopes by nudging ------------------------------------------------------------------------------------------------


def the_gradients_by_hand_are_slopes(spec: s.Spec) -> None:
    """One entry of every array, by chance: the loss at four points beside it, so that the error is tiny."""
    tokens_BT, targets_BT, source_BS = asked(spec)
    arrays, rng = specs.arrays_of(spec), np.random.default_rng(2)
    source_S = None if source_BS is None else source_BS[0]

    def loss(moved: dict[str, np.ndarray]) -> float:
        said = reference.logits(spec, moved, tokens_BT[0], source_S=source_S)
        real = targets_BT[0] >= 0
        return float(formulas.cross_entropy(said, targets_BT[0])[real].mean())

    told, got = gradients.loss_and_gradients(spec, arrays, tokens_BT, targets_BT, source_BS)
    assert abs(told - loss(arrays)) < CLOSE
    largest = max(float(np.abs(grad).max()) for grad in got.values())
    for name, grad in got.items():
        met = np.argwhere(grad) if grad.any() else np.argwhere(np.ones(grad.shape))
        at = tuple(met[rng.integers(len(met))])
        slope = gradients.nudged(loss, arrays, name, at)
        assert abs(slope - grad[at]) <= 1e-6 * max(abs(slope), 1e-2 * largest), f"{name}{at}: {grad[at]} is not {slope}"


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.proof) if n.isdigit() else n for n in ALL])
@pytest.mark.no_shape_names
def test_the_gradients_by_hand_are_slopes(name: str) -> None:
    the_gradients_by_hand_are_slopes(specs.spec_of(name))


def test_the_balance_in_the_loss_is_the_one_in_the_slopes() -> None:
    spec = BALANCED["mixtral"]
    tokens_BT, targets_BT, _ = asked(spec, 2)
    arrays, name = specs.arrays_of(spec), "decoder.layers.1.feed_forward.router.scores.weight"

    def loss(moved: Any) -> float:
        return gradients.loss_and_gradients(spec, moved, tokens_BT, targets_BT)[0]

    _, got = gradients.loss_and_gradients(spec, arrays, tokens_BT, targets_BT)
    for e in range(5):
        assert abs(gradients.nudged(loss, arrays, name, (e, 3)) - got[name][e, 3]) < 1e-8


# --- what a lesson shows ----------------------------------------------------------------------------------------------


def test_two_tokens_can_be_followed_all_the_way_back() -> None:
    loss, to = two_tokens.way_back()
    spec, arrays = two_tokens.spec(), two_tokens.arrays()

    def nats(moved: Any) -> float:
        said_TV = reference.logits(spec, moved, two_tokens.TOKENS)
        return float(formulas.cross_entropy(said_TV, two_tokens.TARGETS).mean())

    assert abs(loss - nats(arrays)) < CLOSE
    reference.check_arrays(spec, arrays)
    for name, grad in to.of.items():
        for at in np.ndindex(grad.shape):
            assert abs(gradients.nudged(nats, arrays, name, at) - grad[at]) < 1e-9, f"{name}{at}"
    assert all(grad.any() for grad in to.of.values())


def test_the_way_back_passes_every_part_the_outermost_last() -> None:
    """Each hands on the slope that it was given; a stack begins and ends with those of its norms and layers."""
    _, to = two_tokens.way_back()
    places = [met.place for met in to.met]
    assert places[0] == "head"
    assert places[-1] == "embedding"
    layer = "decoder.layers.0"
    assert places[places.index(f"{layer}.attention.out") :][:5] == [
        *(f"{layer}.attention.{name}" for name in ("out", "q", "k", "v")),
        f"{layer}.attention",
    ]
    parts_met = {type(met.part) for met in to.met}
    assert parts_met == {s.Head, s.Norm, s.Linear, s.FeedForward, s.Residual, s.Attention, s.Stack, s.Table, s.Tokens}
    for met in to.met:
        there = reference.Where(np.arange(2))
        y = reference.run(met.part, reference.Weights(two_tokens.arrays(), met.place), met.x, there)
        assert met.d_y.shape == y.shape, met.place
        assert met.d_x.shape == met.x.shape, met.place
    stack, last = next(met for met in to.met if met.place == "decoder"), to.met[1]
    assert stack.d_y is last.d_y
    assert np.array_equal(stack.d_x, to.trace["decoder.stream.0"])


def width_in(part: Any) -> int | None:
    """How wide the rows are that a part reads; None for those that read numbers of rows, or another's too."""
    match part:
        case s.Linear() | s.NormedLinear() | s.Bottleneck():
            return laws.s_in(part)
        case s.Norm():
            return part.width
        case s.Attention() | LatentAttention():
            return laws.s_in(part.q)
        case s.FeedForward():
            return part.up.n_in
        case s.Experts():
            return part.router.scores.n_in
        case s.ChosenSoftmaxRouter() | s.SoftmaxRouter() | s.SigmoidRouter():
            return part.scores.n_in
        case s.Residual():
            return width_in(part.branches[0].part)
        case s.Stack():
            return width_in(part.layers[0][0])
        case s.Head():
            return None if part.tied else (part.transform or part.linear).n_in
    return None


@pytest.mark.no_shape_names
@pytest.mark.parametrize(
    "name", ["qwen3", "deepseek-v3", "qwen2-moe", "mixtral", "gpt-oss", "layers-shared", "bert-mean"]
)
def test_a_part_alone_goes_back_too(name: str) -> None:
    """Each by itself: the slopes of its weights, and of what it reads."""
    seen = set()
    for part in dict.fromkeys(part for _, part in specs.walk(specs.spec_of(name)) if width_in(part)):
        arrays, where = specs.arrays_of(part), reference.Where(np.arange(5))
        x = rng.normal(size=(5, width_in(part)))
        d_y = rng.normal(size=reference.run(part, reference.Weights(arrays), x, where).shape)
        to = gradients.Slopes.along(part)
        found = {"x": gradients.backward(part, reference.Weights(arrays), x, where, d_y, to), **to.of}

        def told(moved: Any, part: Any = part, where: Any = where, d_y: Any = d_y) -> float:
            return float((reference.run(part, reference.Weights(moved), moved["x"], where) * d_y).sum())

        for what, grad in found.items():
            at = tuple(rng.integers(grad.shape))
            slope = gradients.nudged(told, arrays | {"x": x}, what, at)
            assert abs(slope - grad[at]) <= 1e-7 * max(1, np.abs(grad).max()), f"{type(part).__name__}: {what}{at}"
        seen.add(type(part))
    assert len(seen) > 4


# --- each formula alone -----------------------------------------------------------------------------------------------

rng = np.random.default_rng(5)
X, D_Y, WEIGHT, GAIN, BIAS = (rng.normal(0, 1.5, shape) for shape in ((2, 5, 6), (2, 5, 6), (6, 6), (6,), (6,)))
Q, K, V = rng.normal(0, 2, (2, 5, 4)), rng.normal(0, 2, (2, 7, 4)), rng.normal(0, 2, (2, 7, 3))
SEE = np.tril(np.ones((5, 7), bool), 1)
SEE[0] = False  # a query that may see nothing
DISTANCES, SINKS, D_OUT = rng.normal(size=(2, 5, 7)), rng.normal(size=2), rng.normal(size=(2, 5, 3))
POSITIONS = np.array([0, 3, 4, 9, 30])
CHOSEN = formulas.choose(X[0], 2)


def by_torch(f: Callable[..., Tensor], d_y: np.ndarray, *inputs: np.ndarray) -> list[np.ndarray]:
    tensors = [torch.from_numpy(x.copy()).requires_grad_() for x in inputs]
    f(*tensors).backward(torch.from_numpy(d_y.copy()))
    return [x.grad.numpy() for x in tensors if x.grad is not None]


def all_alike(got: Any, want: list[np.ndarray]) -> None:
    for a, b in zip(got, want, strict=True):
        laws.close(a, b, "a slope", 1e-13)


def test_a_linear_backwards() -> None:
    all_alike(back.linear_back(X, WEIGHT, D_Y), by_torch(F.linear, D_Y, X, WEIGHT))


@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_norms_backwards(eps: float) -> None:
    layer = by_torch(lambda x, gain, bias: F.layer_norm(x, (6,), gain, bias, eps), D_Y, X, GAIN, BIAS)
    all_alike(back.layer_norm_back(X, GAIN, eps, D_Y), layer)
    rms = by_torch(lambda x, gain: F.rms_norm(x, (6,), gain, eps), D_Y, X, GAIN)
    all_alike(back.rms_norm_back(X, GAIN, eps, D_Y), rms)


@pytest.mark.parametrize("name", back.SLOPES)
def test_activations_backwards(name: str) -> None:
    wide = np.concatenate((X, [np.zeros((5, 6)), np.full((5, 6), 30.0), np.full((5, 6), -30.0)]))
    (want,) = by_torch(kernels.ACTIVATIONS[name], np.ones_like(wide), wide)
    laws.close(back.SLOPES[name](wide), want, name, 1e-14)
    assert back.SLOPES.keys() == formulas.ACTIVATIONS.keys()


@pytest.mark.parametrize("name", [*back.SLOPES, "swiglu_clamped"])
def test_gated_activations_backwards(name: str) -> None:
    gate, up = 4 * X, 6 * D_Y  # some beyond the clamp
    want = by_torch(lambda gate, up: kernels.activated(name, gate, up), D_Y, gate, up)
    all_alike(back.gated_back(name, gate, up, D_Y), want)


def test_softmax_with_a_mask_cap_and_sums_backwards() -> None:
    p = formulas.softmax(X[0], CHOSEN)
    hide = torch.from_numpy(~CHOSEN)
    want = by_torch(lambda x: x.masked_fill(hide, -torch.inf).softmax(-1), D_Y[0], X[0])
    all_alike([back.softmax_back(p, D_Y[0])], want)
    all_alike([back.softcap_back(X, 1.5, D_Y)], by_torch(lambda x: 1.5 * torch.tanh(x / 1.5), D_Y, X))
    want = by_torch(lambda x: x / (x.sum(-1, keepdim=True) + 0.1), D_Y, np.abs(X))
    all_alike([back.normalised_back(np.abs(X), D_Y, 0.1)], want)


@pytest.mark.parametrize("scaling", [None, specs.LINEAR, specs.LLAMA3, specs.YARN, specs.DYNAMIC])
@pytest.mark.parametrize("interleaved", [False, True])
def test_a_turn_backwards(interleaved: bool, scaling: s.Scaling | None) -> None:
    """A pair is a complex number, and a turn a product."""
    rotary = s.Rotary(theta=50.0, n_dims=4, interleaved=interleaved, scaling=scaling)
    angle = torch.from_numpy(POSITIONS)[:, None] * kernels.frequencies(rotary, 31)
    turn = torch.polar(torch.full_like(angle, kernels.stretch(rotary)), angle)
    first, second = ([0, 2], [1, 3]) if interleaved else ([0, 1], [2, 3])

    def turned(x: Tensor) -> Tensor:
        z, out = torch.complex(x[..., first], x[..., second]) * turn, x.clone()
        out[..., first], out[..., second] = z.real, z.imag
        return out

    all_alike([back.rotate_back(D_Y, POSITIONS, rotary)], by_torch(turned, D_Y, X))


@pytest.mark.parametrize("sinks", [None, SINKS], ids=["", "sinks"])
@pytest.mark.parametrize("softcap", [None, 1.5])
def test_attention_backwards(softcap: float | None, sinks: np.ndarray | None) -> None:
    inputs = (Q, K, V, DISTANCES, *(() if sinks is None else (sinks,)))

    def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, sinks_H: Tensor | None = None) -> Tensor:
        see = torch.from_numpy(SEE)
        scores = q @ k.mT * 0.4
        scores = (scores if softcap is None else softcap * (scores / softcap).tanh()) + bias
        e = torch.where(see, (scores - scores.detach().amax(-1, keepdim=True)).exp(), 0)
        total = e.sum(-1, keepdim=True)
        if sinks_H is not None:
            total = total + (sinks_H[:, None, None] - scores.detach().amax(-1, keepdim=True)).exp()
        return e / total.clamp(min=1e-300) @ v

    got = back.attention_back(Q, K, V, SEE, 0.4, DISTANCES, softcap, sinks, D_OUT)
    found = [got.q_HTK, got.k_HSK, got.v_HSJ, got.scores_HTS]
    all_alike([*found, got.sinks_H] if sinks is not None else found, by_torch(attend, D_OUT, *inputs))


def test_copies_and_rows_backwards() -> None:
    d_y = np.ones((6, 5, 6)) * np.arange(6)[:, None, None]
    (want,) = by_torch(lambda x: x.repeat_interleave(3, 0), d_y, X)
    all_alike([back.shared_back(d_y, 2)], [want])
    rows = np.array([1, 4, 1, 1, 0])
    (want,) = by_torch(lambda table: F.embedding(torch.from_numpy(rows), table), D_Y[0], WEIGHT)
    all_alike([back.table_back((6, 6), rows, D_Y[0])], [want])


def test_cross_entropy_backwards() -> None:
    targets = np.array([1, -1, 5, 0, 0])
    (want,) = by_torch(lambda x: kernels.cross_entropy(x[None], torch.from_numpy(targets)[None])[0], np.ones(5), X[0])
    all_alike([back.cross_entropy_back(X[0], targets)], [want])


# --- steps ------------------------------------------------------------------------------------------------------------

MATRICES = {"wide": (3, 5), "tall": (7, 2), "stacked": (2, 4, 3)}
WEIGHTS = {name: rng.normal(size=shape) for name, shape in MATRICES.items()}
GRADS = [{name: rng.normal(size=shape) for name, shape in MATRICES.items()} for _ in range(4)]
SETTINGS = {"lr": 0.03, "betas": (0.8, 0.95), "eps": 1e-3, "decay": 0.1}


def stepped(make: Callable[[list[Tensor]], torch.optim.Optimizer]) -> dict[str, np.ndarray]:
    """The weights after four of torch's steps."""
    held = {name: torch.from_numpy(w.copy()).requires_grad_() for name, w in WEIGHTS.items()}
    optimizer = make(list(held.values()))
    for grads in GRADS:
        for name, grad in grads.items():
            held[name].grad = torch.from_numpy(grad.copy())
        optimizer.step()
    return {name: w.detach().numpy() for name, w in held.items()}


def a_step_is_torch_s(**other: Any) -> None:
    settings = SETTINGS | other
    first = settings.pop("moments", gradients.Moments())
    moved, moments = dict(WEIGHTS), first
    for grads in GRADS:
        moved, moments = gradients.adamw_step(moved, grads, moments, **settings)
    want = stepped(lambda held: torch.optim.AdamW(held, 0.03, (0.8, 0.95), 1e-3, 0.1))
    assert moments.n_steps == first.n_steps + 4
    for name, w in want.items():
        laws.close(moved[name], w, name, 2e-15)


def test_a_step_of_adamw_is_torch_s() -> None:
    a_step_is_torch_s()


@pytest.mark.parametrize("other", [{"moments": gradients.Moments(n_steps=10**6)}, {"eps": 1.1e-3}, {"decay": 0.0}])
def test_a_step_that_is_not_adamw_s_is_noticed(other: dict[str, Any]) -> None:
    """Means that are not divided by the share they hold; another eps; no decay."""
    with pytest.raises(AssertionError):
        a_step_is_torch_s(**other)


def test_a_step_of_muon_is_torch_s() -> None:
    moved, kept = dict(WEIGHTS), dict[str, np.ndarray]()
    for grads in GRADS:
        moved, kept = gradients.muon_step(moved, grads, kept, 0.03, 0.9, 0.1)
    for name, w in stepped(lambda held: optimizers.Muon(held, 0.03, 0.9, 0.1)).items():
        laws.close(moved[name], w, name)


@pytest.mark.parametrize("longest", [0.5, 1e3])
def test_a_gradient_is_cut_as_torch_cuts_it(longest: float) -> None:
    cut, length = gradients.clipped(GRADS[0], longest)
    held = [torch.from_numpy(w.copy()).requires_grad_() for w in WEIGHTS.values()]
    for w, grad in zip(held, GRADS[0].values(), strict=True):
        w.grad = torch.from_numpy(grad.copy())
    laws.close(np.array(length), torch.nn.utils.clip_grad_norm_(held, longest).numpy(), "length")
    for (name, grad), w in zip(cut.items(), held, strict=True):
        assert w.grad is not None
        laws.close(grad, w.grad.numpy(), name)
    assert (length > longest) == (longest < 1)


def test_a_weight_without_a_gradient_stays() -> None:
    grads = {"wide": GRADS[0]["wide"]}
    moved, moments = gradients.adamw_step(WEIGHTS, grads, gradients.Moments(), 0.1)
    turned, kept = gradients.muon_step(WEIGHTS, grads, {}, 0.1)
    for after in (moved, turned):
        assert [name for name, w in after.items() if w is not WEIGHTS[name]] == ["wide"]
    assert list(moments.mean) == list(moments.square) == list(kept) == ["wide"]


def test_steps_by_hand_learn_a_row_by_heart() -> None:
    spec = specs.GPT2
    weights, moments, losses = specs.arrays_of(spec), gradients.Moments(), []
    row_T = specs.tokens_of(spec, 1, 8)[0]
    for _ in range(30):
        loss, grads = gradients.loss_and_gradients(spec, weights, row_T[:-1], row_T[1:])
        weights, moments = gradients.adamw_step(weights, grads, moments, lr=0.03)
        losses.append(loss)
    assert losses[0] > 2
    assert losses[-1] < 0.05


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "targets, said",
    [([1, 2], "one for each answer"), ([1, 2, 13], "13"), ([1, 2, -2], "-2"), ([[1, 2, 3]] * 2, "as many rows")],
)
def test_targets_that_do_not_fit_are_refused(targets: Any, said: str) -> None:
    with pytest.raises(PlainformerError, match=said):
        gradients.loss_and_gradients(specs.GPT2, specs.arrays_of(specs.GPT2), [1, 2, 3], targets)


def test_rows_and_arrays_that_do_not_fit_are_refused() -> None:
    bart, bert = specs.PAIRS["bart"], specs.BERT
    with pytest.raises(PlainformerError, match="source"):
        gradients.loss_and_gradients(bart, specs.arrays_of(bart), [1, 2], [2, 3], source=[[1], [2]])
    with pytest.raises(PlainformerError, match="types"):
        gradients.loss_and_gradients(bert, specs.arrays_of(bert), [1, 2], [2, 3], types=[[0, 1], [0, 1]])
    arrays = specs.arrays_of(bert)
    arrays["embedding.weight"] = arrays["embedding.weight"][:5]
    with pytest.raises(PlainformerError, match=r"embedding\.weight"):
        gradients.loss_and_gradients(bert, arrays, [1, 2], [2, 3])


def test_no_target_at_all_is_a_loss_of_0() -> None:
    loss, grads = gradients.loss_and_gradients(specs.GPT2, specs.arrays_of(specs.GPT2), [1, 2, 3], [-1, -1, -1])
    assert loss == 0
    assert not any(grad.any() for grad in grads.values())


def test_the_answer_has_every_weight_of_the_ledger_and_no_buffer() -> None:
    spec = specs.spec_of("deepseek-v3")
    _, grads = gradients.loss_and_gradients(spec, specs.arrays_of(spec), [1, 2, 3], [2, 3, 4])
    assert {name: grad.shape for name, grad in grads.items()} == {w.name: w.shape for w in Ledger.of(spec).weights}


# --- sabotaged twins --------------------------------------------------------------------------------------------------


def instead(kind: type, make: Callable[[Any], Any]) -> Break:
    """make(the rules) takes the place of the rule of one kind of part."""

    def do(patch: pytest.MonkeyPatch) -> None:
        rules = parts.backward
        wrong = make(rules)
        for room in (parts, experts):
            patch.setattr(room, "backward", lambda part, *more: (wrong if type(part) is kind else rules)(part, *more))

    return do


def attention(**other: Any) -> Break:
    """attention_back with these of its results replaced by functions of the whole result."""

    def make(original: Any) -> Any:
        def wrong(*args: Any) -> Any:
            d = original(*args)
            return replace(d, **{name: change(d) for name, change in other.items()})

        return wrong

    return breaks(back, "attention_back", make)


def detached(name: str, n: int) -> Break:
    """A formula's n-th result is 0."""
    return breaks(back, name, lambda f: lambda *args: tuple(0 * d if i == n else d for i, d in enumerate(f(*args))))


def untied(original: Any) -> Any:
    def wrong(part: Any, matrix: Any, w: Any, x: Any, d_y: Any, to: Any) -> Any:
        lost = parts.Slopes({name: 0 * array for name, array in to.of.items()})
        return original(part, matrix, w, x, d_y, to if matrix is w else lost)

    return wrong


def set_not_added(original: Any) -> Any:
    def wrong(self: Any, w: Any, name: str, d_weight: Any) -> None:
        self.of[f"{w.place}.{name}"][... if w.expert is None else w.expert] = d_weight

    return wrong


def no_way_around(rules: Any) -> Any:
    return lambda part, w, x, where, d_y, to: rules(part, w, x, where, d_y, to) - d_y


def halved(rules: Any) -> Any:
    return lambda part, w, x, *more: rules(part, w, x, *more) * (1 - 1e-9)


def rms_without_spread(f: Any) -> Any:
    return lambda x, gain, eps, d_y: (
        d_y * gain / np.sqrt((x**2).mean(-1, keepdims=True) + eps),
        f(x, gain, eps, d_y)[1],
    )


def each_row_once(f: Any) -> Any:
    def wrong(shape: Any, rows: Any, d_y: Any) -> Any:
        d_table = np.zeros(shape)
        d_table[rows] = d_y
        return d_table

    return wrong


def no_lora_scale(f: Any) -> Any:
    def wrong(part: Any, *more: Any) -> Any:
        return f(replace(part, lora=part.lora and replace(part.lora, alpha=float(part.lora.rank))), *more)

    return wrong


def deaf(rules: Any) -> Any:
    """Cross-attention whose encoder is told nothing."""

    def wrong(part: Any, w: Any, x: Any, where: Any, d_y: Any, to: Any) -> Any:
        d_x = rules(part, w, x, where, d_y, to)
        to.memory_SD = 0 * to.memory_SD
        return d_x

    return wrong


TWINS: tuple[tuple[str, str, Break], ...] = (
    ("the spread is taken for a constant", "llama", breaks(back, "rms_norm_back", rms_without_spread)),
    ("the spread is taken for a constant", "gpt2", breaks(back, "rms_norm_back", rms_without_spread)),
    (
        "the mean is taken for a constant",
        "gpt2",
        breaks(
            back,
            "layer_norm_back",
            lambda _: lambda x, gain, eps, d: (*back.rms_norm_back(x - x.mean(-1, keepdims=True), gain, eps, d), None),
        ),
    ),
    ("the loss forgets 1 / n", "gpt2", breaks(whole, "cross_entropy_back", lambda f: lambda y, t: f(y, t) * len(t))),
    ("an ignored target counts", "gpt2", breaks(whole, "cross_entropy_back", lambda f: lambda y, t: f(y, abs(t)))),
    (
        "the target is forgotten",
        "gpt2",
        breaks(whole, "cross_entropy_back", lambda f: lambda y, t: formulas.softmax(y) * (t >= 0)[:, None]),
    ),
    ("softmax's entries apart", "gpt2", breaks(back, "softmax_back", lambda f: lambda p, d: p * (1 - p) * d)),
    ("through the mask", "llama", breaks(back, "softmax_back", lambda f: lambda p, d: f(p, d) + 1e-9 * d)),
    ("the scale is forgotten", "gpt2", attention(q_HTK=lambda d: d.q_HTK * 2)),
    ("keys do not learn", "gpt2", attention(k_HSK=lambda d: d.k_HSK * 0)),
    ("the sinks do not learn", "gpt-oss", attention(sinks_H=lambda d: d.sinks_H * 0)),
    ("distances do not learn", "t5", attention(scores_HTS=lambda d: d.scores_HTS * 0)),
    ("distances learn scaled", "distances-in-buckets", attention(scores_HTS=lambda d: d.products_HTS)),
    ("copies are averaged", "llama", breaks(back, "shared_back", lambda f: lambda d, n: f(d, n) * n / len(d))),
    ("the cap is forgotten", "scores-capped", breaks(back, "softcap_back", lambda f: lambda x, cap, d: d)),
    ("the head's cap is forgotten", "gemma2", breaks(back, "softcap_back", lambda f: lambda x, cap, d: d)),
    ("turned the same way again", "llama", breaks(back, "rotate_back", lambda f: formulas.rotate)),
    ("turned the same way again", "deepseek-v3", breaks(back, "rotate_back", lambda f: formulas.rotate)),
    ("gates are detached", "mixtral", instead(s.ChosenSoftmaxRouter, lambda _: lambda part, w, x, *more: 0 * x)),
    ("gates are detached", "qwen2-moe", instead(s.SoftmaxRouter, lambda _: lambda part, w, x, *more: 0 * x)),
    ("gates are detached", "deepseek-v3", instead(s.SigmoidRouter, lambda _: lambda part, w, x, *more: 0 * x)),
    (
        "what gates sum to is a constant",
        "shared-expert",
        breaks(back, "normalised_back", lambda f: lambda x, d, *least: d / x.sum(-1, keepdims=True)),
    ),
    ("the gate does not learn", "llama", detached("gated_back", 0)),
    (
        "biases do not learn",
        "gpt2",
        breaks(parts, "through_linear", lambda f: lambda part, *more: f(replace(part, bias=False), *more)),
    ),
    ("an activation's slope is 1", "gpt2", breaks(back.SLOPES, "gelu_tanh", lambda f: np.ones_like)),
    ("another GELU's slope", "gpt2", breaks(back.SLOPES, "gelu_tanh", lambda f: back.gelu_slope)),
    ("the tied head is forgotten", "gpt2", breaks(parts, "through_linear", untied)),
    ("passes overwrite each other", "layers-shared", breaks(parts.Slopes, "add", set_not_added)),
    ("a token met twice counts once", "gpt2", breaks(back, "table_back", each_row_once)),
    ("the way around is forgotten", "gpt2", instead(s.Residual, no_way_around)),
    ("a branch is off by a billionth", "neox", instead(s.FeedForward, halved)),
    (
        "the embedding's scale is forgotten",
        "gemma2",
        instead(s.Tokens, lambda rules: lambda part, *more: rules(replace(part, scale=1.0), *more)),
    ),
    ("LoRA unscaled", "gpt2-lora", breaks(parts, "through_linear", no_lora_scale)),
    ("the encoder is told nothing", "bart", instead(s.Attention, deaf)),
    (
        "the mean forgets 1 / n",
        "bert-mean",
        instead(s.Head, lambda rules: lambda part, w, x, *more: rules(part, w, x, *more) * len(x)),
    ),
    (
        "the first token is all of them",
        "bert-first-token",
        instead(s.Head, lambda rules: lambda part, w, x, *more: rules(part, w, x, *more)[:1] + 0 * x),
    ),
)


@pytest.mark.no_shape_names
@pytest.mark.parametrize("what, name, broken", TWINS, ids=[f"{what}, {name}" for what, name, _ in TWINS])
def test_broken_gradients_are_noticed(what: str, name: str, broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        the_gradients_by_hand_are_torch_s(specs.spec_of(name))


@pytest.mark.no_shape_names
@pytest.mark.parametrize(
    "what, broken",
    [
        ("no balance", breaks(experts, "through_balance", lambda f: lambda *args: 0.0)),
        ("every token counts", breaks(whole, "has_target", lambda f: lambda row: np.ones(len(row.tokens_T), bool))),
        ("choices of one row", breaks(whole, "counted", lambda f: lambda *args: ((r, n > 1) for r, n in f(*args)))),
    ],
)
def test_a_broken_balance_is_noticed(what: str, broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        a_batch_s_gradients_are_the_training_s(BALANCED["mixtral"])


@pytest.mark.no_shape_names
def test_a_slope_off_by_one_in_a_hundred_thousand_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(whole, "cross_entropy_back", lambda f: lambda y, t: f(y, t) * (1 + 1e-5))(monkeypatch)
    with pytest.raises(AssertionError, match="is not"):
        the_gradients_by_hand_are_slopes(specs.spec_of("llama"))

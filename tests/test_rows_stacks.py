"""All layers in one compiled call, a token a row: what they say one by one, whatever rows hold; and the plain way."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

import plainformer as pf
from plainformer.generation import generate
from plainformer.kernels import activated
from plainformer.layers import Norm, build
from plainformer.model import Transformer
from plainformer.rows import RowProduct, library, quicken
from plainformer.rows.stacks import ACTIVATIONS, RowStack
from plainformer.spec import Activation, Branch, FeedForward, Linear, Residual, Spec, Stack
from plainformer.states import State, Where
from specs import TINY

ROWS, REASON = library()
pytestmark = pytest.mark.skipif(ROWS is None, reason="no C compiler is here")
DECODERS = {name: spec for name, spec in TINY.items() if spec.decoder and not spec.encoder and spec.decoder.causal}


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


def random_model(spec: Spec, dtype: torch.dtype = torch.float32) -> Transformer:
    """Weights large enough that what is left out would be seen."""
    model, draw = pf.Transformer(spec), torch.Generator().manual_seed(1)
    for weight in model.parameters():
        weight.add_(torch.randn(weight.shape, generator=draw) * 0.1)
    return model.to(dtype).eval()


class Counted:
    """The library, and how many tokens went through all layers at once."""

    def __init__(self) -> None:
        self.n = 0

    def __getattr__(self, name: str) -> object:
        return getattr(ROWS, name)

    def stack(self, *arguments: object) -> int:
        self.n += 1
        assert ROWS is not None
        return int(ROWS.stack(*arguments))


def counted(model: Transformer) -> Counted:
    rows = Counted()
    for module in model.modules():
        if hasattr(type(module), "at_once"):
            module.at_once = RowStack(rows)  # type: ignore[arg-type]
    return rows


def steps(model: Transformer, rows: list[list[int]], n_steps: int, n_slots: int, spare: int = 0) -> Tensor:
    """Logits of each step after prompts of several lengths, (n_steps, B, V)."""
    state, width = State(len(rows), n_slots, spare), max(map(len, rows))
    model(torch.tensor([[*row, *[0] * (width - len(row))] for row in rows]), state, n_new=[len(row) for row in rows])
    vocab = model.spec.vocab_size
    said = [model(torch.tensor([[(7 * i + b) % vocab] for b in range(len(rows))]), state)[:, 0] for i in range(n_steps)]
    return torch.stack(said)


def near(expected: Tensor) -> float:
    return 2e-5 * max(1.0, float(expected.abs().max()))


# A part of each has no rule here: corrections, experts, latents, biases of scores, frequencies that grow.
ONE_BY_ONE = {
    *(
        "gpt2-no-residual",
        "gpt2-lora",
        "mixtral",
        "mixtral-lora",
        "llama-dynamic",
        "llama-longrope",
        "gpt-oss",
        "alibi",
    ),
    *("alibi-window", "distances-in-buckets", "deepseek-v2", "deepseek-v3", "deepseek-lora", "qwen2-moe"),
    *("shared-expert", "layers-shared", "one-layer-for-all"),
}


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("prompts", [[[1, 2, 3]], [[1, 2, 3], [4, 5, 6]], [[1], [2, 3, 4, 5, 6, 7], [8, 9]]])
def test_all_layers_at_once_say_what_they_say_one_by_one(name: str, prompts: list[list[int]]) -> None:
    """Rows of one length and of several, to the last slot and around windows."""
    model = random_model(DECODERS[name])
    n_slots = min(model.spec.max_seq_len, 14)
    n_steps = n_slots - max(map(len, prompts))
    expected = steps(model, prompts, n_steps, n_slots)
    rows = counted(quicken(model)[0])
    torch.testing.assert_close(steps(model, prompts, n_steps, n_slots), expected, rtol=0, atol=near(expected))
    assert rows.n == (0 if name in ONE_BY_ONE else n_steps)


@pytest.mark.parametrize("spare", [1, 3])
@pytest.mark.parametrize("name", ["mistral", "gemma2", "gpt2-window-1", "olmo3"])
def test_a_window_with_slots_to_spare(name: str, spare: int) -> None:
    """What stands in them is older than the window: no query may see it."""
    model, prompts = random_model(DECODERS[name]), [[1, 2], [3, 4, 5, 6, 7]]
    expected = steps(model, prompts, 7, 14)
    quicken(model)
    torch.testing.assert_close(steps(model, prompts, 7, 14, spare), expected, rtol=0, atol=near(expected))


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "gemma2", "olmo2", "neox"])
def test_in_bfloat16_it_is_nearer_to_the_exact_answer(name: str) -> None:
    """Between layers numbers keep all their bits; keys and values are rounded as they are one by one."""
    model, prompts = random_model(DECODERS[name], torch.bfloat16), [[1, 2, 3], [4, 5]]
    exact = steps(copy.deepcopy(model).double(), prompts, 6, 12)
    plain = steps(model, prompts, 6, 12)
    rows = counted(quicken(model)[0])
    quick = steps(model, prompts, 6, 12)
    assert rows.n == 6
    assert quick.dtype is torch.bfloat16
    off = [(y.double() - exact).square().mean().sqrt() for y in (quick, plain)]
    assert off[0] < off[1]
    torch.testing.assert_close(quick.double(), exact, rtol=0, atol=0.05 * max(1.0, float(exact.abs().max())))


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "gemma2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rounded_weights_too(name: str, dtype: torch.dtype) -> None:
    model, prompts = random_model(DECODERS[name], dtype), [[1, 2, 3], [4, 5]]
    rows = counted(quicken(model, "int8")[0])
    quick = steps(model, prompts, 6, 12)
    assert rows.n == 6
    model.decoder.at_once = None
    plain = steps(model, prompts, 6, 12)
    bound = (1e-3 if dtype is torch.float32 else 0.05) * max(1.0, float(plain.float().abs().max()))
    torch.testing.assert_close(quick, plain, rtol=0, atol=bound)


def seen_otherwise(model: Transformer) -> None:
    """Gains of another kind at the same place: bits that are 1.002 in float32 and 2, 1, 2, 1 ... in bfloat16."""
    for module in model.modules():
        if isinstance(module, Norm):
            module.weight.view(torch.int32).fill_(0x3F804000)
            module.weight.data = module.weight.data.view(torch.bfloat16)[: len(module.weight)]


CHANGES = {
    "in place": lambda model: [weight.mul_(0.5) for weight in model.parameters()],
    "exchanged": lambda model: model.load_state_dict(
        {name: weight * 0.5 for name, weight in model.state_dict().items()}, assign=True
    ),
    "one gone": lambda model: setattr(model.decoder.layers[0].attention_norm, "weight", None),
    "other dtype": lambda model: model.bfloat16(),
    "other dtype at the same place": seen_otherwise,
    "of none's kind": lambda model: model.double(),
}


@pytest.mark.parametrize("how", CHANGES)
def test_what_is_done_to_the_weights_is_seen(how: str) -> None:
    model, other, prompts = random_model(TINY["qwen3"]), random_model(TINY["qwen3"]), [[1, 2, 3]]
    steps(quicken(model)[0], prompts, 2, 8)
    CHANGES[how](model)
    CHANGES[how](other)
    expected = steps(other, prompts, 4, 8)
    bound = 0.05 if how == "other dtype" else 2e-5
    torch.testing.assert_close(steps(model, prompts, 4, 8), expected, rtol=0, atol=bound * float(expected.abs().max()))


def test_copies_stand_alone() -> None:
    model = random_model(TINY["gpt2"])
    before = steps(quicken(model)[0], [[1, 2]], 3, 8)
    copied = copy.deepcopy(model)
    for weight in model.parameters():
        weight.zero_()
    del model
    torch.testing.assert_close(steps(copied, [[1, 2]], 3, 8), before, rtol=0, atol=near(before))


def test_what_is_asked_of_single_layers_is_answered_one_by_one() -> None:
    """Traces, gradients, several new tokens, no state, more rows than eight, rows that add nothing."""
    model = random_model(TINY["gpt2"])
    rows = counted(quicken(model)[0])
    state, tokens = State(2, 12), torch.tensor([[1, 2], [3, 4]])
    model(tokens, state)
    trace: dict[str, Tensor] = {}
    model(tokens[:, :1], state, trace)
    assert {"decoder.stream.1", "decoder.layers.0.attention.weights"} <= trace.keys()
    with torch.enable_grad():
        model(tokens[:, :1], state).sum().backward()
    model(tokens, state)
    model(tokens[:, :1])
    model(tokens[:, :1], state, n_new=[1, 0])
    nine = State(9, 12)
    model(tokens[:1].repeat(9, 1), nine)
    model(tokens[:1, :1].repeat(9, 1), nine)
    assert rows.n == 0
    state.lengths = [2, 2]
    model(tokens[:, :1], state)
    assert rows.n == 1


@pytest.mark.parametrize("name", ["gpt2", "qwen3", "mistral"])
def test_l4_written_at_once_is_written_one_by_one(name: str) -> None:
    """The same greedy ids: cached and read again, alone and in a batch that shrinks, with threads and without."""
    model = random_model(TINY[name])
    prompts, before = [[1, 2, 3], [4, 5], [6]], torch.get_num_threads()
    expected = generate(model, prompts, 9, temperature=0, stop_ids=[5]).new
    quicken(model)
    try:
        for n_threads in (1, 3):
            torch.set_num_threads(n_threads)
            assert generate(model, prompts, 9, temperature=0, stop_ids=[5]).new == expected
            assert generate(model, prompts, 9, temperature=0, stop_ids=[5], cached=False).new == expected
            assert [generate(model, row, 9, temperature=0, stop_ids=[5]).new[0] for row in prompts] == expected
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "gated"), [(n, g) for n in ACTIVATIONS for g in (0, 1) if g or n != "swiglu_clamped"])
def test_a_layer_s_curves_are_torch_s(name: Activation, gated: bool) -> None:
    """From far below 0 to far above, through a layer that does nothing else."""
    width, rows = 128, 8
    linear = Linear(n_in=width, n_out=width)
    part = FeedForward(activation=name, up=linear, down=linear, gate=linear if gated else None)
    stack = build(Stack(layers=((Residual(branches=(Branch(name="feed_forward", part=part),)),),), causal=True))
    for weight in stack.parameters():
        weight.copy_(torch.eye(width))
    for module in stack.modules():
        if hasattr(type(module), "product"):
            module.product = RowProduct(ROWS)
    x = torch.cat((torch.linspace(-40, 40, 768), torch.linspace(-1, 1, 256))).reshape(rows, 1, width)
    where = Where(torch.zeros(rows, 1, dtype=torch.long), True, (0,) * rows, state=State(rows, 4))
    said = RowStack(ROWS)(stack, x, where)  # type: ignore[arg-type]
    assert said is not None
    wide = x.double()
    exact = activated(name, wide if gated else None, wide)
    torch.testing.assert_close(said.double(), wide + exact, rtol=5e-7, atol=1e-6)

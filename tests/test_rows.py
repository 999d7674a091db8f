"""Few rows through a matrix by the compiled product: torch's answer, from weights of any kind; and the plain way."""

from __future__ import annotations

import copy
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import plainformer as pf
from plainformer import compiled
from plainformer.checkpoint.exporting import export
from plainformer.faults import PlainformerError
from plainformer.generation import generate
from plainformer.kernels import fused_attention
from plainformer.rows import RowProduct, library, products, quicken, quickening
from plainformer.rows.products import RowAttention
from specs import TINY

ROWS, REASON = library()
needs_a_compiler = pytest.mark.skipif(ROWS is None, reason="no C compiler is here")


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@needs_a_compiler
@pytest.mark.parametrize("n_rows", [1, 2, 5, 8, 9, 65, 257])
@pytest.mark.parametrize(("n_out", "n_in"), [(1, 1), (4, 16), (7, 33), (13, 300)])
@pytest.mark.parametrize("biased", [True, False])
def test_the_product_is_torch_s(n_rows: int, n_out: int, n_in: int, biased: bool) -> None:
    torch.manual_seed(n_rows)
    x, weight = torch.randn(n_rows, n_in), torch.randn(n_out, n_in)
    bias = torch.randn(n_out) if biased else None
    product = RowProduct(ROWS)
    torch.testing.assert_close(
        product(x, weight, bias), F.linear(x, weight, bias), rtol=0, atol=2e-6 * n_in**0.5 + 1e-6
    )
    narrow = [y if y is None else y.bfloat16() for y in (x, weight, bias)]
    wide = [y if y is None else y.double() for y in narrow]
    exact = F.linear(*wide)
    torch.testing.assert_close(product(*narrow).double(), exact, rtol=2**-8, atol=1e-4)
    steps, scale = products.rounded(weight)
    exact = F.linear(x.double(), steps.double() * scale[:, None].double(), wide[2] if bias is None else bias.double())
    off = x.abs().amax() / 4095 * weight.abs().amax() * n_in**0.5  # x in 13 bits
    torch.testing.assert_close(RowProduct(ROWS, scale[None])(x, steps, bias).double(), exact, rtol=0, atol=off)


@needs_a_compiler
def test_it_is_the_compiled_one_that_answers() -> None:
    """A product that always handed on to torch would pass the test above."""
    called = []

    class Seen:
        def rows(self, *arguments: object) -> int:
            called.append(arguments)
            assert ROWS is not None
            return int(ROWS.rows(*arguments))

    product = RowProduct(Seen())  # type: ignore[arg-type]
    product(torch.ones(1, 3), torch.ones(2, 3))
    assert len(called) == 1
    product(torch.ones(9, 3), torch.ones(2, 3))  # many rows: torch's
    product(torch.ones(1, 3).double(), torch.ones(2, 3).double())  # float64 is exact or nothing
    with torch.enable_grad():
        product(torch.ones(1, 3), torch.ones(2, 3))
    assert len(called) == 1


@needs_a_compiler
def test_work_in_pieces_is_whole_however_many_share_it() -> None:
    """Of many pieces, by 1 to 3 threads; and by several callers at once, of whom one has the workers."""
    torch.manual_seed(0)
    x, weight = torch.randn(1, 999), torch.randn(517, 999)
    q, keys = torch.randn(2, 6, 1, 64), torch.randn(2, 6, 301, 64)
    product, attend, before = RowProduct(ROWS), RowAttention(ROWS), torch.get_num_threads()  # type: ignore[arg-type]
    y, out = F.linear(x, weight), fused_attention(q, keys, keys, None, False, 0.1)
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            torch.testing.assert_close(product(x, weight), y, rtol=0, atol=1e-3)
            torch.testing.assert_close(attend(q, keys, keys, None, False, 0.1), out, rtol=0, atol=1e-5)

        def many(_: int) -> bool:
            with torch.no_grad():
                return all(torch.allclose(product(x, weight), y, rtol=0, atol=1e-3) for _ in range(20))

        with ThreadPoolExecutor(4) as callers:
            assert all(callers.map(many, range(4)))
    finally:
        torch.set_num_threads(before)


@needs_a_compiler
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_workers_of_its_own() -> None:
    """It inherits a lock and a sleep that its parent's workers are in. They go to sleep where calls are apart."""
    assert ROWS is not None
    x, weight, y = torch.ones(1, 999), torch.ones(517, 999), torch.zeros(1, 517)

    def calls() -> bool:  # without torch, which has threads of its own
        for _ in range(5):
            y.zero_()
            ROWS.rows(0, 0, weight.data_ptr(), x.data_ptr(), None, None, y.data_ptr(), 1, 517, 999, 2)
            time.sleep(0.02)
        return y.tolist() == [[999.0] * 517]

    assert calls()
    if not (child := os.fork()):
        os._exit(not calls())
    begun = time.monotonic()
    while time.monotonic() - begun < 20:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0
            assert calls()
            return
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the child waits for workers that it does not have")


@pytest.mark.parametrize("n_rows", [1, 70, 300])
def test_each_of_stacked_experts_has_scales_of_its_own(n_rows: int) -> None:
    stacked_EOI = torch.randn(3, 5, 8) * torch.tensor([1.0, 10.0, 100.0])[:, None, None]
    steps, scales = products.rounded(stacked_EOI)
    x, product = torch.randn(n_rows, 8), RowProduct(ROWS, scales)
    for expert in range(3):
        exact = F.linear(x, stacked_EOI[expert])
        torch.testing.assert_close(product(x, steps[expert]), exact, rtol=0, atol=0.1 * 10**expert)


@needs_a_compiler
def test_weights_that_do_not_lie_in_a_row_are_torch_s_to_multiply() -> None:
    x, weight = torch.randn(1, 5), torch.randn(5, 7).T
    assert torch.equal(RowProduct(ROWS)(x, weight), F.linear(x, weight))


@needs_a_compiler
@pytest.mark.parametrize("weights", [None, "int8"])
def test_a_model_that_lies_turned_in_its_file_is_quickened_too(weights: str | None, tmp_path: Path) -> None:
    """GPT-2's matrices do: each is laid row by row, and keeps its numbers."""
    model = pf.Transformer(TINY["gpt2"]).eval()
    export(model, tmp_path / "gpt2")
    quick, expected = quicken(pf.load(tmp_path / "gpt2"), weights)[0], quicken(model, weights)[0]
    assert not all(tensor.is_contiguous() for tensor in pf.load(tmp_path / "gpt2").parameters())
    for name, tensor in quick.named_parameters():
        assert tensor.is_contiguous(), name
        assert torch.equal(tensor, expected.get_parameter(name))
    tokens = torch.tensor([[3]])
    assert torch.equal(quick(tokens), expected(tokens))


@needs_a_compiler
@pytest.mark.parametrize(("n_rows", "n_heads", "n_kv", "n_keys"), [(1, 1, 1, 1), (1, 12, 12, 70), (3, 6, 2, 5)])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_query_s_attention_is_torch_s(
    n_rows: int, n_heads: int, n_kv: int, n_keys: int, masked: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(n_keys)
    slots_BGSK = torch.randn(n_rows, n_kv, n_keys + 3, 16, dtype=dtype)  # more room than is in use, as in a state
    k, v = slots_BGSK[:, :, :n_keys], slots_BGSK.flip(2)[:, :, :n_keys, :]
    v = torch.cat((v, v[..., :5]), -1)  # values wider than keys
    q = torch.randn(n_rows, n_heads, 1, 16, dtype=dtype)
    mask = torch.rand(n_rows, 1, 1, n_keys) > 0.4 if masked else None
    if mask is not None:
        mask[0] = False  # a query that may see nothing
    calls = []

    class Seen:
        def attend(self, *arguments: object) -> int:
            calls.append(arguments)
            assert ROWS is not None
            return int(ROWS.attend(*arguments))

    said = RowAttention(Seen())(q, k, v, mask, False, 0.3)  # type: ignore[arg-type]
    exact = fused_attention(q.double(), k.double(), v.double(), mask, False, 0.3)
    bound = {torch.float32: 1e-5, torch.bfloat16: 0.02}[dtype]
    torch.testing.assert_close(said.double(), exact, rtol=bound, atol=bound)
    assert len(calls) == 1
    if mask is not None:
        assert (said[0] == 0).all()


@needs_a_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_query_may_not_see_may_be_anything(dtype: torch.dtype) -> None:
    """Numbers that are none in its place change nothing; one among what is seen makes the answer none."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 16, dtype=dtype) for n in (1, 11, 11))
    mask = (torch.arange(11) % 3 > 0)[None, None, None]
    attend = RowAttention(ROWS)  # type: ignore[arg-type]
    expected = attend(q, k, v, mask, False, 0.3)
    hidden = ~mask[0, 0, 0]
    k[:, :, hidden], v[:, :, hidden] = torch.nan, torch.inf
    assert torch.equal(attend(q, k, v, mask, False, 0.3), expected)
    k[:, 1, 1] = torch.nan
    said = attend(q, k, v, mask, False, 0.3)
    assert said[:, 1].isnan().all()
    assert torch.equal(said[:, 0], expected[:, 0])
    k[:, 1] = torch.nan
    assert attend(q, k, v, None, False, 0.3)[:, 1].isnan().all()


@needs_a_compiler
def test_what_is_no_number_stays_none() -> None:
    x = torch.tensor([[torch.nan, 1.0], [torch.inf, 1.0], [3e38, 3e38]])
    for dtype in (torch.float32, torch.bfloat16):
        y = RowProduct(ROWS)(x.to(dtype), torch.eye(2).to(dtype) + 1)
        assert y[0].isnan().all()
        assert y[1].isinf().all()
        assert (y[2].isinf()).all()
    steps, scale = products.rounded(torch.eye(2) + 1)
    y = RowProduct(ROWS, scale[None])(x, steps)
    assert y[:2].isnan().all()
    assert y[2].isinf().all()


@needs_a_compiler
@pytest.mark.parametrize("name", ["gpt2", "gpt2-lora", "qwen3", "mixtral", "deepseek-v3", "qwen2-moe"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_quickened_model_says_the_same(name: str, dtype: torch.dtype) -> None:
    spec = TINY[name]
    model = pf.Transformer(spec).to(dtype)
    quick, reason, error = quicken(copy.deepcopy(model))
    assert (reason, error) == ("", 0.0)
    tokens = torch.arange(5)[None] % spec.vocab_size
    near = 1e-5 if dtype is torch.float32 else 0.05
    for some in (tokens, tokens[:, :1]):
        torch.testing.assert_close(quick(some), model(some), rtol=0, atol=near)
    if dtype is torch.float32:
        assert generate(quick, [1, 2, 3], 5, temperature=0).new == generate(model, [1, 2, 3], 5, temperature=0).new


@pytest.mark.parametrize("name", ["gpt2", "gpt2-lora", "qwen3", "mixtral", "deepseek-v3", "qwen2-moe"])
def test_int8_is_the_model_of_the_rounded_weights_and_its_error_is_said(name: str) -> None:
    """The same as a float32 model whose matrices hold the rounded numbers; few rows and many."""
    spec = TINY[name]
    model = pf.Transformer(spec)
    plain = copy.deepcopy(model)
    quick, _, error = quicken(model, "int8")
    changed = total = 0.0
    theirs = dict(plain.named_modules())
    for place, module in quick.named_modules():
        if isinstance(product := getattr(module, "product", None), RowProduct):
            steps = module.weight if product.own is None else product.own
            scales = product.scales if steps.ndim == 2 else product.scales[:, :, None]
            wide = steps.float() * (scales[0][:, None] if steps.ndim == 2 else scales)
            target = theirs[place].weight if product.own is None else plain.embedding.weight
            changed += float((wide - target).square().sum())
            total += float(target.square().sum())
            assert (wide - target).abs().amax() <= target.abs().amax() / 254 * 1.001
            if product.own is None:
                target.copy_(wide)
            else:  # a tied head rounds its own copy: the table stays as it was
                theirs[place].product = lambda x, _w, b, wide=wide: F.linear(x, wide, b)
    assert error == pytest.approx((changed / total) ** 0.5, rel=1e-6)
    assert 0 < error < 0.02
    tokens = torch.arange(12)[None] % spec.vocab_size
    for some in (tokens, tokens[:, :1]):
        torch.testing.assert_close(quick(some), plain(some), rtol=0, atol=1e-3)  # x in 13 bits where rows are few
    with pytest.raises(PlainformerError, match="rounded already"):
        quicken(quick, "int8")


def test_without_a_compiler_torch_s_product_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quickening, "library", lambda: (None, "no C compiler is here"))
    model = pf.Transformer(pf.presets["tiny"])
    tokens = torch.tensor([[1]])
    before = model(tokens)
    quick, reason, _ = quicken(model)
    assert reason == "no C compiler is here"
    assert torch.equal(quick(tokens), before)


def test_a_compiler_that_fails_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    try:
        monkeypatch.setattr(compiled.shutil, "which", lambda name: "/bin/false")
        assert library() == (None, "/bin/false could not compile rows.c")
        library.cache_clear()
        monkeypatch.setattr(compiled.shutil, "which", lambda name: None)
        assert library() == (None, "no C compiler is here")
    finally:
        library.cache_clear()
    assert list((tmp_path / "plainformer").iterdir()) == []


@needs_a_compiler
def test_a_folder_that_others_may_write_is_not_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What lies in the cache is run: another's file there would be too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "plainformer").mkdir()
    (tmp_path / "plainformer").chmod(0o777)
    with pytest.raises(PermissionError, match="written by others"):
        compiled.cache()
    library.cache_clear()
    try:
        assert library()[0] is not None  # compiled into a folder of its own
    finally:
        library.cache_clear()
    assert list((tmp_path / "plainformer").iterdir()) == []

"""L3: we agree with strangers on the same weights, tiny and random, nothing downloaded.

The strangers run in float64 throughout: what they cast to float32 (norms, softmax, rotary tables, routers) is cast to
float64 while a test runs. Both the reference and the model are held to them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

import laws
from plainformer import reference
from plainformer.families.parts import attention, decoder, dot, feed_forward, layer_norm, pre_norm_layer, sublayer
from plainformer.huggingface import names, read
from plainformer.ledger import Ledger
from plainformer.spec import Attention, Spec
from plainformer.tree import walk

Arrays = dict[str, np.ndarray]
N_TOKENS = 17
CLOSE = 1e-9


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Strangers that say float32 mean float64."""

    def widened(original: Callable) -> Callable:
        def call(*args: object, **kwargs: object) -> object:
            wide = [torch.float64 if a is torch.float32 else a for a in args]
            return original(*wide, **{k: torch.float64 if a is torch.float32 else a for k, a in kwargs.items()})

        return call

    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(torch.Tensor, "to", widened(torch.Tensor.to))
    monkeypatch.setattr(torch, "arange", widened(torch.arange))
    monkeypatch.setattr(nn.functional, "softmax", widened(nn.functional.softmax))
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@torch.no_grad()
def shaken(stranger: nn.Module) -> nn.Module:
    """The same with weights large enough to show every rule, gains and biases too."""
    generator = torch.Generator().manual_seed(0)
    for name, p in stranger.named_parameters():
        wide = 2 * p.shape[-1] ** -0.5 if p.dim() > 1 else 0.3
        p.copy_(wide * torch.randn(p.shape, generator=generator) + ("norm" in name and p.dim() == 1))
    return stranger.eval()


def we_agree(spec: Spec, arrays: Arrays, tokens_T: np.ndarray, want: Tensor, tolerance: float = CLOSE) -> None:
    """The reference and the model both give the stranger's numbers."""
    reference.check_arrays(spec, arrays)
    assert arrays.keys() == {w.name for w in Ledger.of(spec).weights}
    laws.close(reference.logits(spec, arrays, tokens_T), want, "the reference", tolerance)
    with torch.no_grad():
        got = laws.double(spec, arrays)(torch.tensor(tokens_T)[None])[0]
    laws.close(got, want, "the model", tolerance)


# --- torch.nn ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_causal_encoder_of_torch_nn_says_the_same(norm_first: bool, activation: str) -> None:
    d_model, n_heads, d_ff, n_layers = 12, 3, 20, 2
    layer = nn.TransformerEncoderLayer(
        d_model, n_heads, d_ff, activation=activation, norm_first=norm_first, batch_first=True, dropout=0
    )
    last = nn.LayerNorm(d_model) if norm_first else None
    stranger = shaken(nn.TransformerEncoder(layer, n_layers, norm=last, enable_nested_tensor=False).double())
    norm = layer_norm(d_model, 1e-5)
    one = attention(
        d_model=d_model, n_heads=n_heads, n_kv_heads=n_heads, d_head=4, scores=dot(4), qkv_bias=True, out_bias=True
    )
    two = feed_forward(d_model, d_ff, activation, bias=True)
    ours = pre_norm_layer(one, two, norm)
    if not norm_first:
        ours = sublayer("attention", one, norm_sum=norm), sublayer("feed_forward", two, norm_sum=norm)
    spec = decoder(
        vocab_size=9,
        max_seq_len=N_TOKENS,
        d_model=d_model,
        layers=(ours,) * n_layers,
        norm_last=norm if norm_first else None,
        tied=True,
    )
    arrays: Arrays = {"embedding.weight": np.random.default_rng(0).normal(size=(9, d_model))}
    norms = ("attention_norm", "feed_forward_norm") if norm_first else ("attention_norm_sum", "feed_forward_norm_sum")
    mine = {"norm1": norms[0], "norm2": norms[1], "linear1": "feed_forward.up", "linear2": "feed_forward.down"}
    for name, p in stranger.state_dict().items():
        kind = name.rpartition(".")[2]
        if name.startswith("norm."):
            arrays[f"decoder.norm_last.{kind}"] = p.numpy()
            continue
        _, i, inner = name.split(".", 2)
        place = f"decoder.layers.{i}"
        if "in_proj" in inner:
            kind = inner.rpartition("in_proj_")[2]
            for part, array in zip("qkv", np.split(p.numpy(), 3), strict=True):
                arrays[f"{place}.attention.{part}.{kind}"] = array
        else:
            where = "attention.out" if "out_proj" in inner else mine[inner.rpartition(".")[0]]
            arrays[f"{place}.{where}.{kind}"] = p.numpy()
    tokens_T = np.random.default_rng(1).integers(0, 9, N_TOKENS)
    mask = nn.Transformer.generate_square_subsequent_mask(N_TOKENS, dtype=torch.float64)
    with torch.no_grad():
        stream = stranger(torch.tensor(arrays["embedding.weight"][tokens_T])[None], mask=mask, is_causal=True)[0]
    we_agree(spec, arrays, tokens_T, stream @ torch.tensor(arrays["embedding.weight"]).T)


# --- transformers -----------------------------------------------------------------------------------------------------

SIZES = {
    "vocab_size": 19,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
GATED = SIZES | {"intermediate_size": 24, "num_key_value_heads": 2, "tie_word_embeddings": False}


def rope(theta: float, **more: object) -> dict[str, object]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta} | more}


STRANGERS: dict[str, tuple[str, dict[str, object]]] = {
    "gpt2": ("GPT2", {"vocab_size": 19, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32}),
    "gpt2 with another activation": (
        "GPT2",
        {"vocab_size": 19, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 32, "activation_function": "gelu"},
    ),
    "llama": ("Llama", GATED | rope(100.0)),
    "llama with heads of its own width": ("Llama", GATED | rope(100.0) | {"head_dim": 6, "attention_bias": True}),
    "llama multi-query, tied": (
        "Llama",
        GATED | rope(1e4) | {"num_key_value_heads": 1, "tie_word_embeddings": True, "mlp_bias": True},
    ),
    "llama 3.1": (
        "Llama",
        GATED
        | {"head_dim": 8}
        | rope(
            100.0,
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=16,
        ),
    ),
    "llama stretched": ("Llama", GATED | rope(100.0, rope_type="linear", factor=4.0)),
    "mistral": ("Mistral", GATED | rope(100.0) | {"sliding_window": 5, "head_dim": 4}),
    "neox": ("GPTNeoX", SIZES | {"intermediate_size": 24, "rotary_pct": 0.5, "use_parallel_residual": True}),
    "neox in turn": ("GPTNeoX", SIZES | {"intermediate_size": 24, "rotary_pct": 1.0, "use_parallel_residual": False}),
    "qwen3": ("Qwen3", GATED | rope(100.0) | {"head_dim": 6}),
    "mixtral": ("Mixtral", GATED | rope(100.0) | {"num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 4}),
}


def told(stranger: nn.Module, model_type: str, spec: Spec, folder: Path) -> Arrays:
    """The stranger's weights under our names, from the checkpoint that it writes."""
    stranger.save_pretrained(folder)
    ours = names.to_ours(model_type, spec, load_file(folder / "model.safetensors"), np)
    return {name: np.ascontiguousarray(array, np.float64) for name, array in ours.items()}


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("eager", [pytest.param(True, marks=pytest.mark.proof), False], ids=["eager", "fused"])
@pytest.mark.parametrize("which", STRANGERS)
def test_a_model_of_transformers_says_the_same(which: str, eager: bool, tmp_path: Path) -> None:
    import transformers

    family, settings = STRANGERS[which]
    kernels = {"attn_implementation": "eager" if eager else "sdpa", "experts_implementation": "eager"}
    config = getattr(transformers, f"{family}Config")(**settings, **kernels)
    class_name = "GPT2LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM"
    stranger = shaken(getattr(transformers, class_name)(config))
    spec = read(config.to_dict()).spec
    tokens_T = np.random.default_rng(2).integers(0, 19, N_TOKENS)
    with torch.no_grad():
        want = stranger(torch.tensor(tokens_T)[None]).logits[0]
    assert want.dtype == torch.float64
    we_agree(spec, told(stranger, config.model_type, spec, tmp_path), tokens_T, want)
    windows = {part.window for _, part in walk(spec) if isinstance(part, Attention)}
    assert windows == ({5} if which == "mistral" else {None})


def test_a_stranger_that_differs_is_noticed(in_float64: None, tmp_path: Path) -> None:
    """The comparison can fail: a window one wider, rotary pairs of another kind, an epsilon left out."""
    import transformers

    import specs

    config = transformers.MistralConfig(**STRANGERS["mistral"][1])
    stranger, tokens_T = shaken(transformers.MistralForCausalLM(config)), np.random.default_rng(2).integers(0, 19, 17)
    with torch.no_grad():
        want = stranger(torch.tensor(tokens_T)[None]).logits[0]
    right = read(config.to_dict()).spec
    arrays = told(stranger, "mistral", right, tmp_path)
    for change in (
        partial(specs.change, kind=Attention, window=6),
        partial(specs.turned, interleaved=True),
        partial(specs.change, kind=specs.s.Norm, eps=0.0),
    ):
        with pytest.raises(AssertionError, match="off by"):
            we_agree(change(right), arrays, tokens_T, want)

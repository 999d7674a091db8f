"""Weights from elsewhere: the convention that explains other logits is named; strangers' code says what is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from plainformer.cli import main
from plainformer.porting import CONVENTIONS, explain, read_logits, read_weights
from plainformer.porting.conventions import Ported

transformers = pytest.importorskip("transformers")
SHARED = {"vocab_size": 37, "tie_word_embeddings": False, "initializer_range": 0.35}
GPT2 = {**SHARED, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 32, "bos_token_id": 0, "eos_token_id": 0}
LLAMA = {
    **SHARED, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 40, "max_position_embeddings": 64,
}  # fmt: skip
MISTRAL = {**LLAMA, "sliding_window": 5}
QWEN_MOE = {
    **LLAMA, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "decoder_sparse_step": 1,
    "head_dim": 8, "norm_topk_prob": True, "mlp_only_layers": [], "experts_implementation": "eager",
}  # fmt: skip
NEOX = {
    **SHARED, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40,
    "max_position_embeddings": 64, "rope_parameters": {"rope_theta": 1e4, "rope_type": "default",
                                                       "partial_rotary_factor": 0.5},
}  # fmt: skip
OPT = {
    **SHARED, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 40,
    "max_position_embeddings": 64, "word_embed_proj_dim": 32,
}  # fmt: skip
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", GPT2),
    "llama": ("Llama", LLAMA),
    "mistral": ("Mistral", MISTRAL),
    "gemma": ("Gemma", {**LLAMA, "head_dim": 8, "tie_word_embeddings": True}),
    "qwen3_moe": ("Qwen3Moe", QWEN_MOE),
    "gpt_neox": ("GPTNeoX", {**NEOX, "use_parallel_residual": False}),
    "pythia": ("GPTNeoX", {**NEOX, "use_parallel_residual": True}),
    "opt": ("OPT", OPT),
}


def stranger(kind: str, **changed: Any) -> Any:
    """Their model with seeded weights; `changed`: of its config."""
    name, config = KINDS[kind]
    made = getattr(transformers, f"{name}Config")(**{**config, **changed}, attn_implementation="eager")
    torch.manual_seed(1)
    model = getattr(transformers, f"{name}{'LMHeadModel' if kind == 'gpt2' else 'ForCausalLM'}")(made).double().eval()
    for parameter in model.parameters():  # biases and gains too
        torch.nn.init.normal_(parameter, 1.0 * ("norm" in str(parameter)), 0.3)
    if changed:  # the same weights, whatever the order that they are drawn in
        model.load_state_dict(stranger(kind).state_dict(), strict=False)
    return model


@torch.no_grad()
def said(model: Any, folder: Path) -> Path:
    """Tokens and their logits, as someone would store them."""
    tokens = torch.randint(37, (2, 14), generator=torch.Generator().manual_seed(2))
    path = folder / "logits.npz"
    np.savez(path, tokens=tokens.numpy(), logits=model(tokens).logits.numpy())
    return path


def kept(kind: str, folder: Path, change: Callable[[dict[str, torch.Tensor]], None] | None = None) -> Path:
    """The published folder, its weights changed as by a faulty conversion."""
    model = stranger(kind)
    model.float().save_pretrained(folder / "model")
    if change is not None:
        weights = load_file(folder / "model" / "model.safetensors")
        change(weights)
        save_file({name: w.contiguous() for name, w in weights.items()}, folder / "model" / "model.safetensors")
    return folder / "model"


def verdict(folder: Path, logits: Path, seconds: float = 20) -> Any:
    return explain(read_weights(folder, folder).ported, *read_logits(logits), seconds=seconds)


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gemma"])
def test_the_same_weights_are_the_same(kind: str, tmp_path: Path) -> None:
    found = verdict(kept(kind, tmp_path), said(stranger(kind), tmp_path))
    assert found.same
    assert found.steps == ()


OTHERS: list[tuple[str, dict[str, Any], str]] = [
    ("gpt2", {"activation_function": "gelu"}, "activation-gelu"),
    ("gpt2", {"activation_function": "relu"}, "activation-relu"),
    ("gpt2", {"layer_norm_epsilon": 1e-3}, "eps-0.001"),
    ("gpt2", {"scale_attn_weights": False}, "scale-one"),
    ("llama", {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}}, "theta-500000"),
    ("llama", {"rms_norm_eps": 1e-5}, "eps-1e-05"),
    ("llama", {"hidden_act": "gelu"}, "activation-gelu"),
    ("llama", {"rope_parameters": {"rope_theta": 1e4, "rope_type": "linear", "factor": 4.0}}, "rotary-stretched-4"),
    ("mistral", {"sliding_window": 6}, "window+1"),
    ("mistral", {"sliding_window": None}, "no-window"),
    ("qwen3_moe", {"norm_topk_prob": False}, "gates-normalised"),
    ("gpt_neox", {"use_parallel_residual": True}, "parallel"),
    ("pythia", {"use_parallel_residual": False}, "sequential"),
]


@pytest.mark.parametrize(("kind", "changed", "key"), OTHERS)
def test_another_convention_of_theirs_is_named(kind: str, changed: dict[str, Any], key: str, tmp_path: Path) -> None:
    found = verdict(kept(kind, tmp_path), said(stranger(kind, **changed), tmp_path))
    assert not found.same
    assert [step.key for step in found.steps] == [key]
    assert found.explained


def halves_to_pairs(weights: dict[str, torch.Tensor]) -> None:
    """As in files whose pairs are neighbours."""
    for name, w in weights.items():
        if "q_proj" in name or "k_proj" in name:
            weights[name] = w.view(-1, 2, 4, w.shape[1]).transpose(1, 2).reshape(w.shape)


def by_head(weights: dict[str, torch.Tensor]) -> None:
    for name, w in weights.items():
        if "c_attn" in name:
            weights[name] = w.view(*w.shape[:-1], 3, 3, 8).transpose(-2, -3).reshape(w.shape)


def upside_down(weights: dict[str, torch.Tensor]) -> None:
    for name, w in weights.items():
        if "attn.c_proj.weight" in name:
            weights[name] = w.T


def gate_up(weights: dict[str, torch.Tensor]) -> None:
    for name in [name for name in weights if "gate_proj" in name]:
        other = name.replace("gate_proj", "up_proj")
        weights[name], weights[other] = weights[other], weights[name]


def one_lower(weights: dict[str, torch.Tensor]) -> None:
    weights["transformer.wpe.weight"] = torch.roll(weights["transformer.wpe.weight"], 1, 0)


def key_first(weights: dict[str, torch.Tensor]) -> None:
    for name, w in weights.items():
        if "c_attn" in name:
            q, k, v = w.chunk(3, -1)
            weights[name] = torch.cat((k, q, v), -1)


def plus_one(weights: dict[str, torch.Tensor]) -> None:
    for name, w in weights.items():
        if "norm" in name:
            weights[name] = w + 1


CONVERTED = [
    ("llama", halves_to_pairs, "rotary-pairs"),
    ("gpt2", by_head, "fused-by-head"),
    ("gpt2", upside_down, "transposed-out"),
    ("llama", gate_up, "gate-up"),
    ("gpt2", one_lower, "positions+1"),
    ("gpt2", key_first, "roles-kqv"),
    ("gemma", plus_one, "gain-plus-one"),
]


@pytest.mark.parametrize(("kind", "change", "key"), CONVERTED)
def test_a_faulty_conversion_is_named(kind: str, change: Any, key: str, tmp_path: Path) -> None:
    found = verdict(kept(kind, tmp_path, change), said(stranger(kind), tmp_path))
    assert key in (found.steps[0].key, *found.steps[0].also)
    assert len(found.steps) == 1
    assert found.explained


def test_two_at_once_are_two(tmp_path: Path) -> None:
    found = verdict(kept("gpt2", tmp_path, by_head), said(stranger("gpt2", activation_function="gelu"), tmp_path))
    assert {step.key for step in found.steps} == {"fused-by-head", "activation-gelu"}
    assert found.explained


@pytest.mark.proof
def test_norms_after_the_addition_and_none_before_the_head(tmp_path: Path) -> None:
    """OPT's two layouts: post-norm has no last norm either."""
    theirs = said(stranger("opt", do_layer_norm_before=False), tmp_path)
    found = verdict(kept("opt", tmp_path), theirs, seconds=600)  # pairs are tried on a busy machine, too
    assert {step.key for step in found.steps} == {"post-norm", "no-last-norm"}
    assert found.explained


@pytest.mark.proof
def test_what_no_convention_explains_is_said_with_what_is_left(tmp_path: Path) -> None:
    def noise(weights: dict[str, torch.Tensor]) -> None:
        for name, w in weights.items():
            weights[name] = w + 0.05 * torch.randn(w.shape, generator=torch.Generator().manual_seed(3))

    found = verdict(kept("gpt2", tmp_path, noise), said(stranger("gpt2"), tmp_path))
    assert not found.explained
    assert found.left > 0.01


def test_no_convention_names_what_is_right(tmp_path: Path) -> None:
    """Each convention, where it applies, changes the logits of some model: none is idle."""
    moved: set[str] = set()
    for kind in KINDS:
        (tmp_path / kind).mkdir()
        spec, state = read_weights(kept(kind, tmp_path / kind), tmp_path).ported
        tokens = torch.randint(37, (1, 14), generator=torch.Generator().manual_seed(2))
        moved |= {one.key for one in CONVENTIONS if changes((spec, state), one.apply((spec, state)[0], state), tokens)}
    already = {"scale-head", "theta-10000", "head-as-it-is"}  # what all of these do
    absent = {"no-rotary-scaling", "no-score-cap", "no-logit-cap", "gates-over-all", "gates-factor"}  # none has it
    assert {one.key for one in CONVENTIONS} - moved == already | absent


def changes(before: Ported, after: Ported | None, tokens: torch.Tensor) -> bool:
    from plainformer.model import Transformer
    from plainformer.porting.searching import Trying

    if after is None:
        return False
    model = Transformer(before[0], initial=None).double()
    model.load_state_dict(before[1])
    gap = Trying(tokens, model.eval()(tokens).detach()).gap(after)
    return 1e-9 < gap < float("inf")


def test_nanogpt_s_own_file_is_read_as_gpt2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its matrices stand transposed beside GPT-2's, the square one too; its GELU is exact; its masks are buffers."""
    from implementations import as_nanogpt

    sizes = {"vocab_size": 37, "block_size": 32, "n_embd": 24, "n_head": 3, "n_layer": 2}
    torch.manual_seed(0)
    model = as_nanogpt.GPT(as_nanogpt.GPTConfig(**sizes, dropout=0.0, bias=True)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    transformers.GPT2Config(**GPT2).save_pretrained(tmp_path)
    torch.save({f"_orig_mod.{name}": w for name, w in model.state_dict().items()}, tmp_path / "ckpt.pt")
    tokens = torch.randint(37, (2, 14))
    with torch.no_grad():
        logits = model(tokens, tokens)[0]
    np.savez(tmp_path / "logits.npz", tokens=tokens.numpy(), logits=logits.numpy())
    words = ["--weights", str(tmp_path / "ckpt.pt"), "--like", str(tmp_path), "--logits", str(tmp_path / "logits.npz")]
    assert main(["check", *words, "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert {step["key"] for step in told["steps"]} == {"transposed-out", "activation-gelu"}
    assert told["explained"]
    assert "6 matrices stand transposed" in told["notes"][0]


# --- from the command line -------------------------------------------------------------------------------------------


def test_a_file_is_read_by_another_folder_s_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, logits = kept("llama", tmp_path), said(stranger("llama"), tmp_path)
    weights = load_file(folder / "model.safetensors")
    turned = {name: w.T.contiguous() if "mlp" in name else w for name, w in weights.items()}
    torch.save(turned, tmp_path / "theirs.pt")
    words = ["check", "--weights", str(tmp_path / "theirs.pt"), "--like", str(folder)]
    assert main([*words, "--logits", str(logits)]) == 0
    out = capsys.readouterr().out
    assert "6 matrices stand transposed" in out
    assert "same " in out


def test_two_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    right, wrong = kept("llama", tmp_path / "a"), kept("llama", tmp_path / "b", halves_to_pairs)
    assert main(["check", "--weights", str(wrong), "--like", str(right), "--json"]) == 4
    told = json.loads(capsys.readouterr().out)
    assert told["explained"]
    assert told["steps"][0]["key"] == "rotary-pairs"
    assert main(["check", "--weights", str(right), "--like", str(right)]) == 0
    assert main(["check", "--weights", str(wrong), "--like", str(right)]) == 4
    assert "explained what is left is rounding" in capsys.readouterr().out


def test_what_cannot_be_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = kept("gpt2", tmp_path)
    np.savez(tmp_path / "bad.npz", tokens=np.zeros((1, 3)), logits=np.zeros((1, 3, 37)))
    (tmp_path / "no.npz").write_bytes(b"no")
    np.savez(tmp_path / "wide.npz", tokens=np.zeros((1, 3), int), logits=np.zeros((1, 3, 40)))
    np.savez(tmp_path / "high.npz", tokens=np.full((1, 3), 37), logits=np.zeros((1, 3, 37)))
    np.savez(tmp_path / "long.npz", tokens=np.zeros((1, 33), int), logits=np.zeros((1, 33, 37)))
    for words in (
        ["--weights", str(folder)],
        ["--weights", str(folder), "--like", "gpt2"],
        ["--weights", str(tmp_path / "absent"), "--like", str(folder)],
        ["--weights", str(folder), "--like", str(folder), "--logits", str(tmp_path / "bad.npz")],
        ["--weights", str(folder), "--like", str(folder), "--logits", str(tmp_path / "no.npz")],
        *(
            ["--weights", str(folder), "--like", str(folder), "--logits", str(tmp_path / f"{name}.npz")]
            for name in ("wide", "high", "long")
        ),
        ["my.py", "--weights", str(folder), "--like", str(folder)],
    ):
        assert main(["check", *words]) == 2
    assert capsys.readouterr().out == ""

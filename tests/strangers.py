"""Strangers in small: one tiny random model for each family of transformers, run in float64 throughout, saved in a
folder as published, and read back by us.

T tokens, S source tokens, V vocabulary, D d_model.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

import laws
from plainformer import reference
from plainformer.huggingface import names, read_file
from plainformer.ledger import Ledger
from plainformer.spec import Spec

Arrays = dict[str, np.ndarray]
VOCAB, N_TOKENS, N_SOURCE = 29, 17, 13
CLOSE = 1e-9

# --- float64 throughout -----------------------------------------------------------------------------------------------


def widened(original: Callable) -> Callable:
    """The same function, for which float32 means float64."""

    def call(*args: object, **kwargs: object) -> object:
        wide = [torch.float64 if a is torch.float32 else a for a in args]
        return original(*wide, **{k: torch.float64 if a is torch.float32 else a for k, a in kwargs.items()})

    return call


@contextmanager
def float64() -> Iterator[None]:
    """Strangers that say float32 (norms, softmax, rotary tables, routers, slopes) mean float64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        for room, name in (
            *((torch.Tensor, name) for name in ("to", "type", "softmax")),
            *((torch, name) for name in ("arange", "full", "tensor", "zeros")),
            (nn.functional, "softmax"),
        ):
            patch.setattr(room, name, widened(getattr(room, name)))
        patch.setattr(torch, "FloatTensor", torch.DoubleTensor)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)


@torch.no_grad()
def shaken(stranger: nn.Module, seed: int = 0) -> nn.Module:
    """The same with weights large enough to show every rule: gains, biases, sinks and corrections too."""
    generator = torch.Generator().manual_seed(seed)
    held = [*stranger.named_parameters(), *((n, b) for n, b in stranger.named_buffers() if "correction" in n)]
    for name, p in held:
        if "embed_positions" in name and not p.requires_grad:  # fixed sines
            continue
        norm = p.dim() == 1 and ("norm" in name.lower() or "ln_" in name)
        wide = 2 * p.shape[-1] ** -0.5 if p.dim() > 1 else 0.3
        wide = 1.5 if name.endswith(("sinks", "relative_attention_bias.weight")) else wide
        p.copy_(wide * torch.randn(p.shape, generator=generator) + (norm and not name.endswith("bias")))
    return stranger.eval()


# --- the families -----------------------------------------------------------------------------------------------------

SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
GROUPED = SIZES | {"num_key_value_heads": 2, "head_dim": 8}
T5 = {"vocab_size": VOCAB, "d_model": 24, "d_kv": 5, "d_ff": 40, "num_layers": 2, "num_heads": 4}
T5 |= {"num_decoder_layers": 3, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}
BART = {
    "vocab_size": VOCAB,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 3,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 36,
    "max_position_embeddings": 64,
}
PAIR_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 0}
OPT = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "ffn_dim": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "word_embed_proj_dim": 24,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 16}
DEEPSEEK = SIZES | {
    "num_hidden_layers": 3,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "q_lora_rank": 12,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 5,
}


def rope(kind: str, **settings: object) -> dict[str, object]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 100.0} | settings}


YARN = {"factor": 4.0, "original_max_position_embeddings": 16}


@dataclass(frozen=True)
class Stranger:
    """One family: the class, what its config says, and how it is asked."""

    name: str  # the class of transformers
    settings: Mapping[str, Any]
    types: bool = False  # it knows two kinds of sentences
    pair: bool = False  # an encoder and a decoder
    encoder: bool = False
    buffers: tuple[str, ...] = ()  # tensors of the folder that no weight of ours is
    constant: bool = False  # what is added to its scores is not 0
    fit: Callable[[Spec], Spec] = field(default=lambda spec: spec)  # what the reader cannot know


def longer(spec: Spec) -> Spec:
    """Rows longer than the context that the config states: what dynamic scaling is for."""
    return replace(spec, max_seq_len=64)


STRANGERS: dict[str, Stranger] = {
    "gpt2": Stranger(
        "GPT2LMHeadModel", {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 64}
    ),
    "gpt_neox": Stranger("GPTNeoXForCausalLM", SIZES | {"hidden_size": 32, "rotary_pct": 0.5}),
    "llama": Stranger("LlamaForCausalLM", GROUPED),
    "llama 3.1": Stranger(
        "LlamaForCausalLM",
        GROUPED
        | rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16),
    ),
    "mistral": Stranger("MistralForCausalLM", GROUPED | {"sliding_window": 5}),
    "qwen2": Stranger("Qwen2ForCausalLM", SIZES | {"num_key_value_heads": 2}),
    "qwen3": Stranger("Qwen3ForCausalLM", GROUPED),
    "bert": Stranger("BertForMaskedLM", SIZES, types=True, encoder=True),
    "bert base": Stranger("BertModel", SIZES, types=True, encoder=True),
    "roberta": Stranger("RobertaForMaskedLM", SIZES | SPECIAL, types=True, encoder=True),
    "roberta base": Stranger("RobertaModel", SIZES | SPECIAL | {"pad_token_id": 1}, types=True, encoder=True),
    "distilbert": Stranger(
        "DistilBertForMaskedLM",
        {"vocab_size": VOCAB, "dim": 24, "n_layers": 2, "n_heads": 4, "hidden_dim": 40, "max_position_embeddings": 64},
        encoder=True,
    ),
    "albert": Stranger(
        "AlbertForMaskedLM", SIZES | {"embedding_size": 10, "num_hidden_layers": 3}, types=True, encoder=True
    ),
    "albert in two groups": Stranger(
        "AlbertForMaskedLM",
        SIZES | {"embedding_size": 10, "num_hidden_layers": 4, "num_hidden_groups": 2},
        types=True,
        encoder=True,
    ),
    "albert with two inner groups": Stranger(
        "AlbertForMaskedLM",
        SIZES | {"embedding_size": 10, "num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
        types=True,
        encoder=True,
    ),
    "modernbert": Stranger(
        "ModernBertForMaskedLM", SIZES | SPECIAL | {"num_hidden_layers": 4, "local_attention": 6}, encoder=True
    ),
    "modernbert with biases": Stranger(
        "ModernBertForMaskedLM",
        SIZES
        | SPECIAL
        | {"local_attention": 8, "norm_bias": True, "attention_bias": True, "mlp_bias": True}
        | {"classifier_bias": True},
        encoder=True,
    ),
    "t5": Stranger("T5ForConditionalGeneration", T5, pair=True),
    "t5 1.1, tied": Stranger("T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu"}, pair=True),
    "t5 1.1, its head not scaled": Stranger(
        "T5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}, pair=True
    ),
    "mt5": Stranger("MT5ForConditionalGeneration", T5 | {"feed_forward_proj": "gated-gelu"}, pair=True),
    "t5 encoder": Stranger("T5EncoderModel", T5, encoder=True),
    "bart": Stranger("BartForConditionalGeneration", BART, pair=True, buffers=("final_logits_bias",)),
    "bart scaled": Stranger(
        "BartForConditionalGeneration", BART | {"scale_embedding": True}, pair=True, buffers=("final_logits_bias",)
    ),
    "bart base": Stranger("BartModel", BART, pair=True),
    "marian": Stranger(
        "MarianMTModel",
        BART | PAIR_ENDS | {"scale_embedding": True, "activation_function": "swish"},
        pair=True,
        constant=True,
    ),
    "marian, nothing added": Stranger(
        "MarianMTModel", BART | PAIR_ENDS | {"tie_word_embeddings": True}, pair=True, buffers=("final_logits_bias",)
    ),
    "pegasus": Stranger("PegasusForConditionalGeneration", BART, pair=True, buffers=("final_logits_bias",)),
    "mbart": Stranger("MBartForConditionalGeneration", BART, pair=True, constant=True),
    "m2m_100": Stranger("M2M100ForConditionalGeneration", BART, pair=True),
    "m2m_100 with another padding": Stranger(
        "M2M100ForConditionalGeneration", BART | {"pad_token_id": 0, "scale_embedding": False}, pair=True
    ),
    "blenderbot": Stranger(
        "BlenderbotForConditionalGeneration", BART | PAIR_ENDS, pair=True, buffers=("final_logits_bias",)
    ),
    "plbart": Stranger("PLBartForConditionalGeneration", BART, pair=True, buffers=("final_logits_bias",)),
    "mvp": Stranger("MvpForConditionalGeneration", BART, pair=True, buffers=("final_logits_bias",)),
    "gpt2 base": Stranger(
        "GPT2Model", {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 64}
    ),
    "bloom": Stranger("BloomForCausalLM", {"vocab_size": VOCAB, "hidden_size": 24, "n_layer": 2, "n_head": 6}),
    "bloom base": Stranger("BloomModel", {"vocab_size": VOCAB, "hidden_size": 24, "n_layer": 2, "n_head": 4}),
    "opt": Stranger("OPTForCausalLM", OPT),
    "opt post-norm, narrow": Stranger(
        "OPTForCausalLM", OPT | {"word_embed_proj_dim": 12, "do_layer_norm_before": False}
    ),
    "gemma": Stranger("GemmaForCausalLM", GROUPED),
    "gemma2": Stranger(
        "Gemma2ForCausalLM",
        GROUPED
        | {"sliding_window": 5, "query_pre_attn_scalar": 7, "attn_logit_softcapping": 3.0}
        | {"final_logit_softcapping": 4.0},
    ),
    "gemma3": Stranger(
        "Gemma3ForCausalLM",
        GROUPED
        | {"sliding_window": 5, "query_pre_attn_scalar": 7, "layer_types": ["sliding_attention", "full_attention"]}
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            }
        },
    ),
    "olmo2": Stranger("Olmo2ForCausalLM", SIZES | {"num_key_value_heads": 2, "eos_token_id": 2}),
    "olmo3": Stranger(
        "Olmo3ForCausalLM",
        SIZES
        | {"num_key_value_heads": 2, "sliding_window": 5, "num_hidden_layers": 4, "eos_token_id": 2}
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "rope_theta": 100.0} | YARN,
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            }
        },
    ),
    "olmo3 with two bases": Stranger(
        "Olmo3ForCausalLM",
        SIZES
        | {"num_key_value_heads": 2, "sliding_window": 5, "num_hidden_layers": 4, "eos_token_id": 2}
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "yarn", "rope_theta": 100.0} | YARN,
                "sliding_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 20.0},
            }
        },
    ),
    "phi3": Stranger(
        "Phi3ForCausalLM",
        SIZES | {"num_key_value_heads": 2, "sliding_window": 5, "pad_token_id": 0, "eos_token_id": 2},
    ),
    **{
        f"phi3 longrope, {words}": Stranger(
            "Phi3ForCausalLM",
            SIZES
            | {"num_key_value_heads": 2, "pad_token_id": 0, "eos_token_id": 2, "partial_rotary_factor": 0.75}
            | {"hidden_size": 32, "original_max_position_embeddings": first}
            | {
                "rope_parameters": {"rope_type": "longrope", "rope_theta": 100.0, "partial_rotary_factor": 0.75}
                | {"short_factor": [1.0, 1.2, 1.7], "long_factor": [1.1, 3.0, 9.0]}
                | {"original_max_position_embeddings": first}
            },
        )
        for words, first in (("short", 32), ("long", 12))
    },
    "mixtral": Stranger("MixtralForCausalLM", GROUPED | {"num_local_experts": 4}),
    "qwen2_moe": Stranger(
        "Qwen2MoeForCausalLM",
        SIZES
        | EXPERTS
        | {"num_key_value_heads": 2, "shared_expert_intermediate_size": 20, "num_hidden_layers": 3}
        | {"mlp_only_layers": [1]},
    ),
    "qwen3_moe": Stranger("Qwen3MoeForCausalLM", GROUPED | EXPERTS),
    "qwen3_moe normalised": Stranger("Qwen3MoeForCausalLM", GROUPED | EXPERTS | {"norm_topk_prob": True}),
    "deepseek_v2": Stranger(
        "DeepseekV2ForCausalLM", DEEPSEEK | {"topk_method": "greedy", "n_shared_experts": 2, "q_lora_rank": None}
    ),
    "deepseek_v2 in groups": Stranger(
        "DeepseekV2ForCausalLM", DEEPSEEK | {"topk_method": "group_limited_greedy", "routed_scaling_factor": 2.5}
    ),
    "deepseek_v3": Stranger("DeepseekV3ForCausalLM", DEEPSEEK),
    "deepseek_v3 without rank, yarn": Stranger(
        "DeepseekV3ForCausalLM",
        DEEPSEEK | {"q_lora_rank": None} | rope("yarn", **YARN, mscale=1.0, mscale_all_dim=0.7),
    ),
    "deepseek_v3 with biases": Stranger(
        "DeepseekV3ForCausalLM", DEEPSEEK | {"attention_bias": True, "norm_topk_prob": False, "n_shared_experts": 2}
    ),
    "deepseek_v3 in halves": Stranger("DeepseekV3ForCausalLM", DEEPSEEK | {"rope_interleave": False}),
    "gpt_oss": Stranger(
        "GptOssForCausalLM",
        GROUPED
        | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5}
        | rope("yarn", **YARN, beta_fast=32.0, beta_slow=1.0, truncate=False),
    ),
    "llama linear": Stranger("LlamaForCausalLM", GROUPED | rope("linear", factor=4.0)),
    "llama dynamic": Stranger(
        "LlamaForCausalLM", GROUPED | {"max_position_embeddings": 8} | rope("dynamic", factor=2.0), fit=longer
    ),
    "llama yarn": Stranger("LlamaForCausalLM", GROUPED | rope("yarn", **YARN)),
}

FOUR = {"num_hidden_layers": 4}
STRANGERS |= {  # kin of GPT-J, GPT-2 and Llama
    "gptj": Stranger(
        "GPTJForCausalLM",
        {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 64, "rotary_dim": 8},
    ),
    "ctrl": Stranger(
        "CTRLLMHeadModel",
        {"vocab_size": VOCAB, "n_embd": 24, "n_layer": 2, "n_head": 4, "n_positions": 64, "dff": 40},
    ),
    "phi": Stranger("PhiForCausalLM", SIZES | {"hidden_size": 32, "num_key_value_heads": 2}),
    "phi with norms": Stranger(
        "PhiForCausalLM", SIZES | {"hidden_size": 32, "num_key_value_heads": 2, "qk_layernorm": True}
    ),
    "xglm": Stranger(
        "XGLMForCausalLM",
        {"vocab_size": VOCAB, "d_model": 24, "num_layers": 2, "attention_heads": 4, "ffn_dim": 40}
        | {"max_position_embeddings": 64},
    ),
    "biogpt": Stranger("BioGptForCausalLM", SIZES),
    "starcoder2": Stranger("Starcoder2ForCausalLM", SIZES | {"num_key_value_heads": 2, "sliding_window": 5}),
    "stablelm": Stranger("StableLmForCausalLM", SIZES | {"hidden_size": 32, "num_key_value_heads": 2}),
    "stablelm side by side": Stranger(
        "StableLmForCausalLM",
        SIZES | {"hidden_size": 32, "num_key_value_heads": 2, "use_parallel_residual": True, "use_qkv_bias": True},
    ),
    "nemotron": Stranger("NemotronForCausalLM", GROUPED),
    "cohere": Stranger("CohereForCausalLM", SIZES | {"num_key_value_heads": 2, "logit_scale": 0.5}),
    "cohere2": Stranger(
        "Cohere2ForCausalLM", SIZES | FOUR | {"num_key_value_heads": 2, "sliding_window": 5, "logit_scale": 0.5}
    ),
    "olmo": Stranger("OlmoForCausalLM", SIZES | {"num_key_value_heads": 2}),
    "smollm3": Stranger("SmolLM3ForCausalLM", SIZES | SPECIAL | FOUR | {"num_key_value_heads": 2}),
    "arcee": Stranger("ArceeForCausalLM", GROUPED),
    "helium": Stranger("HeliumForCausalLM", SIZES | {"num_key_value_heads": 2, "head_dim": 6}),
    "ernie4_5": Stranger("Ernie4_5ForCausalLM", GROUPED),
    "seed_oss": Stranger("SeedOssForCausalLM", GROUPED),
    "cwm": Stranger("CwmForCausalLM", GROUPED | FOUR | {"sliding_window": 5}),
    "ministral": Stranger("MinistralForCausalLM", GROUPED | {"sliding_window": 5}),
    "exaone4": Stranger("Exaone4ForCausalLM", GROUPED | FOUR | {"sliding_window": 5}),
    "glm": Stranger("GlmForCausalLM", GROUPED | SPECIAL),
    "glm4": Stranger("Glm4ForCausalLM", GROUPED | SPECIAL),
    "olmoe": Stranger(
        "OlmoeForCausalLM", SIZES | {"num_key_value_heads": 2, "num_experts": 6, "num_experts_per_tok": 3}
    ),
}

# --- asking both ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """What a stranger was asked and what it said, and its weights by its names and by ours."""

    stranger: Stranger
    model_type: str
    spec: Spec
    theirs: Arrays
    arrays: Arrays
    tokens_T: np.ndarray
    source_S: np.ndarray | None
    types_T: np.ndarray | None
    want: np.ndarray


HEADS = ("ForConditionalGeneration", "ForCausalLM", "ForMaskedLM", "MTModel")


def made(stranger: Stranger) -> nn.Module:
    """The stranger's model; call it within float64()."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    kernels = {"attn_implementation": "eager"}
    base = stranger.name
    for ending in (*HEADS, "EncoderModel", "LMHeadModel", "Model"):
        base = base.removesuffix(ending)
    config_class = getattr(transformers, "Gemma3TextConfig" if base == "Gemma3" else f"{base}Config")
    kernels |= {"experts_implementation": "eager"} if "experts" in str(stranger.settings) else {}
    model = shaken(getattr(transformers, stranger.name)(config_class(**stranger.settings, **kernels)))
    if stranger.constant:
        generator = torch.Generator().manual_seed(1)
        model.final_logits_bias.copy_(torch.randn(model.final_logits_bias.shape, generator=generator))
    return model


@torch.no_grad()
def asked(
    stranger: Stranger, model: nn.Module, tokens: Tensor, source: Tensor | None, types: Tensor | None, **more: Any
) -> Tensor:
    """Its logits, or the stream of a base class."""
    if stranger.pair:
        out = model(input_ids=source, decoder_input_ids=tokens, **more)
    else:
        out = model(input_ids=tokens, **({} if types is None else {"token_type_ids": types}), **more)
    return out.logits if hasattr(out, "logits") else out.last_hidden_state


def case_of(stranger: Stranger, folder: Path) -> Case:
    """A folder as published, read back by us, and what the stranger says of some tokens."""
    rng = np.random.default_rng(2)
    tokens_T = rng.integers(3, VOCAB, N_TOKENS)
    source_S = rng.integers(3, VOCAB, N_SOURCE) if stranger.pair else None
    types_T = rng.integers(0, 2, N_TOKENS) if stranger.types else None
    with float64():
        model = made(stranger)
        model.save_pretrained(folder)
        rows = [None if a is None else torch.from_numpy(a)[None] for a in (tokens_T, source_S, types_T)]
        want = asked(stranger, model, *rows)[0]
    assert want.dtype == torch.float64
    reading = read_file(folder)
    stored = load_file(folder / "model.safetensors")
    theirs = {name: stored[at] for name, at in names.plain(reading.model_type, stored).items()}
    spec = names.found_in(reading.model_type, reading.spec, theirs)
    ours = names.to_ours(reading.model_type, spec, theirs, np)
    arrays = {name: np.ascontiguousarray(array, np.float64) for name, array in ours.items()}
    spec = stranger.fit(spec)
    return Case(stranger, reading.model_type, spec, theirs, arrays, tokens_T, source_S, types_T, want.numpy())


def by_reference(case: Case, spec: Spec) -> np.ndarray:
    run = reference.hidden if headless(case) else reference.logits
    return run(spec, case.arrays, case.tokens_T, source_S=case.source_S, types_T=case.types_T)


@torch.no_grad()
def by_model(case: Case, spec: Spec) -> np.ndarray:
    model = laws.double(spec, case.arrays)
    tokens_BT, source_BS, types_BT = (
        None if a is None else torch.from_numpy(a)[None] for a in (case.tokens_T, case.source_S, case.types_T)
    )
    memory = None if source_BS is None else model.encode(source_BS)
    x_BTD = model.hidden(tokens_BT, memory=memory, types_BT=types_BT)
    return (x_BTD if headless(case) else model.logits(x_BTD))[0].numpy()


def headless(case: Case) -> bool:
    return case.stranger.name.endswith("Model") and not case.stranger.name.endswith(("LMHeadModel", "MTModel"))


SIDES: dict[str, Callable[[Case, Spec], np.ndarray]] = {"reference": by_reference, "model": by_model}


def gap(case: Case, side: str, spec: Spec | None = None) -> float:
    """How far one side's answer is from the stranger's, as a share of its largest number (at least 1)."""
    got = SIDES[side](case, spec or case.spec)
    assert got.shape == case.want.shape
    assert np.isfinite(got).all()
    return float(np.abs(got - case.want).max() / max(1.0, np.abs(case.want).max()))


def check_whole(case: Case) -> None:
    """Our weights are the ledger's, all of them and no other."""
    reference.check_arrays(case.spec, case.arrays)
    assert case.arrays.keys() == {w.name for w in Ledger.of(case.spec).rows if not w.same_as}

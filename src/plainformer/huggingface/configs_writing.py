"""A Spec into the config.json of a stock class that holds exactly it. What a class cannot hold is refused by field."""

from __future__ import annotations

from collections.abc import Iterator
from re import sub
from typing import Any

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.huggingface.configs import read
from plainformer.records import is_dataclass
from plainformer.spec import Activation, Attention, Experts, FeedForward, Linear, NormedLinear, Scaling, Spec
from plainformer.tree import children, walk

Config = dict[str, Any]
NAMES: dict[Activation, str] = {
    "relu": "relu",
    "relu_squared": "relu2",
    "silu": "silu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
}
DTYPES = ("float32", "bfloat16", "float16")


def write(spec: Spec, *, dtype: str = "float32") -> Config:
    """The config of the first of GPT-2, Llama, Mistral, Qwen2, Qwen3 and Qwen3-MoE whose reading is this very spec.

    Token ids are left open (null) for the one who knows the tokenizer; dropout is 0. Raises PlainformerError with what
    differs from the nearest of these classes, field by field, when none can hold the spec.
    """
    if dtype not in DTYPES:
        raise refuse("dtype", dtype, f"must be one of {', '.join(DTYPES)}")
    misfits: list[tuple[str, list[Fault]]] = []
    for config in candidates(spec):
        found = list(differences(spec, read(config).spec, config["architectures"][0]))
        if not found:
            return config | {"torch_dtype": dtype}
        misfits.append((config["architectures"][0], found))
    _, nearest = min(misfits, key=lambda pair: len(pair[1]))
    first = {sub(r"\.\d+", "", fault.where): fault for fault in reversed(nearest)}  # once, not for every layer
    raise PlainformerError(sorted(first.values(), key=lambda fault: fault.where)[:6])


def candidates(spec: Spec) -> Iterator[Config]:
    """For each class the config that is nearest to the spec. Refuses what no causal decoder's config can say."""
    layers = spec.decoder.layers if spec.decoder else ()
    parts = [part for _, part in walk(layers[0] if layers else ())]
    part = next((part for part in parts if isinstance(part, Attention)), None)
    second = next((part for part in parts if isinstance(part, FeedForward)), None)
    if not spec.decoder or not spec.head:
        raise PlainformerError(
            Fault(name, None, "every class that can be exported to has one")
            for name in ("decoder", "head")
            if getattr(spec, name) is None
        )
    if part is None or second is None:
        kinds = [type(branch.part).__name__ for residual in layers[0] for branch in residual.branches]
        rule = "every class that can be exported to has Attention and FeedForward in each layer"
        raise refuse("decoder.layers.0", ", ".join(kinds), rule)
    eps = spec.decoder.norm_last.eps if spec.decoder.norm_last else 1e-5
    common: Config = {"vocab_size": spec.vocab_size, "tie_word_embeddings": spec.head.tied}
    common |= {"bos_token_id": None, "eos_token_id": None}
    yield common | {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_positions": spec.max_seq_len,
        "n_ctx": spec.max_seq_len,
        "n_embd": spec.d_model,
        "n_layer": len(layers),
        "n_head": part.n_heads if spec.d_model % part.n_heads == 0 else 1,
        "n_inner": second.up.n_out,
        "activation_function": NAMES.get(second.activation, "gelu_new"),
        "layer_norm_epsilon": eps,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }
    rotary = part.scores.rotary
    common |= {
        "max_position_embeddings": spec.max_seq_len,
        "hidden_size": spec.d_model,
        "intermediate_size": second.up.n_out,
        "num_hidden_layers": len(layers),
        "num_attention_heads": part.n_heads,
        "num_key_value_heads": part.n_kv_heads,
        "head_dim": part.d_head,
        "hidden_act": NAMES.get(second.activation, "silu"),
        "rms_norm_eps": eps,
        "rope_theta": rotary.theta if rotary else 10000.0,
        "rope_scaling": scaling(rotary.scaling) if rotary else None,
        "attention_dropout": 0.0,
    }
    attention_bias = {"attention_bias": part.out.bias}
    windows = [inner.window for layer in layers for _, inner in walk(layer) if isinstance(inner, Attention)]
    if spec.d_model % part.n_heads == 0:  # the class asks for it, though its heads may be wider
        llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "mlp_bias": second.up.bias}
        yield common | llama | attention_bias
    yield common | {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "sliding_window": part.window,
    }
    if len(windows) == len(layers) and any(windows):
        window = next(window for window in windows if window)
        common |= {"use_sliding_window": True, "sliding_window": window, "max_window_layers": 0}
        common["layer_types"] = ["sliding_attention" if window else "full_attention" for window in windows]
    qwens = [
        common | {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
        common | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"} | attention_bias,
    ]
    if mixed := [i for i, layer in enumerate(layers) if any(isinstance(inner, Experts) for _, inner in walk(layer))]:
        yield common | attention_bias | mixture(spec, mixed)
    # On a tie the first is said to be the nearest: one with a norm on its queries where the spec has one.
    yield from reversed(qwens) if isinstance(part.q, NormedLinear) else qwens


def mixture(spec: Spec, mixed: list[int]) -> Config:
    """What Qwen3-MoE's class says besides Qwen3's keys. mixed: the layers with experts."""
    layers = spec.decoder.layers if spec.decoder else ()
    experts = next(part for _, part in walk(layers[mixed[0]]) if isinstance(part, Experts))
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": experts.n_experts,
        "num_experts_per_tok": experts.router.n_chosen,
        "moe_intermediate_size": experts.expert.up.n_out,
        "norm_topk_prob": getattr(experts.router, "normalised", True),
        "router_aux_loss_coef": experts.balance,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [i for i in range(len(layers)) if i not in mixed],
    }


def scaling(found: Scaling | None) -> Config | None:
    """rope_scaling, with the types that its class asks for."""
    if found is None:
        return None
    if found.kind == "other":
        raise refuse("scores.rotary.scaling.kind", found.kind, "no exported class is known to scale this way")
    settings: Config = dict(found.settings)
    if found.kind == "longrope":
        for name in ("short_factor", "long_factor"):
            n_pairs = sum(one.startswith(f"{name}.") for one in settings)
            settings[name] = [settings.pop(f"{name}.{i}") for i in range(n_pairs)]
    if "original_max_position_embeddings" in settings:
        settings["original_max_position_embeddings"] = int(settings["original_max_position_embeddings"])
    if "truncate" in settings:
        settings["truncate"] = bool(settings["truncate"])
    return {"rope_type": found.kind} | settings


def differences(ours: object, theirs: object, class_name: str, where: str = "") -> Iterator[Fault]:
    """Where two trees differ, as reasons why the class named cannot hold ours."""
    if ours == theirs:
        return
    alike = type(ours) is type(theirs) and (is_dataclass(ours) or isinstance(ours, tuple))
    mine, others = list(children(ours)), list(children(theirs))
    if alike and len(mine) == len(others):
        for (name, value), (_, other) in zip(mine, others, strict=True):
            yield from differences(value, other, class_name, f"{where}.{name}".lstrip("."))
    else:
        yield Fault(where, brief(ours), f"{class_name} has {brief(theirs)} here")


def brief(value: object) -> object:
    """A part by its kind, a row of parts by its length, a number as it is."""
    if isinstance(value, tuple):
        return f"{len(value)} parts"
    if isinstance(value, Linear):
        return f"Linear({value.n_in}, {value.n_out})"
    return type(value).__name__ if is_dataclass(value) else value

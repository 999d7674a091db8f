"""Every text model type of the installed transformers: its default config, and others with their sizes and switches
drawn anew. The class on the meta device is the truth; a reading is exact, refused by name, or wrong.

`python tests/drift.py` prints the share that is answered; bench/drift.py keeps it.
"""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from plainformer.faults import PlainformerError
from plainformer.huggingface import read
from plainformer.ledger import Ledger

Config = dict[str, Any]
LAYERS = ("n_layer", "n_layers", "num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers")
LAYERS += ("num_decoder_layers",)
WIDTHS = ("hidden_size", "n_embd", "d_model", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads", "encoder_attention_heads")
HEADS += ("decoder_attention_heads",)
FEEDS = ("intermediate_size", "n_inner", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "dff", "hidden_dim")
FEEDS += ("moe_intermediate_size", "shared_expert_intermediate_size", "intermediate_size_mlp", "ffn_hidden_size")
FEEDS += ("shared_intermediate_size",)
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
CHOSEN = ("num_experts_per_tok", "moe_topk", "moe_k", "top_k_experts")
OTHERS: dict[str, tuple[Any, ...]] = {
    "vocab_size": (61, 64, 90),
    "head_dim": (16, 32),
    "global_head_dim": (32,),
    "d_kv": (8, 12),
    "q_lora_rank": (8, 12),
    "kv_lora_rank": (10,),
    "qk_nope_head_dim": (6, 8),
    "qk_rope_head_dim": (4, 8),
    "v_head_dim": (6,),
    "n_group": (1, 2),
    "topk_group": (1,),
    "max_position_embeddings": (32, 40),
    "n_positions": (32, 40),
    "embedding_size": (16, 24),
    "type_vocab_size": (1, 2, 3),
    "first_k_dense_replace": (0, 1, 2),
    "mamba_n_heads": (4, 8),
    "mamba_d_head": ("auto",),
    "mamba_d_state": (4, 8),
    "mamba_dt_rank": (3, "auto"),
    "state_size": (4, 8),
    "linear_num_key_heads": (2,),
    "linear_num_value_heads": (2, 4),
    "linear_key_head_dim": (6, 8),
    "linear_value_head_dim": (6, 8),
    "rotary_dim": (4, 8),
    "sliding_window": (8, 16),
    "attn_layer_period": (2, 3),
    "attn_layer_offset": (0, 1),
    "word_embed_proj_dim": (16, 64),
    "relative_attention_num_buckets": (8, 16),
}
SWITCHES = ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_bias", "bias", "qkv_bias", "use_qkv_bias")
SWITCHES += ("use_qk_norm", "qk_layernorm", "multi_query", "parallel_attn", "new_decoder_architecture", "alibi")
SWITCHES += ("use_parallel_residual", "norm_bias", "classifier_bias", "decoder_bias", "mamba_conv_bias", "lm_head_bias")
SWITCHES += ("mamba_proj_bias", "use_conv_bias", "attention_k_eq_v", "do_layer_norm_before", "attention_out_bias")
SWITCHES += ("projectors_bias", "mamba_rms_norm", "conv_bias", "use_post_norm", "norm_topk_prob", "scale_embedding")
DERIVED = ("layer_types", "mlp_layer_types", "no_rope_layers", "moe_layers", "attention_layers", "attention_types")
DERIVED += ("layers_block_type", "layer_rope_theta", "full_attn_idxs", "num_attention_heads_per_layer")
NEEDED: dict[str, Callable[[Config], Config]] = {  # what a class cannot do without, and its defaults leave out
    "gpt_neo": lambda keys: {"attention_types": [[["global", "local"], 2]], "num_layers": 4},
    "lfm2_moe": lambda keys: {"num_hidden_layers": 6, "layer_types": ["conv", "full_attention"] * 3},
    "dbrx": lambda keys: (
        {"attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8}}
        | {"ffn_config": {"ffn_hidden_size": 40, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": keys["d_model"]}}
    ),
}
UNTIED_BY_HAND = (
    "t5",
    "mt5",
    "longt5",
    "umt5",
)  # transformers ties their heads by force; the files have one of their own


def text_types() -> dict[str, list[str]]:
    """The classes with a head over the vocabulary of each model type of the installed transformers."""
    from transformers.models.auto import modeling_auto as auto

    found: dict[str, list[str]] = {}
    for kind in ("CAUSAL_LM", "MASKED_LM", "SEQ_TO_SEQ_CAUSAL_LM"):
        for model_type, class_name in getattr(auto, f"MODEL_FOR_{kind}_MAPPING_NAMES").items():
            names = found.setdefault(model_type, [])
            names.extend(name for name in [class_name] if name not in names)
    return found


def of_type(model_type: str, keys: Config) -> Any:
    """The config that transformers makes of these keys."""
    import transformers

    return transformers.AutoConfig.for_model(model_type, **keys)


def built(class_name: str, config: Any) -> int | None:
    """The parameters of the class on the meta device; None where it cannot be built from this config."""
    import torch
    import transformers

    model_class = getattr(transformers, class_name)
    wanted = getattr(model_class, "config_class", None)
    if wanted and not isinstance(config, wanted) and hasattr(config, "text_config"):
        config = config.get_text_config()
    try:
        with warnings.catch_warnings(), torch.device("meta"):
            warnings.simplefilter("ignore")
            model = model_class(config)
    except Exception:  # whatever a class says to sizes that it cannot have: it has no truth there
        return None
    return sum(parameter.numel() for parameter in model.parameters())


def saved(config: Any, class_name: str) -> Config:
    """The config.json that transformers writes."""
    found: Config = json.loads(config.to_json_string(use_diff=True))
    return found | {"architectures": [class_name], "model_type": config.model_type}


def drawn(full: Config, draw: random.Random) -> Config:
    """Other values for the keys that a config has: sizes, experts, ties and biases."""
    heads = draw.choice((2, 4))
    width = heads * draw.choice((16, 32))
    layers, experts = draw.choice((2, 3, 4, 5)), draw.choice((4, 6, 8))
    keys: Config = {}
    for names, value in ((LAYERS, layers), (WIDTHS, width), (HEADS, heads)):
        keys |= {name: value for name in names if full.get(name) is not None}
    for names, value in ((EXPERTS, experts), (CHOSEN, 2), (("n_shared_experts",), draw.choice((1, 2)))):
        keys |= {name: value for name in names if name in full}
    for name in ("num_key_value_heads", "num_kv_heads"):
        if name in full:
            keys[name] = draw.choice([n for n in (1, 2, 4) if heads % n == 0])
    keys |= {name: i for i, name in enumerate(("pad_token_id", "bos_token_id", "eos_token_id")) if name in full}
    if "head_dim" in full and full["head_dim"] is None and draw.random() < 0.7:
        keys["head_dim"] = draw.choice((16, 32))
    keys |= {name: draw.choice((24, 40)) for name in FEEDS if full.get(name) is not None}
    keys |= {name: draw.choice(values) for name, values in OTHERS.items() if full.get(name) is not None}
    if full.get("mamba_d_ssm") is not None:
        keys["mamba_d_ssm"] = 8 * keys["mamba_n_heads"]
    keys |= {name: draw.random() < 0.5 for name in SWITCHES if isinstance(full.get(name), bool)}
    if "num_heads" in keys and "state_size" in keys:  # Mamba-2: heads of the inner width
        keys |= {"head_dim": 8, "num_heads": 2 * width // 8, "n_groups": 2, "expand": 2}
    elif "state_size" in keys:
        keys["intermediate_size"] = 2 * width
    return keys


@dataclass(frozen=True)
class Answer:
    """What a reading says beside the truth."""

    model_type: str
    class_name: str
    config: Config
    verdict: str  # exact, refused, wrong
    said: str = ""
    total: int = 0  # of parameters, where it is exact


def judged(model_type: str, class_name: str, config: Config, truth: int) -> Answer:
    try:
        total = Ledger.of(read(config).spec).total
    except PlainformerError as error:
        return Answer(model_type, class_name, config, "refused", str(error))
    if total == truth:
        return Answer(model_type, class_name, config, "exact", total=total)
    return Answer(model_type, class_name, config, "wrong", f"{total} is not {truth} ({total - truth:+})")


def forced(model_type: str, config: Config) -> int:
    """What the files have beyond the class."""
    own = model_type in UNTIED_BY_HAND and config.get("tie_word_embeddings") is False
    return int(config["vocab_size"] * config["d_model"]) if own else 0


@cache
def answers(model_type: str, n_drawn: int = 3) -> tuple[Answer, ...]:
    """The default config, and n_drawn others; each as transformers saves it and as its bare keys."""
    return tuple(_answers(model_type, n_drawn))


def _answers(model_type: str, n_drawn: int) -> Iterator[Answer]:
    draw = random.Random(model_type)
    for class_name in text_types()[model_type]:
        try:
            default = of_type(model_type, {})
        except Exception:  # a config that needs keys
            continue
        config = saved(default, class_name)
        truth = built(class_name, default)
        if truth is not None:
            yield judged(model_type, class_name, config, truth + forced(model_type, config))
        full = default.to_dict()
        done = 0
        for _ in range(12 * n_drawn):
            inner = full.get("text_config")
            keys = {"text_config": drawn(inner, draw)} if isinstance(inner, dict) else drawn(full, draw)
            keys |= NEEDED.get(model_type, lambda keys: {})(keys)
            try:
                config_object = of_type(model_type, keys)
            except Exception:  # sizes that the config itself refuses
                continue
            bare = keys | {"architectures": [class_name], "model_type": model_type}
            config = saved(config_object, class_name)
            truth = built(class_name, config_object)
            if truth is None:
                continue
            if model_type in UNTIED_BY_HAND:  # their config class says true whatever it was told
                config["tie_word_embeddings"] = keys.get("tie_word_embeddings", True)
            for said in (config, bare):
                yield judged(model_type, class_name, said, truth + forced(model_type, keys))
            done += 1
            if done == n_drawn:
                break


def verdict(found: tuple[Answer, ...]) -> str:
    """Of a type: wrong if any answer is; exact if one is; else refused; unbuilt where no class was."""
    kinds = Counter(answer.verdict for answer in found)
    return next((kind for kind in ("wrong", "exact", "refused") if kinds[kind]), "unbuilt")


def main() -> None:
    total: Counter[str] = Counter()
    for model_type in sorted(text_types()):
        found = answers(model_type)
        total[verdict(found)] += 1
        for answer in found:
            if answer.verdict == "wrong":
                print(model_type, answer.class_name, answer.said, json.dumps(answer.config)[:1500])
    print(dict(total))


if __name__ == "__main__":
    main()

"""A GGUF file as the folder that it was made from: its keys as a config.json, its tensors by the names of the published
class. By the header alone: no number is read but rotary divisors."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Mapping
from math import prod
from typing import Any

from plainformer.faults import refuse
from plainformer.huggingface.configs import Reading, read
from plainformer.huggingface.gguf_header import File, Held, read_gguf
from plainformer.huggingface.names import pooled_in
from plainformer.records import dataclass, replace

Config = dict[str, Any]
LAYER = "model.layers.{i}"

LLAMA = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "blk.{i}.attn_norm": f"{LAYER}.input_layernorm",
    "blk.{i}.attn_q": f"{LAYER}.self_attn.q_proj",
    "blk.{i}.attn_k": f"{LAYER}.self_attn.k_proj",
    "blk.{i}.attn_v": f"{LAYER}.self_attn.v_proj",
    "blk.{i}.attn_q_norm": f"{LAYER}.self_attn.q_norm",
    "blk.{i}.attn_k_norm": f"{LAYER}.self_attn.k_norm",
    "blk.{i}.attn_output": f"{LAYER}.self_attn.o_proj",
    "blk.{i}.ffn_norm": f"{LAYER}.post_attention_layernorm",
    "blk.{i}.ffn_gate": f"{LAYER}.mlp.gate_proj",
    "blk.{i}.ffn_up": f"{LAYER}.mlp.up_proj",
    "blk.{i}.ffn_down": f"{LAYER}.mlp.down_proj",
}
AFTER = {
    "blk.{i}.post_attention_norm": f"{LAYER}.post_attention_layernorm",
    "blk.{i}.post_ffw_norm": f"{LAYER}.post_feedforward_layernorm",
}
SANDWICH = LLAMA | AFTER | {"blk.{i}.ffn_norm": f"{LAYER}.pre_feedforward_layernorm"}
PHI3 = LLAMA | {"blk.{i}.attn_qkv": f"{LAYER}.self_attn.qkv_proj", "blk.{i}.ffn_up": f"{LAYER}.mlp.gate_up_proj"}
W = {"gate": "w1", "down": "w2", "up": "w3"}
MIXTRAL = LLAMA | {"blk.{i}.ffn_gate_inp": f"{LAYER}.block_sparse_moe.gate"}
MIXTRAL |= {f"blk.{{i}}.ffn_{a}_exps": f"{LAYER}.block_sparse_moe.experts.{{e}}.{b}" for a, b in W.items()}
MIXTRAL |= {f"blk.{{i}}.ffn_{a}.{{e}}": f"{LAYER}.block_sparse_moe.experts.{{e}}.{b}" for a, b in W.items()}
QWEN_MOE = LLAMA | {"blk.{i}.ffn_gate_inp": f"{LAYER}.mlp.gate"}
QWEN_MOE |= {"blk.{i}.ffn_gate_inp_shexp": f"{LAYER}.mlp.shared_expert_gate"}
QWEN_MOE |= {f"blk.{{i}}.ffn_{a}_exps": f"{LAYER}.mlp.experts.{{e}}.{a}_proj" for a in W}
QWEN_MOE |= {f"blk.{{i}}.ffn_{a}_shexp": f"{LAYER}.mlp.shared_expert.{a}_proj" for a in W}
GPT2 = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "blk.{i}.attn_norm": "transformer.h.{i}.ln_1",
    "blk.{i}.attn_qkv": "transformer.h.{i}.attn.c_attn",
    "blk.{i}.attn_output": "transformer.h.{i}.attn.c_proj",
    "blk.{i}.ffn_norm": "transformer.h.{i}.ln_2",
    "blk.{i}.ffn_up": "transformer.h.{i}.mlp.c_fc",
    "blk.{i}.ffn_down": "transformer.h.{i}.mlp.c_proj",
}
BERT_LAYER = "bert.encoder.layer.{i}"
BERT = {
    "token_embd": "bert.embeddings.word_embeddings",
    "position_embd": "bert.embeddings.position_embeddings",
    "token_types": "bert.embeddings.token_type_embeddings",
    "token_embd_norm": "bert.embeddings.LayerNorm",
    "blk.{i}.attn_q": f"{BERT_LAYER}.attention.self.query",
    "blk.{i}.attn_k": f"{BERT_LAYER}.attention.self.key",
    "blk.{i}.attn_v": f"{BERT_LAYER}.attention.self.value",
    "blk.{i}.attn_output": f"{BERT_LAYER}.attention.output.dense",
    "blk.{i}.attn_output_norm": f"{BERT_LAYER}.attention.output.LayerNorm",
    "blk.{i}.ffn_up": f"{BERT_LAYER}.intermediate.dense",
    "blk.{i}.ffn_down": f"{BERT_LAYER}.output.dense",
    "blk.{i}.layer_output_norm": f"{BERT_LAYER}.output.LayerNorm",
}


@dataclass(frozen=True)
class Form:
    """How a family lies in these files. pairs: rotary heads pair by pair, as llama.cpp turns them. plus_one: gains of
    norms with the 1 that the class adds. turned: linears that the class stores as (inputs, outputs)."""

    model_type: str
    names: Mapping[str, str]
    pairs: bool = False
    plus_one: bool = False
    turned: bool = False


FORMS = {  # by general.architecture; a llama with experts is a Mixtral
    "llama": Form("llama", LLAMA, pairs=True),
    "llama with experts": Form("mixtral", MIXTRAL, pairs=True),
    "qwen2": Form("qwen2", LLAMA),
    "qwen3": Form("qwen3", LLAMA),
    "qwen2moe": Form("qwen2_moe", QWEN_MOE),
    "qwen3moe": Form("qwen3_moe", QWEN_MOE),
    "phi3": Form("phi3", PHI3),
    "olmo2": Form("olmo2", LLAMA | AFTER),
    "gemma": Form("gemma", LLAMA, plus_one=True),
    "gemma2": Form("gemma2", SANDWICH, plus_one=True),
    "gemma3": Form("gemma3_text", SANDWICH, plus_one=True),
    "gpt2": Form("gpt2", GPT2, turned=True),
    "bert": Form("bert", BERT),
}
KINDS = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K"}
KINDS |= {13: "Q5_K", 14: "Q6_K", 20: "IQ4_NL", 23: "IQ4_XS", 30: "BF16", 39: "MXFP4"}  # told by name; others by number
DIVISORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
MOST_FLOAT32 = 2.0**128 - 2.0**104
MOST_EXPERTS = 50_000  # matrices of single experts, each listed by its name; the largest of these families have 36,096


@dataclass(frozen=True)
class Piece:
    """One tensor of the class: all of a tensor of the file, or one expert of it."""

    held: Held
    expert: int | None = None
    row: bool = False  # a matrix of one row, stored without its side of 1

    @property
    def shape(self) -> tuple[int, ...]:
        shape = self.held.shape if self.expert is None else self.held.shape[1:]
        return (1, *shape) if self.row else shape


@dataclass(frozen=True)
class Gguf:
    file: File
    form: Form
    reading: Reading
    pieces: Mapping[str, Piece]  # by the names of the published class

    @property
    def n_bytes(self) -> int:
        """Of all tensors, as they are packed, with what fills them up to the alignment."""
        begins = [one.begin for one in self.file.tensors.values()]
        return self.file.size - min(begins, default=self.file.size)

    @property
    def kinds(self) -> str:
        """What the tensors are packed as: "15 Q4_K, 5 F32"."""
        found = Counter(KINDS.get(one.kind, f"of kind {one.kind}") for one in self.file.tensors.values())
        return ", ".join(f"{n:,} {kind}" for kind, n in found.most_common())


def read_model(path: str) -> Gguf:
    """What a file holds, from its header.

    Raises PlainformerError: damaged, a family without a table here, keys or tensors that this family has not.
    """
    file = read_gguf(path)
    family = file.keys.get("general.architecture")
    kind = "llama with experts" if family == "llama" and file.keys.get("llama.expert_count") else family
    if not isinstance(kind, str) or kind not in FORMS:
        hint = f"there are {', '.join(name for name in FORMS if ' ' not in name)}"
        raise refuse(f"{path}: general.architecture", family, "has no table of tensor names yet", hint)
    n_experts = sum(one.shape[0] for one in file.tensors.values() if len(one.shape) == 3)
    if n_experts > MOST_EXPERTS:
        raise refuse(path, n_experts, f"matrices of single experts: over {MOST_EXPERTS:,}, as no model has")
    form, pieces = FORMS[kind], dict[str, Piece]()
    for name, one in file.tensors.items():
        for theirs, piece in pieces_of(form.names, name, one, path):
            pieces[theirs] = piece
    reading = read(config_of(file, form, str(family), path), path)
    spec = pooled_in(form.model_type, reading.spec, pieces)  # BERT's pooler is left out of these files
    return Gguf(file, form, replace(reading, spec=spec), pieces)


def pieces_of(table: Mapping[str, str], name: str, one: Held, path: str) -> list[tuple[str, Piece]]:
    """The class's tensors in one of the file's, by their names; none in what is no weight."""
    if name in DIVISORS:
        return []
    stem, _, kind = name.rpartition(".")
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)(?:\.(\d+))?", stem)
    plain = f"blk.{{i}}.{found[2]}" + (".{e}" if found[3] else "") if found else stem
    theirs = table.get(plain)
    if theirs is None or kind not in ("weight", "bias"):
        raise refuse(f"{path}: {name}", None, "is no tensor of this family that is known here")
    theirs = f"{theirs.replace('{i}', found[1]) if found else theirs}.{kind}"
    if not plain.endswith("_exps"):
        expert = str(found[3]) if found else ""
        return [(theirs.replace("{e}", expert), Piece(one, row=plain.endswith("_inp_shexp") and len(one.shape) == 1))]
    if len(one.shape) != 3:
        raise refuse(f"{path}: {name}", one.shape, "must be experts of one shape, one after another")
    return [(theirs.replace("{e}", str(e)), Piece(one, e)) for e in range(one.shape[0])]


def as_written(value: Any) -> Any:
    """A float32 by the shortest decimal that it is: 1e-05, not 9.999999747378752e-06."""
    if not isinstance(value, float) or not abs(value) <= MOST_FLOAT32:
        return value
    near = (one for digits in range(1, 9) if abs(one := float(f"{value:.{digits}g}")) <= MOST_FLOAT32)
    return next((one for one in near if struct.pack("<f", one) == struct.pack("<f", value)), value)


def config_of(file: File, form: Form, family: str, path: str) -> Config:
    """The config.json that the file was made from, as far as its keys say it."""

    def said(name: str, default: Any = None) -> Any:
        value = as_written(file.keys.get(f"{family}.{name}", default))
        if value is None:
            raise refuse(f"{path}: {family}.{name}", None, "is missing")
        return value

    def whole(name: str, default: Any = None) -> int:
        value = said(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise refuse(f"{path}: {family}.{name}", value, "must be a whole number")
        return value

    table = file.tensors.get("token_embd.weight")
    if table is None or len(table.shape) != 2:
        raise refuse(f"{path}: token_embd.weight", None, "is missing")
    tied, d_model, n_heads = (
        "output.weight" not in file.tensors,
        whole("embedding_length"),
        said("attention.head_count"),
    )
    config: Config = {"model_type": form.model_type, "vocab_size": table.shape[0], "tie_word_embeddings": tied}
    if family == "gpt2":
        eps = said("attention.layer_norm_epsilon")
        sizes = {"n_embd": d_model, "n_layer": said("block_count"), "n_head": n_heads}
        sizes |= {"n_inner": said("feed_forward_length"), "n_positions": said("context_length")}
        return config | sizes | {"layer_norm_epsilon": eps}
    if family == "bert":
        places, types = (file.tensors.get(f"{name}.weight") for name in ("position_embd", "token_types"))
        sizes = {"hidden_size": d_model, "num_hidden_layers": said("block_count"), "num_attention_heads": n_heads}
        sizes |= {"intermediate_size": said("feed_forward_length"), "architectures": ["BertModel"]}
        sizes |= {"max_position_embeddings": places.shape[0] if places and places.shape else said("context_length")}
        sizes |= {"type_vocab_size": types.shape[0] if types and types.shape else 2}
        return config | sizes | {"layer_norm_eps": said("attention.layer_norm_epsilon")}
    d_head = whole("attention.key_length", d_model // n_heads if isinstance(n_heads, int) and n_heads > 0 else 0)
    n_turned = whole("rope.dimension_count", d_head)
    if n_turned != d_head and family != "phi3":
        raise refuse(f"{path}: {family}.rope.dimension_count", n_turned, f"must be all of a head's {d_head} numbers")
    config |= {
        "hidden_size": d_model,
        "intermediate_size": said("feed_forward_length", 0) or None,
        "num_hidden_layers": said("block_count"),
        "num_attention_heads": n_heads,
        "num_key_value_heads": said("attention.head_count_kv", n_heads),
        "head_dim": d_head,
        "max_position_embeddings": said("context_length"),
        "rms_norm_eps": said("attention.layer_norm_rms_epsilon"),
        "rope_theta": said("rope.freq_base", 10000.0),
    }
    if family == "llama":
        config["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
        config["mlp_bias"] = "blk.0.ffn_up.bias" in file.tensors
    if family == "phi3":
        window = file.keys.get("phi3.attention.sliding_window")
        config |= {"partial_rotary_factor": n_turned / d_head if d_head else 1.0, "sliding_window": window or None}
        config |= {"original_max_position_embeddings": file.keys.get("phi3.rope.scaling.original_context_length")}
    if family in ("gemma2", "gemma3"):
        # 27B alone divides by the width over the heads: llama.cpp tells it by its depth, and so do we
        broad = config["num_hidden_layers"] == {"gemma2": 46, "gemma3": 62}[family] and isinstance(n_heads, int)
        config |= {"query_pre_attn_scalar": d_model / n_heads if broad and n_heads else d_head}
        config |= {"sliding_window": said("attention.sliding_window", {"gemma2": 4096, "gemma3": 1024}[family])}
    if family == "gemma2":
        config |= {"attn_logit_softcapping": said("attn_logit_softcapping", 50.0)}
        config |= {"final_logit_softcapping": said("final_logit_softcapping", 30.0)}
    if file.keys.get(f"{family}.expert_count"):
        config |= mixture(file, family, said)
    return config | ({"rope_scaling": scaling} if (scaling := stretched(file, family, path)) else {})


def mixture(file: File, family: str, said: Any) -> Config:
    """What the classes with experts say besides. Their widths are those of the first layer's tensors."""

    def wide(name: str) -> int | None:
        one = file.tensors.get(f"blk.0.{name}.weight")
        return one.shape[-2] if one and len(one.shape) > 1 else None

    n_experts, n_chosen = said("expert_count"), said("expert_used_count")
    if family == "llama":
        width = wide("ffn_gate_exps") or wide("ffn_gate.0")
        return {"num_local_experts": n_experts, "num_experts_per_tok": n_chosen, "intermediate_size": width}
    config = {"num_experts": n_experts, "num_experts_per_tok": n_chosen, "moe_intermediate_size": wide("ffn_gate_exps")}
    config["intermediate_size"] = said("feed_forward_length", 0) or wide("ffn_gate_exps")
    if family == "qwen2moe":
        config["shared_expert_intermediate_size"] = wide("ffn_gate_shexp")
    return config | {"norm_topk_prob": bool(said("expert_weights_norm", family == "qwen3moe"))}


def divisors(file: File, name: str, path: str) -> list[float]:
    """A row of float32 in the file: by how much each rotary frequency is divided."""
    held = file.tensors[name]
    if held.kind != 0 or len(held.shape) != 1 or held.begin + 4 * held.shape[0] > file.size:
        raise refuse(f"{path}: {name}", held.shape, "must be one row of float32")
    with open(path, "rb") as opened:
        opened.seek(held.begin)
        return list(struct.unpack(f"<{prod(held.shape)}f", opened.read(4 * held.shape[0])))


def stretched(file: File, family: str, path: str) -> Config | None:
    """How rotary frequencies are stretched: by divisors that the file holds (Llama 3.1, Phi-3), or by a rule that it
    names."""
    first = file.keys.get(f"{family}.rope.scaling.original_context_length")
    if "rope_factors_long.weight" in file.tensors and "rope_factors_short.weight" in file.tensors:
        told: Config = {"rope_type": "longrope", "original_max_position_embeddings": first}
        told |= {f"{which}_factor": divisors(file, f"rope_factors_{which}.weight", path) for which in ("short", "long")}
        sharper = as_written(file.keys.get(f"{family}.rope.scaling.attn_factor"))
        return told | ({} if sharper is None else {"attention_factor": sharper})
    if "rope_freqs.weight" in file.tensors:
        by = divisors(file, "rope_freqs.weight", path)
        told = {"rope_type": "longrope", "short_factor": by, "long_factor": by, "attention_factor": 1.0}
        return told | {"original_max_position_embeddings": file.keys.get(f"{family}.context_length")}
    kind, factor = (as_written(file.keys.get(f"{family}.rope.scaling.{name}")) for name in ("type", "factor"))
    if kind in (None, "none"):
        return None
    if kind not in ("linear", "yarn"):
        raise refuse(f"{path}: {family}.rope.scaling.type", kind, "is not read yet", "linear and yarn are")
    return {"rope_type": kind, "factor": factor} | ({"original_max_position_embeddings": first} if first else {})

"""Where each family's published tensors stand in the ledger: one table a family, one row a pattern. {i} counts layers,
{e} experts. A row whose weights a spec's ledger lacks (a bias, a norm in another place) is passed over.

Names are those of the class with a head; `names.spellings` says how else they are written."""

from __future__ import annotations

from plainformer.huggingface.tables_kin import KIN
from plainformer.huggingface.tables_rows import (
    AFTER,
    DECODER,
    ENCODER,
    GATED,
    PRE,
    PROJECTIONS,
    QKV,
    SANDWICH,
    both,
    llama_like,
    row,
    several,
    stacked,
)
from plainformer.huggingface.tables_rows import Row as Row
from plainformer.records import replace

GPT2 = (  # its linears are stored turned: (inputs, outputs)
    row("transformer.wte.weight", "embedding.weight"),
    row("transformer.wpe.weight", "decoder.positions.weight"),
    *both("transformer.h.{i}.ln_1", f"{DECODER}.attention_norm"),
    *both("transformer.h.{i}.attn.c_attn", *QKV, weight="split turned", bias="split"),
    *both("transformer.h.{i}.attn.c_proj", f"{DECODER}.attention.out", weight="turned"),
    *both("transformer.h.{i}.ln_2", f"{DECODER}.feed_forward_norm"),
    *both("transformer.h.{i}.mlp.c_fc", f"{DECODER}.feed_forward.up", weight="turned"),
    *both("transformer.h.{i}.mlp.c_proj", f"{DECODER}.feed_forward.down", weight="turned"),
    *both("transformer.ln_f", "decoder.norm_last"),
    row("lm_head.weight", "head.weight"),
)

NEOX_MLP = {"dense_h_to_4h": "up", "dense_4h_to_h": "down"}
NEOX = (
    row("gpt_neox.embed_in.weight", "embedding.weight"),
    *both("gpt_neox.layers.{i}.input_layernorm", f"{DECODER}.attention_norm"),
    *both("gpt_neox.layers.{i}.attention.query_key_value", *QKV, weight="split in heads", bias="split in heads"),
    *both("gpt_neox.layers.{i}.attention.dense", f"{DECODER}.attention.out"),
    *both("gpt_neox.layers.{i}.post_attention_layernorm", f"{DECODER}.feed_forward_norm"),
    *several("gpt_neox.layers.{i}.mlp", f"{DECODER}.feed_forward", NEOX_MLP),
    *both("gpt_neox.final_layer_norm", "decoder.norm_last"),
    row("embed_out.weight", "head.weight"),
)

BLOOM = (
    row("transformer.word_embeddings.weight", "embedding.weight"),
    *both("transformer.word_embeddings_layernorm", "decoder.norm_first"),
    *both("transformer.h.{i}.input_layernorm", f"{DECODER}.attention_norm"),
    *both("transformer.h.{i}.self_attention.query_key_value", *QKV, weight="split in heads", bias="split in heads"),
    *both("transformer.h.{i}.self_attention.dense", f"{DECODER}.attention.out"),
    *both("transformer.h.{i}.post_attention_layernorm", f"{DECODER}.feed_forward_norm"),
    *several("transformer.h.{i}.mlp", f"{DECODER}.feed_forward", NEOX_MLP),
    *both("transformer.ln_f", "decoder.norm_last"),
    row("lm_head.weight", "head.weight"),
)

OPT = (
    row("model.decoder.embed_tokens.weight", "embedding.weight"),
    row("model.decoder.embed_positions.weight", "decoder.positions.weight"),
    row("model.decoder.project_in.weight", "embedding.project.weight"),
    row("model.decoder.project_out.weight", "head.transform.weight"),
    row(  # a base class gives what this makes
        "model.decoder.project_out.weight",
        "head.weight",
        beside="embedding.project.weight",
        without="head.transform.weight",
    ),
    *several("model.decoder.layers.{i}.self_attn", f"{DECODER}.attention", PROJECTIONS),
    *several("model.decoder.layers.{i}", DECODER, {"fc1": "feed_forward.up", "fc2": "feed_forward.down"}),
    *both("model.decoder.layers.{i}.self_attn_layer_norm", f"{DECODER}.attention_norm"),
    *both("model.decoder.layers.{i}.self_attn_layer_norm", f"{DECODER}.attention_norm_sum"),
    *both("model.decoder.layers.{i}.final_layer_norm", f"{DECODER}.feed_forward_norm"),
    *both("model.decoder.layers.{i}.final_layer_norm", f"{DECODER}.feed_forward_norm_sum"),
    *both("model.decoder.final_layer_norm", "decoder.norm_last"),
    row("lm_head.weight", "head.weight", beside="head.transform.weight"),
    row("lm_head.weight", "head.weight", without="embedding.project.weight"),
)

ROUTER = row("model.layers.{i}.mlp.gate.weight", f"{DECODER}.feed_forward.router.scores.weight")

LLAMA = llama_like(PRE)
PHI3 = llama_like(  # two pairs of matrices side by side
    PRE,
    row("model.layers.{i}.self_attn.qkv_proj.weight", *(f"{name}.weight" for name in QKV), lies="split"),
    row(
        "model.layers.{i}.mlp.gate_up_proj.weight",
        f"{DECODER}.feed_forward.gate.weight",
        f"{DECODER}.feed_forward.up.weight",
        lies="split",
    ),
    attention={"o_proj": "out"},
    feed_forward={"down_proj": "down"},
)
MIXTRAL = llama_like(
    PRE,
    row("model.layers.{i}.block_sparse_moe.gate.weight", f"{DECODER}.feed_forward.router.scores.weight"),
    *stacked("model.layers.{i}.block_sparse_moe.experts", {"w1": "gate", "w2": "down", "w3": "up"}),
)
QWEN_MOE = llama_like(
    PRE,
    ROUTER,
    *stacked("model.layers.{i}.mlp.experts", GATED),
    *several("model.layers.{i}.mlp.shared_expert", f"{DECODER}.feed_forward.shared", GATED),
    row("model.layers.{i}.mlp.shared_expert_gate.weight", f"{DECODER}.feed_forward.shared_gate.weight"),
)
LATENT = {
    "o_proj": "out",
    "q_proj": "q",
    "q_a_proj": "q.down",
    "q_a_layernorm": "q.norm",
    "q_b_proj": "q.up",
    "kv_a_proj_with_mqa": "kv_down",
    "kv_a_layernorm": "kv_norm",
    "kv_b_proj": "kv_up",
}
DEEPSEEK = llama_like(
    PRE,
    ROUTER,
    row("model.layers.{i}.mlp.gate.e_score_correction_bias", f"{DECODER}.feed_forward.router.correction"),
    *stacked("model.layers.{i}.mlp.experts", GATED),
    *several("model.layers.{i}.mlp.shared_experts", f"{DECODER}.feed_forward.shared", GATED),
    attention=LATENT,
)
OSS_EXPERTS = f"{DECODER}.feed_forward.experts"
GPT_OSS = llama_like(
    PRE,
    row("model.layers.{i}.self_attn.sinks", f"{DECODER}.attention.sinks"),
    *both("model.layers.{i}.mlp.router", f"{DECODER}.feed_forward.router.scores"),
    row(
        "model.layers.{i}.mlp.experts.gate_up_proj",
        f"{OSS_EXPERTS}.gate.weight",
        f"{OSS_EXPERTS}.up.weight",
        lies="pairs turned",
    ),
    row(
        "model.layers.{i}.mlp.experts.gate_up_proj_bias",
        f"{OSS_EXPERTS}.gate.bias",
        f"{OSS_EXPERTS}.up.bias",
        lies="pairs",
    ),
    row("model.layers.{i}.mlp.experts.down_proj", f"{OSS_EXPERTS}.down.weight", lies="turned"),
    row("model.layers.{i}.mlp.experts.down_proj_bias", f"{OSS_EXPERTS}.down.bias"),
)

BERT_LAYER = {
    "attention.self.query": "attention.q",
    "attention.self.key": "attention.k",
    "attention.self.value": "attention.v",
    "attention.output.dense": "attention.out",
    "attention.output.LayerNorm": "attention_norm_sum",
    "intermediate.dense": "feed_forward.up",
    "output.dense": "feed_forward.down",
    "output.LayerNorm": "feed_forward_norm_sum",
}
BERT = (
    row("bert.embeddings.word_embeddings.weight", "embedding.weight"),
    row("bert.embeddings.position_embeddings.weight", "encoder.positions.weight"),
    row("bert.embeddings.token_type_embeddings.weight", "embedding.types.weight"),
    *both("bert.embeddings.LayerNorm", "encoder.norm_first"),
    *several("bert.encoder.layer.{i}", ENCODER, BERT_LAYER),
    *both("bert.pooler.dense", "head", without="head.transform.weight"),
    row("cls.predictions.decoder.weight", "head.weight", beside="head.transform.weight"),
    row("cls.predictions.bias", "head.bias", beside="head.transform.weight"),
    *both("cls.predictions.transform.dense", "head.transform"),
    *both("cls.predictions.transform.LayerNorm", "head.norm"),
)

ROBERTA = (
    row("roberta.embeddings.word_embeddings.weight", "embedding.weight"),
    row("roberta.embeddings.position_embeddings.weight", "encoder.positions.weight"),
    row("roberta.embeddings.token_type_embeddings.weight", "embedding.types.weight"),
    *both("roberta.embeddings.LayerNorm", "encoder.norm_first"),
    *several("roberta.encoder.layer.{i}", ENCODER, BERT_LAYER),
    *both("roberta.pooler.dense", "head", without="head.transform.weight"),
    row("lm_head.decoder.weight", "head.weight", beside="head.transform.weight"),
    row("lm_head.bias", "head.bias", beside="head.transform.weight"),
    *both("lm_head.dense", "head.transform"),
    *both("lm_head.layer_norm", "head.norm"),
)

DISTILBERT_LAYER = {
    "attention.q_lin": "attention.q",
    "attention.k_lin": "attention.k",
    "attention.v_lin": "attention.v",
    "attention.out_lin": "attention.out",
    "sa_layer_norm": "attention_norm_sum",
    "ffn.lin1": "feed_forward.up",
    "ffn.lin2": "feed_forward.down",
    "output_layer_norm": "feed_forward_norm_sum",
}
DISTILBERT = (
    row("distilbert.embeddings.word_embeddings.weight", "embedding.weight"),
    row("distilbert.embeddings.position_embeddings.weight", "encoder.positions.weight"),
    *both("distilbert.embeddings.LayerNorm", "encoder.norm_first"),
    *several("distilbert.transformer.layer.{i}", ENCODER, DISTILBERT_LAYER),
    *both("vocab_transform", "head.transform"),
    *both("vocab_layer_norm", "head.norm"),
    *both("vocab_projector", "head"),
)

ALBERT_LAYER = {
    "attention.query": "attention.q",
    "attention.key": "attention.k",
    "attention.value": "attention.v",
    "attention.dense": "attention.out",
    "attention.LayerNorm": "attention_norm_sum",
    "ffn": "feed_forward.up",
    "ffn_output": "feed_forward.down",
    "full_layer_layer_norm": "feed_forward_norm_sum",
}
ALBERT = (
    row("albert.embeddings.word_embeddings.weight", "embedding.weight"),
    row("albert.embeddings.position_embeddings.weight", "embedding.positions.weight"),
    row("albert.embeddings.token_type_embeddings.weight", "embedding.types.weight"),
    *both("albert.embeddings.LayerNorm", "embedding.norm"),
    *both("albert.encoder.embedding_hidden_mapping_in", "embedding.project"),
    *several("albert.encoder.albert_layer_groups.{i}.albert_layers.0", ENCODER, ALBERT_LAYER),
    *both("albert.pooler", "head", without="head.transform.weight"),
    row("predictions.decoder.weight", "head.weight", beside="head.transform.weight"),
    row("predictions.bias", "head.bias", beside="head.transform.weight"),
    *both("predictions.dense", "head.transform"),
    *both("predictions.LayerNorm", "head.norm"),
)

# one matrix for queries, keys and values, one for gate and up; its first layer has no norm before attention
MODERNBERT_QKV = tuple(f"{ENCODER}.attention.{name}" for name in "qkv")
MODERNBERT = (
    row("model.embeddings.tok_embeddings.weight", "embedding.weight"),
    *both("model.embeddings.norm", "encoder.norm_first"),
    *both("model.layers.{i}.attn_norm", f"{ENCODER}.attention_norm"),
    *both("model.layers.{i}.attn.Wqkv", *MODERNBERT_QKV, weight="split", bias="split"),
    *both("model.layers.{i}.attn.Wo", f"{ENCODER}.attention.out"),
    *both("model.layers.{i}.mlp_norm", f"{ENCODER}.feed_forward_norm"),
    *both(
        "model.layers.{i}.mlp.Wi",
        *(f"{ENCODER}.feed_forward.{n}" for n in ("gate", "up")),
        weight="split",
        bias="split",
    ),
    *both("model.layers.{i}.mlp.Wo", f"{ENCODER}.feed_forward.down"),
    *both("model.final_norm", "encoder.norm_last"),
    *both("head.dense", "head.transform"),
    *both("head.norm", "head.norm"),
    *both("decoder", "head"),
)


def bart_stack(name: str) -> tuple[Row, ...]:
    theirs, ours = f"model.{name}.layers.{{i}}", f"{name}.layers.{{i}}"
    norms = {"self_attn_layer_norm": "attention_norm", "encoder_attn_layer_norm": "cross_attention_norm"}
    norms |= {"final_layer_norm": "feed_forward_norm"}
    return (
        row(f"model.{name}.embed_positions.weight", f"{name}.positions.weight"),
        *both(f"model.{name}.layernorm_embedding", f"{name}.norm_first"),
        *several(f"{theirs}.self_attn", f"{ours}.attention", PROJECTIONS),
        *several(f"{theirs}.encoder_attn", f"{ours}.cross_attention", PROJECTIONS),
        *several(theirs, ours, {"fc1": "feed_forward.up", "fc2": "feed_forward.down"}),
        *several(theirs, ours, norms),  # before its part, or on the sum
        *several(theirs, ours, {a: f"{b}_sum" for a, b in norms.items()}),
        *both(f"model.{name}.layer_norm", f"{name}.norm_last"),
    )


BART = (  # and its kin: which norms and positions there are, the spec says
    row("model.shared.weight", "embedding.weight"),
    *bart_stack("encoder"),
    *bart_stack("decoder"),
    row("lm_head.weight", "head.weight"),
    row("final_logits_bias", "head.bias", lies="one row"),
)
MARIAN = tuple(replace(r, made=".embed_positions." in r.theirs) for r in BART)


def t5_stack(name: str, *parts: tuple[str, str]) -> tuple[Row, ...]:
    """parts: their sublayers in order, and ours."""
    rows = [row(f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight", f"{name}.relative.weight")]
    for j, (theirs, ours) in enumerate(parts):
        place, here = f"{name}.block.{{i}}.layer.{j}", f"{name}.layers.{{i}}.{ours}"
        names = {"q": "q", "k": "k", "v": "v", "o": "out", "wi": "up", "wi_0": "gate", "wi_1": "up", "wo": "down"}
        gate = f"{here}.gate.weight"  # two names for the way up: by whether there is a gate beside it
        for a, b in names.items():
            beside, without = gate if a == "wi_1" else None, gate if a == "wi" else None
            rows.append(row(f"{place}.{theirs}.{a}.weight", f"{here}.{b}.weight", beside=beside, without=without))
        rows.append(row(f"{place}.layer_norm.weight", f"{here}_norm.weight"))
    rows.append(row(f"{name}.final_layer_norm.weight", f"{name}.norm_last.weight"))
    return tuple(rows)


SELF, CROSS, FEED = (
    ("SelfAttention", "attention"),
    ("EncDecAttention", "cross_attention"),
    ("DenseReluDense", "feed_forward"),
)
T5 = (
    row("shared.weight", "embedding.weight"),
    *t5_stack("encoder", SELF, FEED),
    *t5_stack("decoder", SELF, CROSS, FEED),
    row("lm_head.weight", "head.weight"),
)

TABLES: dict[str, tuple[Row, ...]] = {
    "gpt2": GPT2,
    "gpt_neox": NEOX,
    "bloom": BLOOM,
    "opt": OPT,
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "phi3": PHI3,
    "gemma": LLAMA,
    "gemma2": llama_like(SANDWICH),
    "gemma3_text": llama_like(SANDWICH),
    "olmo2": llama_like(AFTER),
    "olmo3": llama_like(AFTER),
    "mixtral": MIXTRAL,
    "qwen2_moe": QWEN_MOE,
    "qwen3_moe": QWEN_MOE,
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "gpt_oss": GPT_OSS,
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "distilbert": DISTILBERT,
    "albert": ALBERT,
    "modernbert": MODERNBERT,
    "bart": BART,
    "mbart": BART,
    "plbart": BART,
    "mvp": BART,
    "m2m_100": BART,
    "blenderbot": BART,
    "marian": MARIAN,
    "pegasus": MARIAN,
    "t5": T5,
    "mt5": T5,
} | KIN

"""Where the tensors of decoders stand that are near to GPT-J, GPT-2 or Llama: see `tables`."""

from __future__ import annotations

from plainformer.huggingface.tables_rows import (
    AFTER,
    DECODER,
    GATED,
    PRE,
    PROJECTIONS,
    Row,
    both,
    llama_like,
    row,
    several,
    stacked,
)

SHARED = {"input_layernorm": "attention_norm_shared"}  # one norm for branches side by side
UP_DOWN = {"up_proj": "up", "down_proj": "down"}
LAST_BIAS = row("model.norm.bias", "decoder.norm_last.bias")
LAYER_NORMED = llama_like(PRE, LAST_BIAS)
FUSED = row(
    "model.layers.{i}.mlp.gate_up_proj.weight",
    f"{DECODER}.feed_forward.gate.weight",
    f"{DECODER}.feed_forward.up.weight",
    lies="split",
)
DOWN = {"down_proj": "down"}
GLM4 = {"post_self_attn_layernorm": "attention_norm_out", "post_mlp_layernorm": "feed_forward_norm_out"}

GPTJ = (
    row("transformer.wte.weight", "embedding.weight"),
    *both("transformer.h.{i}.ln_1", f"{DECODER}.attention_norm_shared"),
    *several("transformer.h.{i}.attn", f"{DECODER}.attention", PROJECTIONS),
    *several("transformer.h.{i}.mlp", f"{DECODER}.feed_forward", {"fc_in": "up", "fc_out": "down"}),
    *both("transformer.ln_f", "decoder.norm_last"),
    *both("lm_head", "head"),
)

CTRL_LAYER = {"ffn.0": "feed_forward.up", "ffn.2": "feed_forward.down"}
CTRL_LAYER |= {"layernorm1": "attention_norm", "layernorm2": "feed_forward_norm"}
CTRL = (
    row("transformer.w.weight", "embedding.weight"),
    *several(
        "transformer.h.{i}.multi_head_attention",
        f"{DECODER}.attention",
        {"Wq": "q", "Wk": "k", "Wv": "v", "dense": "out"},
    ),
    *several("transformer.h.{i}", DECODER, CTRL_LAYER),
    *both("transformer.layernorm", "decoder.norm_last"),
    *both("lm_head", "head"),
)

PHI_ATTENTION = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "dense": "out"}
PHI_ATTENTION |= {"q_layernorm": "q.norm", "k_layernorm": "k.norm"}
PHI = (
    row("model.embed_tokens.weight", "embedding.weight"),
    *several("model.layers.{i}.self_attn", f"{DECODER}.attention", PHI_ATTENTION),
    *several("model.layers.{i}", DECODER, SHARED),
    *several("model.layers.{i}.mlp", f"{DECODER}.feed_forward", {"fc1": "up", "fc2": "down"}),
    *both("model.final_layernorm", "decoder.norm_last"),
    *both("lm_head", "head"),
)


def fairseq_like(whole: str, last: str, head: str) -> tuple[Row, ...]:
    """Decoders whose layers are BART's without an encoder."""
    layer = f"{whole}.layers.{{i}}"
    norms = {"self_attn_layer_norm": "attention_norm", "final_layer_norm": "feed_forward_norm"}
    return (
        row(f"{whole}.embed_tokens.weight", "embedding.weight"),
        row(f"{whole}.embed_positions.weight", "decoder.positions.weight"),
        *several(f"{layer}.self_attn", f"{DECODER}.attention", PROJECTIONS),
        *several(layer, DECODER, norms | {"fc1": "feed_forward.up", "fc2": "feed_forward.down"}),
        *both(f"{whole}.{last}", "decoder.norm_last"),
        row(f"{head}.weight", "head.weight"),
    )


LLAMA = llama_like(PRE)
KIN: dict[str, tuple[Row, ...]] = {
    "gptj": GPTJ,
    "ctrl": CTRL,
    "phi": PHI,
    "xglm": fairseq_like("model", "layer_norm", "lm_head"),
    "biogpt": fairseq_like("biogpt", "layer_norm", "output_projection"),
    "starcoder2": llama_like(PRE, LAST_BIAS, feed_forward={"c_fc": "up", "c_proj": "down"}),
    "stablelm": llama_like(
        PRE, *both("model.layers.{i}.input_layernorm", f"{DECODER}.attention_norm_shared"), LAST_BIAS
    ),
    "nemotron": llama_like(PRE, LAST_BIAS, feed_forward=UP_DOWN),
    "cohere": llama_like(SHARED),
    "cohere2": llama_like(SHARED),
    "olmo": LLAMA,
    "smollm3": LLAMA,
    "arcee": LLAMA,
    "helium": LLAMA,
    "ernie4_5": LLAMA,
    "seed_oss": LLAMA,
    "cwm": LLAMA,
    "ministral": LLAMA,
    "exaone4": llama_like(AFTER),
    "glm": llama_like(PRE, FUSED, feed_forward=DOWN),
    "glm4": llama_like(PRE | GLM4, FUSED, feed_forward=DOWN),
    "olmoe": llama_like(
        PRE,
        row("model.layers.{i}.mlp.gate.weight", f"{DECODER}.feed_forward.router.scores.weight"),
        *stacked("model.layers.{i}.mlp.experts", GATED),
    ),
}

# %% [hidden]
import plainformer as pf
from plainformer import conventions
from plainformer.conventions import count, pad_vocabulary, untie, with_lora
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson

SIZES = {"small": "gpt2", "medium": "gpt2-medium", "large": "gpt2-large", "xl": "gpt2-xl"}
gpt2, gpt3 = pf.presets["gpt2"], pf.presets["gpt3"]
padded = pad_vocabulary(gpt2)
nanogpt = count(gpt2, "nanogpt")
ledgers = {size: Ledger.of(pf.presets[name]) for size, name in SIZES.items()}
small, medium = ledgers["small"], ledgers["medium"]
gpt3_ledger, gpt3_rule = Ledger.of(gpt3), conventions.rule_of_thumb(96, 12288, 0)
eight_heads = count(pf.presets["gpt2-medium"], "nanogpt").total


def parts_of(ledger):
    """Tables, attention, feed-forward, norms."""
    kinds = ledger.by_kind
    return [kinds["embedding"] + kinds["position"], kinds["attention"], kinds["feed_forward"], kinds["norm"]]


def of_small(place):
    """Weights of GPT-2 small as nanoGPT counts, by where their names begin."""
    return sum(w.count for w in nanogpt.kept if w.name.startswith(place))


def rank_four(spec):
    return Ledger.of(with_lora(spec, rank=4)).by_kind["lora"]


attention = gpt2.decoder.layers[0][0].branches[0].part
no_bias = Ledger.of(conventions.without_biases(gpt3)).rows
gpt3_parts = [
    sum(w.count for w in no_bias if w.kind == kind and ".layers.0." in w.name) for kind in ("attention", "feed_forward")
]
table = small.by_kind["embedding"]

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** The feed-forward networks always hold the largest share of the weights.
#
# **Correction.** Of GPT-2 small they hold {{100 * parts_of(small)[2] / small.total:.0f}} %, of XL
# {{100 * parts_of(ledgers["xl"])[2] / ledgers["xl"].total:.0f}} %; of a model of four layers and width {{32}} the token
# table holds nearly all. It depends on depth times width. [computed]
#
# **Misconception.** GPT-2 small's token table is {{32}} % of it.
#
# **Correction.** The token table is {{100 * table / small.total:.1f}} %; with the positions it is
# {{100 * parts_of(small)[0] / small.total:.1f}} %. [computed]
#
# **Misconception.** More heads are more parameters.
#
# **Correction.** The same rows, cut into more groups. [inference]
#
# **Misconception.** Building GPT-2 small from its shape gives a model of {{round(small.total / 1e6)}} million weights.
#
# **Correction.** If the head is a layer of its own, as in many courses, it is {{count(gpt2, "untied").total:,}}: the
# token table is there twice. [computed]
#
# **Misconception.** GPT-3's size is twelve squares of the width a layer.
#
# **Correction.** Those are {{gpt3_rule:,}}; with tables, biases and norms it is {{gpt3_ledger.total:,}}. [computed]
#
# ## In twenty seconds
#
# - A block of GPT-2's kind holds twelve squares and thirteen lines of the width; heads do not matter. [inference]
# - A model is that, times its layers, plus its tables; small models are mostly tables. [inference]
# - Every published size is a count under a rule: padded or not, positions or not, biases or not, tied or not. Name the
#   rule. [inference]
# - From a label one gets a short list of shapes, never the heads. [inference]
#
# ## Self-test
#
# **Question.** How many parameters has GPT-2 medium as nanoGPT counts, and would eight heads instead of sixteen change
# it?
#
# **Answer.** {{eight_heads:,}}, by the formula with {{24}} layers of {{1024:,}}; and no. [computed]
# [computed: eight_heads == 50304 * 1024 + 24 * (12 * 1024**2 + 13 * 1024) + 2 * 1024]
#
# **Question.** A config says {{32}} layers of width {{4096:,}}. What is the body of the model, roughly, and what do you
# need to know to get it exactly?
#
# **Answer.** Twelve squares a layer: {{conventions.rule_of_thumb(32, 4096, 0) / 1e9:.2f}} billion. Exactly: the middle
# of the feed-forward network and how many matrices it has, the heads of keys and values, biases, norms, vocabulary, and
# whether the head is tied. [computed]
#
# **Question.** Two colleagues count the same checkpoint and differ by {{1024 * 768:,}}. What happened?
#
# **Answer.** One of them left out a position table of {{1024:,}} rows and {{768}} columns. [inference]
#
# **Question.** What does LoRA of rank four add to a square of width {{768}}?
#
# **Answer.** Rank times both sides: {{4 * (768 + 768):,}}, where the square itself has {{768**2:,}}. [computed]
#
# ## Papers

# %% [papers]

# %% [numbers]
{
    **{f"gpt2_{size}_openai": (f"GPT-2 {size}, every tensor", ledger.total) for size, ledger in ledgers.items()},
    **{
        f"gpt2_{size}_parts_openai": (f"GPT-2 {size}: tables, attention, feed-forward, norms", parts_of(ledger))
        for size, ledger in ledgers.items()
    },
    "gpt2_small_no_attn_bias": ("GPT-2 small, attention without biases", count(gpt2, "lesson").total),
    "gpt2_small_attn_bias_gap": ("what those biases are", small.total - count(gpt2, "lesson").total),
    "rule_of_thumb_small": ("twelve squares a layer and the token table", conventions.rule_of_thumb(12, 768, 50257)),
    "rule_of_thumb_gap": ("the share that it leaves out", 1 - conventions.rule_of_thumb(12, 768, 50257) / small.total),
    "embedding_share_small_xl": (
        "the share of both tables, small and XL",
        [parts_of(ledgers[size])[0] / ledgers[size].total for size in ("small", "xl")],
    ),
    "token_table_share_small": ("the share of the token table, small", table / small.total),
    "ffn_share_small_xl": (
        "the share of feed-forward networks, small and XL",
        [parts_of(ledgers[size])[2] / ledgers[size].total for size in ("small", "xl")],
    ),
    "ffn_beats_embeddings_when": ("layers times width from which they are the largest", parts_of(small)[0] / 768 / 8),
    "body_32x4096": ("twelve squares for 32 layers of 4,096", conventions.rule_of_thumb(32, 4096, 0)),
    "tt_gpt2_scale_untied": ("GPT-2 small with a head of its own", count(gpt2, "untied").total),
    "gpt3_embedding": ("GPT-3's token table: 50,000 rows, and its true rows", [50000 * 12288, gpt3.vocab_size * 12288]),
    "gpt3_attn_mlp_per_layer": (
        "GPT-3, a layer's squares: attention, feed-forward, both",
        [*gpt3_parts, sum(gpt3_parts)],
    ),
    "gpt3_12Ld2": ("GPT-3 by twelve squares a layer", gpt3_rule),
    "gpt3_exact": ("GPT-3, every tensor", gpt3_ledger.total),
    "nanogpt_sizing_total": (
        "GPT-2 small without biases, with positions",
        Ledger.of(conventions.without_biases(gpt2)).total,
    ),
    "small_token_embedding": ("GPT-2 small as nanoGPT counts: the token table", of_small("embedding.weight")),
    "small_ln": ("a norm", of_small("decoder.layers.0.attention_norm")),
    "small_c_attn": ("queries, keys, values", sum(of_small(f"decoder.layers.0.attention.{one}.") for one in "qkv")),
    "small_attn_out": ("attention's output", of_small("decoder.layers.0.attention.out")),
    "small_mlp_up": ("feed-forward up", of_small("decoder.layers.0.feed_forward.up")),
    "small_mlp_down": ("feed-forward down", of_small("decoder.layers.0.feed_forward.down")),
    "small_block": ("a block", of_small("decoder.layers.0.")),
    "small_12_blocks": ("twelve blocks", of_small("decoder.layers.")),
    "small_nanogpt": ("all of it", nanogpt.total),
    "small_positions": ("the positions, left out", sum(w.count for w in nanogpt.left_out)),
    "padding": (
        "rows of padding, and their weights",
        [padded.vocab_size - 50257, Ledger.of(padded).total - small.total],
    ),
    "untie_extra": ("what a head of its own adds, padded", Ledger.of(untie(padded)).total - Ledger.of(padded).total),
    "small_shares_pct": (
        "shares in percent: token table, attention, feed-forward, norms",
        [100 * n / nanogpt.total for n in (of_small("embedding.weight"), *parts_of(small)[1:])],
    ),
    "small_share_counts": ("attention, feed-forward, norms", parts_of(small)[1:]),
    "lora_small_padded": ("LoRA of rank 4 on queries, values, head; padded", rank_four(padded)),
    "lora_small_true_vocab": ("the same, not padded", rank_four(gpt2)),
    "lora_gap": ("the difference", rank_four(padded) - rank_four(gpt2)),
    "lora_share_pct": ("its share in percent", 100 * rank_four(padded) / nanogpt.total),
    "wq_wv_one_layer": (
        "query and value matrices of one layer",
        attention.q.n_in * attention.q.n_out + attention.v.n_in * attention.v.n_out,
    ),
    "openai_millions": ("the four sizes in millions", [round(ledger.total / 1e6, 1) for ledger in ledgers.values()]),
}

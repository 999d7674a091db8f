# %% [hidden]
import plainformer as pf
from plainformer import spec
from plainformer.cost import Cost, rules
from plainformer.cost.activations import taped
from plainformer.cost.devices import DEVICES
from plainformer.cost.flops import Work, flops
from plainformer.cost.tape import Pass
from plainformer.cost.training import compute_optimal_tokens
from plainformer.families import decoders
from plainformer.ledger import Ledger
from plainformer.lessons.words import power
from plainformer.tree import walk

presets = pf.presets
gpt3 = presets["gpt3"]
gpt3_total, width, depth = Ledger.of(gpt3).total, gpt3.d_model, len(gpt3.decoder.layers)
squares = 12 * depth * width**2
pairs = 2048**2
seen = 2048 * 2049 // 2


def total(name):
    return Ledger.of(presets[name]).total


def block_parts(name, T):
    """Operations of a whole pass: attention's matrices, scores and mixing, feed-forward, head."""
    model = presets[name]
    attention, feed = (residual.branches[0].part for residual in model.decoder.layers[0])
    n, every, none = len(model.decoder.layers), Work(1, T, T), Work(1, T, 0)
    matrices = flops(attention, none)
    return (
        n * matrices,
        n * (flops(attention, every) - matrices),
        n * flops(feed, every),
        flops(model.head, every),
    )


def crossover(d, equal):
    """The length, in widths, at which two costs of a block are equal."""
    for times in range(1, 20):
        work, none = Work(1, times * d, times * d), Work(1, times * d, 0)
        one = decoders.gpt2(vocab_size=2, d_model=d, n_layers=1, n_heads=1, max_seq_len=8).decoder.layers[0]
        attention, feed = (residual.branches[0].part for residual in one)
        matrices = flops(attention, none)
        scores = flops(attention, work) - matrices
        if equal(scores, matrices, flops(feed, work)):
            return times
    return None


def kept(n_layers, recompute):
    """Bytes kept for the backward pass after one row of 128 tokens, the logarithms that the loss keeps included."""
    small = decoders.gpt2(vocab_size=256, d_model=128, n_layers=n_layers, n_heads=4, max_seq_len=128)
    return taped(small, Pass(1, 128, fused=False, recompute=recompute, size=4)).n_bytes + 128 * 256 * 4


mixtral = Cost.of(presets["mixtral-8x7b"])
gpt2 = Cost.of(presets["gpt2"])
_, scores3, feed3, _ = block_parts("gpt3", 2048)
matrices3 = block_parts("gpt3", 2048)[0]
llama_feed = next(part for _, part in walk(presets["llama-3-8b"]) if isinstance(part, spec.FeedForward))
two_layers = Cost.of(presets["llama-2-70b"])
thirteen = 13e9
h100 = DEVICES["h100"]
ten_billion_hours = rules.device_hours(rules.training_flops(1e9, 20e9), 400e12)
full, recomputed = (Cost.of(gpt3, 1, 2048).activation_bytes(recompute=one) for one in (False, True))

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** A model of seventy billion parameters needs seventy gigabytes.
#
# **Correction.** It needs that in eight bits; {{rules.n_bytes(int(70e9), "bfloat16") / 1e9:.0f}} GB in sixteen and
# {{rules.n_bytes(int(70e9), "int4") / 1e9:.0f}} GB in four, and the cache and some room beside them. [computed]
#
# **Misconception.** A mixture of experts saves memory.
#
# **Correction.** It saves operations. Mixtral loads {{mixtral.weights_bytes() / 1e9:.0f}} GB in sixteen bits to compute
# like a model of {{mixtral.ledger.active / 1e9:.0f}} billion. [computed]
#
# **Misconception.** GPT-3's parameters are twelve squares a layer, exactly.
#
# **Correction.** Twelve squares are {{squares:,}}; its tables, biases and norms make it {{gpt3_total:,}}. [computed]
#
# **Misconception.** A layer reading two thousand tokens weighs four million pairs.
#
# **Correction.** {{pairs:,}} for each head if everything is scored, {{seen:,}} if only what may be seen is. [computed]
#
# **Misconception.** Recomputation saves about half of the activations and costs about a fifth of the time.
#
# **Correction.** It saves nearly all of them ({{100 * (1 - recomputed / full):.0f}} % for GPT-3 by the formula) and
# costs a third of the operations at most. [computed]
#
# **Misconception.** GPT-4 has a hundred and twenty layers, GPT-3.5 ninety-six, Llama 2 eighty, and AlphaCode is a
# decoder.
#
# **Correction.** GPT-4's shape is not published. [paper: OpenAI 2023, section 2] Nor is that of GPT-3.5. [inference]
# {{len(two_layers.spec.decoder.layers)}} layers has the largest Llama 2 alone. [computed] AlphaCode has an encoder and
# a decoder. [paper: Li et al. 2022, section 4]
#
# **Misconception.** A card that is four times as fast writes four times as fast.
#
# **Correction.** For few rows writing is reading: only the bandwidth of its memory counts. [inference]
#
# ## In twenty seconds
#
# - Parameters times bits by eight: loads or does not. The cache: two times layers times key heads times their width
#   times bytes, for each token of each row. [definition]
# - Two operations a parameter to write, six a parameter and token to train; scores come on top, and are
#   {{gpt2.forward_flops_per_token / gpt2.rule_2n:.3f}} times 2N with a full context in GPT-2 small. [computed]
# - {{rules.ADAMW}} bytes a parameter to train with AdamW, shared or not, then activations; recomputation trades them
#   for a third more operations. [computed]
# - Writing waits for memory, reading a prompt and training for arithmetic. [inference]
# - Hours are operations by what is *kept up*, a fifth to a half of the peak. [paper: Chowdhery et al. 2022, table 3]
#
# ## Self-test
#
# **Question.** Does a model of thirteen billion parameters in sixteen bits load on a card of twenty-four gigabytes? In
# eight?
#
# **Answer.** {{rules.n_bytes(int(thirteen), "bfloat16") / 1e9:.0f}} GB: no. {{rules.n_bytes(int(thirteen), "int8") /
# 1e9:.0f}} GB: yes, with eleven left for the cache. [computed]
#
# **Question.** What does training seven billion parameters on two trillion tokens cost in operations?
#
# **Answer.** {{power(rules.training_flops(7e9, 2e12))}}: six times the product. [computed]
#
# **Question.** A model is served to one reader and feels slow. Which three changes make a step faster, and which does
# not?
#
# **Answer.** Fewer bytes to read (fewer bits, a smaller model, fewer experts met) or a card of more bandwidth; not
# a card with more operations a second. [inference]
#
# **Question.** Sixty-four cards share the optimiser of a run, and it still does not fit. What is next, and what does
# each step buy?
#
# **Answer.** Share the gradients, then the weights: two bytes a parameter each, divided by sixty-four. If it is the
# activations that don't fit, neither helps: fewer rows at once, or recomputation. [inference]
#
# **Question.** A billion parameters, twenty tokens each, one card that keeps up four hundred trillion operations: how
# long?
#
# **Answer.** {{ten_billion_hours:.0f}} hours. [computed]
#
# ## Papers

# %% [papers]

# %% [numbers]
{
    "infer_flops_7b": ("2N for seven billion parameters", rules.inference_flops_per_token(int(7e9))),
    "train_flops_70b_1t": ("6ND: 70 billion on a trillion tokens", rules.training_flops(70e9, 1e12)),
    "train_flops_gpt3": ("6ND: GPT-3, 175 billion on 300 billion", rules.training_flops(175e9, 300e9)),
    "train_flops_7b_2t": ("6ND: 7 billion on 2 trillion", rules.training_flops(7e9, 2e12)),
    "train_flops_7b_140b": ("6ND: 7 billion on 140 billion", rules.training_flops(7e9, 140e9)),
    "gpu_hours_7b_140b": (
        "its hours at 400 trillion operations a second",
        rules.device_hours(rules.training_flops(7e9, 140e9), 400e12),
    ),
    "train_flops_405b": ("6ND: 405 billion on 15.6 trillion", rules.training_flops(405e9, 15.6e12)),
    "chinchilla_7b": ("twenty tokens a parameter, seven billion", compute_optimal_tokens(7e9)),
    "weights_70b": (
        "GB of 70 billion parameters in 16 and 4 bits",
        [rules.n_bytes(int(70e9), dtype) / 1e9 for dtype in ("bfloat16", "int4")],
    ),
    "llama3_8b_ffn_ratio": ("Llama 3 8B: middle over width", llama_feed.up.n_out / presets["llama-3-8b"].d_model),
    "llama3_8b_params": ("Llama 3 8B, parameters", total("llama-3-8b")),
    "llama3_70b_params": ("Llama 3 70B, parameters", total("llama-3-70b")),
    "llama31_405b_params": ("Llama 3.1 405B, parameters", total("llama-3.1-405b")),
    "mixtral_bf16_gb": ("Mixtral 8x7B in 16 bits, GB", mixtral.weights_bytes() / 1e9),
    "llama3_8b_kv_per_token": (
        "Llama 3 8B, bytes of cache a token",
        Cost.of(presets["llama-3-8b"]).cache_bytes_per_token,
    ),
    "gpt3_fp16_gb": ("GPT-3's 175 billion in 16 bits, GB", rules.n_bytes(int(175e9), "float16") / 1e9),
    "gpt3_training_state_tb": ("its weights, gradients and AdamW's state, TB in all", rules.ADAMW * 175e9 / 1e12),
    "flops_attn_scores_mix": ("GPT-3's layer at 2,048 tokens: scores and mixing", scores3 // depth),
    "flops_qkvo": ("its four attention matrices", matrices3 // depth),
    "flops_mlp": ("its feed-forward", feed3 // depth),
    "attention_mlp_crossover_over_d": (
        "length over width where scores, attention, scores equal feed-forward, feed-forward, all matrices",
        [
            crossover(64, lambda scores, matrices, feed: scores == feed),
            crossover(64, lambda scores, matrices, feed: scores + matrices == feed),
            crossover(64, lambda scores, matrices, feed: scores == matrices + feed),
        ],
    ),
    "checkpoint_saving": (
        "share of kept bytes that recomputation drops, 4 and 12 small blocks",
        [1 - kept(n, "full") / kept(n, "none") for n in (4, 12)],
    ),
    "checkpoint_time_ceiling": ("one forward pass more beside a step of three", 1 / (1 + 2)),
    "activation_bytes_gpt3": ("GPT-3's activations for one row: kept, and made again", [full, recomputed]),
    "gpt2s_forward_flops": (
        "GPT-2 small at 1,024: attention's matrices, scores, feed-forward, head, all",
        [*block_parts("gpt2", 1024), gpt2.forward_flops],
    ),
    "gpt2s_forward_over_2N": ("its exact operations over 2N", gpt2.forward_flops / (gpt2.rule_2n * gpt2.seq_len)),
}

# %% [hidden]
import plainformer as pf
from plainformer import ledger, spec
from plainformer.cost import Cost, rules
from plainformer.cost.devices import DEVICES, needed
from plainformer.huggingface import read
from plainformer.report.drawings import columns

config = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}
V, D, F, L = (config[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"))
H, G = config["num_attention_heads"], config["num_key_value_heads"]
K = D // H
by_hand = 2 * V * D + L * (2 * D * H * K + 2 * D * G * K + 3 * D * F + 2 * D) + D
models = {
    "Llama 3 8B": "llama-3-8b",
    "Mixtral 8x7B": "mixtral-8x7b",
    "Llama 3 70B": "llama-3-70b",
    "Llama 3.1 405B": "llama-3.1-405b",
}
costs = {name: Cost.of(pf.presets[key]) for name, key in models.items()}
h100 = DEVICES["h100"]


def gb(name, dtype):
    return costs[name].weights_bytes(dtype) / 1e9


def cards(name, dtype):
    return needed(costs[name].weights_bytes(dtype), h100)


wider = F / D

# %% [markdown]
# ## From a config to bytes
#
# **Everyday picture.** A recipe for eight. From the list alone you know what must be in the kitchen, what it weighs and
# whether it goes into your oven, and you have bought nothing yet.
#
# **Where the analogy breaks.** A recipe says its weights; a `config.json` says no weight and no total. It says widths,
# and one must know which matrices stand between them. Two configs with the same keys may mean different matrices.
# [inference]
#
# **Tiny worked example.** The `config.json` of Llama 3 8B says a width of {{D:,}}, a middle of {{F:,}}, {{L}} layers,
# {{H}} heads of which {{G}} have keys and values of their own, and {{V:,}} tokens. That is {{by_hand:,}} parameters,
# and at two bytes each {{2 * by_hand / 1e9:.1f}} GB. [computed]

# %% [figure: weights]
columns(
    "Weights in memory, in GB",
    {
        f"{short}, {bits}": {"weights": costs[name].weights_bytes(dtype) / 1e9}
        for short, name in (("8B", "Llama 3 8B"), ("8x7B", "Mixtral 8x7B"), ("70B", "Llama 3 70B"))
        for bits, dtype in ((16, "bfloat16"), (8, "int8"), (4, "int4"))
    },
    "GB",
    "model, bits of a weight",
    level=80,
    level_name="one card of 80 GB",
)

# %% [markdown]
# **How to read it.** Three bars a model: each half as high as the one before. What stays below the dashed line loads on
# one card, and what is left up to the line is all the room there is for the cache. Mixtral in sixteen bits does not
# load, though a token meets little more than a quarter of it: memory is paid for all. [computed:
# costs["Mixtral 8x7B"].weights_bytes() > 80e9 and 0.25 < costs["Mixtral 8x7B"].ledger.active
# / costs["Mixtral 8x7B"].ledger.total < 0.3]
#
# **Formula.** For a decoder of the Llama family, its head a matrix of its own:
#
# $$
# N = 2 V D + L \, (2 D H K + 2 D G K + 3 D F + 2 D) + D, \qquad \mathrm{bytes} = \frac{N b}{8}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the config | in the example |
# |---|---|---|---|
# | $V$ | tokens in the vocabulary | `vocab_size` | {{V:,}} |
# | $D$ | width of the stream | `hidden_size` | {{D:,}} |
# | $L$ | layers | `num_hidden_layers` | {{L}} |
# | $H$ | query heads | `num_attention_heads` | {{H}} |
# | $G$ | key and value heads | `num_key_value_heads` | {{G}} |
# | $K$ | width of a head | `head_dim`, or $D / H$ | {{K}} |
# | $F$ | width of the feed-forward middle | `intermediate_size` | {{F:,}} |
# | $b$ | bits of a number | `torch_dtype` | {{16}} |
# | $N$ | parameters | | {{by_hand:,}} |
#
# **In words.** Two tables (one to read tokens, one to score them); in each layer the query and output matrices, the
# narrower key and value matrices, three feed-forward matrices and two gains; one gain at the end.
#
# **With the numbers.** {{2 * V * D:,}} in the tables; in each layer {{2 * D * H * K:,}}, {{2 * D * G * K:,}},
# {{3 * D * F:,}} and {{2 * D:,}}; {{D:,}} at the end: {{by_hand:,}}. [computed]

# %%
config = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}
read_spec = read(config).spec
print("from the config:", f"{ledger.Ledger.of(read_spec).total:,}")
print("by the formula: ", f"{by_hand:,}")
for bits, dtype in ((16, "bfloat16"), (8, "int8"), (4, "int4")):
    print(f"{bits:2} bits: {rules.n_bytes(by_hand, dtype) / 1e9:6.2f} GB")

# %% [markdown]
# The middle is {{wider:g}} times the width, not four times and not two thirds of eight: with three matrices instead of
# two, eight thirds would keep the count of a plain feed-forward network, and Llama 3 spends more. [computed] A ratio of
# "five and a third" that one meets for SwiGLU is eight thirds taken twice. [computed: abs(2 * 8 / 3 - 16 / 3) < 1e-12]
#
# Four published models, exact, and how many cards of eighty GB hold the bare weights:
#
# | model | parameters | sixteen bits | eight | four | cards at sixteen | at four |
# |---|---|---|---|---|---|---|
# | Llama 3 8B | {{costs["Llama 3 8B"].ledger.total:,}} | {{gb("Llama 3 8B", "bfloat16"):.1f}} GB
#   | {{gb("Llama 3 8B", "int8"):.1f}} | {{gb("Llama 3 8B", "int4"):.1f}} | {{cards("Llama 3 8B", "bfloat16")}}
#   | {{cards("Llama 3 8B", "int4")}} [computed] |
# | Mixtral 8x7B | {{costs["Mixtral 8x7B"].ledger.total:,}} | {{gb("Mixtral 8x7B", "bfloat16"):.1f}} GB
#   | {{gb("Mixtral 8x7B", "int8"):.1f}} | {{gb("Mixtral 8x7B", "int4"):.1f}} | {{cards("Mixtral 8x7B", "bfloat16")}}
#   | {{cards("Mixtral 8x7B", "int4")}} [computed] |
# | Llama 3 70B | {{costs["Llama 3 70B"].ledger.total:,}} | {{gb("Llama 3 70B", "bfloat16"):.1f}} GB
#   | {{gb("Llama 3 70B", "int8"):.1f}} | {{gb("Llama 3 70B", "int4"):.1f}} | {{cards("Llama 3 70B", "bfloat16")}}
#   | {{cards("Llama 3 70B", "int4")}} [computed] |
# | Llama 3.1 405B | {{costs["Llama 3.1 405B"].ledger.total:,}} | {{gb("Llama 3.1 405B", "bfloat16"):.1f}} GB
#   | {{gb("Llama 3.1 405B", "int8"):.1f}} | {{gb("Llama 3.1 405B", "int4"):.1f}}
#   | {{cards("Llama 3.1 405B", "bfloat16")}} | {{cards("Llama 3.1 405B", "int4")}} [computed] |
#
# What one has is seldom an H100. Cards for the bare weights, evenly split: [definition]

# %%
for name in ("llama-3-8b", "mixtral-8x7b", "llama-3-70b", "llama-3.1-405b"):
    cost = Cost.of(pf.presets[name])
    for bits, dtype in ((16, "bfloat16"), (4, "int4")):
        counts = {
            key: needed(cost.weights_bytes(dtype), DEVICES[key]) for key in ("rtx4090", "a100-80gb", "h200", "b200")
        }
        print(f"{name:<15} {bits:>2} bits: " + ", ".join(f"{n:>2} x {key}" for key, n in counts.items()))

# %% [markdown]
# A fit to the last gigabyte is none: Mixtral in four bits leaves
# {{(DEVICES["rtx4090"].memory - costs["Mixtral 8x7B"].weights_bytes("int4")) / 1e9:.1f}} GB of a 4090 for the cache and
# for all else. [computed]
#
# Four bits are four bits only on paper: formats keep a scale for each few dozen numbers beside them [paper: Dettmers
# et al. 2023, section 3], and mostly leave tables, norms and routers in sixteen. [inference] The sizing command reads
# the method from the config and counts what is stored. [definition]
#
# **In the library.** Counting is asking each part what it holds; these are the rules of a projection and of a norm,
# and attention is four projections: [definition]

# %% [source: ledger.weights.dispatch(spec.Linear)]

# %% [source: ledger.weights.dispatch(spec.Norm)]

# %% [source: rules.n_bytes]

# %% [markdown]
# **Why it matters.** Whether a model loads is the one question with a plain yes or no, and it needs neither the weights
# nor a card. [inference]

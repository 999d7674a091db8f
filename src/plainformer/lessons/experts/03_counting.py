# %% [hidden]
import plainformer as pf
from plainformer import ledger, spec
from plainformer.families.parts import feed_forward
from plainformer.huggingface import read
from plainformer.report.drawings import columns

D, F, E, k = 16, 64, 8, 2
expert = feed_forward(D, F, "gelu_tanh", bias=True)
moe = spec.Experts(
    router=spec.ChosenSoftmaxRouter(scores=spec.Linear(n_in=D, n_out=E), n_chosen=k), expert=expert, n_experts=E
)


def count(part):
    return sum(one.count for one in ledger.weights(part))


def met(part):
    return sum(one.active for one in ledger.weights(part))


mixtral = ledger.Ledger.of(pf.presets["mixtral-8x7b"])
kinds = mixtral.by_kind
tables = kinds["embedding"] + kinds["head"]
shared = mixtral.total - kinds["expert"]
one_of_eight = kinds["expert"] // 8
mistral = shared - kinds["router"] + one_of_eight  # the dense model with one of the eight
expected = 8 * mistral
deep = ledger.Ledger.of(pf.presets["deepseek-v3"])


def conventions(of):
    """Parameters that a token meets: all; without the table that only looks up; without both tables."""
    head, table = of.by_kind["head"], of.by_kind["embedding"]
    return of.active, of.active - table, of.active - table - head


ways = {"Mixtral 8x7B": conventions(mixtral), "DeepSeek-V3": conventions(deep)}


def split(of):
    """Parameters in billions by what they are."""

    experts = [w for w in of.weights if w.met[0] != w.met[1]]
    asked = sum(w.active for w in experts)
    return {
        "asked by a token": asked / 1e9,
        "all else": (of.total - sum(w.count for w in experts)) / 1e9,
        "experts not asked": (sum(w.count for w in experts) - asked) / 1e9,
    }


# %% [markdown]
# ## What is held, and what is met
#
# **Everyday picture.** A library's building is sized by its shelves, a reader's evening by the two books on the table.
# Both numbers are "how many books", and each is wrong for the other's purpose.
#
# **Where the analogy breaks.** A reader could have the other books fetched from a store outside. A router decides in
# the middle of a layer and needs the answer at once: all shelves stand in the fast memory, or writing waits.
# [inference]
#
# **Tiny worked example.** An expert {{D}} wide with a middle of {{F}} holds {{count(expert):,}} parameters. {{E}} of
# them and a router of {{D}} by {{E}} are {{count(moe):,}}. A token meets {{k}} and the router: {{met(moe):,}}.
# [computed]

# %% [figure: held]
columns(
    "Mixtral 8x7B: parameters in billions",
    {
        "7 as named": {"as the name reads": mistral / 1e9},
        "a token meets": {key: split(mixtral)[key] for key in ("all else", "asked by a token")},
        "it holds": {key: split(mixtral)[key] for key in ("all else", "asked by a token", "experts not asked")},
        "8 x 7 as named": {"as the name reads": expected / 1e9},
    },
    "billions",
)

# %% [markdown]
# **How to read it.** The outer bars are what the name suggests, the inner ones what is there. The part that is not
# experts (attention, tables, norms, routers) is thin and there once: multiplying it by eight, too, is the error of the
# last bar. The second bar decides how long a token takes, the third what must be loaded. [definition]
#
# **Formula.** For a mixture of plain parts:
#
# $$
# N_{\mathrm{held}} = S + E \, e, \qquad N_{\mathrm{met}} = S + k \, e
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the tiny layer | in Mixtral |
# |---|---|---|---|
# | $e$ | parameters of one expert (of all layers) | {{count(expert):,}} | {{one_of_eight:,}} |
# | $E$ | experts in a layer | {{E}} | {{8}} |
# | $k$ | asked by a token | {{k}} | {{2}} |
# | $S$ | all else, routers included | {{D * E}} | {{shared:,}} |
#
# **In words.** What everybody shares, and all the experts, or those that are asked.
#
# **With the numbers.** {{D * E}} + {{E}} times {{count(expert):,}} is {{count(moe):,}}; {{D * E}} + {{k}} times
# {{count(expert):,}} is {{met(moe):,}}. For Mixtral: {{shared:,}} and eight or two times {{one_of_eight:,}} are
# {{mixtral.total:,}} and {{mixtral.active:,}}. [computed]

# %%
config = {
    "model_type": "mixtral",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000.0,
}
of_config = ledger.Ledger.of(read(config).spec)
print("from a config.json:", f"{of_config.total:,} held, {of_config.active:,} met")
print("one expert:", f"{count(expert):,}", " held:", f"{count(moe):,}", " met:", f"{met(moe):,}")
for name, n in mixtral.by_kind.items():
    if n:
        print(f"{name:<10} {n:>15,}")
print(f"{'held':<10} {mixtral.total:>15,}")
print(f"{'met':<10} {mixtral.active:>15,}")

# %% [markdown]
# **Why "8x7B" is neither.** The dense model with one of the eight networks would have {{mistral:,}} parameters: that
# is the seven. [computed] Eight of those would be {{expected / 1e9:.1f}} billion. What is not experts is counted
# seven times too often in it, {{(expected - mixtral.total) / 1e9:.1f}} billion but for the routers; what is there is
# {{mixtral.total / 1e9:.1f}}. [computed] And no token meets seven: it meets {{mixtral.active / 1e9:.1f}}. [computed]
#
# **Three conventions of "active".** All that a token meets counts both tables. Some leave out the table that only looks
# up, for a token reads one row of it; some leave out both, to compare what lies inside: [definition]
#
# | model | both tables | without the one that looks up | without both |
# |---|---|---|---|
# | Mixtral 8x7B | {{ways["Mixtral 8x7B"][0]:,}} | {{ways["Mixtral 8x7B"][1]:,}}
#   | {{ways["Mixtral 8x7B"][2]:,}} [computed] |
# | DeepSeek-V3 | {{ways["DeepSeek-V3"][0]:,}} | {{ways["DeepSeek-V3"][1]:,}}
#   | {{ways["DeepSeek-V3"][2]:,}} [computed] |
#
# The report of DeepSeek-V3 says thirty-seven billion [paper: DeepSeek-AI 2024, abstract]; rounded, that is the second
# column, for the first would be thirty-eight. [computed: [round(n / 1e9) for n in ways["DeepSeek-V3"]] == [38, 37, 36]]
# Mixtral's thirteen is the first and the second alike.
# [computed: [round(n / 1e9) for n in ways["Mixtral 8x7B"]][:2] == [13, 13]]
#
# **In the library.** Experts are one row of the ledger, stacked, that knows how many of it a token meets: [definition]

# %% [source: ledger.weights.dispatch(spec.Experts)]

# %% [source: ledger.Weight]

# %% [markdown]
# **Why it matters.** Size the card by what is held, the time of a token and the training run by what is met, and name
# the convention wherever the second is printed. [inference]

# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.lessons.words import vector
from plainformer.report.drawings import columns

sure_V = np.log([0.86, 0.06, 0.03, 0.02, 0.01, 0.01, 0.005, 0.005])
unsure_V = np.log([0.20, 0.17, 0.15, 0.13, 0.12, 0.10, 0.08, 0.05])
V_large = 50_000
tail_share = 0.1  # of all draws, if each of many poor tokens has a little


def min_p(logits_V, least):
    """All tokens that are at least `least` as likely as the likeliest."""
    p_V = formulas.probabilities(logits_V)
    p_V = p_V * (p_V >= least * p_V.max())
    return p_V / p_V.sum()


limits = {
    "all": lambda z: formulas.probabilities(z),
    "top-k 3": lambda z: formulas.probabilities(z, top_k=3),
    "top-p 0.9": lambda z: formulas.probabilities(z, top_p=0.9),
    "min-p 0.1": lambda z: min_p(z, 0.1),
}
kept = {name: [int((limit(z) > 0).sum()) for z in (sure_V, unsure_V)] for name, limit in limits.items()}
clean = (1 - tail_share) ** 20
p3_V = formulas.probabilities(np.log([0.5, 0.3, 0.15, 0.05]), top_p=0.75)


def penalised(logits_V, said, by):
    """Keskar et al. 2019, section 4.1; a negative score is multiplied, for dividing would raise it."""
    out_V = np.array(logits_V, float)
    out_V[said] = np.where(out_V[said] > 0, out_V[said] / by, out_V[said] * by)
    return out_V


scores_V = np.array([2.0, 1.5, -1.0])

# %% [markdown]
# ## The tail: top-k, top-p, min-p
#
# **Everyday picture.** A vote with fifty thousand candidates. A few have chances; each of the others gets one vote by
# mistake, and together these mistakes are a tenth of all. Draw twenty winners by lot from the votes, and one of them is
# nearly always somebody whom nobody wanted.
#
# **Where the analogy breaks.** In a vote the mistakes stay mistakes. Here the next step reads what was drawn and goes
# on from it: one poor token makes the next poor one likelier. [inference]
#
# **Tiny worked example.** If the poor tokens have a tenth together, twenty draws are clean with probability
# {{clean:.3f}}. [computed] So one cuts them off, and the question is where. Where the model is sure,
# {{vector(np.exp(sure_V), ".3g")}}, the three likeliest are two too many; where it is not,
# {{vector(np.exp(unsure_V), ".2f")}}, they are too few. [computed]

# %% [figure: tail]
columns(
    "How many of eight tokens are left by top-k 3, top-p 0.9, min-p 0.1",
    {
        f"{name.split()[0]} {who}": {"tokens": counts[i]}
        for i, who in enumerate(("sure", "unsure"))
        for name, counts in kept.items()
        if name != "all"
    },
    "tokens",
)

# %% [markdown]
# **How to read it.** The three bars at the left are of the sure distribution, the three at the right of the unsure one.
# Top-k keeps the same number in both. The other two keep few where the model is sure and many where it is not: top-p by
# what the kept ones hold together, min-p by how they compare with the best. [computed: kept["top-k 3"][0] ==
# kept["top-k 3"][1] and kept["top-p 0.9"][0] < kept["top-p 0.9"][1] and kept["min-p 0.1"][0] < kept["min-p 0.1"][1]]
#
# **Formula.** With the tokens sorted, the likeliest first:
#
# $$
# \mathrm{top}_p = \{ i : p_1 + \dots + p_{i-1} < P \}, \qquad \mathrm{min}_p = \{ i : p_i \ge m \, p_1 \}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $p_i$ | the $i$-th largest probability, after the temperature | {{vector([0.5, 0.3, 0.15, 0.05], "g")}} |
# | $P$ | how much the kept ones must hold | {{0.75}} |
# | $m$ | the least share of the best | {{0.1}} |
#
# **In words.** A token stays if those before it hold less than $P$: the one that crosses the line stays. Or: if it is
# not too much less likely than the best.
#
# **With the numbers.** Before the second token {{0.5}} is held, less than {{0.75}}, so it stays; before the third
# {{0.5}} + {{0.3}} = {{0.8}}, so it goes. What is left is shared out anew: {{vector(p3_V)}}. [computed]

# %%
for name, limit in limits.items():
    print(f"{name:<10} sure {limit(sure_V).round(3)}")
    print(f"{'':<10} unsure {limit(unsure_V).round(3)}")
for T in (0.5, 1.0, 2.0):
    n = int((formulas.probabilities(sure_V, T, top_p=0.9) > 0).sum())
    print(f"sure, top-p 0.9 at temperature {T}: {n} kept")

# %% [markdown]
# The last lines show why order matters: top-p is taken *after* the temperature, so a high temperature lets more tokens
# in at the same $P$. Of the three only top-k keeps its number. [inference]
#
# **Repetition.** Likely texts repeat, and every repetition makes the next likelier. [paper: Holtzman et al. 2020,
# figure 4] The penalty divides the score of each token that was said by a number above one. [paper: Keskar et al.
# 2019, section 4.1] Read literally, that *raises* negative scores: {{scores_V[2]:g}} by {{1.2}} is
# {{scores_V[2] / 1.2:.3f}}. [computed] So programs multiply those instead. And the penalty sees what
# softmax does not: five more for every score changes no probability, and changes the penalised ones. [inference]

# %%
print("scores         ", scores_V, "->", formulas.softmax(scores_V).round(3))
print("0 and 2 said   ", penalised(scores_V, [0, 2], 1.2).round(3))
print("the same, all scores 5 higher:")
for shift in (0, 5):
    print(f"  shift {shift}:", formulas.softmax(penalised(scores_V + shift, [0, 2], 1.2)).round(3))

# %% [markdown]
# **In the library.** [definition]

# %% [source: formulas.probabilities]

# %% [markdown]
# **Why it matters.** A trained model's top is good and its tail is noise that the loss hardly feels. Where to cut is
# the one decision of sampling that makes the difference between text and text with accidents. [inference]

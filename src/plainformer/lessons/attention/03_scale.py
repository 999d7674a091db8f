# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.lessons.words import vector
from plainformer.report.drawings import lines

widths = (1, 2, 4, 8, 16, 32, 64, 128, 256)
n_keys = 16


def seen(d, scale, n_queries=2000):
    """Spread of scores, mean of the largest weight, mean size of softmax's slope: n_keys random keys of d numbers."""
    rng = np.random.default_rng(d)
    q, k = rng.normal(size=(n_queries, 1, d)), rng.normal(size=(n_queries, n_keys, d))
    scores = formulas.scaled_scores(q, k, scale)[:, 0]
    weights = formulas.softmax(scores)
    return float(scores.std()), float(weights.max(-1).mean()), float((weights * (1 - weights)).sum(-1).mean())


scaled = {d: seen(d, d**-0.5) for d in widths}
unscaled = {d: seen(d, 1.0) for d in widths}

# %% [markdown]
# ## Why scores are divided
#
# **Everyday picture.** Ask ten people to rate a film from one to ten, and let the sum decide. Ask a thousand, and the
# sums of two films lie much further apart though nobody's taste has changed. To compare verdicts of juries of different
# sizes, divide the sums by how far sums of that size usually spread.
#
# **Where the analogy breaks.** A jury's mean would divide by its size; scores are divided by its *root*. Dividing by
# the size would make large heads unable to say anything clearly: their scores would shrink towards zero. [computed:
# seen(256, 1 / 256)[0] < 0.1]
#
# **Tiny worked example.** A query and a key of {{64}} random numbers, each of mean zero and spread one: their
# product is a sum of {{64}} terms, and spreads by about $\sqrt{64}$, which is {{64**0.5:g}}. Drawn two thousand times
# against {{n_keys}} keys, it spread by {{unscaled[64][0]:.2f}}; divided by the root, by {{scaled[64][0]:.2f}}.
# [computed]

# %% [figure: scale]
lines(
    "The largest of sixteen weights, by the width of the head (random queries and keys)",
    {
        "divided by the root": [(float(np.log2(d)), scaled[d][1]) for d in widths],
        "not divided": [(float(np.log2(d)), unscaled[d][1]) for d in widths],
    },
    "log2 of the width of the head",
    "mean of the largest weight",
)

# %% [markdown]
# **How to read it.** Not divided, the largest weight comes near to one as heads grow wider: at a width of {{256}} it is
# {{unscaled[256][1]:.2f}}, so a head looks at one token and hardly at the fifteen others, before it has learned
# anything. Divided, it stays where it was: {{scaled[256][1]:.2f}}. [computed] An even look would be
# {{1 / n_keys:.4f}}. [computed]
#
# **Formula.** If the numbers of $q$ and $k$ are independent, of mean zero and variance one:
#
# $$
# \mathrm{Var}(q \cdot k) = d, \qquad \mathrm{Var}\left(\frac{q \cdot k}{\sqrt{d}}\right) = 1
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $q, k$ | a query and a key | random |
# | $d$ | how many numbers each has | {{64}} |
# | $\mathrm{Var}$ | the square of the spread | {{unscaled[64][0] ** 2:.1f}}; divided, {{scaled[64][0] ** 2:.2f}} |
#
# **In words.** Sums of independent terms spread with the root of their number; divide by it, and width no longer
# matters.
#
# **With the numbers.** {{unscaled[64][0]:.2f}} divided by {{64**0.5:g}} is {{unscaled[64][0] / 8:.2f}}. [computed]

# %%
print("width   spread          largest weight   slope of softmax")
print("        plain  divided  plain  divided   plain  divided")
for d in (4, 16, 64, 256):
    (a, b, c), (p, q, r) = unscaled[d], scaled[d]
    print(f"{d:>5}  {a:6.2f} {p:8.2f} {b:6.2f} {q:8.2f} {c:7.3f} {r:8.3f}")

# %% [markdown]
# The last two columns are what training feels. The slope of a softmax is $a (1 - a)$: where one weight is nearly one
# and the others nearly zero, it is nearly zero, and the query learns nothing from its mistake. [inference]
#
# **In the library.** The scale is a field of the spec, for some models have another. [definition]

# %% [source: formulas.scaled_scores]

# %% [markdown]
# **Why it matters.** The root was chosen by this argument when the transformer was made.
# [paper: Vaswani et al. 2017, section 3.2.1] It holds at the start of training, where numbers are random; what training
# makes of queries and keys later is its own affair. [inference] So it sets where a model begins, and never limits what
# it can say. [inference]

# %% [hidden]
import numpy as np

from plainformer import formulas, reference, spec
from plainformer.lessons.words import vector
from plainformer.report.diagrams import Arrow, Box, flow

x_D = np.array([1.0, 2.0, 3.0, 4.0])
mean, variance = x_D.mean(), x_D.var()
spread = np.sqrt(variance)
out_D = formulas.layer_norm(x_D)
gap = abs(formulas.layer_norm(100 * x_D) - out_D).max()
rms_D = formulas.rms_norm(x_D)

# %% [markdown]
# ## The norm: every token on its own scale
#
# **Everyday picture.** Three examiners mark the same exam, one severe, one mild, one who gives either nothing or full
# marks. To compare their students, take each examiner's marks alone, subtract their mean, and divide by how far they
# usually lie from it. Now "one above the middle" means the same from each.
#
# **Where the analogy breaks.** The marks are those of one token, not of one examiner: the numbers of one vector are
# compared with each other, and never with those of another token or another row of text. So the norm of a token is the
# same alone and in a crowd. [computed: bool((formulas.layer_norm([x_D, [10.0, 0.0, 10.0, 0.0]])[0] == out_D).all())]
#
# **Tiny worked example.** {{vector(x_D, "g")}} has the mean {{mean}}. Its numbers lie {{vector(x_D - mean, "g")}} from
# it; the mean of the squares of that is the variance, {{variance}}, and its root the spread, {{spread:.3f}}. Divided by
# the spread they are {{vector(out_D)}}: mean zero, spread one. [computed]

# %% [figure: norm]
flow(
    "LayerNorm of one token",
    {
        "x": Box(0, 0, f"one token\n{vector(x_D, 'g')}"),
        "centred": Box(1, 0, f"less its mean\n{vector(x_D - mean, 'g')}", 0),
        "scaled": Box(2, 0, f"by its spread\n{vector(out_D, '.2f')}", 0),
        "learned": Box(3, 0, "times a gain, plus a bias\nlearned; at first 1 and 0", 1),
    },
    [Arrow("x", "centred"), Arrow("centred", "scaled"), Arrow("scaled", "learned")],
)

# %% [markdown]
# **How to read it.** Two fixed steps, then a learned one. After the two, every token has mean zero and spread one,
# whatever came in. The last gives each place of the vector a scale and a shift of its own, the same for all tokens:
# so the model can undo the evenness where it is not wanted. RMSNorm is this picture without the first step. [inference]
#
# **Formula.** For one token:
#
# $$
# \mathrm{Norm}(x)_j = \gamma_j \frac{x_j - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta_j, \qquad
# \mu = \frac{1}{d} \sum_{j=1}^{d} x_j, \qquad \sigma^2 = \frac{1}{d} \sum_{j=1}^{d} (x_j - \mu)^2
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $x$ | one token's vector | {{vector(x_D, "g")}} |
# | $d$ | how many numbers it has | {{len(x_D)}} |
# | $j$ | counts over them | |
# | $\sum_{j=1}^{d}$ | add up what follows for every $j$ | |
# | $\mu$ | the mean | {{mean}} |
# | $\sigma^2$ | the variance: divided by $d$, not by $d - 1$ | {{variance}} |
# | $\sqrt{\sigma^2}$ | the spread | {{spread:.3f}} |
# | $\epsilon$ | so small that it matters only where the spread is nearly zero | {{1e-5:g}} |
# | $\gamma_j, \beta_j$ | gain and bias, learned, one of each for a place | {{1}} and {{0}} at first |
#
# **In words.** Subtract the token's mean, divide by its spread, then scale and shift each place as was learned.
#
# **With the numbers.** The first place: ({{x_D[0]:g}} - {{mean}}) / {{np.sqrt(variance + 1e-5):.3f}} =
# {{out_D[0]:.3f}}, times {{1}}, plus {{0}}. [computed]

# %%
x_D = np.array([1.0, 2.0, 3.0, 4.0])
print("by hand  ", (x_D - x_D.mean()) / np.sqrt(x_D.var() + 1e-5))
print("LayerNorm", formulas.layer_norm(x_D))
print("RMSNorm  ", formulas.rms_norm(x_D))
print(
    "of 100 x ", formulas.layer_norm(100 * x_D), f"differs by {abs(formulas.layer_norm(100 * x_D) - out_D).max():.2e}"
)

# %% [markdown]
# A hundred times the input gives *nearly* the same output: they differ by {{gap:.2e}}, which is epsilon's doing, for it
# is the same beside a small variance and beside a large one. [computed] RMSNorm gives {{vector(rms_D)}}: it divides by
# the root of the mean square and subtracts nothing, so its output keeps the sign of every number.
# [computed: bool((np.sign(rms_D) == np.sign(x_D)).all())]
#
# **In the library.** LayerNorm is RMSNorm of the centred vector, plus a bias: said once. [definition]

# %% [source: formulas.layer_norm]

# %% [source: formulas.rms_norm]

# %% [markdown]
# And the rule of the part, which reads from the spec which of the two it is, and what it has learned: [definition]

# %% [source: reference.run.dispatch(spec.Norm)]

# %% [markdown]
# **Against BatchNorm.** The norm of picture networks does the same along the other side of the table:
#
# | | LayerNorm | BatchNorm |
# |---|---|---|
# | mean and spread are of | one token's numbers | one place's numbers, over the batch
#   [paper: Ba et al. 2016, abstract] |
# | what a token becomes depends on | itself | the rest of the batch, in training [inference] |
# | when the model is used | nothing changes | stored means and spreads take over
#   [paper: Ba et al. 2016, section 1] |
#
# **Why it matters.** The stream grows as layers add to it; each part reads it through a norm, so it meets numbers of
# the same size in the first layer and in the last. [inference] The mean and the spread are those of one token, so it
# works for a batch of one and for a row of any length, unlike a norm over the batch. [paper: Ba et al. 2016, section
# 3]

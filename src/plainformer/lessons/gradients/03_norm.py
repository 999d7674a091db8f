# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.gradients.formulas import layer_norm_back, rms_norm_back
from plainformer.lessons.words import vector
from plainformer.report.drawings import lines

x_D = np.array([1.0, 2.0, 3.0, 4.0])
d_y = np.array([1.0, 0.0, 0.0, 0.0])  # only the first number of the output matters
eps = 1e-5
r = 1 / np.sqrt(x_D.var() + eps)
n_D = formulas.layer_norm(x_D)
terms = d_y, -np.full(4, d_y.mean()), -n_D * (n_D * d_y).mean()
true_D = layer_norm_back(x_D[None], 1.0, eps, d_y[None])[0][0]
careless_D = r * (terms[0] + terms[1])


def by_differences(f, x_D, by=1e-5):
    """The slope along each number of x, by moving it."""
    return np.array([(f(x_D + by * one) - f(x_D - by * one)) / (2 * by) for one in np.eye(len(x_D))])


found_D = by_differences(lambda x: formulas.layer_norm(x)[0], x_D)
cosine = true_D @ careless_D / np.linalg.norm(true_D) / np.linalg.norm(careless_D)

# %% [markdown]
# ## The norm: three terms, and the one that is forgotten
#
# **Everyday picture.** Marks are given on a curve: less the mean of the class, by its spread. You hand in a better
# exam. Your own mark rises. But the mean rises a little with you, and takes something from everybody; and if you were
# far from it, you have changed the spread, which squeezes or stretches all.
#
# **Where the analogy breaks.** The class is the numbers of one token, and the same mark is asked of all of them at
# once, with a weight each: the slope that arrives. [inference]
#
# **Tiny worked example.** The token {{vector(x_D, "g")}} has the norm {{vector(n_D)}}. Let only the first number of it
# matter: the slope that arrives is {{vector(d_y, "g")}}. What goes back is {{vector(true_D)}}: raising the first number
# helps by {{true_D[0]:.3f}}, not by one over the spread, {{r:.3f}}, for mean and spread move with it; and raising any
# other number matters, too. [computed]

# %% [figure: norm]
lines(
    "The slope along each number of (1, 2, 3, 4)",
    {
        "true: three terms": [(i + 1.0, float(z)) for i, z in enumerate(true_D)],
        "spread held still: two terms": [(i + 1.0, float(z)) for i, z in enumerate(careless_D)],
    },
    "place",
    "slope",
)

# %% [markdown]
# **How to read it.** Two answers to one question. The second comes of a way back in which the spread was taken for a
# constant: it looks like the first, has the right signs in most places, and points another way; the cosine between them
# is {{cosine:.3f}}. [computed]
#
# **Formula.** With $n$ for the norm without gain and bias, and $g_j$ for what arrives times the gain:
#
# $$
# \frac{\partial L}{\partial x_j} = r \left( g_j - \frac{1}{d} \sum_{i} g_i - n_j\, \frac{1}{d} \sum_{i} g_i n_i
# \right), \qquad r = \frac{1}{\sqrt{\sigma^2 + \epsilon}}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $x_j$ | a number of the token | {{x_D[0]:g}} |
# | $n_j$ | the same, less the mean, by the spread | {{n_D[0]:.3f}} |
# | $g_j$ | the slope that arrives, times the gain | {{d_y[0]:g}} |
# | $d$ | how many numbers it has | {{len(x_D)}} |
# | $\sigma^2, \epsilon$ | the variance, and the small number beside it | {{x_D.var():g}}, {{eps:g}} |
# | $r$ | one over the spread | {{r:.4f}} |
#
# **In words.** Pass on what arrives, less its mean, less its share along the norm itself; all by the spread.
#
# *Where it comes from.* The norm is two steps. First $c = x - \mu$: moving $x_j$ by a little moves $c_j$ as far and
# every $c_i$ back by a $d$-th of it, so on the way back the mean is taken off: the second term. Then $n = c\, r$:
# $c_j$ moves $n_j$ by $r$, and it moves $r$ itself, for $\partial r / \partial c_j = -r^3 c_j / d = -r^2 n_j / d$.
# That moves every $n_i$ by $c_i$ times it, which is $-r\, n_i n_j / d$: summed against $g_i$, the third term.
# [inference]
#
# **With the numbers.** For the first place: {{r:.3f}} times ({{terms[0][0]:g}} - {{-terms[1][0]:g}} -
# {{-terms[2][0]:.3f}}) = {{true_D[0]:.3f}}. By differences it is {{found_D[0]:.3f}}. [computed]

# %%
g = np.array([1.0, 0.0, 0.0, 0.0])
n = formulas.layer_norm(x_D)
r = 1 / np.sqrt(x_D.var() + 1e-5)
print("three terms:   ", r * (g - g.mean() - n * (n * g).mean()))
print("the library:   ", layer_norm_back(x_D[None], 1.0, 1e-5, g[None])[0][0])
print("by differences:", by_differences(lambda x: formulas.layer_norm(x)[0], x_D))
print("careless:      ", r * (g - g.mean()))

# %% [markdown]
# Two checks that cost nothing: what goes back sums to zero, since adding a number to all of $x$ changes nothing; and it
# is square to the centred token, as nearly as epsilon allows, since stretching $x$ changes nothing either.
# [computed: bool(abs(true_D.sum()) < 1e-12 and abs(true_D @ (x_D - x_D.mean())) < 1e-4)] The careless one fails the
# second: {{abs(careless_D @ (x_D - x_D.mean())):.2f}}. [computed]
#
# **In the library.** RMSNorm has the first and the third term; LayerNorm is RMSNorm of the centred token, so its rule
# is RMSNorm's, less the mean. [definition]

# %% [source: rms_norm_back]

# %% [source: layer_norm_back]

# %% [markdown]
# **Why it matters.** There is a norm before every part, so a wrong one is in every gradient of the model, and it is
# wrong by an angle that no look at the loss will show at once. [inference] What the third term takes away is the part
# of the slope that would only make the token longer, which a norm cannot see: so weights before a norm get no push
# along their own length. [inference]

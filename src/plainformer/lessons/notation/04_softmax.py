# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.lessons.words import vector
from plainformer.report.drawings import columns

scores = np.array([2.0, 1.0, 0.0])
p = formulas.softmax(scores)
raised = np.exp(scores)
cold, warm = formulas.softmax(scores / 0.5), formulas.softmax(scores / 2)

# %% [markdown]
# ## Softmax: from scores to shares
#
# **Everyday picture.** Judges give points, and a prize is to be divided. The shares should add up to all of it,
# follow the points, and never be negative, though points may be.
#
# **Where the analogy breaks.** A fair judge would divide by points. Here one point more always multiplies a share
# against the others by the same factor, {{np.e:.3f}}, whether it is the first point or the hundredth. [computed:
# bool(np.isclose(p[0] / p[1], np.e) and np.isclose(formulas.softmax(scores + 100)[0] / p[1], np.e))]
#
# **Tiny worked example.** The scores {{vector(scores, "g")}}. Raised, $e$ to the power of each, they are
# {{vector(raised)}}, together {{raised.sum():.3f}}. By that, the shares are {{vector(p)}}. [computed]

# %% [figure: softmax]
columns(
    "Softmax of (2, 1, 0), three temperatures",
    {
        f"T {t:g}": dict(zip(("score 2", "score 1", "score 0"), map(float, formulas.softmax(scores / t)), strict=True))
        for t in (0.5, 1, 2)
    },
    "share",
)

# %% [markdown]
# **How to read it.** Each bar is the whole prize, cut in three. In the middle the scores as they are. At the left
# they were divided by a half before, so differences doubled, and the best takes {{cold[0]:.2f}}; at the right by two,
# and it takes {{warm[0]:.2f}}. [computed] What scores are divided by is called *temperature*. [definition]
#
# **Formula.**
#
# $$
# p_i = \frac{e^{x_i}}{\sum_j e^{x_j}}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $x_i$ | a score, also called logit | {{scores[0]:g}} |
# | $e$ | the base of natural logarithms | {{np.e:.4f}} |
# | $e^{x_i}$ | positive, whatever $x_i$ is | {{raised[0]:.3f}} |
# | $p_i$ | its share | {{p[0]:.3f}} |
#
# **In words.** Raise $e$ to each score, and give to each its part of the sum.
#
# **With the numbers.** {{raised[0]:.3f}} by {{raised.sum():.3f}} is {{p[0]:.3f}}. [computed]

# %%
scores = np.array([2.0, 1.0, 0.0])
print(np.exp(scores) / np.exp(scores).sum())
print("all raised by 1000:", formulas.softmax(scores + 1000))  # the plain fraction would overflow here
print("tanh of 0.8:", np.tanh(0.8).round(3), "  sigmoid of 2:", formulas.sigmoid(np.array(2.0)).round(3))

# %% [markdown]
# Two relatives. The *sigmoid*, $1 / (1 + e^{-x})$, is the softmax of two scores of which one is zero. [computed:
# bool(np.isclose(formulas.sigmoid(np.array(2.0)), formulas.softmax([2.0, 0.0])[0]))] *Tanh* is the same S-shaped
# curve, stretched to run from minus one to one: of {{0.8}} it is {{np.tanh(0.8):.3f}}. [computed]
#
# **In the library.** With a mask, and safe for scores of any size: [definition]

# %% [source: formulas.softmax]

# %% [markdown]
# **Why it matters.** It stands in three places of every model: in attention, where it makes weights of scores; at the
# end, where it makes chances of logits; and in mixtures of experts, where it divides a token among them. [inference]

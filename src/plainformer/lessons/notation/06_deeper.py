# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.lessons.words import small

rng = np.random.default_rng(0)

# %% [markdown]
# ## Going deeper
#
# ### A softmax sees differences alone
#
# *Claim.* Adding the same number to all scores changes no share; and any shares that are all positive come from some
# scores, which are fixed but for such a number. [inference] *Proof.* $e^{x_i + c} = e^c e^{x_i}$, and $e^c$ stands
# above and below. The scores $\ln p_i$ give the shares $p_i$; and if $x$ and $y$ give the same shares,
# $e^{x_i - y_i}$ is the same for all $i$: the ratio of their sums. [inference]

# %%
x = rng.normal(size=5)
print(np.allclose(formulas.softmax(x), formulas.softmax(x + 7)))
print(np.allclose(formulas.softmax(np.log(formulas.softmax(x))), formulas.softmax(x)))

# %% [markdown]
# ### Honesty is the cheapest stake
#
# *Claim.* If tokens come with chances $p_i$ and a model says $q_i$, its mean cost $-\sum_i p_i \ln q_i$ is least
# where $q = p$. [inference]
#
# *Proof.* The excess over that is $\sum_i p_i \ln (p_i / q_i) = -\sum_i p_i \ln (q_i / p_i)$. Since $\ln z \le z - 1$
# for every $z > 0$, it is at least $-\sum_i p_i (q_i / p_i - 1) = -\sum_i q_i + \sum_i p_i = 0$; with equality only
# where $q_i = p_i$ for all $i$ that ever come. [inference] So a loss has a floor that no model can pass: what the
# text itself leaves open. [inference]

# %%
p = np.array([0.5, 0.25, 0.125, 0.125])
honest = -(p * np.log(p)).sum()
others = [-(p * np.log(q)).sum() for q in rng.dirichlet(np.ones(4), size=10000)]
print(f"honest {honest:.4f} nats; the best of ten thousand others {min(others):.4f}")

# %% [markdown]
# ### Costs add up
#
# *Claim.* The surprisal of a whole text is the sum of those of its tokens. [inference] *Proof.* The chance of the
# text is the product of each token's chance given those before it, and the logarithm of a product is the sum of the
# logarithms. [inference] So a text of a thousand tokens at three nats each has a chance of $e^{-3000}$, a number that
# float64 can't hold; its logarithm it can. [inference]

# %%
print("as a product:", np.prod(np.full(1000, np.exp(-3.0))), "  as a sum:", np.sum(np.full(1000, -3.0)))

# %% [markdown]
# ### No dot product exceeds the lengths
#
# *Claim.* $|a \cdot b| \le \lVert a \rVert \lVert b \rVert$, so the cosine lies between minus one and one.
# [inference] *Proof.* For vectors of length one, $0 \le \lVert a - b \rVert^2 = 2 - 2\, a \cdot b$, so
# $a \cdot b \le 1$; likewise with $-b$. Others are such vectors times their lengths. [inference]

# %%
a, b = rng.normal(size=(2, 1000, 16))
cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
print(f"a thousand random pairs of 16 numbers: cosines from {cosines.min():.2f} to {cosines.max():.2f}")

# %% [markdown]
# Random directions of many numbers are nearly at right angles: that is why a vector of a few thousand can hold many
# more features than it has numbers, each only a little in the way of the others. [inference]

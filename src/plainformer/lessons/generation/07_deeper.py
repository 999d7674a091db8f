# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas, reference
from plainformer.families import llamas
from plainformer.initial import initial
from plainformer.lessons.words import lesson, small

tiny = pf.presets["lesson"]
weights = initial(tiny, "lesson", seed=0)
tokens = [3, 1, 4, 1, 5, 9, 2, 6]
turned = llamas.small(vocab_size=50, max_seq_len=32, d_model=32, n_layers=3, n_heads=4)
turned_weights = initial(turned, "gpt2", seed=0)
turned_weights = {name: 5 * array if array.ndim > 1 else array for name, array in turned_weights.items()}
p_V, q_V = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.7, 0.1])
accepted = np.minimum(p_V, q_V).sum()


def entropy(p):
    return float(-(p * np.log(p)).sum())


def expected(alpha, n_drafted):
    """Tokens that one reading of the large model gives, on the mean."""
    return (1 - alpha ** (n_drafted + 1)) / (1 - alpha)


# %% [markdown]
# ## Going deeper
#
# ### Temperature moves entropy one way only
#
# *Claim.* Unless all scores are equal, entropy rises strictly with the temperature. [inference]
#
# *Proof.* Let $\beta = 1 / T$ and $p_i = e^{\beta z_i} / Z$. Then $\ln p_i = \beta z_i - \ln Z$, so
# $H = -\sum p_i \ln p_i = \ln Z - \beta \bar{z}$ with $\bar{z} = \sum p_i z_i$. The slope of $\ln Z$ by $\beta$ is
# $\bar{z}$, and the slope of $\bar{z}$ is the variance of the scores under $p$; so the slope of $H$ is
# $\bar{z} - \bar{z} - \beta \, \mathrm{Var}(z) = -\beta \, \mathrm{Var}(z)$, below zero unless all scores are equal.
# A larger $T$ is a smaller $\beta$. [inference] The same sum shows why the order never changes:
# $p_i / p_j = e^{\beta (z_i - z_j)}$ is above one whenever $z_i > z_j$. [inference]

# %%
z = np.array([2.0, 1.0, 0.0])
for T in (0.5, 1.0, 2.0):
    beta, step = 1 / T, 1e-6
    p = formulas.probabilities(z, T)
    variance = (p * z**2).sum() - (p * z).sum() ** 2
    slope = (entropy(formulas.softmax((beta + step) * z)) - entropy(p)) / step
    print(f"T = {T}: slope of H by beta {slope:.4f}, -beta Var(z) = {-beta * variance:.4f}")

# %% [markdown]
# ### A cache changes nothing
#
# *Claim.* In a causal stack the keys and values of a token, in every layer, depend on it and on earlier tokens alone;
# so those kept from before are those that would be computed again. [inference]
#
# *Proof.* By induction over the layers. What enters the first layer at place $t$ is made of token $t$ and its place. If
# what enters a layer at every place $s \le t$ depends on tokens up to $s$ alone, so do keys and values there, for they
# are made place by place; attention at $t$ looks at places up to $t$ only; norms and feed-forward networks look at
# nothing else; so what leaves the layer at $t$ depends on tokens up to $t$ alone. [inference] An encoder has no such
# cache: there a new token changes every vector. [inference]

# %%
state = reference.State()
parts = [reference.logits(tiny, weights, part, state) for part in ([3, 1, 4], [1], [5, 9], [2, 6])]
print("in parts, with a cache, against at once:")
print(small(abs(np.concatenate(parts) - reference.logits(tiny, weights, tokens)).max()))

# %% [markdown]
# ### Why a full cache can't just drop its oldest token
#
# *Claim.* From the second layer on, what is kept of a token remembers the tokens before it, those that are dropped
# included: a model with a shortened cache is not the model that reads the shortened text. [inference]
#
# *Proof.* The values that the second layer keeps at place $t$ are made of what the first layer's attention heard
# there, and that is a mix of all earlier tokens' values with weights above zero. [inference] So programs choose: read
# the rest again, or go on with a cache that never was. The second works better than it should if the very first
# tokens are kept, for many heads look there when they look nowhere. [paper: Xiao et al. 2024, abstract] With a window
# in the model itself the question does not arise: it was trained to forget. [inference]

# %%
full, short = reference.State(), reference.State()
reference.logits(turned, turned_weights, tokens, full)
reference.logits(turned, turned_weights, tokens[1:], short)
for place in full.kept:
    gap = abs(full.kept[place][1][:, 1:] - short.kept[place][1]).max()
    print(f"{place}: values kept of tokens 2 to 8, with and without the first token read: {small(gap)}")

# %% [markdown]
# ### A draft that changes nothing
#
# Writing waits for memory, so a model could check several tokens in the time of one. *Speculative decoding*: a small
# model writes a few tokens; the large one reads them at once and gets its own probabilities at each place; each drafted
# token is accepted or replaced. [paper: Leviathan et al. 2023, section 2]
#
# *Claim.* If a token drawn from $q$ is accepted with probability $\min(1, p / q)$, and otherwise one is drawn from the
# positive part of $p - q$, scaled to one, then what comes out is distributed as $p$. [paper: Leviathan et al. 2023,
# appendix A.1]
#
# *Proof.* Token $x$ comes out accepted with probability $q(x) \min(1, p(x) / q(x)) = \min(p(x), q(x))$. Let
# $\alpha = \sum_x \min(p(x), q(x))$; a replacement is needed with probability $1 - \alpha$. The positive part of
# $p - q$ is $p - \min(p, q)$, and its sum is $1 - \alpha$; so $x$ comes out as a replacement with probability
# $(1 - \alpha) (p(x) - \min(p(x), q(x))) / (1 - \alpha)$. Both together are $p(x)$. [inference]
#
# With $\gamma$ drafted tokens, each accepted with probability $\alpha$ by itself, one reading gives
# $1 + \alpha + \dots + \alpha^{\gamma}$ tokens on the mean. [paper: Leviathan et al. 2023, section 3.1] For the two
# distributions below $\alpha$ is {{accepted:.1f}}, and four drafted tokens give {{expected(accepted, 4):.2f}} for one
# reading. [computed]

# %%
both = np.minimum(p_V, q_V)
replaced = (p_V - both) / (p_V - both).sum()
print("accepted:", both, " and replaced:", ((1 - both.sum()) * replaced).round(3))
print("together:", (both + (1 - both.sum()) * replaced).round(12), " wanted:", p_V)
for alpha in (0.5, 0.8, 0.95):
    print(f"accepted {alpha}: " + ", ".join(f"{n} drafted {expected(alpha, n):.2f}" for n in (1, 4, 8)))

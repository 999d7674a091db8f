# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.lessons.words import small

scores_E = np.array([2.0, 1.0, 0.5, -1.0])
rng = np.random.default_rng(0)
any_TE = rng.normal(size=(64, 8))
normalised = formulas.softmax(any_TE) * formulas.choose(any_TE, 2)
normalised = normalised / normalised.sum(1, keepdims=True)


def worst(n_tokens=4000):
    """The loss of two experts as a rises: a share a of tokens is sure of the first, the rest nearly undecided."""
    out = {}
    for a in (0.0, 0.125, 0.25, 0.375, 0.5):
        sure = int(a * n_tokens)
        scores = np.zeros((n_tokens, 2))
        scores[:sure, 0] = 40.0
        scores[sure:, 1] = 1e-6
        out[a] = formulas.balance_loss(scores, 1)
    return out


lowest = worst()[0.25]

# %% [markdown]
# ## Going deeper
#
# ### Softmax before or after the choice
#
# *Claim.* Softmax over all, then the best $k$, then divided by their sum, is softmax over the best $k$ alone.
# [inference] *Proof.* The first gives $e^{r_i} / Z$ for the chosen, $Z$ the sum over all; divided by
# $\sum_{j \in C} e^{r_j} / Z$ it is $e^{r_i} / \sum_{j \in C} e^{r_j}$, and $Z$ is gone. Softmax keeps the order, so
# the choice is the same. [inference] Without the division $Z$ stays, and with it what the losers scored. [inference]

# %%
p_TE = formulas.softmax(any_TE)
late_TE = p_TE * formulas.choose(any_TE, 2)
print("normalised, against chosen first:", small(abs(normalised - formulas.top_k_gates(any_TE, 2)).max()))
print("not normalised:                  ", f"{abs(late_TE - formulas.top_k_gates(any_TE, 2)).max():.3f}")

# %% [markdown]
# ### Between what and what the balance loss lies
#
# *Claim.* With $k$ of $E$ chosen it is at most $E / k$; if the shares are even it is one whatever the probabilities
# are; and it can be below one. [inference]
#
# *Proof.* A share $f_i$ is the part of all choices that fell on $i$; each token chooses $i$ at most once among its $k$,
# so $f_i \le 1 / k$, and $E \sum f_i P_i \le (E / k) \sum P_i = E / k$. If every $f_i$ is $1 / E$, then
# $E \sum P_i / E = 1$. [inference] Below one: it is enough that those who are wished more, on the mean, get less. With
# two experts let a share $a$ of the tokens be sure of the first, and the others prefer the second by a hair. Then
# $f = (a, 1 - a)$, $P$ is nearly $((1 + a) / 2, (1 - a) / 2)$, and the loss is nearly $2 a^2 - a + 1$, least at
# $a = 1 / 4$: seven eighths. [inference] Nothing goes lower with two: for $a < 1 / 2$ the loss
# $2 (1 - a) - 2 (1 - 2 a) P_1$ falls as $P_1$ grows, and $P_1$ can be no larger than $a + (1 - a) / 2$. [inference] The
# code below comes to {{lowest:.4f}}. [computed: abs(lowest - 7 / 8) < 1e-5]

# %%
for a, loss in worst().items():
    print(f"a = {a:<5}  loss {loss:.5f}   2 a^2 - a + 1 = {2 * a * a - a + 1:.5f}")
uneven_TE = np.where(formulas.choose(10 * np.tile(np.eye(4), (8, 1)), 1), 1.0, rng.normal(-1, 0.3, (32, 4)))
print("even shares, uneven wishes:", round(formulas.balance_loss(uneven_TE, 1), 6))

# %% [markdown]
# So the loss pushes probabilities and cannot see the goal: its slope by $P_i$ is $E f_i$, more for who has more. It
# lowers the wish for the crowded. At even shares the slope is the same for all, and as the probabilities sum to one it
# moves nothing. [inference]
#
# ### One expert, normalised, teaches its router nothing
#
# *Claim.* With $k = 1$ and gates normalised over the chosen, the slope of the output by every score is zero.
# [inference] *Proof.* The one gate is $e^{r} / e^{r} = 1$ for any scores; the choice itself is constant but where two
# scores tie. A constant has slope zero. [inference] So a router of one must weigh its expert by the probability among
# *all*: that is why the Switch Transformer multiplies by it. [paper: Fedus et al. 2021, section 2.1] With $k = 2$ the
# slope is there again, by the difference of the two chosen scores alone. [inference]

# %%
step = 1e-6
for n_chosen in (1, 2):
    bumped_E = scores_E + step * np.eye(4)[0]
    slope = (formulas.top_k_gates([bumped_E], n_chosen) - formulas.top_k_gates([scores_E], n_chosen))[0] / step
    print(f"{n_chosen} chosen, slope of the gates by the first score:", slope.round(4))
p_E = formulas.softmax(scores_E)
print("one chosen, by its probability among all:   ", ((formulas.softmax(bumped_E) - p_E) / step).round(4))

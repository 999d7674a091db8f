# %% [hidden]
import numpy as np

from plainformer import formulas, spec
from plainformer.lessons.words import small

rng = np.random.default_rng(0)

# %% [markdown]
# ## Going deeper
#
# ### Shuffled in, shuffled out
#
# *Claim.* Attention without a mask commutes with every reordering $P$ of its tokens, and so does a whole stack of
# blocks without positions. [inference]
#
# *Proof.* Queries, keys and values of $P X$ are $P Q$, $P K$, $P V$, for each row is made alone. The scores are
# $P Q K^\top P^\top$: the same numbers, rows and columns reordered. A softmax along rows does not care where in its
# row a number stands, so the weights are $P A P^\top$. Then $P A P^\top P V = P A V$, because $P^\top P = I$. Norms,
# additions and feed-forward networks work at each token alone, so they commute with $P$ as well; and what commutes
# with $P$ layer by layer does so in all. [inference]

# %%
x = rng.normal(size=(1, 5, 4))
order = rng.permutation(5)
see = np.ones((5, 5), bool)
said, _ = formulas.attention(x, x, x, see, 0.5)
shuffled, _ = formulas.attention(x[:, order], x[:, order], x[:, order], see, 0.5)
print(np.allclose(shuffled, said[:, order]))

# %% [markdown]
# ### One causal layer can't order the past
#
# *Claim.* With a causal mask, no positions and one layer, the last token's output is the same for every order of
# those before it. [inference] *Proof.* It is $\sum_j a_j v_j$ over all tokens, with weights that are made of its own
# query and of keys that are each made of their token alone. Reordering the others reorders the terms of a sum.
# [inference] With a second layer the argument fails at its first step: a key of the second layer is made of a token
# *and of what it saw*, which is less the earlier it stands. [inference]

# %%
see = np.tril(np.ones((5, 5), bool))
swapped = x[:, [1, 0, 2, 3, 4]]
first, _ = formulas.attention(x, x, x, see, 0.5)
first_swapped, _ = formulas.attention(swapped, swapped, swapped, see, 0.5)
print("after one layer:", small(abs(first[0, -1] - first_swapped[0, -1]).max()))
y, z = x + first, swapped + first_swapped
second, _ = formulas.attention(y, y, y, see, 0.5)
second_swapped, _ = formulas.attention(z, z, z, see, 0.5)
print("after two:      ", small(abs(second[0, -1] - second_swapped[0, -1]).max()))

# %% [markdown]
# ### Rotary scores know only the distance
#
# *Claim.* Let $R_t$ turn every pair $i$ by $t \omega_i$. Then $(R_s q) \cdot (R_t k) = q \cdot (R_{t - s} k)$.
# [inference]
#
# *Proof.* A turning keeps lengths and angles: $R_s^\top R_s = I$, so $R_s^\top = R_{-s}$. Turnings of the same plane
# add their angles: $R_{-s} R_t = R_{t-s}$. Hence $(R_s q)^\top (R_t k) = q^\top R_s^\top R_t k = q^\top R_{t-s} k$;
# and pairs don't mix, so it holds for all of them at once. [inference] Two things follow. Moving a whole text along
# by any number of places changes no score. And lengths stay: turning can't make a query louder. [inference]

# %%
rotary = spec.Rotary(theta=10000.0, n_dims=8)
q, k = rng.normal(size=(2, 1, 1, 8))


def score(s, t):
    return (formulas.rotate(q, np.array([s]), rotary) * formulas.rotate(k, np.array([t]), rotary)).sum()


print([f"{score(s, s + 3):.10f}" for s in (0, 7, 500)])
print("length kept:", np.isclose(np.linalg.norm(formulas.rotate(q, np.array([9]), rotary)), np.linalg.norm(q)))

# %% [markdown]
# ### A step along sinusoids is a turning
#
# *Claim.* For each step $u$ there is one matrix that takes the sinusoids of every place $t$ to those of $t + u$.
# [inference] *Proof.* Sine and cosine of $(t + u)\omega$ are $\sin t\omega \cos u\omega + \cos t\omega \sin u\omega$
# and $\cos t\omega \cos u\omega - \sin t\omega \sin u\omega$: a matrix of $u$ alone, applied to the pair at $t$.
# [inference] This was the reason given for choosing waves: looking a fixed step back is a linear map. [paper: Vaswani
# et al. 2017, section 3.5] Rotary applies that map to queries and keys, instead of hoping that a model will find it.
# [inference]

# %%
waves = formulas.sinusoids(np.arange(50), 8)
step, *_ = np.linalg.lstsq(waves[:-3], waves[3:], rcond=None)  # the best matrix for three places on
print("largest error of one matrix for all places:", small(abs(waves[:-3] @ step - waves[3:]).max()))
print("it keeps lengths:", np.allclose(step.T @ step, np.eye(8)))

# %% [markdown]
# ### The two pairings are one model, reordered
#
# *Claim.* Reorder the rows of the query and key matrices so that $(i, i + d/2)$ become neighbours: then turning
# neighbours gives the scores that turning halves gave. [inference] *Proof.* Both turn the same two numbers by the
# same angle, and a dot product does not ask where its terms stand. [inference]

# %%
halves, neighbours = spec.Rotary(theta=1e4, n_dims=8), spec.Rotary(theta=1e4, n_dims=8, interleaved=True)
q_T, k_T = rng.normal(size=(2, 1, 6, 8))
order = np.array([0, 4, 1, 5, 2, 6, 3, 7])
places = np.arange(6)
one = formulas.rotate(q_T, places, halves) @ formulas.rotate(k_T, places, halves).swapaxes(1, 2)
other = formulas.rotate(q_T[..., order], places, neighbours) @ formulas.rotate(
    k_T[..., order], places, neighbours
).swapaxes(1, 2)
wrong = formulas.rotate(q_T, places, neighbours) @ formulas.rotate(k_T, places, neighbours).swapaxes(1, 2)
print("reordered:", np.allclose(one, other), "  not reordered:", np.allclose(one, wrong))

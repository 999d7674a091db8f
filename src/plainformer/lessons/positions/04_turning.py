# %% [hidden]
import numpy as np

from plainformer import formulas, spec
from plainformer.lessons.words import vector
from plainformer.report.diagrams import Arrow, Box, flow
from plainformer.report.drawings import lines

two = spec.Rotary(theta=10000.0, n_dims=2)  # one pair: turned by one radian a place
q, k = np.array([1.0, 0.0]), np.array([1.0, 0.0])


def turned(x, place, rotary=two):
    return formulas.rotate(np.asarray(x)[None, None], np.array([place]), rotary)[0, 0]


def score(i, j):
    return float(turned(q, i) @ turned(k, j))


wide = spec.Rotary(theta=10000.0, n_dims=64)
ones = np.ones(64)
fall = [(float(ago), float(turned(ones, ago, wide) @ turned(ones, 0, wide)) / 64) for ago in range(0, 200, 2)]

# %% [markdown]
# ## Turning: rotary positions
#
# **Everyday picture.** Two people carry compasses whose needles turn a little with each step of a path, both the
# same. Compare the needles of two who stand on the path: their angle tells how many steps lie between them, wherever
# on the path they are.
#
# **Where the analogy breaks.** One needle would read the same again after a full round. A head has many pairs, each
# turning at its own pace, so that far places do not look near; but each is a circle still. [inference]
#
# **Tiny worked example.** A query {{vector(q, "g")}} and the same key, one pair, one radian a place. At places five
# and three the query is {{vector(turned(q, 5))}}, the key {{vector(turned(k, 3))}}, their product
# {{score(5, 3):.4f}}. At places {{105}} and {{103}} it is {{score(105, 103):.4f}}: two apart, and no more is seen.
# [computed]

# %% [figure: rotary]
flow(
    "Where rotary stands",
    {
        "x": Box(0, 1, "a token, normed"),
        "q": Box(1, 0, "query", 0),
        "k": Box(1, 1, "key", 1),
        "v": Box(1, 2, "value", 2),
        "tq": Box(2, 0, "turned by its place", 0),
        "tk": Box(2, 1, "turned by its place", 1),
        "s": Box(3, 0.5, "score: depends on\nhow far apart they are"),
        "o": Box(3, 2, "what is said\nas it was", 2),
    },
    [
        Arrow("x", "q"),
        Arrow("x", "k"),
        Arrow("x", "v"),
        Arrow("q", "tq"),
        Arrow("k", "tk"),
        Arrow("tq", "s"),
        Arrow("tk", "s"),
        Arrow("v", "o"),
    ],
)

# %% [markdown]
# **How to read it.** Queries and keys are turned, values are not: place decides who is heard, never what is heard.
# Nothing is added to the stream, and every layer turns anew. [definition]
#
# **Formula.** For a pair $(a, b)$ of a query or a key at place $t$, the $i$-th of $d / 2$:
#
# $$
# \begin{pmatrix} a' \\ b' \end{pmatrix} =
# \begin{pmatrix} \cos t\omega_i & -\sin t\omega_i \\ \sin t\omega_i & \cos t\omega_i \end{pmatrix}
# \begin{pmatrix} a \\ b \end{pmatrix}, \qquad \omega_i = \theta^{-2i/d}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $(a, b)$ | two numbers of a query or a key | {{vector(q, "g")}} |
# | $t$ | its place | {{5}} |
# | $\omega_i$ | radians a place, of pair $i$ | {{1}} |
# | $\theta$ | the base: how slow the slowest pair is | {{10000:,}} |
# | $d$ | numbers of a head that are turned | {{2}} |
#
# **In words.** Turn each pair by its place times its pace; the product of a turned query with a turned key depends on
# the distance.
#
# **With the numbers.** Five radians: the cosine is {{np.cos(5):.4f}}, the sine {{np.sin(5):.4f}}; {{vector(q, "g")}}
# becomes {{vector(turned(q, 5), ".4f")}}. [computed]

# %%
x_GTK = np.array([[[1.0, 0.0, 1.0, 0.0]] * 3])  # one head, three tokens, two pairs
halves = spec.Rotary(theta=10000.0, n_dims=4)
neighbours = spec.Rotary(theta=10000.0, n_dims=4, interleaved=True)
print("pace of each pair:", formulas.frequencies(halves))
print("one from each half, place 1:", formulas.rotate(x_GTK, np.arange(3), halves)[0, 1])
print("neighbours, place 1:        ", formulas.rotate(x_GTK, np.arange(3), neighbours)[0, 1])

# %% [markdown]
# The two habits of pairing turn different numbers together. The same weights with the other habit are another model;
# the same *model* has its query and key rows in another order, and that is what a converter must do. [inference]

# %% [figure: fall]
lines(
    "A score of alike query and key, by distance (64 numbers, base 10,000)",
    {"score / 64": fall},
    "how far apart",
    "score, 1 at the same place",
)

# %% [markdown]
# **How to read it.** Alike query and key score most when near; with distance the pairs fall out of step, the fast
# ones first, and the score sinks and swings. A head can use this as it is, or learn queries that undo it. [inference]
# Llama 3 has a larger base, so that the slow pairs stay in step for longer. [paper: Dubey et al. 2024, section 3.2]
#
# **In the library.** Angles, and the turning of a part of the head if the spec says so: [definition]

# %% [source: formulas.rotate]

# %% [source: formulas.frequencies]

# %% [markdown]
# **Why it matters.** A score that depends on distance alone lets one head do "the word before" at every place at
# once. [inference] And it can be stretched: slow the turning, and a model made for short rows reads longer ones after
# little or no more training. [paper: Chen et al. 2023, abstract] [paper: Peng et al. 2023, section 3] Those are the
# settings under `rope_scaling`. [definition]

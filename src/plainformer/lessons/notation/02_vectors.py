# %% [hidden]
import numpy as np

from plainformer import reference, spec
from plainformer.lessons.words import vector
from plainformer.report.diagrams import Arrow, Box, flow

a, b, c = np.array([3.0, 1.0]), np.array([2.0, 2.0]), np.array([-1.0, 3.0])
x = np.array([1.0, 2.0, 3.0, 4.0])


def angle(one, other):
    return float(np.degrees(np.arccos(one @ other / np.linalg.norm(one) / np.linalg.norm(other))))


# %% [markdown]
# ## Vectors: lists of numbers
#
# **Everyday picture.** A person in a form: age, height, income. Each line of the form is one number; two people are
# alike if their forms are.
#
# **Where the analogy breaks.** The lines of a form have names. The numbers of a token's vector have none: nobody
# chose what the seventeenth stands for, and it may stand for nothing by itself. [inference]
#
# **Tiny worked example.** $a$ is {{vector(a, "g")}} and $b$ is {{vector(b, "g")}}. Added they are
# {{vector(a + b, "g")}}; twice $a$ is {{vector(2 * a, "g")}}. Multiplied number by number and added up, $a \cdot b$
# is {{a[0] * b[0]:g}} and {{a[1] * b[1]:g}}, together {{a @ b:g}}. With $c$, which is {{vector(c, "g")}}, $a \cdot c$
# is {{a @ c:g}}. [computed]

# %% [figure: dot]
flow(
    "A dot product",
    {
        "a": Box(0, 0, f"a\n{vector(a, 'g')}", 0),
        "b": Box(0, 1, f"b\n{vector(b, 'g')}", 1),
        "m": Box(1, 0.5, f"number by number\n{vector(a * b, 'g')}"),
        "s": Box(2, 0.5, f"added up\n{a @ b:g}", 2),
    },
    [Arrow("a", "m"), Arrow("b", "m"), Arrow("m", "s")],
)

# %% [markdown]
# **How to read it.** Two lists of the same length go in, one number comes out. It is large where both are large in
# the same places, zero where they have nothing in common, negative where they point apart. Every score in a
# transformer is made this way. [inference]
#
# **Formula.** Dot product, length, and the angle between two vectors:
#
# $$
# a \cdot b = \sum_{j=1}^{d} a_j b_j, \qquad \lVert a \rVert = \sqrt{a \cdot a}, \qquad
# \cos\varphi = \frac{a \cdot b}{\lVert a \rVert\, \lVert b \rVert}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $a, b$ | vectors | {{vector(a, "g")}}, {{vector(b, "g")}} |
# | $d$ | how many numbers each has | {{len(a)}} |
# | $a_j$ | the $j$-th number of $a$ | the first is {{a[0]:g}} |
# | $\sum_{j=1}^{d}$ | add up what follows, for each $j$ | |
# | $\lVert a \rVert$ | the length | {{np.linalg.norm(a):.3f}} |
# | $\varphi$ | the angle between them | {{angle(a, b):.1f}} degrees |
#
# **In words.** Multiply matching numbers, add up. By both lengths that is the cosine of the angle: one if they point
# the same way, zero if at right angles.
#
# **With the numbers.** {{a @ b:g}} by {{np.linalg.norm(a):.3f}} times {{np.linalg.norm(b):.3f}} is
# {{a @ b / np.linalg.norm(a) / np.linalg.norm(b):.4f}}; $a$ and $c$ stand at {{angle(a, c):.0f}} degrees. [computed]

# %%
a, b, c = np.array([3.0, 1.0]), np.array([2.0, 2.0]), np.array([-1.0, 3.0])
print("a + b =", a + b, "  a . b =", a @ b, "  a . c =", a @ c, "  length of a =", np.linalg.norm(a).round(3))

x = np.array([1.0, 2.0, 3.0, 4.0])
print(
    "mean", x.mean(), "  variance", x.var(), "  spread", x.std().round(3), "  by 4 - 1 instead:", x.var(ddof=1).round(3)
)

# %% [markdown]
# Three more words for one list. Its *mean* is the sum by how many there are; its *variance* the mean of the squared
# distances from the mean; its *spread* the root of that, also called standard deviation. For {{vector(x, "g")}} they
# are {{x.mean()}}, {{x.var()}} and {{x.std():.3f}}. [computed] The variance of statistics courses divides by one less
# and gives {{x.var(ddof=1):.3f}}; transformers never do that. [computed]
#
# **In the library.** A token's vector meets a table of vectors, and the dot products are the scores of all tokens:
# the head of a model is this and nothing else. [definition]

# %% [source: reference.run.dispatch(spec.Head)]

# %% [markdown]
# **Why it matters.** "How well do these two fit?" is asked billions of times in one answer of a model, and a dot
# product is the question each time. [inference]

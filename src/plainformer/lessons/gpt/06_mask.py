# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.report.drawings import maps

s_TT = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
see_TT = np.tril(np.ones((5, 5), bool))
added_TT = np.where(see_TT, 0.0, -np.inf).astype(np.float32)  # zeros and minus infinities
BIG = np.float32(-1e9)


def spread_over(x_TT):
    """Softmax in float32, as the routines in question compute it."""
    x_TT = np.exp(x_TT - x_TT.max(-1, keepdims=True))
    return x_TT / x_TT.sum(-1, keepdims=True)


def multiplied(scores_TT, mask_TT):
    """A routine that expects ones and zeros, and adds a large negative number where it finds a zero."""
    with np.errstate(over="ignore"):
        return spread_over(scores_TT + (np.float32(1) - mask_TT) * BIG)


def compared(scores_TT, mask_TT):
    """Another that expects the same, and writes the number wherever the mask is zero."""
    return spread_over(np.where(mask_TT == 0, BIG, scores_TT))


right_TT = formulas.softmax(s_TT, see_TT)
good = [routine(s_TT, see_TT.astype(np.float32)) for routine in (multiplied, compared)]
even_TT, turned_TT = multiplied(s_TT, added_TT), compared(s_TT, added_TT)
step = float(np.spacing(np.float32(1e9)))

# %% [markdown]
# ## A mask in the wrong language
#
# **Everyday picture.** Two offices, one list. In the first, a tick means *may come in*; in the second, *crossed off*.
# The list is passed on, and nobody notices, for somebody does come in.
#
# **Where the analogy breaks.** People would complain. A routine of softmax gives weights that add up to one, whatever
# it was given. [inference]
#
# **Tiny worked example.** A course builds a mask of zeros (may be seen) and minus infinities (may not), and passes it
# to a routine that expects ones (may) and zeros (may not). [source: MLSysBook/TinyTorch@02364f8,
# src/13_transformers/13_transformers.py] The routine adds {{BIG:.0e}} wherever it finds a zero: so, to every score that
# may be seen. In float32 numbers of that size are {{step:.0f}} apart; the scores, which are below three, are gone.
# [computed]

# %% [figure: masks]
names = [str(i + 1) for i in range(5)]
maps(
    "Weights of five tokens under a mask that is understood, and misunderstood twice",
    {"as meant": right_TT, "added: even": even_TT, "compared: turned": turned_TT},
    names,
    names,
)

# %% [markdown]
# **How to read it.** At the left the mask as it was meant. In the middle the same mask in a routine that adds: still
# causal, but every token that may be seen has the same weight, and attention is an average. At the right in a routine
# that compares: now the *future* is seen and the past is not; only the last row, which has no future, is even. Two
# copies of the course's routine do these two things. [source: MLSysBook/TinyTorch@02364f8, tinytorch/core/attention.py]
#
# **Formula.** The routine that adds, given $m$:
#
# $$
# s'_{ij} = s_{ij} + (1 - m_{ij}) \cdot c
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $s_{ij}$ | a score | {{s_TT[1, 0]:.3f}} |
# | $m_{ij}$ | one if seen, zero if not: so the routine believes | {{added_TT[1, 0]:g}} |
# | $c$ | a large negative number | {{BIG:.0e}} |
# | $s'_{ij}$ | what softmax is given | {{float(s_TT[1, 0] + BIG):,.0f}} |
#
# **In words.** Where the mask says zero, push the score so far down that nothing is left of it.
#
# **With the numbers.** {{s_TT[1, 0]:.3f}} + ({{1}} - {{0}}) times {{BIG:.0e}} = {{float(s_TT[1, 0] + BIG):,.0f}}, and
# so for every token that may be seen: they are equal, and softmax gives each the same. [computed]

# %%
print("third row as meant:", right_TT[2])
print("added             :", even_TT[2])
print("compared          :", turned_TT[2])
print("told in their own language:", [bool(np.allclose(one, right_TT, atol=1e-6)) for one in good])

# %% [markdown]
# Given ones and zeros both routines are right. [computed: all(bool(np.allclose(one, right_TT, atol=1e-6)) for one in
# good)] Given the other language, the first is an even average over what came before: such a model trains, and its loss
# falls as far as a bag of words can take it. [inference] The second sees the future: its loss in training falls too
# far, and it can't write. [inference]
#
# **In the library.** A mask is of true and false, *may be seen*, and nothing else is one: there is no second language
# to mistake it for. [definition]

# %% [source: formulas.softmax]

# %% [markdown]
# **Why it matters.** Shapes agree, rows add up to one, the loss falls. Only a test that changes a later token and looks
# at an earlier score tells; write that one first. [inference]

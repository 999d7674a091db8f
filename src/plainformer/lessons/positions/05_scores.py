# %% [hidden]
import numpy as np

from plainformer import formulas, reference
from plainformer.lessons.words import vector
from plainformer.report.drawings import maps

slopes = formulas.alibi_slopes(8)
ago_TS = np.arange(6)[:, None] - np.arange(6)[None, :]
see_TS = ago_TS >= 0
even_TS = formulas.softmax(np.zeros((6, 6)), see_TS)
steep_TS = formulas.softmax(-slopes[0] * abs(ago_TS), see_TS)
flat_TS = formulas.softmax(-slopes[-1] * abs(ago_TS), see_TS)
far = formulas.relative_buckets(np.arange(0, 200)[:, None], 32, 128, True)[:, 0]

# %% [markdown]
# ## A number added to each score
#
# **Everyday picture.** In a long corridor a voice loses a little with every step. Nobody counts doors; far is simply
# fainter. Some listeners have sharp ears for the near and none for the far, others hear the whole corridor.
#
# **Where the analogy breaks.** Sound fades whatever is said; a score can be large enough to outweigh any penalty, so
# far tokens are heard if they fit well. [inference]
#
# **Tiny worked example.** Eight heads have the slopes {{vector(slopes, ".4g")}}. For the first, a key three places
# back loses {{3 * slopes[0]:g}}; for the last, {{3 * slopes[-1]:g}}. [computed] With all scores alike, the sixth
# token of the first head looks with {{vector(steep_TS[5], ".2f")}}, that of the last with
# {{vector(flat_TS[5], ".2f")}}. [computed]

# %% [figure: alibi]
names = [str(i + 1) for i in range(6)]
maps(
    "ALiBi: where six tokens look if all scores are alike",
    {"no positions": even_TS, "steepest head": steep_TS, "flattest head": flat_TS},
    names,
    names,
)

# %% [markdown]
# **How to read it.** Without positions each row is even over what it may see. The steepest head puts more weight on
# the nearest; the flattest is nearly even. No two heads need the same slope, and together they cover near and far.
# [inference]
#
# **Formula.** For the query at $i$ and the key at $j$, in head $h$ of $H$:
#
# $$
# s_{ij} = \frac{q_i \cdot k_j}{\sqrt{d}} - m_h\, |i - j|, \qquad m_h = 2^{-8h/H}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $s_{ij}$ | the score that goes into the softmax | |
# | $m_h$ | the slope of head $h$, fixed | {{slopes[0]:g}} for the first of eight |
# | $H$ | how many heads, a power of two | {{8}} |
# | $\lvert i - j \rvert$ | how far apart the two are | {{3}} |
#
# **In words.** Take from each score the distance times the head's slope.
#
# **With the numbers.** The second head of eight: two to the power of minus {{8 * 2 / 8:g}} is {{slopes[1]:g}}.
# [computed]

# %%
print("slopes of  8 heads:", formulas.alibi_slopes(8))
print(
    "slopes of 12 heads:", formulas.alibi_slopes(12).round(3)
)  # no power of two: the eight, and between them four more
ago = np.array([[0, 1, 2, 15, 16, 17, 30, 64, 127, 128, 500]])
print("T5: how far back  ", ago[0])
print("T5: its bucket    ", formulas.relative_buckets(ago, 32, 128, causal=True)[0])

# %% [markdown]
# **Learned instead of fixed.** T5 adds a learned number for each head and each *bucket* of distance:
# {{int((np.diff(far[:17]) == 1).sum())}} near distances have a bucket of their own, further ones share by their
# logarithm, and from {{int(np.argmax(far == 31))}} on all share the last. [computed] All layers share one table.
# [paper: Raffel et al. 2020, section 2.1] An earlier form added vectors for distances to the keys. [paper: Shaw et
# al. 2018, section 3]
#
# **In the library.** Both are numbers added to scores, from how far back each key is: [definition]

# %% [source: reference.Where.bias]

# %% [source: formulas.alibi_slopes]

# %% [source: formulas.relative_buckets]

# %% [markdown]
# **Why it matters.** Distance enters where it is used, at the score, and a longer row brings distances that merely go
# on. [inference] Trained on short rows, models with ALiBi kept their loss on longer ones where sinusoids lost it.
# [paper: Press et al. 2021, figure 1]

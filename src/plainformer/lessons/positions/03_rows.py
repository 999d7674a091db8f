# %% [hidden]
import numpy as np

from plainformer import formulas, reference, spec
from plainformer.lessons.words import vector
from plainformer.report.drawings import lines, maps

width = 16
waves_TD = formulas.sinusoids(np.arange(32), width)
small_TD = formulas.sinusoids(np.arange(4), 4)
slow = 10000 ** (2 / 4)

# %% [markdown]
# ## A row for each place
#
# **Everyday picture.** Write the seat number on each ticket before the tickets are thrown into the bag. Learned rows
# are numbers that the printer made up and the ushers got used to. Sinusoids are like the hands of a clock: a second
# hand for the nearest places, a minute hand for the wider region, an hour hand for the whole.
#
# **Where the analogy breaks.** The number is not written beside the token but *added* to it, number by number: both
# share the same places of the vector. That they can be told apart afterwards is something training must bring about.
# [inference]
#
# **Tiny worked example.** Width four, so two hands. The first turns by one radian a place, the second by one over
# {{slow:g}}. Place one is {{vector(small_TD[1])}}: sine and cosine of one, sine and cosine of a hundredth. [computed]
# Place zero is {{vector(small_TD[0], "g")}}. [computed]

# %% [figure: sinusoids]
lines(
    "Sinusoids: four of sixteen numbers of each place",
    {f"number {j + 1}": [(float(t), float(waves_TD[t, j])) for t in range(32)] for j in (0, 2, 4, 8)},
    "place in the row",
    "what is added",
)

# %% [markdown]
# **How to read it.** Each line is one number of the vector as the place grows. The first swings fastest; every pair
# is slower than the one before by the same factor, and the last has hardly moved after thirty places. So no two
# places share all numbers, and near places share most. [inference]
#
# **Formula.** For place $t$ and pair $i$ of a vector of $d$ numbers:
#
# $$
# p_{t, 2i} = \sin\left(\frac{t}{10000^{2i/d}}\right), \qquad
# p_{t, 2i+1} = \cos\left(\frac{t}{10000^{2i/d}}\right), \qquad x_t = E[\mathrm{token}_t] + p_t
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $t$ | the place, counted from zero | {{1}} |
# | $i$ | which pair | the first is {{0}} |
# | $d$ | numbers in a vector | {{4}} |
# | $p_t$ | what is added at place $t$ | {{vector(small_TD[1])}} |
# | $E$ | the token table: a learned row for each token | |
# | $x_t$ | the stream before the first layer | |
#
# **In words.** To the row of the token add the row of the place; the latter is looked up, or computed from waves.
#
# **With the numbers.** The second pair at place one: the sine of {{1 / slow:g}} is {{np.sin(1 / slow):.4f}}, its cosine
# {{np.cos(1 / slow):.4f}}. [computed]

# %%
print(formulas.sinusoids(np.arange(4), 4))  # four places, width four

table = spec.Table(n_rows=16, width=4)  # learned: a row for each place, nothing more
rows = np.random.default_rng(0).normal(0, 0.02, (16, 4))
here = reference.Where(np.arange(3))
print(reference.run(table, reference.Weights({"weight": rows}), here.positions_T, here))

# %% [figure: likeness]
likeness = waves_TD @ waves_TD.T / (width / 2)
maps(
    "How alike two places are: products of their sinusoids",
    {"places 1 to 12": np.clip(likeness[:12, :12], 0, 1)},
    [str(i + 1) for i in range(12)],
    [str(i + 1) for i in range(12)],
)

# %% [markdown]
# **How to read it.** Dark along the diagonal, paler away from it, and the same along each diagonal: how alike two
# places are depends on how far apart they are, and on nothing else. [computed: bool(np.allclose(np.diag(likeness, 3),
# likeness[0, 3]))]
#
# The first transformer tried both and found them equal, and kept the waves because they have no end.
# [paper: Vaswani et al. 2017, section 3.5]
#
# **In the library.** Both are parts of a stack, `Table` or `Sinusoid`; OPT's and BART's offset of two is a field of
# the table. [definition]

# %% [source: formulas.sinusoids]

# %% [source: reference.run.dispatch(spec.Table)]

# %% [markdown]
# **Why it matters.** What is added is spent: a row of GPT-2's table is one of {{1024:,}}, and there is no next.
# [definition] And it is *absolute*: a model must learn anew at every place that the word before the last is the word
# before the last. The next two sections do away with both. [inference]

# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer import spec as s
from plainformer.gradients import loss_and_gradients, two_tokens
from plainformer.gradients.formulas import cross_entropy_back, softmax_back
from plainformer.lessons.words import rows, vector
from plainformer.records import replace
from plainformer.report.diagrams import Arrow, Box, flow

z_V = np.array([2.0, 1.0, 0.0])
target = 1
p_V = formulas.softmax(z_V)
y_V = np.eye(3)[target]
d_z = cross_entropy_back(z_V[None], np.array([target]))[0]
loss = float(formulas.cross_entropy(z_V[None], [target])[0])
apart = two_tokens.spec()
tied = replace(apart, head=s.Head(linear=s.Linear(n_in=2, n_out=3), tied=True))
arrays = two_tokens.arrays()
_, of_apart = loss_and_gradients(apart, arrays, two_tokens.TOKENS, two_tokens.TARGETS)
one_table = {name: array for name, array in arrays.items() if name != "head.weight"}
_, of_tied = loss_and_gradients(tied, one_table, two_tokens.TOKENS, two_tokens.TARGETS)
read, scored, both = of_apart["embedding.weight"], of_apart["head.weight"], of_tied["embedding.weight"]

# %% [markdown]
# ## The loss: what was said, less what should have been
#
# **Everyday picture.** Three people bet on a race, all of their money, split over the horses. After the race each is
# told, horse by horse, how much too much they had on it: everything on the losers, and on the winner what was missing,
# with a minus.
#
# **Where the analogy breaks.** A bettor may move one stake alone. Scores cannot: raise one and softmax takes from all
# others. That this all adds up to something so plain is the gift of the logarithm. [inference]
#
# **Tiny worked example.** The scores {{vector(z_V, "g")}} say {{vector(p_V)}}. The second is the right one, so the loss
# is minus the logarithm of {{p_V[target]:.3f}}, {{loss:.3f}} nats. The slope along the scores is {{vector(d_z)}}: lower
# the first, raise the second, lower the third a little. [computed] They sum to zero.
# [computed: bool(abs(d_z.sum()) < 1e-12)]

# %% [figure: tied]
flow(
    "One table, met twice",
    {
        "table": Box(0, 0, "the token table", 1),
        "read": Box(1, 0, "rows of the tokens\nthat are read", 0),
        "layers": Box(2, 0, "the layers"),
        "scores": Box(3, 0, "scores\nby all rows", 0),
        "loss": Box(4, 0, "loss"),
        "sum": Box(0, 1, "slope of the table\na sum", 2),
        "d_read": Box(1, 1, "slopes\nof rows that were read", 2),
        "d_layers": Box(2, 1, "back through\nthe layers", 2),
        "d_scores": Box(3, 1, "slopes of scores\np - y", 2),
    },
    [
        Arrow("table", "read"),
        Arrow("read", "layers"),
        Arrow("layers", "scores"),
        Arrow("table", "scores", "as head", around=-1),
        Arrow("scores", "loss"),
        Arrow("loss", "d_scores", dashed=True),
        Arrow("d_scores", "d_layers", dashed=True),
        Arrow("d_layers", "d_read", dashed=True),
        Arrow("d_read", "sum", dashed=True),
        Arrow("d_scores", "sum", "slopes of all rows", dashed=True, around=1),
    ],
)

# %% [markdown]
# **How to read it.** Above, the way there: the table is met at the beginning, to look tokens up, and at the end,
# to score all words. On the way back each meeting leaves a slope, and the table's is their sum. The first touches only
# the rows of tokens that were read; the second touches every row, in every step. [inference]
#
# **Formula.** For one position with the target $t$:
#
# $$
# L = -\ln p_t, \qquad p_i = \frac{e^{z_i}}{\sum_j e^{z_j}}, \qquad \frac{\partial L}{\partial z_i} = p_i - y_i
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $z_i$ | the score of a word | {{z_V[0]:g}} |
# | $p_i$ | its probability | {{p_V[0]:.3f}} |
# | $t$ | the right word | the second |
# | $y_i$ | what should have been: one for the right word, zero for others | {{vector(y_V, "g")}} |
# | $L$ | the loss, in nats | {{loss:.3f}} |
#
# **In words.** The slope along the scores is what was said less what should have been said.
#
# *Where it comes from.* $-\ln p_t = \ln \sum_j e^{z_j} - z_t$. The slope of the first is $e^{z_i} / \sum_j e^{z_j}$,
# which is $p_i$; that of the second is minus one at the target and zero elsewhere. [inference] A loss that is a mean
# over $N$ targets divides it by $N$; a target that is to be ignored gives zero. [definition]
#
# **With the numbers.** {{p_V[0]:.3f}} - {{y_V[0]:g}}, {{p_V[1]:.3f}} - {{y_V[1]:g}}, {{p_V[2]:.3f}} - {{y_V[2]:g}}:
# {{vector(d_z)}}. [computed]

# %%
p_V = formulas.softmax([2.0, 1.0, 0.0])
print("p - y:              ", p_V - np.eye(3)[1])
d_p = np.array([0.0, -1 / p_V[1], 0.0])  # of -ln p
print("through softmax:    ", softmax_back(p_V, d_p))
print("by its whole table: ", d_p @ (np.diag(p_V) - np.outer(p_V, p_V)))

# %% [markdown]
# The middle line takes the two steps one by one. Softmax alone has the table of slopes $p_i ([i = j] - p_j)$; by it
# what goes back is $p_i (\delta_i - \sum_j p_j \delta_j)$: whether a word pays more than words do on average.
# [inference]
#
# **The tied table.** The small model has two tables with the same numbers, one to read and one to score. The slopes
# along them are {{rows(read)}} and {{rows(scored)}}. [computed] Make them one table, and its slope is {{rows(both)}}:
# the sum. [computed: bool(abs(both - read - scored).max() < 1e-12)] The third word was never read, and its row in the
# first is zero; as a word that could have been said it is moved all the same. [computed: bool((read[2] == 0).all())]
#
# **In the library.** [definition]

# %% [source: cross_entropy_back]

# %% [source: softmax_back]

# %% [markdown]
# **Why it matters.** The first slope of the way back lies between minus one and one whatever the scores are, so the
# loss itself never blows up a gradient. [computed: bool((abs(d_z) <= 1).all())] And a model that is sure and right
# gets none: it learns from what surprises it. [inference]

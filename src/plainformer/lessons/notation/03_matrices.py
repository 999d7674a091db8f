# %% [hidden]
import numpy as np

from plainformer import ledger, reference, spec
from plainformer.lessons.words import rows, vector
from plainformer.report.diagrams import Arrow, Box, flow

W = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, -1.0]])
bias = np.array([0.0, 0.0, 10.0])
x = np.array([3.0, 1.0])
linear = spec.Linear(n_in=2, n_out=3, bias=True)
count = sum(w.count for w in ledger.weights(linear))

# %% [markdown]
# ## Matrices: many questions at once
#
# **Everyday picture.** A questionnaire: each line weighs the same facts about you differently and gives one number,
# the fitness, the credit, the risk.
#
# **Where the analogy breaks.** Questionnaires are written; the lines of a matrix are found by training. And answers
# are not the end: the next layer asks its questions of the answers. [inference]
#
# **Tiny worked example.** The vector {{vector(x, "g")}} and a matrix of three lines, {{rows(W, "g")}}. Each line's
# dot product with the vector: {{vector(W @ x, "g")}}. Two numbers went in, three came out. [computed]

# %% [figure: matrix]
flow(
    "A matrix of three lines",
    {
        "x": Box(0, 1, f"x\n{vector(x, 'g')}"),
        "r0": Box(1, 0, f"line one\n{vector(W[0], 'g')}", 0),
        "r1": Box(1, 1, f"line two\n{vector(W[1], 'g')}", 0),
        "r2": Box(1, 2, f"line three\n{vector(W[2], 'g')}", 0),
        "y": Box(2, 1, f"W x\n{vector(W @ x, 'g')}", 2),
    },
    [Arrow("x", "r0"), Arrow("x", "r1"), Arrow("x", "r2"), Arrow("r0", "y"), Arrow("r1", "y"), Arrow("r2", "y")],
)

# %% [markdown]
# **How to read it.** The same vector goes to every line, and each line answers with one number. Nothing passes
# between lines, so all can be asked at the same time: that is why graphics cards are good at it. [inference]
#
# **Formula.** A *linear layer*, with a bias:
#
# $$
# y = W x + b, \qquad y_r = \sum_{j} W_{rj}\, x_j + b_r
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $W$ | the matrix: a line for each output | {{W.shape[0]}} lines of {{W.shape[1]}} |
# | $x$ | what goes in | {{vector(x, "g")}} |
# | $b$ | the bias: one number for each output | {{vector(bias, "g")}} |
# | $y_r$ | the $r$-th answer | the third is {{(W @ x + bias)[2]:g}} |
#
# **In words.** Each output is a dot product of the input with a line of its own, plus a number of its own.
#
# **With the numbers.** The third: {{W[2, 0]:g}} times {{x[0]:g}}, {{W[2, 1]:g}} times {{x[1]:g}}, plus {{bias[2]:g}},
# is {{(W @ x + bias)[2]:g}}. [computed]

# %%
W = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, -1.0]])
bias = np.array([0.0, 0.0, 10.0])
x_TD = np.array([[3.0, 1.0], [1.0, 1.0], [0.0, 2.0]])  # three tokens at once: a row each
print(x_TD @ W.T + bias)
print(
    reference.run(spec.Linear(n_in=2, n_out=3, bias=True), reference.Weights({"weight": W, "bias": bias}), x_TD, None)
)

# %% [markdown]
# **Shapes.** A matrix with three lines of two has {{W.size}} numbers, and the layer with its bias {{count}}: outputs
# times inputs, plus outputs. [computed] Its transpose $W^\top$ has rows for columns; `x @ W.T` answers all rows of
# `x` at once. [definition] What one layer gives out the next must take in: widths that meet must be equal, and most
# errors of beginners are two that are not. [inference]
#
# **In the library.** Bias and low-rank correction included: [definition]

# %% [source: reference.linear]

# %% [markdown]
# **Why it matters.** Nearly all weights of a model stand in matrices, and nearly all of its work is multiplying by
# them: two operations, a product and a sum, for each weight and token. [inference]

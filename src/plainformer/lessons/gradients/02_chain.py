# %% [hidden]
import numpy as np

from plainformer.gradients import chain
from plainformer.gradients.formulas import linear_back
from plainformer.lessons.words import lesson, rows, vector
from plainformer.report.diagrams import Arrow, Box, flow

x_D = np.array([1.0, 2.0])
W = np.array([[1.0, 0.0], [-1.0, 2.0]])


def loss_of(x_D, W):
    """Two numbers y = W x, and their product."""
    y_D = W @ x_D
    return y_D[0] * y_D[1]


y_D = W @ x_D
d_y = y_D[::-1]
d_x, d_W = linear_back(x_D[None], W, d_y[None])
d_x = d_x[0]
nudge = 0.001
nudged_loss = loss_of(x_D + np.array([nudge, 0]), W)

# %% [markdown]
# ## Slopes, and the chain rule
#
# **Everyday picture.** A bicycle. The pedals turn the chainwheel, the chainwheel the chain, the chain the wheel. How
# far do you get for one turn of the pedals? Multiply the gears, one after the other. And if you want to know which
# gear to change, begin at the wheel: how far does *it* take you for one turn; then the chain; then the pedals.
#
# **Where the analogy breaks.** A gear has the same ratio at every speed. A slope is that of one place: move the weight
# far and it is another one. And a gear drives one other; a number drives many, whose shares are added. [inference]
#
# **Tiny worked example.** A token {{vector(x_D, "g")}} meets the matrix with the rows {{rows(W, "g")}} and becomes
# {{vector(y_D, "g")}}; the loss is their product, {{loss_of(x_D, W):g}}. In a product each factor's slope is the other:
# the slope along $y$ is {{vector(d_y, "g")}}. The first number of the token moves the first of $y$ by {{W[0, 0]:g}} and
# the second by {{W[1, 0]:g}}, so its own slope is {{d_y[0]:g}} times {{W[0, 0]:g}} plus {{d_y[1]:g}} times
# {{W[1, 0]:g}}: {{d_x[0]:g}}. [computed] Moved by {{nudge:g}}, it changes the loss from {{loss_of(x_D, W):g}} to
# {{nudged_loss:.6f}}. [computed]

# %% [figure: chain]
flow(
    "There, and back",
    {
        "x": Box(0, 0, f"x\n{vector(x_D, 'g')}"),
        "W": Box(0, 1, f"W\n{rows(W, 'g')}", 1),
        "y": Box(1, 0, f"y = W x\n{vector(y_D, 'g')}", 0),
        "L": Box(2, 0, f"loss\n{loss_of(x_D, W):g}"),
        "dy": Box(2, 1, f"slope along y\n{vector(d_y, 'g')}", 2),
        "dW": Box(1, 2, f"slope along W\n{rows(d_W, 'g')}", 2),
        "dx": Box(1, 1, f"slope along x\n{vector(d_x, 'g')}", 2),
    },
    [
        Arrow("x", "y"),
        Arrow("W", "y"),
        Arrow("y", "L", "product"),
        Arrow("L", "dy", dashed=True),
        Arrow("dy", "dx", "by W", dashed=True),
        Arrow("dy", "dW", "by x", dashed=True),
    ],
)

# %% [markdown]
# **How to read it.** Full lines go there, dashed ones back. The way back begins at the loss and needs two things at
# every box: the slope that arrives, and what the box read on the way there. That is why activations are kept.
# [inference] A slope has the shape of what it is along. [computed: d_W.shape == W.shape and d_x.shape == x_D.shape]
#
# **Formula.** The chain rule, and what it gives for a matrix:
#
# $$
# \frac{\partial L}{\partial x_i} = \sum_o \frac{\partial L}{\partial y_o}\, \frac{\partial y_o}{\partial x_i}
# = \sum_o \delta_o\, W_{oi}, \qquad \frac{\partial L}{\partial W_{oi}} = \delta_o\, x_i
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $L$ | the loss | {{loss_of(x_D, W):g}} |
# | $x_i$ | a number that is read | {{x_D[0]:g}} |
# | $y_o$ | a number that is made of them, $\sum_i W_{oi} x_i$ | {{y_D[0]:g}} |
# | $W_{oi}$ | how fast $y_o$ grows with $x_i$ | {{W[1, 0]:g}} for the second and the first |
# | $\partial L / \partial x_i$ | how fast $L$ grows with $x_i$ alone, all else held still | {{d_x[0]:g}} |
# | $\delta_o$ | the slope that arrives, $\partial L / \partial y_o$ | {{d_y[0]:g}} and {{d_y[1]:g}} |
#
# **In words.** What reaches a number on the way back is the sum, over everything it moved, of how much that matters
# times how far it was moved.
#
# **With the numbers.** Along $x$: {{vector(d_x, "g")}}. Along $W$, a row for each slope and a column for each input:
# {{rows(d_W, "g")}}; its last entry is {{d_y[1]:g}} times {{x_D[1]:g}}. [computed]

# %%
x_D, W = np.array([1.0, 2.0]), np.array([[1.0, 0.0], [-1.0, 2.0]])
y_D = W @ x_D
d_y = np.array([y_D[1], y_D[0]])  # of the product of the two
print("along x:", d_y @ W)
print("along W:", np.outer(d_y, x_D).tolist())
for i in range(2):  # the same by moving one number at a time
    there, back = (loss_of(x_D + by * np.eye(2)[i], W) for by in (1e-5, -1e-5))
    print(f"by differences, x_{i}: {(there - back) / 2e-5:.6f}")

# %% [markdown]
# Many tokens meet the same matrix: its slope is the sum of theirs. That sum is itself a matrix product, so the way
# back of one product is two: one for what was read, one for the matrix. [inference]
#
# **In the library.** A linear layer, and parts in a row. On the way there each part's input is remembered, on the way
# back they are met from the last to the first. [definition]

# %% [source: linear_back]

# %% [source: chain]

# %% [markdown]
# **Why it matters.** Each part needs one rule: from its input and the slope along its output to the slope along its
# input. Then any order of parts can be walked back, and the rest of this lesson is a list of such rules. [inference]
# The table of all slopes of all outputs along all inputs, the Jacobian, is never written down: of a layer of GPT-2
# small it would have {{(1024 * 768) ** 2:,}} entries. [computed] Where slopes go next: {{lesson("training")}}.
# [definition]

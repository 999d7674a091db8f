# %% [hidden]
import numpy as np

from plainformer.gradients import Moments, adamw_step
from plainformer.lessons.words import lesson, vector
from plainformer.report.drawings import lines

w = np.array([1.0, -2.0])
g_1, g_2 = np.array([0.1, -0.001]), np.array([0.1, 0.001])
lr, beta1, beta2, eps, decay = 0.01, 0.9, 0.999, 1e-8, 0.01
once, kept = adamw_step({"w": w}, {"w": g_1}, Moments(), lr)
twice, _ = adamw_step(once, {"w": g_2}, kept, lr)
m_1, v_1 = (1 - beta1) * g_1, (1 - beta2) * g_1**2
moved = once["w"] - (1 - lr * decay) * w
moved_twice = twice["w"] - (1 - lr * decay) * once["w"]
steep, n_steps = np.array([1.0, 100.0]), 100


def walk(step_of):
    """Losses of a bowl a hundred times as steep one way as the other, and the last one."""
    at, state, losses = np.array([1.0, 1.0]), Moments(), []
    for i in range(n_steps):
        losses.append(float((steep * at**2).sum() / 2))
        at, state = step_of(i, at, steep * at, state)
    return losses


def plain(i, at, g, state):
    return at - 0.019 * g, state


def steady(i, at, g, state, rate=0.05):
    moved, state = adamw_step({"w": at}, {"w": g}, state, rate, decay=0.0)
    return moved["w"], state


def falling(i, at, g, state):
    return steady(i, at, g, state, 0.05 * (1 - i / n_steps))


walks = {"the same rate for all": walk(plain), "AdamW": walk(steady), "AdamW, its rate falling": walk(falling)}
ends = [losses[-1] for losses in walks.values()]

# %% [markdown]
# ## A step: what a slope makes of a weight
#
# **Everyday picture.** Walking down a valley in fog. The slope under your feet says which way is down, not how far.
# On a cliff a long stride kills; on a plain a short one takes all day. So you remember how steep it has been of late
# in each direction, and take strides of about the same length whatever the slope.
#
# **Where the analogy breaks.** There are as many directions as weights, and you feel the slope of a few examples, not
# of the valley: it points another way at each step. Half of what an optimiser remembers is there to average that out.
# [inference]
#
# **Tiny worked example.** Two weights, {{vector(w, "g")}}, with the slopes {{vector(g_1, "g")}}: the one a hundred
# times the other. Plain descent at a rate of {{lr:g}} would move them by {{vector(-lr * g_1, "g")}}. AdamW's first
# step moves them by {{vector(moved, ".4f")}}: both by the rate, by sign alone. Then the second slope turns round,
# {{vector(g_2, "g")}}: the first weight goes on by {{moved_twice[0]:.4f}}, the second by {{moved_twice[1]:.4f}} only,
# for its two slopes disagree. [computed]

# %% [figure: walk]
lines(
    "Down a bowl that is a hundred times as steep one way",
    {name: [(float(i), float(np.log10(z))) for i, z in enumerate(losses)] for name, losses in walks.items()},
    "steps",
    "power of ten of the loss",
)

# %% [markdown]
# **How to read it.** Plain descent has nearly the largest rate that the steep direction bears. It is ahead while
# there is something steep to fall down, and then creeps along the flat one. AdamW walks by about its rate in both
# directions alike; so it passes the bottom and comes back, swinging, unless the rate falls. After {{n_steps}} steps
# the losses are {{ends[0]:.1e}}, {{ends[1]:.1e}} and {{ends[2]:.1e}}. [computed] Why rates fall at the end of a run
# is in {{lesson("training")}}. [computed: ends[0] > ends[1] > ends[2]]
#
# **Formula.** For each weight alone, at step $n$:
#
# $$
# m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
# w \leftarrow w - \eta \lambda w - \eta\, \frac{m / (1 - \beta_1^n)}{\sqrt{v / (1 - \beta_2^n)} + \epsilon}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $w$ | a weight | {{w[0]:g}} |
# | $g$ | its slope | {{g_1[0]:g}} |
# | $m, v$ | running means of the slope and of its square | {{m_1[0]:g}}, {{v_1[0]:g}} after one step |
# | $\beta_1, \beta_2$ | how much of them is kept at each step | {{beta1:g}}, {{beta2:g}} |
# | $1 - \beta^n$ | how much of a mean is there after $n$ steps: both begin at zero
#   | {{1 - beta1:.1f}}, {{1 - beta2:.3f}} at first |
# | $\eta$ | the rate | {{lr:g}} |
# | $\lambda$ | the decay: how much of the weight goes at each step, times the rate | {{decay:g}} |
# | $\epsilon$ | so small that it matters only where the slope is nearly zero | {{eps:g}} |
#
# **In words.** Go where the slope has pointed of late, by the rate, divided by how large the slope has been of late.
#
# **With the numbers.** At the first step $m / (1 - \beta_1)$ is the slope itself and the root of $v / (1 - \beta_2)$
# its size: {{g_1[0]:g}} / {{abs(g_1[0]):g}}. So the first weight becomes {{w[0]:g}} - {{lr * decay * w[0]:g}} -
# {{lr:g}} = {{once["w"][0]:.4f}}. [computed]

# %%
w, g = np.array([1.0, -2.0]), np.array([0.1, -0.001])
m, v = 0.1 * g, 0.001 * g**2  # after one step, both means began at 0
by_hand = w - 0.01 * 0.01 * w - 0.01 * (m / (1 - 0.9)) / (np.sqrt(v / (1 - 0.999)) + 1e-8)
print("by hand:    ", vector(by_hand, ".6f"))
print("the library:", vector(adamw_step({"w": w}, {"w": g}, Moments(), lr=0.01)[0]["w"], ".6f"))

# %% [markdown]
# Without the two divisors the first step would be {{m_1[0] / np.sqrt(v_1[0]):.2f}} times the rate, because the mean
# of squares fills up later than the mean. [computed] They are Adam's. [paper: Kingma and Ba 2015, section 3] The
# decay stands apart from the slope, and is not divided by its size: that is the W. [paper: Loshchilov and Hutter
# 2019, algorithm 2]
#
# **In the library.** [definition]

# %% [source: adamw_step]

# %% [markdown]
# **Why it matters.** Two numbers are kept for each weight, which with weight and slope makes sixteen bytes in
# float32: the largest part of what training needs besides activations. {{lesson("budget")}} counts them. [inference]
# And since a step hardly depends on the size of the slope, a loss that is wrong by a constant factor trains nearly
# the same; that is why such a mistake lives long. [inference]

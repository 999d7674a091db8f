# %% [hidden]
import math

import numpy as np

from plainformer import spec
from plainformer.cost.flops import Work, flops, scores_and_mix
from plainformer.lessons.words import power

compute = 3.14e23  # Brown et al. 2020, appendix D, table D.1
best = math.sqrt(compute / 120)
blocks = 96
every = {k: -(-blocks // k) + k for k in range(1, blocks + 1)}
least = min(every, key=lambda k: every[k])

# %% [markdown]
# ## Going deeper
#
# ### Why the backward pass is twice the forward one
#
# *Claim.* A product $Y = X W^T$ of $T$ tokens costs $2 T n m$ operations; its two slopes cost $2 T n m$ each.
# [inference]
#
# *Proof.* Let $X$ be $T$ by $n$ and $W$ be $m$ by $n$. Every number of $Y$ is a sum of $n$ products, and there are
# $T m$ of them. From the slope $\bar{Y}$ come $\bar{X} = \bar{Y} W$, whose $T n$ numbers are sums of $m$ products, and
# $\bar{W} = \bar{Y}^T X$, whose $m n$ numbers are sums of $T$ products: the same product of three sizes each time.
# [inference] So a step is three forward passes, and two for each parameter becomes six. The first layer's $\bar{X}$
# is wanted by nobody, and a frozen weight's $\bar{W}$ neither: with adapters a step costs little more than two forward
# passes. [inference]

# %%
rng = np.random.default_rng(0)
T, n, m = 5, 3, 4
X, W, slope = rng.normal(size=(T, n)), rng.normal(size=(m, n)), rng.normal(size=(T, m))
products = {"Y": (X @ W.T, n), "slope of X": (slope @ W, m), "slope of W": (slope.T @ X, T)}
for name, (result, terms) in products.items():
    print(f"{name:<11} {result.shape}, sums of {terms}: {2 * result.size * terms} operations")
nudge = 1e-6 * np.eye(1, n * m, 7).reshape(m, n)  # one weight moved a little
moved = ((slope * (X @ (W + nudge).T)).sum() - (slope * (X @ W.T)).sum()) / 1e-6
print("the slope is right:", np.isclose(moved, products["slope of W"][0].flat[7]))

# %% [markdown]
# ### Where attention overtakes
#
# *Claim.* In a block of width $d$ whose middle is $4 d$, reading $n$ tokens: scores and mixing equal the feed-forward
# network at $n = 4 d$; attention with its matrices equals it at $n = 2 d$; scores and mixing equal all matrices
# together at $n = 6 d$. [inference]
#
# *Proof.* The three pairs are $4 n^2 d = 16 n d^2$, then $8 n d^2 + 4 n^2 d = 16 n d^2$, then $4 n^2 d = 24 n d^2$;
# divide by $4 n d$. [inference] The claim that it is at $n = d$, which one meets, has lost the factors. At $n = d$ the
# scores are a quarter of the feed-forward network. [inference] A causal kernel that skips what may not be seen halves
# the scores and doubles all three lengths. [inference]

# %%
for d in (64, 768, 12288):
    for times in (1, 2, 4, 6):
        work = Work(1, times * d, times * d)
        scores = scores_and_mix(work, 1, d, d)
        matrices = 4 * flops(spec.Linear(n_in=d, n_out=d), work)
        feed = 2 * flops(spec.Linear(n_in=d, n_out=4 * d), work)
        equal = [
            "scores = feed-forward" * (scores == feed),
            "attention = feed-forward" * (scores + matrices == feed),
            "scores = all matrices" * (scores == matrices + feed),
        ]
        print(f"width {d:>6}, {times} widths long: {''.join(equal) or 'scores are ' + str(scores / feed) + ' of it'}")

# %% [markdown]
# ### The best size for a budget
#
# *Claim.* If the best run has twenty tokens a parameter, a budget of $C$ operations buys $N = \sqrt{C / 120}$
# parameters and $20 N$ tokens. [inference] *Proof.* $C = 6 N D$ with $D = 20 N$ is $C = 120 N^2$. [inference] So a
# hundred times the budget is ten times the model *and* ten times the text. GPT-3's {{power(compute)}} operations would
# have bought {{best / 1e9:.0f}} billion parameters on {{20 * best / 1e12:.2f}} trillion tokens, in the place of a
# hundred and seventy-five billion on less than a third of that. [computed: 175e9 > 3 * best and 300e9 < 20 * best / 3]

# %%
for budget in (1e18, 1e21, 3.14e23, 1e26):
    N = math.sqrt(budget / 120)
    print(
        f"{budget:.2e} operations: {N:.2e} parameters, {20 * N:.2e} tokens, six times the product {6 * N * 20 * N:.2e}"
    )

# %% [markdown]
# ### How many blocks to keep
#
# *Claim.* Keep the input of every $k$-th of $L$ equal blocks and make the $k$ between them again when their turn comes.
# What is held at the worst moment, counted in blocks' inputs, is $L / k + k$, and least near $k = \sqrt{L}$: memory
# grows with the root of the depth for one forward pass more. [paper: Chen et al. 2016, section 4] *Proof.* The slope
# of $L / k + k$ by $k$ is $1 - L / k^2$, zero at $k = \sqrt{L}$. [inference] For {{blocks}} blocks the best $k$ is
# {{least}}, with {{every[least]}} held instead of {{blocks}}. [computed] The inside of a block is many times its
# input, so in practice every block's input is kept ($k = 1$) and one block's inside is made at a time. [inference]

# %%
for k in (1, 4, 8, 10, 16, 48, 96):
    print(f"every {k:>2}th kept: {-(-blocks // k):>2} + {k:>2} = {every[k]}")

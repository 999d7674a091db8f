# %% [hidden]
from itertools import pairwise
from math import cos, pi

import numpy as np

import plainformer as pf
from plainformer.gradients import clipped
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson, measured, vector
from plainformer.report.drawings import lines

steps, warmup, decay_from = 300, 10, 120


def share(step, shape, warmup=warmup, decay_from=decay_from, floor=0.0):
    """The rate at a step, counted from 0, as a share of its peak."""
    begin = max(warmup, decay_from)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if step < begin:
        return 1.0
    z = (step - begin) / (steps - begin)
    return floor + (1 - floor) * (1 - z if shape == "linear" else (1 + cos(pi * z)) / 2)


def middle(text):
    """The median that a cell begins with."""
    return float(text.split()[0])


curve = measured("curves")["rows"]
at = {row["step"]: row for row in curve}
specs = [pf.presets.trainable("tiny", vocab_size=65), pf.presets.trainable("small", vocab_size=65)]
counts = [Ledger.of(spec).total for spec in specs]
default_at = {row["step"]: float(row["default, validation"]) for row in curve}
marks = [50, 100, 150, 200, 250, 300]
gains = [middle(at[a]["validation"]) - middle(at[b]["validation"]) for a, b in pairwise(marks)]
slopes = {"a": np.array([3.0, 0.0]), "b": np.array([0.0, 4.0])}
cut, length = clipped(slopes, 1.0)

# %% [markdown]
# ## The rate by step, and the clip
#
# **Everyday picture.** Parking a car: slowly out of the lot while the engine is cold, fast on the road, and slower
# and slower into the space. And a hand on the wheel that never turns it further than so far at once.
#
# **Where the analogy breaks.** One slows down for a space that one sees. A run slows down because at a high rate it
# cannot see: each step overshoots by about the rate, and what looks like a plateau is often this noise. [inference]
#
# **Tiny worked example.** A run of {{steps}} steps with a warm-up of {{warmup}} begins at {{share(0, "linear"):.3f}}
# of its rate, is at the whole of it from step {{warmup}} to step {{decay_from}}, and falls: at step {{210}} it is at
# {{share(210, "linear"):.2f}}. [computed] And two slopes that are {{vector(slopes["a"], "g")}} and
# {{vector(slopes["b"], "g")}} are {{length:g}} long together; cut to one they are {{vector(cut["a"], ".1f")}} and
# {{vector(cut["b"], ".1f")}}: shorter, in the same direction. [computed]

# %% [figure: rates]
lines(
    "The rate by step, as a share of its peak",
    {
        "steady, then a straight line down": [(float(i), share(i, "linear")) for i in range(0, steps, 3)],
        "cosine to a tenth": [(float(i), share(i, "cosine", decay_from=0, floor=0.1)) for i in range(0, steps, 3)],
    },
    "step",
    "share",
)

# %% [markdown]
# **How to read it.** Both rise within a few steps. The cosine begins to fall at once; the other stays, so that the
# same run could have been made longer after the fact, from any step before the fall. [paper: Hu et al. 2024, section
# 4]
#
# **Formula.** The share of the rate at step $t$ after the warm-up, and the clip of the gradient:
#
# $$
# \eta_t = \phi + (1 - \phi)\, D\left(\frac{t - b}{T - b}\right), \quad
# D(z) = 1 - z \ \mathrm{or}\ \frac{1 + \cos \pi z}{2};
# \qquad g \leftarrow g \min\left(1, \frac{c}{\Vert g \Vert}\right)
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $\eta_t$ | the share of the peak rate | {{share(210, "linear"):.2f}} at step {{210}} |
# | $\phi$ | where it ends | zero |
# | $b, T$ | where the fall begins and where the run ends | {{decay_from}}, {{steps}} |
# | $D$ | the shape of the fall | |
# | $g, \Vert g \Vert$ | all slopes together, and their length | {{length:g}} |
# | $c$ | the longest that is let through | {{1}} |
#
# **In words.** Fall from the peak in a line or along a wave. And if all slopes together are longer than so much,
# shorten all by the same factor.
#
# **With the numbers.** At step {{210}}: {{1}} - ({{210}} - {{decay_from}}) / ({{steps}} - {{decay_from}}) =
# {{share(210, "linear"):.2f}}. [computed]

# %%
for step in (0, 5, 10, 120, 210, 299):
    wave = share(step, "cosine", decay_from=0, floor=0.1)
    print(f"step {step:>3}   linear {share(step, 'linear'):.3f}   cosine {wave:.3f}")
cut, length = clipped({"a": np.array([3.0, 0.0]), "b": np.array([0.0, 4.0])}, longest=1.0)
print("length", length, "  after:", cut["a"].round(3), cut["b"].round(3))

# %% [figure: curve]
lines(
    "Two runs watched",
    {
        "tiny, batches": [(float(row["step"]), middle(row["batches"])) for row in curve],
        "tiny, validation": [(float(row["step"]), middle(row["validation"])) for row in curve],
        "default, validation": [(float(row["step"]), default_at[row["step"]]) for row in curve],
    },
    "step",
    "nats a character",
)

# %% [markdown]
# **How to read it.** The fast fall at first is letters and pairs of letters, which counting has, too; then it is slow
# work. From step {{marks[0]}} on, fifty steps gain the tiny model {{vector(gains)}} nats; the rate falls from step
# {{decay_from}} on. [measured: curves] Whether the fall has helped can't be seen from one curve: it takes a run
# without it. [inference] Its batches and validation lie within
# {{max(abs(middle(row["batches"]) - middle(row["validation"])) for row in curve[2:]):.2f}} nats of each other from
# step {{curve[2]["step"]}} on: with so few steps hardly any text is read twice. [measured: curves] The larger
# one, which has the default's shape, has {{counts[1] / counts[0]:.1f}} times as many weights and is at
# {{default_at[300]:.3f}} on these characters then. [measured: curves]

# %% [measured: curves]

# %% [markdown]
# **Warm-up** is for the first steps, when AdamW's means hold only a few slopes and the weights know nothing: a long
# step in a direction that was a matter of chance. Post-norm stacks need it; with pre-norm it is a precaution. [paper:
# Xiong et al. 2020, abstract] The measured table of rates with and without it is in {{lesson("block")}}.
# [definition] **The clip** is for the odd batch: one text of noise whose slope is a hundred times as long. [paper:
# Pascanu et al. 2013, section 3.2] Its length is worth printing: it rises before the loss does. [inference]
#
# **In the library.** [definition]

# %% [source: clipped]

# %% [markdown]
# **Why it matters.** Two runs of different length under a cosine can't be compared at the same step: the shorter one
# has already slowed down. It is the most common way to fool oneself with a loss curve. [inference]

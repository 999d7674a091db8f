# %% [hidden]
import numpy as np

from plainformer import spec
from plainformer.families import decoders
from plainformer.families.variants import post_norm, without_residual
from plainformer.gradients import loss_and_gradients, rule, two_tokens
from plainformer.initial import initial
from plainformer.lessons.words import lesson, measured, rows, vector
from plainformer.records import replace
from plainformer.report.drawings import lines
from plainformer.tree import rewrite

_, to = two_tokens.way_back()
first = next(one for one in to.met if isinstance(one.part, spec.Residual) and one.x[0, 0] == 1)
through_part = first.d_x - first.d_y
n_layers = 12
added = decoders.gpt2(vocab_size=32, max_seq_len=8, d_model=16, n_layers=n_layers, n_heads=2)


def without_norms(one):
    """No norm before a part; the last one, before the head, stays."""

    def change(part):
        if isinstance(part, spec.Residual):
            return replace(part, branches=tuple(replace(branch, norm_in=None) for branch in part.branches))
        return part

    return rewrite(one, change)


LAYOUTS = {
    "added, norm before": added,
    "added, norm after": post_norm(added),
    "replaced, norm before": without_residual(added),
    "replaced, no norm": without_norms(without_residual(added)),
}
tokens = np.random.default_rng(0).integers(0, 32, 9)


def sizes(one):
    """The length of the gradient of each layer's weights, first layer first."""
    _, slopes = loss_and_gradients(one, initial(one, "gpt2", seed=0), tokens[:-1], tokens[1:])
    return [
        float(np.sqrt(sum((slope**2).sum() for name, slope in slopes.items() if f"layers.{i}." in name)))
        for i in range(n_layers)
    ]


found = {name: sizes(one) for name, one in LAYOUTS.items()}
learned = {(row["layers"], row["layout"]): row for row in measured("residuals")["rows"]}
deep = {(row["layers"], row["rate"]): row for row in measured("depths")["rows"]}
J_scale = 0.5


def nats(row, layout):
    return float(row[layout].split()[0])


# %% [markdown]
# ## The addition: one, plus the slope of the part
#
# **Everyday picture.** A message is passed down a row of people, each of whom repeats it with small changes. After
# twelve of them little is left. Now let each hand on the written note as well, and only add a remark below it. The
# note arrives.
#
# **Where the analogy breaks.** Note and remarks are added up as numbers, and a remark can be minus the note. Then
# nothing arrives. The addition keeps a way open; how much comes through is another question. [inference]
#
# **Tiny worked example.** The slopes that arrive at the small model's attention, two tokens of two numbers, are
# {{rows(first.d_y)}}. What leaves towards the tokens is {{rows(first.d_x)}}: the same, plus {{rows(through_part)}},
# which came through attention and its norm. [computed]

# %% [figure: sizes]
lines(
    "The gradient of each layer's weights, twelve layers, first weights",
    {name: [(float(i + 1), float(np.log10(size))) for i, size in enumerate(each)] for name, each in found.items()},
    "layer",
    "power of ten of its length",
)

# %% [markdown]
# **How to read it.** The way back goes from the right to the left; each step of the upright scale is a factor of ten.
# With additions and the norm before the part a layer's gradient is about as long in the first layer as in the last.
# With norms and no additions it shrinks, and with neither it falls by many powers of ten a layer: in the first layer
# it is {{found["replaced, no norm"][0]:.0e}}, below what float32 can hold. [computed: found["replaced, no norm"][0] <
# 1e-45] [computed: found["added, norm before"][0] > 0.1 * found["added, norm before"][-1]]
#
# **Formula.** Of one layer $y = x + f(x)$, and of many:
#
# $$
# \frac{\partial y}{\partial x} = I + J, \qquad
# \frac{\partial x_{N}}{\partial x_{0}} = (I + J_{N}) \cdots (I + J_{1})
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $f$ | the part with its norm | attention |
# | $I$ | the table of slopes of doing nothing: ones on the diagonal | what arrives goes on |
# | $J$ | the table of slopes of $f$, its Jacobian | adds {{rows(through_part)}} |
# | $x_{n}$ | the stream after $n$ layers | |
# | $N$ | how many layers | {{n_layers}} in the picture |
#
# **In words.** What comes back through a layer is what arrived, plus what the part makes of it.
#
# **With the numbers.** For the first token: {{vector(first.d_y[0])}} + {{vector(through_part[0])}} =
# {{vector(first.d_x[0])}}. [computed]

# %%
for name, each in found.items():
    print(f"{name:<22} first layer {each[0]:.0e}   last layer {each[-1]:.0e}")
for scale in (0.5, -0.5, -1.0):
    leaves = (np.eye(2) + scale * np.eye(2)) @ np.array([1.0, 0.0])
    print(f"J = {scale:>4} I: a slope of length 1 leaves with {np.linalg.norm(leaves):.1f}")

# %% [markdown]
# **No promise of size.** It is often said that a residual's gradient is at least as large as what arrives. It is not: a
# part whose slope is minus a half of the identity halves it, minus the identity removes it.
# [computed: bool(abs(np.eye(2) - np.eye(2)).max() == 0)] What the addition promises is that the identity is one of the
# paths. [inference]
#
# **Nor is vanishing certain without it.** A slope of a tenth in each of twelve layers leaves {{0.1**12:.0e}},
# and without norms it is worse still. [computed] A norm undoes it as long as epsilon is small beside the variance:
# what a part has made small is stretched, there and back. So in stacks of twelve layers with norms and without
# additions the first layer's gradient was
# {{learned[12, "replaced, norm before, drawn wide"]["gradient, first layer / last"]}} of the last one's when the
# weights were drawn wide, and {{learned[12, "replaced, norm before"]["gradient, first layer / last"]}} as GPT-2 draws
# them. And neither learned: {{learned[12, "replaced, norm before, drawn wide"]["loss in nats"].split()[0]}} and
# {{learned[12, "replaced, norm before"]["loss in nats"].split()[0]}} nats, where guessing is {{np.log(64):.2f}}.
# [measured: residuals]
#
# **Norm before, norm after, deeper.** With the norm on the sum, every path back goes through every norm. Two depths,
# two rates, no warm-up: [definition]

# %% [measured: depths]

# %% [markdown]
# At six layers and the larger rate post-norm learns as well as pre-norm does:
# {{nats(deep["6", "0.01"], "norm after"):.2f}} and {{nats(deep["6", "0.01"], "norm before"):.2f}} nats, and the seeds
# of each lie further apart than that. At twenty-four layers it stays where guessing is,
# {{nats(deep["24", "0.01"], "norm after"):.2f}}, with every seed, while pre-norm begins to learn,
# {{deep["24", "0.01"]["norm before"]}}. At the smaller rate a hundred steps are too few for either. [measured:
# depths] [computed: nats(deep["24", "0.01"], "norm after") > 4.1 and nats(deep["6", "0.01"], "norm after") < 2] So
# "post-norm fails beyond twelve layers" is no law: what fails is depth together with rate and the lack of a warm-up;
# {{lesson("block")}} has the table of rates with one. [measured: depths] [measured: norms]
#
# **In the library.** The rule of a residual: the slope that arrives is handed to both sides of the sum. [definition]

# %% [source: rule.dispatch(spec.Residual)]

# %% [markdown]
# **Why it matters.** It is why a hundred layers can be trained at all. [paper: He et al. 2016, section 4.2] And
# because what comes back is a sum over paths, most of them short, one can ask of a layer what it alone adds.
# [inference] What the addition does to the way *there*, a stream that grows, is in {{lesson("block")}}. [definition]

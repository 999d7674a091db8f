# %% [hidden]
import numpy as np

from plainformer import formulas, reference
from plainformer.families import decoders
from plainformer.families.variants import post_norm
from plainformer.initial import initial
from plainformer.lessons.words import measured, vector
from plainformer.report.diagrams import Arrow, Box, flow
from plainformer.report.drawings import lines

x_D = np.array([1.0, 2.0, 3.0, 4.0])
said_D = np.array([0.5, 0.0, 0.0, -0.5])
before_D, after_D = x_D + said_D, formulas.layer_norm(x_D + said_D)
n_layers = 24
deep = decoders.gpt2(vocab_size=50, d_model=32, n_layers=n_layers, n_heads=4, max_seq_len=16)


def spreads(spec):
    """The spread of the stream's numbers before the first layer and after each."""
    trace = {}
    weights = initial(spec, "lesson", seed=0)
    reference.hidden(spec, weights, [3, 1, 4, 1, 5, 9, 2, 6], trace=trace)
    return [float(trace[f"decoder.stream.{i}"].std()) for i in range(n_layers + 1)]


learned = {(row["layers"], row["layout"]): row for row in measured("residuals")["rows"]}
last_rate = {row["warm-up"]: row for row in measured("norms")["rows"] if row["rate"] == "0.03"}
guess = float(np.log(64))


def loss(depth, layout):
    return float(learned[depth, layout]["loss in nats"].split()[0])


def ratio(depth, layout):
    return learned[depth, layout]["gradient, first layer / last"]


def late(warmup, layout):
    return float(last_rate[warmup][layout].split()[0])


both_learn = {layout for depth, layout in learned if depth == 12 and loss(12, layout) < 4} == {
    "added, norm before",
    "added, norm after",
}
pre, post = spreads(deep), spreads(post_norm(deep))

# %% [markdown]
# ## Where the norm stands
#
# **Everyday picture.** Two ways to keep a shared ledger readable. In one, every clerk reads it through a magnifying
# glass of their own and writes in plain ink: the ledger itself is never touched. In the other, after every entry the
# whole ledger is copied out afresh at the same size.
#
# **Where the analogy breaks.** Copying out loses nothing; a norm does. Each post-norm forgets the stream's mean and how
# large it was, and a whole stack of them forgets it again and again. [inference]
#
# **Tiny worked example.** The stream is {{vector(x_D, "g")}} and a part says {{vector(said_D, "g")}}. Pre-norm leaves
# {{vector(before_D, "g")}} in the stream. Post-norm leaves {{vector(after_D, ".2f")}}. [computed]

# %% [figure: order]
flow(
    "The same parts in two orders",
    {
        "pre": Box(0, 0, "the stream"),
        "norm1": Box(1, 0, "norm"),
        "part1": Box(2, 0, "part", 0),
        "add1": Box(3, 0, "+", None, True),
        "out1": Box(4, 0, "pre-norm"),
        "post": Box(0, 2, "the stream"),
        "part2": Box(1, 2, "part", 0),
        "add2": Box(2, 2, "+", None, True),
        "norm2": Box(3, 2, "norm"),
        "out2": Box(4, 2, "post-norm"),
    },
    [
        Arrow("pre", "norm1"),
        Arrow("norm1", "part1"),
        Arrow("part1", "add1"),
        Arrow("pre", "add1", "as it was", around=1),
        Arrow("add1", "out1"),
        Arrow("post", "part2"),
        Arrow("part2", "add2"),
        Arrow("post", "add2", "as it was", around=1),
        Arrow("add2", "norm2"),
        Arrow("norm2", "out2"),
    ],
)

# %% [markdown]
# **How to read it.** Above, the line from the left to the right passes a plus sign and nothing else. Below, it also
# passes a norm, in every layer: there is no way through the stack that avoids them. [inference]
#
# **Formula.** Post-norm, as in the first transformer:
#
# $$
# x \leftarrow \mathrm{Norm}(x + \mathrm{Part}(x))
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $x$ | the stream | {{vector(x_D, "g")}} |
# | $\mathrm{Part}$ | attention or the feed-forward network | it says {{vector(said_D, "g")}} |
# | $\mathrm{Norm}$ | LayerNorm, on the sum | |
#
# **In words.** Add what the part says, then norm the sum.
#
# **With the numbers.** The sum {{vector(before_D, "g")}} has the mean {{before_D.mean():g}} and the spread
# {{before_D.std():.4f}}; its first number becomes ({{before_D[0]:g}} - {{before_D.mean():g}}) /
# {{before_D.std():.4f}} = {{after_D[0]:.4f}}. [computed]

# %%
for name, spec_of in (("pre-norm", deep), ("post-norm", post_norm(deep))):
    each = spreads(spec_of)
    print(f"{name:<9} spread before layer 1: {each[0]:.3f}   after it: {each[1]:.2f}   after layer 24: {each[-1]:.2f}")

# %% [figure: stream]
lines(
    "How large the stream is, layer by layer (24 layers, random weights)",
    {
        "pre-norm": [(float(i), spread) for i, spread in enumerate(pre)],
        "post-norm": [(float(i), spread) for i, spread in enumerate(post)],
    },
    "layers passed",
    "spread",
)

# %% [markdown]
# **How to read it.** Under post-norm the stream is of size one after every layer. Under pre-norm it grows, here to
# {{pre[-1]:.1f}} after {{n_layers}} layers, because each layer adds something of a fixed size to what is there.
# [computed] So a late layer changes the stream by a smaller share than an early one: the price of the open way.
# [inference]
#
# **What it does to training.** A small stack learns to say the first half of a row again; five layouts, two depths:
# [definition]

# %% [measured: residuals]

# %% [markdown]
# At twelve layers the two layouts that have both additions and norms learn, and no other leaves what guessing gives,
# {{guess:.2f}} nats: norms alone do not do it, nor do additions. [measured: residuals] [computed: both_learn] At two
# layers it is otherwise: drawn wide, the stack that replaces learns best of all,
# {{loss(2, "replaced, norm before, drawn wide"):.2f}}. Additions are for depth. [measured: residuals] Without
# either, the gradient that arrives at the first layer is too small to be written down; with norms but no additions it
# is {{ratio(12, "replaced, norm before")}} of the last layer's. [measured: residuals] And post-norm is no failure
# here: it ends at {{loss(12, "added, norm after"):.2f}}, pre-norm at {{loss(12, "added, norm before"):.2f}}, and the
# seeds of each lie further apart than that. [measured: residuals] Where it fails is at large rates without a warm-up,
# which is what the theory says of it: its gradients are large near the output, at the start. [paper: Xiong et al.
# 2020, abstract] The same stacks, six layers deep, other rates: [definition]

# %% [measured: norms]

# %% [markdown]
# At the largest rate and without a warm-up post-norm ends at {{late("none", "norm after"):.2f}}, where guessing is;
# with a warm-up of a hundred steps at {{late("100 steps", "norm after"):.2f}}. Pre-norm learns in both. [measured:
# norms] [computed: late("none", "norm before") < 0.5]
#
# **In the library.** Post-norm is the same spec with its norms moved, and a stack without additions the same with a
# flag: data, not another class. [definition]

# %% [source: post_norm]

# %% [markdown]
# **Why it matters.** The order of two lines decides whether a deep stack trains without care. [inference] The
# first transformer has post-norm [paper: Vaswani et al. 2017, section 3.1], and so has BERT; GPT-2 put the norms before
# the parts [paper: Radford et al. 2019, section 2.3], and most decoders since do so: one must know which before one
# loads weights. [inference]

# %% [hidden]
import plainformer as pf
from plainformer import ledger, spec
from plainformer.conventions import lines
from plainformer.report.diagrams import Arrow, Box, flow

gpt2 = pf.presets["gpt2"]
d = gpt2.d_model
layer = gpt2.decoder.layers[0]


def held(part):
    """How many weights a part holds."""
    return sum(w.count for w in ledger.weights(part))


attention, feed_forward = (residual.branches[0].part for residual in layer)
norm = layer[0].branches[0].norm_in
block = sum(map(held, layer))
qkv = held(attention.q) + held(attention.k) + held(attention.v)
tiny = sum(map(held, pf.presets["lesson"].decoder.layers[0]))
tiny_d = pf.presets["lesson"].d_model

# %% [markdown]
# ## A block: twelve squares and thirteen lines
#
# **Everyday picture.** The parts list of a shelf: so many boards of each size, so many screws. Nobody builds the shelf
# in order to count them.
#
# **Where the analogy breaks.** Boards have thickness; weights have none, and every one of them is trained alone. The
# list says how many numbers there are, not how many matter. [inference]
#
# **Tiny worked example.** Two numbers in, three out, with a bias: a matrix of {{3 * 2}} and a bias of {{3}},
# {{held(spec.Linear(n_in=2, n_out=3, bias=True))}} weights; without the bias
# {{held(spec.Linear(n_in=2, n_out=3))}}. [computed] A block is nothing but such parts: in width {{tiny_d}}, without
# biases in attention, {{12 * tiny_d**2:,}} in matrices, {{5 * tiny_d}} in biases and {{4 * tiny_d}} in norms, together
# {{tiny:,}}. [computed] [computed: 12 * tiny_d**2 + 9 * tiny_d == tiny]

# %% [figure: block]
flow(
    "The weights of one block, in widths",
    {
        "in": Box(0, 1.5, "one block\n12 d² + 13 d"),
        "norms": Box(1, 0, "two norms\n4 d"),
        "qkv": Box(1, 1, "queries, keys, values\n3 d² + 3 d", 0),
        "out": Box(1, 2, "attention's output\nd² + d", 0),
        "up": Box(1, 3, "feed-forward up\n4 d² + 4 d", 1),
        "down": Box(1, 4, "feed-forward down\n4 d² + d", 1),
        "small": Box(2, 0, f"{4 * d:,}\nof GPT-2 small"),
        "a": Box(2, 1, f"{qkv:,}", 0),
        "b": Box(2, 2, f"{held(attention.out):,}", 0),
        "c": Box(2, 3, f"{held(feed_forward.up):,}", 1),
        "e": Box(2, 4, f"{held(feed_forward.down):,}", 1),
    },
    [
        *(Arrow("in", part) for part in ("norms", "qkv", "out", "up", "down")),
        *(Arrow(*pair) for pair in (("norms", "small"), ("qkv", "a"), ("out", "b"), ("up", "c"), ("down", "e"))),
    ],
)

# %% [markdown]
# **How to read it.** In the middle the parts, each a rectangle and, but for the norms, a bias as long as what comes
# out; at the right the same in GPT-2 small. Attention has four squares, the feed-forward network two rectangles of four
# squares each: twelve. All that is not a square is a line of one width, thirteen of them. [definition]
#
# **Formula.** Attention, feed-forward and two norms of a block of GPT-2:
#
# $$
# n_{\mathrm{block}} = \underbrace{4 d^2 + 4 d}_{\mathrm{attention}} + \underbrace{8 d^2 + 5 d}_{\text{feed-forward}}
# + \underbrace{4 d}_{\mathrm{norms}} = 12 d^2 + 13 d
# $$
#
# **Symbols.**
#
# | symbol | meaning | in GPT-2 small |
# |---|---|---|
# | $d$ | the width of the stream | {{d}} |
# | $4 d^2$ | queries, keys, values, output: four squares | {{4 * d**2:,}} |
# | $8 d^2$ | up and down, each four squares, for the middle is four wide | {{8 * d**2:,}} |
# | $13 d$ | biases: three, one, four, one; gains and biases of two norms: four | {{13 * d:,}} |
# | $n_{\mathrm{block}}$ | the weights of one block | {{block:,}} |
#
# **In words.** Twelve squares of the width for the matrices, thirteen lines for everything that is added or scaled.
#
# **With the numbers.** {{12 * d**2:,}} + {{13 * d:,}} = {{12 * d**2 + 13 * d:,}}, and the library's own sum over the
# tensors is {{block:,}}. [computed] [computed: 12 * d**2 + 13 * d == block]

# %%
first = [w for w in ledger.Ledger.of(gpt2).rows if w.name.startswith("decoder.layers.0.")]
for line in lines(first):
    print(f"{line.place:<20} {line.formula:<28} {line.each:>10,}")
print(f"{'one block':<49} {sum(w.count for w in first):>10,}")

# %% [markdown]
# The lines without a square are {{100 * 13 * d / block:.2f}} % of the block, and less the wider it is. [computed] That
# is the whole case for the rule of twelve squares. [inference]
#
# **In the library.** Each kind of part has one rule that lists its tensors; a model's list is its parts' lists, and
# counting is summing it. No formula of a whole model is written down anywhere. The rules of a linear part and of a
# norm: [definition]

# %% [source: ledger.weights.dispatch(spec.Linear)]

# %% [source: ledger.weights.dispatch(spec.Norm)]

# %% [markdown]
# **Why it matters.** A formula such as the one above holds for one family. A list of tensors holds for all of them:
# where keys are narrower, where a gate is a third matrix, where layers differ, the formula changes and the sum does
# not. [inference]

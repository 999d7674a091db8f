# %% [hidden]
import numpy as np

from plainformer import reference, spec
from plainformer.families import decoders
from plainformer.initial import initial
from plainformer.lessons.words import vector
from plainformer.report.diagrams import Arrow, Box, flow

x_D = np.array([1.0, 2.0])  # one token, two numbers
heard_D = np.array([0.1, -0.3])  # what attention found
thought_D = np.array([-0.2, 0.4])  # what the feed-forward network made of it

# %% [markdown]
# ## The stream: add, never replace
#
# **Everyday picture.** A team keeps one notebook for each member. They work in rounds: a meeting, where everybody
# listens to everybody and notes what matters to them; then desk work, where each goes through their own notes alone.
# Nobody tears a page out. They only add.
#
# **Where the analogy breaks.** A notebook grows with each entry; a token's vector does not. Adding changes the numbers
# that are there, and what two rounds have added can't be told apart afterwards, or can cancel. [inference]
#
# **Tiny worked example.** One token is {{vector(x_D, "g")}}. The meeting finds {{vector(heard_D, "g")}}, so the token
# becomes {{vector(x_D + heard_D, "g")}}; desk work finds {{vector(thought_D, "g")}}, so it becomes
# {{vector(x_D + heard_D + thought_D, "g")}}. It was edited twice and never replaced. [computed]

# %% [figure: block]
flow(
    "A block: two edits of the stream",
    {
        "in": Box(0, 0, "the stream\none vector a token"),
        "norm1": Box(0, 1, "norm"),
        "attention": Box(0, 2, "attention\ntokens meet", 0),
        "add1": Box(0, 3, "+", None, True),
        "norm2": Box(0, 4, "norm"),
        "feed": Box(0, 5, "feed-forward\neach token alone", 1),
        "add2": Box(0, 6, "+", None, True),
        "out": Box(0, 7, "to the next block"),
    },
    [
        Arrow("in", "norm1"),
        Arrow("norm1", "attention"),
        Arrow("attention", "add1"),
        Arrow("in", "add1", "as it was", around=1),
        Arrow("add1", "norm2"),
        Arrow("norm2", "feed"),
        Arrow("feed", "add2"),
        Arrow("add1", "add2", "as it was", around=1),
        Arrow("add2", "out"),
    ],
)

# %% [markdown]
# **How to read it.** Follow the line at the right: it goes from the top to the bottom and meets nothing but two plus
# signs. That line is the *residual stream*. Each part reads a normalised copy of the stream and says something; what
# it says is added. No arrow leads from a part back into the stream but through a plus sign, so a part that says
# nothing leaves the stream as it was. [definition]
#
# **Formula.** With the norm in front of each part, which is called *pre-norm*:
#
# $$
# x \leftarrow x + \mathrm{Attention}(\mathrm{Norm}(x)), \qquad x \leftarrow x + \mathrm{FeedForward}(\mathrm{Norm}(x))
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $x$ | the stream: one row of numbers for each token | {{vector(x_D, "g")}}, one token |
# | $\leftarrow$ | the left side becomes the right side | |
# | $\mathrm{Norm}$ | the next section | |
# | $\mathrm{Attention}$ | the part where tokens meet | it says {{vector(heard_D, "g")}} |
# | $\mathrm{FeedForward}$ | the part where each token is alone | it says {{vector(thought_D, "g")}} |
#
# **In words.** Add to each token what the meeting tells it; then add what it makes of that alone.
#
# **With the numbers.** {{vector(x_D, "g")}} plus {{vector(heard_D, "g")}} is {{vector(x_D + heard_D, "g")}}; plus
# {{vector(thought_D, "g")}} it is {{vector(x_D + heard_D + thought_D, "g")}}. [computed]

# %%
tiny = decoders.gpt2(vocab_size=50, d_model=32, n_layers=2, n_heads=4, max_seq_len=16)
first = tiny.decoder.layers[0]  # two residuals: attention, then feed-forward
arrays = initial(tiny, "lesson", seed=0)


def block(x_TD, arrays):
    """One block of the library on a row of tokens."""
    here = reference.Weights(arrays).at("decoder.layers.0")
    for residual in first:
        x_TD = reference.run(residual, here, x_TD, reference.Where(np.arange(len(x_TD))))
    return x_TD


x_TD = np.random.default_rng(0).normal(size=(5, 32))
y_TD = block(x_TD, arrays)
print("in", x_TD.shape, "out", y_TD.shape, "largest edit", abs(y_TD - x_TD).max().round(3))

silent = {
    name: array * (not name.endswith(("out.weight", "out.bias", "down.weight", "down.bias")))
    for name, array in arrays.items()
}
silent_TD = block(x_TD, silent)
print("both parts silent, largest edit:", abs(silent_TD - x_TD).max())

# %% [markdown]
# Five tokens go in and five come out, of the same width: so blocks stack. [computed: y_TD.shape == x_TD.shape] With
# both parts silent the block returns its input bit for bit. [computed: (silent_TD == x_TD).all()]
#
# **In the library.** The rule of a residual, in the definition that everything else is held to. It also says the other
# layouts: several branches side by side, a norm on what they say, a norm on the sum. [definition]

# %% [source: reference.run.dispatch(spec.Residual)]

# %% [markdown]
# **Why it matters.** The output has the shape of the input, so a model's depth is a number in its config and nothing
# else changes. [inference] And the slope of the output by the input is one plus the slope of the parts: there is
# always a way for the gradient that passes through no part. It is a way, not a promise of size: a part whose slope is
# minus one would cancel it. [inference]

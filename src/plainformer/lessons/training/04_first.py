# %% [hidden]
import numpy as np

from plainformer import initial, reference
from plainformer.families import decoders
from plainformer.lessons.words import lesson, vector
from plainformer.report.drawings import lines

n_layers, wide = 24, 0.02
deep = decoders.gpt2(vocab_size=50, d_model=32, n_layers=n_layers, n_heads=4, max_seq_len=16)
divided = dict(initial.gpt2(deep, seed=0))
undivided = {
    name: array * (np.sqrt(2 * n_layers) if name.endswith(("out.weight", "down.weight")) else 1)
    for name, array in divided.items()
}


def spreads(weights):
    """The spread of the stream before the first layer and after each."""
    trace = {}
    reference.hidden(deep, weights, [3, 1, 4, 1, 5, 9, 2, 6], trace=trace)
    return [float(trace[f"decoder.stream.{i}"].std()) for i in range(n_layers + 1)]


with_it, without_it = spreads(divided), spreads(undivided)
rng = np.random.default_rng(0)
walks = rng.normal(size=(20000, 2 * n_layers))
grown, kept = walks.sum(1).std(), (walks / np.sqrt(2 * n_layers)).sum(1).std()

# %% [markdown]
# ## First weights
#
# **Everyday picture.** A choir of forty-eight that nobody has told how loud to sing. Each sings as they like, and the
# sum drowns the tune. Tell each to sing softer, by the root of how many they are, and together they are as loud as
# one.
#
# **Where the analogy breaks.** Why the root, and not the number itself: singers who know nothing of each other cancel
# in part. Once they have learned something they no longer do, and then the stream grows all the same. [inference]
#
# **Tiny worked example.** Add {{2 * n_layers}} draws of spread one: the sum has a spread of {{grown:.2f}}, about the
# root of their number, {{np.sqrt(2 * n_layers):.2f}}. Divide each by that root, and the sum has {{kept:.2f}}.
# [computed] A stack of {{n_layers}} layers adds twice a layer. [computed: 2 * n_layers == 48]

# %% [figure: spread]
lines(
    "How large the stream is before training, layer by layer (24 layers)",
    {
        "0.02 everywhere": [(float(i), each) for i, each in enumerate(without_it)],
        "what is added, by the root of 48": [(float(i), each) for i, each in enumerate(with_it)],
    },
    "layers passed",
    "spread",
)

# %% [markdown]
# **How to read it.** Both begin with the tables' {{wide * np.sqrt(2):.3f}}: a token and a place, each {{wide}} wide.
# With the same width for every weight the stream grows to {{without_it[-1] / without_it[0]:.1f}} times that; with
# what is added made smaller it stays within {{100 * abs(with_it[-1] / with_it[0] - 1):.0f}} %. [computed]
#
# **Formula.** For all weights but gains and biases, and for those that write to the stream:
#
# $$
# W \sim N(0,\, \sigma^2), \quad \sigma = 0.02; \qquad \sigma_{out} = \frac{0.02}{\sqrt{2 L}}; \qquad
# \mathrm{Var}\left(\sum_{n=1}^{2L} a_n\right) = 2 L\, \mathrm{Var}(a)
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $W$ | a weight | |
# | $N(0, \sigma^2)$ | a draw from the normal distribution | |
# | $\sigma$ | how wide the draws are | {{wide}} |
# | $\sigma_{out}$ | the same for the last matrix of each part | {{wide / np.sqrt(2 * n_layers):.5f}} |
# | $L$ | layers, with two additions each | {{n_layers}} |
# | $a_n$ | what one part adds | |
#
# **In words.** Small draws; smaller by the root of the number of additions where the result is added to the stream.
#
# **With the numbers.** {{wide}} / {{np.sqrt(2 * n_layers):.3f}} = {{wide / np.sqrt(2 * n_layers):.5f}}. For GPT-2
# small, with twelve layers, {{wide / np.sqrt(24):.5f}}. [computed]

# %%
weights = dict(initial.gpt2(deep, seed=0))
for name in ("embedding.weight", "decoder.layers.0.attention.q.weight", "decoder.layers.0.feed_forward.down.weight"):
    print(f"{name:<44} spread {weights[name].std():.5f}")
print(
    f"the stream after 24 layers, over before: {with_it[-1] / with_it[0]:.2f} and {without_it[-1] / without_it[0]:.2f}"
)

# %% [markdown]
# GPT-2's report says that weights onto the stream are divided by the root of the number of residual layers. [paper:
# Radford et al. 2019, section 2.3] The width of the other draws, and the two in the root, are in nanoGPT's code.
# [source: karpathy/nanoGPT@3adf61e, model.py] Another way goes further: what writes to the stream, and the head,
# begin at zero, so that at first each layer is the identity and every token as likely as any other. It is the default
# of `plainformer train`. [inference]
#
# **In the library.** [definition]

# %% [source: initial.gpt2]

# %% [source: initial.zero_out]

# %% [markdown]
# **Why it matters.** Everything after the first step is decided by slopes, and slopes are products of weights.
# [inference] Drawn too wide, the first softmax is nearly one-hot and gets no slope; drawn at zero everywhere, nothing
# tells two units apart, and they stay twins for ever. Zero is safe only for the last matrix of each part. [inference]

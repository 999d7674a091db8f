# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas, ledger, reference, spec
from plainformer.families.parts import feed_forward
from plainformer.initial import lesson as lesson_weights
from plainformer.lessons.words import lesson, vector
from plainformer.report.diagrams import Arrow, Box, flow
from plainformer.report.drawings import lines

width = 8
small = feed_forward(width, 4 * width, "gelu_tanh", bias=True)
w = reference.Weights(dict(lesson_weights(small, seed=1)))
x_TD = np.random.default_rng(0).normal(size=(5, width))
said_TD = reference.run(small, w, x_TD, None)
count = sum(w.count for w in ledger.weights(small))
grid = np.linspace(-6, 6, 120001)
both_gap = abs(formulas.gelu(grid) - formulas.gelu_tanh(grid)).max()
fine = np.linspace(-0.76, -0.74, 200001)
lowest = formulas.gelu(fine).min()
llama = pf.presets["llama-3-8b"]
llama_middle = llama.decoder.layers[0][1].branches[0].part.up.n_out
llama_ratio, swiglu_ratio = llama_middle / llama.d_model, 4 * 2 / 3
at_one = np.sqrt(2 / np.pi) * (1 + 0.044715)

# %% [markdown]
# ## The feed-forward network: each token alone
#
# **Everyday picture.** Back at the desk you spread your notes over a table four times as wide as the notebook, push
# aside what does not matter, and write what is left back into the notebook, as a short note. Nobody speaks.
#
# **Where the analogy breaks.** You would push aside different things today and tomorrow; the network has the same two
# matrices for every token of every text, and what it makes of a vector depends on that vector alone.
# [computed: bool(np.allclose(said_TD[3], reference.run(small, w, x_TD[3:4], None)[0]))]
#
# **Tiny worked example.** A token of width {{width}} becomes {{4 * width}} numbers, each goes through GELU, and
# {{width}} come back. That takes {{width}} times {{4 * width}} weights and {{4 * width}} biases, then {{4 * width}}
# times {{width}} weights and {{width}} biases: {{count}} in all. [computed] GELU makes {{formulas.gelu_tanh(1):.3f}}
# of one, {{formulas.gelu_tanh(-3):.3f}} of minus three, {{formulas.gelu_tanh(10):.1f}} of ten and
# {{formulas.gelu_tanh(0):g}} of zero. [computed]

# %% [figure: feed-forward]
flow(
    "The feed-forward network of one token",
    {
        "in": Box(0, 0, f"a token\n{width} numbers"),
        "up": Box(1, 0, f"up\n{4 * width} numbers", 0),
        "act": Box(2, 0, "GELU\nof each alone", 1),
        "down": Box(3, 0, f"down\n{width} numbers", 0),
    },
    [Arrow("in", "up", "W, b"), Arrow("up", "act"), Arrow("act", "down", "W, b")],
)

# %% [markdown]
# **How to read it.** Each number of the wide row is a question put to the token: a direction, and how much of it there
# is. GELU lets "much" pass and stops "none". What passes picks, from the second matrix, what to write: a column each.
# Read so, the first matrix holds keys and the second values. [paper: Geva et al. 2021, section 2]
#
# **Formula.** With GELU as GPT-2 has it:
#
# $$
# \mathrm{FeedForward}(x) = W_2\, \mathrm{GELU}(W_1 x + b_1) + b_2, \qquad
# \mathrm{GELU}(z) \approx \frac{z}{2} \left(1 + \tanh\left(\sqrt{2 / \pi}\, (z + 0.044715\, z^3)\right)\right)
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $x$ | one token's vector | {{width}} numbers |
# | $W_1, b_1$ | the matrix that widens, and its bias | {{4 * width}} rows of {{width}}; {{4 * width}} numbers |
# | $W_2, b_2$ | the matrix that narrows, and its bias | {{width}} rows of {{4 * width}}; {{width}} numbers |
# | $z$ | one number of the wide row | {{1}} |
# | $\tanh$ | an S-shaped curve from minus one to one | $\tanh$ of {{at_one:.4f}} is {{np.tanh(at_one):.4f}} |
# | $\approx$ | nearly: GELU itself is $z$ times the chance that a normal draw lies below $z$ | |
#
# **In words.** Widen, switch softly, narrow.
#
# **With the numbers.** GELU of one: the root is {{np.sqrt(2 / np.pi):.4f}}, the bracket {{1 + 0.044715:.6f}}, their
# product {{at_one:.5f}}, its tanh {{np.tanh(at_one):.5f}}; half of one plus that is {{formulas.gelu_tanh(1):.4f}}.
# [computed]

# %%
small = feed_forward(8, 32, "gelu_tanh", bias=True)
w = reference.Weights(dict(lesson_weights(small, seed=1)))  # random weights, by name
x_TD = np.random.default_rng(0).normal(size=(5, 8))
said_TD = reference.run(small, w, x_TD, None)
by_hand_TD = formulas.gelu_tanh(x_TD @ w["up.weight"].T + w["up.bias"]) @ w["down.weight"].T + w["down.bias"]
print(said_TD.shape, "by hand the same:", np.array_equal(said_TD, by_hand_TD))

for z in (-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3, 10):
    print(f"z {z:>5}   exact {formulas.gelu(z):9.6f}   by tanh {formulas.gelu_tanh(z):9.6f}   ReLU {max(z, 0):4}")

# %% [figure: gelu]
points = np.linspace(-4, 4, 161)
lines(
    "GELU and ReLU",
    {
        "GELU": [(float(z), float(formulas.gelu(z))) for z in points],
        "ReLU": [(float(z), float(formulas.relu(z))) for z in points],
    },
    "what goes in",
    "what comes out",
)

# %% [markdown]
# **How to read it.** ReLU is a hinge: nothing of what is negative, all of what is positive. GELU has the same two
# ends and bends between them; it dips below zero, to {{lowest:.4f}} at {{fine[formulas.gelu(fine).argmin()]:.3f}},
# and comes back. [computed] The bend has a slope everywhere, so no unit stops learning because its input is a little
# below zero. [inference]
#
# GELU is defined by the normal distribution and was given with the formula by tanh as a fast stand-in.
# [paper: Hendrycks and Gimpel 2016, section 2] The two differ by {{both_gap:.6f}} at most. [computed] GPT-2's own code
# has the stand-in [source: openai/gpt-2@9b63575, src/model.py], nanoGPT's the exact form.
# [source: karpathy/nanoGPT@3adf61e, model.py] A spec says which, `gelu` or `gelu_tanh`. [definition]
#
# **In the library.** The part, its rule, and both forms: [definition]

# %% [source: spec.FeedForward]

# %% [source: reference.run.dispatch(spec.FeedForward)]

# %% [source: formulas.gelu_tanh]

# %% [markdown]
# **With a gate.** Llama and most models since let a second matrix decide how much of each number passes: `gate` and
# `up` are multiplied, then narrowed. [paper: Touvron et al. 2023, section 2.2] That is three matrices instead of two,
# so the middle is made narrower to keep the count: two thirds of four times the width, {{swiglu_ratio:.4f}} times.
# [paper: Shazeer 2020, section 2] [computed] Llama 3 8B takes {{llama_ratio:g}} times instead. [computed]

# %%
plain, with_gate = feed_forward(768, 4 * 768, "gelu"), feed_forward(768, 2048, "silu", gated=True)
for name, part in (("two matrices, GELU", plain), ("three matrices, SwiGLU", with_gate)):
    print(f"{name:<24} middle {part.up.n_out:>5}   {sum(one.count for one in ledger.weights(part)):,} weights")

# %% [markdown]
# **Why it matters.** Without the bend in the middle the two matrices would be one: a proof stands below. [inference]
# Two thirds of a block's weights are here, and it is the part that experts multiply: {{lesson("experts")}}.
# [inference]

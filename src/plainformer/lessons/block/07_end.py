# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas, ledger, reference
from plainformer.families.parts import feed_forward
from plainformer.initial import lesson as lesson_weights
from plainformer.lessons.words import lesson, vector

gpt2 = pf.presets["gpt2"]
by_kind = {}
for weight in ledger.Ledger.of(gpt2).rows:
    by_kind[weight.kind] = by_kind.get(weight.kind, 0) + weight.count
x_D = np.array([1.0, 2.0, 3.0, 4.0])
wide = feed_forward(64, 4 * 64, "gelu", bias=True)
wide_shape = reference.run(wide, reference.Weights(dict(lesson_weights(wide))), np.ones((2, 10, 64)), None).shape
ones = np.linspace(-6, 6, 120001)
fine = np.linspace(-0.76, -0.74, 200001)
inner = np.sqrt(2 / np.pi) * 1.044715

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** A layer replaces its input by a better representation.
#
# **Correction.** It adds to it. Every later layer still reads the sum of all that was said before, and the token
# itself. [paper: Elhage et al. 2021, section "Transformer overview"]
#
# **Misconception.** Most of a model is attention.
#
# **Correction.** In GPT-2 small the feed-forward networks hold {{by_kind["feed_forward"]:,}} weights and attention
# {{by_kind["attention"]:,}}. [computed]
#
# **Misconception.** Normalising makes a token forget how large its numbers were, so scale can carry no information.
#
# **Correction.** What a part *reads* has forgotten it; under pre-norm the stream itself has not, and the last norm is
# the first to touch it. [inference]
#
# **Misconception.** A residual connection makes gradients at least as large as without it.
#
# **Correction.** It keeps a path of slope one. The sum of all paths can be smaller than one, and is zero where a
# part answers with minus its input. [inference]
#
# ## In twenty seconds
#
# - A block is two edits of a stream: what attention found is added, then what the feed-forward network made of it.
#   [definition]
# - Each part reads the stream through a norm: less the mean, by the spread, then a learned gain and bias. It forgets
#   two numbers a token. [inference]
# - The feed-forward network widens by four, bends, narrows, for each token alone; most of a block's weights are
#   there. [computed: by_kind["feed_forward"] > by_kind["attention"]]
# - Norm before the part: an open way from the first layer to the last. Norm after the sum: none. [inference]
#
# ## Self-test
#
# **Question.** Which of the two parts of a block lets tokens know of each other, and what does the other one do?
#
# **Answer.** Attention alone does. The feed-forward network gives the same answer for a token whatever stands around
# it. [inference]
#
# **Question.** What does LayerNorm make of a vector whose numbers are all the same?
#
# **Answer.** Nothing but its bias: less the mean it is all zeros, and epsilon keeps the division sound.
# [computed: bool((formulas.layer_norm([5.0, 5.0, 5.0]) == 0).all())]
#
# **Question.** How many weights has a feed-forward network of width eight, biases included?
#
# **Answer.** {{8 * 32}} and {{32}} up, {{32 * 8}} and {{8}} down: {{8 * 32 + 32 + 32 * 8 + 8}}. [computed]
#
# **Question.** You double a model's width and keep its depth. What happens to the weights of its blocks, and to those
# of its norms?
#
# **Answer.** The first become four times as many, the second twice as many: matrices have two sides of the width, gains
# and biases one. [inference]
#
# **Question.** A colleague's port of GPT-2 differs from the original in the fourth digit of every logit. Name two
# causes that this lesson offers.
#
# **Answer.** The exact GELU in the place of the one by tanh, which are
# {{abs(formulas.gelu(ones) - formulas.gelu_tanh(ones)).max():.5f}} apart at most in one number; or another epsilon in
# the norms. [computed]
#
# ## Papers

# %% [papers]

# %% [numbers]
{
    **{
        f"gelu_{form}_{name}": (f"GELU of {z:g}, {words}", float(of(z)))
        for form, words, of in (("exact", "exact", formulas.gelu), ("tanh", "by tanh", formulas.gelu_tanh))
        for name, z in (
            *(("m3", -3), ("m2", -2), ("m1", -1), ("m0_5", -0.5), ("0", 0)),
            *(("0_5", 0.5), ("1", 1), ("2", 2), ("3", 3), ("10", 10)),
        )
    },
    "gelu_forms_max_gap": (
        "the largest difference of the two, between -6 and 6",
        abs(formulas.gelu(ones) - formulas.gelu_tanh(ones)).max(),
    ),
    "gelu_exact_minimum": ("the lowest value of exact GELU", formulas.gelu(fine).min()),
    "gelu_1_steps": (
        "GELU of 1 by tanh: the root, the bracket, their product, its tanh",
        [np.sqrt(2 / np.pi), 1 + 0.044715, inner, np.tanh(inner)],
    ),
    "ln_1234_stats": ("mean, variance, spread of (1, 2, 3, 4)", [x_D.mean(), x_D.var(), x_D.std()]),
    "ln_1234": ("LayerNorm of (1, 2, 3, 4)", formulas.layer_norm(x_D)),
    "ln_scale_by_100_gap": (
        "how far a hundred times that moves it",
        abs(formulas.layer_norm(100 * x_D) - formulas.layer_norm(x_D)).max(),
    ),
    "ln_10_0_10_0": (
        "LayerNorm of (10, 0, 10, 0), another row beside it",
        formulas.layer_norm([x_D, [10, 0, 10, 0]])[1],
    ),
    "rms_1234": ("RMSNorm of (1, 2, 3, 4)", formulas.rms_norm(x_D)),
    "ln_1236": ("LayerNorm of (1, 2, 3, 6) without epsilon", formulas.layer_norm([1, 2, 3, 6], eps=0.0)),
    "ln_variance_with_eps": ("the variance of LayerNorm of (1, 2, 3, 4)", formulas.layer_norm(x_D).var()),
    "residual_example": (
        "(1, 2) after two edits",
        np.array([1.0, 2.0]) + np.array([0.1, -0.3]) + np.array([-0.2, 0.4]),
    ),
    "ffn_width_8": (
        "weights of a feed-forward network of width 8",
        sum(one.count for one in ledger.weights(feed_forward(8, 32, "gelu", bias=True))),
    ),
    "tt_mlp_shape": ("the shape of what one of width 64 makes of (2, 10, 64)", list(wide_shape)),
    "half_to_the_12": ("a half, twelve times", 0.5**12),
    "tenth_to_the_12": ("a tenth, twelve times", 0.1**12),
    "swiglu_hidden_over_d": ("the middle of SwiGLU over the width, at the same count", 4 * 2 / 3),
}

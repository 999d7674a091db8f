# %% [hidden]
import plainformer as pf
from plainformer.conventions import count, finding
from plainformer.report.drawings import lines

# The paper's labels, and where their shapes are from.
LABELS = {124: "gpt2", 354: "gpt2-medium", 458: "paper-20x1280", 773: "gpt2-large", 849: "paper-25x1600"}
biased = {label: count(pf.presets[name], "nanogpt").total for label, name in LABELS.items()}
free = {label: count(pf.presets[name], "bias-free").total for label, name in LABELS.items()}
every = {label: count(pf.presets[name]).total for label, name in LABELS.items()}


def shape(name):
    spec = pf.presets[name]
    return len(spec.decoder.layers), spec.decoder.layers[0][0].branches[0].part.n_heads, spec.d_model


candidates = {n: finding.behind(finding.label(f"{n}M"), "nanogpt")["multiples_of_64"] for n in (458, 849)}
small_medium = count(finding.gpt2_shape(16, 1024), "nanogpt").total

# %% [markdown]
# ## Five labels, and two shapes that nobody states
#
# **Everyday picture.** A coat with a size on its label. The label is right, the tailor who wants the pattern still has
# to measure.
#
# **Where the analogy breaks.** A coat can be measured. Of two of these models the paper gives nothing but the label.
# [paper: Lotfi et al. 2024, table 3]
#
# **Tiny worked example.** The paper's models are called {{", ".join(f"{label}M" for label in LABELS)}}. [paper: Lotfi
# et al. 2024, table 3] GPT-2 large, {{shape("gpt2-large")[0]}} layers of {{shape("gpt2-large")[2]:,}}, has
# {{biased[773]:,}} weights with biases and {{free[773]:,}} without: rounded, {{round(biased[773] / 1e6)}} and
# {{round(free[773] / 1e6)}}. Only the first is the label. [computed]

# %% [figure: labels]
lines(
    "How far three counts lie from the label, in millions",
    {
        "with biases": [(float(label), biased[label] / 1e6 - label) for label in LABELS],
        "without": [(float(label), free[label] / 1e6 - label) for label in LABELS],
        "every tensor": [(float(label), every[label] / 1e6 - label) for label in LABELS],
    },
    "label, millions",
    "count minus label",
)

# %% [markdown]
# **How to read it.** A count that rounds to its label lies within a half of zero. With biases all five do; without, the
# fourth falls out; counted as a checkpoint is, with positions and without padding, only the first does. [computed:
# [sum(abs(n / 1e6 - label) < 0.5 for label, n in of.items()) for of in (biased, free, every)] == [5, 4, 1]] So the
# labels are counts with biases, though the networks that were trained have hardly any. [inference]
#
# **Formula.** What biases add to a model of GPT-2's kind:
#
# $$
# N_{\mathrm{biased}} - N_{\mathrm{free}} = 11 L d + d
# $$
#
# **Symbols.**
#
# | symbol | meaning | in GPT-2 large |
# |---|---|---|
# | $11 d$ | a block's biases: nine of its projections, two of its norms | {{11 * 1280:,}} |
# | $L$ | layers | {{36}} |
# | $d$ | the bias of the last norm | {{1280:,}} |
#
# **In words.** Eleven widths a layer and one at the end.
#
# **With the numbers.** {{11}} times {{36}} times {{1280:,}} + {{1280:,}} = {{11 * 36 * 1280 + 1280:,}}, and
# {{biased[773]:,}} - {{free[773]:,}} = {{biased[773] - free[773]:,}}. [computed]
# [computed: 11 * 36 * 1280 + 1280 == biased[773] - free[773]]

# %%
for label, name in LABELS.items():
    n_layers, n_heads, width = shape(name)
    said = f"{n_layers} layers, {n_heads} heads, width {width:,}"
    print(f"{label}M  {said:<34} with biases {biased[label]:>11,}  without {free[label]:>11,}")
print("458M, any width in steps of 64:", candidates[458])
print("849M, any width in steps of 64:", candidates[849])

# %% [markdown]
# For {{458}}M and {{849}}M the paper gives no shape. [paper: Lotfi et al. 2024, appendix E] A search leaves
# {{len(candidates[458])}} and {{len(candidates[849])}} shapes; one of each has a width that GPT-2 has, and fits the
# pattern of the paper's own series, heads of sixty-four and as many heads as layers. [computed] That is a guess, and
# the code confirms it: it names {{shape("paper-20x1280")}} "medium-large" and {{shape("paper-25x1600")}}
# "large-vlarge", in layers, heads, width. [source: Sanaelotfi/sublora-bounds-for-llms@c606ea6, sublora/utils.py] It
# also names a shape that the paper does not show, sixteen layers of {{1024:,}}: {{small_medium:,}}. [source:
# Sanaelotfi/sublora-bounds-for-llms@c606ea6, sublora/utils.py] [computed]
#
# **In the library.** What may hide behind a label, three lists, the widest search first. [definition]

# %% [source: finding.behind]

# %% [markdown]
# **Why it matters.** The count found layers and width, the code the heads. Neither alone would have done: heads leave
# no trace in a size. [inference]

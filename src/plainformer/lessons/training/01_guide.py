# %% [hidden]
import plainformer as pf
from plainformer.lessons.words import lesson, measured

default = measured("training")["rows"][0]
counted = {(row["what"], row["letters before"]): row for row in measured("ngrams")["rows"]}
best_of_counts = min(float(row["nats a character"]) for (what, _), row in counted.items() if what == "counts")
ours = float(default["nats a character"].split()[0])
precise = {row["products in"]: row for row in measured("precisions")["rows"]}
alpha_N = 0.076  # Kaplan et al. 2020, equation 1.1: the loss falls as the number of weights to this power
gpt3_batch = 3.2  # million tokens, Brown et al. 2020, table 2.1


def middle(text):
    """The median that a cell of a measured table begins with."""
    return float(text.split()[0])


# %% [markdown]
# # Training a GPT on text
#
# ## In practice
#
# **In one sentence.** Show the model a window of text, ask at every place for the token that comes next, and move all
# weights a little so that the right one would have been likelier; do that some hundred to some hundred thousand times,
# and hold back a piece of text to learn whether it was worth it. [inference]
#
# **When you need it.** You train a small model on your own text, or fine-tune a large one; or you read somebody's loss
# curve and want to know whether it is good, or only long. [inference]
#
# **Options.**
#
# | what | choices | what it gives | what it costs | from |
# |---|---|---|---|---|
# | optimiser | AdamW | works for every weight | two numbers kept for each
#   | [paper: Loshchilov and Hutter 2019, algorithm 2] |
# | | Muon for the matrices, AdamW for the rest | fewer steps for the same loss | some products more a step
#   | [paper: Jordan et al. 2024, section "Results"] |
# | rate by step | cosine after a warm-up | falls without a corner | its length is fixed at the start
#   | [paper: Loshchilov and Hutter 2017, section 3] |
# | | steady, then falling | one can go on from before the fall | nothing
#   | [paper: Hu et al. 2024, section 4] |
# | products | float32 | nothing to think of | twice the bytes | [inference] |
# | | bfloat16, weights in float32 | speed where the chip has it; fewer bytes on the way | digits
#   | [paper: Micikevicius et al. 2018, section 3.1] |
# | head | the token table | fewer weights | one table for two tasks | [paper: Press and Wolf 2017, abstract] |
# | memory | layers made again on the way back | most of the activations | a forward pass more
#   | [paper: Chen et al. 2016, section 4] |
#
# **How to choose.** Begin with a recipe that is known to work and change one thing at a time: `plainformer train TEXT
# --out RUN` has one, and prints what it does. [inference] First get the loss of the first step right, then make a small
# piece of text be learned by heart, then train. Each of the three fails for different mistakes. [inference]
#
# **What it costs.** With every default, on the million characters of a small Shakespeare: {{default["parameters"]}}
# weights, {{default["seconds, start to end"].split()[0]}} seconds on two cores, and
# {{ours:.4f}} nats a character on text that it did not see. [measured: training]

# %% [measured: training]

# %% [markdown]
# In memory a step holds weights, gradients and AdamW's two means, sixteen bytes for each weight in float32, and what
# the way back needs. Products in bfloat16 halve what *they* keep, and nothing else: weights, means and norms stay as
# they were. In a small model, where little of what is kept is an input of a wide product, that left
# {{precise["bfloat16"]["of float32's"]}} of the kept bytes, the same
# {{precise["bfloat16"]["weights, gradients, AdamW"]}} bytes of the rest, and a loss of
# {{middle(precise["bfloat16"]["nats a character"]):.3f}} in place of
# {{middle(precise["float32"]["nats a character"]):.3f}}. [measured: precisions] "Mixed precision halves the memory"
# is not what happens; the table is in {{lesson("budget")}}. [measured: precisions]
#
# **What breaks.**
#
# - *Targets that are not shifted.* The model learns to say what it was just told; the loss falls to nearly nothing.
#   [inference]
# - *A loss with nothing to compare it to.* A model that cannot look back at all reaches
#   {{counted["transformer without attention", "0, and itself"]["nats a character"].split()[0]}} nats, and it looks
#   like learning. [measured: ngrams]
# - *A mean of means.* Batches cut into unequal parts, each with its own mean, are no longer the batch. [inference]
# - *A rate that is too high at the start.* The loss jumps, and does not come back. [inference]
# - *A resumed run that is not the same run:* the optimiser's means lost, the data begun again. Nothing fails; the
#   curve has a knee. [inference]
#
# **In the wild.** GPT-3 was trained with batches of {{gpt3_batch}} million tokens [paper: Brown et al. 2020, table
# 2.1], a warm-up, a cosine and a clip at one. [paper: Brown et al. 2020, appendix B] How much is a larger model
# worth? Ten times the weights multiply the loss by {{10**-alpha_N:.3f}}, which is {{100 * (1 - 10**-alpha_N):.0f}} %
# less: "five times better" is not what the law says. [paper: Kaplan et al. 2020, equation 1.1] [computed]
#
# ## Where it fits
#
# Before this: {{lesson("gradients")}}, which finds the slopes, and {{lesson("gpt")}}, which is what is trained.
# [definition] After it: {{lesson("generation")}} for what the trained model writes, {{lesson("budget")}} for what a
# large run costs. [definition] The measured tables are of one text, a small Shakespeare;
# `plainformer learn 9 --measure --text FILE` measures them again on another, and without a file on Python's own
# documentation. [definition]

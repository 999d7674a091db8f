# %% [hidden]
import numpy as np

from plainformer.lessons.words import lesson, measured

table = measured("ngrams")["rows"]
by_counts = {int(row["letters before"]): float(row["nats a character"]) for row in table if row["what"] == "counts"}
alpha_N = 0.076  # Kaplan et al. 2020, equation 1.1

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** The loss has fallen from four to two and a half, so the model has learned the language.
#
# **Correction.** It has learned which letter follows which. Counting pairs gives {{by_counts[1]:.2f}}. [measured:
# ngrams]
#
# **Misconception.** A larger batch is a better gradient and so always better.
#
# **Correction.** It is a less noisy one, for the same work as several steps. Up to some size that pays; beyond it,
# steps are what is missing. [paper: McCandlish et al. 2018, abstract]
#
# **Misconception.** Accumulating gradients over parts is an approximation of a large batch.
#
# **Correction.** It is the large batch, to rounding, if the sum is divided once by the number of real targets.
# [inference]
#
# **Misconception.** Mixed precision halves the memory of training.
#
# **Correction.** It halves what products keep for the way back. Weights, gradients and the optimiser's means stay as
# they are. [measured: precisions]
#
# **Misconception.** Ten times the weights make a model several times better.
#
# **Correction.** They multiply the loss by {{10**-alpha_N:.2f}}, all else being enough. [paper: Kaplan et al. 2020,
# equation 1.1] [computed: round(10**-alpha_N, 2) == 0.84]
#
# ## In twenty seconds
#
# - Targets are the tokens, shifted by one; every place of every window is a question. [definition]
# - The first loss is the logarithm of the number of tokens. If not, look there first. [inference]
# - A loss means something beside counting, beside a twin without the part in question, by the byte, on text not
#   trained on. [inference]
# - Muon for matrices, AdamW for the rest; warm up, stay, fall; clip. [inference]
# - Sum over real targets, divide once. [inference]
# - A run is its weights, its optimiser's means, its step, and every decision. [inference]
#
# ## Self-test
#
# **Question.** A model over {{256}} bytes has a first loss of nine nats. What is wrong?
#
# **Answer.** The logarithm of {{256}} is {{np.log(256):.2f}}. More than that is confident and wrong: scores too large
# at the start. [computed]
#
# **Question.** A colleague has two nats a token, with pieces of words; you have one and a half, with characters.
# Whose model is better?
#
# **Answer.** Nobody can tell. Divide both by the bytes that a token stands for: with four bytes a token, the
# colleague has {{2 / np.log(2) / 4:.2f}} bits a byte, and you have {{1.5 / np.log(2):.2f}}. [computed]
#
# **Question.** The training loss is a tenth of a nat above the validation loss during the whole run. Leak?
#
# **Answer.** Perhaps not. The training loss is an average over steps before, of weights that were worse, and of
# dropout if there is any; and the end of a text may be easier than the rest. A leak shows as a loss that no model
# should have. [inference]
#
# **Question.** You resume a run and the loss jumps up for some dozen steps, then falls back. What was not kept?
#
# **Answer.** The optimiser's means, most likely. Another is the place in the data: then there is no jump, but old
# text is read again. [inference]
#
# **Question.** The gradient's length is three hundred, the clip is at one. What does the step of AdamW become?
#
# **Answer.** Nearly what it was: all slopes shrink alike, and so do its means of them, in time. The clip protects the
# means from one odd batch. [inference]
#
# ## Papers

# %% [papers]

# %% [numbers]
{"kaplan_10x_params": ("what ten times the weights multiply the loss by", 10**-alpha_N)}

# %% [hidden]
from math import log

import numpy as np

from plainformer.lessons.ngrams import surprisal_by_counts
from plainformer.lessons.words import lesson, measured, vector
from plainformer.report.drawings import lines

TEXT = "to be or not to be that is the question "
letters = sorted(set(TEXT))
ids_N = np.array([letters.index(one) for one in TEXT])
table = measured("ngrams")["rows"]
by_counts = {int(row["letters before"]): float(row["nats a character"]) for row in table if row["what"] == "counts"}
best = min(by_counts, key=by_counts.get)
losses = {row["what"]: float(row["nats a character"].split()[0]) for row in table if "transformer" in row["what"]}
blind, seeing = losses["transformer without attention"], losses["transformer with attention"]
default = float(measured("training")["rows"][0]["nats a character"].split()[0])
train_N, valid_N = ids_N, np.array([letters.index(one) for one in "not to be that is to "])
small = [float(nats.mean()) for nats in surprisal_by_counts(train_N, valid_N, len(letters), 3)]
pairs = [TEXT[i : i + 2] for i in range(len(TEXT) - 1) if TEXT[i] == "t"]
n_h, n_t, kinds = pairs.count("th"), len(pairs), len(set(pairs))
share_h = (TEXT.count("h") + 1) / (len(TEXT) + len(letters))
p_h = (n_h + kinds * share_h) / (n_t + kinds)

# %% [markdown]
# ## What a loss is worth
#
# **Everyday picture.** A pupil names nine of ten capitals. Is that good? It depends on what the others in the class
# name, and on whether the questions were those of the exercise book.
#
# **Where the analogy breaks.** A pupil who has learned the book by heart has at least learned the capitals. A model
# that has learned its text by heart may know nothing of any other text, and its loss on its own will not show it.
# [inference]
#
# **Tiny worked example.** After a *t* the text {{repr(TEXT)}} has {{n_t}} characters, {{n_h}} of them *h*, {{kinds}}
# different ones. Counting alone says *h* with {{n_h / n_t:.3f}}, and a character that never followed with zero, which
# would be an infinite loss. So each context keeps some doubt, as much as it has shown different things: ({{n_h}} +
# {{kinds}} times the share of *h* at large, {{share_h:.3f}}) / ({{n_t}} + {{kinds}}) = {{p_h:.3f}}. [computed] It is
# one of several old ways. [paper: Witten and Bell 1991, abstract]

# %% [figure: counts]
lines(
    "Nats a character on a small Shakespeare's validation part",
    {
        "by counting": [(float(n), loss) for n, loss in by_counts.items()],
        "2 layers, no attention, 300 steps": [(0.0, blind), (float(max(by_counts)), blind)],
        "2 layers, 300 steps": [(0.0, seeing), (float(max(by_counts)), seeing)],
        "plainformer train, every default": [(0.0, default), (float(max(by_counts)), default)],
    },
    "letters before, for counting",
    "nats",
)

# %% [markdown]
# **How to read it.** The curve is counting: with more letters before, it gets better, to {{by_counts[best]:.3f}} nats
# with {{best}}; then worse, since longer runs are rarer than a million characters can show. [measured: ngrams] The
# straight lines are transformers, whatever the counting does. The one without attention reads a token and nothing
# else, and lies where counting with one letter lies: {{blind:.3f}} beside {{by_counts[1]:.3f}}. [measured: ngrams]
# The one with attention is past two letters in three hundred steps. [measured: ngrams] [computed: seeing <
# by_counts[2] and abs(blind - by_counts[1]) < 0.02] Below every count lies the default run, {{default:.4f}}.
# [measured: training] [computed: default < by_counts[best]]

# %% [measured: ngrams]

# %% [markdown]
# **Formula.** Counting with doubt, and the loss by the byte:
#
# $$
# p(w \mid h) = \frac{c(hw) + u(h)\, p(w \mid h')}{c(h) + u(h)}, \qquad
# \mathrm{bits\ a\ byte} = \frac{\sum_n -\log_2 p(y_n)}{\mathrm{bytes\ of\ the\ text}}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $h$ | the letters before | *t* |
# | $h'$ | the same without the first of them | none |
# | $w$ | the letter that is asked for | *h* |
# | $c(h), c(hw)$ | how often they were seen | {{n_t}}, {{n_h}} |
# | $u(h)$ | how many different letters came after $h$ | {{kinds}} |
# | $\log_2$ | the logarithm to the base of two: nats by {{log(2):.4f}} | |
#
# **In words.** What was counted, mixed with what a shorter context says, the more of that the more various it was.
# And a loss that does not depend on how the text was cut: all of its bits, by its bytes.
#
# **With the numbers.** The default run's {{default:.4f}} nats a character are {{default / log(2):.4f}} bits; of a
# text in which every character is one byte that is the same by the byte. Were a token four bytes long,
# {{4 * default:.2f}} nats a token would be the same model. [computed]

# %%
valid = "not to be that is to "
valid_N = np.array([letters.index(one) for one in valid])
for length, nats in enumerate(surprisal_by_counts(ids_N, valid_N, len(letters), 3)):
    print(f"{length} letters before: {nats.mean():.3f} nats a character, {nats.mean() / np.log(2):.3f} bits")

# %% [markdown]
# These are too good: the words stand in the text that was counted, as a question from the exercise book does.
# [inference]
#
# **Validation.** The last tenth of the text is never trained on. The library scores all of it, each target once, in
# blocks of the model's context laid side by side; a few batches by chance would move by more than most changes are
# worth. [inference] When the loss of the batches goes on falling and that of the validation part turns, the model has
# begun to learn the text by heart; the remedy is more text, fewer steps or a smaller model. [inference]
#
# **In the library.** The counter that made the table above, whole: [definition]

# %% [source: surprisal_by_counts]

# %% [markdown]
# **Why it matters.** A loss threshold that counting passes proves no attention. [inference] Compare with a twin
# without the part in question, trained as long on the same text; it is the only comparison in which nothing else
# differs. [inference]

# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas
from plainformer.lessons.words import vector
from plainformer.report.drawings import lines

p = np.array([0.5, 0.25, 0.125, 0.125])  # what a model says of "cat", "dog", "man", "sun"
bits = -np.log2(p)
text = [0, 1, 0, 2]  # cat dog cat man
said = bits[text]
loss = float(np.log(2) * said.mean())
n_vocab = pf.presets["gpt2"].vocab_size
curve = np.linspace(0.01, 1, 100)

# %% [markdown]
# ## Tokens and surprisal
#
# **Everyday picture.** A game of guessing the next word. You lay your stakes on all words, as you like. The word is
# shown, and you pay the more, the less you had laid on it; whoever has laid everything on it pays nothing, whoever
# has laid nothing pays without end.
#
# **Where the analogy breaks.** A player wants to win this round. A model is trained to pay little over all rounds,
# and to lay on each word just as much as it deserves: a proof below shows that honesty is the cheapest stake.
# [inference]
#
# **Tiny worked example.** A language of four words, and a model that gives them {{vector(p, "g")}} whatever came
# before. What it pays for each is {{vector(bits, "g")}} bits. The text "cat dog cat man" costs it
# {{vector(said, "g")}}: together {{said.sum():g}} bits, {{said.mean():g}} a word. [computed]

# %% [figure: surprisal]
lines(
    "What a token costs, by the chance that it was given",
    {"surprisal": [(float(q), float(-np.log2(q))) for q in curve]},
    "chance given to the token that came",
    "bits",
)

# %% [markdown]
# **How to read it.** From the right: what was certain costs nothing. Halving the chance costs one bit more, each
# time: at a half one bit, at a quarter two, at a hundredth {{-np.log2(0.01):.2f}}. [computed] Towards zero the cost
# has no end, so a model learns never to give nothing to anything. [inference]
#
# **Formula.** For tokens $t_1 \ldots t_n$:
#
# $$
# \mathrm{surprisal}(t_i) = -\log_2 p(t_i \mid t_1 \ldots t_{i-1}), \qquad
# \mathrm{loss} = -\frac{1}{n} \sum_{i=1}^{n} \ln p(t_i \mid t_1 \ldots t_{i-1}), \qquad
# \mathrm{perplexity} = e^{\mathrm{loss}}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $t_i$ | the $i$-th token: a word, a piece of one, a byte | "cat" |
# | $p(t \mid \ldots)$ | the chance that the model gave it, having read what stands behind the bar | {{p[0]:g}} |
# | $\log_2$ | how often one must halve: bits | {{bits[0]:g}} |
# | $\ln$ | the same to the base $e$: nats | {{-np.log(p[0]):.3f}} |
# | $\mathrm{loss}$ | the mean, in nats; also *cross-entropy* | {{loss:.3f}} |
# | $\mathrm{perplexity}$ | among how many equal words one would be as surprised | {{np.exp(loss):.3f}} |
#
# **In words.** A token costs the logarithm of one over its chance; the loss is the mean cost.
#
# **With the numbers.** {{said.mean():g}} bits times $\ln 2$ is {{loss:.3f}} nats; $e$ to that is
# {{np.exp(loss):.3f}}. [computed]

# %%
logits_TV = np.log([[0.5, 0.25, 0.125, 0.125]] * 4)  # a softmax of these gives the chances back
nats_T = formulas.cross_entropy(logits_TV, [0, 1, 0, 2])
print("nats", nats_T, " bits", nats_T / np.log(2))
print("loss", nats_T.mean().round(3), " perplexity", np.exp(nats_T.mean()).round(3))

n_bytes = len("cat dog cat man")
print("bits a byte:", ((nats_T / np.log(2)).sum() / n_bytes).round(3))

# %% [markdown]
# **Tokens** are numbers for pieces of text: each has a row in a table, and that row is the vector with which the
# model begins. A *vocabulary* is the list of all. [definition] A model that has learned nothing gives all the same
# chance: with GPT-2's {{n_vocab:,}} tokens it pays {{np.log(n_vocab):.3f}} nats, {{np.log2(n_vocab):.3f}} bits, each
# time. A loss above that is worse than not knowing. [computed]
#
# **Comparing.** Divide all bits by the *bytes* of the text, and models with different tokens can be compared; a
# perplexity can't be, for it counts by tokens. [inference]
#
# **In the library.** The loss of every model here: [definition]

# %% [source: formulas.cross_entropy]

# %% [markdown]
# **Why it matters.** It is the one number that training makes smaller. That logarithms of chances measure
# information, and that they add up, is the beginning of information theory. [paper: Shannon 1948, section 6]

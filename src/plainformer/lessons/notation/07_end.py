# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.lessons.words import lesson

even = formulas.softmax(np.zeros(4))

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** A token is a word.
#
# **Correction.** It is whatever the tokenizer cut: a word, a piece of one, a space with a word, a byte. [inference]
#
# **Misconception.** The numbers of a vector mean something each.
#
# **Correction.** Directions may; single numbers need not. Turn all vectors and the matrices that read them alike, and
# the model says the same. [inference]
#
# **Misconception.** Softmax gives probabilities that one can trust.
#
# **Correction.** It gives shares that add up to one. Whether things called likely happen as often is a question to
# the model, and is answered by counting. [inference]
#
# **Misconception.** Half the loss is twice as good.
#
# **Correction.** A loss is a logarithm, with a floor above zero. What a tenth of a nat less means is that each token
# was given {{100 * (np.exp(0.1) - 1):.1f}} % more chance, in the geometric mean. [computed]
#
# ## In twenty seconds
#
# - Vector: a list. Dot product: how well two fit. Matrix: many dot products at once. [definition]
# - Softmax: scores to shares; only differences count. [definition]
# - Surprisal: minus the logarithm of the chance that was given. Loss: its mean, in nats. [definition]
# - Names of arrays end with their shape: `x_TD`, `weights_HTS`. [definition]
#
# ## Self-test
#
# **Question.** Four scores are all the same. What are their shares, and how many bits does each cost?
#
# **Answer.** {{even[0]}} each, and {{-np.log2(even[0]):g}} bits. [computed]
#
# **Question.** A linear layer takes {{768}} numbers and gives {{3072:,}}, with a bias. How many weights?
#
# **Answer.** {{768:,}} times {{3072:,}} and {{3072:,}}: {{768 * 3072 + 3072:,}}. [computed]
#
# **Question.** A loss falls from {{3.0}} to {{2.7}} nats a token. How does the perplexity change?
#
# **Answer.** From {{np.exp(3):.1f}} to {{np.exp(2.7):.1f}}. [computed]
#
# **Question.** Model one has {{1.0}} nats for each character, model two {{3.5}} for each token; its tokens are {{4}}
# characters long on the mean. Which is better?
#
# **Answer.** The second: {{3.5 / 4:.3f}} nats a character. [computed]
#
# ## Papers

# %% [papers]

# %% [numbers]
{"tanh_0_8": ("tanh of 0.8", float(np.tanh(0.8)))}

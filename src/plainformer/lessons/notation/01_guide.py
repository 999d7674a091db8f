# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer.lessons.words import lesson

gpt2, llama = pf.presets["gpt2"], pf.presets["llama-3-8b"]
x, W = np.ones((5, 2)), np.ones((3, 2))  # five tokens of two numbers, and three lines
guess = np.log2(gpt2.vocab_size)

# %% [markdown]
# # Notation and words
#
# ## In practice
#
# **In one sentence.** A transformer turns lists of numbers into lists of numbers by adding, multiplying and one kind
# of averaging, and what comes out at the end is a chance for every token that could come next; this lesson says what
# each of those words means. [definition]
#
# **When you need it.** A formula stops you in another lesson; a log says "loss" and you would like to know of what;
# two papers report "perplexity" and "bits per byte" and you want to compare them. If none of that is so, begin with
# {{lesson("block")}}. [definition]
#
# **Options.** The same thing has several names, and the names of arrays here say their shape:
#
# | here | elsewhere | what it counts | from |
# |---|---|---|---|
# | `B` | batch | rows of tokens worked on together | [definition] |
# | `T`, `S` | sequence, time, context | tokens that are new; tokens that may be seen | [definition] |
# | `D` | `d_model`, `hidden_size`, `n_embd` | numbers of one token's vector | [definition] |
# | `H`, `G` | `num_attention_heads`, `num_key_value_heads` | heads; sets of keys and values | [definition] |
# | `K` | `head_dim` | numbers of one head's query | [definition] |
# | `F` | `intermediate_size`, `d_ff` | numbers in the middle of a feed-forward network | [definition] |
# | `V` | `vocab_size` | tokens that there are | [definition] |
# | `E` | `num_local_experts` | experts | [definition] |
#
# **How to choose.** An array called `x_TD` has one row for each token and `D` numbers in each; one called
# `weights_HTS` one square for each head. Read the letters, and half of the code is read. [definition]
#
# **What it costs.** Nothing but this page: all that the other lessons need is multiplication, a few functions of one
# number, and the logarithm. [inference]
#
# **What breaks.**
#
# - *The logarithm's base.* A loss is in nats (base $e$), a surprisal often in bits (base two): the same number of
#   nats is {{1 / np.log(2):.3f}} times as many bits. [computed]
# - *A loss for each token, compared across tokenizers.* One model's tokens are longer than another's; bits for each
#   byte of the text are comparable, nats for each token are not. [inference]
# - *Rows and columns.* Here a token is a row and a matrix stands at its right, transposed, as PyTorch stores it:
#   `x @ W.T`. Papers often write a token as a column and the matrix at its left. Same numbers. [definition]
#
# **In the wild.** GPT-2 knows {{gpt2.vocab_size:,}} tokens, Llama 3 {{llama.vocab_size:,}}; a model that guesses
# evenly among GPT-2's is surprised by {{guess:.3f}} bits each time. [computed]
#
# ## Where it fits
#
# First. After it: {{lesson("block")}}, {{lesson("attention")}}. [definition]

# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas
from plainformer.cost import Cost
from plainformer.cost.rules import score_elements
from plainformer.lessons.words import lesson

gpt2, llama = pf.presets["gpt2"], pf.presets["llama-3-8b"]


def attention_of(spec):
    return spec.decoder.layers[0][0].branches[0].part


of_gpt2, of_llama = attention_of(gpt2), attention_of(llama)
n = 8192
at_n = Cost.of(llama, batch_size=1, seq_len=n)
nothing_seen = formulas.softmax([[1.0, 2.0, 3.0]], np.zeros((1, 3), bool))
heads_kept = of_llama.n_heads / of_llama.n_kv_heads

# %% [markdown]
# # Attention
#
# ## In practice
#
# **In one sentence.** Each token asks a question, every token it may see offers a label and a content, and the token
# takes the average of the contents, weighted by how well the labels answer: the only place in a transformer where
# one token learns of another. [definition]
#
# **When you need it.** You ask why a long prompt is slow and full of memory; you choose between models whose configs
# differ in `num_key_value_heads` or `sliding_window`; your loss falls too fast to be true, because a mask leaks; you
# want to see where a model looks. [inference]
#
# **Options.** The formula is the same in all of them; what differs is who may be seen, and what is kept:
#
# | option | what it is | what it saves | what it costs | from |
# |---|---|---|---|---|
# | multi-head | every head has keys and values of its own | nothing | the largest cache
#   | [paper: Vaswani et al. 2017, section 3.2.2] |
# | multi-query | all heads share one set of keys and values | the cache, by the number of heads | some quality
#   | [paper: Shazeer 2019, section 3] |
# | grouped-query | a few sets, each shared by a group of heads | most of that | little
#   | [paper: Ainslie et al. 2023, section 2.2] |
# | latent | keys and values are made from one short vector a token | more than grouped-query | two products more
#   | [paper: DeepSeek-AI 2024, section 2.1.1] |
# | sliding window | a token sees the last few thousand alone | cache and time beyond the window
#   | reach within one layer | [paper: Jiang et al. 2023, section 2] |
# | fused kernel | the same numbers, without ever writing the scores down | memory that grows with the square | nothing
#   | [paper: Dao et al. 2022, section 3] |
#
# **How to choose.** For a model of your own: grouped-query attention, as Llama 3 has it, and the fused kernel that your
# library offers. [inference] For somebody else's model there is no choice: heads, groups and window are in its weights.
# [inference] Encoder or decoder is a choice of mask, and follows from the task: read whole texts, or write. [inference]
#
# **What it costs.** In weights, four matrices: `q`, `k`, `v`, `out`. In time, the four products for each token, and
# two more for each *pair* of tokens. In memory while it writes, the keys and values of all that was read: for Llama 3
# 8B {{at_n.cache_bytes_per_token:,}} bytes a token, {{at_n.cache_bytes / 1e9:.2f}} GB at {{n:,}} tokens,
# {{heads_kept:.0f}} times less than if every head kept its own. [computed] Written out, the scores of one of its
# layers at that length would be {{score_elements(1, of_llama.n_heads, n) * 4 / 1e9:.1f}} GB in float32. [computed]
# More of this is {{lesson("budget")}}. [definition]
#
# **What breaks.**
#
# - *A mask given in the wrong language.* One routine wants "may see" as true; another adds the mask to the scores and
#   wants zero and minus infinity. Given the other's mask, the first sees all or the opposite, and nothing fails:
#   the loss is merely too good, or stays. The section on the mask shows it. [inference]
# - *A forgotten scale.* The model trains, badly: softmax is nearly a choice of one. The section on the scale measures
#   it. [inference]
# - *"Causal" with a cache.* One new query against many keys may see them all; a square mask cut at the wrong corner
#   lets it see the first key alone. [inference]
# - *A row that may see nothing.* The softmax of only minus infinities is no number, and spreads. Here such a row gets
#   weights of zero. [computed: bool((nothing_seen == 0).all())]
# - *Maps read as reasons.* A weight says what was mixed in, not what mattered: values differ in size, and later
#   layers add their own. [inference]
#
# **In the wild.** GPT-2 small has {{of_gpt2.n_heads}} heads of {{of_gpt2.d_head}} numbers; Llama 3 8B
# {{of_llama.n_heads}} heads of {{of_llama.d_head}}, with {{of_llama.n_kv_heads}} sets of keys and values. [computed]
# Mistral 7B shares them as Llama does and adds a window. [paper: Jiang et al. 2023, section 2]
#
# ## Where it fits
#
# After {{lesson("block")}}, which says what attention's answer is added to. [definition] Nothing in this lesson knows
# *where* a token stands, only whether it came before: that is {{lesson("positions")}}. [definition] How its gradients
# flow is {{lesson("gradients")}}; how a model writes without doing it all again is {{lesson("generation")}}.
# [definition]

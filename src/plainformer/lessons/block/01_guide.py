# %% [hidden]
import plainformer as pf
from plainformer.conventions import rule_of_thumb
from plainformer.cost import Cost
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson

gpt2 = pf.presets["gpt2"]
total = Ledger.of(gpt2).total
rule = rule_of_thumb(len(gpt2.decoder.layers), gpt2.d_model, gpt2.vocab_size)
in_blocks = sum(w.count for w in Ledger.of(gpt2).rows if ".layers." in w.name)
llama = pf.presets["llama-3-70b"]
mixtral = Ledger.of(pf.presets["mixtral-8x7b"])
gpt2_feed_forward = gpt2.decoder.layers[0][1].branches[0].part
norms = sum(w.count for w in Ledger.of(gpt2).rows if w.kind == "norm")

# %% [markdown]
# # The block
#
# ## In practice
#
# **In one sentence.** A block takes one vector for each token, lets the tokens exchange what they know (attention),
# lets each think alone (the feed-forward network), and both times *adds* what was found to what was there; a language
# model is a stack of such blocks, and most of its weights are in them: {{100 * in_blocks / total:.1f}} % in GPT-2
# small. [computed]
#
# **When you need it.** You read a model card or a `config.json` and want to know what `num_hidden_layers`,
# `hidden_size` and `intermediate_size` buy; you write a model of your own and its loss goes to infinity, or
# stands still; you port weights and every number is off by a little. The block is where all three are answered.
# [inference]
#
# **Options.** What differs between the blocks of published models:
#
# | what | choices | what it gives | what it costs | from |
# |---|---|---|---|---|
# | where the norm stands | before each part (pre-norm) | deep stacks train without care | the stream grows with depth
#   | [paper: Xiong et al. 2020, abstract] [inference] |
# | | after each addition (post-norm) | the layout of the first transformer and of BERT | a warm-up of the learning rate
#   | [paper: Xiong et al. 2020, abstract] |
# | which norm | LayerNorm | centred, scaled, shifted | two vectors a norm | [paper: Ba et al. 2016, abstract] |
# | | RMSNorm | scaled only; Llama, Mistral, Gemma | nothing that one notices
#   | [paper: Zhang and Sennrich 2019, abstract] [inference] |
# | the feed-forward network | two matrices and GELU | the layout of GPT-2 | a middle four times as wide as the stream
#   | [computed: gpt2_feed_forward.up.n_out == 4 * gpt2.d_model] |
# | | three matrices and a gate (SwiGLU) | a lower loss at the same size | one matrix more, so a narrower middle
#   | [paper: Shazeer 2020, section 3.2] |
# | attention and feed-forward | one after the other | each sees what the last one found | two steps | [inference] |
# | | side by side (GPT-J, PaLM) | one step; faster training at scale | a slightly worse loss in small models
#   | [paper: Chowdhery et al. 2022, section 2] |
#
# **How to choose.** Take pre-norm, RMSNorm and a gated feed-forward network: it is what Llama has. [paper: Touvron et
# al. 2023, section 2.2] For a decoder of text we know no reason to differ. [inference] Do so only where you load
# weights of somebody else: then their block decides, down to the epsilon. [inference]
#
# **What it costs.** About twelve times the square of the width in weights for each block, so doubling the width makes
# a block four times as large. For GPT-2 small the rule of twelve squares and a token table says {{rule:,}}, which
# is {{100 * (total - rule) / total:.2f}} % below the true {{total:,}}. [computed] Its norms are
# {{100 * norms / total:.3f}} % of it: what they cost is time, not room. [computed] How to count exactly is
# {{lesson("counting")}}. [definition]
#
# **What breaks.**
#
# - *A stack without additions.* The signal has to survive every part in turn; what is left of it, and of its
#   gradient, is measured in the last section. [inference]
# - *Post-norm without warm-up.* The gradients near the output are large at the start, and the first steps destroy
#   the weights. [paper: Xiong et al. 2020, abstract]
# - *A norm with the wrong epsilon, or the sample variance for the population variance.* Nothing fails; every number
#   is off by a little, and a port of weights never quite agrees. [inference]
# - *GELU by its other formula.* GPT-2's code has the one by tanh. [source: openai/gpt-2@9b63575, src/model.py]
#   BERT's began with the exact one and ended with the one by tanh. [source: google-research/bert@fe35475, modeling.py]
#   [source: google-research/bert@eedf571, modeling.py] They differ by less than a thousandth, enough to fail a
#   comparison: the section on the feed-forward network measures it. [inference]
#
# **In the wild.** GPT-2 small stacks {{len(gpt2.decoder.layers)}} blocks of width {{gpt2.d_model}}; Llama 3 70B
# {{len(llama.decoder.layers)}} of width {{llama.d_model:,}}. [computed] Mixtral 8x7B keeps the block and replaces its
# feed-forward network by eight, of which a token meets two: {{mixtral.total:,}} weights in all. [computed] That is
# {{lesson("experts")}}. [definition]
#
# ## Where it fits
#
# Before this: {{lesson("notation")}}, if vectors, means and matrix products are new. [definition] A block has two
# halves. This lesson builds the half that works on one token at a time, and the frame that holds both; the half where
# tokens meet is {{lesson("attention")}}. A token's place in the row is {{lesson("positions")}}, and the stack with its
# tables is {{lesson("gpt")}}. [definition]

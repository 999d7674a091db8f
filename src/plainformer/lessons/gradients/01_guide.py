# %% [hidden]
import plainformer as pf
from plainformer.cost import Cost
from plainformer.gradients import two_tokens
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson, measured

gpt2 = pf.presets["gpt2"]
cost = Cost.of(gpt2, batch_size=1, seq_len=1024)
n_weights = Ledger.of(two_tokens.spec()).total
made_again = {row["layers"]: row for row in measured("checkpoints")["rows"]}
fused_or_not = measured("scores")["rows"][-1]

# %% [markdown]
# # Backpropagation through a block
#
# ## In practice
#
# **In one sentence.** A loss is one number made of millions of weights; backpropagation walks the computation once from
# its end to its beginning and leaves beside every weight how much the loss would grow if that weight grew a little,
# for about twice the work of computing the loss. [inference]
#
# **When you need it.** A library does it for you until something is wrong: a loss that is no number, a layer that never
# moves, a kernel or a layer of your own whose way back you must write, a memory that is full of activations, a
# gradient that your colleague's code finds and yours does not. [inference]
#
# **Options.** Four ways to know a slope:
#
# | way | passes for all weights | what it keeps | from |
# |---|---|---|---|
# | by differences: move a weight, look at the loss | two for every weight | nothing
#   | [paper: Baydin et al. 2018, section 2.1] |
# | forward mode: carry slopes along with the numbers | one for every weight | nothing
#   | [paper: Baydin et al. 2018, section 3.1] |
# | backpropagation (reverse mode) | one there, one back | what each part read
#   | [paper: Baydin et al. 2018, section 3.2] |
# | the same, layers made again on the way back | two there, one back | what each layer read
#   | [paper: Chen et al. 2016, section 4] |
#
# **How to choose.** Backpropagation, by a library, always. Differences to test what you wrote by hand: they need no
# thought, and so share no mistake with you. [inference] Layers made again when memory is full: it is the one that
# changes neither the result nor the code of the model. [inference]
#
# **What it costs.** Each matrix product on the way there has two on the way back, so a training step costs three
# times a forward pass, and the rule of six operations for each weight and token is two there and four back:
# {{lesson("budget")}}. [inference] In memory, what each part read must be kept until the way back comes by. That
# grows with batch, length and depth; written-out scores of attention grow with the square of the length, and at
# {{fused_or_not["tokens"]}} tokens one layer keeps {{fused_or_not["written out"].split()[0]}} bytes with them and
# {{fused_or_not["fused"].split()[0]}} with a fused kernel. [measured: scores] Making the layers again saves
# {{made_again[12]["saved"]}} of the kept bytes at twelve layers, not half of them; the table is in
# {{lesson("budget")}}. [measured: checkpoints]
#
# **What breaks.**
#
# - *A number that was taken for a constant.* A norm whose spread is held still on the way back gives gradients that
#   look right and are not; the section on norms measures it. [inference]
# - *An array cut loose.* A result copied out of the library's sight has no way back; the weights before it get zero,
#   and nothing complains. [inference]
# - *A sum instead of a mean.* The gradient is larger by the number of targets; a step of AdamW hardly shows it, a
#   clip does. [inference]
# - *A weight met twice.* Its slopes are added, not replaced: the tied table below. [inference]
# - *A stack without additions or norms.* The slope that arrives at the first layer is too small to be written down.
#   [measured: residuals]
#
# **In the wild.** The method is older than the models, and has not changed since it was shown to train networks.
# [paper: Rumelhart et al. 1986, page 533] Every framework does it now. [inference] Still people write ways back by
# hand: fused attention is one, for which the scores are made again in small blocks rather than kept. [paper: Dao et
# al. 2022, section 3.1]
#
# ## Where it fits
#
# Before this: {{lesson("block")}} and {{lesson("attention")}}, whose formulas are here run backwards, and
# {{lesson("notation")}} for surprisal. [definition] After it: {{lesson("training")}}, which is what one does with the
# slopes. [definition] One model goes through this lesson, small enough to follow on paper: three words, two tokens, two
# numbers each, {{n_weights}} weights, all whole numbers. [computed]

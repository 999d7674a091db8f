# %% [hidden]
import plainformer as pf
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson

tiny = pf.presets["lesson"]
gpt2, llama, bert, t5 = (pf.presets[name] for name in ("gpt2", "llama-3-8b", "bert-base", "t5-small"))
stacks = [(model.encoder is not None, model.decoder is not None) for model in (gpt2, llama, bert, t5)]
sizes = {name: Ledger.of(pf.presets[name]).total for name in ("gpt2", "bert-base", "t5-small")}
table_share = Ledger.of(gpt2).by_kind["embedding"] / Ledger.of(gpt2).total

# %% [markdown]
# # A whole GPT and the three families
#
# ## In practice
#
# **In one sentence.** A GPT looks up a vector for each token and one for its place, adds them, sends the sum through a
# stack of blocks and compares what comes out with every row of the token table: the better a row fits, the higher the
# score of that token as the next one. [definition]
#
# **When you need it.** You choose between a model that writes, one that reads, and one that turns a text into another;
# you load a checkpoint and its scores have a shape that you did not expect; your training loss falls to zero within
# minutes, because the targets are off by one or the mask is. [inference]
#
# **Options.** Three families, which differ in who may see whom and in what is asked of them:
#
# | family | who sees whom | what it learns from | what it is good for | what it can't do | from |
# |---|---|---|---|---|---|
# | encoder (BERT) | every token every other | filling hidden tokens | a vector a token: search, labels, sorting | write
#   | [paper: Devlin et al. 2019, section 3.1] |
# | decoder (GPT, Llama) | each token those before it | the next token, at every place | writing, and everything that
#   can be
#   asked for in words | look ahead | [paper: Radford et al. 2019, section 2] |
# | encoder-decoder (T5, BART, the first transformer) | in the encoder every other; in the decoder those before it, and
#   all of the encoder | the target, given the source | translation, summaries | be one stack
#   | [paper: Raffel et al. 2020, section 2.1] |
#
# **How to choose.** To write, chat or call tools: a decoder, for it is the simplest to train and to serve. For vectors
# of texts: an encoder, or a decoder's last vectors. For a text made of another one, where the source is long and the
# answer short: an encoder-decoder reads the source once. [inference]
#
# **What it costs.** GPT-2 small has {{sizes["gpt2"]:,}} weights, BERT's base size {{sizes["bert-base"]:,}}, T5's small
# one {{sizes["t5-small"]:,}}. [computed] A tied head saves a second table, {{100 * table_share:.0f}} % of GPT-2 small.
# [computed] One pass over a row gives a prediction at each of its places at once, so training on a row costs one pass,
# while writing it costs one a token. [inference]
#
# **What breaks.**
#
# - *Targets off by one.* Row $i$ of the scores speaks of token $i + 1$. Compared with token $i$ the model learns to
#   repeat what it sees. [inference]
# - *A mask in another language.* Zeros and minus infinities where ones and zeros are expected: nothing fails, and every
#   weight is wrong. The last section runs it. [definition]
# - *More tokens than positions.* A learned table has no row for them; the library refuses. [inference]
# - *A head built apart.* A checkpoint with a tied head, loaded into a model with a head of its own, leaves it random.
#   [inference]
#
# **In the wild.** GPT-2 and Llama are decoders, BERT is an encoder, T5 has both stacks. [computed: stacks ==
# [(False, True), (False, True), (True, False), (True, True)]] So has BART [paper: Lewis et al. 2020, section 2.1], and
# so has AlphaCode, which is sometimes counted among decoders. [paper: Li et al. 2022, section 4.1]
#
# ## Where it fits
#
# Before this: {{lesson("block")}}, {{lesson("attention")}} and {{lesson("positions")}}, whose parts are put together
# here. After it: {{lesson("counting")}} counts what is built here, {{lesson("training")}} moves its weights, and
# {{lesson("generation")}} writes with it. [definition]

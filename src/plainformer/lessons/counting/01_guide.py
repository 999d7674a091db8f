# %% [hidden]
import plainformer as pf
from plainformer.conventions import CONVENTIONS, count, rule_of_thumb
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson
from plainformer.report.figures import label

gpt2 = pf.presets["gpt2"]
total = Ledger.of(gpt2).total
rule = rule_of_thumb(12, 768, 50257)
counts = {name: count(gpt2, name).total for name in CONVENTIONS}
least, most = min(counts.values()), max(counts.values())
untied_gap = counts["untied"] - counts["tensors"]
llama = Ledger.of(pf.presets["llama-3-8b"])

# %% [markdown]
# # Counting
#
# ## In practice
#
# **In one sentence.** A model's size is the number of entries in its weights, and follows from a handful of whole
# numbers in its config before anything is downloaded: GPT-2 small has {{total:,}}. [computed]
#
# **When you need it.** You ask whether a model fits a card; a paper says one size and the code prints another; you
# compare two models "of the same size" and want to know who left out what; you plan a model for a budget of
# parameters. [inference]
#
# **Options.** Eight honest counts of one and the same GPT-2 small:
#
# | convention | what it counts | GPT-2 small | from |
# |---|---|---|---|
# | `tensors` | every tensor once, a tied head not again: what a checkpoint holds | {{counts["tensors"]:,}}
#   | [source: openai/gpt-2@9b63575, model_card.md] [computed] |
# | `nanogpt` | the vocabulary padded to a multiple of {{64}}, positions left out | {{counts["nanogpt"]:,}}
#   | [source: karpathy/nanoGPT@3adf61e, model.py] [computed] |
# | `bias-free` | as `nanogpt`, without any bias, norms of gain only | {{counts["bias-free"]:,}}
#   | [source: karpathy/nanoGPT@3adf61e, model.py] [computed] |
# | `lesson` | every tensor, but attention built without biases | {{counts["lesson"]:,}} | [computed] |
# | `untied` | every tensor, and the head a matrix of its own: many courses | {{counts["untied"]:,}} | [computed] |
# | `lora` | padded, positions, and low-rank corrections of rank four on queries, values, head | {{counts["lora"]:,}}
#   | [computed] |
# | `authors` | as `lora`, without biases but on the merged layer of queries, keys, values | {{counts["authors"]:,}}
#   | [source: Sanaelotfi/sublora-bounds-for-llms@c606ea6, sublora/nn/model.py] [computed] |
# | `authors-released` | as `lora`, without biases at all | {{counts["authors-released"]:,}}
#   | [source: Sanaelotfi/sublora-bounds-for-llms@c606ea6, sublora/sublora_pipeline.py] [computed] |
#
# **How to choose.** To load a model, count tensors: that is what memory holds. To compare with somebody's table, count
# as they do, and say so. [inference] To compare models of different vocabularies, leave the tables out, as is done for
# laws of scaling. [paper: Kaplan et al. 2020, section 2.1] A table is read by looking up one row: its size says little
# about the work. [inference]
#
# **What it costs.** Nothing: `plainformer size gpt2` answers before a download, and `plainformer size gpt2 --explain`
# shows the sum line by line. [definition] What a wrong count costs: between the least and the most of the eight above
# lie {{100 * (most - least) / least:.0f}} %. [computed]
#
# **What breaks.**
#
# - *The rule of thumb, taken for a count.* Twelve squares of the width a layer and the token table give {{rule:,}},
#   {{100 * (1 - rule / total):.2f}} % short. [computed] For Llama 3 8B the same rule would be wrong in both parts: its
#   keys and values are narrower, its middle wider. [computed: llama.total != rule_of_thumb(32, 4096, 128256)]
# - *A tied head, counted twice.* It adds {{untied_gap:,}} to GPT-2 small. [computed]
# - *A label, taken for a number.* "{{label(total)}}" stands for anything within half a million; several shapes hide
#   behind one label. [inference]
# - *Heads, read off a size.* Their number does not change it: the proof is below. [inference]
#
# **In the wild.** OpenAI's names of the four checkpoints count tensors [source: openai/gpt-2@9b63575, model_card.md];
# the paper's own labels were other ones, and OpenAI says that they were wrong. [source: openai/gpt-2@9b63575,
# README.md] What they were counts *of* comes out in the last section. [definition]
#
# ## Where it fits
#
# Before this: {{lesson("block")}} and {{lesson("attention")}}, whose matrices are counted here. After it:
# {{lesson("experts")}}, where a token meets only some of what is counted; {{lesson("budget")}}, where counts become
# bytes and hours; {{lesson("auditing")}}, where a count decides what a paper's figure shows. [definition]

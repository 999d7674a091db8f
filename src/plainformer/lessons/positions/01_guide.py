# %% [hidden]
import plainformer as pf
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson

gpt2, llama = pf.presets["gpt2"], pf.presets["llama-3-8b"]
rows = sum(w.count for w in Ledger.of(gpt2).rows if w.kind == "position")
rotary = llama.decoder.layers[0][0].branches[0].part.scores.rotary


def how(name):
    """How a published model is told its positions."""
    stack = pf.presets[name].main
    if stack.positions or stack.relative:
        return "rows" if stack.positions else "bias"
    return "rotary" if stack.layers[0][0].branches[0].part.scores.rotary else "not at all"


llama_rows = sum(w.count for w in Ledger.of(llama).rows if w.kind == "position")

# %% [markdown]
# # Positions
#
# ## In practice
#
# **In one sentence.** Attention compares tokens and not places, so a model must be told where each token stands: by
# adding something to the token (learned rows, sinusoids), by turning queries and keys (rotary), or by adding
# something to the scores (ALiBi, relative bias). [definition]
#
# **When you need it.** You feed a model a longer text than it was trained on and it fails at once, or slowly; a
# config says `rope_theta`, `rope_scaling`, `max_position_embeddings`; you port a model and everything agrees but the
# second token onwards. [inference]
#
# **Options.** From the plainest to the one that most models have:
#
# | option | what it does | beyond the trained length | weights | from |
# |---|---|---|---|---|
# | none | the causal mask alone breaks the tie [paper: Haviv et al. 2022, abstract] | works, untrained | none
#   | [inference] |
# | learned rows | a row for each place, added to the token | impossible: there is no row | a table
#   | [source: openai/gpt-2@9b63575, src/model.py] |
# | sinusoids | fixed waves of many lengths, added to the token | possible, untrained | none
#   | [paper: Vaswani et al. 2017, section 3.5] |
# | relative bias | a learned number for each distance, added to scores | far distances share one | a small table
#   | [paper: Raffel et al. 2020, section 2.1] |
# | ALiBi | a penalty that grows with distance, added to scores | made for it | none
#   | [paper: Press et al. 2021, section 3] |
# | rotary | pairs of query and key turned by an angle that grows with the place | only with stretched angles | none
#   | [paper: Su et al. 2021, section 3.2] |
#
# **How to choose.** For a decoder of your own: rotary, which needs no weights and no limit fixed beforehand; it is
# what Llama has. [paper: Touvron et al. 2023, section 2.2] To run somebody's model at greater length than it was made
# for, use the scaling that its config names, and no other: weights were trained with it. [inference]
#
# **What it costs.** A learned table is {{rows:,}} weights in GPT-2 small; rotary, ALiBi and sinusoids have none:
# Llama 3 8B holds {{llama_rows}} for positions. [computed] In time nothing that one would notice. [inference]
#
# **What breaks.**
#
# - *A text longer than the table.* Learned rows end; a library must refuse, and ours does. [inference]
# - *The other pairing.* Rotary turns pairs of numbers, and there are two habits of pairing them: neighbours, or one
#   from each half. Loaded with the wrong one, a model writes nonsense that is nearly grammatical. [inference]
# - *An offset.* BART's and OPT's tables begin at row two. [source: huggingface/transformers@ab91074,
#   src/transformers/models/opt/modeling_opt.py] [source: huggingface/transformers@00646d2,
#   src/transformers/models/bart/modeling_bart.py] A port that reads row zero for the first token is off by two
#   everywhere, and no shape complains. [inference]
# - *Positions counted from the wrong end.* With a cache the new token's place is how much was read before, and with
#   padding at the left it is less: each row of a batch has its own. [inference]
# - *Another base.* Llama 3 8B turns with a base of {{rotary.theta:,.0f}}. [computed] The paper's is ten thousand.
#   [paper: Su et al. 2021, section 3.3] With the wrong one the near past still fits and the far one does not.
#   [inference]
#
# **In the wild.** GPT-2 and BERT have learned rows, T5 a relative bias, Llama 3, Mixtral 8x7B and DeepSeek-V3 rotary.
# [computed: [how(name) for name in ("gpt2", "bert-base", "t5-small")] == ["rows", "rows", "bias"]] [computed:
# {how(name) for name in ("llama-3-8b", "mixtral-8x7b", "deepseek-v3")} == {"rotary"}] The first transformer had
# sinusoids. [paper: Vaswani et al. 2017, section 3.5]
#
# ## Where it fits
#
# After {{lesson("attention")}}. [definition] What is added to tokens joins the stream that {{lesson("block")}}
# describes; a whole model with its table of rows is {{lesson("gpt")}}. [definition] Why a cache keeps turned keys is
# {{lesson("generation")}}. [definition]

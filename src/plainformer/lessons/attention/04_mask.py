# %% [hidden]
import numpy as np

from plainformer import formulas, reference
from plainformer.cost.rules import score_elements
from plainformer.families.parts import attention, dot
from plainformer.initial import lesson as lesson_weights
from plainformer.lessons.three_tokens import K_HSK, Q_HTK, V_HSK
from plainformer.lessons.words import lesson, measured, vector
from plainformer.report.drawings import maps

scores_TS = formulas.scaled_scores(Q_HTK, K_HSK, 2**-0.5)[0]
see_TS = np.tril(np.ones((3, 3), bool))
masked_TS, open_TS = formulas.softmax(scores_TS, see_TS), formulas.softmax(scores_TS)

one_head = attention(d_model=16, n_heads=1, n_kv_heads=1, d_head=16, scores=dot(16))
x_TD = formulas.layer_norm(np.random.default_rng(3).normal(size=(6, 16)))
of_head = reference.Weights(dict(lesson_weights(one_head, seed=3)))


def looks(causal):
    trace = {}
    reference.run(one_head, of_head, x_TD, reference.Where(np.arange(6), causal, trace=trace))
    return trace[".weights"][0]


encoder_TS, decoder_TS = looks(False), looks(True)
same_rows = [bool(np.allclose(a, b, rtol=0, atol=1e-12)) for a, b in zip(encoder_TS, decoder_TS, strict=True)]
wrong_S = formulas.softmax(scores_TS, np.where(see_TS, 0.0, -np.inf).astype(bool))[0]
growth = [float(row["written out"].split("x ")[1].rstrip(")")) for row in measured("scores")["rows"][1:]]
pairs = [int((w > 0).sum()) for w in (open_TS, masked_TS)]

# %% [markdown]
# ## The mask: who may be seen
#
# **Everyday picture.** A storyteller makes up a tale word by word, and can lean on what was said, never on what comes.
# An editor has the whole page and looks up and down at will.
#
# **Where the analogy breaks.** The storyteller hears one word after the other. A decoder in training has the whole text
# before it, and all its tokens are worked on at once; that none looks ahead is the mask's doing and nothing else's.
# [inference]
#
# **Tiny worked example.** Three tokens make {{pairs[0]}} pairs of one that asks and one that is asked. In an encoder
# all count; in a decoder the {{pairs[1]}} in which the asked stands no later. [computed] The first token of the
# example, were it free to look ahead, would look with weights {{vector(open_TS[0])}}; masked it looks with
# {{vector(masked_TS[0], "g")}}. [computed]

# %% [figure: masks]
names = [str(i + 1) for i in range(6)]
maps(
    "Where six tokens look: the same head, without and with the mask",
    {"encoder": encoder_TS, "decoder": decoder_TS},
    names,
    names,
)

# %% [markdown]
# **How to read it.** A row is a token that looks, a column one that is looked at; the darker, the more weight; a row
# adds up to one. At the left every square has some colour. At the right the upper triangle is empty: nobody looks
# ahead. The first row is one dark square: it has only itself, and puts a weight of {{decoder_TS[0, 0]:g}} on it.
# [computed] The last row is the same in both, since the last token may see everything anyway; no other row is.
# [computed: same_rows == [False] * 5 + [True]]
#
# **Formula.** The mask is added to the scores before the softmax:
#
# $$
# A = \mathrm{softmax}\left(\frac{Q K^\top}{\sqrt{d}} + M\right), \qquad
# M_{ij} = 0 \text{ if } j \le i, \text{ else } -\infty
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $Q, K$ | all queries, all keys: a row for each token | three rows of two |
# | $Q K^\top$ | all products of a query with a key at once | three rows of three |
# | $M$ | zero where $i$ may see $j$, minus infinity where not | {{int((~see_TS).sum())}} places are minus infinity |
# | $\mathrm{softmax}$ | along each row | |
# | $A$ | the weights | the first row is {{vector(masked_TS[0], "g")}} |
#
# **In words.** What may not be seen gets a score so low that its share is zero: $e^{-\infty} = 0$.
#
# **With the numbers.** The second row's scores are {{vector(scores_TS[1])}}; the last becomes minus infinity; raised
# they are {{vector(np.exp(scores_TS[1, :2]))}} and zero, and the shares {{vector(masked_TS[1])}}. [computed]

# %%
add_TS = np.where(see_TS, 0.0, -np.inf)
print("added      ", formulas.softmax(scores_TS + add_TS)[0])
print("by boolean ", formulas.softmax(scores_TS, see_TS)[0])
print("the additive mask taken for a boolean one:")
print(formulas.softmax(scores_TS, add_TS.astype(bool))[0])  # -inf counts as true, 0 as false

# %% [markdown]
# The last line is the quietest mistake in this field. An additive mask, read as "may see", is true where it should be
# false: the first token looks at the two that it should not, and at itself not at all. Nothing fails. [computed:
# float(wrong_S[0]) == 0 and bool((wrong_S[1:] > 0).all())] So masks here are booleans that say *may see*, and no
# routine takes another kind. [definition]
#
# **Its size.** The weights are a square: {{2048**2:,}} pairs for a row of {{2048:,}} tokens, of which a decoder uses
# {{2048 * 2049 // 2:,}}. [computed] Written out in float32 for a batch of four and eight heads, they take
# {{score_elements(4, 8, 1024) * 4 // 2**20}} MiB at {{1024:,}} tokens and {{score_elements(4, 8, 4096) * 4 // 2**30}}
# GiB at {{4096:,}}: four times the length, {{score_elements(4, 8, 4096) // score_elements(4, 8, 1024)}} times the
# room. [computed] One layer of GPT-3 with a batch of four, at its {{2048:,}} tokens and {{96}} heads:
# {{score_elements(4, 96, 2048) * 4 / 2**30:g}} GiB. [computed] A fused kernel works through the square in tiles and
# never holds it. [paper: Dao et al. 2022, section 3.1] What one layer keeps for its backward pass, measured:
# [definition]

# %% [measured: scores]

# %% [markdown]
# Fused, twice the tokens are twice the bytes. Written out, they are {{growth[0]}}, {{growth[1]}}, {{growth[2]}}
# times: the nearer to four the longer the row, since beside the squares there are queries, keys and values, which
# grow with the length alone. [measured: scores] [computed: growth == sorted(growth) and growth[-1] < 4]
#
# **In the library.** Who may be seen is computed from positions, so that it is right with a cache, where the queries
# are the last few and the keys are all: [definition]

# %% [source: reference.Where.allowed]

# %% [markdown]
# **Why it matters.** The mask is what makes one pass over a text give a prediction at every place, each honest: a row
# of a thousand tokens is a thousand lessons at once. [inference] And it is the one difference between a block that
# reads and a block that writes: {{lesson("gpt")}}. [inference]

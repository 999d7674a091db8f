# %% [hidden]
import numpy as np

from plainformer import formulas, reference, spec
from plainformer.gradients import backward, rule, two_tokens
from plainformer.gradients.formulas import attention_back, rotate_back, shared_back, softmax_back
from plainformer.lessons.words import lesson, rows, small, vector
from plainformer.report.diagrams import Arrow, Box, flow

_, to = two_tokens.way_back()
place = "decoder.layers.0.attention"
met = next(one for one in to.met if one.place == place)
w = reference.Weights(two_tokens.arrays(), place)
q_TK, k_SK, v_SK = (met.x @ w[f"{name}.weight"].T for name in "qkv")
scale = 2**-0.5
see_TS = np.tril(np.ones((2, 2), bool))
out_TK, P_TS = formulas.attention(q_TK[None], k_SK[None], v_SK[None], see_TS, scale)
P_TS = P_TS[0]
out = next(one for one in to.met if one.place == f"{place}.out")
d_out_TK = out.d_x
d_P_TS, d_S_TS = to.trace[f"{place}.weights"][0], to.trace[f"{place}.scores"][0]
paid = float((P_TS[1] * d_P_TS[1]).sum())

# %% [markdown]
# ## Attention: three products and a softmax, from the last
#
# **Everyday picture.** A reader has mixed an answer out of several sources: so much of this, so much of that. The
# answer turns out to be too sweet. Two complaints go back. To each source, by how much of it was used: you were too
# sweet. And to the one who decided how much to use: less of the sweet one, more of the other.
#
# **Where the analogy breaks.** The shares add up to one, so "less of this" is always "more of the rest"; and the one
# who decides is no person but two vectors, a query and a key, each of which is told what the other was. [inference]
#
# **Tiny worked example.** In the small model the second token mixes the values {{vector(v_SK[0])}} and
# {{vector(v_SK[1])}} by the weights {{vector(P_TS[1])}}. The slope along what it says is {{vector(d_out_TK[1])}}.
# Along the weights that is {{vector(d_P_TS[1])}}: each value against the slope. Their average, weighted, is
# {{paid:.4f}}; less that, times the weight, the scores get {{vector(d_S_TS[1], ".4f")}}: less of the one, as much
# more of the other. [computed] The first token sees itself alone, so its weight is one whatever its score: it gets
# {{vector(d_S_TS[0], ".0f")}}. [computed]

# %% [figure: attention]
flow(
    "Attention, there and back",
    {
        "q": Box(0, 0, "queries Q"),
        "k": Box(0, 1, "keys K"),
        "v": Box(2, -1, "values V"),
        "s": Box(1, 0, "scores S\nQ K^T, scaled", 0),
        "p": Box(2, 0, "weights P\nsoftmax", 1),
        "o": Box(3, 0, "P V\nwhat is said", 0),
        "do": Box(3, 1, "slope of P V", 2),
        "dp": Box(2, 1, "slope of P\nit times V^T", 2),
        "ds": Box(1, 1, "slope of S\nthrough softmax", 2),
        "dv": Box(2, 2, "slope of V\nP^T times it", 2),
        "dq": Box(1, 2, "slopes of Q, K\nby K, by Q", 2),
    },
    [
        Arrow("q", "s"),
        Arrow("k", "s"),
        Arrow("s", "p"),
        Arrow("p", "o"),
        Arrow("v", "o"),
        Arrow("o", "do", dashed=True),
        Arrow("do", "dp", dashed=True),
        Arrow("dp", "ds", dashed=True),
        Arrow("do", "dv", dashed=True),
        Arrow("ds", "dq", dashed=True),
    ],
)

# %% [markdown]
# **How to read it.** Above, the way there. Below it, under each box, what comes back to it, from the right to the left.
# Values hear at once; queries and keys only through softmax. Every one of the slopes is made with something of the way
# there: the weights, the values, the keys, the queries. These are what is kept. [inference]
#
# **Formula.** With $\delta$ for the slope of what is written under it, and rows for tokens:
#
# $$
# \delta_V = P^\top \delta_O, \quad \delta_P = \delta_O V^\top, \quad
# \delta_S = P \odot (\delta_P - \mathrm{rowsum}(P \odot \delta_P)), \quad
# \delta_Q = s\, \delta_S K, \quad \delta_K = s\, \delta_S^\top Q
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $Q, K, V$ | queries, keys, values | rows of two numbers |
# | $P$ | the weights, each row a softmax | {{rows(P_TS)}} |
# | $O$ | what is said, $P V$ | {{rows(out_TK[0])}} |
# | $S$ | what softmax reads, $s\, Q K^\top$ | |
# | $s$ | the scale | {{scale:.4f}} |
# | $\odot$ | entry times entry | |
# | $\top$ | rows and columns changed | |
#
# **In words.** Values get the slope by the weights that read them. Weights get the slope against the values. Scores get
# what their weight would earn above the average, by the weight. Queries get keys, keys get queries.
#
# *Where it comes from.* $O = P V$ is a product twice over: in $P$ with $V$ held still, and the other way round; each
# side gets the slope times the other, as a linear layer did. The same for $Q K^\top$. Between them lies softmax's own
# rule. [inference] What was masked has the weight zero, and zero times anything is what goes back: a mask needs no
# rule. [inference]
#
# **With the numbers.** The second token's scores: {{P_TS[1, 0]:.3f}} times ({{d_P_TS[1, 0]:.4f}} less {{paid:.4f}}) =
# {{d_S_TS[1, 0]:.4f}}. [computed: bool(np.isclose(P_TS[1, 0] * (d_P_TS[1, 0] - paid), d_S_TS[1, 0]))]

# %%
d_V = P_TS.T @ d_out_TK
d_P = d_out_TK @ v_SK.T
d_S = P_TS * (d_P - (P_TS * d_P).sum(-1, keepdims=True))
d_Q, d_K = scale * d_S @ k_SK, scale * d_S.T @ q_TK
d = attention_back(q_TK[None], k_SK[None], v_SK[None], see_TS, scale, 0.0, None, None, d_out_TK[None])
for name, by_hand, library in (("Q", d_Q, d.q_HTK), ("K", d_K, d.k_HSK), ("V", d_V, d.v_HSJ)):
    print(f"slope of {name}: {rows(by_hand, '.4f')}   the library differs by {small(abs(by_hand - library[0]).max())}")

# %% [markdown]
# **Around it.** A turn of queries and keys by their position is undone by turning the slope the other way. Where
# several heads read the same keys and values, those get the sum of the heads' slopes. And the token that was read
# into queries, keys and values gets three slopes, and their sum is its own. [inference]
#
# **In the library.** The formulas, and the rule of the part that puts them together: [definition]

# %% [source: attention_back]

# %% [source: rotate_back]

# %% [source: shared_back]

# %% [source: rule.dispatch(spec.Attention)]

# %% [markdown]
# **Why it matters.** Softmax's rule explains why scores are scaled: where one weight is nearly one and the others
# nearly nothing, $P \odot (\ldots)$ is nearly zero everywhere, and queries and keys stop learning.
# {{lesson("attention")}} measures how soon that comes. [inference] And the weights $P$, as many as there are pairs of
# tokens, are what a fused kernel makes again rather than keeps. [paper: Dao et al. 2022, section 3.1]

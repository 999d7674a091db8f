# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.lessons.three_tokens import CAUSAL_TS, K_HSK, Q_HTK, V_HSK
from plainformer.lessons.words import rows, vector
from plainformer.report.diagrams import Arrow, Box, flow

q_TK, k_SK, v_SK = Q_HTK[0], K_HSK[0], V_HSK[0]  # three tokens, two numbers each
raw_TS = q_TK @ k_SK.T
scores_TS = raw_TS / np.sqrt(2)
out_HTK, weights_HTS = formulas.attention(Q_HTK, K_HSK, V_HSK, CAUSAL_TS, 2**-0.5)
out_TK, weights_TS = out_HTK[0], weights_HTS[0]
parts = np.exp(scores_TS[2])
open_S = formulas.softmax(scores_TS)[0]

# %% [markdown]
# ## One head: ask, offer, say
#
# **Everyday picture.** A reading room. Everybody has written a note; on its cover stands what it is about. You have a
# question. You compare it with the covers of all notes that were there when you came in, and you go home with a blend
# of the notes: much of those whose covers fit, a little of the others.
#
# **Where the analogy breaks.** You would take one note, or three; a head takes some of every note it may see, and
# none is ever left out wholly. [computed: bool((weights_TS[2] > 0).all())] And nobody decides: question, cover and
# note are three products of the token's vector with matrices that training has set. [definition]
#
# **Tiny worked example.** Three tokens, two numbers each. Queries {{rows(q_TK, "g")}}; keys {{rows(k_SK, "g")}};
# values {{rows(v_SK, "g")}}. The third token's query meets the three keys in products {{vector(raw_TS[2], "g")}};
# divided by $\sqrt{2}$ they are {{vector(scores_TS[2])}}. Raised, they are {{vector(parts)}}, {{parts.sum():.4f}} in
# all; divided by that they are the weights {{vector(weights_TS[2])}}. The values, mixed so, are
# {{vector(out_TK[2])}}. [computed]

# %% [figure: head]
flow(
    "One head, the third token's turn",
    {
        "x": Box(0, 1, "the third token"),
        "others": Box(0, 3, "tokens one to three"),
        "q": Box(1, 1, f"query\n{vector(q_TK[2], 'g')}", 0),
        "k": Box(1, 2.3, f"keys\n{rows(k_SK, 'g')}", 1),
        "v": Box(1, 3.7, f"values\n{rows(v_SK, 'g')}", 2),
        "s": Box(2, 1, f"scores\n{vector(scores_TS[2], '.2f')}"),
        "w": Box(2, 2.3, f"weights\n{vector(weights_TS[2], '.2f')}"),
        "o": Box(2, 3.7, f"what it takes\n{vector(out_TK[2], '.2f')}", 2),
    },
    [
        Arrow("x", "q"),
        Arrow("others", "k"),
        Arrow("others", "v"),
        Arrow("q", "s", "q . k"),
        Arrow("k", "s"),
        Arrow("s", "w", "softmax"),
        Arrow("v", "o"),
        Arrow("w", "o", "mix"),
    ],
)

# %% [markdown]
# **How to read it.** From the left, three products make a query of the token that asks, and keys and values of all
# that it may see. Down the right side, scores become weights and weights mix values. Keys and values never meet: what
# a token offers and what it hands over are two different things. [definition]
#
# **Formula.** For the token at $i$, over all $j$ that it may see:
#
# $$
# a_{ij} = \frac{e^{q_i \cdot k_j / \sqrt{d}}}{\sum_{j'} e^{q_i \cdot k_{j'} / \sqrt{d}}}, \qquad
# o_i = \sum_j a_{ij} v_j, \qquad q_i = W_q x_i, \quad k_j = W_k x_j, \quad v_j = W_v x_j
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $x_i$ | the normed stream at token $i$ | |
# | $W_q, W_k, W_v$ | three learned matrices of this head | already applied |
# | $q_i$ | the query of the token that asks | {{vector(q_TK[2], "g")}} |
# | $k_j, v_j$ | key and value of a token that it may see | {{rows(k_SK, "g")}}; {{rows(v_SK, "g")}} |
# | $q \cdot k$ | multiply number by number and add up | {{vector(raw_TS[2], "g")}} |
# | $d$ | numbers in a query: the width of the head | {{len(q_TK[2])}} |
# | $a_{ij}$ | the weight of $j$ for $i$; for each $i$ they add up to one | {{vector(weights_TS[2])}} |
# | $o_i$ | what the head says at $i$ | {{vector(out_TK[2])}} |
#
# **In words.** Compare the question with every label, turn the fits into shares, take that share of each content.
#
# **With the numbers.** {{weights_TS[2, 0]:.3f}} times {{vector(v_SK[0], "g")}}, {{weights_TS[2, 1]:.3f}} times
# {{vector(v_SK[1], "g")}} and {{weights_TS[2, 2]:.3f}} times {{vector(v_SK[2], "g")}} add up to {{vector(out_TK[2])}}.
# [computed] The second token, which may see two, has the weights {{vector(weights_TS[1, :2])}} and says
# {{vector(out_TK[1])}}; the first sees itself alone, with a weight of {{weights_TS[0, 0]:g}}. [computed]

# %%
scores_TS = q_TK @ k_SK.T / np.sqrt(2)
see_TS = np.tril(np.ones((3, 3), bool))  # may look at itself and back
scores_TS = np.where(see_TS, scores_TS, -np.inf)
raised_TS = np.exp(scores_TS - scores_TS.max(1, keepdims=True))
weights_TS = raised_TS / raised_TS.sum(1, keepdims=True)
print(weights_TS)
print(weights_TS @ v_SK)

# %% [markdown]
# Subtracting each row's largest score before raising changes nothing, since it multiplies the top and the bottom of the
# fraction alike, and keeps $e^x$ from overflowing. [inference]
#
# **In the library.** The same, for all heads at once; softcaps, sinks and position biases are extra lines: [definition]

# %% [source: formulas.softmax]

# %% [source: formulas.attention]

# %% [markdown]
# **Why it matters.** All that a model knows of context passes here. A weight is a number between zero and one that
# depends on two tokens, so it can be looked at: `plainformer inspect MODEL --prompt TEXT` draws it.
# [inference]

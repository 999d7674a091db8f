# %% [hidden]
import numpy as np

from plainformer import formulas, ledger, reference
from plainformer.families import decoders
from plainformer.families.parts import attention, dot
from plainformer.initial import initial
from plainformer.lessons.words import small
from plainformer.records import replace

tiny = decoders.gpt2(vocab_size=50, max_seq_len=16, d_model=32, n_layers=2, n_heads=4)
arrays = initial(tiny, "lesson", seed=0)
rng = np.random.default_rng(0)

# %% [markdown]
# ## Going deeper
#
# ### The variance of a score
#
# *Claim.* Let the numbers of $q$ and $k$ be independent, with mean zero and variance one. Then $q \cdot k$ has
# mean zero and variance $d$. [inference]
#
# *Proof.* $q \cdot k = \sum_l q_l k_l$. Each term has the mean $E[q_l] E[k_l] = 0$, for the two are independent; and
# the variance $E[q_l^2 k_l^2] - 0 = E[q_l^2] E[k_l^2] = 1$. The terms are independent of each other, so their
# variances add: there are $d$ of them. Dividing a number by $\sqrt{d}$ divides its variance by $d$. [inference]

# %%
for d in (16, 64, 256):
    q, k = rng.normal(size=(2, 20000, d))
    print(f"d {d:>3}: variance of q.k {(q * k).sum(1).var():7.2f}")
q, k = rng.choice([-1.0, 1.0], size=(2, 20000, 64))
coins = (q * k).sum(1)
print(f"of plus and minus ones, d 64: {coins.var():.2f}")

# %% [markdown]
# What the proof needs is little: no normal distribution, only independence and the two moments. Numbers that are plus
# or minus one do as well. [computed: abs(coins.var() - 64) < 3]
#
# ### A decoder is causal
#
# *Claim.* In a stack with causal masks, the stream at token $i$ after any layer depends on tokens up to $i$ alone; so
# do the logits there. [inference]
#
# *Proof*, by induction on layers. Before the first, the stream at $i$ is the row of token $i$ plus the row of place
# $i$: it depends on that token alone. Suppose the claim after layer $l - 1$. In layer $l$: a norm works at each token
# alone, so what is read at $j$ depends on tokens up to $j$. Query, key and value at $j$ are products of that. What a
# head says at $i$ is made of $q_i$ and of $k_j, v_j$ with $j \le i$, since the weight of every later $j$ is exactly
# zero; all these depend on tokens up to $i$. `out` and the addition work at $i$ alone, and so does the
# feed-forward half. The last norm and the head work at each token alone too. [inference]

# %%
tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
changed = [*tokens[:6], 7, *tokens[7:]]  # another seventh token
moved_T = abs(reference.logits(tiny, arrays, tokens) - reference.logits(tiny, arrays, changed)).max(-1)
print("causal: moved by ", moved_T.round(3))

leaky = replace(tiny, decoder=replace(tiny.decoder, causal=False))
leaked_T = abs(reference.logits(leaky, arrays, tokens) - reference.logits(leaky, arrays, changed)).max(-1)
print("no mask: moved by", leaked_T.round(3))

# %% [markdown]
# In floating point the claim holds to the last bit, for a weight of exactly zero times a finite value adds exactly
# zero. [computed: float(moved_T[:6].max()) == 0] One place that leaks is enough to break it, wherever it stands: the
# induction needs every layer. [computed: float(leaked_T[:6].max()) > 0]
#
# One consequence is worth money: the logits at all places come out of one pass, each as if the text ended there:
# [definition]

# %%
whole_TV, alone_TV = reference.logits(tiny, arrays, tokens), reference.logits(tiny, arrays, tokens[:5])
print(f"the fifth token's logits, in the whole and alone, differ: {small(abs(whole_TV[4] - alone_TV[-1]).max())}")

# %% [markdown]
# So the loss over a whole text costs one pass, and not one for each token.
# [computed: bool(np.allclose(whole_TV[4], alone_TV[-1], rtol=0, atol=1e-12))]
#
# ### What a head says lies among the values
#
# *Claim.* Each number of a head's output lies between the smallest and the largest of that number among the values
# that it may see. [inference] *Proof.* Weights are positive and add up to one, so the output is a weighted mean: with
# $m$ the smallest, $\sum_j a_j v_j \ge \sum_j a_j m = m$, and likewise from above. [inference]
# %%
q_HTK, k_HTK, v_HTK = rng.normal(size=(3, 2, 8, 4))
said_HTK, _ = formulas.attention(q_HTK, k_HTK, v_HTK, np.tril(np.ones((8, 8), bool)), 0.5)
low, high = (f.accumulate(v_HTK, axis=1) for f in (np.minimum, np.maximum))  # among the values up to each token
inside = ((said_HTK >= low - 1e-12) & (said_HTK <= high + 1e-12)).all()
print(inside)

# %% [markdown]
# So a head can't make anything larger than what it is given; what lets the stream grow is `out`, and the addition.
# [computed: bool(inside)]
#
# ### The number of heads does not change the count
#
# *Claim.* With heads of width $d / H$, attention has $4 d^2$ weights whatever $H$ is. [inference] *Proof.* A head's
# query matrix has $d / H$ rows of $d$; $H$ of them under each other have $d$ rows of $d$. The same holds for keys and
# values, and `out` has $d$ rows of $d$ in any case. [inference] So a count of weights can't tell how many heads a
# model has, and a paper that gives its size and not its heads has not given its shape. [inference]

# %%
for n in (1, 2, 8, 64):
    one = attention(d_model=64, n_heads=n, n_kv_heads=n, d_head=64 // n, scores=dot(64 // n))
    print(f"{n:>2} heads of {64 // n:>2}: {sum(w.count for w in ledger.weights(one)):,} = 4 * 64^2")

# %% [markdown]
# ### Side by side is a sum
#
# *Claim.* $W_o$ times the heads side by side is the sum over heads of $W_o^{(h)} o^{(h)}$. [inference] *Proof.* Row
# $r$ of the product is $\sum_c (W_o)_{rc}\, o_c$ over all places $c$ of the long vector. Cut that sum where one head
# ends and the next begins: each piece is row $r$ of $W_o^{(h)} o^{(h)}$. [inference] So "concatenate" in the papers
# names a way of storing, not an operation: a head writes into the stream through columns of its own, whatever the
# others do. [inference]

# %%
o, W = rng.normal(size=12), rng.normal(size=(12, 12))
print(np.allclose(W @ o, sum(W[:, 3 * h : 3 * h + 3] @ o[3 * h : 3 * h + 3] for h in range(4))))

# %% [markdown]
# ### Rows of weights add up to one
#
# In exact arithmetic exactly, for each is divided by their sum; in floating point nearly: [inference]

# %%
trace = {}
reference.logits(tiny, arrays, tokens, trace=trace)
worst = max(float(abs(kept.sum(-1) - 1).max()) for name, kept in trace.items() if name.endswith(".weights"))
print("furthest from one:", small(worst))

# %% [markdown]
# Over all heads and layers of a small model, in float64, no sum is off by more than rounding. [computed: worst < 1e-14]

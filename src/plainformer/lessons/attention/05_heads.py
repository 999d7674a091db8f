# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas, ledger, reference, spec
from plainformer.families.parts import attention, dot
from plainformer.initial import lesson as lesson_weights
from plainformer.lessons.words import lesson, rows, vector
from plainformer.report.diagrams import Arrow, Box, flow
from plainformer.report.drawings import maps

D, H, K = 4, 2, 2  # a stream of four, two heads of two
part = attention(d_model=D, n_heads=H, n_kv_heads=H, d_head=K, scores=dot(K))
w = reference.Weights(dict(lesson_weights(part, seed=7)))
x_TD = formulas.layer_norm(np.random.default_rng(4).normal(size=(3, D)))
trace = {}
out_TD = reference.run(part, w, x_TD, reference.Where(np.arange(3), trace=trace))
weights_HTS = trace[".weights"]
heard_HTK = np.stack([weights_HTS[h] @ (x_TD @ w["v.weight"][K * h : K * (h + 1)].T) for h in range(H)])
W_o = w["out.weight"]
each_HTD = np.stack([heard_HTK[h] @ W_o[:, K * h : K * (h + 1)].T for h in range(H)])
count = {
    n: sum(
        one.count
        for one in ledger.weights(
            attention(d_model=768, n_heads=n, n_kv_heads=n, d_head=768 // n, scores=dot(768 // n))
        )
    )
    for n in (1, 12, 768)
}
gpt2, llama = pf.presets["gpt2"], pf.presets["llama-3-8b"]
of_llama = llama.decoder.layers[0][0].branches[0].part

# %% [markdown]
# ## Many heads
#
# **Everyday picture.** One reader can follow one question through a text. A table of twelve readers follows twelve:
# who is meant by "it", what was the verb, which bracket is open. Each brings a short note, and one clerk writes them
# together.
#
# **Where the analogy breaks.** Nobody hands out the questions. Heads begin as random matrices, alike but for the
# draw, and what each comes to follow is what training finds useful; many turn out to follow nothing that one can
# name. [inference]
#
# **Tiny worked example.** A stream of {{D}} numbers, {{H}} heads of {{K}}. At the third token the first head hears
# {{vector(heard_HTK[0, 2])}}, the second {{vector(heard_HTK[1, 2])}}. Side by side they are {{D}} numbers, and the
# matrix `out` makes {{vector(out_TD[2])}} of them. [computed]

# %% [figure: heads]
flow(
    "Two heads side by side",
    {
        "x": Box(0, 1, "the stream, normed\nfour numbers"),
        "a": Box(1, 0, "head one\ntwo of the four outputs", 0),
        "b": Box(1, 2, "head two\nthe other two", 1),
        "c": Box(2, 1, "side by side\nfour numbers"),
        "o": Box(3, 1, "out\na matrix, four by four", 2),
    },
    [Arrow("x", "a"), Arrow("x", "b"), Arrow("a", "c"), Arrow("b", "c"), Arrow("c", "o")],
)

# %% [markdown]
# **How to read it.** Both heads read the whole stream; what is split in two is what they *say*. Each has its own
# query, key and value matrices, and so its own map of who looks at whom. They meet in `out` and nowhere before.
# [definition]
#
# **Formula.** With $h$ counting the heads:
#
# $$
# \mathrm{Attention}(x) = W_o \begin{pmatrix} o^{(1)} \\ \vdots \\ o^{(H)} \end{pmatrix}
# = \sum_{h=1}^{H} W_o^{(h)} o^{(h)}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $H$ | how many heads | {{H}} |
# | $o^{(h)}$ | what head $h$ says at a token | {{rows(heard_HTK[:, 2])}} |
# | $W_o$ | the matrix `out` | {{D}} by {{D}} |
# | $W_o^{(h)}$ | the columns of it that meet head $h$ | {{D}} by {{K}} |
#
# **In words.** Putting heads side by side and multiplying is the same as multiplying each by its own columns and
# adding.
#
# **With the numbers.** The first head's share at the third token is {{vector(each_HTD[0, 2])}}, the second's
# {{vector(each_HTD[1, 2])}}; together {{vector(each_HTD[:, 2].sum(0))}}, which is what came out above. [computed]

# %%
side_by_side = np.concatenate(list(heard_HTK), -1) @ W_o.T
added = sum(heard_HTK[h] @ W_o[:, K * h : K * (h + 1)].T for h in range(H))
print("side by side = added:", np.allclose(side_by_side, added), "= the library's:", np.allclose(added, out_TD))

# %% [figure: two-heads]
maps("The same three tokens, two heads", {"head one": weights_HTS[0], "head two": weights_HTS[1]}, "123", "123")

# %% [markdown]
# **How to read it.** One square grid for each head, read as before: a row looks, a column is looked at. The two
# differ though they read the same stream: that is what a second head is for. [computed: not
# bool(np.allclose(weights_HTS[0], weights_HTS[1], atol=0.01))]
#
# **What heads cost.** Nothing in weights: at a width of {{768}} one head, {{12}} heads and {{768}} heads all have
# {{count[12]:,}}. [computed] [computed: len(set(count.values())) == 1] GPT-2 small takes twelve of
# {{gpt2.d_model // 12}}. [computed] What they cost is scores: a square of them for each head. [inference]
#
# **Shared keys and values.** While a model writes, keys and values of every head of every token are kept. In Llama 3
# 8B {{of_llama.n_heads}} heads share {{of_llama.n_kv_heads}} sets, so what is kept is
# {{of_llama.n_heads // of_llama.n_kv_heads}} times smaller. [computed] It is the same formula with keys and values
# repeated: the reference does just that. [definition]
#
# **In the library.** The rule of attention: projections, heads, rotation if there is one, the formula, `out`.
# [definition]

# %% [source: reference.run.dispatch(spec.Attention)]

# %% [markdown]
# **Why it matters.** That heads only *add* means each can be read, measured or removed alone: the sum without it is
# what the others said. [paper: Elhage et al. 2021, section "Attention heads are independent and additive"] And it is
# why the query, key, value and output matrices of a checkpoint can be stored fused, split or reordered by head
# without changing the model: {{lesson("auditing")}} meets all three. [inference]

# %% [hidden]
import plainformer as pf
from plainformer import spec
from plainformer.cost import Cost
from plainformer.cost.flops import Work, flops, scores_and_mix
from plainformer.lessons.words import power
from plainformer.report.drawings import shares


def split(name, T):
    """Operations of one forward pass over T tokens, by part."""
    model = pf.presets[name]
    attention, feed = (residual.branches[0].part for residual in model.decoder.layers[0])
    n, all_pairs, none = len(model.decoder.layers), Work(1, T, T), Work(1, T, 0)
    return {
        "attention's matrices": n * flops(attention, none),
        "scores and mixing": n * (flops(attention, all_pairs) - flops(attention, none)),
        "feed-forward": n * flops(feed, all_pairs),
        "head": flops(model.head, all_pairs),
    }


T = 1024
small = split("gpt2", T)
exact = sum(small.values())
cost = Cost.of(pf.presets["gpt2"], 1, T)
rule = 2 * cost.ledger.total * T
gap = exact / rule
idle = 2 * T * sum(w.count for w in cost.ledger.weights if len(w.shape) == 1 or w.kind == "position")
tiny = flops(spec.Linear(n_in=3, n_out=2), Work(1, 1, 1))
N3, D3, n_layers3 = 2048, pf.presets["gpt3"].d_model, 96
gpt3 = {name: n // n_layers3 for name, n in split("gpt3", N3).items()}
naive_scores, naive_feed = N3**2 * D3, N3 * D3**2
L, D, V = len(pf.presets["gpt2"].decoder.layers), cost.spec.d_model, cost.spec.vocab_size


def gap_at(T):
    return sum(split("gpt2", T).values()) / (2 * cost.ledger.total * T)


# %% [markdown]
# ## Operations: what "two for each parameter" leaves out
#
# **Everyday picture.** A shop's bill by the number of things in the basket, each at two pence. Quick, and nearly
# right; only the wine is priced by how many guests will share it.
#
# **Where the analogy breaks.** A bill adds prices that somebody set. Here the price is exact, each number of a matrix
# multiplies once and is added once, and what the rule misses has no parameters at all: scores between tokens.
# [inference]
#
# **Tiny worked example.** A matrix of two by three meets a token of three numbers: six multiplications, six additions
# (counting the first into zero), {{tiny}} operations for {{2 * 3}} parameters. [computed]

# %% [figure: operations]
shares(
    "Where GPT-2 small's operations are",
    {f"{T:,} tokens": split("gpt2", T) for T in (128, 1024, 4096, 16384)},
)

# %% [markdown]
# **How to read it.** A bar for each length of the row, each of full width: shares, not amounts. Everything but "scores
# and mixing" costs the same for each token; that part costs more for each token the more there are to look at, and in
# the lowest bar it has overtaken the rest. The head is large here because the model is small and its vocabulary is not.
# [inference]
#
# **Formula.** One forward pass over $T$ tokens of a GPT:
#
# $$
# \mathrm{operations} = L \, (8 T D^2 + 4 T^2 D + 16 T D^2) + 2 T D V \qquad \text{against} \qquad 2 N T
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $T$ | tokens of the row | {{T:,}} |
# | $D$ | width | {{D}} |
# | $L$ | layers | {{L}} |
# | $V$ | tokens in the vocabulary | {{V:,}} |
# | $8 T D^2$ | query, key, value, output: four matrices | {{small["attention's matrices"] // L:,}} |
# | $4 T^2 D$ | scores, then the mix of values: $2 T^2 D$ each | {{small["scores and mixing"] // L:,}} |
# | $16 T D^2$ | up and down, each $D$ by $4 D$ | {{small["feed-forward"] // L:,}} |
# | $2 T D V$ | the head | {{small["head"]:,}} |
# | $N$ | parameters | {{cost.ledger.total:,}} |
#
# **In words.** Each matrix costs two operations a number and a token; each pair of tokens costs four operations a
# number of the width, in every layer.
#
# **With the numbers.** {{small["attention's matrices"]:,}} and {{small["scores and mixing"]:,}} and
# {{small["feed-forward"]:,}} and {{small["head"]:,}} are {{exact:,}}; the rule says {{rule:,}}: the exact number is
# {{gap:.4f}} times as many. [computed]

# %%
for name, n in split("gpt2", 1024).items():
    print(f"{name:<21} {n:>15,}  {100 * n / exact:5.1f} %")
print(f"{'together':<21} {exact:>15,}")
for length in (1, 128, 1024, 8192):
    print(f"{length:>6,} tokens: {gap_at(length):.3f} times 2N")

# %% [markdown]
# The gap is the scores, {{100 * small["scores and mixing"] / exact:.1f}} % of the total, less what the rule counts and
# no product meets: positions, gains and biases, {{100 * idle / rule:.2f}} % of the rule. [computed] Nothing else is in
# it. [computed: exact - rule == small["scores and mixing"] - idle] For one token the rule
# is a little too high. [computed: gap_at(1) < 1] A model with a head of its own counts its first table twice over as
# well: a table that only looks up costs nothing. [inference]
#
# **A claim to mend.** For GPT-3 at {{N3:,}} tokens one reads that a layer's attention takes {{naive_scores / 1e9:.1f}}
# billion operations and its feed-forward {{naive_feed / 1e9:.1f}}: the products $n^2 d$ and $n d^2$, without their
# factors. [computed] Counted, scores and mixing are {{gpt3["scores and mixing"] / 1e9:,.1f}} billion, the four matrices
# of attention {{gpt3["attention's matrices"] / 1e9:,.1f}}, the feed-forward {{gpt3["feed-forward"] / 1e9:,.1f}}:
# {{gpt3["feed-forward"] / gpt3["scores and mixing"]:.0f}} times the scores, not
# {{naive_feed / naive_scores:.0f}}. [computed] Where attention overtakes is worked out under "Going deeper"; it is not
# at a length of one width. [definition]
#
# **In the library.** A projection, and what pairs of tokens cost: [definition]

# %% [source: flops.dispatch(spec.Linear)]

# %% [source: scores_and_mix]

# %% [markdown]
# **Why it matters.** Two for each parameter is right to some hundredths for large models in short contexts, and wrong
# without warning for small models in long ones. Whoever compares speeds by it compares the error, too. [inference]

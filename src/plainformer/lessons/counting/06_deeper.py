# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer.conventions import count, finding
from plainformer.families import decoders
from plainformer.ledger import Ledger

totals_of_heads = {
    n: Ledger.of(decoders.gpt2(vocab_size=50257, max_seq_len=1024, d_model=768, n_layers=12, n_heads=n)).total
    for n in (1, 6, 12, 24)
}
half_keys = Ledger.of(pf.presets["llama-3-8b"]).by_kind["attention"] // 32
square = 4096**2
gpt2_rows = pf.presets["gpt2"].vocab_size
overtake = (gpt2_rows + 1024) / 8

# %% [markdown]
# ## Going deeper
#
# ### Heads do not change the count
#
# *Claim.* In attention as GPT-2 has it, the number of weights is the same for every number of heads. [inference]
#
# *Proof.* Head $h$ of $H$ has a query matrix of $d / H$ rows and $d$ columns. There are $H$ of them: $H (d / H) = d$
# rows of $d$ columns, whatever $H$ is. The same for keys and values, and for their biases. The output matrix takes the
# heads' answers side by side, $d$ numbers, to $d$ numbers. $H$ has left the sum. [inference]
# [computed: len(set(totals_of_heads.values())) == 1] So nobody can read heads
# off a size: they decide only how the rows are grouped when scores are taken. [inference]

# %%
for n_heads in (1, 6, 12, 24):
    spec = decoders.gpt2(vocab_size=50257, max_seq_len=1024, d_model=768, n_layers=12, n_heads=n_heads)
    print(f"{n_heads:>2} heads of {768 // n_heads:>3}: {Ledger.of(spec).total:,}")

# %% [markdown]
# *Where it stops.* Grouped-query attention breaks it: keys and values have rows for fewer heads than queries, so the
# count falls. Llama 3 8B has eight such heads for {{32}}, and its attention holds {{half_keys:,}} a layer where four
# squares would be {{4 * square:,}}. [computed] [computed: half_keys == 2 * square + 2 * square // 4] So does a model
# whose heads are wider or narrower than the width divided among them. [inference]
#
# ### Six counts tell every other
#
# *Claim.* Under each convention here, the count of a family whose layers are alike is $a + b d + L (c d^2 + e d)$ for
# four constants. [inference]
#
# *Proof.* A ledger's rows have shapes whose sides are constants or multiples of the width: a matrix between two of the
# second kind gives a square, any other a line. Rows outside layers do not depend on $L$; rows inside come $L$ times. A
# convention adds, drops or widens rows of the same kinds. [inference] So one line in $L$ for two depths, one parabola
# in $d$ for three widths: six counts. [inference]

# %%
rng = np.random.default_rng(0)
for name in ("tensors", "nanogpt", "authors"):
    guess = finding.totals(name)  # from six counts
    for n, d in zip(rng.integers(1, 97, 3), 64 * rng.integers(1, 40, 3), strict=True):
        assert guess(int(n), int(d)) == count(finding.gpt2_shape(int(n), int(d)), name).total
print("nine shapes, three conventions: every count as foretold")

# %% [markdown]
# ### When feed-forward networks are the largest part
#
# *Claim.* They hold more than the tables exactly where $L (8 d + 5) > V + T$. [inference]
#
# *Proof.* Feed-forward networks hold $L (8 d^2 + 5 d)$, the tables $(V + T) d$; divide both by $d$. [inference] Without
# the biases that is $L d > (V + T) / 8$, for GPT-2's tables {{overtake:,.3f}}. [computed] Against attention they always
# win at this shape, for $8 d^2 + 5 d > 4 d^2 + 4 d$. [inference]

# %%
for n_layers, width in ((4, 32), (8, 512), (10, 640), (11, 640), (12, 768)):
    kinds = Ledger.of(finding.gpt2_shape(n_layers, width)).by_kind
    wins = kinds["feed_forward"] > kinds["embedding"] + kinds["position"]
    assert wins == (n_layers * (8 * width + 5) > 50257 + 1024)
    print(f"{n_layers:>2} x {width}: L d = {n_layers * width:>5,}  feed-forward larger than the tables: {wins}")

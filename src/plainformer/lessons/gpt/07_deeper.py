# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas, reference
from plainformer.conventions import untie
from plainformer.families import encoders
from plainformer.initial import initial
from plainformer.lessons.words import lesson, small

tiny = pf.presets["lesson"]
arrays = initial(tiny, "lesson", seed=0)
bert = encoders.bert(vocab_size=50, max_seq_len=16, d_model=32, n_layers=2, n_heads=4, d_ff=128)

# %% [markdown]
# ## Going deeper
#
# ### What a decoder may keep and an encoder must not
#
# *Claim.* When a token is added to a row, the vectors of the others stay as they are in a decoder, after every layer;
# in an encoder they all change. So a decoder can keep what it has computed, and an encoder that were to write would
# start anew with each token. [inference]
#
# *Proof.* In a decoder the stream at $i$ is a function of tokens up to $i$, by induction on layers
# ({{lesson("attention")}}); a token added later is none of them. In an encoder the first layer's attention already
# averages over the new token, with a weight above zero. [inference] What is kept is the cache of
# {{lesson("generation")}}. [definition]

# %%
row = np.array([3, 1, 4, 1, 5])
for name, spec in (("decoder", tiny), ("encoder", bert)):
    weights = initial(spec, seed=1)
    short, long = reference.hidden(spec, weights, row[:4]), reference.hidden(spec, weights, row)
    print(f"{name}: the first four vectors move by {small(abs(long[:4] - short).max())}")

# %% [markdown]
# ### What an untrained model costs
#
# *Claim.* If scores are independent of the true token, with mean zero and a small variance $\sigma^2$, the expected
# loss is $\ln V + \sigma^2 / 2$, up to terms that are smaller still. [inference]
#
# *Proof.* The loss is $\ln \sum_v e^{z_v} - z_t$. The second term is zero on average. Of many independent scores the
# mean of $e^{z_v}$ is near its expectation, $e^{\sigma^2 / 2}$ for a normal score, so the first is near
# $\ln (V e^{\sigma^2 / 2})$. [inference] So a model that begins with wide scores begins with a loss above guessing: the
# reason to draw its table narrow. [inference]

# %%
rng = np.random.default_rng(0)
for spread in (0.1, 1.0, 2.0):
    z_TV = rng.normal(0, spread, (400, 5000))
    found = formulas.cross_entropy(z_TV, rng.integers(0, 5000, 400)).mean()
    print(f"spread {spread}: loss {found:.2f}, foretold {np.log(5000) + spread**2 / 2:.2f}")

# %% [markdown]
# ### Why a tied model begins by repeating
#
# *Claim.* With a random table and blocks that say little at first, as GPT-2's do, a tied head scores the token just
# read above nearly all others. [inference]
#
# *Proof.* The stream that comes out is $E_t + P_i$ and what the blocks added. Its product with $E_t$ holds $|E_t|^2$,
# which is $d \sigma^2$ for a table of spread $\sigma$; with any other row, $E_t \cdot E_v$ has mean zero and spread
# $\sqrt{d}\, \sigma^2$. The first is $\sqrt{d}$ spreads out. The place's row blurs it, and so does what the blocks add:
# if they say much, nothing is left of it. [inference] An untied head has no reason to. [inference]

# %%
row = np.random.default_rng(0).integers(0, 50, 16)
narrow = initial(tiny, "gpt2", seed=0)
for name, spec, weights in (
    ("tied, narrow blocks  ", tiny, narrow),
    ("tied, wide blocks    ", tiny, arrays),
    (
        "untied, narrow blocks",
        untie(tiny),
        narrow | {"head.weight": np.random.default_rng(1).normal(0, 0.02, (50, 32))},
    ),
):
    rank = (-reference.logits(spec, weights, row)).argsort(-1).argsort(-1)[np.arange(16), row]
    print(f"{name} place of the token just read, among 50: {sorted(rank.tolist())}")

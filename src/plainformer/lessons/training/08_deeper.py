# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer.conventions import rule_of_thumb
from plainformer.families import decoders
from plainformer.gradients import Moments, adamw_step, loss_and_gradients
from plainformer.gradients.steps import QUINTIC, orthogonal
from plainformer.initial import initial
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson, measured, small

TEXT = "to be or not to be that is the question "
letters = sorted(set(TEXT))
ids_N = np.array([letters.index(one) for one in TEXT])
shapes = measured("shapes")["rows"]
steps_column = next(name for name in measured("shapes")["columns"] if name.startswith("nats after"))
tying = {row["head"]: row for row in measured("tying")["rows"]}
a, b, c = QUINTIC
G = np.random.default_rng(3).normal(size=(4, 6))
U, s, Vt = np.linalg.svd(G, full_matrices=False)


def layers(row):
    """How many, in words."""
    return "one layer" if row["layers"] == 1 else f"{row['layers']} layers"


def middle(text):
    """The median that a cell begins with."""
    return float(text.split()[0])


best_by_steps = min(shapes, key=lambda row: middle(row[steps_column]))
best_by_time = min(shapes, key=lambda row: middle(row["nats in equal time"]))
V, d = 65, 64
two = decoders.gpt2(vocab_size=V, max_seq_len=64, d_model=d, n_layers=2, n_heads=4)
own = decoders.gpt2(vocab_size=V, max_seq_len=64, d_model=d, n_layers=2, n_heads=4, tied=False)
gap = Ledger.of(own).total - Ledger.of(two).total
tied_loss, own_loss = (middle(tying[head]["nats a character"]) for head in ("the token table", "its own"))

# %% [markdown]
# ## Going deeper
#
# ### What a product does to singular values
#
# *Claim.* A pass of Muon changes a matrix's singular values and nothing else: each $s$ becomes $a s + b s^3 + c s^5$,
# and the directions stay. [inference] *Proof.* Write $X = U S V^\top$ with $U^\top U = I$ and $V^\top V = I$. Then
# $X X^\top = U S^2 U^\top$, so $(X X^\top) X = U S^3 V^\top$ and $(X X^\top)^2 X = U S^5 V^\top$; the sum is
# $U (a S + b S^3 + c S^5) V^\top$. [inference] So after five passes the matrix is $U$ times something near one times
# $V^\top$, without anybody having found $U$ or $V$. [inference]

# %%
X = G / (np.linalg.norm(G) * 1.02)
once = a * X + (b * X @ X.T + c * X @ X.T @ X @ X.T) @ X
t = s / (np.linalg.norm(G) * 1.02)
print("by products less by singular values:", small(abs(once - U @ np.diag(a * t + b * t**3 + c * t**5) @ Vt).max()))
print("after five passes:", np.linalg.svd(orthogonal(G), compute_uv=False))

# %% [markdown]
# ### A small piece of text, learned by heart
#
# *Claim.* If everything is right, a model learns a few windows by heart: the loss goes to nearly zero, not to a
# plateau. [inference] It is the cheapest test there is, for it fails for a wrong shift (too fast), a mask that hides
# too much (a plateau), slopes that do not arrive (no change). [inference] *Run:* the definition itself, with slopes
# and steps by hand, on {{len(ids_N)}} characters:

# %%
spec = decoders.gpt2(vocab_size=len(letters), max_seq_len=16, d_model=16, n_layers=1, n_heads=2)
weights, moments = initial(spec, "gpt2", seed=0), Moments()
x_BT, y_BT = (np.stack([ids_N[i + by : i + by + 13] for i in (0, 13, 26)]) for by in (0, 1))
for step in range(61):
    loss, slopes = loss_and_gradients(spec, weights, x_BT, y_BT)
    if step % 20 == 0:
        print(f"step {step:>2}   loss {loss:.2f}")
    weights, moments = adamw_step(weights, slopes, moments, lr=0.03)

# %% [markdown]
# ### Deep or wide
#
# *Claim.* Twelve times depth times width squared is what layers weigh, so half the width pays for four times the
# depth. [inference] *Measured:* four shapes of about as many weights, after as many steps, and after as much time:
# [definition]

# %% [measured: shapes]

# %% [markdown]
# After as many steps the best of these has {{layers(best_by_steps)}}, after as much time {{layers(best_by_time)}}.
# [measured: shapes] So short a run favours what is shallow: there is less between the tables and the loss that must
# first be learned. [inference] A deep narrow model also takes longer for each step, since its products are small and
# each waits for the one before: {{shapes[-1]["ms a step"]}} in place of {{shapes[0]["ms a step"]}} milliseconds for
# as many weights. [measured: shapes] "Deeper is better" and "wider is better" are both said; what one finds depends
# on what is held equal, and for how long. [inference] In large models trained to the end the shape matters little, at
# the same number of weights. [paper: Kaplan et al. 2020, figure 5]

# %%
for row in shapes:
    n, width = row["layers"], row["width"]
    print(f"{n} layers of width {width:>3}: 12 L d^2 = {12 * n * width**2:,}   with biases {row['weights in layers']}")

# %% [markdown]
# ### What a tied head saves
#
# *Claim.* A head of its own has a row for each token: vocabulary times width more weights. [inference] *Proof on
# numbers:* for {{V}} characters and a width of {{d}} that is {{gap:,}}. [computed: gap == V * d] *What it does to the
# loss* is not in the formula: after as many steps {{tied_loss:.3f}} with the table as head, {{own_loss:.3f}} with its
# own; the seeds of the first lie further apart than that. [measured: tying]

# %%
for name, one in (("tied", two), ("its own head", own)):
    print(f"{name:<13} {Ledger.of(one).total:,}")
gpt2 = pf.presets["gpt2"]
print(f"GPT-2 small would have {gpt2.vocab_size * gpt2.d_model:,} more")

# %% [measured: tying]

# %% [hidden]
import numpy as np

from plainformer import formulas, reference
from plainformer import spec as s
from plainformer.cost import Cost
from plainformer.families import decoders
from plainformer.gradients import loss_and_gradients, nudged, rule, two_tokens
from plainformer.gradients.formulas import SLOPES, layer_norm_back, softmax_back
from plainformer.initial import initial
from plainformer.lessons.words import rows, small

small_loss, walk = two_tokens.way_back()
walked = [met for met in walk.met if met.x.ndim == 2 and not isinstance(met.part, s.Stack)]
additions = [i for i, met in enumerate(walked) if isinstance(met.part, s.Residual)]
small_spec, small_arrays = two_tokens.spec(), two_tokens.arrays()
_, slopes = loss_and_gradients(small_spec, small_arrays, two_tokens.TOKENS, two_tokens.TARGETS)


def loss_of_all(arrays):
    """The small model's loss."""
    logits_TV = reference.logits(small_spec, arrays, np.array(two_tokens.TOKENS))
    return float(formulas.cross_entropy(logits_TV, two_tokens.TARGETS).mean())


gaps = [
    abs(nudged(loss_of_all, small_arrays, name, at) - slopes[name][at])
    for name in slopes
    for at in np.ndindex(slopes[name].shape)
]
by_step = {
    by: abs(
        nudged(loss_of_all, small_arrays, "decoder.layers.0.attention.v.weight", (0, 1), by)
        - slopes["decoder.layers.0.attention.v.weight"][0, 1]
    )
    for by in (1e-1, 1e-2)
}
rng = np.random.default_rng(0)
angles = []
for _ in range(200):
    x_D, d_y = rng.normal(size=64), rng.normal(size=64)
    true_D = layer_norm_back(x_D[None], 1.0, 1e-5, d_y[None])[0][0]
    careless_D = (d_y - d_y.mean()) / x_D.std()
    angles.append(true_D @ careless_D / np.linalg.norm(true_D) / np.linalg.norm(careless_D))
z = np.linspace(-4, 4, 81)

# %% [markdown]
# ## Going deeper
#
# ### The whole way back, on paper
#
# *Claim.* With the rules above one can walk the small model from its loss to its table by hand: {{len(walked)}}
# parts, two tokens, two numbers each. [computed] *Run:* what each part read, the slope along what it said, and the
# slope along what it read, in the order of the way back. The loss is {{small_loss:.4f}}; the reading of its first
# line is the stream after the last norm, and the last line is what the two rows of the table get. [computed]

# %%
for met in walked:
    name = met.place.partition("layers.0")[2].strip(".") or met.place.removeprefix("decoder.layers.0") or "the addition"
    print(f"{name:<18} read {rows(met.x)}")
    print(f"{'':<18} {rows(met.d_y)}  ->  {rows(met.d_x)}")

# %% [markdown]
# Above each addition stands the norm of its part, with the slope that came through both; the addition's own is that
# plus what arrived. [computed: all(np.allclose(walked[i].d_x - walked[i].d_y, walked[i - 1].d_x) for i in additions)]
# A part stands after those that it is made of, with the slopes of the whole. [definition]
#
# ### Every slope, held against differences
#
# *Claim.* All rules together give, for every weight of the small model, the slope that one finds by moving that
# weight alone. [computed: len(gaps) == sum(array.size for array in small_arrays.values())] *Proof on numbers.* Two
# points on either side, weighed so that the error falls with the fourth power of the distance. The largest difference
# over all {{len(gaps)}} weights is {{small(max(gaps), 1e-9)}}. [computed] This proves nothing about other numbers,
# and it proves it without using one rule of this lesson. [inference]

# %%
print("weights:", len(gaps), "  largest difference:", small(max(gaps), 1e-9))
for by, gap in by_step.items():
    print(f"moved by {by:g}: off by {gap:.1e}")

# %% [markdown]
# Ten times nearer, the error falls by ten thousand: the fourth power. It does not go on so: below a distance of about a
# millionth the two losses agree in so many digits that their difference holds few. [inference]
#
# ### What one loses by holding the spread still
#
# *Claim.* For a wide token and a slope that points anywhere, the careless gradient of a norm is nearly right, and for
# one that points along the token it is all wrong. [inference] *Proof.* What it keeps and should not is the part of
# the slope along $n$. Of a direction drawn by chance in $d$ dimensions that is a share of about $1 / \sqrt{d}$ of its
# length; so the cosine is about $\sqrt{1 - 1 / (d - 1)}$, the mean being gone. Of the slope $n$ itself it is all.
# [inference] So the mistake hides in tests on random numbers with a loose tolerance, and shows where a model has
# learned to push tokens along themselves. [inference]

# %%
n_D = formulas.layer_norm(x_D)
along = layer_norm_back(x_D[None], 1.0, 1e-5, n_D[None])[0][0]
print(f"cosine, slopes by chance, width 64: {np.mean(angles):.4f}   by the formula: {np.sqrt(1 - 1 / 63):.4f}")
print(f"a slope along the token: true {np.linalg.norm(along):.4f}, careless {np.linalg.norm(n_D / x_D.std()):.4f}")

# %% [markdown]
# ### GELU's slope
#
# *Claim.* With $\Phi$ for the normal distribution function and $\varphi$ for its density, the slope of $z\, \Phi(z)$
# is $\Phi(z) + z\, \varphi(z)$. [inference] *Proof.* In a product the slopes of both sides count, and $\varphi$ is
# the slope of $\Phi$. [inference] It is below zero left of GELU's lowest point and above one in a stretch right of
# zero: the most is {{SLOPES["gelu"](z).max():.3f}}. [computed]

# %%
by = 1e-5
found = (formulas.gelu(z + by) - formulas.gelu(z - by)) / (2 * by)
print("largest difference:", small(abs(found - SLOPES["gelu"](z)).max(), 1e-8))
print("at -2, -1, 0, 1, 2:", SLOPES["gelu"](np.array([-2.0, -1.0, 0.0, 1.0, 2.0])))

# %% [markdown]
# The feed-forward network around it is three rules in a row, the last matrix first: [definition]

# %% [source: rule.dispatch(s.FeedForward)]

# %% [markdown]
# ### Softmax loses one direction
#
# *Claim.* What comes back through softmax sums to zero. [inference] *Proof.* Adding one number to all scores changes
# no probability, so the slope along the vector of ones is zero; and that slope is the sum. [inference] The table of
# slopes, $\mathrm{diag}(p) - p p^\top$, therefore has an eigenvalue of zero, and no other below zero: it is the table
# of covariances of a draw. [inference]

# %%
p_V = formulas.softmax([2.0, 1.0, 0.0])
J = np.diag(p_V) - np.outer(p_V, p_V)
print("sum of what comes back:", small(softmax_back(p_V, np.array([1.0, -2.0, 0.5])).sum()))
least, *others = np.linalg.eigvalsh(J)
print("eigenvalues:", small(least), *(f"{one:.3f}" for one in others))

# %% [markdown]
# ### The way back costs two ways there
#
# *Claim.* The matrix products of the way back take twice the operations of the way there. [inference] *Proof.*
# $y = x W^\top$ for $T$ tokens, $I$ inputs and $O$ outputs takes $2 T I O$ operations. Back, $\delta_x = \delta_y W$
# takes $2 T O I$ and $\delta_W = \delta_y^\top x$ takes $2 O T I$. The products inside attention have no weights, but
# two sides, and a slope for each: the same. [inference] Norms and activations are left out; they are few. [inference]

# %%
T, n_in, n_out = 5, 3, 4
x_TI, W_OI, d_y_TO = rng.normal(size=(T, n_in)), rng.normal(size=(n_out, n_in)), rng.normal(size=(T, n_out))
there = 2 * T * n_in * n_out
back = 2 * T * n_out * n_in + 2 * n_out * T * n_in
print("there", there, "  back", back, "  shapes", (d_y_TO @ W_OI).shape, (d_y_TO.T @ x_TI).shape)

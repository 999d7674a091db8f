# %% [hidden]
import numpy as np

from plainformer import formulas, reference
from plainformer.families import decoders
from plainformer.families.variants import without_residual
from plainformer.gradients import loss_and_gradients
from plainformer.gradients.formulas import layer_norm_back
from plainformer.initial import initial
from plainformer.lessons.words import lesson, measured, small, vector

x_D = np.array([1.0, 2.0, 3.0, 4.0])
pairs = np.random.default_rng(0).normal(size=(5, 2))
rng = np.random.default_rng(2)
W_1, b_1, W_2, b_2 = (rng.normal(size=size) for size in ((32, 8), 32, (8, 32), 8))


def replaced(recipe, n_layers=12):
    """Twelve layers with norms and without additions: the gradient, first layer over last; the stream's last spread."""
    deep = without_residual(decoders.gpt2(vocab_size=64, max_seq_len=16, d_model=32, n_layers=n_layers, n_heads=4))
    weights, tokens = initial(deep, recipe, seed=0), np.random.default_rng(0).integers(0, 64, (2, 16))
    _, slopes = loss_and_gradients(deep, weights, tokens[:, :-1], tokens[:, 1:])
    sizes = [
        np.sqrt(sum((slope**2).sum() for name, slope in slopes.items() if f"layers.{i}." in name))
        for i in (0, n_layers - 1)
    ]
    trace = {}
    reference.hidden(deep, weights, tokens[0], trace=trace)
    return float(sizes[0] / sizes[1]), float(trace[f"decoder.stream.{n_layers}"].std())


wide = next(row for row in measured("residuals")["rows"] if "wide" in row["layout"] and row["layers"] == 12)
kept = {recipe: replaced(recipe) for recipe in ("lesson", "gpt2")}
left_over = x_D.var() / (x_D.var() + 1e-5)

# %% [markdown]
# ## Going deeper
#
# ### What LayerNorm forgets
#
# *Claim.* Leave out epsilon, gain and bias. Then two vectors have the same norm if and only if one is the other, scaled
# by a positive number and shifted by the same amount in every place. So a norm forgets exactly two numbers of a token,
# its mean and its spread, and nothing else. [inference]
#
# *Proof.* Let $y = a x + b \mathbf{1}$ with $a > 0$. Its mean is $a \mu + b$, so less its mean it is
# $a (x - \mu \mathbf{1})$; its spread is $a \sigma$; divided by that it is $(x - \mu \mathbf{1}) / \sigma$, which is
# the norm of $x$. The other way: if the norms of $x$ and $y$ are the same vector $n$, then
# $x = \mu_x \mathbf{1} + \sigma_x n$ and $y = \mu_y \mathbf{1} + \sigma_y n$, and putting $n$ from the first into the
# second gives $y = (\sigma_y / \sigma_x) x + (\mu_y - (\sigma_y / \sigma_x) \mu_x) \mathbf{1}$. [inference]
#
# All outputs have mean zero and mean square one: they lie on a sphere of radius $\sqrt{d}$ in the hyperplane
# through the origin that is square to $\mathbf{1}$. For two numbers that leaves two points: whatever $(a, b)$ was,
# what comes out says only which is larger. [computed: bool(np.allclose(abs(formulas.layer_norm(pairs, eps=0.0)), 1))]


# %%
def same(x, y):
    return bool(np.allclose(formulas.layer_norm(x, eps=0.0), formulas.layer_norm(y, eps=0.0)))


print("scaled by 7, shifted by 3:", same(x_D, 7 * x_D + 3))
print("scaled by -1:             ", same(x_D, -x_D))
print("one place moved:          ", same(x_D, x_D + np.array([0.1, 0, 0, 0])))
pairs = np.random.default_rng(0).normal(size=(5, 2))
print("two numbers each become:  ", formulas.layer_norm(pairs, eps=0.0).round(6).tolist())

# %% [markdown]
# *With epsilon* a trace of the spread is left: the variance after the norm is $\sigma^2 / (\sigma^2 + \epsilon)$,
# which for {{vector(x_D, "g")}} is {{left_over:.10f}}. [computed] That is why a hundred times the input differed in
# the sixth place: a larger variance comes nearer to one. [inference]
#
# ### What the slope of a norm forgets
#
# *Claim.* The gradient that leaves a norm towards its input is square to the all-ones vector and, without epsilon, to
# the centred input. [inference] *Proof.* By what was just shown, moving $x$ along $\mathbf{1}$ or along
# $x - \mu \mathbf{1}$ does not change the output; so the output's derivative in those two directions is zero, and
# with it that of whatever is made of the output. [inference] A backward pass that treats the spread as a constant
# breaks the second half, and is a common mistake: {{lesson("gradients")}}. [inference]

# %%
d_y = np.random.default_rng(1).normal(size=4)  # the slope of some loss by the norm's output
d_x, _, _ = layer_norm_back(x_D[None], 1.0, 0.0, d_y[None])
print("along the ones:         ", small(d_x[0].sum()))
print("along the centred input:", small(d_x[0] @ (x_D - x_D.mean())))
careless = (d_y - d_y.mean()) / x_D.std()  # the spread as a constant
print("the careless gradient:  ", f"{abs(careless @ (x_D - x_D.mean())):.2f}")

# %% [markdown]
# ### What an addition does to a slope
#
# *Claim.* With $y = x + f(x)$ the slope is $I + J$, where $J$ is the slope of $f$; through a stack of such layers it
# is the product of all $I + J_i$, which multiplied out is the identity plus every path through any choice of the
# parts. [inference] The identity is the path through none. It keeps a way open; it promises no size, for $J = -I$
# gives a slope of zero. [computed: float(np.linalg.det(np.eye(2) + -np.eye(2))) == 0] The claim that a gradient
# can only grow through a residual is false. [computed: bool(abs(np.eye(2) - 0.5 * np.eye(2)).max() < 1)]
#
# Without additions the slope is the product of the $J_i$ alone. If each shrinks what passes by half, twelve leave
# {{0.5**12:.6f}} of it; if each leaves a tenth, {{0.1**12:.0e}}. [computed]

# %%
rng = np.random.default_rng(2)
parts = [0.1 * rng.normal(size=(32, 32)) / np.sqrt(32) for _ in range(12)]
plain, added = np.eye(32), np.eye(32)
for J in parts:
    plain, added = J @ plain, (np.eye(32) + J) @ added
print(f"twelve parts, replaced: {np.linalg.norm(plain, 2):.1e}   added: {np.linalg.norm(added, 2):.2f}")

# %% [markdown]
# *With norms* it is otherwise, as long as epsilon does not matter. What a part has shrunk to a spread $\sigma$ the
# next norm stretches by $1 / \sigma$, forwards and, since that factor is its slope, backwards too. [inference] So
# twelve layers without additions need not lose their gradient. Drawn wide, the first layer's is
# {{kept["lesson"][0]:.1f}} times the last one's. Drawn as GPT-2 draws, it is {{kept["gpt2"][0]:.4f}} times: the
# stream has fallen to a spread of {{kept["gpt2"][1]:.0e}}, far below the root of epsilon, {{np.sqrt(1e-5):.4f}}, and
# a norm no longer stretches it. [computed] And still the first kind learns nothing: in the table above, drawn wide,
# twelve layers with a gradient of {{wide["gradient, first layer / last"]}} end at
# {{wide["loss in nats"].split()[0]}}, where guessing is. A gradient that arrives is not yet one that tells what to
# do. [measured: residuals]

# %%
for recipe, (ratio, spread) in kept.items():
    print(f"{recipe:<7} gradient, first layer / last: {ratio:.4f}   spread of the stream at the end: {spread:.1e}")

# %% [markdown]
# ### Why there is a bend in the middle
#
# *Claim.* Without GELU the feed-forward network is one matrix and one bias. [inference] *Proof.*
# $W_2 (W_1 x + b_1) + b_2 = (W_2 W_1) x + (W_2 b_1 + b_2)$. [inference] The wide middle would buy nothing: the
# product has the rank of the narrow side at most. [computed: int(np.linalg.matrix_rank(W_2 @ W_1)) == 8]

# %%
W_1, b_1, W_2, b_2 = (rng.normal(size=size) for size in ((32, 8), 32, (8, 32), 8))
x = rng.normal(size=8)
print(np.allclose(W_2 @ (W_1 @ x + b_1) + b_2, (W_2 @ W_1) @ x + (W_2 @ b_1 + b_2)))

# %% [hidden]
import numpy as np

from plainformer.gradients.steps import QUINTIC, muon_step, orthogonal
from plainformer.lessons.words import lesson, measured, rows, vector
from plainformer.report.drawings import lines

G = np.array([[3.0, 0.0], [0.0, 0.1]])
done = orthogonal(G)
a, b, c = QUINTIC
start = np.array([0.01, 0.05, 0.2, 0.5, 1.0])


def passes(s, n=5):
    """A singular value, at first and after each pass."""
    found = [s]
    for _ in range(n):
        found.append(a * found[-1] + b * found[-1] ** 3 + c * found[-1] ** 5)
    return found


wanders = {f"{s:g}": passes(s) for s in start}
lowest, highest = min(each[-1] for each in wanders.values()), max(each[-1] for each in wanders.values())
g = np.random.default_rng(0).normal(size=(6, 4)) @ np.diag([10.0, 1.0, 0.1, 0.01])
step = -muon_step({"w": np.zeros((6, 4))}, {"w": g}, {}, lr=1.0, momentum=0.0)[0]["w"] / np.sqrt(6 / 4)
by_optimiser = {}
for row in measured("optimisers")["rows"]:
    by_optimiser.setdefault(row["optimiser"], []).append(float(row["nats a character"].split()[0]))
best, worst = ({name: pick(each) for name, each in by_optimiser.items()} for pick in (min, max))
values_of_g, values_of_step = (np.linalg.svd(one, compute_uv=False) for one in (g, step))

# %% [markdown]
# ## What moves the weights: AdamW, and Muon for matrices
#
# **Everyday picture.** A sculptor is told "more here, less there" by a hundred voices, one of which shouts. AdamW
# hears every grain of the stone alone and gives each the same stride. Muon listens for *directions*: what the
# shouting voice asks for is one movement of the whole block, and it gives that and each of the quieter movements the
# same stride.
#
# **Where the analogy breaks.** Directions are those of the gradient's own singular vectors, found anew at each step,
# and need not mean anything to anybody. [inference]
#
# **Tiny worked example.** A gradient with the rows {{rows(G, "g")}}: it says thirty times more along one direction
# than along the other. Made orthogonal it is {{rows(done)}}: both about one. [computed: bool((abs(np.diag(done) - 1)
# < 0.35).all())]

# %% [figure: passes]
lines(
    "Singular values, pass by pass",
    {name: [(float(i), float(s)) for i, s in enumerate(each)] for name, each in wanders.items()},
    "passes",
    "singular value",
)

# %% [markdown]
# **How to read it.** Each line is one singular value, by what it was at first. Small ones grow more than threefold a
# pass, large ones are bent back; after five passes all of these lie between {{lowest:.2f}} and {{highest:.2f}}.
# [computed] They need not come to one: about one is enough, and the numbers were chosen for speed. [paper: Jordan et
# al. 2024, section "Tuning the coefficients"]
#
# **Formula.** Five times, from the gradient divided by its length:
#
# $$
# X \leftarrow a X + b\, (X X^\top) X + c\, (X X^\top)^2 X, \qquad s \leftarrow a s + b s^3 + c s^5
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $X$ | the matrix, at first the momentum of the gradient | {{rows(G, "g")}} |
# | $s$ | a singular value: how far the matrix stretches one direction | {{G[0, 0]:g}} and {{G[1, 1]:g}} |
# | $a, b, c$ | three numbers, found once | {{a}}, {{b}}, {{c}} |
# | $\top$ | rows and columns changed | |
#
# **In words.** Multiply the matrix with itself so that every direction is stretched by the same polynomial; the
# polynomial pushes all stretches towards one.
#
# **With the numbers.** A singular value of {{start[0]:g}} becomes {{a:.4f}} times {{start[0]:g}}, and two terms that
# do not count yet: {{wanders["0.01"][1]:.4f}}; then {{wanders["0.01"][2]:.4f}}, {{wanders["0.01"][3]:.4f}}, and so
# on. [computed]

# %%
x = G / (np.linalg.norm(G) * 1.02)
for n in range(1, 6):
    xx = x @ x.T
    x = 3.4445 * x + (-4.7750 * xx + 2.0315 * xx @ xx) @ x
    print(f"pass {n}: singular values {np.linalg.svd(x, compute_uv=False)}")
print("the library:           ", np.linalg.svd(orthogonal(G), compute_uv=False))

# %% [markdown]
# Of a gradient of six rows and four columns with the singular values {{vector(values_of_g, ".3f")}} the step has
# {{vector(values_of_step, ".2f")}}: the weakest direction, {{values_of_g[0] / values_of_g[-1]:,.0f}} times as weak as
# the strongest, gets a stride {{values_of_step[0] / values_of_step[-1]:.0f}} times as short. [computed] No singular
# value is ever computed, only products, which is what accelerators are good at. [paper: Jordan et al. 2024, section
# "Definition"] Tables, heads, gains and biases are no maps between vectors of the stream; they stay with AdamW.
# [paper: Jordan et al. 2024, section "Definition"]
#
# **Side by side.** The same model and text, as many steps, each optimiser at three rates: [definition]

# %% [measured: optimisers]

# %% [markdown]
# The best of AdamW's three ends at {{best["AdamW"]:.3f}} nats, the best of Muon's at
# {{best["Muon, AdamW for the rest"]:.3f}}; the worst of Muon's rates, {{worst["Muon, AdamW for the rest"]:.3f}}, is
# ahead of the best of AdamW's. [measured: optimisers] [computed: worst["Muon, AdamW for the rest"] < best["AdamW"]]
# And AdamW at its worst rate is {{worst["AdamW"] - best["AdamW"]:.3f}} nats behind itself at its best: a comparison
# at one rate each could have shown anything. [measured: optimisers] It is one small model and few steps; of others it
# says nothing. [inference]
#
# **In the library.** AdamW's step is shown in {{lesson("gradients")}}. Muon's: [definition]

# %% [source: orthogonal]

# %% [source: muon_step]

# %% [markdown]
# **Why it matters.** The optimiser decides how many steps a run needs, and few things that one can change in an
# afternoon save as many. [inference] It is also where a comparison goes wrong most easily: rates of two optimisers
# mean different things, and each must be given its own. [inference]

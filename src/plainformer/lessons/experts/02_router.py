# %% [hidden]
import numpy as np

from plainformer import formulas, reference, spec
from plainformer.families.parts import feed_forward
from plainformer.initial import lesson as lesson_weights
from plainformer.lessons.words import vector
from plainformer.report.diagrams import Arrow, Box, flow

scores_E = np.array([2.0, 1.0, 0.5, -1.0])
gates_E = formulas.top_k_gates([scores_E], 2)[0]
e_E = np.exp(scores_E)
said_ED = np.array([[1.0, 0.0], [0.0, 2.0], [9.0, 9.0], [9.0, 9.0]])  # what each expert would say
y_D = gates_E @ said_ED
moe = spec.Experts(
    router=spec.ChosenSoftmaxRouter(scores=spec.Linear(n_in=16, n_out=8), n_chosen=2),
    expert=feed_forward(16, 64, "gelu_tanh", bias=True),
    n_experts=8,
)

# %% [markdown]
# ## The router: who is asked
#
# **Everyday picture.** A triage desk. It looks at each patient for a second, sends them to the two doctors of eight who
# seem right, and what these two say is weighed by how right each seemed. Eight doctors are employed; each patient takes
# the time of two.
#
# **Where the analogy breaks.** Doctors studied a subject before they were hired. Experts begin as random matrices,
# alike but for the draw, and what an expert is good at is whatever was sent to it. In Mixtral no subject could be
# made out: the choice follows words and their form more than topics. [paper: Jiang et al. 2024, section 5]
#
# **Tiny worked example.** A router scores four experts {{vector(scores_E, "g")}} and two may answer. The first two
# remain; softmax over them alone gives {{gates_E[0]:.3f}} and {{gates_E[1]:.3f}}. If they say
# {{vector(said_ED[0], "g")}} and {{vector(said_ED[1], "g")}}, the token hears {{vector(y_D)}}. The other two are not
# run at all. [computed]

# %% [figure: router]
flow(
    "One token, four experts, two of them asked",
    {
        "x": Box(0, 1.5, "one token"),
        "r": Box(1, 1.5, f"router: a score for each\n{vector(scores_E, 'g')}", 0),
        "a": Box(2, 0, f"expert 1, gate {gates_E[0]:.3f}\nsays {vector(said_ED[0], 'g')}", 1),
        "b": Box(2, 1, f"expert 2, gate {gates_E[1]:.3f}\nsays {vector(said_ED[1], 'g')}", 1),
        "c": Box(2, 2, "expert 3\nnot run"),
        "d": Box(2, 3, "expert 4\nnot run"),
        "y": Box(3, 1.5, f"weighed and added\n{vector(y_D)}", 2),
    },
    [
        Arrow("x", "r"),
        Arrow("r", "a"),
        Arrow("r", "b"),
        Arrow("r", "c", dashed=True),
        Arrow("r", "d", dashed=True),
        Arrow("a", "y"),
        Arrow("b", "y"),
    ],
)

# %% [markdown]
# **How to read it.** The router is one matrix: a score for each expert. Full arrows carry the token; dashed
# ones were scored and lost. Nothing comes back from the lower two, and no operation is spent on them. Their weights are
# in memory all the same: the next token may want them. [definition]
#
# **Formula.**
#
# $$
# r = W_r \, x, \qquad g = \mathrm{softmax}(r_i : i \in \mathrm{Top}_k(r)), \qquad
# y = \sum_{i \in \mathrm{Top}_k(r)} g_i \, E_i(x)
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $x$ | one token, normed | |
# | $W_r$ | the router: a row for each expert | |
# | $r$ | its scores | {{vector(scores_E, "g")}} |
# | $\mathrm{Top}_k(r)$ | the $k$ best; of equal scores the lower number | the first two |
# | $g_i$ | the gate of expert $i$ | {{gates_E[0]:.3f}}, {{gates_E[1]:.3f}} |
# | $E_i(x)$ | what expert $i$ makes of the token: a feed-forward network | {{vector(said_ED[0], "g")}},
#   {{vector(said_ED[1], "g")}} |
# | $y$ | what the mixture says | {{vector(y_D)}} |
#
# **In words.** Score all, keep the best few, share one between these by softmax, and add what they say in those shares.
#
# **With the numbers.** {{e_E[0]:.3f}} / ({{e_E[0]:.3f}} + {{e_E[1]:.3f}}) = {{gates_E[0]:.4f}}, and what is left is
# {{gates_E[1]:.4f}}. [computed]

# %%
print("gates:       ", formulas.top_k_gates([[2.0, 1.0, 0.5, -1.0]], 2))
print("of equals:   ", formulas.top_k_gates([[1.0, 1.0, 1.0, 1.0]], 2))

w = reference.Weights(dict(lesson_weights(moe, seed=0)))
x_TD = np.random.default_rng(1).standard_normal((4, 16))
trace = {}
y_TD = reference.run(moe, w, x_TD, reference.Where(np.arange(4), trace=trace))
print("four tokens, eight experts:\n", trace[".gates"].round(2))
print("in", x_TD.shape, "out", y_TD.shape)

# %% [markdown]
# Each row sums to one and has two numbers in it. [computed: bool(np.allclose(trace[".gates"].sum(1), 1)) and
# bool(((trace[".gates"] > 0).sum(1) == 2).all())] The token's vector is as wide as before, so the mixture stands where
# a feed-forward network stood. [computed: y_TD.shape == x_TD.shape]
#
# **In the library.** The choice, the gates, and the part that runs an expert on its own tokens alone: [definition]

# %% [source: formulas.choose]

# %% [source: formulas.top_k_gates]

# %% [source: reference.run.dispatch(spec.Experts)]

# %% [markdown]
# **Why it matters.** What a token costs is set by how many are asked, what a model can know by how many there are. A
# dense layer has one number for both. [inference]

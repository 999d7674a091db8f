# %% [hidden]
from math import comb

import numpy as np

import plainformer as pf
from plainformer import formulas, reference, spec
from plainformer.lessons.words import vector
from plainformer.report.drawings import columns
from plainformer.tree import walk

scores_E = np.array([2.0, 1.0, 0.5, -1.0])
linear = spec.Linear(n_in=4, n_out=4)
correction_E = np.array([-0.3, 0.0, 0.1, 0.0])
routers = {
    "choose first": spec.ChosenSoftmaxRouter(scores=linear, n_chosen=2),
    "softmax first": spec.SoftmaxRouter(scores=linear, n_chosen=2, normalised=False),
    "normalised": spec.SoftmaxRouter(scores=linear, n_chosen=2, normalised=True),
    "sigmoid": spec.SigmoidRouter(
        scores=linear, n_chosen=2, n_groups=1, n_chosen_groups=1, factor=1.0, normalised=True
    ),
}


def gates(router, correction_E=None):
    """Its gates for one token that scores the experts (2, 1, 0.5, -1): the router's matrix is the identity."""
    arrays = {"scores.weight": np.eye(4), "correction": np.zeros(4) if correction_E is None else correction_E}
    return reference.run(router, reference.Weights(arrays), scores_E[None], reference.Where(np.arange(1)))[0]


said = {name: gates(router) for name, router in routers.items()}
corrected = gates(routers["sigmoid"], correction_E)
p_E = formulas.softmax(scores_E)
deep = next(part for _, part in walk(pf.presets["deepseek-v3"]) if isinstance(part, spec.Experts))
n, k = deep.n_experts, deep.router.n_chosen

# %% [markdown]
# ## Other routers, and an expert for everybody
#
# **Everyday picture.** Three ways to share a prize between the best two of four. Choose the two, then share among them.
# Or share among all four first, and let the losers' parts lapse. Or judge each alone, without comparing, and share by
# those marks.
#
# **Where the analogy breaks.** Lapsed money is gone. In the second way the gates sum to less than one, so the mixture
# simply says less, and a model trained so needs it so: the three can't be exchanged after training. [inference]
#
# **Tiny worked example.** The scores {{vector(scores_E, "g")}} again. Choose, then softmax:
# {{vector(said["choose first"])}}. Softmax, then choose: {{vector(said["softmax first"])}}, together
# {{said["softmax first"].sum():.3f}}. Sigmoid, then shared: {{vector(said["sigmoid"])}}. [computed]

# %% [figure: routers]
columns(
    "The gates of the same scores by four routers",
    {name: {f"expert {e + 1}": float(g) for e, g in enumerate(gates_E[:2])} for name, gates_E in said.items()},
    "gate",
)

# %% [markdown]
# **How to read it.** Each bar is one router's two gates, one upon the other; the number on top is their sum. The first
# and the third bar are the same to the last digit: choosing before or after softmax differs only until one normalises.
# The second is lower by what the losers had. In the last the two are nearer to each other, for a sigmoid flattens what
# is large. [computed: bool(np.allclose(said["choose first"], said["normalised"]))]
#
# **Formula.** DeepSeek-V3's router: [paper: DeepSeek-AI 2024, section 2.1.2]
#
# $$
# s_i = \sigma(r_i), \qquad C = \mathrm{Top}_k(s_i + b_i), \qquad g_i = \frac{s_i}{\sum_{j \in C} s_j}, \qquad
# y = E_0(x) + \sum_{i \in C} g_i \, E_i(x)
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $r_i$ | the router's score of expert $i$ | {{vector(scores_E, "g")}} |
# | $\sigma$ | sigmoid: each score by itself between zero and one | {{vector(formulas.sigmoid(scores_E))}} |
# | $b_i$ | a correction: up for who has too few tokens, down for who has too many | {{vector(correction_E, "g")}} |
# | $C$ | the chosen | experts {{" and ".join(str(e + 1) for e in np.flatnonzero(corrected))}} |
# | $g_i$ | gates: by the marks *without* the correction | {{vector(corrected)}} |
# | $E_0$ | the shared expert: every token meets it, without a gate | |
#
# **In words.** Mark each expert by itself; choose with a thumb on the scale; weigh without it; and let one expert
# answer everybody.
#
# **With the numbers.** The first expert's mark is {{formulas.sigmoid(scores_E)[0]:.3f}}, less {{-correction_E[0]:g}}
# it is {{(formulas.sigmoid(scores_E) + correction_E)[0]:.3f}}, behind the second's
# {{formulas.sigmoid(scores_E)[1]:.3f}} and the third's corrected
# {{(formulas.sigmoid(scores_E) + correction_E)[2]:.3f}}: those two are chosen, and share one by their uncorrected
# marks, {{corrected[1]:.3f}} and {{corrected[2]:.3f}}. [computed]

# %%
for name, router in routers.items():
    print(f"{name:<16} {gates(router).round(4)}  sum {gates(router).sum():.4f}")
print(f"{'with a thumb':<16} {gates(routers['sigmoid'], correction_E).round(4)}")

# %% [markdown]
# The correction is moved by a fixed small step after each batch, by the load alone; no gradient goes through it, so it
# does not pull on the text's loss as a balance loss does. [paper: DeepSeek-AI 2024, section 2.1.2]
#
# **Many small experts.** Two of eight can be chosen in {{comb(8, 2)}} ways; cut each expert into four and choose eight
# of thirty-two, and for the same parameters and operations there are {{comb(32, 8):,}}. [computed] That is the case for
# small experts [paper: Dai et al. 2024, section 3.1]; DeepSeek-V3 chooses {{k}} of {{n}}. [computed] And what all
# tokens need need not be learned by every expert again, if one expert meets all. [paper: Dai et al. 2024, section 3.2]
#
# **In the library.** Three routers are three classes with a rule each: nothing asks which model it is. [definition]

# %% [source: reference.run.dispatch(spec.SoftmaxRouter)]

# %% [source: reference.run.dispatch(spec.SigmoidRouter)]

# %% [markdown]
# **Why it matters.** A mixture's weights say nothing about which of these it was trained with. Run with another, every
# shape fits and every answer is wrong. [inference]

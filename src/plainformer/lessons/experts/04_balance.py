# %% [hidden]
import numpy as np

from plainformer import formulas, reference, spec
from plainformer.families.parts import feed_forward
from plainformer.initial import lesson as lesson_weights
from plainformer.lessons.words import measured, vector
from plainformer.report.drawings import columns

moe = spec.Experts(
    router=spec.ChosenSoftmaxRouter(scores=spec.Linear(n_in=16, n_out=8), n_chosen=2),
    expert=feed_forward(16, 64, "gelu_tanh", bias=True),
    n_experts=8,
)
router = reference.Weights(dict(lesson_weights(moe, seed=0)), "router")
tokens_TD = np.random.default_rng(1).standard_normal((256, 16))
gates_TE = reference.run(moe.router, router, tokens_TD, reference.Where(np.arange(256)))
load_E = (gates_TE > 0).sum(0)
level = 256 * 2 / 8
scores_TE = tokens_TD @ router["scores.weight"].T
even = formulas.balance_loss(10 * np.eye(4), 1)
collapsed = formulas.balance_loss([[10.0, 0, 0, 0]] * 4, 1)
p_below = np.array([[0.9, 0.1], [0.45, 0.55], [0.45, 0.55]])
below = formulas.balance_loss(np.log(p_below), 1)
two_of_eight = formulas.balance_loss([[30.0, 15, 0, 0, 0, 0, 0, 0]] * 8, 2)
draws = np.random.default_rng(0)
chance = []
for _ in range(1000):
    picked = draws.random((256, 8)).argsort(1)[:, :2]
    chance.append(((np.bincount(picked.ravel(), minlength=8) - level) ** 2).sum())
ours = ((load_E - level) ** 2).sum()
as_uneven = np.mean([one >= ours for one in chance])
untrained = formulas.balance_loss(scores_TE, 2)
without, with_it = measured("balances")["rows"]
busy, idle, nats = "busiest expert, of an even share", "idlest", "nats a character"


def first(row, column):
    """The median of what was measured."""
    return float(row[column].split()[0])


# %% [markdown]
# ## How even the traffic is
#
# **Everyday picture.** A market with eight stalls. The baker who sold well on the first day buys better flour, and the
# next day more people queue. In a month seven stalls are empty, and not because their bread was bad.
#
# **Where the analogy breaks.** A queue sends people away by itself; a router feels no queue. Unless something is added
# to the loss, no number in training says that a stall is full or empty. [inference]
#
# **Tiny worked example.** {{len(tokens_TD)}} random tokens meet a random router of eight experts, two for each token:
# {{2 * len(tokens_TD)}} choices, {{level:g}} for each expert if they were even. They are {{vector(load_E, ".0f")}}.
# [computed]

# %% [figure: moe-load]
columns(
    "An untrained router: tokens sent to each of eight experts (256 tokens, two each)",
    {str(e): {"tokens": int(n)} for e, n in enumerate(load_E)},
    "tokens",
    "expert",
    level=level,
    level_name="even",
)

# %% [markdown]
# **How to read it.** Each bar is one expert's tokens, experts counted from zero; the dashed line is the even
# {{level:g}}. Experts three and five have {{load_E[3]}} and {{load_E[5]}}, expert two {{load_E[2]}}. [computed] How
# much of that is the router's liking and how much is chance? Were each token's two drawn blindly,
# {{100 * as_uneven:.0f}} % of a thousand draws would be as
# uneven as this or more: the bars alone hardly tell liking from chance. [computed] It is what training makes of it
# that empties experts. [inference]
#
# **Formula.** The balance loss, added to the loss of the text with a small weight: [paper: Fedus et al. 2021, section
# 2.2]
#
# $$
# \mathcal{L}_{\mathrm{balance}} = E \sum_{i=1}^{E} f_i \, P_i
# $$
#
# **Symbols.**
#
# | symbol | meaning | even | all to one |
# |---|---|---|---|
# | $E$ | experts | {{4}} | {{4}} |
# | $f_i$ | expert $i$'s share of all choices: counted | {{0.25}} each | {{1}}, then zeros |
# | $P_i$ | the mean probability that the router gives it: has a slope | about {{0.25}} each
#   | nearly {{1}}, then nearly zero |
# | $\mathcal{L}_{\mathrm{balance}}$ | the penalty | {{even:.3f}} | {{collapsed:.4f}} |
#
# **In words.** Number of experts, times the sum over them of what each got, times what each was wished.
#
# **With the numbers.** Even: {{4}} times four times {{0.25}} times {{0.25}} is {{even:g}}. All to the first, wished
# with probability {{collapsed / 4:.6f}}: {{4}} times that, {{collapsed:.6f}}. [computed]

# %%
print("even:               ", formulas.balance_loss(10 * np.eye(4), 1))
print("all to one:         ", round(formulas.balance_loss([[10.0, 0, 0, 0]] * 4, 1), 6))
print("the untrained router", round(formulas.balance_loss(scores_TE, 2), 4))
print("below one:          ", round(formulas.balance_loss(np.log([[0.9, 0.1], [0.45, 0.55], [0.45, 0.55]]), 1), 6))
print("two of eight, always the same:", round(formulas.balance_loss([[30.0, 15, 0, 0, 0, 0, 0, 0]] * 8, 2), 4))

# %% [markdown]
# Three things that are said of this loss and are not so. *"One is its minimum."* It is the even value. Three tokens
# and two experts, probabilities ({{p_below[0, 0]}}, {{p_below[0, 1]}}) once and ({{p_below[1, 0]}},
# {{p_below[1, 1]}}) twice: the first expert is wished more and gets less, and the loss is {{below:.4f}}, fourteen
# fifteenths. [computed: abs(below - 14 / 15) < 1e-12] *"The number of experts is its maximum."* With one choice a
# token, yes; with two of eight the worst is {{two_of_eight:.2f}}, eight by two. [computed] *"Even is one."* Here,
# where shares are divided by how many are chosen; transformers' code for Mixtral does not divide, and even traffic
# reads two there. [source: huggingface/transformers@af3efdd, src/transformers/models/mixtral/modeling_mixtral.py]
#
# **Does it help?** A small mixture on a text, with the loss and without: [definition]

# %% [measured: balances]

# %% [markdown]
# Without it the busiest expert of the worse layer has {{first(without, busy):.2f}} times an even share and the idlest
# {{first(without, idle):.2f}}; four would be every token. With it they have {{first(with_it, busy):.2f}} and
# {{first(with_it, idle):.2f}}. [measured: balances] [computed: first(without, busy) > 2 * first(with_it, busy) and
# first(without, idle) < first(with_it, idle) / 2] So a hundred steps are enough to make one expert nearly everybody's
# choice and another nobody's, and the small loss is enough to prevent it. [inference] What it costs is not to be seen
# here: the text's loss is {{first(without, nats):.3f}} nats without and {{first(with_it, nats):.3f}} with, less apart
# than the seeds. [measured: balances]
#
# **In the library.** [definition]

# %% [source: formulas.balance_loss]

# %% [markdown]
# **Why it matters.** An expert that nobody meets is memory without knowledge. The loss is a cheap remedy: it costs
# next to nothing and needs one number to be chosen. Its value alone does not show whether it works: look at the bars.
# [inference]

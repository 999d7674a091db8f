# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas, ledger, reference, spec
from plainformer.cost import Cost
from plainformer.families.parts import feed_forward
from plainformer.initial import lesson as lesson_weights

moe = spec.Experts(
    router=spec.ChosenSoftmaxRouter(scores=spec.Linear(n_in=16, n_out=8), n_chosen=2),
    expert=feed_forward(16, 64, "gelu_tanh", bias=True),
    n_experts=8,
)
mixtral = ledger.Ledger.of(pf.presets["mixtral-8x7b"])
router = reference.Weights(dict(lesson_weights(moe, seed=0)), "router")
tokens_TD = np.random.default_rng(1).standard_normal((256, 16))
load_E = (reference.run(moe.router, router, tokens_TD, reference.Where(np.arange(256))) > 0).sum(0)
sixteen = spec.Experts(
    router=spec.ChosenSoftmaxRouter(scores=spec.Linear(n_in=16, n_out=16), n_chosen=2),
    expert=moe.expert,
    n_experts=16,
)
held, met = (
    {n: sum(getattr(w, of) for w in ledger.weights(part)) for n, part in ((8, moe), (16, sixteen))}
    for of in ("count", "active")
)
cost = Cost.of(pf.presets["mixtral-8x7b"])

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** Mixtral 8x7B is eight models of seven billion.
#
# **Correction.** It is one model whose feed-forward networks are there eight times: {{mixtral.total / 1e9:.1f}}
# billion, {{mixtral.active / 1e9:.1f}} of them met by a token. [computed] And the choice is made anew in every layer
# and for every token: no text goes through "one of the eight". [paper: Jiang et al. 2024, section 2.1]
#
# **Misconception.** Experts are specialists for subjects.
#
# **Correction.** Where it was looked at, the choice went by words and their form, and hardly by subject.
# [paper: Jiang et al. 2024, section 5]
#
# **Misconception.** Experts that a token does not meet need not be loaded.
#
# **Correction.** The next token, or the next layer, meets them. A batch of thirty-two rows meets nearly all of
# Mixtral in every step. [computed: 1 - (1 - 2 / 8) ** 32 > 0.999]
#
# **Misconception.** A balance loss of one means even traffic.
#
# **Correction.** Even traffic means one; the other way does not hold, for the loss can fall below one and pass
# through it on its way. [inference]
#
# **Misconception.** More experts make a token dearer.
#
# **Correction.** Only by the router's new rows. From eight to sixteen experts of width sixteen, a token meets
# {{met[8]:,}} and {{met[16]:,}} parameters while {{held[8]:,}} and {{held[16]:,}} are held. [computed]
#
# ## In twenty seconds
#
# - A router scores all experts, the best few run, and what they say is added in the shares of softmax. [definition]
# - Memory by what is held, time by what is met: {{mixtral.total / 1e9:.1f}} and {{mixtral.active / 1e9:.1f}} billion
#   for Mixtral. [computed]
# - Untrained routers are uneven by chance; training makes it far worse, within a hundred steps, unless a loss or a
#   correction holds against it. [measured: balances]
# - The balance loss is one when even, at most experts by chosen, and can be below one. [inference]
# - Order of softmax and choice, sigmoid, shared experts: three routers, not to be exchanged. [inference]
#
# ## Self-test
#
# **Question.** A router scores three experts (two, two, one) and two are chosen. What are the gates?
#
# **Answer.** {{formulas.top_k_gates([[2.0, 2.0, 1.0]], 2)[0][0]:g}} and
# {{formulas.top_k_gates([[2.0, 2.0, 1.0]], 2)[0][1]:g}}, and nothing for the third, which is not run. [computed]
#
# **Question.** Your card has ninety gigabytes. Does Mixtral load in sixteen bits, and what decides how fast it writes
# to one reader?
#
# **Answer.** It does not: it needs {{cost.weights_bytes() / 1e9:.1f}} GB. Written to one reader, a step reads only the
# experts that are met, so it is about as fast as a dense model of {{mixtral.active / 1e9:.0f}} billion. [computed]
#
# **Question.** The balance loss reads two from the first step on, with two of eight chosen. What do you suspect?
#
# **Answer.** A code that does not divide the shares by the number chosen: two is its even value. Or, in a code that
# does, half the experts get all the tokens. [computed: abs(
# formulas.balance_loss([[9.0, 9, -9, -9], [9.0, 9, -9, -9]], 2) - 2) < 1e-6]
#
# **Question.** Why may the gate of a mixture that chooses one expert not be normalised?
#
# **Answer.** It would be one whatever the scores are, and the router would have no slope to learn by. [inference]
#
# ## Papers

# %% [papers]

# %% [numbers]
{
    "moe_gates": ("gates of (2, 1, 0.5, -1), two chosen", formulas.top_k_gates([[2.0, 1.0, 0.5, -1.0]], 2)[0]),
    "moe_expert": ("parameters of an expert of width 16", sum(w.count for w in ledger.weights(moe.expert))),
    "moe_total": ("of eight of them and their router", held[8]),
    "moe_active": ("met by a token that asks two", met[8]),
    "moe_load": ("tokens for each expert, of 256", load_E),
    "balance_even": ("balance loss, even", formulas.balance_loss(10 * np.eye(4), 1)),
    "balance_collapsed": ("all to one of four", formulas.balance_loss([[10.0, 0, 0, 0]] * 4, 1)),
    "balance_below_one": (
        "below one: three tokens, two experts",
        formulas.balance_loss(np.log([[0.9, 0.1], [0.45, 0.55], [0.45, 0.55]]), 1),
    ),
    "balance_max_topk": (
        "two of eight, always the same",
        formulas.balance_loss([[30.0, 15, 0, 0, 0, 0, 0, 0]] * 8, 2),
    ),
    "mixtral_8x7b_params": ("Mixtral 8x7B, held", mixtral.total),
    "mixtral_8x7b_active": ("Mixtral 8x7B, met by a token", mixtral.active),
}

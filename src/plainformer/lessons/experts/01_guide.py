# %% [hidden]
import plainformer as pf
from plainformer import spec
from plainformer.cost import Cost
from plainformer.cost.devices import DEVICES, needed
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson
from plainformer.tree import walk

mixtral, deepseek = (Ledger.of(pf.presets[name]) for name in ("mixtral-8x7b", "deepseek-v3"))
cost = Cost.of(pf.presets["mixtral-8x7b"])
of_mixtral, of_deepseek = (
    next(part for _, part in walk(pf.presets[name]) if isinstance(part, spec.Experts))
    for name in ("mixtral-8x7b", "deepseek-v3")
)
h100 = DEVICES["h100"]
cards = needed(cost.weights_bytes(), h100)
switch_weight = 0.01  # Fedus et al. 2021, section 2.2
huggingface_weight = 0.001  # the default of router_aux_loss_coef

# %% [markdown]
# # Mixture of experts
#
# ## In practice
#
# **In one sentence.** A mixture of experts puts many feed-forward networks where a block had one, and a small router
# that sends each token to a few of them, so that the model holds much and computes little: Mixtral 8x7B holds
# {{mixtral.total:,}} parameters and a token meets {{mixtral.active:,}} of them. [computed]
#
# **When you need it.** You choose between a dense model and one called "8x7B"; you size a card for it, and wonder by
# which of its two numbers; you tune one, and its experts fall silent one after the other; or you train your own and
# want more knowledge for the same hours. [inference]
#
# **Options.** What differs between published mixtures:
#
# | option | what it does | what it gives | what it costs | from |
# |---|---|---|---|---|
# | dense | one feed-forward network for every token | the least memory for its quality, the simplest to run
#   | operations grow with all of it | [inference] |
# | one expert a token (Switch) | the best expert alone, its gate a probability | least traffic | the gate must not be
#   normalised, or the router learns nothing | [paper: Fedus et al. 2021, section 2.1] |
# | a few of a few (Mixtral) | {{of_mixtral.router.n_chosen}} of {{of_mixtral.n_experts}}, gates by softmax over the
#   chosen | simple | coarse: few ways to combine | [computed] |
# | many small ones and one for all (DeepSeek-V3) | {{of_deepseek.router.n_chosen}} of {{of_deepseek.n_experts}} and a
#   shared one | very many combinations, common knowledge kept once | routing in groups, traffic between cards |
#   [computed] |
# | balance by a loss | a penalty on uneven traffic | experts stay alive | it pulls against the task; its weight must be
#   chosen | [paper: Fedus et al. 2021, section 2.2] |
# | balance by a correction | a number for each expert, added to its score for the choice alone | no pull on the task |
#   another rule to run beside the optimiser | [paper: DeepSeek-AI 2024, section 2.1.2] |
#
# **How to choose.** To host one: a mixture where memory is there and time is short (many readers, or an answer wanted
# fast); a dense model where memory is what you lack. [inference] To train one: as many experts as you can hold, and
# smaller ones; the loss on. [paper: Dai et al. 2024, section 3.1] To tune one: look at the load before and after.
# [inference]
#
# **What it costs.** Memory for all of it: {{cost.weights_bytes() / 1e9:.1f}} GB for Mixtral in sixteen bits, so
# {{cards}} cards of eighty GB, for the operations of {{mixtral.active / 1e9:.1f}} billion parameters. [computed] A
# router is cheap, {{mixtral.by_kind["router"]:,}} parameters in all. [computed] How the two numbers become bytes and
# time is {{lesson("budget")}}. [definition]
#
# **What breaks.**
#
# - *Reading "8x7B" as fifty-six or as seven.* It is neither, for only the feed-forward networks are there eight
#   times. The second section counts it. [definition]
# - *Experts that starve.* A router prefers somebody at first by chance; who is met more learns more and is preferred
#   more. [paper: Shazeer et al. 2017, section 4]
# - *A balance loss that is not there.* In transformers the weight of Mixtral's is {{huggingface_weight:g}} by
#   default, but the loss is added only where `output_router_logits` is set, and by default it is not. Who tunes with
#   defaults tunes without it. [source: huggingface/transformers@ad467bd,
#   src/transformers/models/mixtral/configuration_mixtral.py]
# - *Two scales of one loss.* Some divide the shares by the number chosen, some don't; the even value is then one, or
#   that number. A weight copied from one to the other is off by it. [inference]
# - *Full experts.* With a fixed room for each expert, tokens beyond it are passed on unread. [paper: Fedus et al.
#   2021, section 2.2]
# - *Choices that flip.* Two scores that are nearly equal change places by rounding, and a token takes another way:
#   two correct programs differ by more than rounding. [inference]
# - *Scores that grow.* In sixteen bits large scores are coarse ones; a small loss on their size holds them down.
#   [paper: Zoph et al. 2022, section 3.3]
#
# **In the wild.** Mixtral 8x7B: {{mixtral.total / 1e9:.1f}} billion, {{mixtral.active / 1e9:.1f}} met. DeepSeek-V3:
# {{deepseek.total / 1e9:.0f}} billion, {{deepseek.active / 1e9:.1f}} met. [computed] The Switch Transformer brought
# the balance loss in the form used since, with a weight of {{switch_weight:g}}.
# [paper: Fedus et al. 2021, section 2.2] In a terminal: `plainformer size mixtral-8x7b --explain`. [definition]
#
# ## Where it fits
#
# Before this: {{lesson("block")}}, whose feed-forward network is what gets multiplied, and {{lesson("counting")}}.
# [definition] A mixture changes that one part and nothing else: attention, norms and stream are as they were. After it:
# {{lesson("budget")}}. [definition]

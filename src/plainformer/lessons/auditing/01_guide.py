# %% [hidden]
import plainformer as pf
from plainformer.conventions import count
from plainformer.lessons.words import lesson

smallest = pf.presets["fig3-4x32"]
plotted_smallest = 1895722  # read off the drawing of figure 3
naive = count(smallest, "nanogpt").total
authors = count(smallest, "authors").total

# %% [markdown]
# # Auditing a paper's numbers
#
# ## In practice
#
# **In one sentence.** A number in a paper is the result of a rule that the paper may not state; to audit it is to find
# the rule that gives this number and all its neighbours, to say what it counts, and to say what is left open.
# [definition]
#
# **When you need it.** You rebuild a model and its size is not the one in the paper; a figure's axis does not fit the
# table beside it; you cite a number and want to know of what it is one; a text that you learn from says something that
# your own code does not. [inference]
#
# **Options.** From the cheapest to the surest:
#
# | way | what you do | what it shows | where it ends | from |
# |---|---|---|---|---|
# | recount | count the stated shape under every rule you know | which rules can't be meant | several may fit |
#   [inference] |
# | read the figure | take coordinates out of its drawing | numbers that no table gives | the drawing's precision
#   | [inference] |
# | read the code | find the line that counts, and its defaults | what that code does | whether that code ran
#   | [inference] |
# | rebuild | make the model without memory for its weights, and list its tensors | that your reading of the code is
#   right
#   | as above | [inference] |
# | ask | write to the authors | what they meant | memory | [inference] |
#
# **How to choose.** Recount first: it costs seconds. If one rule fits every point and no other does, the code only
# confirms. If several fit, only the code or the authors decide; below there is a case of that. [inference]
#
# **What it costs.** `plainformer size --find 1895722` does the recount for shapes of GPT-2's kind. [definition] Not to
# audit costs more: the smallest model of the figure below is {{plotted_smallest:,}} on its axis and {{naive:,}} by the
# rule of the same paper's labels. [computed]
#
# **What breaks.**
#
# - *One point that fits.* With enough rules one number always fits. Ask for all of them at once. [inference]
# - *Rounded labels.* They hide a third of a percent, and with it biases, padding and tables. [inference]
# - *Defaults.* Released code has switches; the figure was made with one setting, the release has another. [inference]
# - *The auditor's own text.* Whoever corrects others errs too: the last section lists what three texts got wrong, one
#   of them an audit. [definition]
#
# **In the wild.** The paper here proves bounds on how well language models generalise, and plots them against size.
# [paper: Lotfi et al. 2024, figure 3] Its labels are right under one rule, its figure under another, and neither is an
# error: no bound depends on them. [inference]
#
# ## Where it fits
#
# Before this: {{lesson("counting")}}, whose rules are the tools here. [definition] The errata at the end point into
# every other lesson: each right value is computed where it is explained. [definition]

# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.report.diagrams import Arrow, Box, flow

tree = {
    "": {"the": 0.5, "a": 0.4, ".": 0.1},
    "the": {"cat": 0.4, "dog": 0.35, ".": 0.25},
    "a": {"cat": 0.05, "dog": 0.9, ".": 0.05},
    ".": {".": 1.0},
}


def beams(width, n_steps=2):
    """The `width` likeliest texts so far, at every step: (probability, tokens)."""
    kept = [(1.0, ())]
    for _ in range(n_steps):
        longer = [(p * q, (*text, token)) for p, text in kept for token, q in tree[text[-1] if text else ""].items()]
        kept = sorted(longer, key=lambda one: -one[0])[:width]
    return kept


greedy, best = beams(1)[0], beams(2)[0]
alpha = 0.6  # Vaswani et al. 2017, section 6.1

# %% [markdown]
# ## Greedy, beams, and why likeliest is not best
#
# **Everyday picture.** Crossing a city by always taking the fastest next street. Often good, and now and then it ends
# before a wall that anyone with a map would have seen. Beams are a few walkers who start on different streets; those
# who fall behind are called off.
#
# **Where the analogy breaks.** The shortest way is what a walker wants. The likeliest text is not what a reader wants:
# people do not write the likeliest word at each place, nor does a good text. [paper: Holtzman et al. 2020, section 4.3]
#
# **Tiny worked example.** First "the" with probability {{tree[""]["the"]}} or "a" with {{tree[""]["a"]}}. Greedy takes
# "the", and the best behind it has {{tree["the"]["cat"]}}: {{greedy[0]:.2f}} together. Behind "a" stands "dog" with
# {{tree["a"]["dog"]}}: {{best[0]:.2f}}. Two beams find it. [computed]

# %% [figure: beams]
flow(
    "The better way begins with the worse step",
    {
        "start": Box(0, 1.5, "start"),
        "the": Box(1, 0.5, f"the\n{tree['']['the']}", 0),
        "a": Box(1, 2.5, f"a\n{tree['']['a']}", 1),
        "the cat": Box(2, 0, f"the cat\n0.5 x 0.4 = {0.5 * 0.4:.2f}", 0),
        "the dog": Box(2, 1, f"the dog\n0.5 x 0.35 = {0.5 * 0.35:.3f}"),
        "a dog": Box(2, 2, f"a dog\n0.4 x 0.9 = {0.4 * 0.9:.2f}", 1),
        "a cat": Box(2, 3, f"a cat\n0.4 x 0.05 = {0.4 * 0.05:.2f}"),
    },
    [
        Arrow("start", "the"),
        Arrow("start", "a"),
        Arrow("the", "the cat"),
        Arrow("the", "the dog"),
        Arrow("a", "a dog"),
        Arrow("a", "a cat"),
    ],
)

# %% [markdown]
# **How to read it.** Each box holds the probability of the text up to there; each arrow multiplies by what the next
# token has. Greedy goes up at the start and can't come back. Two beams hold both branches after the first step, and
# compare four texts after the second. [definition]
#
# **Formula.** What beams compare, with a length penalty so that long texts are not always worse, in its simplest form:
# [paper: Wu et al. 2016, section 7]
#
# $$
# s(x) = \frac{1}{N^{\alpha}} \sum_{t=1}^{N} \ln p(x_t \mid x_1 \dots x_{t-1})
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $N$ | tokens of the text | {{2}} |
# | $\ln p$ | the logarithm of a token's probability, never above zero | {{np.log(0.4):.3f}}, {{np.log(0.9):.3f}} |
# | $\alpha$ | zero: the sum alone; one: the mean | {{alpha}} |
# | $s$ | the score by which beams are kept | {{(np.log(0.4) + np.log(0.9)) / 2**alpha:.3f}} |
#
# **In words.** Add the logarithms, divide by a power of the length, keep the largest.
#
# **With the numbers.** {{np.log(0.4):.3f}} and {{np.log(0.9):.3f}} are {{np.log(0.36):.3f}}, the logarithm of
# {{best[0]:.2f}}; by {{2**alpha:.3f}} it is {{np.log(0.36) / 2**alpha:.3f}}. [computed]

# %%
for width in (1, 2, 3):
    print(f"{width} beams:", ", ".join(f"{' '.join(text)} {p:.3f}" for p, text in beams(width)))
chances = {text: p for p, text in beams(99)}
print("all two-token texts together:", round(sum(chances.values()), 12))

# %% [markdown]
# More beams find likelier texts, and likelier is worse past a point: for more than half of the sentences that were
# tried, the likeliest translation of a good model of its time was the empty one. [paper: Stahlberg and Byrne 2019,
# abstract] In open-ended writing, such as stories, maximising ends in loops. [paper: Holtzman et al. 2020, abstract]
# So beams are for tasks where the input all but fixes the output, and drawing for the rest. [inference]
#
# **In the library.** It draws, or takes the best; it has no beams. What scores a text, in logarithms so that a thousand
# small numbers do not vanish: [definition]

# %% [source: formulas.cross_entropy]

# %% [source: formulas.log_softmax]

# %% [markdown]
# **Why it matters.** "The model said so" means: this draw, with these dials. Of a single text neither its best nor its
# worst follows. [inference]

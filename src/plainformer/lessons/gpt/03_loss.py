# %% [hidden]
import math

import numpy as np

import plainformer as pf
from plainformer import formulas, reference
from plainformer.initial import initial
from plainformer.lessons.words import lesson, measured, vector
from plainformer.report.diagrams import Arrow, Box, flow

tiny = pf.presets["lesson"]
arrays = initial(tiny, "lesson", seed=0)
tokens = np.array([3, 1, 4, 1, 5])
scores_TV = reference.logits(tiny, arrays, tokens)
surprise_T = formulas.cross_entropy(scores_TV[:-1], tokens[1:])
loss = surprise_T.mean()
untrained = {row["what"]: float(row["value"]) for row in measured("untrained")["rows"]}
bits = untrained["mean surprisal of the next token, bits"]

# %% [markdown]
# ## One pass, every prediction
#
# **Everyday picture.** A teacher reads a story to a class and stops after every word: write down what comes next. At
# the end there are as many marked answers as words, from one reading.
#
# **Where the analogy breaks.** The class could hear the next word before the pens are down. In the model it lies open
# in the same row, one place further on; only the mask keeps it from being read. [inference]
#
# **Tiny worked example.** The row {{vector(tokens, "g")}} is five tokens and four lessons: after {{tokens[0]}} comes
# {{tokens[1]}}, after {{tokens[0]}}, {{tokens[1]}} comes {{tokens[2]}}, and so on. The untrained model gives the four
# true answers surprisals of {{vector(surprise_T)}} nats, {{loss:.3f}} on average; guessing evenly among
# {{tiny.vocab_size}} costs {{math.log(tiny.vocab_size):.3f}}. [computed]

# %% [figure: shift]
flow(
    "What is read, and what each place is asked for",
    {
        **{f"in{i}": Box(i, 1, f"reads {token}", 0) for i, token in enumerate(tokens)},
        **{f"out{i}": Box(i, 0, f"scores\nasked for {token}", 1) for i, token in enumerate(tokens[1:])},
        "out4": Box(4, 0, "scores\nasked for nothing"),
    },
    [Arrow(f"in{i}", f"out{i}") for i in range(5)],
)

# %% [markdown]
# **How to read it.** Below, what is fed; above, what the loss compares with. Each place's target is the token one place
# to the right below. The last place has none: its scores are what one would write with. Between the rows every place
# hears those to its left, which is not drawn. [definition]
#
# **Formula.** The loss of a row of $T$ tokens, the mean surprisal of each token after the first:
#
# $$
# \ell = -\frac{1}{T - 1} \sum_{i=0}^{T-2} \ln p_i(t_{i+1}), \qquad p_i = \mathrm{softmax}(z_i)
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $T$ | tokens in the row | {{len(tokens)}} |
# | $z_i$ | the scores at place $i$ | {{tiny.vocab_size}} numbers |
# | $p_i(t)$ | the probability that place $i$ gives token $t$ | {{math.exp(-surprise_T[0]):.4f}} for the first target |
# | $t_{i+1}$ | the true next token | {{tokens[1]}} at $i$ = {{0}} |
# | $\ell$ | the loss, in nats | {{loss:.3f}} |
#
# **In words.** At each place: how surprised were you by what came? The mean of that.
#
# **With the numbers.** ({{" + ".join(f"{s:.3f}" for s in surprise_T)}}) / {{len(surprise_T)}} = {{loss:.3f}}.
# [computed]

# %%
scores_TV = reference.logits(tiny, arrays, tokens)
print("one pass:   ", vector(formulas.cross_entropy(scores_TV[:-1], tokens[1:])))
each = [
    formulas.cross_entropy(reference.logits(tiny, arrays, tokens[: i + 1])[-1:], tokens[i + 1 : i + 2])[0]
    for i in range(4)
]
print("four passes:", vector(each))
shifted = formulas.cross_entropy(scores_TV, tokens).mean()
print(f"off by one, each place asked for what it reads: {shifted:.3f}")

# %% [markdown]
# One pass says what four would. [computed: bool(np.allclose(each, surprise_T, rtol=0, atol=1e-12))] Off by one, each
# place is asked for what it has just read: before training {{shifted:.3f}}, no better than the rest, but soon zero, and
# the model would have learned to repeat. [computed]
#
# **What a model says before it has learned anything.** Four layers of width {{32}}, GPT-2's vocabulary, random weights,
# twelve random tokens; then the ninth is changed: [definition]

# %% [measured: untrained]

# %% [markdown]
# It guesses: {{bits:.3f}} bits a token, where an even guess among {{50304:,}} rows costs {{math.log2(50304):.3f}} and
# among the {{50257:,}} true tokens {{math.log2(50257):.3f}}. [measured: untrained] [computed] And it is causal to the
# last bit: before the changed token nothing moves at all. [measured: untrained] [computed:
# untrained["scores before the changed token move by"] == 0]
#
# **In the library.** The loss is one line, of the logarithm of softmax. [definition]

# %% [source: formulas.cross_entropy]

# %% [markdown]
# **Why it matters.** A document of a thousand tokens is nearly a thousand lessons for the price of one pass. It is why
# decoders are trained on plain text and nothing else, and why a loss that is far below {{math.log(50257):.1f}} after
# the first step means a mistake. [computed] What moves the weights then is {{lesson("training")}}. [definition]

# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas, reference
from plainformer.families import decoders
from plainformer.gradients import loss_and_gradients
from plainformer.initial import initial
from plainformer.lessons.words import lesson, measured, rows, vector
from plainformer.report.diagrams import Arrow, Box, flow

TEXT = "to be or not to be that is the question "
letters = sorted(set(TEXT))
ids_N = np.array([letters.index(one) for one in TEXT])
context = 8
x_T, y_T = ids_N[:context], ids_N[1 : context + 1]
V = len(letters)
one = decoders.gpt2(vocab_size=V, max_seq_len=context, d_model=16, n_layers=2, n_heads=2)
own_head = decoders.gpt2(vocab_size=V, max_seq_len=context, d_model=16, n_layers=2, n_heads=2, tied=False)


def first_loss(recipe):
    """Of weights that nothing has trained, over every window of the text."""
    spec = one if recipe != "zero_out" else own_head
    weights = initial(spec, recipe, seed=0)
    losses = [
        formulas.cross_entropy(reference.logits(spec, weights, ids_N[i : i + context]), ids_N[i + 1 : i + context + 1])
        for i in range(0, len(ids_N) - context, context)
    ]
    return float(np.mean(losses))


first = {recipe: first_loss(recipe) for recipe in ("gpt2", "zero_out")}
curve = measured("curves")["rows"]


def said(ids):
    return repr("".join(letters[i] for i in ids))


# %% [markdown]
# ## Text, tokens, batches
#
# **Everyday picture.** A dictation in which you guess each word before it is read out. You write down your guess,
# then hear the word, then guess the next. Nobody needs to prepare answers: the text is its own key, shifted by one.
#
# **Where the analogy breaks.** You guess one word at a time. The model guesses at every place of the window at once,
# since the mask keeps each place from seeing what comes after it; and it hears nothing between two guesses: all of
# its learning happens after the whole batch. [inference]
#
# **Tiny worked example.** {{said(ids_N)}} has {{len(ids_N)}} characters, {{V}} different ones. The first window reads
# {{said(x_T)}} and should say {{said(y_T)}}: the same, one further on. That is {{context}} questions with {{context}}
# answers. [computed: bool((x_T[1:] == y_T[:-1]).all())]

# %% [figure: shift]
flow(
    "The same text twice, shifted by one",
    {
        **{f"x{i}": Box(i, 0, repr(letters[x_T[i]]), 0) for i in range(5)},
        **{f"m{i}": Box(i, 1, "model") for i in range(5)},
        **{f"y{i}": Box(i, 2, repr(letters[y_T[i]]), 1) for i in range(5)},
    },
    [
        *(Arrow(f"x{i}", f"m{i}") for i in range(5)),
        *(Arrow(f"m{i}", f"y{i}", "" if i < 4 else "should say") for i in range(5)),
        *(Arrow(f"m{i}", f"m{i + 1}") for i in range(4)),
    ],
)

# %% [markdown]
# **How to read it.** Above, what is read; below, what should be said: each box of the lower row is the upper box to
# its right. Arrows between places go to the right alone. So the third place has read three characters and knows
# nothing of the fourth, which is its answer. [definition]
#
# **Formula.** The loss of a batch, over its real targets:
#
# $$
# L = -\frac{1}{N} \sum_{n=1}^{N} \ln p(y_n \mid x_1 \ldots x_n), \qquad y_n = x_{n+1}, \qquad L_{first} \approx \ln V
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $x_n$ | the token at place $n$ of its window | {{said(x_T[:1])}} first |
# | $y_n$ | the target there | {{said(y_T[:1])}} |
# | $p$ | what the model says | |
# | $N$ | how many targets the batch has | {{context}} for one window |
# | $V$ | how many tokens there are | {{V}} |
#
# **In words.** How surprised the model was by what came next, on average. At first it knows nothing, so it should be
# as surprised as by a fair die with as many sides as there are tokens.
#
# **With the numbers.** The logarithm of {{V}} is {{np.log(V):.4f}}. Before any training a model drawn as GPT-2 draws
# it has {{first["gpt2"]:.4f}}; one whose head says zero at first has {{first["zero_out"]:.4f}}, exactly that.
# [computed: bool(abs(first["zero_out"] - np.log(V)) < 1e-12 and abs(first["gpt2"] - np.log(V)) < 0.1)]

# %%
x_BT = np.stack([ids_N[i : i + 8] for i in range(0, 32, 8)])
y_BT = np.stack([ids_N[i + 1 : i + 9] for i in range(0, 32, 8)])
for x, y in zip(x_BT, y_BT, strict=True):
    print(said(x), "->", said(y))
loss, slopes = loss_and_gradients(one, initial(one, "gpt2", seed=0), x_BT, y_BT)
print(f"loss {loss:.4f}   ln V {np.log(V):.4f}   gradients: {len(slopes)} arrays")

# %% [markdown]
# **A first loss that is not near it** says at once that something is wrong: well above, the scores are too large, as
# they are with a tied table that is drawn too wide; well below, the targets leak. [inference] Of the measured runs
# below the first step had {{curve[0]["batches"].split()[0]}} nats, with {{65}} characters: {{np.log(65):.3f}}.
# [measured: curves] [computed]
#
# **Tokens.** Characters make a small table and long rows; bytes the same for every alphabet; pieces of words, learned
# by merging what stands together often, make rows shorter and the table larger. [paper:
# Sennrich et al. 2016, section 3.2] A loss per token can't be compared between them; one per byte can: the next
# section. [inference]
#
# **The order of the windows.** The library lays windows side by side over the text from a random first token, and
# goes through them in a random order, each once, before a new epoch begins. Which windows a step has is computed from
# the seed and the step's number, never from what was drawn before. So every token is asked for equally often, and any
# step can be made again alone: that is half of an exact resume. [inference]
#
# **In the library.** The loss and all slopes of a batch, by hand; a target of minus one counts nowhere. [definition]

# %% [source: loss_and_gradients]

# %% [markdown]
# **Why it matters.** There are no labels to buy: any text is a training set, and every token of it is a question.
# [inference] And a model that is right about the next token more often than counting is has had to find out something
# that counting cannot: what, is the next section. [inference]

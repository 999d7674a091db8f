# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas, reference
from plainformer.initial import initial
from plainformer.lessons.words import vector
from plainformer.report.diagrams import Arrow, Box, flow

tiny = pf.presets["lesson"]
weights = initial(tiny, "lesson", seed=0)
prompt = [3, 1, 4, 1, 5]
written = reference.generate(tiny, weights, prompt, 3, temperature=0.0)
steps = []
for n in range(len(prompt), len(written)):
    p_V = formulas.probabilities(reference.logits(tiny, weights, written[:n])[-1])
    steps.append((int(written[n]), float(p_V[written[n]])))
each = [p for _, p in steps]
of_text = float(np.prod(each))
room = tiny.max_seq_len - len(prompt)
letter = "é".encode()

# %% [markdown]
# ## One token at a time
#
# **Everyday picture.** A game at a table: a story goes round, each adds one word to the sheet and passes it on. Nobody
# plans ahead and nobody may cross out; whoever writes next sees all that is there.
#
# **Where the analogy breaks.** Around a table the hands differ. Here the same function writes every word, and all that
# it knows of its own intentions is what it can read off the sheet (and off what it kept of reading it). [inference]
#
# **Tiny worked example.** A GPT of {{sum(a.size for a in weights.values()):,}} random numbers and
# {{tiny.vocab_size}} tokens reads {{vector(prompt, ".0f")}} and scores all {{tiny.vocab_size}}; the best is token
# {{steps[0][0]}}, with probability {{steps[0][1]:.3f}}. Behind that it writes {{steps[1][0]}} and {{steps[2][0]}}.
# [computed]

# %% [figure: loop]
flow(
    "Writing one token",
    {
        "text": Box(0, 0, "the text so far\ntoken numbers"),
        "model": Box(1, 0, "the model\nreads what is new", 0),
        "scores": Box(2, 0, "scores of the last place\none for each token", 1),
        "p": Box(3, 0, "temperature, limits\nsoftmax", 1),
        "draw": Box(4, 0, "draw one\nseed", 2),
        "kept": Box(1, 1, "cache\nkeys and values"),
    },
    [
        Arrow("text", "model"),
        Arrow("model", "scores"),
        Arrow("scores", "p"),
        Arrow("p", "draw"),
        Arrow("draw", "text", "written behind the text", around=-1),
        Arrow("kept", "model", dashed=True),
    ],
)

# %% [markdown]
# **How to read it.** The loop goes around once a token. Of the model's scores only those of the last place are used;
# in training all places are, which is why reading is fast and writing is slow. The dashed box is the section on the
# cache. Chance enters in one box alone: with the same seed everything else repeats. [definition]
#
# **Formula.** The probability of a text is the product of what each step gave its token:
#
# $$
# p(x_1 \dots x_N) = \prod_{t=1}^{N} p(x_t \mid x_1 \dots x_{t-1})
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $x_t$ | the token at place $t$ | {{", ".join(str(token) for token, _ in steps)}} after the prompt |
# | $p(x_t \mid \dots)$ | its probability, given all before it | {{vector(each)}} |
# | $\prod$ | multiply over all places | {{of_text:.2e}} |
#
# **In words.** A text is as likely as its first token, times its second given the first, and so on.
#
# **With the numbers.** {{each[0]:.4f}} times {{each[1]:.4f}} times {{each[2]:.4f}} is {{of_text:.2e}}. [computed]

# %%
prompt = [3, 1, 4, 1, 5]
greedy = reference.generate(tiny, weights, prompt, 3, temperature=0.0)
print("prompt and three more:", greedy, "shape", np.array([greedy]).shape)
for seed in (0, 1, 0):
    print("drawn, seed", seed, reference.generate(tiny, weights, prompt, 8, temperature=1.0, seed=seed))
try:
    reference.generate(tiny, weights, prompt, 12)
except pf.PlainformerError as fault:
    print("refused:", fault)

# %% [markdown]
# The same seed gives the same text, another one another. [computed: bool((reference.generate(tiny, weights, prompt, 8,
# seed=0) == reference.generate(tiny, weights, prompt, 8, seed=0)).all())]
#
# **When it ends.** After as many tokens as were asked for; at a token that means the end, or at a stop text; or where
# the context is full: this model has {{tiny.max_seq_len}} places, so a prompt of {{len(prompt)}} leaves {{room}}, and
# twelve are refused before the first is written. [computed] A program that cuts the oldest tokens off in silence
# answers on, with a model that has forgotten its task. [inference]
#
# **Text as it comes.** A token may be half a letter: é is {{len(letter)}} bytes in UTF-8, and the first alone is no
# text. [computed: letter[:1].decode(errors="replace") != "é" and letter.decode() == "é"] A stream that prints each
# token must hold back what is not yet whole, and what may yet become a stop text; its pieces, joined, are the text.
# [inference]
#
# **In the library.** The loop of the definition: [definition]

# %% [source: reference.generate]

# %% [markdown]
# **Why it matters.** Everything else in this lesson is a change of one box in that loop: the draw, or how much is read
# again. [inference]

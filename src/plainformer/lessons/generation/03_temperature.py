# %% [hidden]
import numpy as np

from plainformer import formulas
from plainformer.lessons.words import lesson, measured, vector
from plainformer.report.drawings import lines

z_V = np.array([2.0, 1.0, 0.0])
p = {T: formulas.probabilities(z_V, T) for T in (0.5, 1.0, 2.0)}


def entropy(p_V):
    """In bits; a token of probability zero adds nothing."""
    kept = p_V[p_V > 0]
    return abs(float((kept * np.log2(kept)).sum()))


temperatures = [round(0.1 * i, 1) for i in range(1, 51)]
drawn = {row["temperature"]: row for row in measured("temperatures")["rows"]}


def first(T, column):
    """The median of what was measured at a temperature."""
    return float(drawn[T][column].split()[0])


bits, known, different = "entropy, bits a draw", "words that the text has", "different ones of all words"
bits_rise, known_falls = ([first(T, column) for T in drawn] for column in (bits, known))

# %% [markdown]
# ## Temperature: how much the likeliest is preferred
#
# **Everyday picture.** A prize is shared by marks. A strict jury gives nearly all to the best; a mild one shares almost
# evenly. The order of the marks is the same for both.
#
# **Where the analogy breaks.** The draw takes one token, not shares: over many draws the shares appear, in one draw the
# least likely can win. [inference]
#
# **Tiny worked example.** Three tokens with scores {{vector(z_V, "g")}}. At temperature one their probabilities are
# {{vector(p[1.0])}}; at a half {{vector(p[0.5])}}; at two {{vector(p[2.0])}}. [computed]

# %% [figure: temperature]
lines(
    "Probabilities of three tokens with scores 2, 1, 0",
    {f"score {z:g}": [(T, float(formulas.probabilities(z_V, T)[i])) for T in temperatures] for i, z in enumerate(z_V)},
    "temperature",
    "probability",
)

# %% [markdown]
# **How to read it.** At the left, near zero, one token has everything: that is greedy. To the right the three lines
# come together, towards a third each, and never cross: no temperature makes a worse token the better one. [computed:
# all(bool((np.diff(formulas.probabilities(z_V, T)) <= 0).all()) for T in temperatures)] Between a
# half and two most of the change is done. [computed: entropy(p[2.0]) - entropy(p[0.5]) >
# np.log2(3) / 2]
#
# **Formula.**
#
# $$
# p_i = \frac{e^{z_i / T}}{\sum_j e^{z_j / T}}, \qquad H = -\sum_i p_i \log_2 p_i
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $z_i$ | the model's score of token $i$ | {{vector(z_V, "g")}} |
# | $T$ | temperature | {{2}} |
# | $p_i$ | how likely token $i$ is to be drawn | {{vector(p[2.0])}} |
# | $H$ | entropy: how uncertain the draw is, in bits | {{entropy(p[2.0]):.3f}} |
#
# **In words.** Divide the scores by the temperature, then softmax. Dividing by less than one pulls the scores apart.
#
# **With the numbers.** At two the scores are {{vector(z_V / 2, "g")}}; {{np.exp(1):.3f}} / ({{np.exp(1):.3f}} +
# {{np.exp(0.5):.3f}} + {{1}}) = {{p[2.0][0]:.4f}}. [computed]

# %%
for T in (0.0, 0.1, 0.5, 1.0, 2.0, 10.0):
    p_V = formulas.probabilities([2.0, 1.0, 0.0], T)
    print(f"T = {T:<4} {p_V.round(4)}  entropy {entropy(p_V):.3f} bits, as a choice among {2 ** entropy(p_V):.2f}")

# %% [markdown]
# Entropy is the honest name of the dial: {{entropy(p[0.5]):.2f}}, {{entropy(p[1.0]):.2f}} and {{entropy(p[2.0]):.2f}}
# bits of at most {{np.log2(3):.2f}} for a half, one and two. [computed] "Conservative" and "creative" are names for
# its ends, and where they begin depends on the model: one that is sure of its text stays at low entropy at
# temperatures where another already raves. [inference]
#
# A small model of letters, trained for seconds, in bands: [definition]

# %% [measured: temperatures]

# %% [markdown]
# Entropy rises all the way, and the share of words that its text knows falls all the way. [measured: temperatures]
# [computed: bits_rise == sorted(bits_rise) and known_falls == sorted(known_falls)[::-1]] From a tenth to a half
# {{first("0.1", known):.0f}} to {{first("0.5", known):.0f}} % of the words are words, and at a tenth
# {{first("0.1", different):.0f}} in a hundred differ: it says the same few. From one and a half to two
# {{first("1.5", known):.0f}} to {{first("2", known):.0f}} % are, and nearly all differ: what is new is mostly no
# word. [measured: temperatures] The bands that courses name are there, cautious up to a half and inventive from one
# and a half, and their numbers are this model's: a surer one keeps more of its words at the same temperature.
# [inference]
#
# **In the library.** One function for temperature, top-k and top-p, in the order in which they act; softmax of the
# scores divided: [definition]

# %% [source: formulas.softmax]

# %% [markdown]
# **Why it matters.** At temperature one a model draws as it was trained to: the loss of {{lesson("training")}} is the
# loss of that distribution. Any other temperature is a decision of yours against the model's own doubt. [inference]

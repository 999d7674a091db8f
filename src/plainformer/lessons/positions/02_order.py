# %% [hidden]
import numpy as np

from plainformer import formulas, reference
from plainformer.families import decoders
from plainformer.initial import initial
from plainformer.lessons.words import small, vector
from plainformer.records import replace
from plainformer.report.diagrams import Arrow, Box, flow

dog, bites, man = [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]


def hears(tokens, causal=False):
    """What each token takes, with the identity for queries, keys and values."""
    x = np.array([tokens])
    see = np.tril(np.ones((len(tokens), len(tokens)), bool)) if causal else np.ones((len(tokens), len(tokens)), bool)
    return formulas.attention(x, x, x, see, 2**-0.5)[0][0]


there, back = hears([dog, bites, man]), hears([man, bites, dog])


def bare(n_layers):
    """A small decoder without any positions, and random weights."""
    spec = decoders.gpt2(vocab_size=9, max_seq_len=8, d_model=16, n_layers=n_layers, n_heads=2)
    spec = replace(spec, decoder=replace(spec.decoder, positions=None))
    rng = np.random.default_rng(0)
    return spec, {name: rng.normal(0, 0.5, array.shape) for name, array in initial(spec).items()}


def last_moves(n_layers):
    """How far the last token's logits move when the two first tokens change places."""
    spec, arrays = bare(n_layers)
    one, two = (reference.logits(spec, arrays, tokens)[-1] for tokens in ([1, 2, 3, 4], [2, 1, 3, 4]))
    return float(abs(one - two).max())


gap_one, gap_two = last_moves(1), last_moves(2)

# %% [markdown]
# ## What attention can't tell
#
# **Everyday picture.** A bag of word tiles. You may look at every tile and compare it with every other. Nothing tells
# you which lay first.
#
# **Where the analogy breaks.** A decoder's mask is not a bag: it says of each token which came before. That is some
# order, though no token is told its own place; the second half of this section shows how little it is, and how much
# two layers make of it. [inference]
#
# **Tiny worked example.** Let "dog" be {{vector(dog, "g")}}, "bites" {{vector(bites, "g")}}, "man"
# {{vector(man, "g")}}, and let queries, keys and values be the tokens themselves, without a mask. In "dog bites man"
# the dog takes {{vector(there[0])}}; in "man bites dog" it takes {{vector(back[2])}}. Who bit whom is lost.
# [computed]

# %% [figure: bag]
flow(
    "Two sentences, one bag",
    {
        "a": Box(0, 0, "dog bites man"),
        "b": Box(0, 1, "man bites dog"),
        "bag": Box(1, 0.5, "attention without positions\nthe same three products, the same sums", 0),
        "out": Box(2, 0.5, f"what the dog hears\n{vector(there[0])}", 1),
    },
    [Arrow("a", "bag"), Arrow("b", "bag"), Arrow("bag", "out", "both times")],
)

# %% [markdown]
# **How to read it.** Both sentences go in, one answer comes out: a sum does not know in which order its terms were
# added. [inference]
#
# **Formula.** Let $P$ put the rows of $X$ into another order. Without a mask,
#
# $$
# \mathrm{Attention}(P X) = P\, \mathrm{Attention}(X)
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $X$ | the tokens, a row each | dog, bites, man |
# | $P$ | a matrix that only reorders rows | first and last change places |
# | $P X$ | the tokens in the other order | man, bites, dog |
#
# **In words.** Shuffle what goes in, and what comes out is shuffled the same way, and otherwise unchanged.
#
# **With the numbers.** Forwards, the three hear {{vector(there[0])}}, {{vector(there[1])}}, {{vector(there[2])}};
# backwards {{vector(back[0])}}, {{vector(back[1])}}, {{vector(back[2])}}. [computed]

# %%
print(hears([dog, bites, man]))
print(hears([man, bites, dog]))
for n_layers in (1, 2):
    print(f"causal, {n_layers} layer(s), first two tokens swapped: the last logits move: {small(last_moves(n_layers))}")

# %% [markdown]
# With a causal mask and one layer, the last token still can't tell the order of those before it: swapping two of them
# moves its logits by rounding alone. [computed: gap_one < 1e-12] With two layers it can, by {{gap_two:.2f}} here.
# [computed] After one layer the second token has seen one token and the first none, so they differ by what they have
# seen, and the next layer reads that. Models without any positions do learn, and their inner layers can be made to
# tell the place. [paper: Haviv et al. 2022, abstract] It is a weak signal all the same, and most models are told.
# [inference]
#
# **In the library.** Positions are no argument of attention; they travel beside it, and only what needs them looks.
# [definition]

# %% [source: reference.Where]

# %% [markdown]
# **Why it matters.** Everything in the rest of this lesson is one question: where to put the missing information,
# into the tokens, into queries and keys, or into the scores. [inference]

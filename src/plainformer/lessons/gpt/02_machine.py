# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import reference, spec
from plainformer.initial import initial
from plainformer.ledger import Ledger
from plainformer.lessons.words import rows, vector
from plainformer.report.diagrams import Arrow, Box, flow

tiny = pf.presets["lesson"]
arrays = initial(tiny, "lesson", seed=0)
tokens = [3, 1, 4, 1, 5]
seen = {}
scores_TV = reference.logits(tiny, arrays, tokens, trace=seen)
total = Ledger.of(tiny).total
block = sum(w.count for w in Ledger.of(tiny).rows if w.name.startswith("decoder.layers.0."))
h_D = np.array([1.0, -1.0])  # what leaves the last norm, two numbers
E_VD = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]])  # a table of three tokens

# %% [markdown]
# ## From numbers to scores
#
# **Everyday picture.** A sorting office. Each parcel gets a label that says what it is and one that says where it stood
# in the queue; it passes the same row of desks as every other; at the end it is held against every pigeonhole, and the
# best fit wins.
#
# **Where the analogy breaks.** Parcels do not change on the way, and these do: at every desk something is added. And no
# pigeonhole wins here: each gets a score, all of them are kept. [inference]
#
# **Tiny worked example.** A model of {{tiny.vocab_size}} tokens, width {{tiny.d_model}}, two blocks of four heads and
# {{tiny.max_seq_len}} places. The tokens `[3, 1, 4, 1, 5]` become {{len(tokens)}} vectors of {{tiny.d_model}} numbers,
# stay that through both blocks, and come out as {{scores_TV.shape[0]}} rows of {{scores_TV.shape[1]}} scores: row five
# scores every token as the sixth. [computed] It has {{total:,}} weights: {{50 * 32:,}} in the token table, {{16 * 32}}
# in the places, twice {{block:,}} in the blocks and {{2 * 32}} in the last norm. [computed]
# [computed: 50 * 32 + 16 * 32 + 2 * block + 2 * 32 == total]

# %% [figure: machine]
flow(
    "A whole GPT: two tables in, one of them again at the end",
    {
        "ids": Box(0, 0, "tokens\n3, 1, 4, 1, 5"),
        "places": Box(0, 1, "places\n0, 1, 2, 3, 4"),
        "table": Box(1, 0, "token table\n50 x 32", 0),
        "where": Box(1, 1, "place table\n16 x 32", 1),
        "add": Box(2, 0, "+", None, True),
        "block1": Box(3, 0, "block 1\n5 x 32", 2),
        "block2": Box(4, 0, "block 2\n5 x 32", 2),
        "norm": Box(5, 0, "last norm\n5 x 32"),
        "scores": Box(6, 0, "scores\n5 x 50", 0),
    },
    [
        Arrow("ids", "table"),
        Arrow("places", "where"),
        Arrow("table", "add"),
        Arrow("where", "add"),
        Arrow("add", "block1"),
        Arrow("block1", "block2"),
        Arrow("block2", "norm"),
        Arrow("norm", "scores"),
        Arrow("table", "scores", "the same table", dashed=True, around=-1),
    ],
)

# %% [markdown]
# **How to read it.** From left to right; numbers under a name are the shape of what is there. A token's number picks a
# row of the token table, its place a row of the other; their sum is the stream that enters the first block. The dashed
# arrow is *tying*: the table that made vectors of numbers is used once more, to score every token against the vector
# that came out. [definition]
#
# **Formula.**
#
# $$
# x^{(0)}_i = E_{t_i} + P_i, \qquad x^{(l)} = \mathrm{Block}_l(x^{(l-1)}), \qquad
# z_i = E\, \mathrm{Norm}(x^{(L)}_i)
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $t_i$ | the token at place $i$, counted from {{0}} | {{tokens[0]}} at the first |
# | $E$ | the token table, a row for each token | {{tiny.vocab_size}} rows of {{tiny.d_model}} |
# | $P$ | the place table | {{tiny.max_seq_len}} rows |
# | $x^{(l)}_i$ | the stream at place $i$ after block $l$ | {{tiny.d_model}} numbers |
# | $L$ | the number of blocks | {{len(tiny.decoder.layers)}} |
# | $z_i$ | the scores (*logits*) of every token as the one after $t_i$ | {{tiny.vocab_size}} numbers |
#
# **In words.** Look up twice and add; pass the blocks; norm; multiply with every row of the table.
#
# **With the numbers.** Small enough to do by hand: width two, three tokens. The last norm gives {{vector(h_D, "g")}};
# the table's rows are {{rows(E_VD, "g")}}. The scores are {{vector(E_VD @ h_D, "g")}}: the first token fits best.
# [computed]

# %%
head = spec.Head(linear=spec.Linear(n_in=2, n_out=3), tied=True)
held = reference.Weights({"embedding.weight": E_VD}, "head")
print("by hand ", E_VD @ h_D)
print("library ", reference.run(head, held, h_D[None], reference.Where(np.arange(1)))[0])

seen = {}
scores_TV = reference.logits(tiny, arrays, tokens, trace=seen)
for name in ("decoder.stream.0", "decoder.stream.1", "decoder.stream.2"):
    print(name, seen[name].shape, "spread", seen[name].std().round(3))
print("scores", scores_TV.shape, "of the last place, the highest five:", np.argsort(-scores_TV[-1])[:5])

# %% [markdown]
# A score is a dot product: how far the vector that came out points along a token's row. [definition] Ask this model for
# the sixth token and it prefers token {{int(np.argmax(scores_TV[-1]))}}, for no reason: nothing has been learned.
# [computed]
#
# **In the library.** The whole of it is two functions: everything up to the last norm, and the head. [definition]

# %% [source: reference.hidden]

# %% [source: reference.run.dispatch(spec.Head)]

# %% [markdown]
# **Why it matters.** GPT-2, Llama and every other decoder is this, with other parts in the same places: a rotation
# instead of the place table, another norm, a gate, experts. Sizes differ, the way through does not. [inference]

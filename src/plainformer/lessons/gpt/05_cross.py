# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas, reference
from plainformer.families import encoder_decoders
from plainformer.initial import initial
from plainformer.ledger import weights
from plainformer.lessons.words import rows, vector
from plainformer.report.diagrams import Arrow, Box, flow

q_1K = np.array([[1.0, 0.0]])  # one token of the target asks
k_SK = np.array([[2.0, 0.0], [0.0, 1.0]])  # two of the source offer
v_SK = np.array([[1.0, 0.0], [0.0, 2.0]])
all_1S = np.ones((1, 2), bool)
told_HTK, weights_HTS = formulas.attention(q_1K[None], k_SK[None], v_SK[None], all_1S, 2**-0.5)
sums = (q_1K @ k_SK.T / np.sqrt(2))[0]

bart = encoder_decoders.bart(
    vocab_size=50,
    max_seq_len=16,
    d_model=32,
    n_encoder_layers=2,
    n_decoder_layers=2,
    n_encoder_heads=4,
    n_decoder_heads=4,
    d_encoder_ff=128,
    d_decoder_ff=128,
)
gpt_layer, decoder_layer, encoder_layer = (
    spec.layers[0] for spec in (pf.presets["lesson"].decoder, bart.decoder, bart.encoder)
)
crossing = sum(w.count for w in weights(decoder_layer[1]))
t5 = pf.presets["t5-small"]
t5_scale = t5.decoder.layers[0][0].branches[0].part.scores.scale

# %% [markdown]
# ## Two stacks, joined: cross-attention
#
# **Everyday picture.** The interpreter again, with a notepad. The sentence was heard and noted once; while speaking,
# every next word is preceded by a glance at the notes, each time at another line.
#
# **Where the analogy breaks.** The notes are not words. They are the encoder's vectors, one for each token of the
# source, in each of which all the others are already mixed. [inference]
#
# **Tiny worked example.** One token of the target asks {{vector(q_1K[0], "g")}}; two of the source offer
# {{rows(k_SK, "g")}} and hold {{rows(v_SK, "g")}}. It looks at them with weights {{vector(weights_HTS[0, 0])}} and
# hears {{vector(told_HTK[0, 0])}}. No mask: the source is there as a whole. [computed]

# %% [figure: cross]
flow(
    "An encoder-decoder: the decoder asks, the encoder's last vectors answer",
    {
        "source": Box(0, 3, "source tokens"),
        "encoder": Box(0, 2, "encoder layers\nall see all", 0),
        "memory": Box(0, 1, "what it says\none vector a token", 0),
        "target": Box(1.6, 4, "target tokens so far"),
        "self": Box(1.6, 3, "attention\nthose before", 1),
        "cross": Box(1.6, 1, "cross-attention\nall of the source", 2),
        "feed": Box(1.6, 0, "feed-forward\nthen the next layer", 1),
    },
    [
        Arrow("source", "encoder"),
        Arrow("encoder", "memory"),
        Arrow("target", "self"),
        Arrow("self", "cross", "queries"),
        Arrow("memory", "cross", "keys, values"),
        Arrow("cross", "feed"),
    ],
)

# %% [markdown]
# **How to read it.** From the bottom up, two columns. At the left the source passes its encoder once. At the right each
# layer of the decoder has three parts: attention to the target so far, a second attention whose keys and values are
# made from the left column's result, and a feed-forward network. Nothing leads from right to left. [definition]
#
# **Formula.**
#
# $$
# c_i = \sum_{j=1}^{S} \mathrm{softmax}_j\!\left( \frac{q(x_i) \cdot k(m_j)}{\sqrt{d_{\mathrm{head}}}} \right) v(m_j)
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $x_i$ | the decoder's stream at place $i$ | makes the query {{vector(q_1K[0], "g")}} |
# | $m_j$ | what the encoder says of source token $j$ | makes a key and a value |
# | $S$ | tokens of the source | {{len(k_SK)}} |
# | $d_{\mathrm{head}}$ | the width of a head | {{q_1K.shape[1]}} |
# | $c_i$ | what place $i$ hears of the source | {{vector(told_HTK[0, 0])}} |
#
# **In words.** Attention as ever, but the ones who ask and the ones who answer are of two texts.
#
# **With the numbers.** The scores are {{vector(sums)}}; raised and divided by their sum they are
# {{vector(weights_HTS[0, 0])}}, and the values, so weighted, {{vector(told_HTK[0, 0])}}. [computed]

# %%
print("weights", weights_HTS[0, 0], "heard", told_HTK[0, 0])
arrays = initial(bart)
source, target = np.array([3, 1, 4]), np.array([0, 1, 5, 9])
scores_TV = reference.logits(bart, arrays, target, source_S=source)
longer = reference.logits(bart, arrays, target, source_S=np.array([3, 1, 4, 1, 5]))
print(
    "scores",
    scores_TV.shape,
    "- as many rows as the target; another source moves them by",
    abs(longer - scores_TV).max().round(4),
)
print("parts of a layer:", [residual.branches[0].name for residual in decoder_layer])

# %% [markdown]
# The shape of the answer is the target's, whatever the source's length. [computed: longer.shape == scores_TV.shape]
# Cross-attention is what sets such a decoder apart from a GPT: in width {{32}} it adds {{crossing:,}} weights a layer.
# [computed] A GPT's layers are, part for part, an *encoder's* layers under a mask. [computed: [r.branches[0].name for r
# in gpt_layer] == [r.branches[0].name for r in encoder_layer]] So the module of PyTorch that matches a GPT is
# `TransformerEncoder`, told to norm first and given a causal mask; its `TransformerDecoder` wants a second input.
# [source: pytorch/pytorch@00ac522, torch/nn/modules/transformer.py]
#
# T5 differs in small things that break a port: its scores are not divided by anything, {{t5_scale:g}} instead of
# one over the root of {{64}} [computed]; positions are a bias on scores [paper: Raffel et al. 2020, section 2.1]; and
# before a tied head its stream is scaled by one over the root of the width.
# [source: huggingface/transformers@6b8b757, src/transformers/models/t5/modeling_t5.py]
# BART's position table begins at row two. [computed:
# bart.decoder.positions.offset == 2]
#
# **In the library.** One rule asks for both: where a part crosses, keys and values are made from what the encoder said.
# [definition]

# %% [source: reference.asked]

# %% [markdown]
# **Why it matters.** The source is read once, however long the answer; its keys and values are made once, too, and
# kept. A decoder alone has to keep prompt and answer in one row. [inference]

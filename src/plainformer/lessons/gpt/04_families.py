# %% [hidden]
import math

import numpy as np

import plainformer as pf
from plainformer import reference
from plainformer.families import encoder_decoders, encoders
from plainformer.initial import initial
from plainformer.lessons.words import measured
from plainformer.report.drawings import maps

tiny = pf.presets["lesson"]
bert = encoders.bert(vocab_size=50, max_seq_len=16, d_model=32, n_layers=2, n_heads=4, d_ff=128)
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
ROW = np.array([3, 1, 4, 1, 5, 9])  # of the encoder-decoder, the first three are the source


def says(spec, arrays, row):
    """One vector of each of six tokens: scores; of a source, what its encoder says."""
    if spec.encoder is None or spec.decoder is None:
        return reference.logits(spec, arrays, row)
    seen = {}
    scores = reference.logits(spec, arrays, row[3:], trace=seen, source_S=row[:3])
    return [*seen["encoder.stream.2"], *scores]


def notices(spec, seed=0):
    """Who moves when one token is changed: rows notice, columns are changed."""
    arrays = initial(spec, seed=seed)
    before = says(spec, arrays, ROW)
    moved = np.zeros((6, 6))
    for j in range(6):
        other = ROW.copy()
        other[j] = 7
        after = says(spec, arrays, other)
        moved[:, j] = [float(abs(a - b).max() > 1e-12) for a, b in zip(before, after, strict=True)]
    return moved


seen_by = {"encoder": notices(bert), "decoder": notices(tiny), "encoder-decoder": notices(bart)}
pairs = {name: int(of.sum()) for name, of in seen_by.items()}
stored = {(row["task"], row["a token sees"]): row for row in measured("families")["rows"]}


def loss(task, sees, column="loss in training"):
    return float(stored[task, sees][column].split()[0])


gap_all, gap_past = (loss("fill a gap", sees) for sees in ("all of the row", "what came before"))
train_all, write_all = (loss("go on", "all of the row", of) for of in ("loss in training", "loss when writing"))
train_past, write_past = (loss("go on", "what came before", of) for of in ("loss in training", "loss when writing"))
turned, blind = (loss(*of) for of in stored if of[0] == "turn around")
n_tokens = 512
hidden_share = 0.15  # of BERT's tokens: Devlin et al. 2019, section 3.1

# %% [markdown]
# ## Three families: who may see whom
#
# **Everyday picture.** An editor reads the page up and down before writing in its margin. A storyteller goes on from
# what was said. An interpreter listens to the whole sentence and then says it in another language, word by word.
#
# **Where the analogy breaks.** An editor could tell the story, and the storyteller edit. The three kinds of model can't
# change roles, not for want of parts, which are the same, but because their weights were trained under one mask.
# [inference]
#
# **Tiny worked example.** Six tokens. Change one, and ask whose vector moves. In an encoder everyone's does, {{6}}
# times {{6}} = {{pairs["encoder"]}} pairs; in a decoder only those from that token on, {{pairs["decoder"]}}; in an
# encoder-decoder with three tokens of source and three of target, {{pairs["encoder-decoder"]}}. [computed]

# %% [figure: families]
names = list("abcdef")
maps("Who notices when a token is changed: rows notice, columns are changed", seen_by, names, names)

# %% [markdown]
# **How to read it.** Every square was found by changing a token in a random model of two layers. At the left, all
# notice all. In the middle, a row notices what stands before it and itself. At the right, a to c are the
# source, d to f the target: the source is an encoder among itself and never hears of the target; the target is a
# decoder among itself and hears all of the source. [computed: bool((seen_by["decoder"] == np.tril(np.ones((6,
# 6)))).all())] [computed: bool((seen_by["encoder-decoder"][:3, 3:] == 0).all() and (seen_by["encoder-decoder"][3:, :3]
# == 1).all())]
#
# **Formula.** One formula for all three; only the set differs:
#
# $$
# o_i = \sum_{j \in S(i)} a_{ij} v_j, \qquad
# S_{\mathrm{encoder}}(i) = \{1, \dots, T\}, \qquad S_{\mathrm{decoder}}(i) = \{1, \dots, i\}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $o_i$ | what attention tells token $i$ | |
# | $a_{ij}, v_j$ | the weight that $i$ gives $j$; what $j$ offers | |
# | $S(i)$ | whom $i$ may see | of the third token: {{6}} in the encoder, {{3}} in the decoder |
# | $T$ | tokens in the row | {{6}} |
#
# **In words.** The same average, over all or over those that came before.
#
# **With the numbers.** {{6}} tokens: {{6}} times {{6}} = {{36}} pairs, or {{" + ".join(str(i) for i in range(1, 7))}} =
# {{sum(range(1, 7))}}; of {{3}} and {{3}}, {{9}} + {{6}} + {{9}} = {{9 + 6 + 9}}. [computed]
# [computed: list(pairs.values()) == [36, 21, 24]]

# %%
for name, spec in (("encoder", bert), ("decoder", tiny), ("encoder-decoder", bart)):
    moved = notices(spec)
    print(f"{name:<16}", [int(n) for n in moved.sum(1)], "notice so many;", int(moved.sum()), "pairs")

# %% [markdown]
# **What each is asked for.** A decoder is asked for the next token at every place: a row of {{n_tokens}} tokens gives
# {{n_tokens - 1}} answers to learn from. [computed] An encoder would find the next token lying open in its own row, so
# it is asked for something else: BERT hides {{100 * hidden_share:.0f}} % of the tokens and asks for those, about
# {{hidden_share * n_tokens:.0f}} answers in such a row; most of the hidden become a special token, some another one,
# some stay, so that a token that is not hidden can't be trusted either. [paper: Devlin et al. 2019, section 3.1]
# [computed] T5 cuts spans out of the source, leaves a mark for each, and asks its decoder for the marks with what they
# stood for. [paper: Raffel et al. 2020, section 3.1.4]
#
# **Three small tasks.** Fill a gap with the sum of its neighbours; go on with a row in which each token is the sum of
# the two before; say a source from its end: [definition]

# %% [measured: families]

# %% [markdown]
# The gap needs both sides: seen from both the loss falls to {{gap_all:.2f}}, from the left alone it stays at
# {{gap_past:.2f}}, which is guessing among {{8}}, {{math.log(8):.2f}}. [measured: families] [computed] Going on, the
# stack that sees all of the row looks perfect in training, {{train_all:.2f}}: it reads the answer off the next place.
# Asked to write, where that place is empty, it fails, {{write_all:.2f}}; the masked stack says the same in both,
# {{train_past:.2f}} and {{write_past:.2f}}. [measured: families] [computed: write_all > 1 > write_past] Its loss in
# training is the higher one, for adding is harder than reading off, and it is the one that is worth something.
# [inference] And a decoder
# that hears the right source turns it around, {{turned:.2f}}; with another source it guesses, {{blind:.2f}}. [measured:
# families] [computed: turned < 0.1 < blind]
#
# **In the library.** A stack says whether it is causal; the mask follows, once for all layers. [definition]

# %% [source: reference.Where.allowed]

# %% [markdown]
# **Why it matters.** The families are not three architectures. They are three answers to one question, who may see
# whom, and the task of training follows from the answer. [inference]

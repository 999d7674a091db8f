# %% [hidden]
import math

import numpy as np

import plainformer as pf
from plainformer import reference, spec
from plainformer.conventions import untie
from plainformer.families import decoders
from plainformer.initial import initial
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson, measured

tiny = pf.presets["lesson"]
arrays = initial(tiny, "lesson", seed=0)
scores_TV = reference.logits(tiny, arrays, [3, 1, 4, 1, 5])
block = sum(w.count for w in Ledger.of(tiny).rows if w.name.startswith("decoder.layers.0."))
hello, this_is_a, problem = [15496, 995], [1212, 318, 257], 1917  # GPT-2's table
untied_gap = Ledger.of(untie(tiny)).total - Ledger.of(tiny).total


def course(vocab_size, max_seq_len=1024):
    """A course's GPT: width 64, two layers, a head of its own."""
    return decoders.gpt2(vocab_size=vocab_size, max_seq_len=max_seq_len, d_model=64, n_layers=2, n_heads=4, tied=False)


def shape_of(vocab_size, n_rows, n_tokens):
    """The shape of what a batch of rows gives, from one row's stream and the head's matrix."""
    of = course(vocab_size, n_tokens)
    stream_TD = reference.hidden(of, initial(of), np.zeros(n_tokens, int))
    return [n_rows, len(stream_TD), of.head.linear.n_out]


few = course(100)
batch = np.stack([reference.logits(few, initial(few), np.full(8, token)) for token in (1, 2)])
head = spec.Head(linear=spec.Linear(n_in=2, n_out=3), tied=True)
held = reference.Weights({"embedding.weight": np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 1.0]])}, "head")
by_hand = reference.run(head, held, np.array([[1.0, -1.0]]), reference.Where(np.arange(1)))[0]

twelve = np.arange(12)
narrow = decoders.gpt2(vocab_size=50304, max_seq_len=12, d_model=32, n_layers=4, n_heads=4)
seen = {}
wide_TV = reference.logits(narrow, initial(narrow), twelve, trace=seen)
shapes = [
    seen["decoder.stream.0"].shape,
    seen["decoder.stream.4"].shape,
    wide_TV.shape,
    seen["decoder.layers.0.attention.weights"].shape,
]
untrained = [float(row["value"]) for row in measured("untrained")["rows"]]

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** A GPT sees the token that it has to predict, because the whole row is fed at once.
#
# **Correction.** It is in the row and hidden by the mask: change it, and no earlier score moves by a bit. [measured:
# untrained]
#
# **Misconception.** GPT, BERT and T5 are three architectures.
#
# **Correction.** They share their parts. Whom a token may see differs, and with it the task. [inference]
#
# **Misconception.** A GPT is what PyTorch calls a `TransformerDecoder`.
#
# **Correction.** That has cross-attention and wants a second input. A GPT is a `TransformerEncoder` under a causal
# mask. [source: pytorch/pytorch@00ac522, torch/nn/modules/transformer.py]
#
# **Misconception.** Token {{problem}} is " world", so {{[hello[0], problem]}} is "Hello world" to GPT-2.
#
# **Correction.** "Hello world" is {{hello}}. [source: huggingface/transformers@00e3c07,
# src/transformers/models/gpt2/tokenization_gpt2.py] One reads a table, or asks the tokenizer; one does not remember it.
# [inference]
#
# **Misconception.** GPT-4 stacks about {{120}} blocks.
#
# **Correction.** Its report says that it gives no size and no architecture. [paper: OpenAI 2023, section 2]
#
# ## In twenty seconds
#
# - Look up, add the place, pass the blocks, norm, compare with the table: scores of every next token at every place.
#   [definition]
# - The loss is the mean surprisal of the true next tokens; the targets are the row, moved by one. [definition]
# - Encoder: all see all, hidden tokens are asked for. Decoder: the past is seen, the next token asked for.
#   Encoder-decoder: a decoder that also hears an encoder. [definition]
# - A mask has a language. Here it is *true: may be seen*. [definition]
#
# ## Self-test
#
# **Question.** A model of {{50}} tokens and width {{32}} gets five tokens. What is the shape of its answer, and what is
# the last row good for?
#
# **Answer.** {{scores_TV.shape[0]}} rows of {{scores_TV.shape[1]}} scores; the last row scores the token after the
# fifth, which nobody has given yet: it is what one writes with. [computed]
#
# **Question.** How many weights does a tied head save in that model?
#
# **Answer.** A table: {{50}} times {{32}} = {{untied_gap:,}}. [computed] [computed: untied_gap == 50 * 32]
#
# **Question.** Your loss is {{0.1}} after a hundred steps on real text. What do you suspect?
#
# **Answer.** That the answer lies open: targets not moved by one, no mask, or a mask turned around. Change a later
# token and look at an earlier score. [inference]
#
# **Question.** Why does BERT not train on the next token?
#
# **Answer.** Every token sees the next one already; it would copy. So tokens are hidden, and those are asked for.
# [inference]
#
# **Question.** An encoder-decoder has read a source of a thousand tokens and has written ten. How many rows of scores
# did its last pass over the ten give, and which parts looked at the source?
#
# **Answer.** Ten; in each layer of the decoder the cross-attention, and nothing else. [inference]
#
# ## Papers

# %% [papers]

# %% [numbers]
{
    "tied_head_example": ("three scores of a tied head by hand", by_hand),
    "block_width_32": ("a block of width 32, attention without biases", block),
    "tiny_gpt": ("the tiny model", Ledger.of(tiny).total),
    "tiny_gpt_logits_shape": ("the shape of its answer to five tokens", list(scores_TV.shape)),
    "tiny_gpt_seeded_logits": (
        "its first score, its last, the sum of all and their spread",
        [scores_TV[0, 0], scores_TV[4, 49], scores_TV.sum(), scores_TV.std()],
    ),
    "tt_forward_shape": ("a course's GPT, 2 rows of 8, 100 tokens", list(batch.shape)),
    "tt_forward_shape_large": ("4 rows of 512, 50,000 tokens", shape_of(50000, 4, 512)),
    "tt_tiny_untied": ("its weights", Ledger.of(few).total),
    "gpt2_bpe_hello_world": ('"Hello world" and "This is a" to GPT-2', [hello, this_is_a]),
    "tiny_4x32_shapes": ("4 x 32 on twelve tokens: stream before, after, scores, weights", [list(of) for of in shapes]),
    "tiny_4x32_causal": ("a token changed: before it, after it at least, at most", untrained[:3]),
    "tiny_4x32_surprisal_bits": (
        "surprisal of the untrained in bits; guessing among padded and true tokens",
        [untrained[3], math.log2(50304), math.log2(50257)],
    ),
    "tiny_4x32_logit_spread": ("the least and the largest score of its first row", untrained[4:]),
}

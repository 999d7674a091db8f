# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas, reference
from plainformer.cost.rules import score_elements
from plainformer.families import decoders
from plainformer.families.parts import attention, dot
from plainformer.initial import initial
from plainformer.initial import lesson as lesson_weights
from plainformer.lessons.three_tokens import CAUSAL_TS, K_HSK, Q_HTK, V_HSK
from plainformer.lessons.words import lesson, vector

gpt2 = pf.presets["gpt2"]
scores_TS = formulas.scaled_scores(Q_HTK, K_HSK, 2**-0.5)[0]
out_HTK, weights_HTS = formulas.attention(Q_HTK, K_HSK, V_HSK, CAUSAL_TS, 2**-0.5)
open_TS = formulas.softmax(scores_TS)
q, k = np.random.default_rng(64).normal(size=(2, 1, 2000, 64))
one_head = attention(d_model=16, n_heads=1, n_kv_heads=1, d_head=16, scores=dot(16))
x_TD = formulas.layer_norm(np.random.default_rng(3).normal(size=(6, 16)))


def looks(causal):
    trace = {}
    of_head = reference.Weights(dict(lesson_weights(one_head, seed=3)))
    reference.run(one_head, of_head, x_TD, reference.Where(np.arange(6), causal, trace=trace))
    return trace[".weights"][0]


both = looks(False), looks(True)
small = decoders.gpt2(vocab_size=64, max_seq_len=16, d_model=32, n_layers=4, n_heads=4)
trace = {}
reference.hidden(small, initial(small), list(range(12)), trace=trace)
off = max(float(abs(kept.sum(-1) - 1).max()) for name, kept in trace.items() if name.endswith(".weights"))

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** Attention picks the most relevant earlier token.
#
# **Correction.** It mixes all that it may see. The third token of the example took {{vector(weights_HTS[0, 2])}} of the
# three. [computed] It can come close to a choice where training has made scores large. [inference]
#
# **Misconception.** More heads are more parameters.
#
# **Correction.** Heads split what there is: the width of each falls as their number grows. [inference]
#
# **Misconception.** The whole text is fed in at once, so a model in training sees the word it must predict.
#
# **Correction.** It is fed in at once, and no place can see beyond itself; the proof above holds to the last bit.
# [inference]
#
# **Misconception.** The root of the width is there so that weights add up to one.
#
# **Correction.** The softmax does that at any scale. The root keeps scores at a size where the softmax is no choice
# of one yet. [inference]
#
# **Misconception.** Attention costs the square of the length, so it is most of the work.
#
# **Correction.** Its pairs cost the square; its four matrices do not, and at common lengths they and the feed-forward
# network are most of the work: {{lesson("budget")}} counts where that turns. [inference]
#
# ## In twenty seconds
#
# - Query, key, value: ask, offer, say. Scores are query times key by the root of the width; softmax makes shares of
#   them; the output is the values, mixed in those shares. [definition]
# - A mask says who may be seen. Masked so that none looks ahead, a stack of any depth is causal. [inference]
# - Heads are sums: each reads the whole stream, looks for itself and writes through its own columns of `out`.
#   [inference]
# - It is the one part in which tokens meet, and the one whose work grows with the square of the row. [inference]
#
# ## Self-test
#
# **Question.** Why are the first token's weights in a decoder the same whatever its query is?
#
# **Answer.** It may see itself alone, and a softmax over one score is one: {{vector(weights_HTS[0, 0], "g")}}.
# [computed]
#
# **Question.** A head's width grows from sixteen to sixty-four and you forget to change the scale. What happens to its
# scores at the start, and to its weights?
#
# **Answer.** They spread twice as far, since $\sqrt{64 / 16} = 2$, and the largest weight of each row grows.
# [inference]
#
# **Question.** You add the same vector to every key. What changes?
#
# **Answer.** Nothing: each score of a row grows by the same amount, query times that vector, and a softmax does not
# see that. [computed: bool(np.allclose(formulas.softmax(Q_HTK @ (K_HSK + 3).swapaxes(1, 2)), formulas.softmax(Q_HTK @
# K_HSK.swapaxes(1, 2))))]
#
# **Question.** Two tokens of a text are the same word. Are their queries in the second layer the same?
#
# **Answer.** In general not: after one layer each has added what it saw, and they saw different things. [inference]
#
# **Question.** A model with a causal mask in all layers but the last: which logits can leak?
#
# **Answer.** All but those at the last place: the induction breaks in that layer, and every place reads the later
# ones there. [inference]
#
# ## Papers

# %% [papers]

# %% [numbers]
{
    "attn3_raw": ("three tokens: queries times keys", Q_HTK[0] @ K_HSK[0].T),
    "attn3_scaled": ("the same by the root of two", scores_TS),
    "attn3_weights": ("their weights, causal", weights_HTS[0]),
    "attn3_outputs": ("what they take", out_HTK[0]),
    "attn3_unmasked_row1": ("the first token's weights without a mask", open_TS[0]),
    "attn3_softmax_parts": (
        "the third row raised: its first, its second, their sum",
        [np.exp(scores_TS[2])[0], np.exp(scores_TS[2])[1], np.exp(scores_TS[2]).sum()],
    ),
    "scores_std_unscaled_64": (
        "how far scores of width 64 spread, not divided",
        float(formulas.scaled_scores(q, k, 1.0).std()),
    ),
    "attention_pairs_3_tokens": (
        "pairs of three tokens that count: encoder, decoder",
        [int((open_TS > 0).sum()), int((weights_HTS > 0).sum())],
    ),
    "mask_figure_rows_equal": (
        "rows that are the same with the mask and without",
        [bool(np.allclose(*pair, rtol=0, atol=1e-12)) for pair in zip(*both, strict=True)],
    ),
    "decoder_first_weight": ("the first token's weight on itself", float(both[1][0, 0])),
    "tiny_4x32_row_sum_error": ("how far rows of weights are from one, four layers of width 32", off),
    "head_dim": ("the width of a head of GPT-2 small", gpt2.decoder.layers[0][0].branches[0].part.d_head),
    "token_pairs_2048": ("pairs of 2,048 tokens: all, and those of a decoder", [2048**2, 2048 * 2049 // 2]),
    "attn_matrix_1024": (
        "a batch of 4, 8 heads, 1,024 tokens: numbers, bytes in float32, MiB",
        [score_elements(4, 8, 1024), score_elements(4, 8, 1024) * 4, score_elements(4, 8, 1024) * 4 // 2**20],
    ),
    "attn_matrix_4096": (
        "at 4,096 tokens: bytes, GiB, and how many times that of 1,024",
        [
            score_elements(4, 8, 4096) * 4,
            score_elements(4, 8, 4096) * 4 // 2**30,
            score_elements(4, 8, 4096) // score_elements(4, 8, 1024),
        ],
    ),
    "attn_matrix_gpt3": (
        "a batch of 4, 96 heads, 2,048 tokens: numbers, bytes in float32, GiB",
        [score_elements(4, 96, 2048), score_elements(4, 96, 2048) * 4, score_elements(4, 96, 2048) * 4 / 2**30],
    ),
}

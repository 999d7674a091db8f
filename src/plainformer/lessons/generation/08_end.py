# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import formulas, reference
from plainformer.cost import Cost, rules
from plainformer.cost.cache import Cache
from plainformer.initial import initial
from plainformer.lessons.words import vector

tiny = pf.presets["lesson"]
weights = initial(tiny, "lesson", seed=0)
gpt3 = pf.presets["gpt3"]
depth = len(gpt3.decoder.layers)
half = Cost.of(gpt3, 1, 2048, dtype="float16")


def positions(n_prompt, n_new):
    """Without a cache, and with one."""
    return [rules.positions_computed(n_prompt, n_new, cached) for cached in (False, True)]


equal_V = formulas.probabilities([1.0, 1.0, 1.0], top_k=2)
crossed_V = formulas.probabilities(np.log([0.5, 0.3, 0.2]), top_p=0.6)

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** A cache does not save compute: a hundred tokens through ninety-six layers are as many layer calls
# with it as without.
#
# **Correction.** As many calls, each of which does less: {{depth * positions(1, 100)[0]:,}} tokens times layers
# without, {{depth * positions(1, 100)[1]:,}} with. [computed]
#
# **Misconception.** Temperature zero makes a model say what it holds most likely.
#
# **Correction.** It takes the likeliest token at each place. The likeliest text may begin with another one. [inference]
#
# **Misconception.** Top-p of nine tenths draws from nine tenths of the vocabulary.
#
# **Correction.** From the fewest tokens that hold nine tenths of the *probability*: often one, sometimes thousands.
# [inference]
#
# **Misconception.** The same prompt and temperature zero give the same text everywhere.
#
# **Correction.** Only if the sums are done in the same order: two scores that are equal but for rounding can change
# places on another card or in another batch, and from that token on the texts differ. [inference]
#
# **Misconception.** A higher temperature makes a model know more.
#
# **Correction.** It changes which tokens are drawn, never their order. [computed: bool((formulas.probabilities([2.0,
# 1.0, 0.0], 9.0).argsort() == formulas.probabilities([2.0, 1.0, 0.0], 0.3).argsort()).all())]
#
# ## In twenty seconds
#
# - Score, limit, draw, write behind, again. Chance enters in one place and has a seed. [definition]
# - Temperature divides scores; entropy rises with it and the order stays. Top-k, top-p and min-p cut the tail, after
#   the temperature. [inference]
# - Greedy and beams look for likely texts, which may be good translations and are bad stories. [paper: Holtzman et
#   al. 2020, abstract]
# - The cache makes the work of {{positions(50, 100)[0]:,}} positions {{positions(50, 100)[1]}}, and changes no token.
#   [computed]
# - It ends at a count, at a stop, or where the context is full; each is said. [definition]
#
# ## Self-test
#
# **Question.** Scores are three times one. What does top-k of two leave?
#
# **Answer.** {{vector(equal_V, "g")}}: of equals the lower numbers stay, so that the answer is the same every time.
# [computed]
#
# **Question.** Probabilities are five, three and two tenths, and top-p is six tenths. Which tokens stay, with which
# probabilities?
#
# **Answer.** The first two: the second crosses the line and stays. {{vector(crossed_V, ".3f")}}. [computed]
#
# **Question.** How many positions does a model read to write sixteen tokens behind a prompt of eight, with a cache and
# without?
#
# **Answer.** {{positions(8, 16)[1]}} and {{positions(8, 16)[0]}}: the last token is never read. [computed]
#
# **Question.** A colleague's loop with a cache writes good text for the first token and nonsense from the second.
# What do you look at first?
#
# **Answer.** The position at which the new token is fed: it must be the number of tokens already kept, not zero. Then
# whether the new keys are put behind the old ones, in each layer its own. [inference]
#
# **Question.** Why does reading a prompt of a thousand tokens take far less than a thousand times the time of writing
# one?
#
# **Answer.** The prompt's tokens go through together and share the reading of the weights; written ones come one by
# one, and each must wait for the whole model to be read. [inference]
#
# ## Papers

# %% [papers]

# %% [numbers]
{
    "tt_generate_shape": (
        "the shape of a prompt of five and three more",
        list(np.array([reference.generate(tiny, weights, [3, 1, 4, 1, 5], 3)]).shape),
    ),
    "layer_evals_100x96": ("calls of a layer for 100 tokens of GPT-3, cache or none", 100 * depth),
    "token_layer_work_P1_N100": (
        "tokens times layers for them, without a cache and with one",
        [depth * n for n in positions(1, 100)],
    ),
    "positions_P50_N100": ("positions for 100 tokens behind 50, without and with", positions(50, 100)),
    "positions_P8_N16": ("for 16 behind 8", positions(8, 16)),
    "kv_elements_gpt3": ("numbers in GPT-3's cache of 2,048 tokens", Cache.of(gpt3).numbers(2048)),
    "kv_bytes_gpt3_fp16": (
        "its bytes in 16 bits, and those of a token",
        [half.cache_bytes, half.cache_bytes_per_token],
    ),
    "temperature_probs_210": (
        "probabilities of scores 2, 1, 0 at temperatures 1, a half, 2",
        [formulas.probabilities([2.0, 1.0, 0.0], T).tolist() for T in (1.0, 0.5, 2.0)],
    ),
}

# %% [hidden]
import numpy as np

from plainformer import formulas, reference
from plainformer.families import decoders
from plainformer.initial import initial
from plainformer.lessons.words import lesson, vector
from plainformer.records import replace

dog, bites, man = [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]
see = np.ones((3, 3), bool)
there, back = (
    formulas.attention(x, x, x, see, 2**-0.5)[0][0]
    for x in (np.array([[dog, bites, man]]), np.array([[man, bites, dog]]))
)


def last_moves(n_layers):
    """How far the last logits move when the two first tokens change places, without any positions."""
    spec = decoders.gpt2(vocab_size=9, max_seq_len=8, d_model=16, n_layers=n_layers, n_heads=2)
    spec = replace(spec, decoder=replace(spec.decoder, positions=None))
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(0, 0.5, array.shape) for name, array in initial(spec).items()}
    one, two = (reference.logits(spec, arrays, tokens)[-1] for tokens in ([1, 2, 3, 4], [2, 1, 3, 4]))
    return float(abs(one - two).max())


gaps = last_moves(1), last_moves(2)

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** Without positions a transformer can't tell "dog bites man" from "man bites dog".
#
# **Correction.** An encoder can't, and neither can one causal layer. Two causal layers can: here the last logits
# moved by {{gaps[1]:.2f}}. [computed]
#
# **Misconception.** Rotary positions are added to the tokens like the others.
#
# **Correction.** They turn queries and keys inside each attention; the stream and the values never carry them.
# [inference]
#
# **Misconception.** A model with rotary positions reads rows of any length, since it has no table.
#
# **Correction.** It runs on them. At distances it was never trained on, slow pairs stand at angles that it has never
# met, and it fails; that is what scaling is for. [paper: Chen et al. 2023, abstract]
#
# **Misconception.** Sinusoids beat learned rows because they go on for ever.
#
# **Correction.** They go on; the model that was trained on short rows does not follow. [paper: Press et al. 2021,
# figure 1]
#
# ## In twenty seconds
#
# - Attention alone sees a bag; a causal mask is a weak order. [inference]
# - Added to tokens: learned rows (which end) or sinusoids (which don't). Absolute. [definition]
# - Turned queries and keys: rotary. The score knows the distance alone; no weights; can be stretched. [definition]
# - Added to scores: ALiBi's fixed slopes, T5's learned buckets. [definition]
#
# ## Self-test
#
# **Question.** Why are values not turned?
#
# **Answer.** What a token says should not depend on where it stands; only whether it is heard. And the sum of
# differently turned values would have no meaning that distance alone explains. [inference]
#
# **Question.** You move a whole prompt ten places along in a model with rotary positions and nothing before it. Which
# scores change?
#
# **Answer.** None, in exact arithmetic: each depends on a difference of places, and all differences are as before.
# [inference]
#
# **Question.** In a model with a cache, must the keys that were kept be turned again when a token is added?
#
# **Answer.** No: a key's angle is its own place's, which does not change; the new query brings its own. With angles
# that depend on the length of the row it is otherwise. [inference]
#
# **Question.** What does ALiBi's penalty do to a score between neighbours, and why has each head another slope?
#
# **Answer.** It takes one slope from it. Different slopes give heads of different reach: with eight, from
# {{formulas.alibi_slopes(8)[0]:g}} to {{formulas.alibi_slopes(8)[-1]:.4f}} a place. [computed]
#
# ## Papers

# %% [papers]

# %% [numbers]
{
    "dog_bites_man": (
        'what "dog" hears in "dog bites man", and in "man bites dog"',
        there[0] if np.allclose(there[0], back[2]) else None,
    ),
    "nope_last_position_gap": (
        "no positions, causal, two earlier tokens swapped: how far the last logits move, with one layer and with two",
        ["< 1e-12" if gaps[0] < 1e-12 else f"{gaps[0]:.1e}", "> 1e-3" if gaps[1] > 1e-3 else f"{gaps[1]:.1e}"],
    ),
}

# %% [hidden]
import plainformer as pf
from plainformer.cost import Cost, rules
from plainformer.lessons.words import lesson

without, with_one = (rules.positions_computed(50, 100, cached) for cached in (False, True))
llama = Cost.of(pf.presets["llama-3-8b"], 1, 8192)
penalty = 1.2  # Keskar et al. 2019, section 4.1
beam_size = 4  # Vaswani et al. 2017, section 6.1
nucleus = 0.95  # Holtzman et al. 2020, table 1

# %% [markdown]
# # Generation
#
# ## In practice
#
# **In one sentence.** A language model scores every possible next token; generation draws one, writes it behind the
# text and asks again, and keeps what it has computed of the earlier tokens so that each is read once: a hundred tokens
# after a prompt of fifty are {{with_one}} positions of work instead of {{without:,}}. [computed]
#
# **When you need it.** The model repeats itself, or raves; its answers differ from run to run and a test fails; it is
# slow, or stops in the middle of a word; you must say which of six settings to touch, and in which order they act.
# [inference]
#
# **Options.** From scores to a token:
#
# | option | what it does | what it gives | what it costs | from |
# |---|---|---|---|---|
# | greedy | the likeliest token, always | the same text every time | loops; dull text
#   | [paper: Holtzman et al. 2020, abstract] |
# | temperature | scores by $T$ before softmax | one dial from greedy to noise
#   | at high values the long tail speaks | [inference] |
# | top-k | the $k$ likeliest alone | no tail | too many where the model is sure, too few where it is not
#   | [paper: Holtzman et al. 2020, section 3] |
# | top-p (nucleus) | the fewest that hold $p$ together | follows how sure the model is
#   [paper: Holtzman et al. 2020, section 3] | where it is unsure, a long tail again | [inference] |
# | min-p | all that are at least a share of the likeliest | high temperatures without the tail | one more number
#   | [paper: Nguyen et al. 2024, abstract] |
# | repetition penalty | lowers what was said before | fewer loops [paper: Keskar et al. 2019, section 4.1]
#   | it punishes names and commas, too | [inference] |
# | beams | keeps several texts, the likeliest so far | translation [paper: Vaswani et al. 2017, section 6.1], where the
#   source all but fixes the answer | so many times the work; dull stories | [paper: Holtzman et al. 2020, abstract] |
# | a draft model | guesses several tokens, the model checks them at once | the same text distribution, sooner
#   | a second model | [paper: Leviathan et al. 2023, section 2] |
#
# **How to choose.** One right answer (code that must run, a fact, a label): greedy or a temperature near zero. Text for
# people: temperature near one with top-p about {{nucleus}} [paper: Holtzman et al. 2020, table 1] or min-p, and nothing
# else until something is wrong. [inference] Change one dial at a time: top-p counts after the temperature, so both at
# once are hard to judge. [inference] Keep the seed with the text. [inference]
#
# **What it costs.** About two operations a parameter and token, and the reading of all weights for each step, which is
# what one waits for: {{lesson("budget")}}. [definition] The cache: {{llama.cache_bytes_per_token:,}} bytes a token for
# Llama 3 8B, {{llama.cache_bytes / 1e9:.2f}} GB for its full context of {{llama.seq_len:,}}. [computed] Sampling itself
# costs nothing that one notices. [inference]
#
# **What breaks.**
#
# - *A temperature of zero.* Divided by, it is an error; it must mean: take the best. [inference]
# - *Drawing once for a whole batch.* A loop that samples row zero and writes it to all rows passes every test of
#   shapes. [inference]
# - *A cache with the wrong positions.* Each new token must stand at its own place; a loop that feeds it at place zero
#   writes fluent nonsense. So does one that feeds the prompt twice, or not its first token. [inference]
# - *Half a character.* Byte-level tokens cut letters; text may come out only where a character is whole. [inference]
# - *A stop text across two tokens.* What may be its beginning must be held back until that is decided. [inference]
# - *The end of the context.* A table of positions has no row beyond its last; a model with turned positions answers
#   on and gets worse. Refuse, or stop, and say which. [inference]
# - *Padding on the wrong side.* In a batch of unequal prompts the last token of each row must be the one that is
#   scored. [inference]
#
# **In the wild.** The repetition penalty came with {{penalty}} as its value; the first transformer translated with
# {{beam_size}} beams. [paper: Keskar et al. 2019, section 4.1] [paper: Vaswani et al. 2017, section 6.1] Servers keep
# the caches of many readers in pages, as an operating system keeps memory. [paper: Kwon et al. 2023, section 4] In a
# terminal: `plainformer generate --help` says every dial. [definition]
#
# ## Where it fits
#
# Before this: {{lesson("gpt")}}, which ends with scores, and {{lesson("notation")}}, for softmax and entropy. Why old
# tokens need not be read again is causality, from {{lesson("attention")}}; what the cache weighs is
# {{lesson("budget")}}. [definition]

# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import reference
from plainformer.cost import Cost, rules
from plainformer.cost.flops import Work, flops
from plainformer.initial import initial
from plainformer.lessons.words import measured, small
from plainformer.report.drawings import lines

P, N = 50, 100
without, with_one = (rules.positions_computed(P, N, cached) for cached in (False, True))
gpt3 = pf.presets["gpt3"]
depth = len(gpt3.decoder.layers)
calls = N * depth
from_one = [depth * rules.positions_computed(1, N, cached) for cached in (False, True)]
tiny = pf.presets["lesson"]
weights = initial(tiny, "lesson", seed=0)
prompt = [3, 1, 4, 1, 5]
state = reference.State()
again = reference.generate(tiny, weights, prompt, 8, seed=7)
once = reference.generate(tiny, weights, prompt, 8, seed=7, state=state)


def ratio(n_prompt, n_new):
    return rules.positions_computed(n_prompt, n_new, False) / rules.positions_computed(n_prompt, n_new, True)


def operations(spec, n_prompt, n_new, cached):
    """Exact operations of writing n_new tokens, the head on the last place alone."""
    head = n_new * flops(spec.head, Work(1, 1, 1))
    if not cached:
        return head + sum(flops(spec.decoder, Work(1, n_prompt + i, n_prompt + i)) for i in range(n_new))
    first = flops(spec.decoder, Work(1, n_prompt, n_prompt))
    return head + first + sum(flops(spec.decoder, Work(1, 1, n_prompt + i)) for i in range(1, n_new))


work = operations(gpt3, 1, N, False) / operations(gpt3, 1, N, True)
cache = Cost.of(gpt3, 1, 2048, dtype="float16")
times = {(row["prompt"], row["new tokens"]): row for row in measured("caches")["rows"]}
all_same = all(row["same tokens"] == "yes" for row in times.values())

# %% [markdown]
# ## The cache: nothing is read twice
#
# **Everyday picture.** Minutes of a meeting. Whoever comes in with a new question reads the minutes; nobody asks all
# earlier speakers to say everything again.
#
# **Where the analogy breaks.** Minutes are a summary, and lose. The cache holds exactly what would be computed again,
# to the last bit but for the order of sums. [inference]
#
# **Tiny worked example.** A prompt of {{P}} tokens, {{N}} to write. Without a cache the steps read {{P}}, {{P + 1}},
# {{P + 2}} and so on, {{without:,}} positions. With one the prompt is read once, and then one position a step, but for
# the last token, which nobody reads: {{with_one}}. [computed]

# %% [figure: cache]
lines(
    "Positions read without a cache, over those with one",
    {f"prompt of {n_prompt}": [(float(n), ratio(n_prompt, n)) for n in range(1, 201, 4)] for n_prompt in (1, 50, 500)},
    "tokens written",
    "times the work",
)

# %% [markdown]
# **How to read it.** One token costs the same with and without. Then the lines part: behind a long prompt each new
# token reads it all again, so the work without a cache grows nearly as many times as there are tokens; behind a
# prompt of one it grows half as fast. [computed: ratio(1, 1) == ratio(500, 1) == 1 and ratio(500, 100) > 1.8 *
# ratio(1, 100)]
#
# **Formula.**
#
# $$
# \mathrm{without} = \sum_{i=0}^{N-1} (P + i) = N P + \frac{N (N - 1)}{2}, \qquad \mathrm{with} = P + N - 1
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $P$ | tokens of the prompt | {{P}} |
# | $N$ | tokens written | {{N}} |
# | $i$ | how many are written already | |
#
# **In words.** Without: at each step all that is there. With: the prompt, and each written token but the last.
#
# **With the numbers.** {{N}} times {{P}} is {{N * P:,}}, and {{N * (N - 1) // 2:,}} more is {{without:,}};
# {{P}} + {{N}} - {{1}} is {{with_one}}: {{without / with_one:.1f}} times the work. [computed]

# %%
for n_prompt, n_new in ((1, 100), (8, 16), (50, 100), (500, 100)):
    both = [rules.positions_computed(n_prompt, n_new, cached) for cached in (False, True)]
    print(f"prompt {n_prompt:>3}, {n_new:>3} new: {both[0]:>6,} against {both[1]:>4,}: {both[0] / both[1]:.1f} times")
state = reference.State()
once = reference.generate(tiny, weights, prompt, 8, seed=7, state=state)
again = reference.generate(tiny, weights, prompt, 8, seed=7)
print("same tokens:", bool((once == again).all()), " read with a cache:", state.n_tokens)

# %% [markdown]
# **A claim to mend.** For {{N}} tokens through {{depth}} layers one reads: "{{calls:,}} layer evaluations with a cache,
# {{calls:,}} without: the same compute". [computed] The *calls* are the same; what each call does is not. Counted as
# tokens times layers, behind a prompt of one, it is {{from_one[0]:,}} against {{from_one[1]:,}}:
# {{from_one[0] / from_one[1]:.1f}} times. [computed] In operations, scores and head counted, {{work:.1f}} times for
# GPT-3. [computed] And "about ten times longer without" is neither work nor time: the work is {{ratio(1, N):.1f}} to
# {{ratio(500, N):.0f}} times for prompts of one to five hundred [computed], and the time depends on the machine: small
# models are slow for other reasons. Measured: [definition]

# %% [measured: caches]

# %% [markdown]
# The tokens are the same in all of them, the work is what the formula says, and the time is far less apart.
# [measured: caches] [computed: all_same and times[1, 100]["work"] == f"{ratio(1, 100):.1f} x"]
#
# **What it weighs.** For GPT-3 and a row of {{cache.seq_len:,}}: {{cache.cache.numbers(2048):,}} numbers, in sixteen
# bits {{cache.cache_bytes:,}} bytes, {{cache.cache_bytes_per_token:,}} a token. [computed] The cache makes a step from
# work that grows with the text into reading that grows with it: less, and still not nothing. [inference]
#
# **In the library.** The state of the definition, and the count: [definition]

# %% [source: reference.State]

# %% [source: rules.positions_computed]

# %% [markdown]
# **Why it matters.** Without it, writing costs the square of the length; with it, the length. Everything that serves
# models is built around this memory: who holds it, who shares it, who must give it up. [inference]

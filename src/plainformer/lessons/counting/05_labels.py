# %% [hidden]
import plainformer as pf
from plainformer.conventions import count, finding, with_vocabulary
from plainformer.report.drawings import lines

behind = {text: finding.behind(finding.label(text), "nanogpt") for text in ("458M", "849M")}
SIZES = {"small": (12, 768), "medium": (24, 1024), "large": (36, 1280), "XL": (48, 1600)}
printed = {"small": 117, "medium": 345, "large": 762, "XL": 1542}  # millions; Radford et al. 2019, table 2
first_table = 40478  # rows; the first GPT's vocabulary, its config in transformers


def millions(vocab_size, shape):
    """GPT-2's count in whole millions, had its table so many rows."""
    return round(count(with_vocabulary(finding.gpt2_shape(*shape), vocab_size)).total / 1e6)


true = {size: millions(50257, shape) for size, shape in SIZES.items()}
refound = {size: millions(first_table, shape) for size, shape in SIZES.items()}
fixed = {size: count(finding.gpt2_shape(*shape)).total - 50257 * shape[1] for size, shape in SIZES.items()}
fits = [
    v
    for v in range(30000, 60000)
    if all(round((fixed[size] + v * shape[1]) / 1e6) == printed[size] for size, shape in SIZES.items())
]
missing = {size: (true[size] - printed[size]) * 1e6 / shape[1] for size, shape in SIZES.items()}  # in rows
gap_is_a_table = max(missing.values()) - min(missing.values()) < 1e6 / 768  # the same, up to rounding
total = finding.totals("nanogpt")
curves = {
    f"width {width:,}": [(float(n), total(n, width) / 1e6) for n in range(1, 49)] for width in (768, 1024, 1280, 1600)
}

# %% [markdown]
# ## Backwards: from a label to a shape
#
# **Everyday picture.** A parcel weighs four and a half kilos, to the nearest hundred grams. What is in it? Many things
# could be; knowing the shop that sent it leaves few.
#
# **Where the analogy breaks.** A shop's goods are a list. Widths and depths are a grid that runs on, and what makes it
# short is only a guess at what people choose. [inference]
#
# **Tiny worked example.** Which shapes of GPT-2's kind have {{458}} million weights, as nanoGPT counts? With a width of
# one of the four GPT-2 models there is {{len(behind["458M"]["gpt2_widths"])}}: {{behind["458M"]["gpt2_widths"][0][0]}}
# layers of {{behind["458M"]["gpt2_widths"][0][1]:,}}. With any multiple of {{64}} there are
# {{len(behind["458M"]["multiples_of_64"])}}. [computed]

# %% [figure: labels]
lines("Parameters of GPT-2's kind by depth, four widths (nanoGPT's count)", curves, "layers", "millions")

# %% [markdown]
# **How to read it.** Each width is a straight line: it begins at its token table and rises by one block a layer. A
# label is a level line across the picture; each width crosses it once, and most of them between two whole layers. So a
# label fits few widths, and a width fits a label with one depth at most, while a block is larger than the label's
# rounding. [inference]
#
# **Formula.** For a width $d$ the depth that a label $M$ asks for is
#
# $$
# L = \frac{M - V d - 2 d}{12 d^2 + 13 d}
# $$
#
# **Symbols.**
#
# | symbol | meaning | for the label, width {{1280}} |
# |---|---|---|
# | $M$ | the label, as a number | {{458_000_000:,}} |
# | $V d + 2 d$ | what does not depend on depth | {{50304 * 1280 + 2 * 1280:,}} |
# | $12 d^2 + 13 d$ | a block | {{12 * 1280**2 + 13 * 1280:,}} |
# | $L$ | the depth; a shape if it is nearly whole | {{(458e6 - 50306 * 1280) / (12 * 1280**2 + 13 * 1280):.3f}} |
#
# **In words.** Take the table away, divide by a block, and see whether the answer is a whole number.
#
# **With the numbers.** ({{458_000_000:,}} - {{50306 * 1280:,}}) / {{12 * 1280**2 + 13 * 1280:,}} =
# {{(458e6 - 50306 * 1280) / (12 * 1280**2 + 13 * 1280):.3f}}; at {{20}} layers the count is
# {{total(20, 1280):,}}, which rounds to the label. [computed]

# %%
for text, found in behind.items():
    print(text, "at GPT-2's widths:", found["gpt2_widths"], " 64 a layer:", found["64_a_layer"])
    print("     at multiples of 64:", found["multiples_of_64"])

# %% [markdown]
# `plainformer size --find 458M` does the same in a terminal. [definition] A label names no shape, then; it leaves a
# short list. {{len(behind["849M"]["multiples_of_64"])}} shapes round to the other one. [computed] Whose they are, and
# how many heads they have, no count can say: the authors' code does, in the lesson on auditing. [definition]
#
# **What the label {{printed["small"]}}M is.** GPT-2's paper prints {{printed["small"]}}M, {{printed["medium"]}}M,
# {{printed["large"]}}M and {{printed["XL"]}}M for its four models. [paper: Radford et al. 2019, table 2] The shapes in
# the same table hold {{true["small"]}}, {{true["medium"]}}, {{true["large"]}} and {{true["XL"]}} million. [computed]
# OpenAI later wrote that the first counts had been "wrong due to an error". [source: openai/gpt-2@9b63575, README.md]
# Which error? The gap grows with the width and not with the depth, so it is a table. [computed: gap_is_a_table]
# Count the four shapes again with a table of {{first_table:,}} rows, the vocabulary of the *first* GPT:

# %%
for size, (_, width) in SIZES.items():
    gap = true[size] - printed[size]
    rows = gap * 1e6 / width
    print(
        f"{size:<7} printed {printed[size]:>4}  true {true[size]:>4}  missing {gap:>2} million = {rows:>6,.0f} rows",
        end="",
    )
    print(f"   with {first_table:,} rows: {refound[size]}")
print(f"vocabularies that give all four printed labels: {fits[0]:,} to {fits[-1]:,}")

# %% [markdown]
# All four come out. [computed: refound == printed] Only vocabularies from {{fits[0]:,}} to {{fits[-1]:,}} do that,
# and {{first_table:,}} is one of them. [computed: fits[0] <= first_table <= fits[-1]] [source:
# huggingface/transformers@020a37d, src/transformers/models/openai/configuration_openai.py] So the labels are those of
# GPT-2's shapes with the token table of its predecessor: we found nobody who says so, but four numbers agree.
# [inference]
#
# **In the library.** The search needs no search: six counts tell every other. [definition]

# %% [source: finding.totals]

# %% [source: finding.shapes]

# %% [markdown]
# **Why it matters.** A size in a paper's title is a rounded count under an unspoken rule. Whoever wants to rebuild the
# model has to find the rule first. [inference]

# %% [hidden]
import plainformer as pf
from plainformer import conventions
from plainformer.conventions import count
from plainformer.report.drawings import lines, shares

NAMES = [f"fig3-{one}" for one in ("4x32", "4x64", "4x128", "8x256", "8x384", "8x512", "10x640", "12x768")]
SPECS = [pf.presets[name] for name in NAMES]
plotted = [1895722, 3688527, 7569052, 19676969, 34133447, 51735630, 82340777, 124753293]
RULES = {"lora": "biases everywhere", "authors-released": "no bias", "authors": "bias on the merged layer alone"}
counted = {rule: [count(spec, rule).total for spec in SPECS] for rule in RULES}
ppm = {rule: [1e6 * (x / n - 1) for x, n in zip(plotted, totals, strict=True)] for rule, totals in counted.items()}
naive = count(SPECS[0], "nanogpt").total
worst = {rule: max(map(abs, gaps)) for rule, gaps in ppm.items()}


def pieces(spec):
    """What the authors' rule adds up, by what it is."""
    kept = count(spec, "authors").kept
    lora = [w for w in kept if w.kind == "lora"]
    parts = {
        "tables and blocks": [w for w in kept if w.kind not in ("lora", "position") and not w.name.endswith("bias")],
        "positions": [w for w in kept if w.kind == "position"],
        "merged bias": [w for w in kept if w.name.endswith("bias")],
        "LoRA on q, v": [w for w in lora if "attention" in w.name],
        "LoRA on the head": [w for w in lora if "head" in w.name],
    }
    return {name: sum(w.count for w in rows) for name, rows in parts.items()}


of_smallest = pieces(SPECS[0])
base, positions, merged, on_qv, on_head = of_smallest.values()
total = sum(of_smallest.values())
L, d, r, V, T = 4, 32, 4, 50304, 1024

# %% [markdown]
# ## A rule that fits eight points
#
# **Everyday picture.** A bill whose items are not listed. You know the prices; you try sums until one gives the total.
# Then you try the same items on seven other bills of the same shop.
#
# **Where the analogy breaks.** A total that fits proves the sum, not the items: two items of one price can be swapped,
# and here they can. [definition]
#
# **Tiny worked example.** Add the position table and corrections of rank four on queries, values and head, and the
# smallest model has {{counted["lora"][0]:,}}: {{-ppm["lora"][0]:.0f}} parts in a million too many, where {{100 *
# (plotted[0] / naive - 1):.1f}} percent were missing. [computed] Take the biases away, but for the merged layer of
# queries, keys and values, and it has {{counted["authors"][0]:,}}: {{ppm["authors"][0]:.1f}} parts in a million.
# [computed]

# %% [figure: fit]
lines(
    "How far the eight points lie from three rules, in parts per million",
    {words: [(float(i + 1), gap) for i, gap in enumerate(ppm[rule])] for rule, words in RULES.items()},
    "point, from the smallest model to the largest",
    "parts per million",
)

# %% [markdown]
# **How to read it.** A rule that is right lies on zero at every point. With biases everywhere the points lie below by
# up to {{worst["lora"]:.0f}} parts in a million, without any they lie above by up to {{worst["authors-released"]:.0f}};
# with the one bias they are never further than {{worst["authors"]:.1f}}, which in this picture is the line itself.
# [computed]
#
# **Formula.** The rule that fits, for $L$ layers of width $d$:
#
# $$
# N = \underbrace{V d + L (12 d^2 + 2 d) + d}_{\mathrm{no~biases}} + \underbrace{T d}_{\mathrm{positions}}
# + \underbrace{3 L d}_{\mathrm{merged~bias}} + \underbrace{4 r L d}_{\mathrm{LoRA~on~q,~v}}
# + \underbrace{r (V + d)}_{\mathrm{LoRA~on~the~head}}
# $$
#
# **Symbols.**
#
# | symbol | meaning | at the smallest point |
# |---|---|---|
# | $V, T$ | rows of the token table, padded, and of the position table | {{V:,}}, {{T:,}} |
# | $L, d, r$ | layers, width, rank | {{L}}, {{d}}, {{r}} |
# | $2 d$ | the gains of a block's two norms | {{2 * d}} |
# | no biases | tables and blocks | {{base:,}} |
# | merged bias | of queries, keys, values, which one layer makes | {{merged:,}} |
# | LoRA | on queries and values; on the head | {{on_qv:,}}; {{on_head:,}} |
#
# **In words.** Every tensor of the model that was trained: the stripped model, its positions, one bias a layer, and the
# corrections.
#
# **With the numbers.** {{base:,}} + {{positions:,}} + {{merged:,}} + {{on_qv:,}} + {{on_head:,}} = {{total:,}}; the
# point lies at {{plotted[0]:,}}. [computed] [computed: total == counted["authors"][0]]

# %%
print(f"{'':<13}{'plotted':>12}", *(f"{words:>31}" for words in RULES.values()))
for i, spec in enumerate(SPECS):
    name = f"{len(spec.decoder.layers)} x {spec.d_model}"
    print(f"{name:<13}{plotted[i]:>12,}", *(f"{counted[rule][i]:>15,} {ppm[rule][i]:>+11.1f} ppm" for rule in RULES))

# %% [figure: pieces]
shares(
    "What the plotted sizes are made of",
    {
        f"{len(spec.decoder.layers)} layers, width {spec.d_model}": pieces(spec)
        for spec in (SPECS[0], SPECS[2], SPECS[4], SPECS[7])
    },
)

# %% [markdown]
# **How to read it.** Four of the eight models. In the smallest, the correction on the head is
# {{100 * on_head / total:.1f}} % of everything counted: a matrix of {{V:,}} rows and four columns beside a table of
# {{d}} columns. In GPT-2's shape it can't be seen. [computed] That is the gap that shrank with size. [inference]
#
# The code says the same, and says a little more. Its count sums every parameter, its layers have no biases by default,
# and the merged layer is made by a library whose layers have one unless told otherwise. [source:
# Sanaelotfi/sublora-bounds-for-llms@c606ea6, sublora/nn/model.py] But the released code makes that merged layer only if
# a switch is on, and by default it is off. [source: Sanaelotfi/sublora-bounds-for-llms@c606ea6,
# sublora/sublora_pipeline.py] Then there is no bias at all, and the points would lie
# {{min(ppm["authors-released"]):.0f}} to {{max(ppm["authors-released"]):.0f}} parts in a million too high.
# [computed] So the figure was made with the switch on. [inference]
#
# **In the library.** A convention changes the spec; this one gives the bias back to three projections. [definition]

# %% [source: conventions.with_qkv_biases]

# %% [source: conventions.with_lora]

# %% [markdown]
# **Why it matters.** "Parameters" on the axis means: of the network with its corrections, not of the network that the
# labels name. The two differ by {{100 * (plotted[0] / naive - 1):.0f}} % at one end of the axis and by less than one
# at the other, so the curve itself is bent by the choice. [computed]

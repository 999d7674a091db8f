# %% [hidden]
import plainformer as pf
from plainformer.conventions import count, finding
from plainformer.report.drawings import columns

NAMES = [f"fig3-{one}" for one in ("4x32", "4x64", "4x128", "8x256", "8x384", "8x512", "10x640", "12x768")]
SPECS = [pf.presets[name] for name in NAMES]
# Read off the drawing of figure 3, whose axis is logarithmic.
plotted = [1895722, 3688527, 7569052, 19676969, 34133447, 51735630, 82340777, 124753293]


def shape(spec):
    """(layers, heads, width)"""
    return len(spec.decoder.layers), spec.decoder.layers[0][0].branches[0].part.n_heads, spec.d_model


naive = [count(spec, "nanogpt").total for spec in SPECS]
gaps = [100 * (x / n - 1) for x, n in zip(plotted, naive, strict=True)]
named = [f"{shape(spec)[0]} x {shape(spec)[2]}" for spec in SPECS]

# %% [markdown]
# ## A figure without a rule
#
# **Everyday picture.** A map without a scale. You know two towns on it and the distance between them, lay a ruler on
# the map, and have the scale. A third town that you know tells whether you were right.
#
# **Where the analogy breaks.** A map has one scale. A figure's points may have been counted by different programs, and
# then no single rule fits. [inference]
#
# **Tiny worked example.** The paper's figure plots eight models, given as layers, heads and width, the smallest
# {{shape(SPECS[0])}}. [paper: Lotfi et al. 2024, appendix E] On the axis, "number of parameters", it lies at
# {{plotted[0]:,}}; counted by the rule that gives the paper's labels it has {{naive[0]:,}}. That is {{gaps[0]:.1f}} %
# apart. [computed]

# %% [figure: gap]
columns(
    "How far the plotted size lies above nanoGPT's count, in percent",
    {name: {"gap": gap} for name, gap in zip(named, gaps, strict=True)},
    "percent",
    "layers x width",
)

# %% [markdown]
# **How to read it.** One column a model, from the smallest to GPT-2's shape. All lie above the count, and the smaller
# the model, the further: something is counted besides that grows more slowly than the model does. [computed:
# gaps == sorted(gaps, reverse=True)]
#
# **Formula.**
#
# $$
# \delta = \frac{x}{N} - 1
# $$
#
# **Symbols.**
#
# | symbol | meaning | at the smallest point |
# |---|---|---|
# | $x$ | where the point lies | {{plotted[0]:,}} |
# | $N$ | the count under some rule | {{naive[0]:,}} |
# | $\delta$ | the relative gap | {{gaps[0]:.1f}} % |
#
# **In words.** By what share does the figure exceed the count?
#
# **With the numbers.** {{plotted[0]:,}} / {{naive[0]:,}} - {{1}} = {{plotted[0] / naive[0] - 1:.4f}}. [computed]

# %%
for spec, x, n in zip(SPECS, plotted, naive, strict=True):
    extra = x - n
    print(f"{shape(spec)!s:<14} plotted {x:>11,}  counted {n:>11,}  {100 * (x / n - 1):5.2f} %", end="")
    print(f"  the rest, in widths: {extra / spec.d_model:8,.0f}")

# %% [markdown]
# What is left over is {{plotted[0] - naive[0]:,}} weights at the smallest point, and grows with the width more slowly
# than the width itself: {{(plotted[0] - naive[0]) / 32:,.0f}} widths there, {{(plotted[-1] - naive[-1]) / 768:,.0f}} at
# the largest. [computed] So it is a part that does not depend on the width at all, and a part that does. A position
# table of {{1024:,}} rows is of the second kind. [paper: Lotfi et al. 2024, appendix E] A low-rank correction of the
# head is of the first: it has a row for each token, and each row is as long as the rank. [inference]
#
# **In the library.** Asked for a number instead of a label, the search takes every published shape under every
# convention and sorts by the gap. [definition]

# %% [source: finding.published]

# %% [markdown]
# **Why it matters.** The same shape is {{naive[-1] / 1e6:.2f}} million in the paper's table and
# {{plotted[-1] / 1e6:.2f}} million on its figure. [computed] A reader who draws their own model into the figure has to
# know which. [inference]

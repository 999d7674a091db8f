# %% [hidden]
import plainformer as pf
from plainformer.conventions import count, lines
from plainformer.ledger import Ledger
from plainformer.report.drawings import columns, shares
from plainformer.report.figures import label

gpt2 = pf.presets["gpt2"]
d, n_layers = gpt2.d_model, len(gpt2.decoder.layers)
nanogpt = count(gpt2, "nanogpt")
padded = nanogpt.spec.vocab_size
table = nanogpt.kept[0].count
block = sum(w.count for w in nanogpt.kept if w.name.startswith("decoder.layers.0."))
SIZES = {"small": "gpt2", "medium": "gpt2-medium", "large": "gpt2-large", "XL": "gpt2-xl"}
TWELVE = [f"fig3-{one}" for one in ("4x32", "4x64", "4x128", "8x256", "8x384", "8x512", "10x640", "12x768")]
TWELVE += ["gpt2-medium", "paper-20x1280", "gpt2-large", "paper-25x1600"]


def parts(rows):
    """Weights by what they do: tables, attention, feed-forward, norms."""
    kinds = {
        "tables": ("embedding", "position"),
        "attention": ("attention",),
        "feed-forward": ("feed_forward",),
        "norms": ("norm",),
    }
    return {part: sum(w.count for w in rows if w.kind in of) for part, of in kinds.items()}


four = {size: parts(Ledger.of(pf.presets[name]).rows) for size, name in SIZES.items()}
twelve = {}
for name in TWELVE:
    spec = pf.presets[name]
    twelve[f"{len(spec.decoder.layers)} layers, width {spec.d_model}"] = parts(count(spec, "nanogpt").kept)
table_share = {name: 100 * of["tables"] / sum(of.values()) for name, of in twelve.items()}
share = {size: {part: n / sum(of.values()) for part, n in of.items()} for size, of in four.items()}
even = 51281 / 8

# %% [markdown]
# ## A model: blocks, and a table
#
# **Everyday picture.** A library: a catalogue with one card for each word of the language, and floors, all alike. A
# small library is mostly catalogue. Each further floor adds the same, and the catalogue stays.
#
# **Where the analogy breaks.** The catalogue is as wide as the floors are: widen the model and the table grows with it,
# by a line for each word, while the floors grow by squares. [inference]
#
# **Tiny worked example.** {{50}} words of width {{32}} are {{50 * 32:,}} weights, {{16}} positions {{16 * 32}}, two
# blocks {{2 * 12576:,}}, the last norm {{2 * 32}}: {{Ledger.of(pf.presets["lesson"]).total:,}} in all.
# [computed] [computed: 50 * 32 + 16 * 32 + 2 * 12576 + 2 * 32 == Ledger.of(pf.presets["lesson"]).total]

# %% [figure: sizes]
columns(
    "Where the parameters of the four sizes of GPT-2 are (millions)",
    {f"{size} {label(sum(of.values()))}": {part: n / 1e6 for part, n in of.items()} for size, of in four.items()},
    "millions",
)

# %% [markdown]
# **How to read it.** One column a size, cut by what the weights do, their sum on top; norms are there, but thinner than
# a line. From left to right the tables grow a little and the rest a lot: tables are
# {{100 * share["small"]["tables"]:.1f}} % of small and {{100 * share["XL"]["tables"]:.1f}} % of XL, feed-forward
# networks {{100 * share["small"]["feed-forward"]:.1f}} % and {{100 * share["XL"]["feed-forward"]:.1f}} %. [computed]
#
# **Formula.** As nanoGPT counts, with a tied head and without positions:
#
# $$
# N = V d + L (12 d^2 + 13 d) + 2 d
# $$
#
# **Symbols.**
#
# | symbol | meaning | in GPT-2 small |
# |---|---|---|
# | $V$ | rows of the token table, padded | {{padded:,}} |
# | $d$ | the width | {{d}} |
# | $L$ | the number of blocks | {{n_layers}} |
# | $2 d$ | gain and bias of the last norm | {{2 * d:,}} |
# | $N$ | all of it | {{nanogpt.total:,}} |
#
# **In words.** The table once, the block as often as there are layers, and one norm at the end.
#
# **With the numbers.** {{table:,}} + {{n_layers}} times {{block:,}} (which is {{n_layers * block:,}}) + {{2 * d:,}} =
# {{table + n_layers * block + 2 * d:,}}. [computed] [computed: table + n_layers * block + 2 * d == nanogpt.total]

# %%
for line in lines(nanogpt.kept):
    where = line.place if line.times == 1 else f"{line.times} x {line.place}"
    print(f"{where:<26} {line.formula:<26} {line.each:>11,} {line.total:>12,}")
print(f"{'all':<65} {nanogpt.total:>12,}")
by_part = parts(nanogpt.kept)
print({part: f"{100 * n / nanogpt.total:.3f} %" for part, n in by_part.items()})

# %% [markdown]
# Not in that sum: the position table, {{1024 * d:,}}; and {{padded - 50257}} rows of the table that stand for no token,
# {{(padded - 50257) * d:,}} weights that are never the right answer. [computed] They are there because matrix products
# are faster at round sizes. [source: karpathy/nanoGPT@3adf61e, model.py]
#
# **Which part is the largest?** It is often said that feed-forward networks always are. They are not: [definition]

# %% [figure: shares]
shares("Shares of twelve models, as nanoGPT counts", twelve)

# %% [markdown]
# **How to read it.** One bar a model, all of one length, cut by shares; the number beside it is the whole. In the
# smallest, the token table is {{list(table_share.values())[0]:.1f}} % of the model, in GPT-2 small (the eighth)
# {{list(table_share.values())[7]:.1f}} %, in the widest {{list(table_share.values())[-1]:.1f}} %. [computed] A small
# language model is a dictionary with a few layers on top. [inference]
#
# The feed-forward networks hold about $8 L d^2$ and the tables $(V + T) d$, where $T$ is the number of positions; so
# the first win once $L d$ exceeds $(V + T) / 8$, which for GPT-2's tables is {{even:,.0f}}. GPT-2 small has
# {{12 * 768:,}}; its narrowest kin here {{4 * 32}}. [computed] [computed: 12 * 768 > even > 10 * 640 > 4 * 32]
#
# **In the library.** A ledger is the list of tensors; every count is a sum over its rows. [definition]

# %% [source: Ledger]

# %% [markdown]
# **Why it matters.** Two models of one size can be very different machines. Which part is large decides what
# quantising, pruning or a smaller vocabulary can save. [inference]

# %% [hidden]
from plainformer import presets
from plainformer.cost import Cost
from plainformer.cost.devices import DEVICES
from plainformer.cost.serving import Serving
from plainformer.report.drawings import lines

h100 = DEVICES["h100"]
llama = presets["llama-3-8b"]
serving = Serving.of(Cost.of(llama, 1, 8192))
read = serving.weights_read + serving.cache_read
by_reading, by_work = read / h100.bandwidth, serving.step_flops / h100.flops
balance = h100.flops / h100.bandwidth


def step(rows, context):
    return Serving.of(Cost.of(llama, rows, context))


def rates(context):
    """(rows, tokens a second of all rows) while the card holds them."""
    points = []
    for rows in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
        one = step(rows, context)
        if one.memory_bytes <= h100.memory:
            points.append((float(rows), rows / one.step_seconds(h100)))
    return points


short, long = rates(128), rates(4096)
turning = next(rows for rows in range(1, 2000) if not step(rows, 1).is_bound_by_memory(h100))
prompt = Serving.of(Cost.of(llama, 1, 8192)).prompt_seconds(h100)
mixtral = Serving.of(Cost.of(presets["mixtral-8x7b"], 1, 4096))
mixtral_many = Serving.of(Cost.of(presets["mixtral-8x7b"], 32, 4096))
mixtral_all = Cost.of(presets["mixtral-8x7b"]).weights_bytes()

# %% [markdown]
# ## Time: reading or computing
#
# **Everyday picture.** A cook with fast hands and a slow larder. For one guest she waits at the larder door and cuts
# for a second; for a hundred guests who all want the same dish she goes to the larder once and cuts for an hour.
#
# **Where the analogy breaks.** A cook does one after the other. A card reads and computes at once, so a step takes the
# longer of the two times and not their sum. [inference]
#
# **Tiny worked example.** To write one token Llama 3 8B reads {{serving.weights_read / 1e9:.2f}} GB of weights and, in
# a full context, {{serving.cache_read / 1e9:.2f}} GB of cache: {{1000 * by_reading:.2f}} ms on an H100. Its
# {{serving.step_flops / 1e9:.1f}} billion operations would take {{1000 * by_work:.3f}} ms. So it waits, and writes
# {{1 / by_reading:.0f}} tokens a second at best. [computed]

# %% [figure: batch]
lines(
    "Llama 3 8B on one H100: tokens a second of all rows, at best",
    {"128 tokens behind each row": short, "4,096 tokens behind each row": long},
    "rows at once",
    "tokens a second",
)

# %% [markdown]
# **How to read it.** Each line ends where the card is full. With short contexts more rows cost almost nothing, for the
# weights are read once for all, until the operations take as long as the reading. With long contexts the line bends at
# once: each row brings its own cache, and nobody shares that. The bounds are those of the data sheet; what a server
# reaches lies below. [inference]
#
# **Formula.**
#
# $$
# t = \max \left( \frac{W + R \, c}{B}, \; \frac{R \, w}{P} \right)
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $t$ | seconds of a step | {{by_reading:.5f}} |
# | $W$ | bytes of weights that a step reads | {{serving.weights_read:,}} |
# | $R$ | rows | {{1}} |
# | $c$ | bytes of one row's cache | {{serving.cache_read:,}} |
# | $B$ | bytes a second from the card's memory | {{h100.bandwidth:.3g}} |
# | $w$ | operations of one token | {{serving.step_flops:,}} |
# | $P$ | operations a second | {{h100.flops:.4g}} |
#
# **In words.** The longer of: read the weights once and every row's cache; compute every row's token.
#
# **With the numbers.** {{read:,}} bytes by {{h100.bandwidth:.3g}} is {{by_reading:.5f}} seconds;
# {{serving.step_flops:,}} operations by {{h100.flops:.4g}} is {{by_work:.6f}}. [computed]

# %%
for rows in (1, 8, 64, 256, 512):
    one = Serving.of(Cost.of(presets["llama-3-8b"], rows, 128))
    bound = "reading" if one.is_bound_by_memory(h100) else "computing"
    seconds = one.step_seconds(h100)
    print(f"{rows:>4} rows: {1000 * seconds:6.2f} ms, {rows / seconds:>8,.0f} tokens a second, {bound}")
print(f"a prompt of 8,192 tokens: {1000 * prompt:.0f} ms, computing")

# %% [markdown]
# A number of the card alone decides: an H100 does {{balance:.0f}} operations in the time that it reads one byte. A
# weight of two bytes does two operations a row, so with fewer rows than about that many it waits for its memory: the
# step turns from reading to computing at {{turning}} rows of short contexts. [computed] Drawn against operations a
# byte, that bound is called a roofline. [paper: Williams et al. 2009, section "The Roofline Model"] A prompt is many
# tokens at once and shares the weights among them, so reading a prompt is computing, and writing is reading.
# [inference]
#
# A mixture reads, for one row, only the experts that its token meets:
# {{mixtral.weights_read / 1e9:.1f}} GB of Mixtral's {{mixtral_all / 1e9:.1f}}; for thirty-two rows, which meet nearly
# all, {{mixtral_many.weights_read / 1e9:.1f}} GB. So its advantage in speed is largest where it is least used: alone.
# [computed]
#
# **In the library.** [definition]

# %% [source: Serving.step_seconds]

# %% [source: Serving.of]

# %% [markdown]
# **Why it matters.** Quantised weights make writing faster because there is less to read, not because small numbers
# multiply faster; a server's price is made by how many rows it can put side by side. [inference]

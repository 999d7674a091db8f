# %% [hidden]
import plainformer as pf
from plainformer import spec
from plainformer.cost import Cost
from plainformer.cost import cache as kept_rules
from plainformer.cost.devices import DEVICES
from plainformer.lessons.words import lesson
from plainformer.report.drawings import lines

llama = pf.presets["llama-3-8b"]
one = llama.decoder.layers[0][0].branches[0].part
L, G, H, K = len(llama.decoder.layers), one.n_kv_heads, one.n_heads, one.d_head
each = 2 * L * G * K * 2
cost = Cost.of(llama, 1, 8192)
gpt3 = Cost.of(pf.presets["gpt3"], 1, 2048)
room = DEVICES["h100"].memory - cost.weights_bytes()
full_rows = int(room // cost.cache_bytes)
contexts = [0, 1024, 2048, 4096, 6144, 8192]


def held(rows):
    """Weights and cache in GB for so many rows, by context."""
    return [(float(n), (cost.weights_bytes() + rows * n * cost.cache_bytes_per_token) / 1e9) for n in contexts]


latent = Cost.of(pf.presets["deepseek-v3"], 1, 8192)

# %% [markdown]
# ## The cache: memory that grows while you talk
#
# **Everyday picture.** A clerk at a counter has one thick rule book for everybody, and one folder for each customer
# that grows with every sentence spoken. The book is bought once. The folders decide how many customers can stand there.
#
# **Where the analogy breaks.** A clerk may glance at a folder's last page. A model goes through all of it for every
# token that it writes: the folder costs time as well as room. [inference]
#
# **Tiny worked example.** Llama 3 8B keeps for each token, in each of {{L}} layers, {{G}} keys and {{G}} values of
# {{K}} numbers: {{2 * L * G * K:,}} numbers, {{each:,}} bytes in sixteen bits. A full context of
# {{cost.seq_len:,}} tokens is {{cost.cache_bytes / 1e9:.2f}} GB. [computed]

# %% [figure: cache]
lines(
    "Llama 3 8B in 16 bits: weights and cache, in GB",
    {f"{rows} rows" if rows > 1 else "1 row": held(rows) for rows in (1, 16, 64)},
    "tokens in each row",
    "GB",
)

# %% [markdown]
# **How to read it.** All lines begin at the weights and rise straight: a token costs the same whether it is the first
# or the last. What differs is how many rows grow at once. On a card of eighty GB there is room for {{full_rows}} full
# rows beside the weights, and for not one more. [computed]
#
# **Formula.**
#
# $$
# \mathrm{bytes\ a\ token} = 2 \, L \, G \, K \, s
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $L$ | layers | {{L}} |
# | $G$ | key and value heads | {{G}} |
# | $K$ | width of a head | {{K}} |
# | $s$ | bytes of a number | {{2}} |
#
# **In words.** In each layer and for each head that has keys and values of its own, one of both.
#
# **With the numbers.** {{2}} times {{L}} times {{G}} times {{K}} times {{2}} is {{each:,}}. [computed]

# %%
for name in ("gpt2", "llama-3-8b", "llama-3-70b", "llama-3.1-405b", "mixtral-8x7b", "gpt3", "deepseek-v3"):
    cost_of = Cost.of(pf.presets[name], 1, 2048)
    print(
        f"{name:<15} {cost_of.cache_bytes_per_token:>9,} bytes a token, {cost_of.cache_bytes / 1e9:5.2f} GB for 2,048"
    )

# %% [markdown]
# Two things keep it small. Sharing keys and values among heads: Llama 3 8B has {{H}} query heads and {{G}} of these,
# so its cache is {{H // G}} times smaller than it would be. [computed] And keeping less than the keys themselves:
# DeepSeek-V3 keeps one narrow vector a token and layer, {{latent.cache_bytes_per_token:,}} bytes in all, from which
# keys and values are made when needed; kept as such they would be
# {{latent.cache_bytes_as_expanded / latent.cache_bytes:.0f}} times as many. [computed] GPT-3, which did neither, needs
# {{gpt3.cache_bytes_per_token:,}} bytes a token and {{gpt3.cache_bytes / 1e9:.2f}} GB for one row of
# {{gpt3.seq_len:,}}. [computed] A window (Mistral 7B) does a third thing: the cache stops growing.
# [paper: Jiang et al. 2023, section 2]
#
# **In the library.** One rule for each part that remembers; a recurrence says `fixed`, whatever the context.
# [definition]

# %% [source: kept_rules.kept.dispatch(spec.Attention)]

# %% [markdown]
# **Why it matters.** Weights decide whether you can serve one reader, the cache how many at once, and so the price of
# each. [inference] What the cache saves is {{lesson("generation")}}. [definition]

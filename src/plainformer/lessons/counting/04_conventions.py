# %% [hidden]
import plainformer as pf
from plainformer import conventions
from plainformer.conventions import CONVENTIONS, count, pad_vocabulary, with_lora
from plainformer.ledger import Ledger
from plainformer.report.diagrams import Arrow, Box, flow

gpt2 = pf.presets["gpt2"]
tensors, nanogpt = count(gpt2), count(gpt2, "nanogpt")
positions = sum(w.count for w in nanogpt.left_out)
padding = Ledger.of(pad_vocabulary(gpt2)).total - tensors.total
lora_padded, lora_true = (Ledger.of(with_lora(spec, rank=4)).by_kind["lora"] for spec in (pad_vocabulary(gpt2), gpt2))
bias_free = Ledger.of(conventions.without_biases(gpt2)).total
head_lora = 4 * (50304 + 768)

# %% [markdown]
# ## One model, many counts
#
# **Everyday picture.** How many rooms has a house? With or without the bath, the cellar, the hall that a wall divides?
# Each answer is right under its own rule, and two houses can only be compared under one.
#
# **Where the analogy breaks.** Rooms are counted by looking. Here some rules count a house that was never built: with a
# padded table, or without biases. Such a rule first changes the model and then counts it. [inference]
#
# **Tiny worked example.** From OpenAI's {{tensors.total:,}} to nanoGPT's {{nanogpt.total:,}}: add {{padding:,}} for the
# rows of padding, leave out {{positions:,}} of the position table. [computed]
# [computed: tensors.total + padding - positions == nanogpt.total]

# %% [figure: conventions]
flow(
    "From the tensors of GPT-2 small to other counts of it",
    {
        "tensors": Box(0, 2, f"every tensor\n{tensors.total:,}", 0),
        "lesson": Box(1, 0, f"attention without biases\n{count(gpt2, 'lesson').total:,}"),
        "untied": Box(1, 1, f"a head of its own\n{count(gpt2, 'untied').total:,}"),
        "nanogpt": Box(1, 2, f"nanoGPT\n{nanogpt.total:,}", 1),
        "free": Box(2, 2, f"bias-free\n{count(gpt2, 'bias-free').total:,}"),
        "lora": Box(1, 3, f"with LoRA\n{count(gpt2, 'lora').total:,}", 2),
        "authors": Box(2, 3, f"merged layer biased\n{count(gpt2, 'authors').total:,}"),
        "released": Box(2, 4, f"no bias at all\n{count(gpt2, 'authors-released').total:,}"),
    },
    [
        Arrow("tensors", "lesson"),
        Arrow("tensors", "untied"),
        Arrow("tensors", "nanogpt"),
        Arrow("nanogpt", "free"),
        Arrow("tensors", "lora"),
        Arrow("lora", "authors"),
        Arrow("lora", "released"),
    ],
)

# %% [markdown]
# **How to read it.** Each arrow is a change of the model or of the list of what counts; each box is somebody's number
# for the same shape of twelve layers and width {{gpt2.d_model}}. No box is wrong. [computed] The two at the right below
# differ by one bias a layer, and only one of them is what a published figure shows: that is another lesson.
# [definition]
#
# **Formula.** A low-rank correction (LoRA) of rank $r$ to a matrix of $b$ inputs and $a$ outputs is a product of two
# thin matrices, $B A$. On queries and values of each block and on the head that adds:
#
# $$
# n_{\mathrm{LoRA}} = L \cdot 2 r (d + d) + r (V + d)
# $$
#
# **Symbols.**
#
# | symbol | meaning | in GPT-2 small |
# |---|---|---|
# | $r$ | the rank: how many columns $B$ and rows $A$ have | {{4}} |
# | $2 r (d + d)$ | queries and values of one block: $r (a + b)$ each | {{2 * 4 * (768 + 768):,}} |
# | $r (V + d)$ | the head: $V$ outputs, $d$ inputs | {{head_lora:,}} |
# | $L$ | the blocks | {{12}} |
#
# **In words.** Rank times the sum of both sides, for each matrix that is corrected.
#
# **With the numbers.** {{12}} times {{2 * 4 * (768 + 768):,}} + {{head_lora:,}} = {{lora_padded:,}},
# {{100 * lora_padded / nanogpt.total:.3f}} % of the model. [computed] With the table unpadded it is {{lora_true:,}},
# which is {{lora_padded - lora_true}} less: four for each of the {{50304 - 50257}} rows. [computed] The query and
# value matrices of one block, which it corrects, hold {{2 * 768**2:,}}. [computed]

# %%
for name, one in CONVENTIONS.items():
    told = count(gpt2, one)
    added = sum(gap for _, gap in told.changes)
    dropped = sum(w.count for w in told.left_out)
    print(f"{name:<17} {told.plain:>11,} {added:>+12,} {-dropped:>+10,} = {told.total:>11,}")

# %% [markdown]
# LoRA trains the two thin matrices alone and leaves the one that they correct as it is. [paper: Hu et al. 2021, section
# 4.1] Each line above: every tensor, what the change of the model adds or takes, what the rule leaves out, the count.
# [definition] A rule of nobody's above is still somebody's: nanoGPT's own notebook on sizes counts without biases,
# *with* positions and with the true vocabulary, {{bias_free:,}}. [source: karpathy/nanoGPT@3adf61e,
# transformer_sizing.ipynb] [computed]
#
# **In the library.** A convention is a name, a sentence, a change of the spec and a filter over its rows. [definition]

# %% [source: conventions.Convention]

# %% [source: conventions.count]

# %% [markdown]
# **Why it matters.** When two counts of one model differ, one of them is rarely wrong. Subtract them: the difference is
# nearly always a table, a bias or a correction, and its size says which. [inference]

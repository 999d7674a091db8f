# %% [hidden]
from plainformer import presets
from plainformer.cost import Cost, rules
from plainformer.cost.activations import taped
from plainformer.cost.tape import Pass
from plainformer.cost.training import OPTIMIZERS, Plan, Training
from plainformer.families import decoders
from plainformer.lessons.words import measured
from plainformer.report.drawings import columns

llama = Cost.of(presets["llama-3-8b"], 1, 8192)
N = llama.ledger.total
stages = {zero: Training.of(llama, Plan(zero=zero, n_devices=64)) for zero in (0, 1, 2, 3)}
parts = [
    ("weights", 2),
    ("gradients", 2),
    ("the copy that steps are added to", 4),
    ("AdamW's mean", 4),
    ("AdamW's spread", 4),
]
each = sum(size for _, size in parts)
gpt3 = Cost.of(presets["gpt3"], 1, 2048)
gpt3_state = rules.ADAMW * 175e9
s, h, a, L = 2048, presets["gpt3"].d_model, 96, 96
plain = gpt3.activation_bytes()
again = gpt3.activation_bytes(recompute=True)
how = {key: Training.of(llama, Plan(recompute=key)) for key in ("none", "selective", "full")}
written = Training.of(llama, Plan(fused=False))


n_scores = rules.score_elements(4, a, s)
score_bytes = rules.n_bytes(n_scores, "float32")
small_scores = [rules.n_bytes(rules.score_elements(4, 8, n), "float32") for n in (1024, 4096)]


def kept(n_layers, recompute, size=4):
    """Bytes kept for the backward pass after one row of 128 tokens, width 128, plain attention; the loss's too."""
    spec = decoders.gpt2(vocab_size=256, d_model=128, n_layers=n_layers, n_heads=4, max_seq_len=128)
    return taped(spec, Pass(1, 128, fused=False, recompute=recompute, size=size)).n_bytes + 128 * 256 * 4


saved = {n: 1 - kept(n, "full") / kept(n, "none") for n in (4, 12)}
wide, narrow = (Training.of(llama, Plan(optimizer=name)) for name in ("adamw-float32", "adamw"))
by_autocast = {
    name: Training.of(cost, Plan(optimizer="adamw-autocast")).activations
    / Training.of(cost, Plan(optimizer="adamw-float32")).activations
    for name, cost in (("llama", llama), ("gpt2", Cost.of(presets["gpt2"])))
}
of_float32 = measured("precisions")["rows"][1]["of float32's"]
tuned = {row["layers"]: row for row in measured("checkpoints")["rows"]}
lora = Training.of(llama, Plan(lora=16))
qlora = Training.of(llama, Plan(lora=16, quantised=True))

# %% [markdown]
# ## The memory of training
#
# **Everyday picture.** To read a book one needs the book. To revise it one needs the book, the margin notes of this
# round, a clean master that the small corrections are collected in, a diary of where each page has been going and how
# restless it was; and on the desk, open, every page that this round has touched.
#
# **Where the analogy breaks.** A reviser may put pages away and fetch them. A backward pass wants every activation
# again, in the reverse order, so all lie open at once, or are made a second time. [inference]
#
# **Tiny worked example.** One parameter, AdamW, mixed precision: its weight and its gradient take two bytes each, the
# copy in float32 and the two running averages four each: {{each}} bytes. Llama 3 8B takes
# {{each * N / 1e9:.0f}} GB before the first activation, eight times its weights. [computed]

# %% [figure: zero]
columns(
    "Llama 3 8B in training on 64 cards: GB on each, before activations",
    {
        name: {
            "weights": stages[zero].weights / 1e9,
            "gradients": stages[zero].gradients / 1e9,
            "optimiser": stages[zero].optimizer / 1e9,
        }
        for name, zero in (("nothing shared", 0), ("optimiser", 1), ("and gradients", 2), ("and weights", 3))
    },
    "GB",
    "what the cards share (ZeRO)",
    level=80,
    level_name="one card of 80 GB",
)

# %% [markdown]
# **How to read it.** At the left each card holds everything: more than it has. To the right one more kind is divided
# by sixty-four. The largest piece, the optimiser's, goes first, and with it alone the run fits; the last stage is for
# models whose weights alone do not. [computed: stages[0].before_activations > 80e9 > stages[1].before_activations]
#
# **Formula.** The share of one card:
#
# $$
# \mathrm{bytes} = \frac{2 N}{n_w} + \frac{2 N}{n_g} + \frac{12 N}{n_o}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $N$ | parameters | {{N:,}} |
# | $n_w$, $n_g$, $n_o$ | among how many cards weights, gradients, optimiser are shared | {{1}}, {{1}}, {{64}} |
#
# **In words.** Two bytes of weight, two of gradient, twelve of optimiser (copy, mean, spread) for each parameter, each
# divided among those who share it.
#
# **With the numbers.** With the optimiser shared: {{2 * N / 1e9:.1f}} and {{2 * N / 1e9:.1f}} and
# {{12 * N / 64 / 1e9:.1f}} GB are {{stages[1].before_activations / 1e9:.1f}} GB. [computed]

# %%
for name, plan in {
    "one card": Plan(),
    "float32 throughout": Plan(optimizer="adamw-float32"),
    "moments in 8 bits": Plan(optimizer="adamw-8bit"),
    "adapters of rank 16": Plan(lora=16),
    "the same on 4 bits": Plan(lora=16, quantised=True),
    "64 cards, all shared": Plan(zero=3, n_devices=64),
}.items():
    training = Training.of(llama, plan)
    print(
        f"{name:<21} {training.n_trained:>13,} trained {training.before_activations / 1e9:>7.1f} GB before activations"
    )

# %% [markdown]
# **"Mixed precision halves the memory."** Not of what is above: in float32 throughout a parameter takes
# {{wide.before_activations / N:.0f}} bytes, in mixed precision {{narrow.before_activations / N:.0f}}. [computed] The
# activations do halve where the whole stream is in sixteen bits:
# {{100 * narrow.activations / wide.activations:.0f}} % for Llama 3 8B. [computed] With autocast only the products are;
# norms and sums stay in float32 and weights are copied, and what is kept is
# {{100 * by_autocast["llama"]:.0f}} % for Llama 3 8B and {{100 * by_autocast["gpt2"]:.0f}} % for GPT-2 small: more than
# before. [computed] A small model, measured: [definition]

# %% [measured: precisions]

# %% [markdown]
# There {{of_float32}} of the bytes are left, the states are what they were, and the losses lie as near to each other as
# the seeds do. [measured: precisions]
#
# "Four times the weights on each GPU" for GPT-3 is as wrong: {{rules.ADAMW}} bytes a parameter are
# {{gpt3_state / 1e12:.1f}} TB for the whole run, however many cards share them, and before activations. [computed]
#
# **Activations.** What the backward pass needs of the forward one, for GPT-type blocks in sixteen bits with dropout and
# scores written out: [paper: Korthikanti et al. 2022, section 4.1]
#
# $$
# A = s b h \left( 34 + \frac{5 a s}{h} \right) L
# $$
#
# **Symbols.**
#
# | symbol | meaning | in GPT-3 |
# |---|---|---|
# | $s$ | tokens of a row | {{s:,}} |
# | $b$ | rows | {{1}} |
# | $h$ | width | {{h:,}} |
# | $a$ | heads | {{a}} |
# | $L$ | layers | {{L}} |
# | $A$ | bytes | {{plain:,}} |
#
# **In words.** Thirty-four bytes for each number of the stream and layer, and five for each score.
#
# **With the numbers.** {{34 + 5 * a * s / h:.0f}} bytes for each of {{s * h * L:,}} numbers: {{plain:,}}, so
# {{plain / 1e9:.0f}} GB for one row. [computed]

# %%
print(f"GPT-3, one row of 2,048: {rules.activation_bytes(batch_size=1, seq_len=s, d_model=h, n_heads=a, n_layers=L):,}")
print(f"each block made again:   {again:,}  saves {100 * (1 - again / plain):.1f} %")
print("Llama 3 8B, one row of 8,192: GB of activations, and operations over those of a plain step")
for scores in ("written out", "never written"):
    for again_what in ("none", "selective", "full"):
        training = Training.of(llama, Plan(recompute=again_what, fused=scores == "never written"))
        work = training.flops_done_per_token / training.flops_per_token
        print(f"  scores {scores:<13} made again: {again_what:<9} {training.activations / 1e9:6.1f} {work:6.3f}")

# %% [markdown]
# **Scores in one copy.** For four rows of GPT-3 a layer's scores are said to take {{score_bytes / 1e9:.1f}} GB. They
# do, as one copy in float32: {{n_scores:,}} numbers, {{score_bytes / 2**30:.1f}} GiB. [computed] Training with dropout
# keeps more than a copy, in sixteen bits five bytes for each: {{5 * n_scores / 1e9:.1f}} GB; a fused kernel keeps none.
# [computed] The same holds of smaller cases that one meets: {{small_scores[0] / 2**20:.0f}} MiB at a thousand tokens,
# {{small_scores[1] / 2**30:.0f}} GiB at four thousand, for four rows of eight heads. [computed]
#
# Most of GPT-3's are scores. A fused kernel writes none and makes them again, piece by piece, where they are needed
# [paper: Dao et al. 2022, section 3.1]: for Llama 3 8B that alone saves
# {{100 * (1 - how["none"].activations / written.activations):.0f}} %. [computed] Making attention's inside again
# ("selective") saves nearly as much where there is no such kernel, for
# {{100 * (how["selective"].flops_done_per_token / how["selective"].flops_per_token - 1):.1f}} % more operations, and
# nothing where there is. [computed]
#
# *Full recomputation* keeps what enters each block and makes the rest a second time. What it saves is not "about half":
# of the bytes kept, {{100 * (1 - again / plain):.0f}} % for GPT-3 by the formula, and {{100 * saved[4]:.0f}} and
# {{100 * saved[12]:.0f}} % in small models of four and twelve blocks; at the worst moment one block's are there again.
# [computed] What it costs is one forward pass more beside one forward and two of them backward: {{100 / 3:.0f}} % at
# most. [computed] Measured, in float64, with fused attention: [definition]

# %% [measured: checkpoints]

# %% [markdown]
# The slopes are the same, {{tuned[4]["saved"]}} and {{tuned[12]["saved"]}} of the bytes are gone, and the time is near
# the third that the count says. [measured: checkpoints]
#
# **In the library.** Each way to train is a row of a table, and a plan divides it. [definition]

# %% [source: Training.of]

# %% [source: rules.activation_bytes]

# %% [markdown]
# **Why it matters.** A model that runs on one card may need two to be trained, or sixty-four, or the same one and
# adapters: with those Llama 3 8B takes {{lora.before_activations / 1e9:.1f}} GB before activations, and
# {{qlora.before_activations / 1e9:.1f}} GB over frozen weights of four bits. [computed]

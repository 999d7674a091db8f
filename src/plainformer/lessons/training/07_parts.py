# %% [hidden]
import numpy as np

from plainformer.families import decoders
from plainformer.gradients import Moments, adamw_step, loss_and_gradients
from plainformer.initial import initial
from plainformer.lessons.words import lesson, small, vector
from plainformer.report.diagrams import Arrow, Box, flow

TEXT = "to be or not to be that is the question "
letters = sorted(set(TEXT))
ids_N = np.array([letters.index(one) for one in TEXT])
one = decoders.gpt2(vocab_size=len(letters), max_seq_len=8, d_model=16, n_layers=2, n_heads=2)
x_BT = np.stack([ids_N[i : i + 8] for i in range(0, 32, 8)])
y_BT = np.stack([ids_N[i + 1 : i + 9] for i in range(0, 32, 8)])
y_BT[3, 2:] = -1  # a row that ends early: its rest has no target
weights = initial(one, "gpt2", seed=0)
whole_loss, whole = loss_and_gradients(one, weights, x_BT, y_BT)


def in_parts(weighed):
    """The batch as two parts, three rows and one; each part's mean by its share of the targets, or plainly averaged."""
    n_targets, total = int((y_BT >= 0).sum()), dict.fromkeys(whole, 0.0)
    loss = 0.0
    for rows in (slice(0, 3), slice(3, 4)):
        part_loss, slopes = loss_and_gradients(one, weights, x_BT[rows], y_BT[rows])
        share = int((y_BT[rows] >= 0).sum()) / n_targets if weighed else 1 / 2
        loss += share * part_loss
        total = {name: total[name] + share * slopes[name] for name in whole}
    return loss, total, max(float(abs(total[name] - whole[name]).max()) for name in whole)


right, wrong = in_parts(True), in_parts(False)
largest = max(float(abs(slope).max()) for slope in whole.values())
sizes = [int((y_BT[rows] >= 0).sum()) for rows in (slice(0, 3), slice(3, 4))]


def steps(weights, moments, n, first=0):
    """So many steps of AdamW on the batch."""
    for _ in range(n):
        _, slopes = loss_and_gradients(one, weights, x_BT, y_BT)
        weights, moments = adamw_step(weights, slopes, moments, lr=0.01)
    return weights, moments


straight, _ = steps(weights, Moments(), 6)
half, kept = steps(weights, Moments(), 3)
resumed, _ = steps(half, kept, 3)
forgot, _ = steps(half, Moments(), 3)
same = all(np.array_equal(resumed[name], straight[name]) for name in straight)
off = max(float(abs(forgot[name] - straight[name]).max()) for name in straight)

# %% [markdown]
# ## A batch in parts, and a run that goes on
#
# **Everyday picture.** Counting votes in two halls. Add up the votes of both, then divide; do not take the mean of
# the two halls' shares, unless both are equally full. And when the counting is broken off for the night, write down
# not only the result so far, but also where you stood in the pile and what you had in your head.
#
# **Where the analogy breaks.** A count can be done again. A run that is broken off after days can't, and what it had
# "in its head", the optimiser's means, is twice as large as the result. [inference]
#
# **Tiny worked example.** A batch of {{len(x_BT)}} rows, of which the last ends early, has {{sum(sizes)}} targets.
# Cut in two parts, they have {{sizes[0]}} and {{sizes[1]}}. Weighed by these, the parts' losses give
# {{right[0]:.4f}}, as the whole batch does; the mean of the two means gives {{wrong[0]:.4f}}. [computed:
# bool(abs(right[0] - whole_loss) < 1e-12)] Its slopes are off by up to {{100 * wrong[2] / largest:.0f}} % of the
# largest. [computed]

# %% [figure: run]
flow(
    "A step, and what is kept of a run",
    {
        "text": Box(0, 0, "tokens\nthe whole text"),
        "order": Box(0, 1, "seed, step number\nwhich windows", 1),
        "parts": Box(1, 0, "parts of the batch\none after another", 0),
        "sum": Box(2, 0, "sum of slopes\nby the number of targets", 2),
        "clip": Box(3, 0, "clip, rate\nof this step"),
        "step": Box(4, 0, "optimiser\nweights and means move", 0),
        "keep": Box(4, 1, "step folder\nweights, means, step", 1),
    },
    [
        Arrow("text", "parts"),
        Arrow("order", "parts"),
        Arrow("parts", "sum"),
        Arrow("sum", "clip"),
        Arrow("clip", "step"),
        Arrow("step", "keep", dashed=True),
    ],
)

# %% [markdown]
# **How to read it.** From the left to the right, one step. What a later process needs to go on stands in the coloured
# boxes of the lower row: the seed and the step's number, from which the windows follow, and the step's folder, with
# weights *and* the optimiser's means. [definition]
#
# **Formula.** The slope of a batch cut into parts $P_1, P_2, \ldots$:
#
# $$
# \nabla L = \frac{1}{N} \sum_{k} \sum_{n \in P_k} \nabla \ell_n, \qquad N = \sum_k |P_k|
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $\ell_n$ | the surprise at one target | |
# | $\nabla$ | the slopes along all weights | {{len(whole)}} arrays |
# | $P_k$ | the targets of a part that are real | {{sizes[0]}} and {{sizes[1]}} of them |
# | $N$ | real targets of the whole batch | {{sum(sizes)}} |
#
# **In words.** Sum over all targets of all parts, then divide once, by how many there were.
#
# **With the numbers.** {{sizes[0]}} / {{sum(sizes)}} of the first part's mean and {{sizes[1]}} / {{sum(sizes)}} of
# the second's; the whole batch's slopes differ from that by {{small(right[2])}}. [computed]

# %%
loss, slopes = loss_and_gradients(one, weights, x_BT, y_BT)
print(f"whole batch: {loss:.6f}")
for weighed, words in ((True, "parts by their targets"), (False, "mean of the parts' means")):
    found, _, gap = in_parts(weighed)
    print(f"{words:<24} {found:.6f}   slopes differ by {small(gap)}")

# %% [markdown]
# So a batch that does not fit in memory is done in parts and trains the same: the parts' size is a matter of room,
# the batch's of training. [inference] The same sum is taken over threads and over processes, each with its own rows.
# [inference]
#
# **Exact resume.** Six steps at once, and three, a pause, and three more from weights, means and step: the weights
# are the same to the last bit. [computed: same] With the means forgotten they are off by up to {{off:.4f}}, more than
# a step's rate, and nothing says so. [computed] A run of the library keeps, in its folder, all that decides the rest
# of it:
#
# | what | in | why | |
# |---|---|---|---|
# | every decision, taken once | `run.json` | rates, schedule, seed, dtype, threads, versions | [definition] |
# | the model, as data | `spec.json` | which weights there are | [definition] |
# | letters and merges | `tokenizer.json` | what a number means | [definition] |
# | weights | `model.safetensors` | of each step that is kept | [definition] |
# | the optimiser's means | `optimizer.safetensors` | of the same step | [definition] |
# | step, sums of the files | `state.json` | whether the step is whole | [definition] |
# | losses, rates, speed | `metrics.jsonl` | cut back to the step on resume | [definition] |
#
# A folder is written beside its place and moved there whole, so a process that is killed leaves the step before it,
# never half a step. [inference]
#
# **In the library.** What AdamW remembers, as the definition has it: [definition]

# %% [source: Moments]

# %% [markdown]
# **Why it matters.** A comparison of two runs, of which one was resumed by halves, compares the resuming. [inference]
# And a mean of means is a mistake that no test on full rows finds: it needs a row that ends early. [computed:
# bool(wrong[2] > 1e-3)]

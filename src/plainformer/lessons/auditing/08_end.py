# %% [hidden]
import numpy as np

import plainformer as pf
from plainformer import reference
from plainformer.conventions import count, finding, pad_vocabulary, with_lora
from plainformer.families import decoders
from plainformer.initial import initial
from plainformer.ledger import Ledger

deepseek = Ledger.of(pf.presets["deepseek-v3"])
# Of the lesson: worked code, results that it states, diagrams, figures, formulas; counted in its text.
lesson_holds = {"code": 8, "results": 15, "diagrams": 8, "figures": 4, "formulas": 8}
plotted = [1895722, 3688527, 7569052, 19676969, 34133447, 51735630, 82340777, 124753293]
NAMES = [f"fig3-{one}" for one in ("4x32", "4x64", "4x128", "8x256", "8x384", "8x512", "10x640", "12x768")]
SPECS = [pf.presets[name] for name in NAMES]
LABELS = {124: "gpt2", 354: "gpt2-medium", 458: "paper-20x1280", 773: "gpt2-large", 849: "paper-25x1600"}
x = np.array(plotted)
rules_of = ("nanogpt", "lora", "authors", "authors-released")
totals = {rule: np.array([count(spec, rule).total for spec in SPECS]) for rule in rules_of}
biased = {label: count(pf.presets[name], "nanogpt").total for label, name in LABELS.items()}
free = {label: count(pf.presets[name], "bias-free").total for label, name in LABELS.items()}
candidates = {n: finding.behind(finding.label(f"{n}M"), "nanogpt")["multiples_of_64"] for n in (458, 849)}
smallest_rows = count(SPECS[0], "authors").kept
on_qv, on_head = (
    sum(w.count for w in smallest_rows if w.kind == "lora" and place in w.name) for place in ("attention", "head")
)
positions = sum(w.count for w in smallest_rows if w.kind == "position")
merged_bias = sum(w.count for w in smallest_rows if w.name.endswith("bias"))
base = sum(w.count for w in smallest_rows) - on_qv - on_head - positions - merged_bias


def shape(name):
    """(layers, heads, width)"""
    spec = pf.presets[name]
    return len(spec.decoder.layers), spec.decoder.layers[0][0].branches[0].part.n_heads, spec.d_model


bigger = [pf.presets[name] for name in ("gpt2-medium", "paper-20x1280", "gpt2-large", "paper-25x1600")]
table_shares = []
for spec in (*SPECS, *bigger):
    told = count(spec, "nanogpt")
    table_shares.append(100 * told.kept[0].count / told.total)


def moved_by_evaluation(merges):
    """How far the table's rows move where a corrected tied head is evaluated."""
    spec = with_lora(
        decoders.gpt2(vocab_size=50, max_seq_len=16, d_model=32, n_layers=2, n_heads=4), 4, None, ("head",)
    )
    arrays = initial(spec)
    arrays["head.lora_b"] = np.random.default_rng(0).normal(0, 0.02, arrays["head.lora_b"].shape)
    seen = [{}, {}]
    reference.logits(spec, arrays, [3, 1, 4, 1, 5], trace=seen[0])
    if merges:
        arrays["embedding.weight"] = arrays["embedding.weight"] + arrays["head.lora_b"] @ arrays["head.lora_a"]
    reference.logits(spec, arrays, [3, 1, 4, 1, 5], trace=seen[1])
    return abs(seen[1]["decoder.stream.0"] - seen[0]["decoder.stream.0"]).max()


leak = [moved_by_evaluation(merges) for merges in (True, False)]
said_of_leak = f"{'> 0' if leak[0] > 0 else '0'} in loralib; {leak[1]:g} in ours"

# %% [markdown]
# ## Misconceptions
#
# **Misconception.** GPT-2 small's exact size is {{124}} million, and the paper's small model is that.
#
# **Correction.** The label is a rounded count of a shape. The network that the paper trained has corrections and hardly
# any biases, and {{totals["authors"][-1]:,}} parameters. [computed]
#
# **Misconception.** If a count fits a published number to the last digits, the rule is found.
#
# **Correction.** The sum is found. Two rules fitted this figure, and many placements of the corrections each.
# [inference]
#
# **Misconception.** Released code shows what was run.
#
# **Correction.** It shows what its defaults would run. Here they would give other points than the figure's. [computed:
# bool((abs(1e6 * (x / totals["authors-released"] - 1)) > 200).all())]
#
# **Misconception.** A fact of a model card needs no check.
#
# **Correction.** What can be counted, count: DeepSeek-V3's report says {{671}} billion parameters of which a token
# meets {{37}} [paper: DeepSeek-AI 2024, abstract], and its config gives {{deepseek.total / 1e9:.1f}} and
# {{deepseek.active / 1e9:.1f}}. [computed] What can't, such as hours and tokens of training, is only as good as its
# source. [paper: DeepSeek-AI 2024, abstract]
#
# ## In twenty seconds
#
# - Recount under every rule, at all points at once; then read the code; then say what is left open. [definition]
# - The figure counts every tensor of the trained network: positions, one bias a layer, corrections. The labels count
#   another network: no positions, all biases. [inference]
# - A shape's layers and width can be found from its size, its heads can't. [inference]
# - Check the checker: the errata are longest where numbers were carried by hand. [inference]
#
# ## Self-test
#
# **Question.** The smallest point lies at {{plotted[0]:,}}; nanoGPT's rule says {{totals["nanogpt"][0]:,}}. Account for
# the difference.
#
# **Answer.** Take the biases away: {{base:,}} remain. Add positions, {{positions:,}}; the merged bias,
# {{merged_bias:,}}; corrections on queries and values, {{on_qv:,}}, and on the head, {{on_head:,}}:
# {{totals["authors"][0]:,}}. [computed]
#
# **Question.** Why is the naive gap {{100 * (x[0] / totals["nanogpt"][0] - 1):.1f}} % at one end and below one at the
# other?
#
# **Answer.** The correction on the head has a row for each token and four numbers a row, whatever the width: it shrinks
# beside everything else as the model grows. [inference]
#
# **Question.** A paper names a model of {{773}}M. Which of its biases can you tell from that?
#
# **Answer.** That the count had them: without, this shape would round to {{round(free[773] / 1e6)}}. Not that the
# network had. [computed]
#
# **Question.** Two rules fit a figure within its precision. What do you write?
#
# **Answer.** Both, with their gaps, and which of them other evidence speaks for. [inference]
#
# ## Papers

# %% [papers]

# %% [numbers]
{
    "docs_blocks": ("of the lesson: worked code, results, diagrams, figures, formulas", list(lesson_holds.values())),
    "llama3_deepseek_facts": (
        "hours, tokens and devices of DeepSeek-V3 and Llama 3 405B, which no config tells",
        "quoted from model cards",
    ),
    **{f"size_{label}M": (f"the label {label}M, with biases", n) for label, n in biased.items()},
    **{f"size_{label}M_bias_free": (f"the label {label}M, without", n) for label, n in free.items()},
    "candidates_458M": ("shapes behind 458M, widths in steps of 64", sorted(candidates[458], key=lambda of: -of[0])),
    "candidates_849M": ("shapes behind 849M", sorted(candidates[849], key=lambda of: -of[0])),
    "true_shapes_458M_849M": (
        "the true ones: layers, heads, width",
        [list(shape("paper-20x1280")), list(shape("paper-25x1600"))],
    ),
    "fig3_shapes": ("the figure's shapes", [list(shape(name)) for name in NAMES]),
    "fig3_x": ("where its points lie", plotted),
    "fig3_nanogpt": ("nanoGPT's counts", totals["nanogpt"]),
    "fig3_millions": ("the same in millions", np.round(totals["nanogpt"] / 1e6, 2)),
    "fig3_biased_pos_lora": ("with biases, positions, LoRA", totals["lora"]),
    "fig3_biased_diff_pct": ("how far off, percent", 100 * (x / totals["lora"] - 1)),
    "fig3_authors": ("the authors' rule", totals["authors"]),
    "fig3_authors_ppm": ("how far off, parts per million", 1e6 * (x / totals["authors"] - 1)),
    "fig3_released_default": ("the release's default", totals["authors-released"]),
    "fig3_released_default_ppm": ("how far off, parts per million", 1e6 * (x / totals["authors-released"] - 1)),
    "fig3_smallest_parts": (
        "the smallest: stripped, positions, merged bias, LoRA on q and v, on the head, all",
        [base, positions, merged_bias, on_qv, on_head, int(totals["authors"][0])],
    ),
    "fig3_naive_mismatch_pct": ("the naive gap of the smallest, percent", 100 * (x[0] / totals["nanogpt"][0] - 1)),
    "fig3_worst": (
        "the worst gaps: biased, percent; authors', parts per million",
        [100 * abs(x / totals["lora"] - 1).max(), 1e6 * abs(x / totals["authors"] - 1).max()],
    ),
    "embedding_shares_pct": ("the token table's share of twelve models, percent", table_shares),
    "tiny_4x32": (
        "the smallest: nanoGPT's count; with positions",
        [count(SPECS[0], "nanogpt").total, Ledger.of(pad_vocabulary(SPECS[0])).total],
    ),
    "lora_tied_eval_leak": ("how far evaluation moves the table under a corrected tied head", said_of_leak),
}

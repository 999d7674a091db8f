# %% [hidden]
import math

import numpy as np

import plainformer as pf
from plainformer import formulas, reference
from plainformer.conventions import rule_of_thumb
from plainformer.cost import Cost, rules
from plainformer.cost.flops import Work, flops, scores_and_mix
from plainformer.families import decoders
from plainformer.initial import initial
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson, measured
from plainformer.records import replace
from plainformer.report.drawings import columns

gpt2, gpt3 = pf.presets["gpt2"], pf.presets["gpt3"]
d, n, n_layers = gpt3.d_model, 2048, len(gpt3.decoder.layers)


def parts_of_layer(spec):
    return [residual.branches[0].part for residual in spec.decoder.layers[0]]


attention, feed_forward = parts_of_layer(gpt3)
work = Work(1, n, n)
mixed = scores_and_mix(work, attention.n_heads, attention.d_head, attention.d_head)
projections, wide = flops(attention, work) - mixed, flops(feed_forward, work)

one_prompt = [n_layers * rules.positions_computed(1, 100, cached) for cached in (False, True)]
fifty = [rules.positions_computed(50, 100, cached) for cached in (False, True)]
thousand = [rules.positions_computed(1000, 100, cached) for cached in (False, True)]
kept, recomputed = (Cost.of(gpt3).activation_bytes(recompute) for recompute in (False, True))
extra_pass = Cost.of(gpt2).forward_flops_per_token / Cost.of(gpt2).training_flops_per_token


def of_stack(layers, layout):
    """A row of what was measured of stacks."""
    return next(r for r in measured("residuals")["rows"] if (r["layers"], r["layout"]) == (layers, layout))


def of_norms(rate, warmup):
    return next(r for r in measured("norms")["rows"] if (r["rate"], r["warm-up"]) == (rate, warmup))


def first(text):
    """The median of a measured cell: 0.31 of "0.31 (0.30 to 0.50)"."""
    return float(text.split()[0])


deep = of_stack(12, "replaced, norm before")
wide_drawn = of_stack(12, "replaced, norm before, drawn wide")
bare = of_stack(12, "replaced, no norm")
after, before = (of_stack(12, f"added, norm {where}") for where in ("after", "before"))

cached = {row["prompt"]: row for row in measured("caches")["rows"]}
again = measured("checkpoints")["rows"][-1]  # twelve layers
half = measured("precisions")["rows"][-1]  # bfloat16
deeper = measured("depths")["rows"][-1]  # the deepest, at the larger rate

x_D = np.array([1.0, 2.0, 3.0, 4.0])
norm_gap = abs(formulas.layer_norm(100 * x_D) - formulas.layer_norm(x_D)).max()
grid = np.linspace(-6, 6, 24001)
gelu_gap = abs(formulas.gelu(grid) - formulas.gelu_tanh(grid)).max()
below_even = float(formulas.balance_loss(np.log([[0.9, 0.1], [0.45, 0.55], [0.45, 0.55]]), 1))
most_of_two = float(formulas.balance_loss([[30, 15, *[0] * 6]] * 8, 2))
ledger = Ledger.of(gpt2)
small_table = ledger.by_kind["embedding"]
both_tables = small_table + ledger.by_kind["position"]
tiny_share = Ledger.of(pf.presets["fig3-4x32"])
over_2n = Cost.of(gpt2).forward_flops / (2 * ledger.total * 1024)
softmax_total = sum(math.exp(score / math.sqrt(2)) for score in (1, 2, 2))
inner = math.sqrt(2 / math.pi) * 1.044715
one_copy = [rules.n_bytes(rules.score_elements(4, *of), "float32") for of in ((96, 2048), (8, 1024), (8, 4096))]


def order_gap(n_layers):
    """How far swapping the first two tokens moves the last scores, without any positions."""
    spec = decoders.gpt2(vocab_size=9, max_seq_len=8, d_model=16, n_layers=n_layers, n_heads=2)
    spec = replace(spec, decoder=replace(spec.decoder, positions=None))
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(0, 0.5, array.shape) for name, array in initial(spec).items()}
    there, back = (reference.logits(spec, arrays, tokens)[-1] for tokens in ([1, 2, 3, 4], [2, 1, 3, 4]))
    return abs(there - back).max()


llama2_layers = len(pf.presets["llama-2-70b"].decoder.layers)
llama3_ratio = parts_of_layer(pf.presets["llama-3-8b"])[1].up.n_out / 4096
tenfold = 10**-0.076  # Kaplan et al., equation 1.1
hello, this_is_a = [15496, 995], [1212, 318, 257]
said_hello, said_third = 1917, 281  # what the course has in their places
ratios = {  # said, right
    "training": (1.4e12, rules.ADAMW * 175e9),
    "recompute": (0.5, 1 - recomputed / kept),
    "cache": (10, one_prompt[0] / one_prompt[1]),
    "pairs": (4e6, sum(range(1, 2049))),
    "SwiGLU": (5.33, 8 / 3),
    "scores": (51 / 309, mixed / wide),
    "tenfold": (5, 1 / tenfold),
    "table": (0.32, small_table / ledger.total),
}

# %% [markdown]
# ## Errata of three texts and a paper
#
# This project began from three texts: a *lesson* on the transformer block, a *course*'s module that builds a GPT, and a
# *chapter* that counts GPT-2 and audits the paper above. All of their numbers were computed anew: they stand in the
# last table of each lesson. Nearly all had been right. These were not, or not quite. [inference]
#
# **Everyday picture.** The slip of paper in a printed book: page, line, for this read that. It is no reproach; a book
# without one has not been read closely.
#
# **Where the analogy breaks.** A slip corrects letters. Most of what stands below is a right number with a wrong
# reason, or a claim that holds somewhere and was said of everywhere. [inference]
#
# **Tiny worked example.** The course says that GPT-3's training state is four times its {{350}} GB, {{1.4}} TB. With
# Adam it is {{rules.ADAMW}} bytes a parameter, {{rules.ADAMW * 175e9 / 1e12:.1f}} TB. [paper: Rajbhandari et al. 2020,
# section 3.1] [computed]

# %% [figure: ratios]
columns(
    "What was said, as a multiple of what is right",
    {name: {"said / right": said / right} for name, (said, right) in ratios.items()},
    "said / right",
    level=1.0,
    level_name="right",
)

# %% [markdown]
# **How to read it.** One column a claim; on the dashed line it would be right. In the order of the columns: bytes to
# train GPT-3; bytes saved by recomputing; work of writing without a cache; pairs that a decoder scores; SwiGLU's
# middle; scores and mix as a part of the feed-forward network's work; what ten times the parameters bring; and the
# lesson's token table, off by the width of the line: {{100 * ratios["table"][0]:.0f}} % for
# {{100 * ratios["table"][1]:.1f}} %. [computed]
#
# **Formula.**
#
# $$
# \rho = \frac{\mathrm{said}}{\mathrm{right}}
# $$
#
# **Symbols.**
#
# | symbol | meaning | for the training state |
# |---|---|---|
# | said | what the text has | {{1.4}} TB |
# | right | what the formula or the count gives | {{rules.ADAMW * 175e9 / 1e12:.1f}} TB |
# | $\rho$ | one if they agree | {{1.4e12 / (rules.ADAMW * 175e9):.1f}} |
#
# **In words.** How many times too large was it?
#
# **With the numbers.** {{1.4}} / {{rules.ADAMW * 175e9 / 1e12:.1f}} = {{1.4e12 / (rules.ADAMW * 175e9):.2f}}.
# [computed]

# %%
for name, (said, right) in ratios.items():
    print(f"{name:<22} said {said:>10.4g}   right {right:>10.4g}   said / right {said / right:6.3f}")

# %% [markdown]
# **Of the course, cost.** [definition]
#
# | said | right | where it is shown |
# |---|---|---|
# | With and without a cache a hundred tokens through {{n_layers}} layers are the same compute, {{one_prompt[1]:,}}
#   layer
#   calls. | The calls agree, the work does not: from a prompt of one token, {{one_prompt[0]:,}} tokens pass through
#   layers without a cache and {{one_prompt[1]:,}} with one; from fifty, {{fifty[0]:,}} positions against {{fifty[1]}}.
#   | {{lesson("generation")}} [computed] |
# | Without a cache writing a hundred tokens takes ten times as long. | In work
#   {{one_prompt[0] / one_prompt[1]:.1f}} times for a prompt of one token, {{thousand[0] / thousand[1]:.1f}} for one of
#   a thousand. [computed] In time less, for a small model is not bound by work: {{cached[1]["time"]}} and
#   {{cached[50]["time"]}} for prompts of one and of fifty tokens. | {{lesson("generation")}} [measured: caches] |
# | At two thousand tokens GPT-3's attention is {{51}} billion operations, its feed-forward network {{309}}: a sixth. |
#   A
#   layer's scores and mix are {{mixed / 1e9:.1f}} billion, its projections {{projections / 1e9:,.1f}}, its feed-forward
#   network {{wide / 1e9:,.1f}}: scores and mix are a {{wide / mixed:.0f}}th. | {{lesson("budget")}} [computed] |
# | Attention dominates once the row is longer than the width. | Scores and mix reach the feed-forward network at
#   {{wide / mixed * n / d:.0f}} widths, all other products at {{(wide + projections) / mixed * n / d:.0f}}; attention
#   with its projections reaches it at {{(wide - projections) / mixed * n / d:.0f}}. | {{lesson("budget")}} [computed] |
# | Training takes four times the weights, {{1.4}} TB "per GPU". | {{rules.ADAMW}} bytes a parameter with Adam,
#   {{rules.ADAMW * 175e9 / 1e12:.1f}} TB in all, spread over the devices, before activations. | {{lesson("budget")}}
#   [computed] |
# | Recomputing saves about half of the activations and costs a fifth of the time. | By the formula for GPT-3's shape
#   {{100 * (1 - recomputed / kept):.1f}} % are saved; the price is one forward pass more, at most
#   {{100 * extra_pass:.0f}} % of the work. [computed] Measured on twelve small layers: {{again["saved"]}} saved, a step
#   takes {{again["time"]}} the time. | {{lesson("budget")}} [measured: checkpoints] |
# | Mixed precision halves memory. | It halves what products keep for the way back; of all that is kept
#   {{half["of float32's"]}} are left in a small model, whose norms and loss stay in float32. Weights, gradients and
#   AdamW's means are the same {{half["weights, gradients, AdamW"]}} bytes. [measured: precisions] In a large one,
#   sixteen bytes a parameter in both: two, two, four, four and four, or four times four. | {{lesson("budget")}} [paper:
#   Rajbhandari et al. 2020, section 3.1] |
# | Attention matrices of {{6.4}} GB, {{134}} MB, {{2.1}} GB. | Right as *one* copy in float32: {{one_copy[0] /
#   2**30:.1f}}
#   GiB, {{one_copy[1] / 2**20:.0f}} MiB, {{one_copy[2] / 2**30:.1f}} GiB. Autograd keeps more than one, a fused kernel
#   none. | {{lesson("attention")}} [computed] [measured: scores] |
# | Four million pairs a layer for {{n:,}} tokens. | {{n**2:,}} in a full square, {{n * (n + 1) // 2:,}} that a decoder
#   sees, for each head. | {{lesson("attention")}} [computed] |
# | {{96}} layers of twelve squares are {{175}} billion, or {{173}}. | They are {{rule_of_thumb(96, 12288, 0) /
#   1e9:.2f}}
#   billion; with tables, biases and norms {{Ledger.of(gpt3).total:,}}. | {{lesson("counting")}} [computed] |
#
# **Of the course, learning.** [definition]
#
# | said | right | where it is shown |
# |---|---|---|
# | A residual's gradient is at least its output's. | $I + J$ can shrink what passes, and with $J = -I$ nothing passes.
#   It
#   keeps a path, not a bound. | {{lesson("block")}} [computed: float(np.linalg.det(np.eye(2) - np.eye(2))) == 0] |
# | Without residuals the gradient at the first of twelve layers is {{0.1**12:.0e}} of the last's. | That is one guess
#   for bare parts, of which nothing arrives at all. With norms inside, {{deep["gradient, first layer / last"]}} of it
#   arrives where weights are drawn narrow, {{wide_drawn["gradient, first layer / last"]}} times it where wide; and yet
#   neither stack learns, their losses stay at {{first(deep["loss in nats"]):.2f}} and
#   {{first(wide_drawn["loss in nats"]):.2f}}. | {{lesson("block")}}
#   [computed: first(bare["gradient, first layer / last"]) == 0] [measured: residuals] |
# | Post-norm fails beyond twelve layers. | At twelve it ended at {{first(after["loss in nats"]):.2f}}, pre-norm at
#   {{first(before["loss in nats"]):.2f}}, less apart than their seeds. [measured: residuals] It fails at large rates
#   without a warm-up: {{of_norms("0.03", "none")["norm after"].split()[0]}} there, with a warm-up
#   {{of_norms("0.03", "100 steps")["norm after"].split()[0]}}; and at {{deeper["layers"]}} layers without one at a
#   third of that rate: {{deeper["norm after"].split()[0]}}, pre-norm {{deeper["norm before"].split()[0]}}.
#   | {{lesson("gradients")}} [measured: norms] [measured: depths] |
# | Ten times the parameters perform about five times better. | Where data do not run out, the loss is multiplied by
#   {{tenfold:.2f}}. | {{lesson("training")}} [paper: Kaplan et al. 2020, equation 1.1] [computed] |
#
# **Of the course, parts and facts.** [definition]
#
# | said | right | where it is shown |
# |---|---|---|
# | Its GPT matches PyTorch's `TransformerDecoder`. | That module's layers attend to a second input as well; the match
#   is
#   `TransformerEncoder` with the norm first and a causal mask. | {{lesson("gpt")}} [source: pytorch/pytorch@00ac522,
#   torch/nn/modules/transformer.py] |
# | A mask of zeros and minus infinities goes to its attention. | Its attention expects ones and zeros. What comes out
#   is
#   an even average in one copy of it and the mask turned around in the other. | {{lesson("gpt")}} [source:
#   MLSysBook/TinyTorch@02364f8, src/12_attention/12_attention.py] |
# | {{[hello[0], said_hello]}} is "Hello world", and {{[hello[0], said_hello, this_is_a[1], said_third]}} "This is a".
#   | "Hello world" is {{hello}}, "This is a" is {{this_is_a}}. | {{lesson("gpt")}} [source:
#   huggingface/transformers@00e3c07, src/transformers/models/gpt2/tokenization_gpt2.py] |
# | SwiGLU widens {{5.33}} times. | For the same count its middle is {{8 / 3:.2f}} widths, for it has three matrices;
#   Llama
#   3 8B takes {{llama3_ratio:g}}. | {{lesson("block")}} [paper: Shazeer 2020, section 2] [computed] |
# | GPT-4 has about {{120}} layers, GPT-3.5 {{96}}. | GPT-4's report withholds its size and shape; of GPT-3.5 we know no
#   publication that gives them. | [inference] [paper: OpenAI 2023, section 2] |
# | Llama 2 has {{llama2_layers}} layers. | Its largest model has. | [computed: llama2_layers == 80] |
# | AlphaCode is a decoder. | It has an encoder and a decoder. | [paper: Li et al. 2022, section 4.1] |

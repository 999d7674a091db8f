# %% [hidden]
import plainformer as pf
from plainformer.conventions import count, with_lora, with_vocabulary
from plainformer.cost import rules
from plainformer.ledger import Ledger
from plainformer.lessons.words import small

FIG3 = ("4x32", "4x64", "4x128", "8x256", "8x384", "8x512", "10x640", "12x768")
of_tiny = count(pf.presets["fig3-4x32"], "nanogpt")
tiny_table = 100 * of_tiny.kept[0].count / of_tiny.total
pairs = [("attention.q", "attention.v"), ("attention.q", "attention.k"), ("attention.k", "attention.out")]
of_pairs = {Ledger.of(with_lora(pf.presets["fig3-4x32"], 4, None, (*pair, "head"))).total for pair in pairs}
old_labels = [
    round(count(with_vocabulary(pf.presets[name], 40478)).total / 1e6)
    for name in ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl")
]
released = [count(pf.presets[f"fig3-{name}"], "authors-released").total for name in ("4x32", "12x768")]

# %% [markdown]
# **Of the lesson.** [definition]
#
# | said | right | where it is shown |
# |---|---|---|
# | {{38.6}} million of GPT-2 small's {{124}} are {{32}} %. | The token table is
#   {{100 * small_table / ledger.total:.1f}} %; with the positions {{100 * both_tables / ledger.total:.1f}} %.
#   | {{lesson("counting")}} [computed] |
# | The feed-forward network is always the largest share. | From about {{(50257 + 1024) / 8:,.0f}} layers times width
#   on.
#   Of four layers of width {{32}}, {{tiny_table:.1f}} % is the token table. | {{lesson("counting")}} [computed] |
# | The balance loss is least at one, for even traffic, and at most the number of experts. | One is even traffic, but
#   {{below_even:.3f}} occurs; with two of eight experts chosen it is at most {{most_of_two:.2f}}.
#   | {{lesson("experts")}} [computed] |
# | LayerNorm of a hundred times the input is identical. | It differs by {{norm_gap:.1e}}, for epsilon's sake.
#   | {{lesson("block")}} [computed] |
# | GELU by tanh is what GPT-2 and BERT have. | GPT-2 has; BERT's code had the exact one first and this one
#   later [source: google-research/bert@fe35475, modeling.py] [source: google-research/bert@eedf571, modeling.py];
#   nanoGPT and the chapter have the exact one. They differ by {{gelu_gap:.1e}} at most.
#   | {{lesson("block")}} [computed] |
# | A token costs twice the parameters in operations. | GPT-2 small at {{1024:,}} tokens costs {{over_2n:.3f}} times
#   that:
#   scores and their mix are not in the parameters. | {{lesson("budget")}} [computed] |
# | The tanh of {{0.834}} is {{0.683}}. | {{math.tanh(inner):.4f}}, before the argument was rounded. |
#   {{lesson("block")}}
#   [computed] |
#
# **Of the chapter.** [definition]
#
# | said | right | where it is shown |
# |---|---|---|
# | The shapes of {{458}}M and {{849}}M are stated nowhere, and the heads can't be inferred. | Right of the paper and of
#   counts; the authors' code names both, with {{20}} and {{25}} heads. | above [source:
#   Sanaelotfi/sublora-bounds-for-llms@c606ea6, sublora/utils.py] |
# | The released code keeps the bias of the merged layer. | Only with a switch that is off by default; without it the
#   counts are {{released[0]:,}} to {{released[1]:,}}, which the figure does not show. | above [computed] |
# | The counts agree "only with this choice" of the matrices with corrections. | Any two of the four squares of
#   attention
#   give the same count, and a second rule is nearly as close. | below [computed: len(of_pairs) == 1] |
# | A correction on the tied head leaves the use of the table at the input alone. | So it should, and so it is here; in
#   the library that the authors use, switching to evaluation adds it into the table. | below [source:
#   microsoft/LoRA@c4593f0, loralib/layers.py] |
# | The old labels of GPT-2 match no rule. | With the table of the first GPT all four come out.
#   | {{lesson("counting")}} [computed: old_labels == [117, 345, 762, 1542]] |
# | Without positions "dog bites man" can't be told from "man bites dog". | True without a mask, and of the last token
#   after one causal layer (it moves by {{small(order_gap(1))}}); two causal layers tell them apart
#   ({{order_gap(2):.2f}}). | {{lesson("positions")}} [computed] |
# | The third row's exponentials sum to {{10.254}}. | {{softmax_total:.4f}}: added after rounding. |
#   {{lesson("attention")}}
#   [computed] |
#
# **Of the paper**, numbered as the chapter numbers them: [definition]
#
# | number | what the paper says | what a reader has to know |
# |---|---|---|
# | E{{24}} | An axis called number of parameters, without a rule. [paper: Lotfi et al. 2024, figure 3] | Positions and
#   corrections are in it, while they are not in the labels. [inference] |
# | E{{36}} | The vocabulary's size is not printed. [inference] | {{50257:,}}, padded to {{50304:,}} in the code.
#   [source: Sanaelotfi/sublora-bounds-for-llms@c606ea6, sublora/nn/model.py] |
# | E{{43}} | Sizes as labels, two of the shapes nowhere. [paper: Lotfi et al. 2024, table 3] | The labels count biases
#   that
#   the networks hardly have; the shapes are in the code. [source: Sanaelotfi/sublora-bounds-for-llms@c606ea6,
#   sublora/utils.py] |
# | E{{44}} | Corrections on "the self-attention layer" in one place, on queries, values and the head in another.
#   [paper:
#   Lotfi et al. 2024, section 5] | The second is what the code does. [source:
#   Sanaelotfi/sublora-bounds-for-llms@c606ea6, sublora/nn/model.py] |
#
# **In the library.** The first two rows of all are one short function: how many positions pass through the layers.
# [definition]

# %% [source: rules.positions_computed]

# %% [markdown]
# **Why it matters.** None of the three texts is careless. They are wrong where a number was carried from one sentence
# to the next by hand; where code printed it, it was right. That is why every number of these pages is printed.
# [inference]

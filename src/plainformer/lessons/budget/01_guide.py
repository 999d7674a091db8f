# %% [hidden]
import plainformer as pf
from plainformer.cost import Cost, rules
from plainformer.cost.devices import DEVICES
from plainformer.cost.serving import Serving
from plainformer.cost.training import OPTIMIZERS, compute_optimal_tokens
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson, power

llama = Cost.of(pf.presets["llama-3-8b"])
mixtral = Cost.of(pf.presets["mixtral-8x7b"])
seventy = Cost.of(pf.presets["llama-3-70b"])
largest = Ledger.of(pf.presets["llama-3.1-405b"]).total
h100 = DEVICES["h100"]
needed = {bits: -int(-seventy.weights_bytes(bits) // h100.memory) for bits in ("bfloat16", "int4")}
seven = 7e9  # a round model
seven_tokens = compute_optimal_tokens(seven)
seven_flops = rules.training_flops(seven, seven_tokens)
seven_hours = rules.device_hours(seven_flops, 400e12)
gpt2 = Cost.of(pf.presets["gpt2"])
gap = gpt2.forward_flops_per_token / gpt2.rule_2n
llama_tokens = 15.6e12  # Dubey et al. 2024, section 1: tokens that the largest was trained on
llama_flops = 3.8e25  # Dubey et al. 2024, section 1: operations of its training
llama_cards = 16_000  # Dubey et al. 2024, section 3.3
deepseek = Ledger.of(pf.presets["deepseek-v3"])
deepseek_hours = 2.788e6  # DeepSeek-AI 2024, abstract: hours of H800
deepseek_tokens = 14.8e12  # DeepSeek-AI 2024, abstract
serving = Serving.of(Cost.of(pf.presets["llama-3-8b"], 1, 8192))
per_weight = {name: how.weight + how.gradient + how.master + 8 for name, how in OPTIMIZERS.items()}

# %% [markdown]
# # Compute, memory, money
#
# ## In practice
#
# **In one sentence.** From the eight sizes in a model's `config.json` follow, before a byte is downloaded, its exact
# parameters, the memory that it needs to load, to write and to be trained, the operations of both, and so the hours and
# the bill: Llama 3 8B is {{llama.ledger.total:,}} parameters, {{llama.weights_bytes() / 1e9:.1f}} GB in sixteen bits,
# {{llama.cache_bytes_per_token:,}} bytes for each token that it remembers. [computed]
#
# **When you need it.** You must say by tomorrow whether a model runs on the card you have, how many people it can
# answer at once, whether your budget trains it or only tunes it, or whether somebody's claim of a price can be true.
# [inference]
#
# **Options.** Where the memory or the hours do not suffice:
#
# | option | what it changes | what it gives | what it costs | from |
# |---|---|---|---|---|
# | fewer bits for weights | bytes of a parameter | a model of seventy billion on {{needed["int4"]}} card of eighty GB
#   instead of {{needed["bfloat16"]}} | some quality, to be measured for each model | [computed] |
# | fewer key and value heads | bytes of a cached token | longer contexts, more readers at once
#   | the model must have been made or trained further so | [paper: Ainslie et al. 2023, section 2.2] |
# | a mixture of experts | what a token meets, not what is loaded | operations of a small model, knowledge
#   of a large one | memory for all of it | [paper: Jiang et al. 2024, section 2.1] |
# | a smaller model, trained longer | parameters against tokens | cheaper to run for ever | more training, paid once
#   | [paper: Touvron et al. 2023, section 1] |
# | adapters (LoRA) | who has a gradient | no gradients and no optimiser for the rest | a smaller range of what can be
#   learned | [paper: Hu et al. 2021, section 4.2] |
# | recomputation | activations that are kept | batches and contexts that fit | a third more operations at most
#   | [paper: Korthikanti et al. 2022, section 5] |
# | sharing among devices (ZeRO) | who keeps gradients, states, weights | any model, with enough devices
#   | traffic between them | [paper: Rajbhandari et al. 2020, section 5] |
#
# **How to choose.** First memory, for it decides yes or no: weights, then the cache of everybody who is served at once,
# then ten to twenty hundredths to spare. [inference] Then time: to write is to read all weights once a token, so the
# bound is the card's bandwidth; to read a prompt or to train is to compute, so the bound is its operations a second.
# [inference] Then money, which is hours times a price, and the least certain of the three. [inference]
#
# **What it costs.** The five rules, each with what it leaves out in a section of its own:
#
# - *Weights:* parameters times bits, by eight. [definition]
# - *Cache:* two, times layers, times key and value heads, times a head's width, times bytes, for each token.
#   [definition]
# - *Writing a token:* about two operations a parameter ("2N"): {{power(2 * seven)}} for seven billion. It leaves out
#   the scores of attention; GPT-2 small with its context full does {{gap:.3f}} times as many. [computed]
# - *Training:* about six operations a parameter and token ("6ND"). Seven billion parameters on {{power(seven_tokens)}}
#   tokens are {{power(seven_flops)}} operations, {{seven_hours:,.0f}} hours of one card that keeps up
#   {{power(400e12)}} a second. [computed]
# - *Memory of training:* {{per_weight["adamw"]}} bytes a parameter with AdamW, and then the activations. [computed]
#
# **What breaks.**
#
# - *Counting a mixture by its name.* Mixtral 8x7B loads {{mixtral.ledger.total / 1e9:.1f}} billion parameters and a
#   token meets {{mixtral.ledger.active / 1e9:.1f}}: size the card by the first, the time by the second. [computed]
# - *Weights that fit, and a cache that does not.* A full card refuses the second user, not the first. [inference]
# - *Training memory as "four copies".* True for float32 weights alone; a run in mixed precision has five numbers of
#   two sizes for each parameter, and the activations may outweigh them all. [inference]
# - *The peak of a data sheet taken for speed.* Published runs kept up between a fifth and a half of it. [paper:
#   Chowdhery et al. 2022, table 3]
# - *Sparse peaks.* Makers print operations a second that assume half the weights to be zero; for dense products half
#   of that number is right. [inference]
# - *Two meanings of a gigabyte.* A card of eighty GB and a tool that says GiB differ by
#   {{100 * (1024**3 / 1e9 - 1):.1f}} %. [computed]
#
# **In the wild.** Llama 3.1 405B has {{largest:,}} parameters; its report says {{power(llama_flops)}} operations on
# {{power(llama_tokens, 3)}} tokens [paper: Dubey et al. 2024, section 1] and up to {{llama_cards:,}} H100.
# [paper: Dubey et al. 2024, section 3.3] The rule of six gives {{power(rules.training_flops(largest, llama_tokens))}}.
# [computed] DeepSeek-V3
# has {{deepseek.total / 1e9:.0f}} billion of which a token meets {{deepseek.active / 1e9:.1f}}. [computed] Its report
# says {{power(deepseek_hours, 3)}} hours of H800 for {{power(deepseek_tokens, 3)}} tokens and all stages.
# [paper: DeepSeek-AI 2024, abstract] GPT-4's size is not published. [paper: OpenAI 2023, section 2]
#
# ## Where it fits
#
# Before this: {{lesson("counting")}}, for what the parameters are, and {{lesson("experts")}}, for those that a token
# does not meet. [definition] Here they become bytes, operations and hours. After it, {{lesson("training")}} spends
# them and {{lesson("generation")}} serves from what is left. In a terminal the whole lesson is one line:
# `plainformer size llama-3-8b --device h100 --train`. [definition]

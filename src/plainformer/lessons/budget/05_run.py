# %% [hidden]
import plainformer as pf
from plainformer.cost import rules
from plainformer.cost.devices import DEVICES
from plainformer.cost.training import compute_optimal_tokens, energy_kwh
from plainformer.ledger import Ledger
from plainformer.lessons.words import lesson, power
from plainformer.report.diagrams import Arrow, Box, flow

N = 7e9
D = compute_optimal_tokens(N)
C = rules.training_flops(N, D)
sustained = 400e12
hours = rules.device_hours(C, sustained)
h100 = DEVICES["h100"]
price = 2.0  # dollars for an hour of one card: a guess that the reader replaces
kwh = energy_kwh(hours, h100.watts)
gpt3_flops = 3.14e23  # Brown et al. 2020, appendix D, table D.1
gpt3_rule = rules.training_flops(175e9, 300e9)
# Patterson et al. 2021, table 4: GPT-3 on V100
v100_speed, v100_watts, overhead, reported_mwh = 24.6e12, 330, 1.10, 1287
gpt3_hours = rules.device_hours(gpt3_flops, v100_speed)
gpt3_mwh = energy_kwh(gpt3_hours, v100_watts) * overhead / 1000
mfu_low, mfu_high = 38, 43  # Dubey et al. 2024, table 4: per cent
palm = 46.2  # Chowdhery et al. 2022, table 3: per cent
big = Ledger.of(pf.presets["llama-3.1-405b"]).total
big_hours = rules.device_hours(rules.training_flops(big, 15.6e12), mfu_high / 100 * h100.flops)
eight_tokens = 15e12  # Dubey et al. 2024, section 1: about 15 trillion
eight = Ledger.of(pf.presets["llama-3-8b"]).total
ratio = eight_tokens / eight
tenfold = 10**-0.076  # Kaplan et al. 2020, section 1.2: loss falls as N^-0.076

# %% [markdown]
# ## A training run: six for each parameter and token
#
# **Everyday picture.** A wall of known size, a mason of known speed, a wage: days and cost follow. Nobody asks which
# brick is laid when.
#
# **Where the analogy breaks.** A mason's speed is known from other walls. A cluster's is a fifth to a half of what its
# maker prints, and which of them one learns on the day. [paper: Chowdhery et al. 2022, section 4.1]
#
# **Tiny worked example.** {{power(N)}} parameters, {{power(D)}} tokens: six times the product is {{power(C)}}
# operations. A card that keeps up {{power(sustained)}} a second needs {{hours:,.0f}} hours, so a hundred of them need
# {{hours / 100:.0f}}. [computed]

# %% [figure: run]
flow(
    "From a size to a bill",
    {
        "n": Box(0, 0, f"parameters\n{N:.0e}".replace("e+0", "e")),
        "d": Box(0, 2, f"tokens\n{D:.1e}".replace("e+", "e")),
        "c": Box(1, 1, f"operations: 6 N D\n{C:.2e}".replace("e+", "e"), 0),
        "h": Box(2, 1, f"card-hours\n{hours:,.0f}", 1),
        "m": Box(3, 0, f"money\n{hours * price:,.0f} dollars at {price:g} an hour", 2),
        "e": Box(3, 2, f"energy\n{kwh:,.0f} kWh at {h100.watts} W", 2),
    },
    [Arrow("n", "c"), Arrow("d", "c"), Arrow("c", "h", "speed kept up"), Arrow("h", "m"), Arrow("h", "e")],
)

# %% [markdown]
# **How to read it.** From left to right each box is the one before, times or by one number. The first step is
# arithmetic; the second holds the one number that must be measured, the speed that is kept up; the prices at the right
# are assumptions that anybody can replace. [definition]
#
# **Formula.**
#
# $$
# C = 6 N D, \qquad \mathrm{hours} = \frac{C}{3600 \, u P}
# $$
#
# **Symbols.**
#
# | symbol | meaning | in the example |
# |---|---|---|
# | $N$ | parameters (of a mixture: those that a token meets) | {{power(N)}} |
# | $D$ | tokens read in training | {{power(D)}} |
# | $C$ | operations | {{power(C)}} |
# | $P$ | a card's peak, operations a second | {{power(h100.flops, 3)}} (H100, dense, sixteen bits) |
# | $u$ | utilisation: the share of it that is kept up | {{sustained / h100.flops:.3f}} |
#
# **In words.** Two operations forward, four backward, for each parameter and each token; by what the cards do in an
# hour.
#
# **With the numbers.** {{power(C)}} by {{3600:,}} and by {{power(sustained)}} is {{hours:,.2f}} hours of one card. At
# {{price:g}} dollars an hour that is {{hours * price:,.0f}} dollars, and at {{h100.watts}} watts
# {{kwh:,.0f}} kWh, without cooling and without the machine around the card. [computed]

# %%
for name, n, d in (
    ("7B on 140B tokens", 7e9, 140e9),
    ("7B on 2T", 7e9, 2e12),
    ("70B on 1T", 70e9, 1e12),
    ("GPT-3: 175B on 300B", 175e9, 300e9),
    ("Llama 3.1 405B on 15.6T", big, 15.6e12),
):
    operations = rules.training_flops(n, d)
    print(f"{name:<24} {operations:.2e} operations {rules.device_hours(operations, 400e12):>12,.0f} hours")

# %% [markdown]
# The paper of GPT-3 prints {{power(gpt3_flops)}} for its run [paper: Brown et al. 2020, appendix D]; the rule gives
# {{power(gpt3_rule)}}, which is the same to {{100 * abs(gpt3_rule / gpt3_flops - 1):.1f}} %. [computed] Its energy was
# reported as {{reported_mwh:,}} MWh, on V100 that kept up {{v100_speed / 1e12:.1f}} trillion operations a second at
# {{v100_watts}} watts, in rooms that take a tenth more. [paper: Patterson et al. 2021, table 4] Those four numbers
# multiply out to {{gpt3_mwh:,.0f}} MWh: the estimate is the same arithmetic as above, and no meter was read. [computed]
#
# **Utilisation** is model operations a second over the card's peak, PaLM's definition: recomputed operations don't
# count as done. [paper: Chowdhery et al. 2022, section 4.1] PaLM reached {{palm:g}} %
# [paper: Chowdhery et al. 2022, table 3], Llama 3.1 405B {{mfu_low}} to {{mfu_high}} %.
# [paper: Dubey et al. 2024, table 4] At {{mfu_high}} % the latter's run is {{big_hours / 1e6:.1f}} million hours of
# H100. [computed]
#
# **How many tokens.** Of all ways to spend $C$, the lowest loss was found near twenty tokens a parameter.
# [paper: Hoffmann et al. 2022, table 3] That is the best *training*. Who then serves the model for years wants it
# smaller and trains it longer: Llama 3 8B saw about {{ratio:,.0f}} tokens a parameter. [computed] Ten times the
# parameters alone make nothing five times better: the law that is quoted for it says that the loss becomes
# {{tenfold:.2f}} times what it was. [paper: Kaplan et al. 2020, section 1.2]
#
# **In the library.** [definition]

# %% [source: rules.training_flops]

# %% [source: rules.device_hours]

# %% [source: rules.utilisation]

# %% [markdown]
# **Why it matters.** A plan for a run, a press release and a quarrel about energy are checked by one multiplication.
# Where the operations come from is {{lesson("gradients")}}: each product has two slopes, each as dear as itself.
# [inference]

"""Behaviours of a whole GPT: its logits, gradients, training, generation and cache."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from plainformer.check.behaviours import CHECKS as CHECKS
from plainformer.check.behaviours import (
    SHAPE,
    Array,
    check,
    expected_logits,
    made,
    must,
    nats,
    refused,
    rng,
)

# --- whole model ------------------------------------------------------------------------------------------------------


@check()
def gp1_logits_are_the_formula(ad: Any) -> None:
    model, ids = made(ad), rng(1).integers(0, 23, (2, 11))
    want = np.stack([expected_logits(ad.params(model), row, 3, 4, ad.gelu_kind) for row in ids])
    got = ad.logits(model, ids)
    must(got.shape == (2, 11, 23))
    must(np.abs(got - want).max() < 300 * ad.atol)


@check()
def gp2_the_future_moves_no_bit(ad: Any) -> None:
    model, ids = made(ad), rng(2).integers(0, 23, 16)
    before = ad.logits(model, ids[None])[0]
    for cut in (0, 4, 8, 14):
        other = np.where(np.arange(16) > cut, (ids + 1) % 23, ids)
        after = ad.logits(model, other[None])[0]
        must(np.array_equal(after[: cut + 1], before[: cut + 1]))
        must(np.abs(after - before)[cut + 1 :].max(-1).min() > 0)


@check()
def gp3_one_token_repeated_differs_by_position_alone(ad: Any) -> None:
    model, ids = made(ad), np.full((1, 12), 3)
    for floor, ceiling in ((1e-3, np.inf), (-1, 1e3 * ad.atol)):
        said = ad.logits(model, ids)[0]
        must(floor < np.abs(said - said[0]).max() < ceiling)
        ad.assign(model, "wpe", np.zeros((32, 24)))


@check("tied")
def gp4_a_tied_head_is_the_token_table(ad: Any) -> None:
    model, ids = made(ad, tied=True), np.array([[1, 2, 3]])
    must("head.w" not in ad.params(model))
    before, table = ad.logits(model, ids)[0, -1, 7], ad.params(model)["wte"].copy()
    table[7] *= 2
    ad.assign(model, "wte", table)
    must(np.isclose(ad.logits(model, ids)[0, -1, 7], 2 * before, atol=300 * ad.atol))


@check("tied", "attn_bias_option")
def gp5_weights_of_the_tiny_gpt(ad: Any) -> None:
    for attn_bias, want in ((False, 27_328), (True, 27_584)):
        model = ad.make(vocab=50, width=32, layers=2, heads=4, context=16, tied=True, attn_bias=attn_bias)
        must(ad.param_count(model) == want == sum(array.size for array in ad.params(model).values()))


@check()
def gp6_heads_cost_nothing(ad: Any) -> None:
    counts = {ad.param_count(ad.make(vocab=50, width=32, layers=2, heads=n, context=16)) for n in (1, 2, 4, 8)}
    must(len(counts) == 1)


@check()
def gp7_bad_input_is_refused_in_words(ad: Any) -> None:
    model = ad.make(**SHAPE)
    for ids in (np.zeros((1, 33), int), np.array([[23]]), np.array([[-1]]), np.zeros((1, 0), int)):
        with refused(ValueError, words=True):
            ad.logits(model, ids)


@check()
def gp8_untrained_is_as_good_as_a_guess(ad: Any) -> None:
    model, ids = ad.make(vocab=400, width=32, layers=2, heads=4, context=32), rng(1).integers(0, 400, (4, 32))
    must(abs(nats(ad.logits(model, ids)[:, :-1], ids[:, 1:]) - math.log(400)) < 0.1)


@check()
def gp9_rows_do_not_see_each_other(ad: Any) -> None:
    model, ids = made(ad), rng(3).integers(0, 23, (3, 9))
    must(np.allclose(ad.logits(model, ids)[1], ad.logits(model, ids[1:2])[0], atol=300 * ad.atol))


# --- learning ---------------------------------------------------------------------------------------------------------


@check("grad")
def gr1_every_gradient_is_a_slope(ad: Any) -> None:
    model, ids, r = made(ad), rng(1).integers(0, 23, (2, 10)), rng(9)
    loss, grads = ad.loss_and_grads(model, ids[:, :-1], ids[:, 1:])
    p = ad.params(model)

    def at(q: dict[str, Array]) -> float:
        return float(np.mean([nats(expected_logits(q, row[:-1], 3, 4, ad.gelu_kind), row[1:]) for row in ids]))

    must(set(grads) == set(p))
    dead = [role for role, g in grads.items() if np.abs(g).max() <= 1e-10 and not role.endswith("attn.k.b")]
    must(not dead)  # softmax cancels a key's bias
    must(abs(at(p) - loss) < 1e3 * ad.atol)
    for role, array in p.items():
        place = tuple(r.integers(0, n) for n in array.shape)
        ends = []
        for nudge in (1e-5, -1e-5):
            moved = array.copy()
            moved[place] += nudge
            ends.append(at(p | {role: moved}))
        must(abs((ends[0] - ends[1]) / 2e-5 - grads[role][place]) < max(2e-6, 2e3 * ad.atol), role)


@check("grad")
def gr2_the_loss_reported_is_the_loss(ad: Any) -> None:
    model, ids = made(ad), rng(2).integers(0, 23, (3, 12))
    loss, _ = ad.loss_and_grads(model, ids[:, :-1], ids[:, 1:])
    must(abs(loss - nats(ad.logits(model, ids[:, :-1]), ids[:, 1:])) < 1e-3)


SNIPPETS = (
    "def add(a, b):\n    return a + b",
    "for i in range(9):\n    print(i)",
    "if x > 0:\n    say('yes')",
    "n = [1, 2, 3, 4]",
    "while True:\n    break",
)


@check("train")
def tr1_it_learns_five_snippets_by_heart(ad: Any) -> None:
    characters = sorted({"\0", *"".join(SNIPPETS)})
    data = np.array([[characters.index(c) for c in text.ljust(48, "\0")] for text in SNIPPETS])
    model = ad.make(vocab=len(characters), width=32, layers=1, heads=4, context=48)
    history = ad.fit(model, data, steps=400, lr=3e-3, batch=5)
    must(np.isfinite(history).all())
    must(np.mean(history[-20:]) < 0.2 * history[0])
    must(nats(ad.logits(model, data[:, :-1]), data[:, 1:]) < 1.0)


@check("train")
def tr2_it_learns_to_copy_from_three_back(ad: Any) -> None:
    """No bigram can, and no average: guessing costs ln 12."""

    def copies(n: int, seed: int) -> Array:
        return np.tile(rng(seed).integers(0, 12, (n, 3)), 6)

    model, new = ad.make(vocab=12, width=32, layers=2, heads=4, context=18), copies(64, 2)
    ad.fit(model, copies(512, 1), steps=400, lr=3e-3, batch=32)
    must(nats(ad.logits(model, new[:, :-1])[:, 5:], new[:, 6:]) < 0.5 < math.log(12))


# --- generation -------------------------------------------------------------------------------------------------------


@check()
def gn1_temperature_0_takes_the_best_and_keeps_the_prompt(ad: Any) -> None:
    model = made(ad)
    out, _ = ad.generate(model, np.array([[3, 1, 4]]), 5, temperature=0, seed=0, cache=False)
    must(out.shape == (1, 8))
    must(out[0, :3].tolist() == [3, 1, 4])
    must(all(out[0, t] == ad.logits(model, out[:, :t])[0, -1].argmax() for t in range(3, 8)))


@check()
def gn2_a_temperature_that_means_nothing_is_refused(ad: Any) -> None:
    for temperature in (-1.0, math.nan, math.inf):
        with refused(ValueError):
            ad.generate(ad.make(**SHAPE), np.array([[1]]), 2, temperature=temperature, seed=0, cache=False)


@check()
def gn3_chances_are_softmax_of_scores_over_temperature(ad: Any) -> None:
    known = {1.0: [0.66524, 0.24473, 0.09003], 0.5: [0.86681, 0.11731, 0.01588], 2.0: [0.50648, 0.30720, 0.18632]}
    for temperature, want in known.items():
        must(np.allclose(ad.probs(np.array([2.0, 1, 0]), temperature), want, atol=1e-5))
    must(np.allclose(ad.probs(np.array([2.0, 1, 0]), 1e-30), [1, 0, 0]))
    must(np.allclose(ad.probs(np.array([1e4, 0.0]), 1.0), [1, 0]))


@check()
def gn4_what_cannot_be_is_refused(ad: Any) -> None:
    for prompt, n in ((np.zeros((1, 0), int), 1), (np.array([[1]]), -1), (np.zeros((1, 30), int), 3)):
        with refused(ValueError):
            ad.generate(ad.make(**SHAPE), prompt, n, temperature=0, seed=0, cache=False)


@check("batch_generate")
def gn5_each_row_goes_its_own_way(ad: Any) -> None:
    model, prompts = made(ad), np.array([[1, 2], [9, 4], [0, 7]])
    for cache in (False, True):
        together, _ = ad.generate(model, prompts, 6, temperature=0, seed=0, cache=cache)
        for row, prompt in zip(together, prompts, strict=True):
            must(np.array_equal(row, ad.generate(model, prompt[None], 6, temperature=0, seed=0, cache=cache)[0][0]))


@check()
def gn6_a_seed_repeats_and_no_new_tokens_are_the_prompt(ad: Any) -> None:
    model, prompt = ad.make(**SHAPE), np.array([[5, 6]])
    one, two, other = (ad.generate(model, prompt, 8, temperature=1.0, seed=n, cache=False)[0] for n in (4, 4, 5))
    must(np.array_equal(one, two))
    must(not np.array_equal(one, other))
    must(np.array_equal(ad.generate(model, prompt, 0, temperature=1.0, seed=4, cache=False)[0], prompt))


@check("kv")
def kv1_the_text_is_the_same_with_and_without_a_cache(ad: Any) -> None:
    """Request after request, and at a temperature where a small error changes the text."""
    model = made(ad, scale=0.25)
    for temperature, prompt in ((0, [3, 1, 4, 1, 5, 9, 2, 6]), (2.0, [3, 1, 4]), (2.0, [7, 7, 0, 2]), (2.0, [3, 1, 4])):
        plain, cached = (
            ad.generate(model, np.array([prompt]), 16, temperature=temperature, seed=8, cache=cache)[0]
            for cache in (False, True)
        )
        must(np.array_equal(plain, cached), (temperature, prompt))


@check("kv")
def kv2_token_by_token_gives_the_logits_of_one_pass(ad: Any) -> None:
    model, ids = made(ad), rng(1).integers(0, 23, 9)
    must(np.abs(ad.stepwise_logits(model, ids) - ad.logits(model, ids[None])[0]).max() < 300 * ad.atol)


@check("kv", "counts")
def kv3_positions_that_pass_through_the_layers(ad: Any) -> None:
    for n_prompt, n_new, full, cached in ((8, 16, 248, 23), (2, 4, 14, 5)):
        model, prompt = ad.make(**SHAPE), np.zeros((1, n_prompt), int)
        for cache, want in ((False, full), (True, cached)):
            must(ad.generate(model, prompt, n_new, temperature=0, seed=0, cache=cache)[1] == want)


@check("kv")
def kv4_the_last_place_can_be_used_and_no_other(ad: Any) -> None:
    model, prompt = ad.make(**SHAPE), np.zeros((1, 30), int)
    must(ad.generate(model, prompt, 2, temperature=0, seed=0, cache=True)[0].shape == (1, 32))
    with refused(ValueError):
        ad.generate(model, prompt, 3, temperature=0, seed=0, cache=True)


BYTES = {
    (1, 64, 2, 4, 16, 4): 65_536,
    (1, 128, 4, 8, 32, 4): 1_048_576,
    (2, 256, 6, 12, 64, 4): 18_874_368,
    (1, 2048, 96, 96, 128, 2): 9_663_676_416,
}


@check("kv_bytes")
def kv5_bytes_of_a_cache(ad: Any) -> None:
    names = ("batch", "tokens", "layers", "kv_heads", "head", "bytes_per")
    for sizes, want in BYTES.items():
        must(ad.kv_bytes(**dict(zip(names, sizes, strict=True))) == want)
    must(all(a < b for a, b in pairwise(BYTES.values())))

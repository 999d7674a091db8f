"""Every number that the first documents assert comes out of the product, or stands in a named group that waits."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plainformer import conventions, formulas, generation, kernels, reference
from plainformer import model as m
from plainformer import spec as s
from plainformer.conventions import count, pad_vocabulary, untie, with_lora, without_biases
from plainformer.cost import Cost, rules
from plainformer.cost.cache import Cache
from plainformer.cost.flops import Work, flops, scores_and_mix
from plainformer.families import decoders
from plainformer.families.parts import feed_forward
from plainformer.initial import initial, lesson
from plainformer.ledger import Ledger, weights
from plainformer.measuring import untrained
from plainformer.model import Transformer
from plainformer.presets import presets
from plainformer.reference import Weights
from plainformer.tree import walk
from seed_numbers import EXPECTED

HERE: dict[str, Callable[[], Any]] = {}  # name -> what the product says
WAITS = {
    "recomputed activations, measured": ("checkpoint_saving",),
    "GPT-2's own merges, which are not here": ("gpt2_bpe_hello_world",),
    "said of a document or a model card, nothing here can say it": ("docs_blocks", "llama3_deepseek_facts"),
}


def both(ours: Any, torchs: Any) -> Any:
    """The reference's number, after the model has said the same."""
    assert np.allclose(ours, torchs.detach().numpy(), rtol=0, atol=1e-12)
    return ours


def first(part: object, kind: type) -> Any:
    return next(inner for _, inner in walk(part) if isinstance(inner, kind))


def total(part: object) -> int:
    return Ledger.of(part).total if isinstance(part, s.Spec) else sum(w.count for w in weights(part))


def parts_of(spec: s.Spec) -> list[int]:
    kinds = Ledger.of(spec).by_kind
    return [kinds["embedding"] + kinds["position"], kinds["attention"], kinds["feed_forward"], kinds["norm"]]


# --- activation and norms ---------------------------------------------------------------------------------------------

X1234 = [1.0, 2, 3, 4]
for tag, x in {
    "m3": -3.0,
    "m2": -2.0,
    "m1": -1.0,
    "m0_5": -0.5,
    "0": 0.0,
    "0_5": 0.5,
    "1": 1.0,
    "2": 2.0,
    "3": 3.0,
    "10": 10.0,
}.items():
    at = torch.tensor(x).double()
    HERE[f"gelu_exact_{tag}"] = lambda x=x, at=at: both(formulas.gelu(x), kernels.ACTIVATIONS["gelu"](at))
    HERE[f"gelu_tanh_{tag}"] = lambda x=x, at=at: both(formulas.gelu_tanh(x), kernels.gelu_tanh(at))


def norm(rows: Any, kind: str = "layer", eps: float = 1e-5) -> np.ndarray:
    """By the reference's formula, its rule for the part, and the model's module."""
    x, part = np.array(rows, float), s.Norm(kind=kind, width=4, eps=eps, gain=False)
    formula = {"layer": formulas.layer_norm, "rms": formulas.rms_norm}[kind](x, eps=eps)
    assert np.array_equal(formula, reference.run(part, Weights({}), x, reference.Where(np.arange(1))))
    return both(formula, m.build(part)(torch.tensor(x)))


HERE |= {
    "gelu_forms_max_gap": lambda: np.abs(formulas.gelu(grid()) - formulas.gelu_tanh(grid())).max(),
    "gelu_exact_minimum": lambda: formulas.gelu(grid()).min(),
    "tanh_0_8": lambda: 2 * formulas.silu(np.array(2 * 0.8)) / (2 * 0.8) - 1,  # silu x = x (1 + tanh(x / 2)) / 2
    "gelu_1_steps": lambda: gelu_steps(1.0),
    "ln_1234_stats": lambda: [np.mean(X1234), np.var(X1234), np.std(X1234)],
    "ln_1234": lambda: norm(X1234),
    "ln_scale_by_100_gap": lambda: np.abs(norm(np.multiply(X1234, 100)) - norm(X1234)).max(),
    "ln_10_0_10_0": lambda: norm([[10, 0, 10, 0], X1234])[0],
    "rms_1234": lambda: norm(X1234, "rms"),
    "ln_1236": lambda: norm([1, 2, 3, 6], eps=0.0),
    "ln_variance_with_eps": lambda: norm(X1234).var(),
}


def grid() -> np.ndarray:
    return np.linspace(-6, 6, 24001)


def gelu_steps(x: float) -> list[float]:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    assert math.isclose(float(formulas.gelu_tanh(x)), x * (1 + math.tanh(inner)) / 2, abs_tol=1e-15)
    return [math.sqrt(2 / math.pi), 1 + 0.044715, inner, math.tanh(inner)]


# --- attention --------------------------------------------------------------------------------------------------------

Q3, K3, V3 = (
    np.array([[1.0, 0], [0, 1], [1, 1]]),
    np.array([[1.0, 0], [0, 2], [1, 1]]),
    np.array([[1.0, 0], [0, 1], [1, 1]]),
)


def attend(q: Any, k: Any, v: Any, causal: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """(output, weights) of one head, the reference's after the model and its fused kernel have said the same."""
    q, k, v = (np.asarray(y, float)[None] for y in (q, k, v))
    see, scale = np.ones((q.shape[1], k.shape[1]), bool), q.shape[-1] ** -0.5
    see = np.tril(see) if causal else see
    out, weights = formulas.attention(q, k, v, see, scale)
    heads = [torch.tensor(y)[None] for y in (q, k, v)]
    both(out, kernels.fused_attention(*heads, torch.tensor(see), False, scale)[0])
    twin = kernels.attention(*heads, torch.tensor(see), scale)
    return both(out, twin[0][0])[0], both(weights, twin[1][0])[0]


def raw(scale: float) -> np.ndarray:
    return formulas.scaled_scores(Q3[None], K3[None], scale)[0]


def figure_of_masks() -> list[bool]:
    q, k, v = np.random.default_rng(0).normal(size=(3, 6, 4))
    encoder, decoder = (attend(q, k, v, causal)[1] for causal in (False, True))
    return [bool(np.array_equal(*rows)) for rows in zip(encoder, decoder, strict=True)]


def dog_bites_man() -> np.ndarray:
    dog, bites, man = [1.0, 0], [0.0, 1], [1.0, 1]
    there, back = (attend(x, x, x, causal=False)[0] for x in ([dog, bites, man], [man, bites, dog]))
    assert np.allclose(there[0], back[2], atol=1e-15)
    return there[0]


def unscaled_spread() -> float:
    q, k = np.random.default_rng(0).normal(size=(2, 1, 400, 64))
    return float(formulas.scaled_scores(q, k, 1.0).std())


def order_without_positions() -> list[str]:
    """How far swapping the first two tokens moves the last logits, with one layer and with two."""
    spec = decoders.gpt2(vocab_size=9, max_seq_len=8, d_model=16, n_layers=2, n_heads=2)
    one = spec.decoder.layers[:1]
    gaps = []
    for layers in (one, spec.decoder.layers):
        bare = replace(spec, decoder=replace(spec.decoder, positions=None, layers=layers))
        rng = np.random.default_rng(0)
        arrays = {name: rng.normal(0, 0.5, a.shape) for name, a in initial(bare).items()}
        said = [reference.logits(bare, arrays, tokens)[-1] for tokens in ([1, 2, 3, 4], [2, 1, 3, 4])]
        gaps.append(np.abs(said[0] - said[1]).max())
    return ["< 1e-12" if gaps[0] < 1e-12 else str(gaps[0]), "> 1e-3" if gaps[1] > 1e-3 else str(gaps[1])]


HERE |= {
    "attn3_raw": lambda: raw(1.0),
    "attn3_scaled": lambda: raw(2**-0.5),
    "attn3_weights": lambda: attend(Q3, K3, V3)[1],
    "attn3_outputs": lambda: attend(Q3, K3, V3)[0],
    "attn3_unmasked_row1": lambda: attend(Q3, K3, V3, causal=False)[1][0],
    "attn3_softmax_parts": lambda: [
        np.exp(z := raw(2**-0.5)[2])[0],
        np.exp(z)[1],
        np.exp(z).sum(),
    ],
    "scores_std_unscaled_64": unscaled_spread,
    "attention_pairs_3_tokens": lambda: [int((attend(Q3, K3, V3, causal)[1] > 0).sum()) for causal in (False, True)],
    "mask_figure_rows_equal": figure_of_masks,
    "decoder_first_weight": lambda: attend(Q3, K3, V3)[1][0, 0],
    "dog_bites_man": dog_bites_man,
    "nope_last_position_gap": order_without_positions,
    "residual_example": lambda: np.add.reduce([[1, 2], [0.1, -0.3], [-0.2, 0.4]]),
    "tied_head_example": lambda: tied_head([1.0, -1], [[1.0, 0], [0, 1], [-1, 1]]),
}


def tied_head(h: Any, table: Any) -> np.ndarray:
    head = s.Head(linear=s.Linear(n_in=2, n_out=3), tied=True)
    held = Weights({"embedding.weight": np.array(table)}, "head")
    ours = reference.run(head, held, np.array([h]), reference.Where(np.arange(1)))
    return both(ours, m.build(head)(torch.tensor([h]).double(), torch.tensor(table).double()))[0]


# --- counting ---------------------------------------------------------------------------------------------------------

GPT2_NAMES = {"small": "gpt2", "medium": "gpt2-medium", "large": "gpt2-large", "xl": "gpt2-xl"}
for tag, preset in GPT2_NAMES.items():
    HERE[f"gpt2_{tag}_openai"] = lambda preset=preset: total(presets[preset])
    HERE[f"gpt2_{tag}_parts_openai"] = lambda preset=preset: parts_of(presets[preset])
OTHER_SIZES = {"124M": (12, 768, 12), "354M": (24, 1024, 16), "458M": (20, 1280, 20), "773M": (36, 1280, 20)}
OTHER_SIZES |= {"849M": (25, 1600, 25)}


def shape(n_layers: int, d_model: int, n_heads: int = 1) -> s.Spec:
    return decoders.gpt2(
        vocab_size=50257, max_seq_len=1024, n_layers=n_layers, d_model=d_model, n_heads=n_heads, activation="gelu"
    )


for tag, sizes in OTHER_SIZES.items():
    HERE[f"size_{tag}"] = lambda sizes=sizes: count(shape(*sizes), "nanogpt").total
    HERE[f"size_{tag}_bias_free"] = lambda sizes=sizes: count(shape(*sizes), "bias-free").total

FIG3 = ("4x32", "4x64", "4x128", "8x256", "8x384", "8x512", "10x640", "12x768")
FIG3_X = [1895722, 3688527, 7569052, 19676969, 34133447, 51735630, 82340777, 124753293]  # read off the figure


def fig3(by: str) -> np.ndarray:
    return np.array([count(presets[f"fig3-{name}"], by).total for name in FIG3])


def small(prefix: str, layer: str = "decoder.layers.0.") -> int:
    """Weights of GPT-2 small as nanoGPT counts, by where their names begin."""
    kept = count(presets["gpt2"], "nanogpt").kept
    return sum(row.count for row in kept if row.name.startswith(layer + prefix))


def lora(spec: s.Spec) -> int:
    return Ledger.of(with_lora(spec, rank=4)).by_kind["lora"]


def smallest() -> list[int]:
    """Of Figure 3's smallest: base, positions, merged bias, LoRA on q and v, LoRA on the head, all."""
    counted = count(presets["fig3-4x32"], "authors")
    of = [
        sum(row.count for row in counted.kept if test(row))
        for test in (
            lambda row: row.kind not in ("lora", "position") and not row.name.endswith("bias"),
            lambda row: row.kind == "position",
            lambda row: row.name.endswith("bias"),
            lambda row: row.kind == "lora" and "attention" in row.name,
            lambda row: row.kind == "lora" and "head" in row.name,
        )
    ]
    assert sum(of) == counted.total
    return [*of, counted.total]


def shares() -> list[float]:
    all_shapes = [presets[f"fig3-{name}"] for name in FIG3]
    all_shapes += [shape(*OTHER_SIZES[tag]) for tag in ("354M", "458M", "773M", "849M")]
    counts = [count(spec, "nanogpt") for spec in all_shapes]
    return [100 * next(row.count for row in c.kept if row.name == "embedding.weight") / c.total for c in counts]


def gpt2_of(name: str, *kinds: str) -> float:
    ledger = Ledger.of(presets[name])
    return sum(ledger.by_kind[kind] for kind in kinds) / ledger.total


MOE = s.Experts(
    router=s.ChosenSoftmaxRouter(scores=s.Linear(n_in=16, n_out=8), n_chosen=2),
    expert=feed_forward(16, 64, "gelu_tanh", bias=True),
    n_experts=8,
)


def moe_load() -> np.ndarray:
    x, w = np.random.default_rng(1).standard_normal((256, 16)), Weights(dict(lesson(MOE, 0)), "router")
    return (reference.run(MOE.router, w, x, reference.Where(np.arange(256))) > 0).sum(0)


def gates() -> np.ndarray:
    router = m.build(s.ChosenSoftmaxRouter(scores=s.Linear(n_in=4, n_out=4), n_chosen=2)).double()
    scores = [[2.0, 1, 0.5, -1]]
    with torch.no_grad():
        router.scores.weight.copy_(torch.eye(4))
        return both(formulas.top_k_gates(scores, 2), router(torch.tensor(scores).double())[2])[0]


def balance(scores: Any, n_chosen: int) -> float:
    x = torch.tensor(np.array(scores, float))
    return float(both(formulas.balance_loss(scores, n_chosen), kernels.balance_loss(x, kernels.choose(x, n_chosen))))


def attention_of(spec: s.Spec) -> s.Attention:
    return first(spec, s.Attention)


def untied(spec: s.Spec) -> s.Spec:
    return untie(pad_vocabulary(spec))


GPT2, PADDED = presets["gpt2"], pad_vocabulary(presets["gpt2"])
HERE |= {
    "gpt2_small_no_attn_bias": lambda: count(GPT2, "lesson").total,
    "gpt2_small_attn_bias_gap": lambda: total(GPT2) - count(GPT2, "lesson").total,
    "rule_of_thumb_small": lambda: conventions.rule_of_thumb(12, 768, 50257),
    "rule_of_thumb_gap": lambda: 1 - conventions.rule_of_thumb(12, 768, 50257) / total(GPT2),
    "embedding_share_small_xl": lambda: [gpt2_of(name, "embedding", "position") for name in ("gpt2", "gpt2-xl")],
    "token_table_share_small": lambda: gpt2_of("gpt2", "embedding"),
    "ffn_share_small_xl": lambda: [gpt2_of(name, "feed_forward") for name in ("gpt2", "gpt2-xl")],
    "ffn_beats_embeddings_when": lambda: parts_of(GPT2)[0] / 768 / 8,
    "block_width_32": lambda: sum(map(total, presets["lesson"].decoder.layers[0])),
    "tiny_gpt": lambda: total(presets["lesson"]),
    "ffn_width_8": lambda: total(feed_forward(8, 32, "gelu_tanh", bias=True)),
    "body_32x4096": lambda: conventions.rule_of_thumb(32, 4096, 0),
    "moe_gates": gates,
    "moe_expert": lambda: total(MOE.expert),
    "moe_total": lambda: total(MOE),
    "moe_active": lambda: sum(w.active for w in weights(MOE)),
    "moe_load": moe_load,
    "balance_even": lambda: balance(10 * np.eye(4), 1),
    "balance_collapsed": lambda: balance([[10, 0, 0, 0]] * 4, 1),
    "balance_below_one": lambda: balance(np.log([[0.9, 0.1], [0.45, 0.55], [0.45, 0.55]]), 1),
    "balance_max_topk": lambda: balance([[30, 15, *[0] * 6]] * 8, 2),
    "llama3_8b_ffn_ratio": lambda: first(presets["llama-3-8b"], s.FeedForward).up.n_out / presets["llama-3-8b"].d_model,
    "llama3_8b_params": lambda: total(presets["llama-3-8b"]),
    "llama3_70b_params": lambda: total(presets["llama-3-70b"]),
    "llama31_405b_params": lambda: total(presets["llama-3.1-405b"]),
    "mixtral_8x7b_params": lambda: total(presets["mixtral-8x7b"]),
    "mixtral_8x7b_active": lambda: Ledger.of(presets["mixtral-8x7b"]).active,
    "tt_gpt2_scale_untied": lambda: count(GPT2, "untied").total,
    "tt_tiny_untied": lambda: total(
        decoders.gpt2(vocab_size=100, max_seq_len=1024, d_model=64, n_layers=2, n_heads=4, tied=False)
    ),
    "gpt3_exact": lambda: total(presets["gpt3"]),
    "gpt3_embedding": lambda: [
        total(replace(presets["gpt3"].embedding.table, n_rows=n)) for n in (50000, presets["gpt3"].vocab_size)
    ],
    "gpt3_attn_mlp_per_layer": lambda: gpt3_matrices(),
    "gpt3_12Ld2": lambda: conventions.rule_of_thumb(96, 12288, 0),
    "nanogpt_sizing_total": lambda: total(without_biases(GPT2)),
    "small_token_embedding": lambda: small("embedding.weight", ""),
    "small_ln": lambda: small("attention_norm."),
    "small_c_attn": lambda: sum(small(f"attention.{name}.") for name in "qkv"),
    "small_attn_out": lambda: small("attention.out."),
    "small_mlp_up": lambda: small("feed_forward.up."),
    "small_mlp_down": lambda: small("feed_forward.down."),
    "small_block": lambda: small(""),
    "small_12_blocks": lambda: small("decoder.layers.", ""),
    "small_nanogpt": lambda: count(GPT2, "nanogpt").total,
    "small_positions": lambda: sum(row.count for row in count(GPT2, "nanogpt").left_out),
    "padding": lambda: [PADDED.vocab_size - GPT2.vocab_size, total(PADDED) - total(GPT2)],
    "head_dim": lambda: attention_of(GPT2).d_head,
    "untie_extra": lambda: total(untied(GPT2)) - total(PADDED),
    "small_shares_pct": lambda: [
        100 * n / count(GPT2, "nanogpt").total for n in (PADDED.vocab_size * 768, *parts_of(PADDED)[1:])
    ],
    "small_share_counts": lambda: parts_of(PADDED)[1:],
    "lora_small_padded": lambda: lora(PADDED),
    "lora_small_true_vocab": lambda: lora(GPT2),
    "lora_gap": lambda: lora(PADDED) - lora(GPT2),
    "lora_share_pct": lambda: 100 * lora(PADDED) / count(GPT2, "nanogpt").total,
    "wq_wv_one_layer": lambda: sum(
        math.prod((part.n_out, part.n_in)) for part in (attention_of(GPT2).q, attention_of(GPT2).v)
    ),
    "candidates_458M": lambda: sorted(conventions.candidates(458, shape), key=lambda found: -found[0]),
    "candidates_849M": lambda: sorted(conventions.candidates(849, shape), key=lambda found: -found[0]),
    "true_shapes_458M_849M": lambda: [
        [len(spec.decoder.layers), attention_of(spec).n_heads, spec.d_model]
        for spec in (presets["paper-20x1280"], presets["paper-25x1600"])
    ],
    "openai_millions": lambda: [round(total(presets[name]) / 1e6, 1) for name in GPT2_NAMES.values()],
    "fig3_shapes": lambda: [
        [len(spec.decoder.layers), attention_of(spec).n_heads, spec.d_model]
        for spec in (presets[f"fig3-{name}"] for name in FIG3)
    ],
    "fig3_x": lambda: FIG3_X,
    "fig3_nanogpt": lambda: fig3("nanogpt"),
    "fig3_millions": lambda: np.round(fig3("nanogpt") / 1e6, 2),
    "fig3_biased_pos_lora": lambda: fig3("lora"),
    "fig3_biased_diff_pct": lambda: 100 * (FIG3_X / fig3("lora") - 1),
    "fig3_authors": lambda: fig3("authors"),
    "fig3_authors_ppm": lambda: 1e6 * (FIG3_X / fig3("authors") - 1),
    "fig3_released_default": lambda: fig3("authors-released"),
    "fig3_released_default_ppm": lambda: 1e6 * (FIG3_X / fig3("authors-released") - 1),
    "fig3_smallest_parts": smallest,
    "fig3_naive_mismatch_pct": lambda: 100 * (FIG3_X[0] / fig3("nanogpt")[0] - 1),
    "fig3_worst": lambda: [
        100 * np.abs(FIG3_X / fig3("lora") - 1).max(),
        1e6 * np.abs(FIG3_X / fig3("authors") - 1).max(),
    ],
    "embedding_shares_pct": shares,
    "tiny_4x32": lambda: [count(presets["fig3-4x32"], "nanogpt").total, total(pad_vocabulary(presets["fig3-4x32"]))],
}


def gpt3_matrices() -> list[int]:
    spec = without_biases(presets["gpt3"])
    parts = [total(attention_of(spec)), total(first(spec, s.FeedForward))]
    return [*parts, sum(parts)]


# --- cost -------------------------------------------------------------------------------------------------------------

GPT3 = presets["gpt3"]
WORK = Work(1, 2048, 2048)


def matrix(batch_size: int, n_heads: int, seq_len: int) -> int:
    return rules.n_bytes(rules.score_elements(batch_size, n_heads, seq_len), "float32")


def work_of(spec: s.Spec, work: Work) -> list[int]:
    """Of one layer: projections of attention, scores and mix, feed-forward."""
    part = attention_of(spec)
    mixed = scores_and_mix(work, part.n_heads, part.d_head, part.d_head)
    return [flops(part, work) - mixed, mixed, flops(first(spec, s.FeedForward), work)]


def crossovers() -> list[float]:
    """Contexts, in widths: scores and mix = feed-forward, all attention = feed-forward, scores and mix = the rest."""
    projections, mixed, second = work_of(GPT3, Work(1, 1, 1))
    return [n / mixed / GPT3.d_model for n in (second, second - projections, second + projections)]


def forward_of_small() -> list[int]:
    each = [12 * n for n in work_of(GPT2, Work(1, 1024, 1024))]
    head = flops(GPT2.head, Work(1, 1024, 1024))
    whole = Cost.of(GPT2, seq_len=1024).forward_flops
    assert sum(each) + head == whole
    return [*each, head, whole]


def training(parameters: float, tokens: float) -> float:
    return rules.training_flops(parameters, tokens)


HERE |= {
    "infer_flops_7b": lambda: rules.inference_flops_per_token(7 * 10**9),
    "train_flops_70b_1t": lambda: training(70e9, 1e12),
    "train_flops_gpt3": lambda: training(175e9, 300e9),
    "train_flops_7b_2t": lambda: training(7e9, 2e12),
    "train_flops_7b_140b": lambda: training(7e9, 140e9),
    "train_flops_405b": lambda: training(405e9, 15.6e12),
    "gpu_hours_7b_140b": lambda: rules.device_hours(training(7e9, 140e9), 4e14),
    "chinchilla_7b": lambda: 20 * 7e9,
    "weights_70b": lambda: [rules.n_bytes(70 * 10**9, dtype) / 1e9 for dtype in ("bfloat16", "int4")],
    "mixtral_bf16_gb": lambda: Cost.of(presets["mixtral-8x7b"]).weights_bytes() / 1e9,
    "gpt3_fp16_gb": lambda: rules.n_bytes(175 * 10**9, "float16") / 1e9,
    "llama3_8b_kv_per_token": lambda: Cost.of(presets["llama-3-8b"]).cache_bytes_per_token,
    "token_pairs_2048": lambda: [rules.score_elements(1, 1, 2048), sum(range(1, 2049))],
    "attn_matrix_1024": lambda: [rules.score_elements(4, 8, 1024), matrix(4, 8, 1024), matrix(4, 8, 1024) / 2**20],
    "attn_matrix_4096": lambda: [
        matrix(4, 8, 4096),
        matrix(4, 8, 4096) / 2**30,
        matrix(4, 8, 4096) / matrix(4, 8, 1024),
    ],
    "attn_matrix_gpt3": lambda: [rules.score_elements(4, 96, 2048), matrix(4, 96, 2048), matrix(4, 96, 2048) / 2**30],
    "gpt3_training_state_tb": lambda: rules.ADAMW * 175e9 / 1e12,
    "flops_attn_scores_mix": lambda: work_of(GPT3, WORK)[1],
    "flops_qkvo": lambda: work_of(GPT3, WORK)[0],
    "flops_mlp": lambda: work_of(GPT3, WORK)[2],
    "attention_mlp_crossover_over_d": crossovers,
    "layer_evals_100x96": lambda: 100 * len(GPT3.decoder.layers),
    "token_layer_work_P1_N100": lambda: [96 * rules.positions_computed(1, 100, cached) for cached in (False, True)],
    "positions_P50_N100": lambda: [rules.positions_computed(50, 100, cached) for cached in (False, True)],
    "positions_P8_N16": lambda: [positions_measured(8, 16, cached) for cached in (False, True)],
    "kv_elements_gpt3": lambda: Cache.of(GPT3).numbers(2048),
    "kv_bytes_gpt3_fp16": lambda: [Cost.of(GPT3).cache_bytes, Cost.of(GPT3).cache_bytes_per_token],
    "activation_bytes_gpt3": lambda: [Cost.of(GPT3).activation_bytes(recompute) for recompute in (False, True)],
    "gpt2s_forward_flops": forward_of_small,
    "gpt2s_forward_over_2N": lambda: Cost.of(GPT2).forward_flops / (Cost.of(GPT2).rule_2n * 1024),
    "half_to_the_12": lambda: 0.5**12,
    "tenth_to_the_12": lambda: 0.1**12,
    "swiglu_hidden_over_d": lambda: 8 / 3,
    "kaplan_10x_params": lambda: 10**-0.076,
    "checkpoint_time_ceiling": lambda: Cost.of(GPT2).forward_flops_per_token / Cost.of(GPT2).training_flops_per_token,
}


def positions_measured(n_prompt: int, n_new: int, cached: bool) -> int:
    model = Transformer(presets.trainable("tiny", vocab_size=9))
    done = generation.generate(model, [[1] * n_prompt], n_new, cached=cached).n_positions
    assert done == rules.positions_computed(n_prompt, n_new, cached)
    return done


# --- whole models -----------------------------------------------------------------------------------------------------


def seeded_lesson() -> list[float]:
    spec, tokens = presets["lesson"], [3, 1, 4, 1, 5]
    arrays = initial(spec, "lesson", 0)
    model = Transformer(spec, initial="lesson", seed=0).double()
    model.take(arrays.items())
    said = both(reference.logits(spec, arrays, tokens), model(torch.tensor([tokens]))[0])
    return [said[0, 0], said[4, 49], said.sum(), said.std()]


def course(vocab_size: int, max_seq_len: int = 1024) -> s.Spec:
    return decoders.gpt2(vocab_size=vocab_size, max_seq_len=max_seq_len, d_model=64, n_layers=2, n_heads=4, tied=False)


def logits_on_meta(spec: s.Spec, *of: int) -> list[int]:
    with torch.device("meta"):
        return list(Transformer(spec)(torch.zeros(of, dtype=torch.long)).shape)


def ffn_shape(*of: int) -> list[int]:
    part = feed_forward(64, 256, "gelu", bias=True)
    arrays = {w.name: np.ones(w.shape) for w in weights(part)}
    return list(reference.run(part, Weights(arrays), np.ones(of), reference.Where(np.arange(1))).shape)


HERE |= {
    "tiny_gpt_logits_shape": lambda: (
        reference.logits(presets["lesson"], initial(presets["lesson"], "lesson"), [3, 1, 4, 1, 5]).shape
    ),
    "tiny_gpt_seeded_logits": seeded_lesson,
    "tt_mlp_shape": lambda: ffn_shape(2, 10, 64),
    "tt_forward_shape": lambda: Transformer(course(100))(torch.zeros(2, 8, dtype=torch.long)).shape,
    "tt_generate_shape": lambda: np.shape(generation.generate(Transformer(course(100)), [[1, 2, 3, 4, 5]], 3).tokens),
    "tt_forward_shape_large": lambda: logits_on_meta(course(50000), 4, 512),
    "temperature_probs_210": lambda: [formulas.probabilities([2.0, 1, 0], t) for t in (1.0, 0.5, 2.0)],
}


def explainer() -> dict[str, Any]:
    """The 4 x 32 model from torch's seed 0, its weights drawn in the order of the document's program."""
    said = untrained.said()
    assert abs(said["surprisal_bits"] - math.log2(50304)) < 0.2
    said["surprisal_bits"] = [said["surprisal_bits"], math.log2(50304), math.log2(50257)]
    return {f"tiny_4x32_{name}": value for name, value in said.items()}


@pytest.fixture(scope="module")
def of_the_explainer() -> dict[str, Any]:
    return explainer()


EXPLAINER = ("shapes", "row_sum_error", "causal", "surprisal_bits", "logit_spread")


def leak() -> str:
    """A correction on a tied head changes what the head says and never the table, in training and in use."""
    spec = with_lora(presets["fig3-4x32"], rank=4, targets=("head",))
    model = Transformer(spec)
    with torch.no_grad():
        model.head.lora_b.normal_(0, 0.02)
        tokens = torch.arange(5)[None]
        read = [model.train(mode).embedding(tokens).clone() for mode in (True, False)]
        said = [model.train(mode)(tokens) for mode in (True, False)]
        model.head.lora_b.zero_()
        assert (model(tokens) - said[1]).abs().max() > 1e-4
    assert torch.equal(*said)
    return f"> 0 in loralib; {(read[0] - read[1]).abs().max().item():g} in ours"


HERE["lora_tied_eval_leak"] = leak


# --- the tests --------------------------------------------------------------------------------------------------------


def as_lists(said: Any) -> Any:
    said = said.tolist() if isinstance(said, np.ndarray | np.generic) else said
    return [as_lists(one) for one in said] if isinstance(said, list | tuple) else said


def agree(name: str, said: Any) -> None:
    expected, tolerance = EXPECTED[name]
    if tolerance == {"abs": 0} and isinstance(expected, str | list):
        assert as_lists(said) == expected
        return
    got, want = np.asarray(said, float), np.asarray(expected, float)
    assert got.shape == want.shape
    limit = tolerance["rel"] * np.abs(want) if "rel" in tolerance else tolerance["abs"]
    assert (np.abs(got - want) <= limit).all(), f"{name}: {said} instead of {expected}"


@pytest.mark.parametrize("name", HERE)
def test_the_product_says_the_number(name: str) -> None:
    agree(name, HERE[name]())


@pytest.mark.parametrize("name", [f"tiny_4x32_{what}" for what in EXPLAINER])
def test_the_explainer_s_model_says_its_numbers(name: str, of_the_explainer: dict[str, Any]) -> None:
    agree(name, of_the_explainer[name])


def test_every_number_is_said_or_waits_in_a_named_group() -> None:
    said = [*HERE, *(f"tiny_4x32_{what}" for what in EXPLAINER)]
    waiting = [name for group in WAITS.values() for name in group]
    assert sorted(said + waiting) == sorted(EXPECTED)  # each once, none twice


def test_the_copy_is_the_shared_file(cases: Path) -> None:
    shared = json.loads((cases / "cases" / "seed_numbers.json").read_text(encoding="utf-8"))["numbers"]
    assert {name: (entry["expected"], entry["tolerance"]) for name, entry in shared.items()} == EXPECTED


@pytest.mark.parametrize("name", ["tiny_gpt", "attn3_weights", "lora_tied_eval_leak", "nope_last_position_gap"])
def test_another_number_would_be_noticed(name: str) -> None:
    expected = EXPECTED[name][0]
    wrong = (
        expected[:-1] + "x"
        if isinstance(expected, str)
        else np.add(expected, 1e-3)
        if name != "nope_last_position_gap"
        else ["no"]
    )
    with pytest.raises(AssertionError):
        agree(name, wrong)

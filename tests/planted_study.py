"""Mistakes planted into what the exercises ask beside the parts: who may see whom, counting, AdamW."""

from __future__ import annotations

from planted import PLANTS, Plant

TABLES = "tables = vocab_size * d_model + max_seq_len * d_model"
ATTENTION = "attention_weights = 4 * d_model**2 + 4 * d_model"
FED = "fed_weights = 2 * d_model * d_ff + d_ff + d_model"
SECOND = "v = beta2 * v + (1 - beta2) * grad**2"
SEE = "return causal_mask(n_queries, n_keys)"
SEEN = {
    "see-inverted": (SEE, "return ~causal_mask(n_queries, n_keys)"),
    "see-all": (SEE, "return causal_mask(n_queries, n_keys) | True"),
    "see-added": (SEE, "return np.where(causal_mask(n_queries, n_keys), 0.0, -np.inf)"),
}
COUNTS = {
    "count-head-again": (TABLES, "tables = 2 * vocab_size * d_model + max_seq_len * d_model"),
    "count-no-positions": (TABLES, "tables = vocab_size * d_model"),
    "count-no-attention-bias": (ATTENTION, "attention_weights = 4 * d_model**2"),
    "count-no-output-projection": (ATTENTION, "attention_weights = 3 * (d_model**2 + d_model)"),
    "count-no-feed-forward-bias": (FED, "fed_weights = 2 * d_model * d_ff"),
    "count-no-bias": (f"{ATTENTION}\n    {FED}", "attention_weights, fed_weights = 4 * d_model**2, 2 * d_model * d_ff"),
    "count-gains-alone": (
        "norm_weights = 2 * 2 * d_model\n    last_norm = 2 * d_model",
        "norm_weights, last_norm = 2 * d_model, d_model",
    ),
    "count-no-norms": (
        "norm_weights = 2 * 2 * d_model\n    last_norm = 2 * d_model",
        "norm_weights, last_norm = 0, 0",
    ),
    "count-no-last-norm": ("last_norm = 2 * d_model", "last_norm = 0"),
    "count-one-layer": ("return tables + n_layers * (", "return tables + ("),
}
UPDATES = {
    "adamw-l2": (
        f"m = beta1 * m + (1 - beta1) * grad\n    {SECOND}",
        f"grad = grad + weight_decay * w\n    weight_decay = 0\n    m = beta1 * m + (1 - beta1) * grad\n    {SECOND}",
    ),
    "adamw-no-decay": ("w = w * (1 - lr * weight_decay)", "pass"),
    "adamw-decay-without-lr": ("w = w * (1 - lr * weight_decay)", "w = w * (1 - weight_decay)"),
    "adamw-no-correction": ("m_hat = m / (1 - beta1**t)\n    v_hat = v / (1 - beta2**t)", "m_hat, v_hat = m, v"),
    "adamw-late": (
        "m_hat = m / (1 - beta1**t)\n    v_hat = v / (1 - beta2**t)",
        "t = t + 1\n    m_hat = m / (1 - beta1**t)\n    v_hat = v / (1 - beta2**t)",
    ),
    "adamw-eps-inside": ("step = m_hat / (np.sqrt(v_hat) + eps)", "step = m_hat / np.sqrt(v_hat + eps)"),
    "adamw-no-root": ("step = m_hat / (np.sqrt(v_hat) + eps)", "step = m_hat / (v_hat + eps)"),
    "adamw-not-squared": (SECOND, "v = beta2 * v + (1 - beta2) * abs(grad)"),
    "adamw-betas-swapped": ("m = beta1 * m + (1", "beta1, beta2 = beta2, beta1\n    m = beta1 * m + (1"),
    "adamw-ascent": ("return w - lr * step, m, v", "return w + lr * step, m, v"),
    "adamw-sum": ("m = beta1 * m + (1 - beta1) * grad", "m = beta1 * m + grad"),
}
for thing, group in (("may_see", SEEN), ("count_gpt_parameters", COUNTS), ("adamw_step", UPDATES)):
    PLANTS += [Plant(key, thing, "np", old, new) for key, (old, new) in group.items()]

LIKE_THE_FIELD = (  # key, thing, line, planted
    (
        "norm-along-first",
        "layer_norm",
        "mean = x.mean(axis=-1, keepdims=True)\n    centred = x - mean\n    variance = (centred**2).mean(axis=-1",
        "mean = x.mean(axis=0, keepdims=True)\n    centred = x - mean\n    variance = (centred**2).mean(axis=0",
    ),
    (
        "sample-top-p-not-renormalised",
        "probabilities",
        "best = best * (best.cumsum() - best < top_p)\n    best = best / best.sum()",
        "best = best * (best.cumsum() - best < top_p)",
    ),
    ("balance-softmax-twice", "balance_loss", "given = softmax(scores)", "given = softmax(softmax(scores))"),
    (
        "balance-given-of-chosen",
        "balance_loss",
        "given = softmax(scores).mean",
        "given = (softmax(scores) * chosen(scores, k)).mean",
    ),
    ("norm-spread-squared", "layer_norm", "centred / np.sqrt(variance + eps)", "centred / (variance + eps) ** 2"),
    (
        "sinusoids-base-and-exponent",
        "sinusoids",
        "frequencies = 10000.0 ** (-np.arange(0, width, 2) / width)",
        "frequencies = (np.arange(0, width, 2) / width) ** 1e-4",
    ),
    (
        "sinusoids-floored",
        "sinusoids",
        "frequencies = 10000.0 ** (-np.arange(0, width, 2) / width)",
        "frequencies = np.exp(np.arange(0, width, 2) * (-np.log(10000.0) / width // 2))",
    ),
    (
        "sinusoids-each-column",
        "sinusoids",
        "table[:, 0::2] = np.sin(angle)\n    table[:, 1::2] = np.cos(angle)",
        "angle = positions[:, None] * 10000.0 ** (-2 * np.arange(width) / width)\n"
        "    table[:, 0::2] = np.sin(angle)[:, 0::2]\n    table[:, 1::2] = np.cos(angle)[:, 1::2]",
    ),
)
PLANTS += [Plant(key, thing, "np", old, new) for key, thing, old, new in LIKE_THE_FIELD]

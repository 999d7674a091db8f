"""Correct functions in NumPy, written for the tests: each mistake of the catalogue is planted into them."""

import math

import numpy as np


def softmax(x, axis=-1):
    x = np.asarray(x)
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def layer_norm(x, gain, bias, eps=1e-5):
    mean = x.mean(axis=-1, keepdims=True)
    centred = x - mean
    variance = (centred**2).mean(axis=-1, keepdims=True)
    normed = centred / np.sqrt(variance + eps)
    return normed * gain + bias


def rms_norm(x, gain, eps=1e-6):
    square = (x**2).mean(axis=-1, keepdims=True)
    normed = x / np.sqrt(square + eps)
    return normed * gain


def gelu(x):
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(inner))


def causal_mask(n_queries, n_keys):
    return np.tril(np.ones((n_queries, n_keys), bool), n_keys - n_queries)


def attention(q, k, v, allowed=None, n_heads=1):
    d_head = q.shape[-1]
    scores = q @ k.swapaxes(-1, -2)
    scores = scores / np.sqrt(d_head)
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    weights = softmax(scores)
    return weights @ v


def split_heads(x, n_heads):
    return x.reshape(*x.shape[:-1], n_heads, -1).swapaxes(-2, -3)


def join_heads(x):
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


def repeat_heads(x, times):
    return np.repeat(x, times, axis=-3)


def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, b_q=0, b_k=0, b_v=0, b_o=0, n_kv_heads=None, causal=True):
    n_kv_heads = n_kv_heads or n_heads
    q = x @ w_q + b_q
    k = x @ w_k + b_k
    v = x @ w_v + b_v
    q, k, v = split_heads(q, n_heads), split_heads(k, n_kv_heads), split_heads(v, n_kv_heads)
    if n_kv_heads != n_heads:
        k, v = repeat_heads(k, n_heads // n_kv_heads), repeat_heads(v, n_heads // n_kv_heads)
    allowed = causal_mask(x.shape[-2], x.shape[-2]) if causal else None
    out = attention(q, k, v, allowed, n_heads)
    out = join_heads(out)
    return out @ w_o + b_o


def cached_attention(q, k, v, past_k, past_v):
    k = np.concatenate((past_k, k), axis=-2)
    v = np.concatenate((past_v, v), axis=-2)
    return attention(q, k, v, causal_mask(q.shape[-2], k.shape[-2]))


def rotary(x, start=0, theta=10000.0):
    n_tokens, width = x.shape[-2:]
    positions = start + np.arange(n_tokens)
    frequencies = theta ** (-np.arange(0, width, 2) / width)
    angle = positions[:, None] * frequencies
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = x[..., : width // 2], x[..., width // 2 :]
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)


def feed_forward(x, w_up, b_up, w_down, b_down):
    hidden = x @ w_up + b_up
    hidden = gelu(hidden)
    return hidden @ w_down + b_down


def silu(x):
    return x / (1 + np.exp(-np.clip(x, -700, 700)))


def swiglu(x, w_gate, w_up, w_down):
    return (silu(x @ w_gate) * (x @ w_up)) @ w_down


def embed(ids, token_table, position_table, start=0):
    positions = start + np.arange(ids.shape[-1])
    return token_table[ids] + position_table[positions]


def sinusoids(n_tokens, width):
    positions = np.arange(n_tokens)
    frequencies = 10000.0 ** (-np.arange(0, width, 2) / width)
    angle = positions[:, None] * frequencies
    table = np.zeros((n_tokens, width))
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle)
    return table


def log_softmax(x):
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def cross_entropy(logits, targets, ignore_index=None):
    log_p = log_softmax(logits)
    each = -np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]
    real = np.ones(targets.shape) if ignore_index is None else targets != ignore_index
    return (each * real).sum() / real.sum()


def next_token_loss(logits, tokens):
    logits, targets = logits[..., :-1, :], tokens[..., 1:]
    return cross_entropy(logits, targets)


def chosen(scores, k):
    best = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
    mask = np.zeros(scores.shape, bool)
    np.put_along_axis(mask, best, True, axis=-1)
    return mask


def top_k_gates(scores, k):
    mask = chosen(scores, k)
    return softmax(np.where(mask, scores, -np.inf))


def balance_loss(scores, k):
    share = chosen(scores, k).mean(axis=0) / k
    given = softmax(scores).mean(axis=0)
    return scores.shape[-1] * (share * given).sum()


def probabilities(logits, temperature=1.0, top_k=None, top_p=1.0):
    rows = np.atleast_2d(logits)
    return np.stack([row_probabilities(row, temperature, top_k, top_p) for row in rows]).reshape(logits.shape)


def row_probabilities(logits, temperature, top_k, top_p):
    p = softmax(logits / temperature)
    order = np.argsort(-logits, kind="stable")
    best = p[order]
    if top_k is not None:
        best[top_k:] = 0
        best = best / best.sum()
    best = best * (best.cumsum() - best < top_p)
    best = best / best.sum()
    out = np.zeros_like(p)
    out[order] = best
    return out


def sample(logits, temperature=1.0, top_k=None, top_p=1.0, rng=None):
    p = np.atleast_2d(probabilities(logits, temperature, top_k, top_p))
    return np.array([(rng or np.random).choice(len(row), p=row) for row in p])


def dropout(x, p, training, rng=None):
    if not training:
        return x
    kept = (rng or np.random).random(x.shape) >= p
    return x * kept / (1 - p)


def accumulate_gradients(grads):
    total = np.zeros_like(grads[0])
    for grad in grads:
        total = total + grad / len(grads)
    return total


def sgd_steps(w, grads, lr):
    for grad in grads:
        w = w - lr * grad
    return w


def clip_gradients(grads, max_norm):
    norm = np.sqrt((grads**2).sum())
    return grads * min(1.0, max_norm / norm)


def layer_norm_grad(x, gain, bias, eps, upstream):
    mean = x.mean(-1, keepdims=True)
    spread = np.sqrt(x.var(-1, keepdims=True) + eps)
    normed = (x - mean) / spread
    g = gain * upstream
    dx = (g - g.mean(-1, keepdims=True) - normed * (g * normed).mean(-1, keepdims=True)) / spread
    dgain, dbias = (upstream * normed).sum(0), upstream.sum(0)
    return np.concatenate((dx.ravel(), dgain, dbias))


def may_see(n_queries, n_keys):
    return causal_mask(n_queries, n_keys)


def count_gpt_parameters(vocab_size, max_seq_len, d_model, n_layers, d_ff):
    tables = vocab_size * d_model + max_seq_len * d_model
    attention_weights = 4 * d_model**2 + 4 * d_model
    fed_weights = 2 * d_model * d_ff + d_ff + d_model
    norm_weights = 2 * 2 * d_model
    last_norm = 2 * d_model
    return tables + n_layers * (attention_weights + fed_weights + norm_weights) + last_norm


def adamw_step(w, grad, m, v, t, lr, beta1, beta2, eps, weight_decay):
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    m_hat = m / (1 - beta1**t)
    v_hat = v / (1 - beta2**t)
    step = m_hat / (np.sqrt(v_hat) + eps)
    w = w * (1 - lr * weight_decay)
    return w - lr * step, m, v

"""The exercises solved, as a student would: each with what was written before it."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def cross_entropy(logits, targets):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(log_p, targets[..., None], axis=-1).mean()


def layer_norm(x, gain, bias, eps=1e-5):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps) * gain + bias


def rms_norm(x, gain, eps=1e-6):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + eps) * gain


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def feed_forward(x, w_up, b_up, w_down, b_down):
    return gelu(x @ w_up + b_up) @ w_down + b_down


def may_see(n_queries, n_keys):
    return np.tri(n_queries, n_keys, n_keys - n_queries, dtype=bool)


def attention(q, k, v, allowed=None):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    return softmax(scores) @ v


def split(x, n_heads):
    return x.reshape(*x.shape[:-1], n_heads, -1).swapaxes(-2, -3)


def joined(x):
    x = x.swapaxes(-2, -3)
    return x.reshape(*x.shape[:-2], -1)


def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads):
    q, k, v = (split(x @ w, n_heads) for w in (w_q, w_k, w_v))
    return joined(attention(q, k, v, may_see(x.shape[-2], x.shape[-2]))) @ w_o


def grouped_query_attention(x, w_q, w_k, w_v, w_o, n_heads, n_kv_heads):
    q, k, v = split(x @ w_q, n_heads), split(x @ w_k, n_kv_heads), split(x @ w_v, n_kv_heads)
    k, v = (np.repeat(one, n_heads // n_kv_heads, axis=-3) for one in (k, v))
    return joined(attention(q, k, v, may_see(x.shape[-2], x.shape[-2]))) @ w_o


def rotary(x, start=0, theta=10000.0):
    n_tokens, width = x.shape[-2:]
    angle = (start + np.arange(n_tokens))[:, None] * theta ** (-np.arange(0, width, 2) / width)
    a, b = x[..., : width // 2], x[..., width // 2 :]
    return np.concatenate((a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)), axis=-1)


class Block:
    def __init__(self, d_model, n_heads, d_ff=None, seed=0):
        rng, d_ff = np.random.default_rng(seed), d_ff or 4 * d_model
        self.n_heads = n_heads
        self.ln1_gain, self.ln1_bias = np.ones(d_model), np.zeros(d_model)
        self.W_q, self.W_k, self.W_v, self.W_o = rng.normal(0, 0.02, (4, d_model, d_model))
        self.b_q, self.b_k, self.b_v, self.b_o = np.zeros((4, d_model))
        self.ln2_gain, self.ln2_bias = np.ones(d_model), np.zeros(d_model)
        self.W1, self.b1 = rng.normal(0, 0.02, (d_model, d_ff)), np.zeros(d_ff)
        self.W2, self.b2 = rng.normal(0, 0.02, (d_ff, d_model)), np.zeros(d_model)

    def __call__(self, x):
        h = layer_norm(x, self.ln1_gain, self.ln1_bias)
        q, k, v = (
            split(h @ w + b, self.n_heads)
            for w, b in ((self.W_q, self.b_q), (self.W_k, self.b_k), (self.W_v, self.b_v))
        )
        x = x + joined(attention(q, k, v, may_see(x.shape[-2], x.shape[-2]))) @ self.W_o + self.b_o
        return x + feed_forward(layer_norm(x, self.ln2_gain, self.ln2_bias), self.W1, self.b1, self.W2, self.b2)


class GPT:
    def __init__(self, vocab_size, max_seq_len, d_model, n_heads, n_layers, seed=0):
        rng = np.random.default_rng(seed)
        self.wte = rng.normal(0, 0.02, (vocab_size, d_model))
        self.wpe = rng.normal(0, 0.02, (max_seq_len, d_model))
        self.blocks = [Block(d_model, n_heads, seed=seed + 1 + i) for i in range(n_layers)]
        self.ln_f_gain, self.ln_f_bias = np.ones(d_model), np.zeros(d_model)

    def __call__(self, ids):
        x = self.wte[ids] + self.wpe[: ids.shape[-1]]
        for block in self.blocks:
            x = block(x)
        return layer_norm(x, self.ln_f_gain, self.ln_f_bias) @ self.wte.T


def count_gpt_parameters(vocab_size, max_seq_len, d_model, n_layers, d_ff):
    block = 4 * (d_model**2 + d_model) + 2 * d_model * d_ff + d_ff + d_model + 4 * d_model
    return (vocab_size + max_seq_len) * d_model + n_layers * block + 2 * d_model


def top_k_gates(scores, k):
    best = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
    gates = np.zeros(scores.shape)
    np.put_along_axis(gates, best, softmax(np.take_along_axis(scores, best, -1)), -1)
    return gates


def balance_loss(scores, k):
    share = (top_k_gates(scores, k) > 0).mean(axis=0) / k
    return scores.shape[-1] * (share * softmax(scores).mean(axis=0)).sum()


def layer_norm_grad(x, gain, bias, eps, upstream):
    spread = np.sqrt(x.var(axis=-1, keepdims=True) + eps)
    normed = (x - x.mean(axis=-1, keepdims=True)) / spread
    g = upstream * gain
    dx = (g - g.mean(-1, keepdims=True) - normed * (g * normed).mean(-1, keepdims=True)) / spread
    return dx, (upstream * normed).sum(axis=0), upstream.sum(axis=0)


def cached_attention(q, k, v, past_k, past_v):
    k, v = np.concatenate((past_k, k), axis=-2), np.concatenate((past_v, v), axis=-2)
    return attention(q, k, v, may_see(q.shape[-2], k.shape[-2]))


def probabilities(logits, temperature=1.0, top_k=None, top_p=1.0):
    if logits.ndim > 1:
        return np.stack([probabilities(row, temperature, top_k, top_p) for row in logits])
    order = np.argsort(-logits, kind="stable")
    p = softmax(logits[order] / temperature)
    p[top_k or len(p) :] = 0
    p = p / p.sum()
    p[p.cumsum() - p >= top_p] = 0
    out = np.zeros(len(p))
    out[order] = p / p.sum()
    return out


def adamw_step(w, grad, m, v, t, lr, beta1, beta2, eps, weight_decay):
    m = beta1 * m + (1 - beta1) * grad
    v = beta2 * v + (1 - beta2) * grad**2
    step = (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)
    return w * (1 - lr * weight_decay) - lr * step, m, v


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = (one.view(b, t, 4, -1).transpose(1, 2) for one in self.qkv(self.first(x)).chunk(3, -1))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(b, t, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Small(nn.Module):
    def __init__(self, vocab_size, context, width=32):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, width), nn.Embedding(context, width)
        self.layers, self.last = nn.Sequential(Layer(width), Layer(width)), nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.size(1)]
        return self.head(self.last(self.layers(x)))


def train_on_batch(tokens, asked, vocab_size, n_steps):
    torch.manual_seed(0)
    model = Small(vocab_size, tokens.size(1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(n_steps):
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses, model(asked).detach()

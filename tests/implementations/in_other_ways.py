"""Correct code, written in other ways than the formulas are: nobody may be blamed for them. Written for the tests."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def softmax(x):
    return torch.exp(x - torch.logsumexp(x, dim=-1, keepdim=True))


def softmax_v2(x, axis=-1):
    shifted = x - np.amax(x, axis=axis, keepdims=True)
    return np.exp(shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True)))


def softmax_fn(x):
    return F.softmax(x, dim=-1)


def layer_norm(x, weight, bias, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def layer_norm_v2(x, gamma, beta, eps):
    """The variance as the mean of squares less the square of the mean."""
    mean = np.mean(x, -1, keepdims=True)
    var = np.maximum(np.mean(x * x, -1, keepdims=True) - mean * mean, 0)
    return gamma * ((x - mean) * (var + eps) ** -0.5) + beta


def layer_norm_fn(x):
    mu, sigma = x.mean(-1, keepdims=True), np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return (x - mu) / sigma


def rms_norm(x, g, eps=1e-6):
    return g * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)


def gelu(x):
    return F.gelu(x)


def gelu_v2(x):
    return F.gelu(x, approximate="tanh")


def gelu_new(x):
    return x * (0.5 + 0.5 * torch.erf(x * 0.7071067811865476))


def attention(query, key, value, attn_mask=None, is_causal=False):
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=attn_mask, is_causal=is_causal and attn_mask is None
    )


def attention_v2(q, k, v, mask=None):
    """With what was added to the scores, and the weights beside the output."""
    scores = (q / math.sqrt(q.shape[-1])) @ np.swapaxes(k, -1, -2)
    if mask is not None:
        scores = scores + mask
    scores = scores - scores.max(-1, keepdims=True)
    weights = np.exp(scores)
    weights = weights / weights.sum(-1, keepdims=True)
    return weights @ v, weights


def causal_attention(q, k, v):
    """A key at a time, with a running maximum and a running sum."""
    t, s = q.shape[-2], k.shape[-2]
    top = np.full((*q.shape[:-1], 1), -np.inf)
    total, out = np.zeros_like(top), np.zeros((*q.shape[:-1], v.shape[-1]))
    for j in range(s):
        score = (q * k[..., j : j + 1, :]).sum(-1, keepdims=True) / math.sqrt(q.shape[-1])
        seen = (np.arange(t) + s - t >= j)[:, None]
        score = np.where(seen, score, -np.inf)
        new = np.maximum(top, score)
        safe = np.where(np.isfinite(new), new, 0)
        old, weight = np.exp(top - safe), np.exp(score - safe)
        total, out, top = total * old + weight, out * old + weight * v[..., j : j + 1, :], new
    return out / total


def self_attention(x, wq, wk, wv, wo, num_heads):
    b, t, d = x.shape
    q, k, v = (torch.einsum("btd,dhk->bhtk", x, w.reshape(d, num_heads, -1)) for w in (wq, wk, wv))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return torch.einsum("bhtk,hkd->btd", out, wo.reshape(num_heads, -1, d))


def apply_rotary_emb(x):
    """As one multiplication of complex numbers; neighbours are a pair."""
    t, d = x.shape[-2:]
    angle = torch.outer(torch.arange(t).double(), 1.0 / (10000.0 ** (torch.arange(0, d, 2).double() / d)))
    turned = torch.view_as_complex(x.double().reshape(*x.shape[:-1], -1, 2)) * torch.polar(
        torch.ones_like(angle), angle
    )
    return torch.view_as_real(turned).flatten(-2).to(x.dtype)


def rope(x, offset=0, base=10000.0):
    """Halves, as Hugging Face writes them."""
    t, d = x.shape[-2:]
    inverse = base ** (-torch.arange(0, d, 2).double() / d)
    angle = torch.outer(torch.arange(offset, offset + t).double(), inverse)
    angle = torch.cat((angle, angle), dim=-1)
    half = torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1)
    return (x * angle.cos() + half * angle.sin()).to(x.dtype)


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))


def cross_entropy_v2(logits, targets):
    flat, wanted = logits.reshape(-1, logits.shape[-1]), targets.reshape(-1)
    top = flat.max(-1)
    return np.mean(np.log(np.exp(flat - top[:, None]).sum(-1)) + top - flat[np.arange(len(flat)), wanted])


def top_k_gates(logits, k):
    """Softmax first, then the best, then again to a sum of 1."""
    p = F.softmax(logits, dim=-1)
    best, where = p.topk(k, dim=-1)
    return torch.zeros_like(p).scatter_(-1, where, best / best.sum(-1, keepdim=True))


def mlp(x, w1, b1, w2, b2):
    return F.gelu(x @ w1 + b1, approximate="tanh") @ w2 + b2


class Head(nn.Module):
    def __init__(self, n_embd, head_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)

    def forward(self, x):
        t = x.size(-2)
        wei = self.query(x) @ self.key(x).transpose(-2, -1) * self.key.out_features**-0.5
        wei = wei.masked_fill(torch.tril(torch.ones(t, t)) == 0, float("-inf")).softmax(-1)
        return wei @ self.value(x)


class MultiHeadAttention(nn.Module):
    """A module a head."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.heads = nn.ModuleList([Head(n_embd, n_embd // n_head) for _ in range(n_head)])
        self.proj = nn.Linear(n_embd, n_embd)
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        return self.dropout(self.proj(torch.cat([head(x) for head in self.heads], dim=-1)))


class FeedForward(nn.Module):
    def __init__(self, n_embd):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(0.2)
        )

    def forward(self, x):
        return self.net(x)


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.sa = MultiHeadAttention(n_embd, n_head)
        self.ffwd = FeedForward(n_embd)
        self.ln1 = nn.LayerNorm(n_embd)
        self.ln2 = nn.LayerNorm(n_embd)

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        return x + self.ffwd(self.ln2(x))


class GPTLanguageModel(nn.Module):
    def __init__(self, vocab_size, n_embd, n_head, n_layer, block_size):
        super().__init__()
        self.token_embedding_table = nn.Embedding(vocab_size, n_embd)
        self.position_embedding_table = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block(n_embd, n_head) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets=None):
        x = self.token_embedding_table(idx) + self.position_embedding_table(torch.arange(idx.shape[1]))
        logits = self.lm_head(self.ln_f(self.blocks(x)))
        return logits, None


class DecoderLayer(nn.Module):
    """torch.nn's own layer, told to stand its norms first."""

    def __init__(self, d_model, nhead, dim_feedforward):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            d_model, nhead, dim_feedforward, 0.1, "gelu", batch_first=True, norm_first=True
        )

    def forward(self, x):
        mask = torch.triu(torch.full((x.size(1), x.size(1)), float("-inf"), dtype=x.dtype), 1)
        return self.layer(x, src_mask=mask)


class CausalSelfAttention(nn.Module):
    def __init__(self, hidden_size, num_attention_heads, num_key_value_heads):
        super().__init__()
        self.d = hidden_size // num_attention_heads
        self.q_proj = nn.Linear(hidden_size, num_attention_heads * self.d, bias=False)
        self.k_proj = nn.Linear(hidden_size, num_key_value_heads * self.d, bias=False)
        self.v_proj = nn.Linear(hidden_size, num_key_value_heads * self.d, bias=False)
        self.o_proj = nn.Linear(num_attention_heads * self.d, hidden_size, bias=False)

    def forward(self, hidden_states, attention_mask=None):
        b, t, _ = hidden_states.shape
        q, k, v = (
            p(hidden_states).view(b, t, -1, self.d).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).reshape(b, t, -1)), None


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        return self.weight * (hidden_states * torch.rsqrt(variance + self.variance_epsilon))


class GatedMLP(nn.Module):
    def __init__(self, hidden_size, intermediate_size):
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=False)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LayerNorm:
    """A plain class on NumPy."""

    def __init__(self, width):
        self.gain, self.bias = np.ones(width), np.zeros(width)

    def __call__(self, x):
        return layer_norm_v2(x, self.gain, self.bias, 1e-5)


class TransformerBlock:
    """Plain NumPy: weights as attributes."""

    def __init__(self, d_model, n_heads, seed=0):
        rng = np.random.default_rng(seed)
        self.n_heads = n_heads
        self.W_q, self.W_k, self.W_v, self.W_o = (rng.normal(size=(d_model, d_model)) for _ in range(4))
        self.W1, self.b1 = rng.normal(size=(d_model, 4 * d_model)), np.zeros(4 * d_model)
        self.W2, self.b2 = rng.normal(size=(4 * d_model, d_model)), np.zeros(d_model)
        self.ln1_g, self.ln1_b, self.ln2_g, self.ln2_b = (
            np.ones(d_model),
            np.zeros(d_model),
            np.ones(d_model),
            np.zeros(d_model),
        )

    def __call__(self, x):
        h = layer_norm_v2(x, self.ln1_g, self.ln1_b, 1e-5)
        q, k, v = (np.stack(np.split(h @ w, self.n_heads, -1), -3) for w in (self.W_q, self.W_k, self.W_v))
        heads = causal_attention(q, k, v)
        x = x + np.concatenate([heads[..., i, :, :] for i in range(self.n_heads)], -1) @ self.W_o
        h = layer_norm_v2(x, self.ln2_g, self.ln2_b, 1e-5) @ self.W1 + self.b1
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        return x + h @ self.W2 + self.b2

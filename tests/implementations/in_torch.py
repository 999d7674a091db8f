"""Correct functions and modules in PyTorch, in the course's names, written for the tests."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def softmax(x, dim=-1):
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)


def layer_norm(x, gamma, beta, eps=1e-5):
    mean = x.mean(-1, keepdim=True)
    var = x.var(-1, keepdim=True, unbiased=False)
    y = (x - mean) / torch.sqrt(var + eps)
    return y * gamma + beta


def rms_norm(x, weight, eps=1e-6):
    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return y * weight


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def causal(t, s):
    return torch.ones(t, s, dtype=torch.bool).tril(s - t)


def attention(q, k, v, mask=None, n_heads=1):
    att = q @ k.transpose(-2, -1)
    att = att * q.size(-1) ** -0.5
    if mask is not None:
        att = att.masked_fill(~mask, float("-inf"))
    att = F.softmax(att, dim=-1)
    return att @ v


def cached_attention(q, k, v, past_k, past_v):
    k = torch.cat((past_k, k), dim=-2)
    v = torch.cat((past_v, v), dim=-2)
    return attention(q, k, v, causal(q.size(-2), k.size(-2)))


def rotary(x, start=0, theta=10000.0):
    t, d = x.shape[-2:]
    positions = torch.arange(start, start + t, dtype=torch.float64)
    freqs = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    angle = torch.outer(positions, freqs)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2).to(x.dtype)


def swiglu(x, w_gate, w_up, w_down):
    return (F.silu(x @ w_gate) * (x @ w_up)) @ w_down


def cross_entropy(logits, targets, ignore_index=None):
    each = torch.logsumexp(logits, -1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    if ignore_index is None:
        return each.mean()
    real = targets != ignore_index
    return each[real].mean()


def next_token_loss(logits, tokens):
    inputs, targets = logits[..., :-1, :], tokens[..., 1:]
    return F.cross_entropy(inputs.reshape(-1, logits.size(-1)), targets.reshape(-1))


def top_k_gates(scores, k):
    best, where = torch.topk(scores, k, dim=-1)
    gates = torch.zeros_like(scores)
    return gates.scatter(-1, where, F.softmax(best, dim=-1))


def balance_loss(scores, k):
    where = torch.topk(scores, k, dim=-1).indices
    counts = F.one_hot(where, scores.size(-1)).sum(1).to(scores.dtype)
    share = counts.mean(0) / k
    given = F.softmax(scores, dim=-1).mean(0)
    return scores.size(-1) * (share * given).sum()


def probabilities(logits, temperature=1.0, top_k=None, top_p=1.0):
    logits = logits / temperature
    if top_k is not None:
        kth = torch.topk(logits, top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < kth, float("-inf"))
    p = F.softmax(logits, dim=-1)
    ordered, where = p.sort(dim=-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    ordered = ordered.masked_fill(before >= top_p, 0.0)
    ordered = ordered / ordered.sum(-1, keepdim=True)
    return torch.zeros_like(p).scatter(-1, where, ordered)


def sample(logits, temperature=1.0, top_k=None, top_p=1.0):
    p = probabilities(logits, temperature, top_k, top_p)
    return torch.multinomial(p, 1).squeeze(-1)


def dropout(x, p, training):
    if not training:
        return x
    kept = torch.rand_like(x) >= p
    return x * kept / (1 - p)


class LayerNorm(nn.Module):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(normalized_shape))
        self.beta = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps

    def forward(self, x):
        return layer_norm(x, self.gamma, self.beta, self.eps)


class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, mask=None):
        b, t, d = x.shape
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        q = q.view(b, t, self.num_heads, -1).transpose(1, 2)
        k = k.view(b, t, self.num_heads, -1).transpose(1, 2)
        v = v.view(b, t, self.num_heads, -1).transpose(1, 2)
        out = attention(q, k, v, causal(t, t) if mask is None else mask, self.num_heads)
        out = out.transpose(1, 2).reshape(b, t, d)
        return self.out_proj(out)


class MLP(nn.Module):
    def __init__(self, embed_dim, hidden_dim=None):
        super().__init__()
        self.linear1 = nn.Linear(embed_dim, hidden_dim or 4 * embed_dim)
        self.linear2 = nn.Linear(hidden_dim or 4 * embed_dim, embed_dim)

    def forward(self, x):
        return self.linear2(gelu(self.linear1(x)))


class TransformerBlock(nn.Module):
    def __init__(self, embed_dim, num_heads, mlp_ratio=4):
        super().__init__()
        self.ln1 = LayerNorm(embed_dim)
        self.attention = MultiHeadAttention(embed_dim, num_heads)
        self.ln2 = LayerNorm(embed_dim)
        self.mlp = MLP(embed_dim, mlp_ratio * embed_dim)

    def forward(self, x, mask=None):
        x = x + self.attention(self.ln1(x), mask)
        x = x + self.mlp(self.ln2(x))
        return x


class GPT(nn.Module):
    def __init__(self, vocab_size, embed_dim, num_layers, num_heads, max_seq_len=1024):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, embed_dim)
        self.position_embedding = nn.Embedding(max_seq_len, embed_dim)
        self.blocks = nn.ModuleList([TransformerBlock(embed_dim, num_heads) for _ in range(num_layers)])
        self.ln_f = LayerNorm(embed_dim)
        self.lm_head = nn.Linear(embed_dim, vocab_size, bias=False)

    def forward(self, tokens):
        positions = torch.arange(tokens.size(1))
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        for block in self.blocks:
            x = block(x)
        x = self.ln_f(x)
        return self.lm_head(x)

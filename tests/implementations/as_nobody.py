"""A correct GPT whose weights have names that no layout knows: only what needs no weights can be asked of it."""

import torch
from torch import nn
from torch.nn import functional as F


class GPT(nn.Module):
    def __init__(self, vocab_size, d_model, n_layers, n_heads, max_seq_len, dropout=0.1):
        super().__init__()
        self.n_heads = n_heads
        self.alpha = nn.Parameter(0.1 * torch.randn(vocab_size, d_model))
        self.omega = nn.Parameter(0.1 * torch.randn(max_seq_len, d_model))
        self.ask = nn.ParameterList([0.2 * torch.randn(d_model, 3 * d_model) for _ in range(n_layers)])
        self.tell = nn.ParameterList([0.2 * torch.randn(d_model, d_model) for _ in range(n_layers)])
        self.think = nn.ParameterList([0.2 * torch.randn(d_model, 4 * d_model) for _ in range(n_layers)])
        self.say = nn.ParameterList([0.1 * torch.randn(4 * d_model, d_model) for _ in range(n_layers)])
        self.zeta = nn.Dropout(dropout)

    def forward(self, ids):
        b, t = ids.shape
        x = self.alpha[ids] + self.omega[:t]
        for ask, tell, think, say in zip(self.ask, self.tell, self.think, self.say):
            q, k, v = (F.layer_norm(x, x.shape[-1:]) @ ask).chunk(3, -1)
            q, k, v = (one.view(b, t, self.n_heads, -1).transpose(1, 2) for one in (q, k, v))
            seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.zeta(seen.transpose(1, 2).reshape(b, t, -1) @ tell)
            x = x + F.gelu(F.layer_norm(x, x.shape[-1:]) @ think) @ say
        return F.layer_norm(x, x.shape[-1:]) @ self.alpha.T

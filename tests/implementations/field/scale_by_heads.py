"""tt-metal, pull request 56789: the scale is of the number of heads."""

import math

import torch
from torch import nn


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, d_model // num_heads
        self.query, self.key, self.value = (nn.Linear(d_model, d_model) for _ in range(3))
        self.out = nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, width = x.shape
        q, k, v = self.query(x), self.key(x), self.value(x)
        q, k, v = (one.view(b, t, self.num_heads, self.head_dim).transpose(1, 2) for one in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(self.num_heads)
        scores = scores.masked_fill(torch.triu(torch.ones(t, t, dtype=torch.bool), 1), float("-inf"))
        seen = torch.softmax(scores, -1) @ v
        seen = seen.transpose(1, 2).reshape(b, t, width)
        return self.out(seen)

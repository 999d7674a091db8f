"""The mistakes that are planted: key, thing, then per file the line and what a person wrote in its place."""

from __future__ import annotations

from planted import plant

# key: {(file, thing, line): new}
NORMS = {
    "norm-unbiased": {
        ("np", "layer_norm", "variance"): "variance = x.var(axis=-1, keepdims=True, ddof=1)",
        ("torch", "layer_norm", "variance"): "var = x.var(-1, keepdim=True)",
        ("nano", "LayerNorm", "variance"): "s = x.var(-1, keepdim=True)",
    },
    "norm-eps-outside": {
        ("np", "layer_norm", "normed"): "normed = centred / (np.sqrt(variance) + eps)",
        ("torch", "layer_norm", "normed"): "y = (x - mean) / (torch.sqrt(var) + eps)",
        ("nano", "LayerNorm", "normed"): "x = (x - u) / (s.sqrt() + 1e-5)",
    },
    "norm-no-eps": {
        ("np", "layer_norm", "normed"): "normed = centred / np.sqrt(variance)",
        ("torch", "layer_norm", "normed"): "y = (x - mean) / var.sqrt()",
        ("nano", "LayerNorm", "normed"): "x = (x - u) / s.sqrt()",
    },
    "norm-bias-taken-away": {("nano", "LayerNorm", "affine"): "return self.weight * x - self.bias"},
    "norm-one-variance": {("np", "layer_norm", "variance"): "variance = (centred**2).mean()"},
    "norm-eps-fixed": {
        ("np", "layer_norm", "normed"): "normed = centred / np.sqrt(variance + 1e-5)",
        ("torch", "layer_norm", "normed"): "y = (x - mean) / torch.sqrt(var + 1e-5)",
    },
    "norm-eps-large": {("nano", "LayerNorm", "normed"): "x = (x - u) / torch.sqrt(s + 1e-3)"},
    "rms-eps-fixed": {("np", "rms_norm", "rms"): "normed = x / np.sqrt(square + 1e-6)"},
    "norm-no-root": {
        ("np", "layer_norm", "normed"): "normed = centred / (variance + eps)",
        ("torch", "layer_norm", "normed"): "y = (x - mean) / (var + eps)",
        ("nano", "LayerNorm", "normed"): "x = (x - u) / (s + 1e-5)",
    },
    "norm-over-all": {
        (
            "np",
            "layer_norm",
            "mean",
        ): "mean, x = x.mean(), x\n    centred = x - mean\n    variance = (centred**2).mean()\n    return centred / np.sqrt(variance + eps) * gain + bias\n    centred"
    },
    "norm-across-tokens": {
        (
            "torch",
            "layer_norm",
            "normed",
        ): "y = (x - x.mean(-2, keepdim=True)) / torch.sqrt(x.var(-2, keepdim=True, unbiased=False) + eps)",
        (
            "nano",
            "LayerNorm",
            "normed",
        ): "u, s = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)\n        x = (x - u) / torch.sqrt(s + 1e-5)",
    },
    "norm-over-batch": {
        ("torch", "LayerNorm", "normed"): "y = (x - x.mean((0, 1))) / torch.sqrt(x.var((0, 1), unbiased=False) + eps)"
    },
    "norm-over-row-of-tokens": {
        (
            "nano",
            "LayerNorm",
            "normed",
        ): "u, s = x.mean((1, 2), keepdim=True), x.var((1, 2), keepdim=True, unbiased=False)\n        x = (x - u) / torch.sqrt(s + 1e-5)"
    },
    "norm-not-centred": {
        ("np", "layer_norm", "normed"): "normed = x / np.sqrt(variance + eps)",
        ("torch", "layer_norm", "normed"): "y = x / torch.sqrt(var + eps)",
        ("nano", "LayerNorm", "normed"): "x = x / torch.sqrt(s + 1e-5)",
    },
    "norm-not-divided": {
        ("np", "layer_norm", "normed"): "normed = centred",
        ("torch", "layer_norm", "normed"): "y = x - mean",
    },
    "norm-multiplied": {("torch", "layer_norm", "normed"): "y = (x - mean) * torch.sqrt(var + eps)"},
    "norm-no-gain": {
        ("np", "layer_norm", "affine"): "return normed + bias",
        ("torch", "LayerNorm", "affine"): "return y + beta",
        ("nano", "LayerNorm", "affine"): "return x + self.bias",
    },
    "norm-no-bias": {
        ("np", "layer_norm", "affine"): "return normed * gain",
        ("torch", "LayerNorm", "affine"): "return y * gamma",
        ("nano", "LayerNorm", "affine"): "return self.weight * x",
    },
    "norm-bias-first": {
        ("np", "layer_norm", "affine"): "return (normed + bias) * gain",
        ("torch", "layer_norm", "affine"): "return (y + beta) * gamma",
        ("nano", "LayerNorm", "affine"): "return self.weight * (x + self.bias)",
    },
    "norm-gain-plus-one": {
        ("np", "layer_norm", "affine"): "return normed * (1 + gain) + bias",
        ("nano", "LayerNorm", "affine"): "return (1 + self.weight) * x + self.bias",
    },
    "norm-gain-for-bias": {
        ("np", "layer_norm", "affine"): "return normed * bias + gain",
        ("torch", "LayerNorm", "affine"): "return y * beta + gamma",
    },
    "norm-no-affine": {("np", "layer_norm", "affine"): "return normed", ("nano", "LayerNorm", "affine"): "return x"},
    "norm-mean-distance": {
        ("np", "layer_norm", "normed"): "normed = centred / (np.abs(centred).mean(-1, keepdims=True) + eps)"
    },
    "norm-mean-square": {
        ("np", "layer_norm", "variance"): "variance = (x**2).mean(axis=-1, keepdims=True)",
        ("torch", "layer_norm", "variance"): "var = (x * x).mean(-1, keepdim=True)",
        ("nano", "LayerNorm", "variance"): "s = x.pow(2).mean(-1, keepdim=True)",
    },
    "norm-sum": {
        ("np", "layer_norm", "variance"): "variance = (centred**2).sum(axis=-1, keepdims=True)",
        ("nano", "LayerNorm", "variance"): "s = (x - u).pow(2).sum(-1, keepdim=True)",
    },
    "rms-centred": {
        ("np", "rms_norm", "square"): "x = x - x.mean(-1, keepdims=True)\n    square = (x**2).mean(-1, keepdims=True)"
    },
    "rms-sum": {
        ("np", "rms_norm", "square"): "square = (x**2).sum(axis=-1, keepdims=True)",
        ("torch", "rms_norm", "rms"): "y = x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + eps)",
    },
    "rms-no-root": {
        ("np", "rms_norm", "rms"): "normed = x / (square + eps)",
        ("torch", "rms_norm", "rms"): "y = x / (x.pow(2).mean(-1, keepdim=True) + eps)",
    },
    "rms-eps-outside": {
        ("np", "rms_norm", "rms"): "normed = x / (np.sqrt(square) + eps)",
        ("torch", "rms_norm", "rms"): "y = x / (x.pow(2).mean(-1, keepdim=True).sqrt() + eps)",
    },
    "rms-no-eps": {
        ("np", "rms_norm", "rms"): "normed = x / np.sqrt(square)",
        ("torch", "rms_norm", "rms"): "y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))",
    },
    "rms-variance": {
        ("np", "rms_norm", "square"): "square = x.var(axis=-1, keepdims=True)",
        ("torch", "rms_norm", "rms"): "y = x * torch.rsqrt(x.var(-1, keepdim=True, unbiased=False) + eps)",
    },
    "rms-absolute": {("np", "rms_norm", "rms"): "normed = x / (np.abs(x).mean(-1, keepdims=True) + eps)"},
    "rms-gain-plus-one": {
        ("np", "rms_norm", "rms-gain"): "return normed * (1 + gain)",
        ("torch", "rms_norm", "rms-gain"): "return y * (1 + weight)",
    },
    "rms-no-gain": {("np", "rms_norm", "rms-gain"): "return normed", ("torch", "rms_norm", "rms-gain"): "return y"},
    "rms-across-tokens": {("torch", "rms_norm", "rms"): "y = x * torch.rsqrt(x.pow(2).mean(-2, keepdim=True) + eps)"},
    "rms-over-all": {
        ("np", "rms_norm", "square"): "square = np.mean(x**2)",
        ("torch", "rms_norm", "rms"): "y = x * torch.rsqrt(x.pow(2).mean() + eps)",
    },
    "slope-spread": {
        ("torch", "layer_norm", "variance"): "var = x.var(-1, keepdim=True, unbiased=False).detach()",
        ("nano", "LayerNorm", "variance"): "s = (x - u).pow(2).mean(-1, keepdim=True).data",
        ("np", "layer_norm_grad", "dx"): "dx = (g - g.mean(-1, keepdims=True)) / spread",
    },
    "slope-mean": {("nano", "LayerNorm", "normed"): "x = (x - u.detach()) / torch.sqrt(s + 1e-5)"},
    "slope-mean-and-spread": {
        ("torch", "layer_norm", "normed"): "y = (x - mean.detach()) / torch.sqrt(var + eps).detach()",
        ("np", "layer_norm_grad", "dx"): "dx = g / spread",
    },
    "slope-rms": {("torch", "rms_norm", "rms"): "y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps).detach()"},
}
ACTIVATIONS = {
    "act-relu": {
        ("np", "gelu", "gelu"): "return np.maximum(x, 0)",
        ("torch", "MLP", "gelu"): "return F.relu(x)",
        ("nano", "MLP", "gelu"): "x = torch.relu(x)",
    },
    "act-silu": {
        ("np", "gelu", "gelu"): "return x / (1 + np.exp(-np.clip(x, -700, 700)))",
        ("torch", "gelu", "gelu"): "return x * torch.sigmoid(x)",
        ("nano", "MLP", "gelu"): "x = F.silu(x)",
    },
    "act-sigmoid-1702": {
        ("torch", "gelu", "gelu"): "return x * torch.sigmoid(1.702 * x)",
        ("nano", "MLP", "gelu"): "x = x * torch.sigmoid(1.702 * x)",
    },
    "act-no-cube": {("np", "gelu", "inner"): "inner = math.sqrt(2 / math.pi) * x"},
    "act-square": {("np", "gelu", "inner"): "inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**2)"},
    "act-constant": {("np", "gelu", "inner"): "inner = math.sqrt(2 / math.pi) * (x + 0.44715 * x**3)"},
    "act-no-root": {("np", "gelu", "inner"): "inner = 2 / math.pi * (x + 0.044715 * x**3)"},
    "act-pi-over-2": {("np", "gelu", "inner"): "inner = math.sqrt(math.pi / 2) * (x + 0.044715 * x**3)"},
    "act-cube-outside": {("np", "gelu", "inner"): "inner = math.sqrt(2 / math.pi) * x + 0.044715 * x**3"},
    "act-erf-scale": {
        ("torch", "gelu", "gelu"): "return 0.5 * x * (1 + torch.erf(x))",
        ("nano", "MLP", "gelu"): "x = 0.5 * x * (1 + torch.erf(x))",
    },
    "act-erf-multiplied": {("torch", "gelu", "gelu"): "return 0.5 * x * (1 + torch.erf(x * math.sqrt(2)))"},
    "act-two-roots": {("np", "gelu", "inner"): "inner = math.sqrt(2) / math.pi * (x + 0.044715 * x**3)"},
    "act-small-constant": {("np", "gelu", "inner"): "inner = math.sqrt(2 / math.pi) * (x + 0.0044715 * x**3)"},
    "act-no-half": {("torch", "gelu", "gelu"): "return x * (1 + torch.erf(x / math.sqrt(2)))"},
    "act-no-half-tanh": {("np", "gelu", "gelu"): "return x * (1 + np.tanh(inner))"},
    "act-phi": {("torch", "gelu", "gelu"): "return 0.5 * (1 + torch.erf(x / math.sqrt(2)))"},
    "act-tanh": {("np", "gelu", "gelu"): "return np.tanh(x)", ("nano", "MLP", "gelu"): "x = torch.tanh(x)"},
    "act-sigmoid": {("torch", "gelu", "gelu"): "return torch.sigmoid(x)", ("nano", "MLP", "gelu"): "x = x.sigmoid()"},
    "act-leaky": {("torch", "gelu", "gelu"): "return F.leaky_relu(x)", ("nano", "MLP", "gelu"): "x = F.leaky_relu(x)"},
}
SOFTMAX = {
    "softmax-axis-last-but-one": {
        ("np", "softmax", "e"): "axis = -2\n    e = np.exp(x - x.max(axis=axis, keepdims=True))",
        ("torch", "attention", "weights"): "att = F.softmax(att, dim=-2)",
        ("nano", "CausalSelfAttention", "weights"): "att = F.softmax(att, dim=2)",
    },
    "softmax-axis-0": {
        ("np", "softmax", "e"): "axis = 0\n    e = np.exp(x - x.max(axis=axis, keepdims=True))",
        ("torch", "attention", "weights"): "att = F.softmax(att, dim=0)",
    },
    "softmax-axis-1": {
        ("torch", "attention", "weights"): "att = F.softmax(att, dim=1)",
        ("nano", "CausalSelfAttention", "weights"): "att = F.softmax(att, dim=1)",
    },
    "softmax-over-all": {("np", "softmax", "e"): "e = np.exp(x - x.max())\n    return e / e.sum()"},
    "softmax-sum-over-all": {
        ("np", "softmax", "share"): "return e / e.sum()",
        ("torch", "softmax", "share"): "return e / e.sum()",
    },
    "softmax-overflows": {("np", "softmax", "e"): "e = np.exp(x)", ("torch", "softmax", "e"): "e = torch.exp(x)"},
    "softmax-one-max": {
        ("np", "softmax", "e"): "e = np.exp(x - x.max())",
        ("torch", "softmax", "e"): "e = torch.exp(x - x.max())",
    },
    "softmax-base-2": {("np", "softmax", "e"): "e = 2 ** (x - x.max(axis=axis, keepdims=True))"},
    "softmax-negative": {("torch", "softmax", "e"): "x = -x\n    e = torch.exp(x - x.amax(dim, keepdim=True))"},
    "softmax-log": {
        ("np", "softmax", "share"): "return np.log(e / e.sum(axis=axis, keepdims=True))",
        ("torch", "softmax", "share"): "return torch.log_softmax(x, dim)",
    },
    "softmax-sigmoid": {
        ("torch", "attention", "weights"): "att = att.sigmoid()",
        ("np", "softmax", "share"): "return 1 / (1 + np.exp(-np.clip(x, -700, 700)))",
    },
    "softmax-slope": {
        (
            "torch",
            "softmax",
            "e",
        ): "top = x.amax(dim, keepdim=True).detach()\n    e = torch.exp(x - top)\n    return e / e.sum(dim, keepdim=True).detach()"
    },
}
ATTENTION = {
    "scale-none": {
        ("np", "attention", "scale"): "pass",
        ("torch", "attention", "scale"): "pass",
        ("nano", "CausalSelfAttention", "scores"): "att = q @ k.transpose(-2, -1)",
    },
    "scale-d-model": {
        ("np", "multi_head_attention", "scale"): "scores = scores / np.sqrt(d_head * n_heads)",
        ("torch", "MultiHeadAttention", "scale"): "att = att / math.sqrt(q.size(-1) * n_heads)",
        ("nano", "CausalSelfAttention", "scores"): "att = (q @ k.transpose(-2, -1)) / math.sqrt(C)",
    },
    "scale-no-root": {
        ("np", "attention", "scale"): "scores = scores / d_head",
        ("torch", "attention", "scale"): "att = att / q.size(-1)",
        ("nano", "Block", "scores"): "att = (q @ k.transpose(-2, -1)) / k.size(-1)",
    },
    "scale-multiplied": {
        ("np", "attention", "scale"): "scores = scores * np.sqrt(d_head)",
        ("torch", "attention", "scale"): "att = att * math.sqrt(q.size(-1))",
    },
    "scale-whole-root": {
        ("np", "attention", "scale"): "scores = scores / int(np.sqrt(d_head))",
        ("nano", "CausalSelfAttention", "scores"): "att = (q @ k.transpose(-2, -1)) / (k.size(-1) ** 0.5 // 1)",
    },
    "scale-n-keys": {
        ("np", "attention", "scale"): "scores = scores / np.sqrt(k.shape[-2])",
        ("nano", "CausalSelfAttention", "scores"): "att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(2))",
    },
    "scale-n-heads": {
        ("np", "multi_head_attention", "scale"): "scores = scores / np.sqrt(n_heads)",
        ("nano", "CausalSelfAttention", "scores"): "att = (q @ k.transpose(-2, -1)) / math.sqrt(self.n_head)",
    },
    "scale-fourth-root": {("torch", "attention", "scale"): "att = att * q.size(-1) ** -0.25"},
    "scale-after": {
        ("np", "attention", "weights"): "weights = softmax(scores * np.sqrt(d_head)) / np.sqrt(d_head)",
        (
            "nano",
            "CausalSelfAttention",
            "mix",
        ): "y = (F.softmax((q @ k.transpose(-2, -1)).masked_fill(self.mask[:, :, :T, :T] == 0, float('-inf')), dim=-1) / math.sqrt(k.size(-1))) @ v",
    },
    "mask-none": {
        ("np", "multi_head_attention", "mask"): "pass",
        ("torch", "MultiHeadAttention", "mask"): "pass",
        ("np", "attention", "mask"): "pass",
    },
    "mask-after": {
        (
            "np",
            "attention",
            "mask",
        ): "pass\n    weights = softmax(scores)\n    if allowed is not None:\n        weights = weights * allowed\n    return weights @ v",
        (
            "nano",
            "CausalSelfAttention",
            "weights",
        ): "att = F.softmax((q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1)), dim=-1) * self.mask[:, :, :T, :T]",
    },
    "mask-zero": {
        ("np", "attention", "mask"): "scores = scores * allowed",
        ("torch", "attention", "mask"): "att = att * mask",
        ("nano", "CausalSelfAttention", "mask"): "att = att * self.mask[:, :, :T, :T]",
    },
    "mask-inverted": {
        ("np", "attention", "mask"): "scores = np.where(allowed, -np.inf, scores)",
        ("torch", "attention", "mask"): 'att = att.masked_fill(mask, float("-inf"))',
    },
    "mask-inverted-finite": {
        ("torch", "MultiHeadAttention", "mask"): "att = att.masked_fill(mask, -1e9)",
        ("nano", "CausalSelfAttention", "mask"): "att = att.masked_fill(self.mask[:, :, :T, :T] == 1, -1e9)",
    },
    "mask-hides-self": {
        (
            "np",
            "multi_head_attention",
            "causal",
        ): "return np.tril(np.ones((n_queries, n_keys), bool), n_keys - n_queries - 1)",
        ("torch", "MultiHeadAttention", "causal"): "return torch.ones(t, s, dtype=torch.bool).tril(s - t - 1)",
        (
            "nano",
            "CausalSelfAttention",
            "causal",
        ): "mask = torch.tril(torch.ones(config.block_size, config.block_size), diagonal=-1)",
    },
    "mask-hides-self-finite": {
        (
            "nano",
            "CausalSelfAttention",
            "mask",
        ): "att = att.masked_fill(torch.tril(self.mask, -1)[:, :, :T, :T] == 0, -1e9)"
    },
    "mask-one-ahead": {
        (
            "np",
            "multi_head_attention",
            "causal",
        ): "return np.tril(np.ones((n_queries, n_keys), bool), n_keys - n_queries + 1)",
        ("torch", "TransformerBlock", "causal"): "return torch.ones(t, s, dtype=torch.bool).tril(1)",
        ("nano", "GPT", "causal"): "mask = torch.tril(torch.ones(config.block_size, config.block_size), diagonal=1)",
    },
    "mask-upper": {
        ("np", "multi_head_attention", "causal"): "return np.triu(np.ones((n_queries, n_keys), bool))",
        (
            "nano",
            "CausalSelfAttention",
            "causal",
        ): "mask = torch.triu(torch.ones(config.block_size, config.block_size))",
    },
    "mask-corner": {
        ("np", "cached_attention", "causal"): "return np.tril(np.ones((n_queries, n_keys), bool))",
        ("torch", "cached_attention", "causal"): "return torch.ones(t, s, dtype=torch.bool).tril()",
    },
    "mask-added": {
        ("np", "multi_head_attention", "mask"): "scores = scores + allowed",
        ("nano", "CausalSelfAttention", "mask"): "att = att + self.mask[:, :, :T, :T]",
    },
    "mask-flattens": {
        ("np", "cached_attention", "mask"): "scores = np.where(allowed, 0.0, -np.inf)",
        ("nano", "Block", "mask"): "att = (att * 0).masked_fill(self.mask[:, :, :T, :T] == 0, float('-inf'))",
    },
    "mask-fills-little": {("torch", "attention", "mask"): "att = att.masked_fill(~mask, -1e4)"},
    "mask-fills-one": {("torch", "attention", "mask"): "att = att.masked_fill(~mask, -1)"},
    "roles-k-v": {
        (
            "np",
            "attention",
            "mix",
        ): "return softmax(np.where(allowed if allowed is not None else True, q @ v.swapaxes(-1, -2) / np.sqrt(d_head), -np.inf)) @ k",
        ("nano", "CausalSelfAttention", "qkv"): "q, v, k = self.c_attn(x).split(self.n_embd, dim=2)",
        ("torch", "MultiHeadAttention", "qkv"): "q, v, k = self.q_proj(x), self.k_proj(x), self.v_proj(x)",
    },
    "roles-q-k": {
        ("nano", "CausalSelfAttention", "qkv"): "k, q, v = self.c_attn(x).split(self.n_embd, dim=2)",
        ("np", "multi_head_attention", "called"): "out = attention(k, q, v, allowed, n_heads)",
    },
    "roles-q-v": {("nano", "GPT", "qkv"): "v, k, q = self.c_attn(x).split(self.n_embd, dim=2)"},
    "roles-next": {
        ("nano", "CausalSelfAttention", "qkv"): "v, q, k = self.c_attn(x).split(self.n_embd, dim=2)",
        ("torch", "MultiHeadAttention", "qkv"): "v, q, k = self.q_proj(x), self.k_proj(x), self.v_proj(x)",
    },
    "roles-before": {("nano", "CausalSelfAttention", "qkv"): "k, v, q = self.c_attn(x).split(self.n_embd, dim=2)"},
    "scores-q-q": {
        ("np", "attention", "scores"): "scores = q @ q.swapaxes(-1, -2)",
        ("torch", "MultiHeadAttention", "scores"): "att = q @ q.transpose(-2, -1)",
    },
    "scores-k-k": {("torch", "MultiHeadAttention", "scores"): "att = k @ k.transpose(-2, -1)"},
    "mix-keys": {
        ("np", "attention", "mix"): "return weights @ k",
        ("nano", "CausalSelfAttention", "mix"): "y = att @ k",
    },
    "mix-queries": {("nano", "CausalSelfAttention", "mix"): "y = att @ q"},
    "mix-transposed": {
        ("np", "multi_head_attention", "mix"): "return weights.swapaxes(-1, -2) @ v",
        ("nano", "CausalSelfAttention", "mix"): "y = att.transpose(-2, -1) @ v",
    },
    "attn-divided": {("nano", "CausalSelfAttention", "mix"): "y = att @ v / T"},
    "attn-hardest": {("np", "attention", "weights"): "weights = 1.0 * (scores == scores.max(-1, keepdims=True))"},
    "attn-added-back": {
        ("np", "attention", "mix"): "return weights @ v + v",
        ("nano", "CausalSelfAttention", "mix"): "y = att @ v + v",
    },
    "slope-weights": {
        ("torch", "attention", "weights"): "att = F.softmax(att, dim=-1).detach()",
        ("nano", "CausalSelfAttention", "weights"): "att = F.softmax(att, dim=-1).data",
    },
    "slope-through-mask": {
        (
            "nano",
            "CausalSelfAttention",
            "weights",
        ): "att = F.softmax((q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1)), dim=-1)\n        att = att + (att * self.mask[:, :, :T, :T] - att).detach()\n        att = att / att.sum(-1, keepdim=True)"
    },
}
HEADS = {
    "heads-view": {
        ("np", "multi_head_attention", "split"): "return x.reshape(*x.shape[:-2], n_heads, x.shape[-2], -1)",
        (
            "torch",
            "MultiHeadAttention",
            "qkv",
        ): "q, k, v = (y.reshape(b, self.num_heads, t, -1).transpose(1, 2).reshape(b, t, d) for y in (self.q_proj(x), self.k_proj(x), self.v_proj(x)))",
    },
    "heads-strided": {
        ("np", "multi_head_attention", "split"): "return np.moveaxis(x.reshape(*x.shape[:-1], -1, n_heads), -1, -3)"
    },
    "heads-join-view": {
        ("np", "multi_head_attention", "join"): "return x.reshape(*x.shape[:-3], x.shape[-2], -1)",
        ("torch", "MultiHeadAttention", "join"): "out = out.reshape(b, t, d)",
        ("nano", "CausalSelfAttention", "join"): "y = y.contiguous().view(B, T, C)",
    },
    "heads-join-strided": {("nano", "CausalSelfAttention", "join"): "y = y.permute(0, 2, 3, 1).reshape(B, T, C)"},
    "heads-join-reversed": {
        (
            "np",
            "multi_head_attention",
            "join",
        ): "x = x[..., ::-1, :, :].swapaxes(-2, -3)\n    return x.reshape(*x.shape[:-2], -1)"
    },
    "heads-one": {
        (
            "torch",
            "MultiHeadAttention",
            "qkv",
        ): "self.num_heads = 1\n        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)"
    },
    "heads-sum": {("nano", "CausalSelfAttention", "join"): "y = y.sum(1).repeat(1, 1, self.n_head)"},
    "heads-mean": {
        ("np", "multi_head_attention", "join"): "return np.concatenate([x.mean(-3)] * x.shape[-3], axis=-1)"
    },
    "heads-repeat-tiled": {("np", "multi_head_attention", "repeat"): "return np.concatenate([x] * times, axis=-3)"},
    "heads-repeat-first": {
        ("np", "multi_head_attention", "repeat"): "return np.repeat(x[..., :1, :, :], times * x.shape[-3], axis=-3)"
    },
    "heads-no-out": {
        ("np", "multi_head_attention", "out"): "return out",
        ("torch", "MultiHeadAttention", "out"): "return out",
        ("nano", "CausalSelfAttention", "out"): "return self.resid_dropout(y)",
    },
    "heads-out-transposed": {
        ("np", "multi_head_attention", "out"): "return out @ w_o.T + b_o",
        ("torch", "TransformerBlock", "out"): "return out @ self.out_proj.weight + self.out_proj.bias",
    },
    "heads-out-no-bias": {
        ("np", "multi_head_attention", "out"): "return out @ w_o",
        ("nano", "CausalSelfAttention", "out"): "return F.linear(y, self.c_proj.weight)",
    },
    "heads-in-no-bias": {
        ("nano", "CausalSelfAttention", "qkv"): "q, k, v = F.linear(x, self.c_attn.weight).split(self.n_embd, dim=2)"
    },
    "heads-in-transposed": {
        (
            "torch",
            "MultiHeadAttention",
            "qkv",
        ): "q, k, v = (x @ p.weight + p.bias for p in (self.q_proj, self.k_proj, self.v_proj))"
    },
    "heads-fused-per-head": {
        (
            "nano",
            "CausalSelfAttention",
            "qkv",
        ): "q, k, v = (y.reshape(B, T, C) for y in self.c_attn(x).view(B, T, self.n_head, 3, -1).unbind(3))"
    },
    "heads-v-unprojected": {
        ("np", "multi_head_attention", "v"): "v = x[..., : w_v.shape[-1]]",
        ("torch", "MultiHeadAttention", "qkv"): "q, k, v = self.q_proj(x), self.k_proj(x), x",
    },
    "heads-rows-for-tokens": {
        (
            "torch",
            "MultiHeadAttention",
            "qkv",
        ): "x = x.transpose(0, 1)\n        t, b, d = x.shape\n        q, k, v = (p(x).view(t, b, self.num_heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))\n        y = attention(q, k, v, causal(b, b), self.num_heads).transpose(1, 2).reshape(t, b, d)\n        return self.out_proj(y).transpose(0, 1)"
    },
    "cache-forgotten": {
        (
            "np",
            "cached_attention",
            "k-cat",
        ): "pass\n    return attention(q, k, v, causal_mask(q.shape[-2], k.shape[-2]))"
    },
    "cache-new-first": {
        (
            "torch",
            "cached_attention",
            "k-cat",
        ): "k = torch.cat((k, past_k), dim=-2)\n    v = torch.cat((v, past_v), dim=-2)\n    return attention(q, k, v, causal(q.size(-2), k.size(-2)))"
    },
    "cache-not-appended": {
        (
            "torch",
            "cached_attention",
            "k-cat",
        ): "k, v = past_k, past_v\n    return attention(q, k, v, causal(q.size(-2), k.size(-2)))"
    },
    "cache-overwritten": {
        (
            "np",
            "cached_attention",
            "k-cat",
        ): "past_k, past_v = past_k[..., :-1, :], past_v[..., :-1, :]\n    k = np.concatenate((past_k, k), axis=-2)"
    },
    "cache-first-lost": {
        (
            "np",
            "cached_attention",
            "k-cat",
        ): "past_k, past_v = past_k[..., 1:, :], past_v[..., 1:, :]\n    k = np.concatenate((past_k, k), axis=-2)"
    },
    "cache-values-misplaced": {("np", "cached_attention", "v-cat"): "v = np.concatenate((v, past_v), axis=-2)"},
}
POSITIONS = {
    "rotary-start-ignored": {
        ("np", "rotary", "positions"): "positions = np.arange(n_tokens)",
        ("torch", "rotary", "positions"): "positions = torch.arange(t, dtype=torch.float64)",
    },
    "rotary-from-one": {
        ("np", "rotary", "positions"): "positions = start + np.arange(1, n_tokens + 1)",
        ("torch", "rotary", "positions"): "positions = 1 + torch.arange(start, start + t, dtype=torch.float64)",
    },
    "rotary-start-less-one": {("np", "rotary", "positions"): "positions = max(start - 1, 0) + np.arange(n_tokens)"},
    "rotary-last-first": {("np", "rotary", "positions"): "positions = start + np.arange(n_tokens)[::-1]"},
    "rotary-backwards": {
        ("np", "rotary", "wave"): "cos, sin = np.cos(-angle), np.sin(-angle)",
        (
            "torch",
            "rotary",
            "turn",
        ): "return torch.stack((a * cos + b * sin, b * cos - a * sin), dim=-1).flatten(-2).to(x.dtype)",
    },
    "rotary-minus": {
        ("np", "rotary", "turn"): "return np.concatenate((a * cos + b * sin, b * cos + a * sin), axis=-1)"
    },
    "rotary-minus-below": {
        (
            "torch",
            "rotary",
            "turn",
        ): "return torch.stack((a * cos - b * sin, b * cos - a * sin), dim=-1).flatten(-2).to(x.dtype)"
    },
    "rotary-second-turned-from-first": {
        (
            "np",
            "rotary",
            "turn",
        ): "a = a * cos - b * sin\n    b = b * cos + a * sin\n    return np.concatenate((a, b), axis=-1)"
    },
    "rotary-sine-for-cosine": {
        ("np", "rotary", "wave"): "sin, cos = np.cos(angle), np.sin(angle)",
        ("torch", "rotary", "wave"): "cos, sin = angle.sin(), angle.cos()",
    },
    "rotary-degrees": {
        ("np", "rotary", "wave"): "cos, sin = np.cos(np.radians(angle)), np.sin(np.radians(angle))",
        ("torch", "rotary", "wave"): "angle = torch.deg2rad(angle)\n    cos, sin = angle.cos(), angle.sin()",
    },
    "rotary-no-pair-doubling": {
        ("np", "rotary", "frequencies"): "frequencies = theta ** (-np.arange(width // 2) / width)",
        ("torch", "rotary", "frequencies"): "freqs = theta ** (-torch.arange(d // 2, dtype=torch.float64) / d)",
    },
    "rotary-half-width": {
        ("np", "rotary", "frequencies"): "frequencies = theta ** (-np.arange(0, width, 2) / (width // 2))",
        ("torch", "rotary", "frequencies"): "freqs = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / (d / 2))",
    },
    "rotary-whole-division": {
        ("np", "rotary", "frequencies"): "frequencies = theta ** -(np.arange(0, width, 2) // width * 1.0)",
        ("torch", "rotary", "frequencies"): "freqs = theta ** -(torch.arange(0, d, 2) // d).double()",
    },
    "rotary-positive-exponent": {
        ("np", "rotary", "frequencies"): "frequencies = theta ** (np.arange(0, width, 2) / width)"
    },
    "rotary-theta-1000": {
        ("np", "rotary", "frequencies"): "frequencies = (theta / 10) ** (-np.arange(0, width, 2) / width)"
    },
    "rotary-theta-fixed": {
        ("np", "rotary", "frequencies"): "frequencies = 10000.0 ** (-np.arange(0, width, 2) / width)"
    },
    "rotary-pairs-mixed": {
        (
            "np",
            "rotary",
            "turn",
        ): "cos, sin = np.repeat(cos, 2, -1), np.repeat(sin, 2, -1)\n    return x * cos + np.concatenate((-b, a), axis=-1) * sin"
    },
    "rotary-order-mixed": {
        ("torch", "rotary", "turn"): "return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)"
    },
    "rotary-half-turned": {("np", "rotary", "turn"): "return np.concatenate((a * cos - b * sin, b), axis=-1)"},
    "rotary-float16-positions": {
        (
            "np",
            "rotary",
            "positions",
        ): "positions = (start + np.arange(n_tokens)).astype(np.float16).astype(np.float64)",
        ("torch", "rotary", "positions"): "positions = torch.arange(start, start + t).half().double()",
    },
    "rotary-bfloat16-positions": {
        ("torch", "rotary", "positions"): "positions = torch.arange(start, start + t).bfloat16().double()"
    },
    "rotary-not-turned": {("np", "rotary", "turn"): "return x"},
    "embed-start-ignored": {("np", "embed", "stands"): "positions = np.arange(ids.shape[-1])"},
    "embed-from-one": {
        ("np", "embed", "stands"): "positions = start + 1 + np.arange(ids.shape[-1])",
        ("torch", "GPT", "stands"): "positions = torch.arange(1, tokens.size(1) + 1).clamp(max=10)",
    },
    "embed-all-at-0": {
        ("nano", "GPT", "stands"): "pos = torch.zeros(t, dtype=torch.long)",
        ("torch", "GPT", "stands"): "positions = torch.tensor(0)",
    },
    "embed-all-at-start": {("np", "embed", "stands"): "positions = start"},
    "embed-backwards": {("nano", "GPT", "stands"): "pos = torch.arange(t - 1, -1, -1)"},
    "embed-no-positions": {
        ("np", "embed", "sum"): "return token_table[ids]",
        ("torch", "GPT", "sum"): "x = self.token_embedding(tokens)",
        ("nano", "GPT", "sum"): "x = self.transformer.drop(self.transformer.wte(idx))",
    },
    "embed-multiplied": {
        ("np", "embed", "sum"): "return token_table[ids] * position_table[positions]",
        ("nano", "GPT", "sum"): "x = self.transformer.wte(idx) * self.transformer.wpe(pos)",
    },
    "embed-scaled": {
        (
            "np",
            "embed",
            "sum",
        ): "return token_table[ids] * math.sqrt(token_table.shape[-1]) + position_table[positions]",
        (
            "torch",
            "GPT",
            "sum",
        ): "x = self.token_embedding(tokens) * math.sqrt(self.token_embedding.embedding_dim) + self.position_embedding(positions)",
    },
    "embed-shrunk": {
        (
            "nano",
            "GPT",
            "sum",
        ): "x = self.transformer.wte(idx) / math.sqrt(self.config.n_embd) + self.transformer.wpe(pos)"
    },
    "embed-positions-scaled": {
        (
            "torch",
            "GPT",
            "sum",
        ): "x = (self.token_embedding(tokens) + self.position_embedding(positions)) * math.sqrt(self.token_embedding.embedding_dim)"
    },
    "embed-positions-alone": {
        ("np", "embed", "sum"): "return np.broadcast_to(position_table[positions], (*ids.shape, token_table.shape[-1]))"
    },
    "sinusoids-halves": {
        ("np", "sinusoids", "table-lay"): "table = np.concatenate((np.sin(angle), np.cos(angle)), axis=-1)"
    },
    "sinusoids-changed-places": {
        ("np", "sinusoids", "table-lay"): "table[:, 1::2] = np.sin(angle)\n    table[:, 0::2] = np.cos(angle)"
    },
    "sinusoids-from-one": {("np", "sinusoids", "table-positions"): "positions = np.arange(1, n_tokens + 1)"},
    "sinusoids-no-doubling": {
        ("np", "sinusoids", "table-frequencies"): "frequencies = 10000.0 ** (-np.arange(width // 2) / width)"
    },
    "sinusoids-doubled-twice": {
        ("np", "sinusoids", "table-frequencies"): "frequencies = 10000.0 ** (-2 * np.arange(0, width, 2) / width)"
    },
    "sinusoids-base-1000": {
        ("np", "sinusoids", "table-frequencies"): "frequencies = 1000.0 ** (-np.arange(0, width, 2) / width)"
    },
    "sinusoids-all-sine": {
        ("np", "sinusoids", "table-lay"): "table[:, 0::2] = np.sin(angle)\n    table[:, 1::2] = np.sin(angle)"
    },
    "sinusoids-positive-exponent": {
        ("np", "sinusoids", "table-frequencies"): "frequencies = 10000.0 ** (np.arange(0, width, 2) / width)"
    },
    "sinusoids-own-cosine-frequency": {
        (
            "np",
            "sinusoids",
            "table-lay",
        ): "table[:, 0::2] = np.sin(angle)\n    table[:, 1::2] = np.cos(positions[:, None] * 10000.0 ** (-np.arange(1, width, 2) / width))"
    },
}


def plant_all(*groups: dict[str, dict[tuple[str, str, str], str]]) -> None:
    for group in groups:
        for key, each in group.items():
            for (file, thing, line), new in each.items():
                plant(key, thing, file, line, new)


plant_all(NORMS, ACTIVATIONS, SOFTMAX, ATTENTION, HEADS, POSITIONS)

"""Mistakes as people make them, planted into the correct implementations: a line of theirs and what stands there instead.

Each: the entry that should be named, the thing that is checked, the implementation, the line as it is, the line planted.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent / "implementations"
FILES = {
    "np": HERE / "in_numpy.py",
    "torch": HERE / "in_torch.py",
    "nano": HERE / "as_nanogpt.py",
    "other": HERE / "in_other_ways.py",
}


@dataclass(frozen=True)
class Plant:
    key: str
    thing: str
    file: str
    old: str
    new: str

    @property
    def text(self) -> str:
        """The file with the mistake in it."""
        whole = FILES[self.file].read_text(encoding="utf-8")
        assert self.old in whole, self
        return whole.replace(self.old, self.new)


PLANTS: list[Plant] = []
# The lines that mistakes are made in, by file: what stands there when it is right.
LINES = {
    ("np", "variance"): "variance = (centred**2).mean(axis=-1, keepdims=True)",
    ("np", "normed"): "normed = centred / np.sqrt(variance + eps)",
    ("np", "affine"): "return normed * gain + bias",
    ("np", "mean"): "mean = x.mean(axis=-1, keepdims=True)\n    centred",
    ("torch", "variance"): "var = x.var(-1, keepdim=True, unbiased=False)",
    ("torch", "normed"): "y = (x - mean) / torch.sqrt(var + eps)",
    ("torch", "affine"): "return y * gamma + beta",
    ("nano", "variance"): "s = (x - u).pow(2).mean(-1, keepdim=True)",
    ("nano", "normed"): "x = (x - u) / torch.sqrt(s + 1e-5)",
    ("nano", "affine"): "return self.weight * x + self.bias",
    ("np", "square"): "square = (x**2).mean(axis=-1, keepdims=True)",
    ("np", "rms"): "normed = x / np.sqrt(square + eps)",
    ("np", "rms-gain"): "return normed * gain\n",
    ("torch", "rms"): "y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)",
    ("torch", "rms-gain"): "return y * weight\n",
    ("np", "gelu"): "return 0.5 * x * (1 + np.tanh(inner))",
    ("np", "inner"): "inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)",
    ("torch", "gelu"): "return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))",
    ("nano", "gelu"): "x = self.gelu(x)",
    ("np", "e"): "e = np.exp(x - x.max(axis=axis, keepdims=True))",
    ("np", "share"): "return e / e.sum(axis=axis, keepdims=True)",
    ("torch", "e"): "e = torch.exp(x - x.amax(dim, keepdim=True))",
    ("torch", "share"): "return e / e.sum(dim, keepdim=True)",
    ("np", "scores"): "scores = q @ k.swapaxes(-1, -2)",
    ("np", "scale"): "scores = scores / np.sqrt(d_head)",
    ("np", "mask"): "scores = np.where(allowed, scores, -np.inf)",
    ("np", "weights"): "weights = softmax(scores)",
    ("np", "mix"): "return weights @ v\n",
    ("np", "causal"): "return np.tril(np.ones((n_queries, n_keys), bool), n_keys - n_queries)",
    ("torch", "scores"): "att = q @ k.transpose(-2, -1)\n",
    ("torch", "scale"): "att = att * q.size(-1) ** -0.5",
    ("torch", "mask"): 'att = att.masked_fill(~mask, float("-inf"))',
    ("torch", "weights"): "att = F.softmax(att, dim=-1)",
    ("torch", "mix"): "return att @ v\n",
    ("torch", "causal"): "return torch.ones(t, s, dtype=torch.bool).tril(s - t)",
    ("nano", "scores"): "att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))",
    ("nano", "mask"): 'att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))',
    ("nano", "weights"): "att = F.softmax(att, dim=-1)",
    ("nano", "mix"): "y = att @ v",
    ("nano", "causal"): "mask = torch.tril(torch.ones(config.block_size, config.block_size))",
    ("np", "split"): "return x.reshape(*x.shape[:-1], n_heads, -1).swapaxes(-2, -3)",
    ("np", "join"): "x = x.swapaxes(-2, -3)\n    return x.reshape(*x.shape[:-2], -1)",
    ("np", "repeat"): "return np.repeat(x, times, axis=-3)",
    ("np", "out"): "return out @ w_o + b_o",
    ("np", "q"): "q = x @ w_q + b_q",
    ("np", "k"): "k = x @ w_k + b_k",
    ("np", "v"): "v = x @ w_v + b_v",
    ("np", "called"): "out = attention(q, k, v, allowed, n_heads)",
    ("torch", "join"): "out = out.transpose(1, 2).reshape(b, t, d)",
    ("torch", "out"): "return self.out_proj(out)",
    ("torch", "qkv"): "q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)",
    ("torch", "q-view"): "q = q.view(b, t, self.num_heads, -1).transpose(1, 2)",
    ("torch", "k-view"): "k = k.view(b, t, self.num_heads, -1).transpose(1, 2)",
    ("torch", "v-view"): "v = v.view(b, t, self.num_heads, -1).transpose(1, 2)",
    ("torch", "called"): "out = attention(q, k, v, causal(t, t) if mask is None else mask, self.num_heads)",
    ("nano", "join"): "y = y.transpose(1, 2).contiguous().view(B, T, C)",
    ("nano", "out"): "return self.resid_dropout(self.c_proj(y))",
    ("nano", "qkv"): "q, k, v = self.c_attn(x).split(self.n_embd, dim=2)",
    ("np", "k-cat"): "k = np.concatenate((past_k, k), axis=-2)",
    ("np", "v-cat"): "v = np.concatenate((past_v, v), axis=-2)",
    ("torch", "k-cat"): "k = torch.cat((past_k, k), dim=-2)",
    ("torch", "v-cat"): "v = torch.cat((past_v, v), dim=-2)",
    ("np", "positions"): "positions = start + np.arange(n_tokens)",
    ("np", "frequencies"): "frequencies = theta ** (-np.arange(0, width, 2) / width)",
    ("np", "wave"): "cos, sin = np.cos(angle), np.sin(angle)",
    ("np", "pairs"): "a, b = x[..., : width // 2], x[..., width // 2 :]",
    ("np", "turn"): "return np.concatenate((a * cos - b * sin, b * cos + a * sin), axis=-1)",
    ("torch", "positions"): "positions = torch.arange(start, start + t, dtype=torch.float64)",
    ("torch", "frequencies"): "freqs = theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)",
    ("torch", "wave"): "cos, sin = angle.cos(), angle.sin()",
    ("torch", "turn"): "return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2).to(x.dtype)",
    ("np", "stands"): "positions = start + np.arange(ids.shape[-1])",
    ("np", "sum"): "return token_table[ids] + position_table[positions]",
    ("torch", "stands"): "positions = torch.arange(tokens.size(1))",
    ("torch", "sum"): "x = self.token_embedding(tokens) + self.position_embedding(positions)",
    ("nano", "stands"): "pos = torch.arange(0, t, dtype=torch.long)",
    ("nano", "sum"): "x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))",
    ("np", "table-positions"): "positions = np.arange(n_tokens)\n",
    ("np", "table-frequencies"): "frequencies = 10000.0 ** (-np.arange(0, width, 2) / width)",
    ("np", "table-lay"): "table[:, 0::2] = np.sin(angle)\n    table[:, 1::2] = np.cos(angle)",
    ("np", "up"): "hidden = x @ w_up + b_up",
    ("np", "act"): "hidden = gelu(hidden)",
    ("np", "down"): "return hidden @ w_down + b_down",
    ("torch", "fed"): "return self.linear2(gelu(self.linear1(x)))",
    ("nano", "up"): "x = self.c_fc(x)\n",
    ("nano", "fed"): "x = self.c_fc(x)\n        x = self.gelu(x)\n        x = self.c_proj(x)",
    ("np", "gated"): "return (silu(x @ w_gate) * (x @ w_up)) @ w_down",
    ("torch", "gated"): "return (F.silu(x @ w_gate) * (x @ w_up)) @ w_down",
    ("torch", "first"): "x = x + self.attention(self.ln1(x), mask)",
    ("torch", "second"): "x = x + self.mlp(self.ln2(x))",
    ("nano", "first"): "x = x + self.attn(self.ln_1(x))",
    ("nano", "second"): "x = x + self.mlp(self.ln_2(x))",
    ("other", "head"): "logits = self.lm_head(self.ln_f(self.blocks(x)))",
    ("torch", "pair"): "x = x + self.attention(self.ln1(x), mask)\n        x = x + self.mlp(self.ln2(x))",
    ("nano", "pair"): "x = x + self.attn(self.ln_1(x))\n        x = x + self.mlp(self.ln_2(x))",
    ("torch", "blocks"): "for block in self.blocks:\n            x = block(x)",
    ("torch", "last"): "x = self.ln_f(x)",
    ("torch", "head"): "return self.lm_head(x)",
    ("nano", "blocks"): "for block in self.transformer.h:\n            x = block(x)",
    ("nano", "last"): "x = self.transformer.ln_f(x)",
    ("nano", "head"): "logits = self.lm_head(x)",
    ("np", "each"): "each = -np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]",
    ("np", "real"): "real = np.ones(targets.shape) if ignore_index is None else targets != ignore_index",
    ("np", "loss"): "return (each * real).sum() / real.sum()",
    ("np", "log"): "return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))",
    ("np", "shifted"): "shifted = x - x.max(axis=-1, keepdims=True)",
    ("np", "log-p"): "log_p = log_softmax(logits)",
    ("np", "shift"): "logits, targets = logits[..., :-1, :], tokens[..., 1:]",
    ("torch", "each"): "each = torch.logsumexp(logits, -1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)",
    ("torch", "loss"): "return each.mean()",
    ("torch", "real"): "return each[real].mean()",
    ("torch", "shift"): "inputs, targets = logits[..., :-1, :], tokens[..., 1:]",
    ("np", "best"): 'best = np.argsort(-scores, axis=-1, kind="stable")[:, :k]',
    ("np", "gates"): "return softmax(np.where(mask, scores, -np.inf))",
    ("torch", "best"): "best, where = torch.topk(scores, k, dim=-1)",
    ("torch", "gates"): "return gates.scatter(-1, where, F.softmax(best, dim=-1))",
    ("np", "f"): "share = chosen(scores, k).mean(axis=0) / k",
    ("np", "P"): "given = softmax(scores).mean(axis=0)",
    ("np", "balance"): "return scores.shape[-1] * (share * given).sum()",
    ("torch", "f"): "share = counts.mean(0) / k",
    ("torch", "P"): "given = F.softmax(scores, dim=-1).mean(0)",
    ("torch", "balance"): "return scores.size(-1) * (share * given).sum()",
    ("np", "rows"): "return np.stack([row_probabilities(row, temperature, top_k, top_p) for row in rows])",
    ("np", "warm"): "p = softmax(logits / temperature)",
    ("np", "top-k"): "best[top_k:] = 0\n        best = best / best.sum()",
    ("np", "top-p"): "best = best * (best.cumsum() - best < top_p)",
    ("np", "p-out"): "out[order] = best\n    return out",
    ("np", "draw"): "return np.array([(rng or np.random).choice(len(row), p=row) for row in p])",
    ("torch", "warm"): "logits = logits / temperature",
    ("torch", "top-k"): 'logits = logits.masked_fill(logits < kth, float("-inf"))',
    ("torch", "kth"): "kth = torch.topk(logits, top_k, dim=-1).values[..., -1:]",
    ("torch", "top-p"): "ordered = ordered.masked_fill(before >= top_p, 0.0)",
    ("torch", "before"): "before = ordered.cumsum(-1) - ordered",
    ("torch", "p-out"): "return torch.zeros_like(p).scatter(-1, where, ordered)",
    ("torch", "draw"): "return torch.multinomial(p, 1).squeeze(-1)",
    ("np", "training"): "if not training:\n        return x\n    kept = (rng",
    ("np", "kept"): "kept = (rng or np.random).random(x.shape) >= p",
    ("np", "dropped"): "return x * kept / (1 - p)",
    ("torch", "training"): "if not training:\n        return x\n    kept = torch",
    ("torch", "kept"): "kept = torch.rand_like(x) >= p",
    ("torch", "dropped"): "return x * kept / (1 - p)",
    ("np", "added"): "total = total + grad / len(grads)",
    ("np", "step"): "for grad in grads:\n        w = w - lr * grad\n    return w",
    ("np", "clipped"): "return grads * min(1.0, max_norm / norm)",
    ("np", "norm"): "norm = np.sqrt((grads**2).sum())",
    ("np", "dx"): "dx = (g - g.mean(-1, keepdims=True) - normed * (g * normed).mean(-1, keepdims=True)) / spread",
}


def plant(key: str, thing: str, file: str, line: str, new: str) -> None:
    old = LINES[file, line]
    if old.endswith("\n") and not new.endswith("\n"):
        new += "\n"
    PLANTS.append(Plant(key, thing, file, old, new))

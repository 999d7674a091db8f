"""More mistakes that are planted: feed-forwards, residuals, decoders, losses, experts, sampling, around a pass."""

from __future__ import annotations

import planted_study
from planted_mistakes import plant_all

assert planted_study  # planting is done as it is imported

FED = {
    "ff-no-activation": {
        ("np", "feed_forward", "act"): "pass",
        ("torch", "MLP", "fed"): "return self.linear2(self.linear1(x))",
        ("nano", "Block", "gelu"): "pass",
    },
    "ff-activation-last": {
        ("torch", "MLP", "fed"): "return gelu(self.linear2(self.linear1(x)))",
        ("nano", "MLP", "fed"): "x = self.gelu(self.c_proj(self.c_fc(x)))",
    },
    "ff-activation-twice": {
        ("torch", "MLP", "fed"): "return gelu(self.linear2(gelu(self.linear1(x))))",
        ("nano", "MLP", "fed"): "x = self.gelu(self.c_proj(self.gelu(self.c_fc(x))))",
    },
    "ff-activation-first": {("torch", "MLP", "fed"): "return self.linear2(self.linear1(gelu(x)))"},
    "ff-up-no-bias": {
        ("np", "feed_forward", "up"): "hidden = x @ w_up",
        ("nano", "MLP", "up"): "x = F.linear(x, self.c_fc.weight)",
    },
    "ff-down-no-bias": {
        ("np", "feed_forward", "down"): "return hidden @ w_down",
        ("torch", "TransformerBlock", "fed"): "return F.linear(gelu(self.linear1(x)), self.linear2.weight)",
    },
    "ff-residual-inside": {
        ("torch", "MLP", "fed"): "return x + self.linear2(gelu(self.linear1(x)))",
        ("nano", "Block", "fed"): "x = x + self.c_proj(self.gelu(self.c_fc(x)))",
    },
    "ff-softmax": {("np", "feed_forward", "act"): "hidden = softmax(hidden)"},
    "ff-gate-on-up": {
        ("np", "swiglu", "gated"): "return ((x @ w_gate) * silu(x @ w_up)) @ w_down",
        ("torch", "swiglu", "gated"): "return ((x @ w_gate) * F.silu(x @ w_up)) @ w_down",
    },
    "ff-gate-plain": {("np", "swiglu", "gated"): "return ((x @ w_gate) * (x @ w_up)) @ w_down"},
    "ff-gate-added": {("torch", "swiglu", "gated"): "return (F.silu(x @ w_gate) + (x @ w_up)) @ w_down"},
    "ff-gate-sigmoid": {("torch", "swiglu", "gated"): "return (torch.sigmoid(x @ w_gate) * (x @ w_up)) @ w_down"},
    "ff-gate-whole": {("np", "swiglu", "gated"): "return silu((x @ w_gate) * (x @ w_up)) @ w_down"},
}
FIRST, SECOND = ("torch", "TransformerBlock", "first"), ("torch", "TransformerBlock", "second")
ONE, TWO = ("nano", "Block", "first"), ("nano", "Block", "second")
BOTH = "x = x + self.mlp(self.ln_2(x))"
RESIDUALS = {
    "residual-attention-post": {
        FIRST: "x = self.ln1(x + self.attention(x, mask))",
        ONE: "x = self.ln_1(x + self.attn(x))",
    },
    "residual-feed-forward-post": {SECOND: "x = self.ln2(x + self.mlp(x))", TWO: "x = self.ln_2(x + self.mlp(x))"},
    "residual-attention-missing": {FIRST: "x = self.attention(self.ln1(x), mask)", ONE: "x = self.attn(self.ln_1(x))"},
    "residual-feed-forward-missing": {SECOND: "x = self.mlp(self.ln2(x))", TWO: "x = self.mlp(self.ln_2(x))"},
    "residual-attention-normed": {
        FIRST: "x = self.ln1(x)\n        x = x + self.attention(x, mask)",
        ONE: "x = self.ln_1(x)\n        x = x + self.attn(x)",
    },
    "residual-feed-forward-normed": {SECOND: "x = self.ln2(x)\n        x = x + self.mlp(x)"},
    "residual-attention-no-norm": {FIRST: "x = x + self.attention(x, mask)", ONE: "x = x + self.attn(x)"},
    "residual-feed-forward-no-norm": {SECOND: "x = x + self.mlp(x)", TWO: "x = x + self.mlp(x)"},
    "residual-attention-norm-out": {ONE: "x = x + self.ln_1(self.attn(x))"},
    "residual-feed-forward-norm-out": {SECOND: "x = x + self.ln2(self.mlp(x))"},
    "residual-attention-twice": {FIRST: "x = x + x + self.attention(self.ln1(x), mask)"},
    "residual-feed-forward-minus": {TWO: "x = x - self.mlp(self.ln_2(x))"},
    "residual-attention-sandwich": {ONE: "x = self.ln_1(x + self.attn(self.ln_1(x)))"},
    "residual-feed-forward-twice": {TWO: "x = x + x + self.mlp(self.ln_2(x))"},
    "residual-attention-minus": {FIRST: "x = x - self.attention(self.ln1(x), mask)"},
    "residual-feed-forward-sandwich": {SECOND: "x = self.ln2(x + self.mlp(self.ln2(x)))"},
    "residual-twice": {
        ("nano", "Block", "pair"): "x = 2 * x + self.attn(self.ln_1(x))\n        x = 2 * x + self.mlp(self.ln_2(x))"
    },
    "residual-minus": {
        (
            "torch",
            "TransformerBlock",
            "pair",
        ): "x = x - self.attention(self.ln1(x), mask)\n        x = x - self.mlp(self.ln2(x))"
    },
    "residual-sandwich": {
        (
            "nano",
            "Block",
            "pair",
        ): "x = self.ln_1(x + self.attn(self.ln_1(x)))\n        x = self.ln_2(x + self.mlp(self.ln_2(x)))"
    },
    "residual-attention-normed-alone": {FIRST: "x = self.ln1(x) + self.attention(x, mask)"},
    "residual-feed-forward-normed-alone": {TWO: "x = self.ln_2(x) + self.mlp(x)"},
    "residual-normed-alone": {
        ("nano", "Block", "pair"): "x = self.ln_1(x) + self.attn(x)\n        x = self.ln_2(x) + self.mlp(x)"
    },
    "residual-attention-product": {ONE: "x = x * self.attn(self.ln_1(x))"},
    "residual-feed-forward-product": {SECOND: "x = x * self.mlp(self.ln2(x))"},
    "residual-product": {
        ("nano", "Block", "pair"): "x = x * self.attn(self.ln_1(x))\n        x = x * self.mlp(self.ln_2(x))"
    },
    "residual-attention-halved": {FIRST: "x = (x + self.attention(self.ln1(x), mask)) / 2"},
    "residual-feed-forward-halved": {TWO: "x = 0.5 * (x + self.mlp(self.ln_2(x)))"},
    "residual-halved": {
        (
            "torch",
            "TransformerBlock",
            "pair",
        ): "x = (x + self.attention(self.ln1(x), mask)) / 2\n        x = (x + self.mlp(self.ln2(x))) / 2"
    },
    "residual-post": {
        ("nano", "Block", "pair"): "x = self.ln_1(x + self.attn(x))\n        x = self.ln_2(x + self.mlp(x))",
        (
            "torch",
            "TransformerBlock",
            "pair",
        ): "x = self.ln1(x + self.attention(x, mask))\n        x = self.ln2(x + self.mlp(x))",
    },
    "residual-missing": {("nano", "GPT", "pair"): "x = self.attn(self.ln_1(x))\n        x = self.mlp(self.ln_2(x))"},
    "residual-normed": {
        (
            "torch",
            "GPT",
            "pair",
        ): "x = self.ln1(x)\n        x = x + self.attention(x, mask)\n        x = self.ln2(x)\n        x = x + self.mlp(x)"
    },
    "residual-no-norm": {("nano", "Block", "pair"): "x = x + self.attn(x)\n        x = x + self.mlp(x)"},
    "residual-norm-out": {
        (
            "torch",
            "TransformerBlock",
            "pair",
        ): "x = x + self.ln1(self.attention(x, mask))\n        x = x + self.ln2(self.mlp(x))"
    },
    "block-norm-shared": {SECOND: "x = x + self.mlp(self.ln1(x))", TWO: "x = x + self.mlp(self.ln_1(x))"},
    "block-norm-second-shared": {ONE: "x = x + self.attn(self.ln_2(x))"},
    "block-norms-changed-places": {
        ("nano", "Block", "pair"): "x = x + self.attn(self.ln_2(x))\n        x = x + self.mlp(self.ln_1(x))"
    },
    "block-attention-twice": {("nano", "Block", "second"): "x = x + self.attn(self.ln_2(x))"},
    "block-feed-forward-twice": {
        ("torch", "TransformerBlock", "second"): "x = x + self.mlp(self.ln2(x))\n        x = x + self.mlp(self.ln2(x))"
    },
    "block-parallel": {
        ("nano", "Block", "pair"): "x = x + self.attn(self.ln_1(x)) + self.mlp(self.ln_2(x))",
        ("torch", "TransformerBlock", "pair"): "x = x + self.attention(self.ln1(x), mask) + self.mlp(self.ln2(x))",
    },
    "block-feed-forward-first": {
        ("nano", "Block", "pair"): "x = x + self.mlp(self.ln_2(x))\n        x = x + self.attn(self.ln_1(x))"
    },
    "block-from-input": {
        (
            "torch",
            "TransformerBlock",
            "pair",
        ): "y = x + self.attention(self.ln1(x), mask)\n        x = x + self.mlp(self.ln2(y))"
    },
    "block-input-twice": {
        ("nano", "Block", "pair"): "y = x + self.attn(self.ln_1(x))\n        x = x + y + self.mlp(self.ln_2(y))"
    },
    "block-no-feed-forward": {TWO: "pass", ("torch", "GPT", "second"): "pass"},
    "block-no-attention": {FIRST: "pass", ("nano", "GPT", "first"): "pass"},
    "block-one-residual": {
        ("torch", "TransformerBlock", "pair"): "x = x + self.mlp(self.ln2(self.attention(self.ln1(x), mask)))"
    },
}
DECODERS = {
    "gpt-no-last-norm": {("torch", "GPT", "last"): "pass", ("nano", "GPT", "last"): "pass"},
    "gpt-head-no-bias": {
        ("other", "GPTLanguageModel", "head"): "logits = F.linear(self.ln_f(self.blocks(x)), self.lm_head.weight)"
    },
    "gpt-softmax": {
        ("torch", "GPT", "head"): "return F.softmax(self.lm_head(x), dim=-1)",
        ("nano", "GPT", "head"): "logits = self.lm_head(x).softmax(-1)",
    },
    "gpt-log-softmax": {("torch", "GPT", "head"): "return F.log_softmax(self.lm_head(x), dim=-1)"},
    "gpt-first-block-only": {
        ("nano", "GPT", "blocks"): "for _ in self.transformer.h:\n            x = self.transformer.h[0](x)"
    },
    "gpt-last-block-only": {
        ("torch", "GPT", "blocks"): "for block in self.blocks:\n            x = self.blocks[-1](x)"
    },
    "gpt-last-block-lost": {("torch", "GPT", "blocks"): "for block in self.blocks[:-1]:\n            x = block(x)"},
    "gpt-first-block-lost": {
        ("nano", "GPT", "blocks"): "for block in self.transformer.h[1:]:\n            x = block(x)"
    },
    "gpt-blocks-twice": {("torch", "GPT", "blocks"): "for block in self.blocks:\n            x = block(block(x))"},
    "gpt-last-norm-added": {("nano", "GPT", "last"): "x = self.transformer.ln_f(x) + x"},
    "gpt-blocks-reversed": {
        ("torch", "GPT", "blocks"): "for block in reversed(self.blocks):\n            x = block(x)"
    },
    "gpt-blocks-unheard": {("nano", "GPT", "blocks"): "for block in self.transformer.h:\n            block(x)"},
    "gpt-head-scaled": {("nano", "GPT", "head"): "logits = self.lm_head(x) / math.sqrt(self.config.n_embd)"},
    "gpt-first-norm": {("torch", "GPT", "last"): "x = self.ln_f(self.ln_f(x))"},
}
LOSSES = {
    "loss-sum": {
        ("np", "cross_entropy", "loss"): "return (each * real).sum()",
        (
            "torch",
            "next_token_loss",
            "shift",
        ): "return F.cross_entropy(logits[..., :-1, :].reshape(-1, logits.size(-1)), tokens[..., 1:].reshape(-1), reduction='sum')\n    inputs",
    },
    "loss-sum-of-row": {("np", "cross_entropy", "loss"): "return (each * real).sum(-1).mean()"},
    "loss-mean-of-means": {
        ("np", "cross_entropy", "loss"): "return ((each * real).sum(-1) / np.maximum(real.sum(-1), 1)).mean()"
    },
    "loss-divides-by-all": {
        ("np", "cross_entropy", "loss"): "return (each * real).mean()",
        ("torch", "cross_entropy", "real"): "return (each * real).mean()",
    },
    "loss-padding-counted": {
        ("np", "cross_entropy", "real"): "real = np.ones(targets.shape)",
        ("torch", "cross_entropy", "real"): "return each.mean()",
    },
    "loss-bits": {
        (
            "np",
            "cross_entropy",
            "each",
        ): "each = -np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0] / np.log(2)",
        (
            "torch",
            "cross_entropy",
            "each",
        ): "each = (torch.logsumexp(logits, -1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)) / math.log(2)",
    },
    "loss-base-10": {
        (
            "np",
            "cross_entropy",
            "each",
        ): "each = -np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0] / np.log(10)"
    },
    "loss-no-minus": {
        ("np", "cross_entropy", "each"): "each = np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0]"
    },
    "loss-chance": {
        (
            "np",
            "cross_entropy",
            "each",
        ): "each = -np.exp(np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0])"
    },
    "loss-one-less-chance": {
        (
            "torch",
            "cross_entropy",
            "each",
        ): "each = 1 - F.softmax(logits, -1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)"
    },
    "loss-softmax-twice": {
        ("np", "cross_entropy", "log-p"): "log_p = log_softmax(softmax(logits))",
        (
            "torch",
            "cross_entropy",
            "each",
        ): "logits = F.softmax(logits, -1)\n    each = torch.logsumexp(logits, -1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)",
    },
    "loss-classes-viewed": {
        (
            "torch",
            "cross_entropy",
            "each",
        ): "if logits.dim() == 3:\n        logits = logits.reshape(logits.shape[0], logits.shape[-1], -1).transpose(1, 2)\n    each = torch.logsumexp(logits, -1) - logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)"
    },
    "loss-no-softmax": {("np", "cross_entropy", "log-p"): "log_p = logits"},
    "loss-over-vocabulary": {
        (
            "np",
            "cross_entropy",
            "each",
        ): "each = -np.take_along_axis(log_p, targets[..., None], axis=-1)[..., 0] / logits.shape[-1]"
    },
    "loss-one-hot-squares": {
        ("np", "cross_entropy", "each"): "each = ((softmax(logits) - np.eye(logits.shape[-1])[targets]) ** 2).sum(-1)"
    },
    "loss-perplexity": {("np", "cross_entropy", "loss"): "return np.exp((each * real).sum() / real.sum())"},
    "loss-underflows": {("np", "cross_entropy", "log-p"): "log_p = np.log(softmax(logits))"},
    **{
        f"loss-small-added-1e-{n}": {("np", "cross_entropy", "log-p"): f"log_p = np.log(softmax(logits) + 1e-{n})"}
        for n in (6, 7, 8, 9, 10, 12)
    },
    "loss-overflows": {
        ("np", "cross_entropy", "log-p"): "log_p = np.log(np.exp(logits) / np.exp(logits).sum(-1, keepdims=True))"
    },
    "loss-next-class": {("np", "cross_entropy", "log-p"): "log_p = np.roll(log_softmax(logits), -1, axis=-1)"},
    "shift-none": {
        ("np", "next_token_loss", "shift"): "targets = tokens",
        ("torch", "next_token_loss", "shift"): "inputs, targets = logits, tokens",
    },
    "shift-two": {("np", "next_token_loss", "shift"): "logits, targets = logits[..., :-2, :], tokens[..., 2:]"},
    "shift-backwards": {
        ("torch", "next_token_loss", "shift"): "inputs, targets = logits[..., 1:, :], tokens[..., :-1]"
    },
    "shift-cut-alone": {("np", "next_token_loss", "shift"): "logits, targets = logits[..., :-1, :], tokens[..., :-1]"},
    "shift-cut-first": {("torch", "next_token_loss", "shift"): "inputs, targets = logits[..., 1:, :], tokens[..., 1:]"},
    "shift-rolled": {("np", "next_token_loss", "shift"): "targets = np.roll(tokens, -1, axis=-1)"},
    "shift-rolled-back": {("torch", "next_token_loss", "shift"): "inputs, targets = logits, tokens.roll(1, -1)"},
    "shift-last-alone": {
        ("np", "next_token_loss", "shift"): "logits, targets = logits[..., -2:-1, :], tokens[..., -1:]"
    },
}
EXPERTS = {
    "gates-not-renormalised": {
        ("np", "top_k_gates", "gates"): "return softmax(scores) * mask",
        (
            "torch",
            "top_k_gates",
            "gates",
        ): "return gates.scatter(-1, where, F.softmax(scores, dim=-1).gather(-1, where))",
    },
    "gates-all": {("np", "top_k_gates", "gates"): "return softmax(scores)"},
    "gates-zeros": {("np", "top_k_gates", "gates"): "return softmax(scores * mask)"},
    "gates-one-more": {("np", "top_k_gates", "best"): 'best = np.argsort(-scores, axis=-1, kind="stable")[:, : k + 1]'},
    "gates-one-less": {("torch", "top_k_gates", "best"): "best, where = torch.topk(scores, max(k - 1, 1), dim=-1)"},
    "gates-best-alone": {("torch", "top_k_gates", "best"): "best, where = torch.topk(scores, 1, dim=-1)"},
    "gates-worst": {("torch", "top_k_gates", "best"): "best, where = torch.topk(scores, k, dim=-1, largest=False)"},
    "gates-ties-all": {
        (
            "np",
            "top_k_gates",
            "gates",
        ): "mask = scores >= np.sort(scores, axis=-1)[:, -k][:, None]\n    return softmax(np.where(mask, scores, -np.inf))"
    },
    "gates-ties-last": {
        (
            "np",
            "top_k_gates",
            "best",
        ): 'best = scores.shape[-1] - 1 - np.argsort(-scores[:, ::-1], axis=-1, kind="stable")[:, :k]'
    },
    "gates-sigmoid": {("torch", "top_k_gates", "gates"): "return gates.scatter(-1, where, torch.sigmoid(best))"},
    "gates-sigmoid-shared": {
        (
            "torch",
            "top_k_gates",
            "gates",
        ): "return gates.scatter(-1, where, best.sigmoid() / best.sigmoid().sum(-1, keepdim=True))"
    },
    "gates-scores-shared": {
        ("torch", "top_k_gates", "gates"): "return gates.scatter(-1, where, best / best.sum(-1, keepdim=True))"
    },
    "gates-scores": {("torch", "top_k_gates", "gates"): "return gates.scatter(-1, where, best)"},
    "gates-equal": {("np", "top_k_gates", "gates"): "return mask / mask.sum(-1, keepdims=True)"},
    "gates-divided-by-k": {("np", "top_k_gates", "gates"): "return softmax(np.where(mask, scores, -np.inf)) / k"},
    "gates-ones": {("np", "top_k_gates", "gates"): "return 1.0 * mask"},
    "gates-by-expert": {
        (
            "np",
            "top_k_gates",
            "gates",
        ): "mask = chosen(scores.T, k).T\n    return np.nan_to_num(softmax(np.where(mask, scores, -np.inf)))"
    },
    "gates-doubly-soft": {
        ("torch", "top_k_gates", "best"): "best, where = torch.topk(F.softmax(scores, dim=-1), k, dim=-1)"
    },
    "balance-no-experts": {
        ("np", "balance_loss", "balance"): "return (share * given).sum()",
        ("torch", "balance_loss", "balance"): "return (share * given).sum()",
    },
    "balance-mean": {("np", "balance_loss", "balance"): "return (share * given).mean()"},
    "balance-squared-experts": {
        ("torch", "balance_loss", "balance"): "return scores.size(-1) ** 2 * (share * given).sum()"
    },
    "balance-no-k": {
        ("np", "balance_loss", "f"): "share = chosen(scores, k).mean(axis=0)",
        ("torch", "balance_loss", "f"): "share = counts.mean(0)",
    },
    "balance-counts": {("np", "balance_loss", "f"): "share = chosen(scores, k).sum(axis=0)"},
    "balance-chances-squared": {("torch", "balance_loss", "f"): "share = F.softmax(scores, dim=-1).mean(0)"},
    "balance-gates": {("np", "balance_loss", "P"): "given = top_k_gates(scores, k).mean(axis=0)"},
    "balance-best-alone": {("np", "balance_loss", "f"): "share = chosen(scores, 1).mean(axis=0)"},
    "balance-shares-alone": {("torch", "balance_loss", "P"): "given = share"},
    "balance-scores": {("np", "balance_loss", "P"): "given = scores.mean(axis=0)"},
}
SAMPLED = {
    "sample-temperature-multiplied": {
        ("np", "probabilities", "warm"): "p = softmax(logits * temperature)",
        ("torch", "sample", "warm"): "logits = logits * temperature",
    },
    "sample-temperature-ignored": {
        ("np", "probabilities", "warm"): "p = softmax(logits)",
        ("torch", "probabilities", "warm"): "pass",
    },
    "sample-temperature-squared": {("torch", "probabilities", "warm"): "logits = logits / temperature**2"},
    "sample-temperature-rooted": {("np", "sample", "warm"): "p = softmax(logits / np.sqrt(temperature))"},
    "sample-top-k-one-more": {
        ("np", "probabilities", "top-k"): "best[top_k + 1 :] = 0\n        best = best / best.sum()",
        ("torch", "probabilities", "kth"): "kth = torch.topk(logits, top_k + 1, dim=-1).values[..., -1:]",
    },
    "sample-top-k-one-less": {
        ("np", "probabilities", "top-k"): "best[top_k - 1 :] = 0\n        best = best / best.sum()",
        ("torch", "probabilities", "top-k"): 'logits = logits.masked_fill(logits <= kth, float("-inf"))',
    },
    "sample-top-k-ignored": {("torch", "sample", "top-k"): "pass", ("np", "probabilities", "top-k"): "pass"},
    "sample-top-k-not-renormalised": {
        (
            "np",
            "probabilities",
            "top-k",
        ): "best[top_k:] = 0\n    best = best * (best.cumsum() - best < top_p)\n    out = np.zeros_like(p)\n    out[order] = best\n    return out\n    if top_k is not None:\n        pass"
    },
    "sample-top-k-zero": {("torch", "probabilities", "top-k"): "logits = logits.masked_fill(logits < kth, 0.0)"},
    "sample-top-k-worst": {("np", "probabilities", "top-k"): "best[:-top_k] = 0\n        best = best / best.sum()"},
    "sample-top-p-crossing-dropped": {
        ("np", "probabilities", "top-p"): "stay = best.cumsum() <= top_p\n    stay[0] = True\n    best = best * stay",
        (
            "torch",
            "sample",
            "top-p",
        ): "drop = ordered.cumsum(-1) > top_p + 1e-9\n    drop[..., 0] = False\n    ordered = ordered.masked_fill(drop, 0.0)",
    },
    "sample-top-p-one-more": {
        (
            "torch",
            "probabilities",
            "before",
        ): "before = ordered.cumsum(-1) - ordered - ordered.roll(1, -1)\n    before[..., 0] = 0"
    },
    "sample-top-p-unsorted": {
        (
            "np",
            "probabilities",
            "p-out",
        ): "if top_p < 1:\n        full = np.zeros_like(p)\n        full[order] = p[order] * (np.arange(len(p)) < (top_k or len(p)))\n        full = full / full.sum()\n        full = full * (full.cumsum() - full < top_p)\n        return full / full.sum()\n    out[order] = best\n    return out"
    },
    "sample-top-p-ignored": {("torch", "probabilities", "top-p"): "pass", ("np", "probabilities", "top-p"): "pass"},
    "sample-top-p-floor": {
        ("np", "probabilities", "top-p"): "stay = best > 1 - top_p\n    stay[0] = True\n    best = best * stay"
    },
    "sample-row-0": {
        (
            "np",
            "sample",
            "rows",
        ): "return np.stack([row_probabilities(rows[0], temperature, top_k, top_p) for row in rows])",
        ("torch", "sample", "draw"): "return torch.multinomial(p[:1].expand_as(p), 1).squeeze(-1)",
    },
    "sample-best": {
        ("np", "sample", "draw"): "return p.argmax(-1)",
        ("torch", "sample", "draw"): "return p.argmax(-1)",
    },
    "sample-uniform": {("torch", "sample", "draw"): "return torch.multinomial((p > 0).double(), 1).squeeze(-1)"},
    "sample-slice-order": {("np", "sample", "p-out"): "return best", ("torch", "sample", "p-out"): "return ordered"},
    "sample-temperature-last": {
        (
            "np",
            "probabilities",
            "p-out",
        ): "plain = softmax(logits)[order]\n    keep = np.arange(len(p)) < (top_k or len(p))\n    plain = plain * keep / (plain * keep).sum()\n    keep = keep & (plain.cumsum() - plain < top_p)\n    warm = p[order] * keep\n    out[order] = warm / warm.sum()\n    return out"
    },
    "dropout-in-evaluation": {
        ("np", "dropout", "training"): "kept = (rng",
        ("torch", "dropout", "training"): "kept = torch",
    },
    "dropout-never": {("np", "dropout", "training"): "return x\n    kept = (rng"},
    "dropout-mode-inverted": {("torch", "dropout", "training"): "if training:\n        return x\n    kept = torch"},
    "dropout-not-scaled": {
        ("np", "dropout", "dropped"): "return x * kept",
        ("torch", "dropout", "dropped"): "return x * kept",
    },
    "dropout-scaled-down": {("torch", "dropout", "dropped"): "return x * kept * (1 - p)"},
    "dropout-divided-by-p": {("np", "dropout", "dropped"): "return x * kept / p"},
    "dropout-keeps-p": {("np", "dropout", "kept"): "p = 1 - p\n    kept = (rng or np.random).random(x.shape) >= p"},
    "dropout-keeps-p-not-scaled": {("torch", "dropout", "kept"): "kept = torch.rand_like(x) < p"},
    "accumulate-first": {("np", "accumulate_gradients", "added"): "return grads[0]"},
    "accumulate-sum": {("np", "accumulate_gradients", "added"): "total = total + grad"},
    "accumulate-last": {("np", "accumulate_gradients", "added"): "total = grad"},
    "accumulate-last-divided": {("np", "accumulate_gradients", "added"): "total = grad / len(grads)"},
    "accumulate-divided-twice": {("np", "accumulate_gradients", "added"): "total = total + grad / len(grads) ** 2"},
    "sgd-not-zeroed": {
        (
            "np",
            "sgd_steps",
            "step",
        ): "total = 0\n    for grad in grads:\n        total = total + grad\n        w = w - lr * total\n    return w"
    },
    "sgd-uphill": {("np", "sgd_steps", "step"): "for grad in grads:\n        w = w + lr * grad\n    return w"},
    "sgd-last": {("np", "sgd_steps", "step"): "for grad in grads:\n        new = w - lr * grad\n    return new"},
    "sgd-mean": {("np", "sgd_steps", "step"): "return w - lr * grads.mean(0)"},
    "sgd-no-rate": {("np", "sgd_steps", "step"): "return w - grads.sum(0)"},
    "clip-each-value": {("np", "clip_gradients", "clipped"): "return np.clip(grads, -max_norm, max_norm)"},
    "clip-each-row": {
        (
            "np",
            "clip_gradients",
            "norm",
        ): "norm = np.sqrt((grads**2).sum(-1, keepdims=True))\n    return grads * np.minimum(1.0, max_norm / norm)"
    },
    "clip-always": {("np", "clip_gradients", "clipped"): "return grads * max_norm / norm"},
    "clip-largest": {("np", "clip_gradients", "norm"): "norm = np.abs(grads).max()"},
    "clip-no-root": {("np", "clip_gradients", "norm"): "norm = (grads**2).sum()"},
    "clip-to-one": {("np", "clip_gradients", "clipped"): "return grads / norm if norm > max_norm else grads"},
}
plant_all(FED, RESIDUALS, DECODERS, LOSSES, EXPERTS, SAMPLED)

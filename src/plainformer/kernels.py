"""The formulas again, on PyTorch tensors: fast, differentiable, in any dtype. Tests hold each to its twin.

B batch, T new positions, S all positions, H heads, G kv heads, K d_head, J d_value, E experts, N tokens of all rows,
R rows of positions: B, or 1 where all rows stand together.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, log, pi
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor

from plainformer import spec as s
from plainformer.faults import refuse


def frequencies(rotary: s.Rotary, n_tokens: int = 0) -> Tensor:
    """Radians a position for each pair, (n_dims / 2,), float64: the stretched theta^(-2i / n_dims)."""
    n, scaling = rotary.n_dims, rotary.scaling
    pairs = torch.arange(0, n, 2, dtype=torch.float64)
    turn = rotary.theta ** (-pairs / n)
    if scaling is None:
        return turn
    if scaling.kind == "other":
        raise refuse("Rotary.scaling", scaling.kind, "no rule runs this scaling yet", "it can be sized")
    told = dict(scaling.settings)
    if scaling.kind == "linear":
        return turn / told["factor"]
    first = told["original_max_position_embeddings"]
    if scaling.kind == "dynamic":
        grown = told["factor"] * max(n_tokens, first) / first - (told["factor"] - 1)
        return cast(Tensor, (rotary.theta * grown ** (n / (n - 2))) ** (-pairs / n))
    if scaling.kind == "longrope":
        which = "long_factor" if n_tokens > first else "short_factor"
        return turn / torch.tensor([told[f"{which}.{i}"] for i in range(n // 2)], dtype=torch.float64)
    if scaling.kind == "llama3":
        low, high = told["low_freq_factor"], told["high_freq_factor"]
        kept = (first * turn / (2 * pi) - low) / (high - low)
    else:  # YaRN
        low, high = (
            n * log(first / (told[beta] * 2 * pi)) / (2 * log(rotary.theta)) for beta in ("beta_fast", "beta_slow")
        )
        if told.get("truncate", 1.0):
            low, high = floor(low), ceil(high)
        low, high = max(low, 0), min(high, n - 1)
        kept = 1 - (pairs / 2 - low) / max(high - low, 0.001)
    return torch.lerp(turn / told["factor"], turn, kept.clamp(0, 1))


def stretch(rotary: s.Rotary) -> float:
    """What turned queries and keys are multiplied by: 1 without YaRN and LongRoPE."""
    if rotary.scaling is None or rotary.scaling.kind not in ("yarn", "longrope"):
        return 1.0
    told = dict(rotary.scaling.settings)
    if "attention_factor" in told:
        return told["attention_factor"]
    wide, by, over = 0.1 * max(0.0, log(told["factor"])), told.get("mscale"), told.get("mscale_all_dim")
    return (1 + wide * by) / (1 + wide * over) if by and over else 1 + wide


def rotate(x_BHTK: Tensor, cos: Tensor, sin: Tensor, rotary: s.Rotary) -> Tensor:
    """Turn each pair of the first n_dims; the rest stays as it is. cos, sin: (R, 1, T, n_dims / 2)."""
    n, x_BTHK = rotary.n_dims, x_BHTK.transpose(1, 2)  # as projections lie, so that attention's answer lies so too
    turned, rest, cos, sin = x_BTHK[..., :n], x_BTHK[..., n:], cos.transpose(1, 2), sin.transpose(1, 2)
    a, b = (turned[..., 0::2], turned[..., 1::2]) if rotary.interleaved else turned.chunk(2, -1)
    a, b = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack((a, b), -1).flatten(-2) if rotary.interleaved else torch.cat((a, b), -1)
    return (turned if n == x_BHTK.shape[-1] else torch.cat((turned, rest), -1)).transpose(1, 2)


def normed(part: s.Norm, x: Tensor, gain_W: Tensor | None, bias_W: Tensor | None) -> Tensor:
    """x over its root mean square, or over its standard deviation once its mean is taken off; times gain, plus bias."""
    if part.kind == "layer":
        return F.layer_norm(x, (part.width,), gain_W, bias_W, part.eps)
    gain_W = gain_W if gain_W is None else gain_W.to(x.dtype)  # autocast gives bfloat16 to a float32 gain
    y = F.rms_norm(x, (part.width,), gain_W, part.eps)
    return y if bias_W is None else y + bias_W


def attention(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSJ: Tensor,
    allowed: Tensor,
    scale: float,
    bias: Tensor | None = None,
    softcap: float | None = None,
    sinks_H: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The plain twin of the fused kernel: (output, weights). A query that may see nothing gets weights 0, output 0."""
    n_repeats = q_BHTK.shape[-3] // k_BGSK.shape[-3]
    k_BHSK, v_BHSJ = (y.repeat_interleave(n_repeats, -3) if n_repeats > 1 else y for y in (k_BGSK, v_BGSJ))
    scores_BHTS = q_BHTK @ k_BHSK.transpose(-1, -2) * scale
    scores_BHTS = scores_BHTS if softcap is None else softcap * (scores_BHTS / softcap).tanh()
    closed = ~allowed  # once: autograd keeps it for both
    scores_BHTS = (scores_BHTS if bias is None else scores_BHTS + bias).masked_fill(closed, -torch.inf)
    if sinks_H is None:
        weights_BHTS = scores_BHTS.softmax(-1)
    else:
        sinks_BHT1 = sinks_H[:, None, None].expand(*scores_BHTS.shape[:-1], 1)
        weights_BHTS = torch.cat((scores_BHTS, sinks_BHT1), -1).softmax(-1)[..., :-1]
    weights_BHTS = weights_BHTS.masked_fill(closed, 0)
    return weights_BHTS @ v_BHSJ, weights_BHTS


def fused_attention(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSJ: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> Tensor:
    """The same output without ever holding all weights: also 0 for a query that may see nothing. `causal` only where
    queries and keys are as many."""
    grouped = q_BHTK.shape[1] != k_BGSK.shape[1]
    return F.scaled_dot_product_attention(
        q_BHTK, k_BGSK, v_BGSJ, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def alibi_slopes(n_heads: int) -> Tensor:
    """How fast each head forgets, (H,), float64."""
    power = 1 << (n_heads.bit_length() - 1)
    exponents = [-8 * i / power for i in range(1, power + 1)] + [
        -4 * i / power for i in range(1, 2 * (n_heads - power), 2)
    ]
    return torch.tensor(exponents, dtype=torch.float64).exp2()


def relative_buckets(ago: Tensor, buckets: s.RelativeBias, causal: bool) -> Tensor:
    """Which bucket each distance falls into: near ones have their own, far ones share one by their logarithm."""
    n = buckets.n_buckets if causal else buckets.n_buckets // 2
    far, exact = ago.clamp(min=0) if causal else ago.abs(), n // 2
    share = (far.clamp(min=exact).double() / exact).log() / log(buckets.max_distance / exact)
    shared = (exact + (share * (n - exact)).long()).clamp(max=n - 1)
    return torch.where(far < exact, far, shared) + (0 if causal else n * (ago < 0))


def sinusoids(positions_RT: Tensor, part: s.Sinusoid) -> Tensor:
    """(R, T, width), float64: the sine and cosine of position / 10000^(2i / width), side by side or in halves."""
    n = part.width - 2 if part.layout == "tensor2tensor" else part.width
    pairs = torch.arange(0, part.width, 2, dtype=torch.float64, device=positions_RT.device)
    angle = (positions_RT + part.offset)[..., None] / 10000.0 ** (pairs / n)
    return torch.stack((angle.sin(), angle.cos()), -1 if part.layout == "pairs" else -2).flatten(-2)


def relu_squared(x: Tensor) -> Tensor:
    return F.relu(x).square()


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu_squared": relu_squared,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": gelu_tanh,
    "tanh": torch.tanh,
}


def activated(name: str, gate: Tensor | None, up: Tensor) -> Tensor:
    """A feed-forward's hidden numbers: act(up), or act(gate) * up."""
    if name == "swiglu_clamped" and gate is not None:
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return gate * (1.702 * gate).sigmoid() * (up + 1)
    act = ACTIVATIONS[name]
    return act(up) if gate is None else act(gate) * up


def choose(scores_NE: Tensor, n_chosen: int) -> Tensor:
    """True (N, E) at each token's best n_chosen scores; of equal scores the lower expert's wins."""
    best_NC = scores_NE.sort(dim=-1, descending=True, stable=True).indices[:, :n_chosen]
    return torch.zeros_like(scores_NE, dtype=torch.bool).scatter(1, best_NC, True)


def balance_loss(scores_NE: Tensor, chosen_NE: Tensor, share_E: Tensor | None = None) -> Tensor:
    """E * sum of (share of the choices) * (mean probability): 1 for even traffic. `share_E`: the shares of a larger
    batch of which these tokens are a part."""
    share_E = chosen_NE.to(scores_NE.dtype).mean(0) / chosen_NE[0].sum() if share_E is None else share_E
    return scores_NE.shape[1] * (share_E * scores_NE.softmax(-1).mean(0)).sum()


def cross_entropy(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    """-ln p(target) in nats, (B, T); 0 where the target is -1. The loss is its sum over the number of real targets."""
    nats = F.cross_entropy(logits_BTV.flatten(0, -2), targets_BT.flatten(), ignore_index=-1, reduction="none")
    return nats.view(targets_BT.shape)

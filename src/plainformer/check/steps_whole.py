"""More steps: feed-forward, residuals, a whole decoder, losses, experts, sampling, what happens around a pass.

B rows, T tokens, V vocabulary, E experts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plainformer import formulas as f
from plainformer.check.steps import STEPS as STEPS
from plainformer.check.steps import Array, Doing, Step, last, step

# --- feed-forward and block: weights act as x @ w --------------------------------------------------------------------


@step("ff", "y = act(x W_up + b_up) W_down + b_down")
def _(do: Doing, x: Array, w: Mapping[str, Array], activation: str) -> Array:
    hidden = do("ff.up", x, w["up.w"], w.get("up.b", 0.0))
    if "gate.w" in w:
        hidden = do("ff.gate", do("linear", x, w["gate.w"], w.get("gate.b", 0.0)), hidden, activation)
    else:
        hidden = do("ff.act", hidden, activation)
    return do("ff.down", hidden, w["down.w"], w.get("down.b", 0.0))


@step("ff.up", "hidden = x W_up + b_up")
def _(do: Doing, x: Array, w: Array, b: Array) -> Array:
    return x @ w + b


@step("ff.act", "hidden = act(hidden), between the two projections")
def _(do: Doing, hidden: Array, activation: str) -> Array:
    return do("act", hidden, activation)


@step("ff.gate", "hidden = act(x W_gate) * (x W_up)")
def _(do: Doing, gate: Array, up: Array, activation: str) -> Array:
    return do("act", gate, activation) * up


@step("ff.down", "y = hidden W_down + b_down")
def _(do: Doing, hidden: Array, w: Array, b: Array) -> Array:
    return hidden @ w + b


def below(w: Mapping[str, Array], place: str) -> dict[str, Array]:
    """The arrays whose names begin with a place, named from there."""
    return {name[len(place) + 1 :]: value for name, value in w.items() if name.startswith(place + ".")}


@step("block", "x = x + attention(norm_1(x)); x = x + feed_forward(norm_2(x))")
def _(do: Doing, x: Array, w: Mapping[str, Array], n_heads: int, causal: Any, activation: str, eps: float) -> Array:
    def norm_of(number: int) -> Step:
        return lambda y: do("norm", y, w[f"ln{number}.gain"], w.get(f"ln{number}.bias", 0.0), eps)

    attention = below(w, "attn")
    parts: tuple[Step, Step] = (
        lambda y: do("heads", y, attention, n_heads, n_heads, causal),
        lambda y: do("ff", y, below(w, "mlp"), activation),
    )
    norms = do("block.norms", norm_of(1), norm_of(2))
    return do("block.order", x, norms, parts)


@step("block.norms", "norm_1 before attention, norm_2 before the feed-forward: each its own gain and bias")
def _(do: Doing, first: Step, second: Step) -> Any:
    return first, second


@step("block.order", "attention first, then the feed-forward, each read from the stream as the one before left it")
def _(do: Doing, x: Array, norms: Any, parts: Any) -> Array:
    x = do("residual.attention", x, norms[0], parts[0])
    return do("residual.feed_forward", x, norms[1], parts[1])


@step("residual", "x = x + part(norm(x))")
def _(do: Doing, x: Array, norm: Step, part: Step) -> Array:
    return x + part(norm(x))


@step("residual.attention", "x = x + attention(norm_1(x))")
def _(do: Doing, x: Array, norm: Step, part: Step) -> Array:
    return do("residual", x, norm, part)


@step("residual.feed_forward", "x = x + feed_forward(norm_2(x))")
def _(do: Doing, x: Array, norm: Step, part: Step) -> Array:
    return do("residual", x, norm, part)


# --- a decoder -------------------------------------------------------------------------------------------------------


@step("embed", "x = token_table[ids] + position_table[positions]")
def _(do: Doing, ids: Array, tokens: Array, positions: Array, start: int) -> Array:
    where = do("embed.positions", ids.shape[-1], start, len(positions))
    return do("embed.sum", do("embed.tokens", tokens, ids), positions[where])


@step("embed.positions", "positions start, start + 1, ..., from 0 without a start")
def _(do: Doing, n_tokens: int, start: int, n_rows: int) -> Array:
    return start + np.arange(n_tokens)


@step("embed.tokens", "the token table's rows as they are")
def _(do: Doing, table: Array, ids: Array) -> Array:
    return table[ids]


@step("embed.sum", "x = token rows + position rows")
def _(do: Doing, tokens: Array, positions: Array) -> Array:
    return tokens + positions


@step("gpt", "logits = norm_last(block_n( .. block_1(tokens + positions))) W_head^T")
def _(do: Doing, ids: Array, w: Mapping[str, Array], n_heads: int, activation: str, eps: float) -> Array:
    x = do("embed", ids, w["wte"], w["wpe"], 0)
    n_blocks = len({name.split(".")[0] for name in w if name.startswith("block")})
    for i in do("gpt.blocks", n_blocks):
        x = do("block", x, below(w, f"block{i}"), n_heads, True, activation, eps)
    x = do("gpt.last", x, w["ln_f.gain"], w.get("ln_f.bias", 0.0), eps)
    return do("gpt.head", x, w["head.w"] if "head.w" in w else w["wte"].T, w.get("head.b", 0.0))


@step("gpt.blocks", "every block once, in order")
def _(do: Doing, n_blocks: int) -> Any:
    return range(n_blocks)


@step("gpt.last", "a norm after the last block, before the head")
def _(do: Doing, x: Array, gain: Array, bias: Array, eps: float) -> Array:
    return do("norm", x, gain, bias, eps)


@step("gpt.head", "logits = x W_head^T: scores, before any softmax")
def _(do: Doing, x: Array, w: Array, b: Array) -> Array:
    return x @ w + b


@step("sinusoids", "row t: sin, cos of t / 10000^(2p / width), side by side for p = 0, 1, ..")
def _(do: Doing, n_tokens: int, width: int) -> Array:
    angle = do("sinusoids.positions", n_tokens)[:, None] * do("sinusoids.frequencies", width)
    return do("sinusoids.lay", np.sin(angle), np.cos(angle))


@step("sinusoids.positions", "t = 0, 1, ..")
def _(do: Doing, n_tokens: int) -> Array:
    return np.arange(n_tokens)


@step("sinusoids.frequencies", "10000^(-2p / width), p = 0 .. width / 2 - 1")
def _(do: Doing, width: int) -> Array:
    return 10000.0 ** (-np.arange(0, width, 2) / width)


@step("sinusoids.lay", "sine at even columns, cosine at odd ones")
def _(do: Doing, sin: Array, cos: Array) -> Array:
    return np.stack((sin, cos), -1).reshape(len(sin), -1)


# --- losses ----------------------------------------------------------------------------------------------------------


@step("loss", "loss = mean over targets of -ln softmax(logits)[target]")
def _(do: Doing, logits: Array, targets: Array, ignored: int | None) -> Array:
    logits = do("loss.read", logits).astype(do.dtype)
    real = do("loss.real", targets, ignored)
    said = f.log_softmax(logits) if do.dtype == np.float64 else do("loss.log", logits)
    each = do("loss.each", said, targets, logits)
    return do("loss.mean", each, real)


@step("loss.read", "cross-entropy reads scores; its softmax is inside")
def _(do: Doing, logits: Array) -> Array:
    return logits


@step("loss.log", "log_softmax(x) = x - max - ln sum exp(x - max)")
def _(do: Doing, logits: Array) -> Array:
    shifted = logits - last(logits, "max")
    return shifted - np.log(last(np.exp(shifted), "sum"))


@step("loss.real", "targets that are padding count neither in the sum nor in what it is divided by")
def _(do: Doing, targets: Array, ignored: int | None) -> Array:
    return np.ones(targets.shape, bool) if ignored is None else targets != ignored


@step("loss.each", "-ln p(target), in nats")
def _(do: Doing, log_p: Array, targets: Array, logits: Array) -> Array:
    return -np.take_along_axis(log_p, targets[..., None], -1)[..., 0]


@step("loss.mean", "the mean over all targets that count, together")
def _(do: Doing, each: Array, real: Array) -> Array:
    return (each * real).sum() / real.sum()


@step("next", "logits at position t are held against token t + 1")
def _(do: Doing, logits: Array, tokens: Array) -> Array:
    return do("loss", *do("next.shift", logits, tokens), None)


@step("next.shift", "logits[:-1] against tokens[1:]")
def _(do: Doing, logits: Array, tokens: Array) -> Any:
    return logits[..., :-1, :], tokens[..., 1:]


# --- experts: scores (T, E) ------------------------------------------------------------------------------------------


@step("gates", "gates = softmax over the k best scores of a token, 0 elsewhere")
def _(do: Doing, scores: Array, k: int) -> Array:
    return do("gates.share", scores, do("gates.choose", scores, k))


@step("gates.choose", "the k best scores of each token; of equal ones the lower expert's")
def _(do: Doing, scores: Array, k: int) -> Array:
    return f.choose(scores, k)


@step("gates.share", "softmax over the chosen scores alone: each token's gates sum to 1")
def _(do: Doing, scores: Array, chosen: Array) -> Array:
    return f.softmax(scores, chosen)


@step("balance", "loss = E * sum over experts of f_e * P_e")
def _(do: Doing, scores: Array, k: int) -> Array:
    share = do("balance.share", scores, do("gates.choose", scores, k), k)
    return do("balance.times", share, do("balance.given", scores, k), scores.shape[-1])


@step("balance.share", "f_e = choices that fall on expert e / (tokens * k)")
def _(do: Doing, scores: Array, chosen: Array, k: int) -> Array:
    return chosen.mean(0) / k


@step("balance.given", "P_e = mean over tokens of softmax(scores)_e, over all experts")
def _(do: Doing, scores: Array, k: int) -> Array:
    return do("softmax", scores).mean(0)


@step("balance.times", "E * sum(f * P), E the number of experts")
def _(do: Doing, share: Array, given: Array, n_experts: int) -> Array:
    return n_experts * (share * given).sum()


# --- sampling: logits (B, V) -> what each token's chance is ----------------------------------------------------------


@step("sample", "p = softmax(logits / temperature), over the top_k best, then over the smallest set that holds top_p")
def _(do: Doing, logits: Array, temperature: float, top_k: int | None, top_p: float) -> Array:
    return np.stack([do("sample.row", row, temperature, top_k, top_p) for row in do("sample.rows", logits)])


@step("sample.rows", "each row of a batch is drawn from its own logits")
def _(do: Doing, logits: Array) -> Array:
    return logits


@step("sample.row", "first the temperature, then top_k, then top_p")
def _(do: Doing, logits: Array, temperature: float, top_k: int | None, top_p: float) -> Array:
    p = do("softmax", do("sample.temperature", logits, temperature))
    order = np.argsort(-logits, kind="stable")
    in_order = do("sample.top_p", do("sample.top_k", p[order], top_k), top_p)
    out = np.empty_like(p)
    out[order] = in_order
    return do("sample.draw", out)


@step("sample.temperature", "logits / temperature")
def _(do: Doing, logits: Array, temperature: float) -> Array:
    return logits / temperature


@step("sample.top_k", "the top_k likeliest tokens keep their chances, the others get 0")
def _(do: Doing, p: Array, top_k: int | None) -> Array:
    kept = p * (np.arange(len(p)) < (top_k or len(p)))
    return kept / kept.sum()


@step("sample.top_p", "a token stays if those likelier than it hold less than top_p: the one that crosses it stays")
def _(do: Doing, p: Array, top_p: float) -> Array:
    kept = p * (p.cumsum() - p < top_p)
    return kept / kept.sum()


@step("sample.draw", "draw one token with these chances")
def _(do: Doing, p: Array) -> Array:
    return p


# --- around a pass ---------------------------------------------------------------------------------------------------


@step("dropout", "training: each value is 0 with chance p, else x / (1 - p); evaluation: x")
def _(do: Doing, p: float, training: bool) -> Array:
    """(share of values that become 0, what the others are multiplied by)."""
    return do("dropout.kept", p) if do("dropout.mode", training) else np.array([0.0, 1.0])


@step("dropout.mode", "dropout acts in training alone")
def _(do: Doing, training: bool) -> bool:
    return training


@step("dropout.kept", "a value is 0 with chance p; those kept are divided by 1 - p")
def _(do: Doing, p: float) -> Array:
    return np.array([p, 1 / (1 - p)])


@step("accumulate", "gradient of the whole batch = mean of the gradients of its equal parts")
def _(do: Doing, grads: Array) -> Array:
    return grads.mean(0)


@step("sgd", "for each gradient g, each taken alone: w = w - lr * g")
def _(do: Doing, w: Array, grads: Array, lr: float) -> Array:
    return w - lr * grads.sum(0)


@step("clip", "g * min(1, max_norm / norm), norm over all gradients together")
def _(do: Doing, grads: Array, max_norm: float) -> Array:
    return grads * min(1.0, max_norm / np.sqrt((grads**2).sum()))

"""Mistakes in softmax, attention and its mask, heads, a cache."""

from __future__ import annotations

from typing import Any

import numpy as np

from plainformer import formulas as f
from plainformer.check.catalogue.entry import Entry
from plainformer.check.steps import STEPS, Array, Doing, Step, last

TINY_SCORE = -1e9  # what many write for -infinity


def share_along(axis: Any) -> dict[str, Step]:
    return {
        "softmax.sum": lambda do, e: last(e, "sum", axis),
        "softmax.max": lambda do, x: last(x, "max", axis),
    }


SOFTMAX = (
    Entry(key="softmax-axis-last-but-one", changes=share_along(-2),
          said="the softmax runs along the last axis but one: columns sum to 1, not rows",
          change="softmax along the last axis, over the keys: axis=-1, dim=-1"),
    Entry(key="softmax-axis-0", changes=share_along(0), said="the softmax runs along the first axis",
          change="softmax along the last axis: axis=-1, dim=-1"),
    Entry(key="softmax-axis-1", changes=share_along(1), example={"x": np.array([[[1.0, 2.0], [3.0, 1.0]]])},
          said="the softmax runs along axis 1",
          change="softmax along the last axis: axis=-1, dim=-1 (dim=1 is the heads' axis where there are four)"),
    Entry(key="softmax-over-all", changes=share_along(None),
          said="the exponentials are divided by the sum of the whole array",
          change="divide by the sum along the last axis, kept as an axis: sum(-1, keepdims=True)"),
    Entry(key="softmax-sum-over-all", changes={"softmax.sum": lambda do, e: e.sum()},
          said="the exponentials of each row are divided by the sum of the whole array",
          change="divide by the sum along the last axis, kept as an axis: sum(-1, keepdims=True)"),
    Entry(key="softmax-overflows", changes={"softmax.shift": lambda do, x: x},
          said="the largest score is not taken away before exp: large scores overflow to inf / inf = nan",
          change="exp(x - max(x)), the max along the last axis", example={"x": np.array([[1000.0, 999.0]])},
          where="softmax"),
    Entry(key="softmax-one-max", changes={"softmax.shift": lambda do, x: x - x.max()},
          said="the max over the whole array is taken away: rows far below it become 0 / 0",
          change="the max along the last axis, kept as an axis", where="softmax",
          example={"x": np.array([[0.0, 1.0], [2000.0, 2001.0]])}),
    Entry(key="softmax-base-2", changes={"softmax.exp": lambda do, x: np.exp2(x)}, said="2^x is taken, not e^x",
          change="exp(x)"),
    Entry(key="softmax-negative", changes={"softmax": lambda do, x: f.softmax(-np.asarray(x, np.float64))},
          said="the exponent is -x: the smallest score gets the most", change="exp(x - max)"),
    Entry(key="softmax-log", changes={"softmax": lambda do, x: f.log_softmax(x)}, where="softmax",
          said="this is the logarithm of the softmax", change="return the chances themselves: exp of this"),
    Entry(key="softmax-sigmoid", changes={"softmax": lambda do, x: f.sigmoid(x)},
          said="each score goes through a sigmoid by itself: rows do not sum to 1", change="exp(x) / sum exp(x)"),
    Entry(key="softmax-slope", frozen=("softmax.max", "softmax.sum"), where="softmax",
          said="the gradient takes the sum of the exponentials for a constant: the part -p_i p_j is missing",
          change="let the gradient flow through the sum: dx = p * (g - sum(p * g))"),
)  # fmt: skip


def scale(by: Step) -> dict[str, Step]:
    return {"attn.scale": lambda do, s, d_head, n_heads, n_keys: s * by(d_head, n_heads, n_keys)}


def scale_after(do: Doing, q: Array, k: Array, v: Array, allowed: Array, n_heads: int = 1) -> Array:
    weights = do("softmax", do("attn.mask", do("attn.scores", q, k), allowed)) / np.sqrt(q.shape[-1])
    return do("attn.mix", weights, v)


def causal(offset: Step) -> dict[str, Step]:
    return {"attn.causal": lambda do, n_queries, n_keys: np.tril(np.ones((n_queries, n_keys), bool),
                                                                offset(n_queries, n_keys))}  # fmt: skip


def see(wrong: Step, fill: float = -np.inf) -> dict[str, Step]:
    return {"attn.mask": lambda do, scores, allowed: np.where(wrong(allowed), scores, fill)}


def roles(order: str) -> dict[str, Step]:
    """Attention that reads its three inputs in another order."""

    def attention(do: Doing, q: Array, k: Array, v: Array, allowed: Array, n_heads: int = 1) -> Array:
        by = {"q": q, "k": k, "v": v}
        return do.right("attention", *(by[one] for one in order), allowed, n_heads)

    return {"attention": attention}


def hardest(do: Doing, weights: Array, allowed: Array, d_head: int) -> Array:
    return 1.0 * (weights == last(weights, "max"))


def masked_but_in_slopes(do: Doing, q: Array, k: Array, v: Array, allowed: Array, n_heads: int = 1) -> Array:
    weights = do("softmax", do("attn.scale", do("attn.scores", q, k), q.shape[-1], n_heads, k.shape[-2]))
    weights = weights + do("attn.hidden", weights, allowed)
    return do("attn.mix", weights / last(weights, "sum"), v)


STEPS["attn.hidden"] = lambda do, weights, allowed: weights * allowed - weights  # of that entry alone

ATTENTION = (
    Entry(key="scale-none", changes=scale(lambda d, h, s: 1), said="the scores are not divided by sqrt(d_head)",
          change="q @ k.T / sqrt(q.shape[-1])"),
    Entry(key="scale-d-model", changes=scale(lambda d, h, s: (d * h) ** -0.5), where="multi_head_attention",
          said="the scores are divided by sqrt(d_model), not by sqrt(d_head)",
          change="sqrt(d_model / n_heads): the width of one head"),
    Entry(key="scale-no-root", changes=scale(lambda d, h, s: 1 / d),
          said="the scores are divided by d_head, not by its root (or twice by the root)",
          change="divide once by sqrt(d_head)"),
    Entry(key="scale-multiplied", changes=scale(lambda d, h, s: d**0.5),
          said="the scores are multiplied by sqrt(d_head), not divided", change="/ sqrt(d_head), or * d_head**-0.5"),
    Entry(key="scale-whole-root", changes=scale(lambda d, h, s: 1 / int(d**0.5)),
          said="the root of d_head is cut to a whole number", change="d_head**0.5, no int() and no //"),
    Entry(key="scale-n-keys", changes=scale(lambda d, h, s: s**-0.5),
          where="attention",
          example={"q": np.ones((3, 2)), "k": np.array([[0.0, 0], [1, 0], [1, 1]]), "v": np.array([[0.0], [1], [2]])},
          said="the scores are divided by the root of the number of keys, not of the width",
          change="sqrt(k.shape[-1]): the last axis, not the last but one"),
    Entry(key="scale-n-heads", changes=scale(lambda d, h, s: h**-0.5), where="multi_head_attention",
          said="the scores are divided by the root of the number of heads", change="sqrt(d_model / n_heads)"),
    Entry(key="scale-fourth-root", changes=scale(lambda d, h, s: d**-0.25),
          said="the scores are divided by the fourth root of d_head",
          change="if q and k are scaled apart, each takes d_head**-0.25; else the scores take d_head**-0.5"),
    Entry(key="scale-after", changes={"attention": scale_after},
          said="the weights are divided by sqrt(d_head) after the softmax, not the scores before it",
          change="softmax(scores / sqrt(d_head)): weights must sum to 1"),
    Entry(key="mask-none", changes=see(np.ones_like), said="nothing is masked: every token sees the future",
          change="scores that may not be seen become -inf before the softmax"),
    Entry(key="mask-after", changes={"attn.mask": lambda do, scores, allowed: scores,
                                     "attn.weights": lambda do, weights, allowed, d_head: weights * allowed},
          said="the mask is laid on after the softmax: weights no longer sum to 1",
          change="mask the scores with -inf before the softmax"),
    Entry(key="mask-zero", changes=see(lambda allowed: allowed, 0.0),
          said="masked scores become 0, not -infinity: exp(0) = 1 is still a share",
          change="masked_fill with float('-inf'); multiplying the scores by a 1/0 mask does not mask"),
    Entry(key="mask-inverted", changes=see(np.logical_not),
          said="the mask is inverted: what may be seen is hidden, what may not is seen; a row without any is nan",
          change="hide where the mask says no: masked_fill(~allowed, -inf)"),
    Entry(key="mask-inverted-finite", changes=see(np.logical_not, TINY_SCORE),
          said="the mask is inverted: what may be seen is hidden, what may not is seen (by a large negative number)",
          change="hide where the mask says no: masked_fill(~allowed, -inf)"),
    Entry(key="mask-hides-self", changes=causal(lambda t, s: s - t - 1),
          said="the mask is off by one: a token does not see itself, and the first sees nothing (nan)",
          change="tril(ones(T, T)), or triu(ones(T, T), 1) for what is hidden: token i sees j <= i"),
    Entry(key="mask-hides-self-finite",
          changes={**causal(lambda t, s: s - t - 1), **see(lambda allowed: allowed, TINY_SCORE)},
          said="the mask is off by one: a token does not see itself, and the first sees all alike",
          change="tril(ones(T, T)), or triu(ones(T, T), 1) for what is hidden: token i sees j <= i"),
    Entry(key="mask-one-ahead", changes=causal(lambda t, s: s - t + 1),
          said="the mask is off by one: every token sees the next one too",
          change="triu(..., diagonal=1) hides the future; diagonal=2 leaves one of it"),
    Entry(key="mask-upper",
          changes={"attn.causal": lambda do, t, s: np.triu(np.ones((t, s), bool), s - t)},
          said="the upper triangle is seen, not the lower: tokens see themselves and the future, not the past",
          change="tril, not triu, for what may be seen"),
    Entry(key="mask-corner", changes=causal(lambda t, s: 0),
          said="with fewer queries than keys the mask begins at the first key: the last query must see them all",
          change="tril(ones(T, S), S - T): the last query stands at the last key (as is_causal=True does not)"),
    Entry(key="mask-added", changes={"attn.mask": lambda do, scores, allowed: scores + allowed},
          said="a mask of 1 and 0 is added to the scores: it hides nothing",
          change="turn it into 0 and -inf first, or use masked_fill"),
    Entry(key="mask-flattens", changes={"attn.mask": lambda do, scores, allowed: np.where(allowed, 0.0, -np.inf)},
          said="every score that may be seen is the same: content is ignored, attention is an average",
          change="the scores must survive the mask: a 0 / -inf mask given to code that expects 1 / 0 does this"),
    Entry(key="mask-fills-little", changes=see(lambda allowed: allowed, -1e4), where="attention",
          example={"q": np.array([[100.0], [100.0]]), "k": np.array([[-150.0], [0.0]]), "v": np.array([[1.0], [5.0]])},
          said="masked scores become -10000, not -infinity: lower scores that may be seen lose to them",
          change="float('-inf'), or the lowest number of the dtype"),
    Entry(key="mask-fills-one", changes=see(lambda allowed: allowed, -1.0),
          said="masked scores become -1, not -infinity: they keep a share", change="masked_fill with float('-inf')"),
    Entry(key="roles-k-v", changes=roles("qvk"), said="keys and values have changed places",
          change="softmax(q k^T) v: scores from the keys, output from the values"),
    Entry(key="roles-q-k", changes=roles("kqv"), said="queries and keys have changed places: the scores are transposed",
          change="q @ k.swapaxes(-1, -2): rows are queries, columns keys"),
    Entry(key="roles-q-v", changes=roles("vkq"), said="queries and values have changed places",
          change="softmax(q k^T) v"),
    Entry(key="roles-next", changes=roles("kvq"),
          said="each of the three is taken for the next: q is v, k is q, v is k",
          change="softmax(q k^T) v; mind the order in which a fused projection is cut"),
    Entry(key="roles-before", changes=roles("vqk"), said="each of the three is taken for the one before",
          change="softmax(q k^T) v; mind the order in which a fused projection is cut"),
    Entry(key="scores-q-q", changes={"attn.scores": lambda do, q, k: q @ q.swapaxes(-1, -2)},
          said="the scores are q q^T: the keys are not used", change="q @ k.swapaxes(-1, -2)"),
    Entry(key="scores-k-k", changes={"attn.scores": lambda do, q, k: k @ k.swapaxes(-1, -2)},
          said="the scores are k k^T: the queries are not used", change="q @ k.swapaxes(-1, -2)"),
    Entry(key="mix-keys", changes=roles("qkk"), said="the weights mix the keys, not the values", change="weights @ v"),
    Entry(key="mix-queries", changes={"attention": lambda do, q, k, v, a, n=1: do.right("attention", q, k, q, a, n)},
          said="the weights mix the queries, not the values", change="weights @ v"),
    Entry(key="mix-transposed", changes={"attn.mix": lambda do, weights, v: weights.swapaxes(-1, -2) @ v},
          said="the weights are transposed before they mix the values", change="weights @ v: rows are queries"),
    Entry(key="attn-divided", changes={"attn.mix": lambda do, weights, v: weights @ v / v.shape[-2]},
          said="the output is divided by the number of keys: a mean of what is a sum already weighted",
          change="weights @ v: the weights sum to 1"),
    Entry(key="attn-hardest", changes={"attn.weights": hardest},
          said="the best key takes all the weight", change="softmax, no argmax and no top-1"),
    Entry(key="attn-added-back", changes={"attn.mix": lambda do, weights, v: weights @ v + v},
          said="the values are added to the output once more: a residual inside attention",
          change="out = weights @ v; the residual is outside, around the stream"),
    Entry(key="slope-weights", frozen=("softmax",), where="attention",
          said="the gradient takes the weights for constants: none reaches q and k",
          change="no detach(), .data or no_grad() about scores and weights"),
    Entry(key="slope-through-mask", changes={"attention": masked_but_in_slopes}, frozen=("attn.hidden",),
          where="attention", said="the gradient flows through the mask: hidden keys move as if they had been seen",
          change="mask the scores with -inf before the softmax, in the graph, not in .data after it"),
)  # fmt: skip


def cut(do: Doing, x: Array, n_heads: int) -> Array:
    return x.reshape(*x.shape[:-2], n_heads, x.shape[-2], -1)


def strided(do: Doing, x: Array, n_heads: int) -> Array:
    return np.moveaxis(x.reshape(*x.shape[:-1], -1, n_heads), -1, -3)


def values_as_they_are(do: Doing, x: Array, w: Any, *rest: Any) -> Array:
    none = {"v.w": np.eye(x.shape[-1], w["v.w"].shape[-1]), "v.b": 0.0}
    return do.right("heads", x, {**w, **none}, *rest)


def fused_per_head(do: Doing, q: Array, k: Array, v: Array, n_heads: int) -> Any:
    together = np.concatenate((q, k, v), -1).reshape(*q.shape[:-1], n_heads, 3, -1)
    return tuple(together[..., one, :].reshape(q.shape) for one in range(3))


def over_rows(do: Doing, x: Array, w: Any, *rest: Any) -> Array:
    return do.right("heads", x.swapaxes(0, 1), w, *rest).swapaxes(0, 1)


FUSED = "a fused projection read as (heads, 3, d_head), where its columns stand as (3, heads, d_head)"
HEADS = (
    Entry(key="heads-view", changes={"heads.split": cut},
          said="the heads are cut without a transposition: a view as (heads, T, d_head) mixes tokens into heads",
          change="x.view(B, T, heads, d_head).transpose(1, 2)"),
    Entry(key="heads-strided", changes={"heads.split": strided},
          said="the heads are cut in strides: head i takes every n-th column, not a run of d_head",
          change="reshape(T, heads, d_head), heads before d_head"),
    Entry(key="heads-join-view", changes={"heads.join": lambda do, x: x.reshape(*x.shape[:-3], x.shape[-2], -1)},
          said="the heads are joined without a transposition back: a view mixes heads and tokens",
          change="out.transpose(1, 2).contiguous().view(B, T, D)"),
    Entry(key="heads-join-strided",
          changes={"heads.join": lambda do, x: np.moveaxis(x, -3, -1).reshape(*x.shape[:-3], x.shape[-2], -1)},
          said="the heads are joined in strides: first columns of all heads first",
          change="concat(heads) along the width: heads before d_head"),
    Entry(key="heads-join-reversed", changes={"heads.join": lambda do, x: do.right("heads.join", x[..., ::-1, :, :])},
          said="the heads are joined in the order last to first", change="concat(head_1, .., head_h)"),
    Entry(key="heads-one", changes={"heads.split": lambda do, x, n: x[..., None, :, :]},
          said="there is one head of the whole width: n_heads does nothing",
          change="cut q, k and v into n_heads heads of d_model / n_heads"),
    Entry(key="heads-sum", changes={"heads.join": lambda do, x: np.concatenate([x.sum(-3)] * x.shape[-3], -1)},
          said="the heads are added up, not put side by side", change="concat(heads) along the width"),
    Entry(key="heads-mean", changes={"heads.join": lambda do, x: np.concatenate([x.mean(-3)] * x.shape[-3], -1)},
          said="the heads are averaged, not put side by side", change="concat(heads) along the width"),
    Entry(key="heads-repeat-tiled", changes={"heads.repeat": lambda do, x, n: np.concatenate([x] * n, -3)},
          said="grouped kv heads are tiled (0 1 0 1), not each repeated (0 0 1 1)",
          change="repeat_interleave along the heads, not repeat"),
    Entry(key="heads-repeat-first",
          changes={"heads.repeat": lambda do, x, n: x[..., :1, :, :].repeat(n * x.shape[-3], -3)},
          said="all query heads read the first kv head", change="each group of query heads reads its own kv head"),
    Entry(key="heads-no-out", changes={"heads.out": lambda do, x, w, b: x}, said="the output projection is missing",
          change="out = concat(heads) @ w_o"),
    Entry(key="heads-out-transposed", changes={"heads.out": lambda do, x, w, b: x @ w.T + b},
          said="the output projection is transposed", change="x @ w_o where weights act as x @ w; w.T for nn.Linear's"),
    Entry(key="heads-out-no-bias", changes={"heads.out": lambda do, x, w, b: x @ w},
          said="the output projection's bias is not used", change="concat(heads) @ w_o + b_o"),
    Entry(key="heads-in-transposed", changes={"linear": lambda do, x, w, b: x @ w.T + b},
          said="the projections of q, k and v are transposed",
          change="x @ w where weights act as x @ w; w.T for nn.Linear's"),
    Entry(key="heads-in-no-bias", changes={"linear": lambda do, x, w, b: x @ w},
          said="the biases of q, k and v are not used", change="x @ w + b for each"),
    Entry(key="heads-fused-per-head", changes={"heads.roles": fused_per_head}, said=FUSED,
          change="split into q, k and v first, then each into heads (or the other way round, if the weights stand so)"),
    Entry(key="heads-v-unprojected", changes={"heads": values_as_they_are},
          said="the values are x itself: W_v is not used", change="v = x @ w_v"),
    Entry(key="heads-rows-for-tokens", changes={"heads": over_rows},
          said="attention runs along the batch, not along the tokens: rows see each other",
          change="(B, T, D): tokens are axis 1; nn.MultiheadAttention wants batch_first=True for that",
          example={"x": np.array([[[1.0, 2.0]], [[3.0, 0.0]]])}),
)  # fmt: skip


def cache(keys: Step, values: Step | None = None) -> dict[str, Step]:
    return {"cache.keys": lambda do, past, new: keys(past, new),
            "cache.values": lambda do, past, new: (values or keys)(past, new)}  # fmt: skip


def joined(*parts: Array) -> Array:
    return np.concatenate(parts, -2)


CACHES = (
    Entry(key="cache-forgotten", changes=cache(lambda past, new: new),
          said="the past keys and values are not used: the cache is never read",
          change="k = concat(past_k, k), v = concat(past_v, v), along the tokens"),
    Entry(key="cache-not-appended", changes=cache(lambda past, new: past),
          said="the new keys and values are not appended: tokens see the past alone",
          change="append first, then attend"),
    Entry(key="cache-new-first", changes=cache(lambda past, new: joined(new, past)),
          said="the new keys and values are put before the past ones",
          change="concat(past, new): the mask counts from the end"),
    Entry(key="cache-overwritten", changes=cache(lambda past, new: joined(past[..., : past.shape[-2] - 1, :], new)),
          said="the new keys and values overwrite the last past one: a position is off by one",
          change="write at n_past .. n_past + T - 1"),
    Entry(key="cache-first-lost", changes=cache(lambda past, new: joined(past[..., 1:, :], new)),
          said="the first past token is lost", change="keep them all: past[:, :n_past]"),
    Entry(key="cache-values-misplaced",
          changes=cache(lambda past, new: joined(past, new), lambda past, new: joined(new, past)),
          said="the new values are put before the past ones, the new keys after them",
          change="append both at the same end"),
)  # fmt: skip

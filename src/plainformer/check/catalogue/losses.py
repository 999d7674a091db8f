"""Mistakes in losses, shifts, routers, sampling, and what happens around a pass."""

from __future__ import annotations

from typing import Any

import numpy as np

from plainformer import formulas as f
from plainformer.check.catalogue.entry import Entry
from plainformer.check.steps import Array, Doing, Step, last

PADDED = {"logits": np.array([[2.0, 1, 0], [0, 0, 0]]), "targets": np.array([0, 1]), "ignore_index": 1}
UNEVEN = {
    "logits": np.array([[[2.0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 3, 0]]]),
    "targets": np.array([[0, 2], [1, 0]]),
    "ignore_index": 1,
}


def overflowing(do: Doing, x: Array) -> Array:
    e = np.exp(x)
    return np.log(e / last(e, "sum"))


def mean(how: Step) -> dict[str, Step]:
    return {"loss.mean": lambda do, each, real: how(each * real, real)}


def by_rows(total: Array, real: Array) -> Array:
    return (total.sum(-1) / np.maximum(real.sum(-1), 1)).mean()


def over_vocabulary(do: Doing, log_p: Array, targets: Array, logits: Array) -> Array:
    return do.right("loss.each", log_p, targets, logits) / log_p.shape[-1]


def viewed(do: Doing, logits: Array) -> Array:
    if logits.ndim < 3:
        return logits
    rows, n_tokens, n = logits.shape
    return np.moveaxis(logits.reshape(rows, n, n_tokens), 1, -1)


def shift(how: Step) -> dict[str, Step]:
    return {"next.shift": lambda do, logits, tokens: how(logits, tokens)}


def each(how: Step) -> dict[str, Step]:
    return {
        "loss.each": lambda do, log_p, targets, logits: how(np.take_along_axis(log_p, targets[..., None], -1)[..., 0])
    }


def added(small: float) -> Step:
    return lambda log_p: -np.log(np.exp(log_p) + small)


LOSSES = (
    Entry(key="loss-sum", changes=mean(lambda total, real: total.sum()),
          said="the losses are summed, not averaged: longer texts cost more", change="the mean over targets"),
    Entry(key="loss-sum-of-row", changes=mean(lambda total, real: total.sum(-1).mean()), example=UNEVEN,
          said="the losses of a row are summed, and only rows are averaged",
          change="the mean over all targets together"),
    Entry(key="loss-mean-of-means", changes=mean(by_rows), example=UNEVEN,
          said="this is a mean of means of rows: rows with few targets count as much as full ones",
          change="sum over all targets / number of all targets"),
    Entry(key="loss-divides-by-all", changes=mean(lambda total, real: total.sum() / real.size), example=PADDED,
          said="padding is not summed, but it is counted in the divisor",
          change="divide by the number of real targets"),
    Entry(key="loss-padding-counted", changes={"loss.real": lambda do, targets, ignored: np.ones(targets.shape, bool)},
          example=PADDED, said="padding counts as a target",
          change="leave targets equal to ignore_index out of sum and count"),
    Entry(key="loss-bits", changes=each(lambda x: -x / np.log(2)), said="the logarithm is to base 2: bits, not nats",
          change="the natural logarithm"),
    Entry(key="loss-base-10", changes=each(lambda x: -x / np.log(10)), said="the logarithm is to base 10",
          change="the natural logarithm"),
    Entry(key="loss-no-minus", changes=each(lambda x: x),
          said="the minus is missing: the loss is negative, and falls as the model gets worse",
          change="-ln p(target)"),
    Entry(key="loss-chance", changes=each(lambda x: -np.exp(x)),
          said="this is minus the chance, not minus its logarithm",
          change="-ln p(target)"),
    Entry(key="loss-one-less-chance", changes=each(lambda x: 1 - np.exp(x)),
          said="this is 1 - p(target), not -ln p(target)",
          change="-ln p(target)"),
    Entry(key="loss-softmax-twice", changes={"loss.read": lambda do, x: f.softmax(x)},
          said="the softmax is taken twice: its chances are read as scores",
          change="give cross-entropy the logits: its softmax is inside"),
    Entry(key="loss-classes-viewed", changes={"loss.read": viewed}, where="cross_entropy",
          example={"logits": np.array([[[2.0, 0, 0], [0, 1, 0]]]), "targets": np.array([[0, 2]])},
          said="the logits (B, T, V) are viewed as (B, V, T): numbers of other tokens are read as classes",
          change="logits.transpose(1, 2), or flatten both: logits.view(-1, V), targets.view(-1)"),
    Entry(key="loss-no-softmax",
          changes={"loss.each": lambda do, log_p, targets, logits: do.right("loss.each", logits, targets, logits)},
          said="this is minus the target's score: there is no softmax", change="-log_softmax(logits)[target]"),
    Entry(key="loss-over-vocabulary", changes={"loss.each": over_vocabulary},
          said="the mean runs over the vocabulary too: the loss is V times too small",
          change="sum over the vocabulary (one term is not 0), mean over targets"),
    Entry(key="loss-one-hot-squares", changes={"loss.each": lambda do, log_p, targets, logits:
              ((np.exp(log_p) - np.eye(log_p.shape[-1])[targets]) ** 2).sum(-1)},
          said="these are squares of chances less 1 at the target, not -ln p(target)", change="-ln p(target)"),
    Entry(key="loss-perplexity", changes=mean(lambda total, real: np.exp(total.sum() / real.sum())),
          said="this is the perplexity, exp(loss)", change="the mean itself, without exp"),
    Entry(key="loss-underflows", changes={"loss.each": lambda do, log_p, targets, logits: -np.log(
              np.take_along_axis(np.exp(log_p), targets[..., None], -1)[..., 0])},
          example={"logits": np.array([[1000.0, 0.0, 0.0]]), "targets": np.array([1])},
          said="the logarithm is taken of a softmax: a small chance is 0, and its loss infinite",
          change="log_softmax in one: x - max - ln sum exp(x - max)"),
    *(Entry(key=f"loss-small-added-{small:.0e}".replace("-0", "-"), changes=each(added(small)),
            example={"logits": np.array([[1000.0, 0.0, 0.0]]), "targets": np.array([1])},
            said=f"{small:.0e} is added to the chance before the logarithm: no loss exceeds {-np.log(small):.1f}",
            change="log_softmax in one, nothing added") for small in (1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-12)),
    Entry(key="loss-overflows", changes={"loss": lambda do, logits, targets, ignored: do("loss.mean", do("loss.each",
              overflowing(do, logits.astype(do.dtype)), targets, logits), do("loss.real", targets, ignored))},
          example={"logits": np.array([[1000.0, 0.0, 0.0]]), "targets": np.array([1])},
          said="the largest score is not taken away before exp: large scores give nan or infinity",
          change="log_softmax: x - max - ln sum exp(x - max)"),
    Entry(key="loss-next-class", changes={"loss.each": lambda do, log_p, targets, logits: do.right(
              "loss.each", log_p, (targets + 1) % log_p.shape[-1], logits)},
          said="the target is one number too high", change="logits[target]: classes count from 0"),
    Entry(key="shift-none", changes=shift(lambda x, t: (x, t)),
          said="nothing is shifted: each token is asked to predict itself",
          change="logits[:-1] against tokens[1:]"),
    Entry(key="shift-two", changes=shift(lambda x, t: (x[..., :-2, :], t[..., 2:])),
          said="the shift is two: is the data shifted already, and the loss once more?",
          change="logits[:-1] against tokens[1:], once"),
    Entry(key="shift-backwards", changes=shift(lambda x, t: (x[..., 1:, :], t[..., :-1])),
          said="the shift goes the wrong way: each token is asked to predict the one before",
          change="logits[:-1] against tokens[1:]"),
    Entry(key="shift-cut-alone", changes=shift(lambda x, t: (x[..., :-1, :], t[..., :-1])),
          said="both are cut at the end: each token is asked to predict itself",
          change="logits[:-1] against tokens[1:]"),
    Entry(key="shift-cut-first", changes=shift(lambda x, t: (x[..., 1:, :], t[..., 1:])),
          said="both are cut at the beginning: each token is asked to predict itself",
          change="logits[:-1] against tokens[1:]"),
    Entry(key="shift-rolled", changes=shift(lambda x, t: (x, np.roll(t, -1, -1))),
          said="tokens are rolled: the last position is asked to predict the first token",
          change="cut, do not roll: logits[:-1] against tokens[1:]"),
    Entry(key="shift-rolled-back", changes=shift(lambda x, t: (x, np.roll(t, 1, -1))),
          said="tokens are rolled the wrong way", change="logits[:-1] against tokens[1:]"),
    Entry(key="shift-last-alone", changes=shift(lambda x, t: (x[..., -2:-1, :], t[..., -1:])),
          said="the last token alone is asked", change="all of logits[:-1] against all of tokens[1:]"),
)  # fmt: skip


def kept_rows(scores: Array, chosen: Array) -> Array:
    return scores * chosen / last(scores * chosen, "sum")


def without(scores: Array, chosen: Array) -> Array:
    return f.softmax(scores) * chosen


GATES = (
    Entry(key="gates-not-renormalised", changes={"gates.share": lambda do, s, chosen: without(s, chosen)},
          said="the softmax runs over all experts: the gates of the chosen ones do not sum to 1",
          change="softmax over the chosen scores, or divide by the sum of the chosen"),
    Entry(key="gates-all", changes={"gates.share": lambda do, s, chosen: f.softmax(s)},
          said="every expert gets a gate: nothing is chosen", change="softmax over the k best, 0 elsewhere"),
    Entry(key="gates-zeros", changes={"gates.share": lambda do, s, chosen: f.softmax(s * chosen)},
          said="scores not chosen become 0, not -infinity: they keep a share", change="-inf for those not chosen"),
    Entry(key="gates-one-more", changes={"gates.choose": lambda do, s, k: f.choose(s, k + 1)},
          said="k + 1 experts are chosen", change="k: mind the slice"),
    Entry(key="gates-one-less", changes={"gates.choose": lambda do, s, k: f.choose(s, max(k - 1, 1))},
          said="k - 1 experts are chosen", change="k: mind the slice"),
    Entry(key="gates-best-alone", changes={"gates.choose": lambda do, s, k: f.choose(s, 1)},
          said="the best expert alone is chosen, whatever k",
          change="the k best", example={"scores": np.array([[2.0, 1.0, 0.5, -1.0]]), "k": 3}),
    Entry(key="gates-worst", changes={"gates.choose": lambda do, s, k: f.choose(-s, k)},
          said="the k worst experts are chosen", change="the k largest scores: descending"),
    Entry(key="gates-ties-all", changes={"gates.choose": lambda do, s, k: s >= np.sort(s, -1)[:, -k][:, None]},
          said="where scores are equal, more than k experts are chosen",
          change="choose k by their places (topk, argsort), not by comparing with the k-th score",
          example={"scores": np.array([[1.0, 1.0, 1.0]]), "k": 2}),
    Entry(key="gates-ties-last", changes={"gates.choose": lambda do, s, k: f.choose(s[:, ::-1], k)[:, ::-1]},
          said="of equal scores the higher expert's wins", change="a stable sort of -scores gives the lower one's",
          example={"scores": np.array([[1.0, 1.0, 1.0]]), "k": 2}, slight=True),
    Entry(key="gates-sigmoid", changes={"gates.share": lambda do, s, chosen: f.sigmoid(s) * chosen},
          said="gates are sigmoids of the chosen scores: they do not sum to 1", change="softmax over the chosen"),
    Entry(key="gates-sigmoid-shared", changes={"gates.share": lambda do, s, chosen: kept_rows(f.sigmoid(s), chosen)},
          said="gates are sigmoids of the chosen scores, divided by their sum (DeepSeek-V3's)",
          change="softmax over the chosen; if sigmoid gates were asked, this is right"),
    Entry(key="gates-scores-shared", changes={"gates.share": lambda do, s, chosen: kept_rows(s, chosen)},
          said="gates are the chosen scores divided by their sum, without exp", change="softmax over the chosen"),
    Entry(key="gates-scores", changes={"gates.share": lambda do, s, chosen: s * chosen},
          said="gates are the chosen scores themselves", change="softmax over the chosen"),
    Entry(key="gates-equal", changes={"gates.share": lambda do, s, chosen: chosen / last(chosen, "sum")},
          said="the chosen share alike: the scores do not count", change="softmax over the chosen scores"),
    Entry(key="gates-divided-by-k",
          changes={"gates.share": lambda do, s, chosen: f.softmax(s, chosen) / chosen.sum(-1)[:, None]},
          said="the gates are divided by k: they sum to 1 / k", change="softmax over the chosen, and no more"),
    Entry(key="gates-ones", changes={"gates.share": lambda do, s, chosen: 1.0 * chosen},
          said="this is the choice, 1 or 0, not its gates", change="softmax over the chosen scores"),
    Entry(key="gates-by-expert", changes={"gates.choose": lambda do, s, k: f.choose(s.T, k).T},
          said="each expert chooses k tokens, not each token k experts", change="the k best along the last axis"),
    Entry(key="gates-doubly-soft", changes={"gates.share": lambda do, s, chosen: f.softmax(f.softmax(s), chosen)},
          said="the softmax is taken twice: of chances", change="softmax over the chosen scores, once"),
    Entry(key="balance-no-experts", changes={"balance.times": lambda do, share, given, n: (share * given).sum()},
          said="it is not multiplied by the number of experts: even traffic must give 1", change="E * sum(f * P)"),
    Entry(key="balance-mean", changes={"balance.times": lambda do, share, given, n: (share * given).mean()},
          said="the mean over experts is taken, where E times the sum belongs", change="E * sum(f * P)"),
    Entry(key="balance-squared-experts",
          changes={"balance.times": lambda do, share, given, n: n**2 * (share * given).sum()},
          said="it is multiplied by E twice", change="E * sum(f * P): a sum, or E * E times a mean of both"),
    Entry(key="balance-no-k", changes={"balance.share": lambda do, s, chosen, k: chosen.mean(0)},
          said="the shares of choices are not divided by k: they sum to k, not 1",
          change="f_e = choices / (tokens * k); Hugging Face's is so, and its even value is k"),
    Entry(key="balance-counts", changes={"balance.share": lambda do, s, chosen, k: chosen.sum(0)},
          said="choices are counted, not divided by tokens * k", change="f_e = choices / (tokens * k)"),
    Entry(key="balance-chances-squared", changes={"balance.share": lambda do, s, chosen, k: f.softmax(s).mean(0)},
          said="f is the mean chance too: choices are not counted", change="f_e counts who was chosen"),
    Entry(key="balance-gates", changes={"balance.given": lambda do, s, k: f.top_k_gates(s, k).mean(0)},
          said="P is the mean gate, after the choice", change="P_e = mean of softmax over all experts"),
    Entry(key="balance-best-alone", changes={"balance.share": lambda do, s, chosen, k: f.choose(s, 1).mean(0)},
          said="f counts the best expert of each token alone", change="f counts all k choices, divided by k"),
    Entry(key="balance-shares-alone", changes={"balance.given": lambda do, s, k: f.choose(s, k).mean(0) / k},
          said="P is the share of choices too: there is no gradient in it",
          change="P_e = mean of softmax over all experts"),
    Entry(key="balance-scores", changes={"balance.given": lambda do, s, k: s.mean(0)},
          said="P is the mean score, without a softmax", change="P_e = mean of softmax over all experts"),
)  # fmt: skip


def warmed_after(do: Doing, logits: Array, temperature: float, top_k: Any, top_p: float) -> Array:
    """Filters by the chances at temperature 1, then the temperature."""
    kept = do.right("sample.row", logits, 1.0, top_k, top_p) > 0
    return f.softmax(logits / temperature, kept)


def outside_at_zero(do: Doing, logits: Array, temperature: float, top_k: Any, top_p: float) -> Array:
    if not top_k:
        return do.right("sample.row", logits, temperature, top_k, top_p)
    kept = np.where(logits >= np.sort(logits)[-top_k], logits / temperature, 0.0)
    return do.right("sample.row", kept, 1.0, None, top_p)


def kept(p: Array, which: Array) -> Array:
    return p * which / (p * which).sum()


def first(p: Array) -> Array:
    return np.arange(len(p)) == 0


def in_order_of_numbers(do: Doing, logits: Array, temperature: float, top_k: Any, top_p: float) -> Array:
    """top_p over the vocabulary as it stands."""
    p = do.right("sample.row", logits, temperature, top_k, 1.0)
    return kept(p, p.cumsum() - p < top_p)


WARM = {"temperature": 0.5}
SAMPLING = (
    Entry(key="sample-temperature-multiplied", changes={"sample.temperature": lambda do, x, t: x * t}, example=WARM,
          said="the logits are multiplied by the temperature", change="logits / temperature"),
    Entry(key="sample-temperature-ignored", changes={"sample.temperature": lambda do, x, t: x}, example=WARM,
          said="the temperature does nothing: is it laid on chances, not on logits?",
          change="softmax(logits / temperature)"),
    Entry(key="sample-temperature-squared", changes={"sample.temperature": lambda do, x, t: x / t**2}, example=WARM,
          said="the temperature divides twice", change="logits / temperature, once"),
    Entry(key="sample-temperature-rooted", changes={"sample.temperature": lambda do, x, t: x / np.sqrt(t)},
          example=WARM,
          said="the logits are divided by the temperature's root", change="logits / temperature"),
    Entry(key="sample-temperature-last", changes={"sample.row": warmed_after},
          example={"temperature": 3.0, "top_p": 0.8},
          said="top_p is taken before the temperature", change="temperature first, then top_k, then top_p"),
    Entry(key="sample-top-k-one-more",
          changes={"sample.top_k": lambda do, p, k: do.right("sample.top_k", p, k and k + 1)},
          example={"top_k": 2}, said="top_k + 1 tokens are kept", change="k: mind the comparison (< the k-th, not <=)"),
    Entry(key="sample-top-k-one-less",
          changes={"sample.top_k": lambda do, p, k: do.right("sample.top_k", p, k and max(k - 1, 1))},
          example={"top_k": 2}, said="top_k - 1 tokens are kept", change="k: mind the slice"),
    Entry(key="sample-top-k-ignored", changes={"sample.top_k": lambda do, p, k: p}, example={"top_k": 2},
          said="top_k does nothing", change="-inf for all but the k best, before the softmax"),
    Entry(key="sample-top-k-not-renormalised",
          changes={"sample.top_k": lambda do, p, k: p * (np.arange(len(p)) < (k or len(p))),
                   "sample.top_p": lambda do, p, top_p: p * (p.cumsum() - p < top_p)},
          example={"top_k": 2}, said="what is left is not divided by its sum: the chances do not sum to 1",
          change="divide by the sum of those kept, or set -inf before the softmax"),
    Entry(key="sample-top-k-zero", changes={"sample.row": outside_at_zero},
          example={"top_k": 2}, said="logits outside the best k become 0, not -infinity: exp(0) = 1 is a chance",
          change="-inf for those left out"),
    Entry(key="sample-top-k-worst",
          changes={"sample.top_k": lambda do, p, k: kept(p, np.arange(len(p)) >= len(p) - (k or len(p)))},
          example={"top_k": 2}, said="the k least likely tokens are kept", change="sort in descending order"),
    Entry(key="sample-top-p-crossing-dropped",
          changes={"sample.top_p": lambda do, p, top_p: kept(p, (p.cumsum() <= top_p) | first(p))},
          example={"top_p": 0.6}, said="the token that crosses top_p is dropped: those kept hold less than top_p",
          change="keep a token if those likelier than it hold less than top_p: cumsum - p < top_p"),
    Entry(key="sample-top-p-not-renormalised",
          changes={"sample.top_p": lambda do, p, top_p: p * (p.cumsum() - p < top_p)}, example={"top_p": 0.6},
          said="after top_p the chances that are left do not sum to 1", change="p / p.sum() once more"),
    Entry(key="sample-top-p-one-more",
          changes={"sample.top_p": lambda do, p, top_p: kept(p, np.append([0, 0], p.cumsum())[: len(p)] < top_p)},
          example={"top_p": 0.6}, said="one token more than needed is kept", change="cumsum - p < top_p"),
    Entry(key="sample-top-p-unsorted", changes={"sample.row": in_order_of_numbers},
          example={"logits": np.log([[2.0, 2, 8, 4]]), "top_p": 0.6},
          said="chances are added up in the order of the vocabulary, not from the likeliest on",
          change="sort in descending order first, and go back after"),
    Entry(key="sample-top-p-ignored", changes={"sample.top_p": lambda do, p, top_p: p}, example={"top_p": 0.6},
          said="top_p does nothing", change="keep the smallest set of likeliest tokens that holds top_p"),
    Entry(key="sample-top-p-floor",
          changes={"sample.top_p": lambda do, p, top_p: kept(p, (p > 1 - top_p) | first(p))},
          example={"top_p": 0.8}, said="tokens less likely than 1 - top_p are dropped: that is no sum",
          change="add up chances from the likeliest on, until they hold top_p"),
    Entry(key="sample-row-0", changes={"sample.rows": lambda do, x: np.stack([x[0]] * len(x))},
          example={"logits": np.log([[8.0, 4, 2, 2], [1.0, 1, 1, 13]])},
          said="every row is drawn from the first row's logits", change="draw row by row: logits[i], not logits[0]"),
    Entry(key="sample-best", changes={"sample.draw": lambda do, p: 1.0 * (np.arange(len(p)) == p.argmax())},
          said="the best token is taken always: nothing is drawn",
          change="draw with the chances; argmax is temperature 0"),
    Entry(key="sample-uniform", changes={"sample.draw": lambda do, p: (p > 0) / (p > 0).sum()},
          said="all tokens that are left have the same chance", change="draw with the chances"),
    Entry(key="sample-slice-order",
          changes={"sample.row": lambda do, x, t, k, p: -np.sort(-do.right("sample.row", x, t, k, p))},
          example={"logits": np.log([[2.0, 4, 8, 2]])},
          said="a place in the sorted list is returned, not the token that stands there",
          change="sorted_ids[place]: go back from places to tokens"),
)  # fmt: skip


def dropping(kept: Step) -> dict[str, Step]:
    return {"dropout.kept": lambda do, p: np.array(kept(p))}


AROUND = (
    Entry(key="dropout-in-evaluation", changes={"dropout.mode": lambda do, training: True}, example={"training": False},
          said="dropout is active in evaluation", change="if not training: return x; model.eval() before measuring"),
    Entry(key="dropout-never", changes={"dropout.mode": lambda do, training: False},
          said="nothing is dropped in training",
          change="mask where rand < p, while training"),
    Entry(key="dropout-mode-inverted", changes={"dropout.mode": lambda do, training: not training},
          said="dropout is active in evaluation and not in training", change="if training: drop"),
    Entry(key="dropout-not-scaled", changes=dropping(lambda p: [p, 1.0]), said="what is kept is not divided by 1 - p",
          change="x * kept / (1 - p)"),
    Entry(key="dropout-scaled-down", changes=dropping(lambda p: [p, 1 - p]), said="what is kept is multiplied by 1 - p",
          change="x * kept / (1 - p)"),
    Entry(key="dropout-divided-by-p", changes=dropping(lambda p: [p, 1 / p]), said="what is kept is divided by p",
          change="x * kept / (1 - p)"),
    Entry(key="dropout-keeps-p", changes=dropping(lambda p: [1 - p, 1 / p]),
          said="p is taken for the chance to be kept",
          change="a value is dropped with chance p: kept = rand >= p"),
    Entry(key="dropout-keeps-p-not-scaled", changes=dropping(lambda p: [1 - p, 1 / (1 - p)]),
          said="a value is kept with chance p, and divided by 1 - p", change="kept = rand >= p"),
    Entry(key="accumulate-sum", changes={"accumulate": lambda do, g: g.sum(0)},
          said="the gradients are summed, not averaged: N parts make N times the step",
          change="divide each part's loss (or the sum) by the number of parts"),
    Entry(key="accumulate-last", changes={"accumulate": lambda do, g: g[-1]},
          said="the last part's gradient alone is left: was it set to zero between the parts?",
          change="zero_grad() once a batch, not once a part"),
    Entry(key="accumulate-last-divided", changes={"accumulate": lambda do, g: g[-1] / len(g)},
          said="the last part's gradient alone is left, divided by the number of parts",
          change="zero_grad() once a batch, not once a part"),
    Entry(key="accumulate-divided-twice", changes={"accumulate": lambda do, g: g.mean(0) / len(g)},
          said="it is divided by the number of parts twice", change="divide once"),
    Entry(key="accumulate-first", changes={"accumulate": lambda do, g: g[0]},
          said="the first part's gradient alone is used",
          change="add up all parts, divide by their number"),
    Entry(key="sgd-not-zeroed", changes={"sgd": lambda do, w, g, lr: w - lr * g.cumsum(0).sum(0)},
          said="gradients are not set to zero between steps: each step takes all earlier ones again",
          change="zero_grad() before each backward()"),
    Entry(key="sgd-uphill", changes={"sgd": lambda do, w, g, lr: w + lr * g.sum(0)}, said="the step goes uphill",
          change="w = w - lr * g"),
    Entry(key="sgd-last", changes={"sgd": lambda do, w, g, lr: w - lr * g[-1]}, said="the last step alone is taken",
          change="go on from the w of the step before"),
    Entry(key="sgd-mean", changes={"sgd": lambda do, w, g, lr: w - lr * g.mean(0)},
          said="the gradients are averaged into one step",
          change="one step for each"),
    Entry(key="sgd-no-rate", changes={"sgd": lambda do, w, g, lr: w - g.sum(0)}, example={"lr": 0.5},
          said="the learning rate is not used", change="w = w - lr * g"),
    Entry(key="clip-each-value", changes={"clip": lambda do, g, m: np.clip(g, -m, m)},
          said="each value is clipped by itself: the direction changes",
          change="one factor for all: g * min(1, max_norm / norm)"),
    Entry(key="clip-each-row", changes={"clip": lambda do, g, m: g * np.minimum(1, m / np.sqrt(last(g**2, "sum")))},
          said="each row is clipped by its own norm", change="one norm over all gradients together"),
    Entry(key="clip-always", changes={"clip": lambda do, g, m: g * m / np.sqrt((g**2).sum())},
          example={"max_norm": 10.0}, said="short gradients are made longer", change="min(1, max_norm / norm)"),
    Entry(key="clip-largest", changes={"clip": lambda do, g, m: g * min(1.0, m / np.abs(g).max())},
          said="the largest value is taken for the norm", change="norm = sqrt(sum of squares)"),
    Entry(key="clip-no-root", changes={"clip": lambda do, g, m: g * min(1.0, m / (g**2).sum())},
          said="the norm lacks its root", change="norm = sqrt(sum of squares)"),
    Entry(key="clip-to-one", changes={"clip": lambda do, g, m: g / np.sqrt((g**2).sum()) if (g**2).sum() > m**2 else g},
          example={"max_norm": 2.0}, said="long gradients are made 1 long, not max_norm", change="g * max_norm / norm"),
)  # fmt: skip

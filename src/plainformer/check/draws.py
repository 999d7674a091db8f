"""Fresh inputs, so chosen that mistakes differ: lengths unequal to widths, heads to their width, gains to 1.

Every number fits float32 exactly, so that both precisions are asked the same. `draw(rng, number, rank)`: the number
says which kind of input, the rank how many axes the first array has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plainformer.check.steps import Array, Doing

Inputs = dict[str, Any]
Rng = np.random.Generator
WIDTH, N_HEADS, D_FF, VOCAB, CONTEXT, N_LAYERS, N_TOKENS = 18, 3, 72, 19, 11, 2, 7
LEADING = {1: (), 2: (N_TOKENS,), 3: (2, N_TOKENS), 4: (2, N_HEADS, N_TOKENS)}


def fits(x: Array) -> Array:
    """Rounded to float32, held in float64."""
    return np.asarray(x, np.float32).astype(np.float64)


def normal(rng: Rng, *shape: int, scale: float = 1.0, centre: float = 0.0) -> Array:
    return fits(centre + scale * rng.standard_normal(shape))


def leading(rank: int, number: int) -> tuple[int, ...]:
    """The axes before the last; the second draw has one row in its batch."""
    axes = LEADING[rank]
    return (1, *axes[1:]) if number == 1 and rank > 2 else axes


def rows(rng: Rng, number: int, rank: int) -> Inputs:
    x = normal(rng, *leading(rank, number), (5, 6, 2, 257, 9, 4, 6, 8)[number], scale=(1, 3, 1, 2, 8, 1, 1, 1)[number])
    if number == 5:
        x[...] = 2.0  # ties
    if number == 6:  # scores that overflow unless the largest is taken away first
        x = fits(x + 900)
    if number == 7:  # rows far apart
        x = fits(x * 3 - 800 * np.arange(x.shape[-2])[:, None]) if x.ndim > 1 else fits(x - 800)
    return {"x": x, "axis": -1}


def normed_rows(rng: Rng, number: int, rank: int, width: int = 0) -> Inputs:
    width = width or (12, 5, 64, 9, 3, 6)[number]
    x = normal(rng, *leading(rank, number), width, scale=(1, 2, 0.5, 0.003, 3, 1)[number])
    x = x if number == 3 else fits(x + (0.7, -3, 1, 0, 5, 0)[number])  # rows so even that eps counts
    if number == 5:
        x[...] = 0.0  # a row that says nothing
        if x.ndim > 1:
            x[..., 1:, :] = fits(np.linspace(-20, 30, width))
    return {
        "x": x,
        "gain": normal(rng, width, scale=0.4, centre=1.3),
        "bias": normal(rng, width),
        "eps": 1e-4 if number == 3 else 1e-5,
    }


def normed_rows_of_module(rng: Rng, number: int, rank: int) -> Inputs:
    return normed_rows(rng, number, rank, WIDTH)


def spread_values(rng: Rng, number: int, rank: int) -> Inputs:
    shape = ((6,), (4, 5), (1, 3, 7), (2, 6, 4), (41,), (9,))[number]
    x = normal(rng, *shape, scale=(1, 2, 1, 3, 1, 1)[number])
    if number == 4:
        x = fits(np.linspace(-5, 5, 41))
    if number == 5:
        x = np.array([-3e4, -90, -30, -1e-6, 0, 1e-6, 30, 90, 3e4])
    return {"x": fits(x)}


def turned(rng: Rng, number: int, rank: int) -> Inputs:
    n_tokens, width = ((7, 8), (5, 6), (9, 4), (1, 10), (3000, 4), (6, 8))[number]
    axes = {2: (), 3: (2,), 4: (2, 3)}[rank]
    return {
        "x": normal(rng, *axes, n_tokens, width),
        "start": (0, 3, 17, 5, 0, 5)[number],
        "theta": (10000.0, 10000.0, 500.0, 10000.0, 10000.0, 10000.0)[number],
    }


def queries(rng: Rng, number: int, rank: int) -> Inputs:
    n_queries, n_keys = ((7, 7), (1, 1), (5, 5), (4, 4), (3, 8), (40, 40), (4, 4))[number]
    width = (4, 5, 6, 3, 5, 8, 4)[number]
    axes = {2: (), 3: (2,), 4: (1 if number == 1 else 2, 3)}[rank]
    q, k, v = (normal(rng, *axes, n, width) for n in (n_queries, n_keys, n_keys))
    if number == 2:
        q, k = fits(2 * q), fits(2 * k)
    if number == 6:
        q, k = fits(150 * q), fits(150 * k)  # scores in the ten thousands
    allowed = np.tril(np.ones((n_queries, n_keys), bool), n_keys - n_queries)
    if number == 3:
        allowed = allowed & (np.arange(4) > np.arange(4)[:, None] - 2)
    return {"q": q, "k": k, "v": v, "allowed": allowed, "causal": number != 2}


def cached(rng: Rng, number: int, rank: int) -> Inputs:
    n_new, n_past, width = ((1, 5, 4), (1, 1, 6), (3, 4, 5), (2, 7, 3), (1, 30, 8), (4, 2, 4))[number]
    axes = {2: (), 3: (2,), 4: (2, 3)}[rank]
    q, k, v = (normal(rng, *axes, n_new, width) for _ in "qkv")
    past_k, past_v = (normal(rng, *axes, n_past, width) for _ in "kv")
    return {"q": q, "k": k, "v": v, "past_k": past_k, "past_v": past_v}


def routed(rng: Rng, number: int, rank: int) -> Inputs:
    n_tokens, n_experts, k = ((7, 5, 2), (1, 4, 1), (9, 8, 3), (6, 4, 2), (8, 6, 2), (3, 4, 2))[number]
    scores = fits(rng.permuted(np.arange(n_tokens * n_experts).reshape(n_tokens, n_experts) * 0.11, axis=1))
    if number == 3:
        scores = fits(scores * 6 - 5)
    if number == 5:
        scores = fits(np.array([[0.0, 0, 0, 0], [1, 2, 2, 2], [3, 3, 1, 0]]))  # ties
    return {"scores": scores, "k": k}


def scored(rng: Rng, number: int, rank: int) -> Inputs:
    axes, n = leading(rank, number), (19, 5, 11, 30, 7, 6, 6)[number]
    logits = normal(rng, *axes, n, scale=(1, 2, 3, 1, 1, 1, 1)[number])
    targets = rng.integers(0, n, axes)
    ignored = 1 if number in (2, 3) else None  # padding is a token like any other
    if ignored is not None:
        targets[..., 0] = targets[..., -1] = ignored
        if rank > 2:
            targets[0, :4] = ignored  # unequal rows: the mean of means is another number
    if number == 5:
        logits = fits(logits * 300)
    if number == 6:
        logits = fits(logits + 5000)
    return {"logits": logits, "targets": targets, "ignore_index": ignored}


def scored_tokens(rng: Rng, number: int, rank: int) -> Inputs:
    axes, n = leading(rank, number), (19, 5, 11, 30, 7, 6)[number]
    logits = normal(rng, *axes, n, scale=(1, 2, 3, 1, 1, 1)[number])
    return {"logits": fits(logits * 300) if number == 5 else logits, "tokens": rng.integers(0, n, axes)}


def embedded(rng: Rng, number: int, rank: int) -> Inputs:
    axes = leading(rank + 1, number)
    n = (19, 5, 30, 6, 8, 9)[number]
    return {
        "ids": rng.integers(0, n, axes),
        "tokens.w": normal(rng, n, 6),
        "positions.w": normal(rng, 24, 6),
        "start": (0, 3, 5, 0, 11, 2)[number],
    }


def table_sizes(rng: Rng, number: int, rank: int) -> Inputs:
    n_tokens, width = ((9, 6), (5, 16), (300, 8))[number]
    return {"n_tokens": n_tokens, "width": width}


def to_draw_from(rng: Rng, number: int, rank: int) -> Inputs:
    """Chances well apart, and top_p in the middle of a step, so that rounding never decides who stays."""
    n_rows, n = (1, 6) if rank == 1 or number == 1 else (3, 6)
    steps = np.array([0.0, 0.4, 1.0, 1.5, 2.2, 2.9])
    logits = fits(np.stack([1.3 + rng.permutation(steps[:n] * (1 + 0.1 * row)) for row in range(n_rows)]))
    temperature = (1.0, 0.6, 1.7, 1.0, 0.8, 1.0, 1.0)[number]
    top_k = (None, 3, None, 2, 4, None, None)[number]
    top_p = 1.0
    if number in (2, 4):  # with the first row's chances
        p = np.exp(np.sort(logits[0])[::-1] / temperature)
        p = p[:top_k] / p[:top_k].sum()
        top_p = float(p[:2].sum() + p[2] / 2)
        logits = np.stack([rng.permutation(logits[0]) for _ in range(n_rows)])
    if number == 5:
        logits = fits(logits * 500)
    if number == 6:
        logits = fits(logits - 2000)
    return {
        "logits": logits[0] if rank == 1 else logits,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
    }


def dropped(rng: Rng, number: int, rank: int) -> Inputs:
    return {"x": np.ones((200, 100)), "p": (0.3, 0.1, 0.3)[number], "training": number != 2}


def gradients(rng: Rng, number: int, rank: int) -> Inputs:
    return {"grads": normal(rng, (3, 4, 1)[number], 5, centre=0.5)}


def descents(rng: Rng, number: int, rank: int) -> Inputs:
    return {"w": normal(rng, 4), "grads": normal(rng, (3, 5, 2)[number], 4), "lr": (0.5, 0.25, 2.0)[number]}


def too_long(rng: Rng, number: int, rank: int) -> Inputs:
    return {"grads": normal(rng, 3, 4), "max_norm": (1.0, 100.0, 0.5)[number]}


def norm_and_upstream(rng: Rng, number: int, rank: int) -> Inputs:
    width = (6, 4, 9)[number]
    x = normal(rng, 3, width, scale=(1, 0.004, 2)[number])
    gain, bias = normal(rng, width, scale=0.4, centre=1.3), normal(rng, width)
    return {"x": x, "gain": gain, "bias": bias, "eps": 1e-5, "upstream": normal(rng, 3, width)}


# --- weights ---------------------------------------------------------------------------------------------------------


def weight(rng: Rng, role: str, shape: tuple[int, ...]) -> Array:
    """Large enough that a wrong formula cannot hide, small enough that no softmax is a step."""
    if role.endswith("gain"):
        return normal(rng, *shape, scale=0.3, centre=1.2)
    return normal(rng, *shape, scale=0.4 if len(shape) < 2 else 1.2 / np.sqrt(shape[0]))


def drawn(rng: Rng, shapes: Mapping[str, tuple[int, ...]]) -> Inputs:
    return {role: weight(rng, role, shape) for role, shape in shapes.items()}


def heads_shapes(width: int, width_kv: int | None = None, place: str = "") -> dict[str, tuple[int, ...]]:
    narrow = width_kv or width
    out = {"q": width, "k": narrow, "v": narrow, "o": width}
    return {f"{place}{one}.w": (width, n) for one, n in out.items()} | {
        f"{place}{one}.b": (n,) for one, n in out.items()
    }


def fed_shapes(width: int, d_ff: int, place: str = "") -> dict[str, tuple[int, ...]]:
    both = {f"{place}up.w": (width, d_ff), f"{place}up.b": (d_ff,)}
    return both | {f"{place}down.w": (d_ff, width), f"{place}down.b": (width,)}


def block_shapes(width: int, d_ff: int, place: str = "") -> dict[str, tuple[int, ...]]:
    norms = {f"{place}ln{n}.{leaf}": (width,) for n in (1, 2) for leaf in ("gain", "bias")}
    return norms | heads_shapes(width, place=f"{place}attn.") | fed_shapes(width, d_ff, f"{place}mlp.")


def gpt_shapes(width: int, d_ff: int, vocab: int, context: int, n_layers: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"wte": (vocab, width), "wpe": (context, width)}
    for i in range(n_layers):
        found |= block_shapes(width, d_ff, f"block{i}.")
    return found | {"ln_f.gain": (width,), "ln_f.bias": (width,), "head.w": (width, vocab)}


def stream(rng: Rng, number: int, rank: int) -> Array:
    return normal(rng, *leading(rank, number), WIDTH)


def tril(x: Array) -> Array:
    return np.tril(np.ones((x.shape[-2], x.shape[-2]), bool))


def many_heads(rng: Rng, number: int, rank: int) -> Inputs:
    grouped = number in (3, 4)  # with n_kv_heads, where theirs takes it
    n_heads, n_kv = (6, 2) if grouped else (3, None)
    shapes = heads_shapes(WIDTH, WIDTH * n_kv // n_heads if n_kv else None)
    x = stream(rng, number, rank)
    return {
        "x": x,
        **drawn(rng, shapes),
        "n_heads": n_heads,
        "n_kv_heads": n_kv,
        "causal": number != 2,
        "allowed": tril(x),
    }


def many_heads_alike(rng: Rng, number: int, rank: int) -> Inputs:
    """Of code that knows no groups."""
    return many_heads(rng, number % 3, rank)


def fed(rng: Rng, number: int, rank: int) -> Inputs:
    d_ff = (D_FF, 20, D_FF, 20, D_FF, D_FF)[number]
    shapes = fed_shapes(WIDTH, d_ff) | {"gate.w": (WIDTH, d_ff)}
    return {"x": fits(stream(rng, number, rank) * (30 if number == 5 else 1)), **drawn(rng, shapes)}


def through_block(rng: Rng, number: int, rank: int) -> Inputs:
    x = stream(rng, number, rank)
    return {"x": x, **drawn(rng, block_shapes(WIDTH, D_FF)), "n_heads": N_HEADS, "causal": True, "allowed": tril(x)}


def through_gpt(rng: Rng, number: int, rank: int) -> Inputs:
    shapes = gpt_shapes(WIDTH, D_FF, VOCAB, CONTEXT, N_LAYERS)
    ids = rng.integers(0, VOCAB, ((2, 7), (1, CONTEXT), (3, 4))[number])
    ids = ids if rank == 2 else ids[0]
    return {"ids": ids, "targets": np.roll(ids, -1, -1), **drawn(rng, shapes), "n_heads": N_HEADS}


# --- examples for a hand ---------------------------------------------------------------------------------------------


def two_heads() -> Inputs:
    """Projections that change nothing: two heads of width 1 read the columns of x."""
    eye = np.eye(2)
    w = {"q.w": eye, "k.w": eye, "v.w": np.diag([1.0, 10.0]), "o.w": np.array([[1.0, 1.0], [0.0, 1.0]])}
    return {"x": np.array([[1.0, 2.0], [3.0, 0.0]]), **w, "n_heads": 2, "n_kv_heads": None, "causal": True}


def small_block() -> Inputs:
    w = drawn(np.random.default_rng(2), block_shapes(2, 3))
    w = {name: np.round(value) + (name.endswith(".gain") * 1.0) for name, value in w.items()}
    return {
        "x": np.array([[1.0, 3.0], [2.0, 0.0]]),
        **w,
        "n_heads": 1,
        "causal": True,
        "activation": "gelu",
        "eps": 1e-5,
    }


def small_gpt() -> Inputs:
    w = drawn(np.random.default_rng(3), gpt_shapes(2, 3, 3, 4, 1))
    w = {name: np.round(2 * value) / 2 for name, value in w.items()}
    return {"ids": np.array([2, 0, 1]), **w, "n_heads": 1, "activation": "gelu", "eps": 1e-5}


# --- slopes ----------------------------------------------------------------------------------------------------------


def slopes(
    run: Any, do: Doing, inputs: Inputs, names: tuple[str, ...], along: Array, places: Any = None
) -> list[Array]:
    """d sum(along * run) / d inputs[name], for each name: central differences of fourth order. What `do` freezes stays
    as it is at the inputs. `places`: of each array the flat places asked; None: all."""
    run(do.again(), inputs)
    found = []
    for name in names:
        base = np.array(inputs[name], np.float64)
        asked = range(base.size) if places is None else places[name]
        grad = np.zeros(base.size)
        for at in asked:
            told = []
            by = 1e-3 * (min(1.0, np.abs(base).max()) or 0.1)
            for times in (1, -1, 2, -2):
                moved = base.copy()
                moved.flat[at] += times * by
                told.append(float((along * run(do.again(), inputs | {name: moved})).sum()))
            grad[at] = (8 * (told[0] - told[1]) - (told[2] - told[3])) / (12 * by)
        found.append(grad.reshape(base.shape))
    return found


def slopes_of_norm(do: Doing, i: Inputs) -> Array:
    """dx, dgain and dbias of a layer norm, one after the other in one row."""

    def run(do: Doing, i: Inputs) -> Array:
        return do("norm", i["x"], i["gain"], i["bias"], i["eps"])

    wide = {
        "gain": np.broadcast_to(i["gain"], i["x"].shape[-1:]),
        "bias": np.broadcast_to(i["bias"], i["x"].shape[-1:]),
    }
    found = slopes(run, do, i | wide, ("x", "gain", "bias"), i["upstream"])
    return np.concatenate([g.ravel() for g in found])

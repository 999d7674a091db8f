"""Mistakes in rotary embeddings, position tables and token tables."""

from __future__ import annotations

import numpy as np

from plainformer.check.catalogue.entry import Entry
from plainformer.check.steps import Array, Doing, Step

LONG = {"x": np.array([[1.0, 2, 3, 4]]), "start": 3001}


def bfloat16(x: Array) -> Array:
    """Rounded to 8 bits of mantissa."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32).astype(np.float64)


def wave(cos: Step, sin: Step) -> dict[str, Step]:
    return {"rotary.wave": lambda do, angle: (cos(angle), sin(angle))}


def frequencies(of: Step) -> dict[str, Step]:
    """of(pairs 0 .. width / 2 - 1, width, theta)."""
    return {"rotary.frequencies": lambda do, width, theta: of(np.arange(width // 2), width, theta)}


def positions(of: Step) -> dict[str, Step]:
    return {"rotary.positions": lambda do, n_tokens, start: of(n_tokens, start)}


def turned(how: Step) -> dict[str, Step]:
    def turn(do: Doing, x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
        a, b = do("rotary.pairs", x, interleaved)
        pair = how(a, b, cos, sin)
        return np.stack(pair, -1).reshape(x.shape) if interleaved else np.concatenate(pair, -1)

    return {"rotary.turn": turn}


def mixed(do: Doing, x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """x * cos + partner(x) * sin, the waves laid as the other form lays them."""
    half = x.shape[-1] // 2
    if interleaved:
        partner = np.stack((-x[..., 1::2], x[..., ::2]), -1).reshape(x.shape)
        cos, sin = (np.concatenate((y, y), -1) for y in (cos, sin))
    else:
        partner = np.concatenate((-x[..., half:], x[..., :half]), -1)
        cos, sin = (y.repeat(2, -1) for y in (cos, sin))
    return x * cos + partner * sin


def first_half(do: Doing, x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    turned = do.right("rotary.turn", x, cos, sin, interleaved)
    return np.concatenate((turned[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]), -1)


def reordered(do: Doing, x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """Read in pairs of one kind, written in the other's order."""
    a, b = do("rotary.pairs", x, interleaved)
    pair = (a * cos - b * sin, b * cos + a * sin)
    return np.concatenate(pair, -1) if interleaved else np.stack(pair, -1).reshape(x.shape)


ROTARY = (
    Entry(key="rotary-start-ignored", changes=positions(lambda n, start: np.arange(n)), example={"start": 2},
          said="the start is ignored: while generating, every new token stands at position 0",
          change="positions = start + arange(T), start = number of tokens in the cache"),
    Entry(key="rotary-from-one", changes=positions(lambda n, start: start + 1 + np.arange(n)),
          said="positions begin at 1, not at 0", change="arange(T), not arange(1, T + 1)"),
    Entry(key="rotary-start-less-one", changes=positions(lambda n, start: np.maximum(start - 1, 0) + np.arange(n)),
          said="after a start, positions are one too small", example={"start": 2},
          change="the first new token stands at position start: positions count from 0"),
    Entry(key="rotary-last-first", changes=positions(lambda n, start: start + np.arange(n)[::-1]),
          said="positions run from last to first", change="start + arange(T)"),
    Entry(key="rotary-backwards", changes=turned(lambda a, b, cos, sin: (a * cos + b * sin, b * cos - a * sin)),
          said="pairs turn the other way", change="(a cos - b sin, b cos + a sin)"),
    Entry(key="rotary-minus", changes=turned(lambda a, b, cos, sin: (a * cos + b * sin, b * cos + a * sin)),
          said="the minus before b sin is missing: this is no turn", change="(a cos - b sin, b cos + a sin)"),
    Entry(key="rotary-minus-below", changes=turned(lambda a, b, cos, sin: (a * cos - b * sin, b * cos - a * sin)),
          said="the second of each pair has the wrong sign before a sin", change="(a cos - b sin, b cos + a sin)"),
    Entry(key="rotary-second-turned-from-first",
          changes=turned(lambda a, b, cos, sin: (a * cos - b * sin, b * cos + (a * cos - b * sin) * sin)),
          said="the second of each pair is made from the first as already turned: overwritten too early",
          change="keep a before it is written over"),
    Entry(key="rotary-sine-for-cosine", changes=wave(np.sin, np.cos), said="sine and cosine have changed places",
          change="(a cos - b sin, b cos + a sin)"),
    Entry(key="rotary-degrees", changes=wave(lambda x: np.cos(np.radians(x)), lambda x: np.sin(np.radians(x))),
          said="the angle is taken for degrees", change="cos and sin read radians: no conversion"),
    Entry(key="rotary-no-pair-doubling", changes=frequencies(lambda p, n, theta: theta ** (-p / n)),
          said="the exponent is -p / d_head, not -2p / d_head", change="theta ** (-arange(0, d_head, 2) / d_head)"),
    Entry(key="rotary-half-width", changes=frequencies(lambda p, n, theta: theta ** (-4 * p / n)),
          said="the exponent is -2p / (d_head / 2), not -2p / d_head: divided by half the width",
          change="theta ** (-arange(0, d_head, 2) / d_head)"),
    Entry(key="rotary-whole-division", changes=frequencies(lambda p, n, theta: np.ones(len(p))),
          said="the exponent is a whole division: 2p // d_head is 0, so that all pairs turn alike",
          change="/ d_head, not //"),
    Entry(key="rotary-positive-exponent", changes=frequencies(lambda p, n, theta: theta ** (2 * p / n)),
          said="the exponent lacks its minus: later pairs turn faster, not slower",
          change="1 / theta ** (2p / d_head)"),
    Entry(key="rotary-theta-1000", changes=frequencies(lambda p, n, theta: (theta / 10) ** (-2 * p / n)),
          said="the base is a tenth of what it should be: 1000, not 10000", change="theta = 10000"),
    Entry(key="rotary-theta-fixed", changes=frequencies(lambda p, n, theta: 10000.0 ** (-2 * p / n)),
          said="theta is not used: the base is always 10000", change="theta ** (-2p / d_head)"),
    Entry(key="rotary-pairs-mixed", changes={"rotary.turn": mixed},
          said="cos and sin are laid for the other kind of pairs: halves by repeat, or neighbours by cat",
          change="halves: cat((angle, angle), -1); interleaved: repeat_interleave(angle, 2, -1)"),
    Entry(key="rotary-order-mixed", changes={"rotary.turn": reordered},
          said="pairs are read as one kind and written as the other",
          change="halves: cat the two; interleaved: stack them, then flatten"),
    Entry(key="rotary-half-turned", changes={"rotary.turn": first_half},
          said="only the first half of the width comes out turned", change="both members of each pair turn"),
    Entry(key="rotary-float16-positions",
          changes=positions(lambda n, start: (start + np.arange(n)).astype(np.float16).astype(float)),
          example=LONG, said="positions are held in float16: above 2048 they are no longer whole numbers apart",
          change="compute angles in float32 or better, cast cos and sin after"),
    Entry(key="rotary-bfloat16-positions", changes=positions(lambda n, start: bfloat16(start + np.arange(n))),
          example=LONG, said="positions are held in bfloat16: above 256 neighbours share one",
          change="compute angles in float32 or better, cast cos and sin after"),
    Entry(key="rotary-not-turned", changes={"rotary.turn": lambda do, x, cos, sin, interleaved: x},
          said="nothing is turned", change="return the turned x"),
)  # fmt: skip


def standing(of: Step) -> dict[str, Step]:
    return {"embed.positions": lambda do, n_tokens, start, n_rows: of(n_tokens, start, n_rows)}


TABLES = (
    Entry(key="embed-start-ignored", changes=standing(lambda n, start, rows: np.arange(n)), example={"start": 1},
          where="embed", said="the start is ignored: while generating, every new token stands at position 0",
          change="positions = start + arange(T), start = number of tokens in the cache"),
    Entry(key="embed-from-one", changes=standing(lambda n, start, rows: np.minimum(start + 1 + np.arange(n), rows - 1)),
          said="positions begin at 1, not at 0", change="arange(T), not arange(1, T + 1)"),
    Entry(key="embed-all-at-0", changes=standing(lambda n, start, rows: np.zeros(n, int)),
          said="every token gets the row of position 0", change="position_table[arange(T)]"),
    Entry(key="embed-all-at-start", changes=standing(lambda n, start, rows: np.full(n, start)), example={"start": 1},
          where="embed", said="every token gets the row of the start", change="position_table[start + arange(T)]"),
    Entry(key="embed-backwards", changes=standing(lambda n, start, rows: start + np.arange(n)[::-1]),
          said="positions run backwards", change="arange(T)"),
    Entry(key="embed-no-positions", changes={"embed.sum": lambda do, tokens, where: tokens},
          said="positions are not added: order is seen through the mask alone",
          change="x = token_table[ids] + position_table[positions]"),
    Entry(key="embed-multiplied", changes={"embed.sum": lambda do, tokens, where: tokens * where},
          said="token rows are multiplied by position rows", change="add them"),
    Entry(key="embed-scaled", changes={"embed.tokens": lambda do, table, ids: table[ids] * np.sqrt(table.shape[-1])},
          said="token rows are multiplied by sqrt(d_model), as in 2017 and in Gemma, not in GPT",
          change="the rows as they are"),
    Entry(key="embed-shrunk", changes={"embed.tokens": lambda do, table, ids: table[ids] / np.sqrt(table.shape[-1])},
          said="token rows are divided by sqrt(d_model)", change="the rows as they are"),
    Entry(key="embed-positions-scaled",
          changes={"embed.sum": lambda do, tokens, where: (tokens + where) * np.sqrt(tokens.shape[-1])},
          said="the sum of both rows is multiplied by sqrt(d_model)", change="the rows as they are"),
    Entry(key="embed-positions-alone", changes={"embed.sum": lambda do, tokens, where: tokens * 0 + where},
          said="the token rows are lost: positions alone go on", change="token rows + position rows"),
    Entry(key="sinusoids-halves", changes={"sinusoids.lay": lambda do, sin, cos: np.concatenate((sin, cos), -1)},
          said="all sines come first, then all cosines",
          change="sine at even columns, cosine at odd: table[:, 0::2], [:, 1::2]"),
    Entry(key="sinusoids-changed-places",
          changes={"sinusoids.lay": lambda do, sin, cos: do.right("sinusoids.lay", cos, sin)},
          said="cosine stands at even columns, sine at odd", change="sine at even columns, cosine at odd"),
    Entry(key="sinusoids-from-one", changes={"sinusoids.positions": lambda do, n: 1 + np.arange(n)},
          said="positions begin at 1, not at 0", change="arange(T)"),
    Entry(key="sinusoids-no-doubling",
          changes={"sinusoids.frequencies": lambda do, n: 10000.0 ** (-np.arange(n // 2) / n)},
          said="the exponent is -p / width, not -2p / width", change="10000 ** (-arange(0, width, 2) / width)"),
    Entry(key="sinusoids-doubled-twice",
          changes={"sinusoids.frequencies": lambda do, n: 10000.0 ** (-4 * np.arange(n // 2) / n)},
          said="the exponent is -4p / width: a column number was doubled once more",
          change="arange(0, width, 2) is 2p already"),
    Entry(key="sinusoids-base-1000",
          changes={"sinusoids.frequencies": lambda do, n: 1000.0 ** (-np.arange(0, n, 2) / n)},
          said="the base is 1000, not 10000", change="10000 ** (-2p / width)"),
    Entry(key="sinusoids-all-sine", changes={"sinusoids.lay": lambda do, sin, cos: do.right("sinusoids.lay", sin, sin)},
          said="odd columns are sines too", change="cosine at odd columns"),
    Entry(key="sinusoids-positive-exponent",
          changes={"sinusoids.frequencies": lambda do, n: 10000.0 ** (2 * np.arange(n // 2) / n)},
          said="the exponent lacks its minus: positions are multiplied where they should be divided",
          change="position / 10000 ** (2p / width)"),
    Entry(key="sinusoids-own-cosine-frequency",
          changes={"sinusoids": lambda do, n, width: own_frequencies(n, width)},
          said="each cosine has a frequency of its own, not that of the sine beside it",
          change="sine and cosine of a pair share 2p = column // 2 * 2"),
)  # fmt: skip


def own_frequencies(n_tokens: int, width: int) -> Array:
    """Column c turns at 10000^(-c / width)."""
    angle = np.arange(n_tokens)[:, None] * 10000.0 ** (-np.arange(width) / width)
    return np.where(np.arange(width) % 2, np.cos(angle), np.sin(angle))

"""A mistake on numbers small enough for a hand: what goes in, what the formula gives, what the mistake gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from plainformer.check import draws as d
from plainformer.check.catalogue import Entry
from plainformer.check.steps import Array, Doing
from plainformer.check.topic import Inputs, Topic
from plainformer.check.topics import TOPICS

SHOWN = 6  # numbers of an answer


@dataclass(frozen=True)
class Example:
    """`given`: the inputs in words; `right` and `wrong`: both answers, as they are shown."""

    given: str
    right: str
    wrong: str
    right_values: Array
    wrong_values: Array


def centred(x: Array) -> Array:
    return x - x.mean(-1, keepdims=True)


def residual(do: Doing, i: Inputs) -> Array:
    """A norm that takes the mean away, a part that squares."""
    return do(i["step"], i["x"], centred, lambda y: y**2)


def in_block(do: Doing, i: Inputs) -> Array:
    """norm_1 takes the mean away, norm_2 halves; attention squares, the feed-forward adds 1."""
    norms = do("block.norms", centred, lambda y: y / 2)
    return do("block.order", i["x"], norms, (lambda y: y**2, lambda y: y + 1))


def in_decoder(do: Doing, i: Inputs) -> Array:
    """Two blocks: the first doubles, the second adds 1."""
    x = i["x"]
    for number in do("gpt.blocks", 2):
        x = (2 * x, x + 1)[number]
    return x


ROW = np.array([1.0, 5.0])
BY_STEP: dict[str, tuple[Callable[[Doing, Inputs], Array], Inputs, str]] = {
    "residual": (residual, {"x": ROW, "step": "residual"}, "x = (1, 5), norm takes the mean away, the part squares"),
    "residual.attention": (
        residual,
        {"x": ROW, "step": "residual.attention"},
        "x = (1, 5), the norm takes the mean away, attention squares",
    ),
    "residual.feed_forward": (
        residual,
        {"x": ROW, "step": "residual.feed_forward"},
        "x = (1, 5), the norm takes the mean away, the feed-forward squares",
    ),
    "block.norms": (in_block, {"x": ROW}, f"x = (1, 5); {in_block.__doc__}"),
    "block.order": (in_block, {"x": ROW}, f"x = (1, 5); {in_block.__doc__}"),
    "heads.split": (
        lambda do, i: do("heads.split", i["x"], 2),
        {"x": np.array([[1.0, 2, 3, 4], [5, 6, 7, 8]])},
        "two tokens ((1, 2, 3, 4), (5, 6, 7, 8)), cut into two heads: (head, token, number)",
    ),
    "heads.join": (
        lambda do, i: do("heads.join", i["x"]),
        {"x": np.array([[[1.0, 2], [5, 6]], [[3, 4], [7, 8]]])},
        "what two heads say of two tokens: (((1, 2), (5, 6)), ((3, 4), (7, 8)))",
    ),
    "heads.repeat": (
        lambda do, i: do("heads.repeat", i["x"], 2)[..., 0, 0],
        {"x": np.array([[[10.0]], [[20.0]]])},
        "two kv heads that hold 10 and 20, for four query heads",
    ),
    "heads.roles": (
        lambda do, i: np.stack(do("heads.roles", *i["x"], 2)),
        {"x": np.array([[1.0, 2], [3, 4], [5, 6]])},
        "a fused row (1, 2, 3, 4, 5, 6) of q, k, v, two heads of width 1",
    ),
    "heads.out": (
        lambda do, i: do("heads.out", i["x"], i["w"], i["b"]),
        {"x": np.array([1.0, 2]), "w": np.array([[1.0, 1], [0, 1]]), "b": np.array([0.0, 1])},
        "heads side by side (1, 2), W_o = ((1, 1), (0, 1)), b_o = (0, 1)",
    ),
    "linear": (
        lambda do, i: do("linear", i["x"], i["w"], i["b"]),
        {"x": np.array([1.0, 2]), "w": np.array([[1.0, 1], [0, 1]]), "b": np.array([0.0, 1])},
        "x = (1, 2), W = ((1, 1), (0, 1)), b = (0, 1)",
    ),
    "cache.keys": (
        lambda do, i: np.stack([do(f"cache.{one}", i["past"], i["new"])[:, 0] for one in ("keys", "values")]),
        {"past": np.array([[1.0], [2.0]]), "new": np.array([[3.0]])},
        "the past holds 1 and 2, 3 is new: (keys, values)",
    ),
    "gpt.blocks": (in_decoder, {"x": ROW}, f"x = (1, 5). {in_decoder.__doc__}"),
    "gpt.last": (
        lambda do, i: do("gpt.last", i["x"], 1.0, 0.0, 1e-5),
        {"x": np.array([[1.0, 2.0, 3.0, 6.0]])},
        "x = (1, 2, 3, 6) after the last block, gain 1, bias 0",
    ),
    "gpt.head": (
        lambda do, i: do("gpt.head", i["x"], i["w"], i["b"]),
        {"x": np.array([[1.0, 2.0]]), "w": np.array([[1.0, 0, 1], [0, 1, 1]]), "b": np.array([0.0, 1, 0])},
        "x = (1, 2), W = ((1, 0, 1), (0, 1, 1)), b = (0, 1, 0)",
    ),
    "attn.causal": (
        lambda do, i: do("attn.causal", i["t"], i["s"]) * 1,
        {"t": 2, "s": 3},
        "2 new tokens over 3 keys: who may see whom (1: may)",
    ),
}


def topic_for(entry: Entry) -> Topic:
    """The thing with the fewest steps that does the mistake's on its example."""
    if entry.where:
        return TOPICS[entry.where]
    fits = []
    for topic in TOPICS.values():
        do = Doing()
        with np.errstate(all="ignore"):
            topic.run(do, filled(topic, topic.example))
        if set(entry.steps) <= set(do.met):
            fits.append((len(do.met), topic))
    if not fits:
        raise LookupError(entry.key)
    return min(fits, key=lambda one: one[0])[1]


def filled(topic: Topic, example: Mapping[str, Any]) -> Inputs:
    """An example's inputs with what stands for the rest."""
    opened = {o.name: o.choices[0] for o in reversed(topic.open)}
    without = {
        a.name: None if a.without is not None and not isinstance(a.without, (int, float)) else a.without
        for a in topic.arguments
    }
    return {**opened, **without, **example}


def of(entry: Entry) -> Example:
    """The example of an entry, both numbers computed."""
    special = BY_STEP.get(entry.step) if not entry.where and not entry.example and not entry.frozen else None
    doing = entry.doing(np.float64)
    with np.errstate(all="ignore"):
        if special is not None:
            run, inputs, words = special
            return shown(words, run(Doing(), inputs), run(doing, inputs))
        topic = topic_for(entry)
        inputs = filled(topic, {**topic.example, **entry.example})
        if entry.frozen and topic.name != "layer_norm_grad":
            names = topic.slopes[:1]
            truth = topic.run(Doing(), inputs)
            along = np.ones(np.shape(truth))
            right, wrong = (d.slopes(topic.run, do, inputs, names, along)[0] for do in (Doing(), doing))
            return shown(f"{words_of(topic, inputs)}; the slope of the answer's sum by {names[0]}", right, wrong)
        return shown(words_of(topic, inputs), topic.run(Doing(), inputs), topic.run(doing, inputs))


def shown(given: str, right: Array, wrong: Array) -> Example:
    right, wrong = np.asarray(right, np.float64), np.asarray(wrong, np.float64)
    places = 3
    while places < 9 and said(right, places) == said(wrong, places):
        places += 1
    return Example(given, said(right, places), said(wrong, places), right, wrong)


def said(x: Any, places: int = 4) -> str:
    """Numbers as a person writes them: (1, 0.196)."""
    if isinstance(x, np.ndarray) and x.ndim > 1 and len(x) == 1:
        return said(x[0], places)
    if isinstance(x, np.ndarray) and x.ndim:
        return f"({', '.join(said(one, places) for one in x)})"
    if isinstance(x, (bool, np.bool_)):
        return str(bool(x))
    if isinstance(x, (int, np.integer)) or x is None or isinstance(x, str):
        return str(x)
    text = f"{float(x):.{places}f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def words_of(topic: Topic, inputs: Inputs) -> str:
    """The inputs that matter, in a row."""
    left_out = {o.name for o in topic.open} | {"n_kv_heads", "axis"}
    told = []
    for name in dict.fromkeys((*topic.example, *inputs)):
        value = inputs[name]
        if name in left_out - set(topic.example) or value is None:
            continue
        if isinstance(value, np.ndarray) and value.size > 60:
            told.append(f"{name} of {value.size} ones")
        else:
            told.append(
                f"{name.replace('.', '_')} = {said(value) if isinstance(value, np.ndarray) else short_number(value)}"
            )
    return ", ".join(told)


def short_number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)

"""Rows of tensor names, and what many families' tables are made of. {i} counts layers, {e} experts."""

from __future__ import annotations

from typing import Literal

from plainformer.records import dataclass

Lies = Literal[
    "same", "turned", "split", "split turned", "split in heads", "stacked", "pairs", "pairs turned", "one row"
]


@dataclass(frozen=True)
class Row:
    """Their pattern, our patterns, and how theirs lies to ours: as it is, turned, side by side, side by side within
    each head, one of a stack, alternating, the one row of a table."""

    theirs: str
    ours: tuple[str, ...]
    lies: Lies = "same"
    beside: str | None = None  # the row counts only where the ledger has this name
    without: str | None = None  # or only where it has not
    made: bool = False  # a table of sines that files need not hold: `names.sines`


def row(theirs: str, *ours: str, lies: Lies = "same", beside: str | None = None, without: str | None = None) -> Row:
    return Row(theirs, ours, lies, beside, without)


def both(
    theirs: str, *ours: str, weight: Lies = "same", bias: Lies = "same", without: str | None = None
) -> tuple[Row, Row]:
    """The rows of a weight and of its bias."""
    return (
        Row(f"{theirs}.weight", tuple(f"{name}.weight" for name in ours), weight, without=without),
        Row(f"{theirs}.bias", tuple(f"{name}.bias" for name in ours), bias, without=without),
    )


def several(theirs: str, ours: str, names: dict[str, str]) -> tuple[Row, ...]:
    """Weights and biases that stand side by side: {their name: our name}."""
    return tuple(r for a, b in names.items() for r in both(f"{theirs}.{a}", f"{ours}.{b}"))


DECODER, ENCODER = "decoder.layers.{i}", "encoder.layers.{i}"
QKV = tuple(f"{DECODER}.attention.{name}" for name in "qkv")
GATED = {"gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
PROJECTIONS = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "out_proj": "out"}

QK_NORMED = {"q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "out", "q_norm": "q.norm", "k_norm": "k.norm"}


def llama_like(
    norms: dict[str, str], *more: Row, attention: dict[str, str] = QK_NORMED, feed_forward: dict[str, str] = GATED
) -> tuple[Row, ...]:
    """What all that came of Llama share: {their norm in the layer: ours}, rows of their own, their projections."""
    return (
        row("model.embed_tokens.weight", "embedding.weight"),
        *several("model.layers.{i}.self_attn", f"{DECODER}.attention", attention),
        *several("model.layers.{i}", DECODER, norms),
        *several("model.layers.{i}.mlp", f"{DECODER}.feed_forward", feed_forward),
        *more,
        row("model.norm.weight", "decoder.norm_last.weight"),
        row("lm_head.weight", "head.weight"),
    )


def stacked(theirs: str, names: dict[str, str]) -> tuple[Row, ...]:
    """Experts that are published one by one: {their linear: ours}."""
    return tuple(
        row(f"{theirs}.{{e}}.{a}.weight", f"{DECODER}.feed_forward.experts.{b}.weight", lies="stacked")
        for a, b in names.items()
    )


PRE = {"input_layernorm": "attention_norm", "post_attention_layernorm": "feed_forward_norm"}
AFTER = {"post_attention_layernorm": "attention_norm_out", "post_feedforward_layernorm": "feed_forward_norm_out"}
SANDWICH = {"input_layernorm": "attention_norm", "pre_feedforward_layernorm": "feed_forward_norm"} | AFTER

"""Each part in each reading: a rule, or a line in docs/limits.md. Each field of a part that runs: heeded or refused.

A field is changed, and what follows is looked at. The spec refuses to exist, or both the reference and the model refuse
to run it and name the field, or both run it: then they agree, and either the numbers or the weights are others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import laws
import specs
from plainformer import gradients, ledger, mixers, reference, source
from plainformer import model as m
from plainformer import spec as s
from plainformer.cost.flops import flops
from plainformer.faults import PlainformerError
from plainformer.ledger import Ledger
from plainformer.states import State
from plainformer.tree import PARTS, walk

LIMITS = (Path(__file__).parent.parent / "docs" / "limits.md").read_text(encoding="utf-8")
READINGS = {"count": ledger.weights, "cost": flops, "run": reference.run, "build": m.build}
READINGS |= {"gradients": gradients.rule, "code": source.code}
# Settings of a part: they have no weights, and the rule of the part that holds them reads them.
SETTINGS = {"Lora": "Linear", "Scaling": "Rotary", "Rotary": "Attention", "Scores": "Attention", "Branch": "Residual"}
# A rule that stands in that of the part which holds it.
INSIDE = {(name, "cost"): "Experts" for name in ("ChosenSoftmaxRouter", "SoftmaxRouter", "SigmoidRouter")}
INSIDE |= {("RelativeBias", "run"): "Stack", ("Residual", "build"): "Stack", ("Spec", "run"): "reference.logits"}
INSIDE |= {("Residual", "code"): "Stack"}
INSIDE |= {("RelativeBias", "gradients"): "Stack", ("Spec", "gradients"): "gradients.loss_and_gradients"}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("name", PARTS)
def test_each_part_has_a_rule_in_each_reading_or_a_line_in_the_limits(name: str, reading: str) -> None:
    rule = PARTS[name] in READINGS[reading].registry
    if name in SETTINGS or (name, reading) in INSIDE:
        assert not rule, "it has a rule of its own: leave it out of the lists above"
        return
    assert rule or re.search(rf"^\| running .*`{name}`", LIMITS, re.MULTILINE)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_without_a_rule_is_refused_by_its_name(name: str) -> None:
    part = object.__new__(PARTS[name])
    for reading, rule in READINGS.items():
        if PARTS[name] in rule.registry:
            continue
        more = {"cost": (None,), "run": (None,) * 3, "gradients": (None,) * 5, "code": (None,)}.get(reading, ())
        with pytest.raises((PlainformerError, TypeError), match=name):
            rule(part, *more)


# --- each field -------------------------------------------------------------------------------------------------------

D = 12  # the width of these specs
GATED, EXPERTS = specs.TINY["llama"], specs.TINY["mixtral"]
FIRST = s.Norm(kind="rms", width=D, eps=1e-5)
CROSS = s.Stack(layers=GATED.decoder.layers, causal=False)
PICTURES = s.Tower(
    patches=s.Linear(n_in=5, n_out=D), positions=s.Table(n_rows=3, width=D), stack=CROSS, connector=(FIRST,)
)
HOSTS = ("gpt2", "gpt2-lora", "llama-3.1", "qwen3", "mistral", "mixtral", "opt-narrow", "neox", "gemma2")
HOSTS += ("layers-shared", "sinusoids", "distances-in-buckets", "deepseek-v2", "deepseek-v3", "qwen2-moe", "t5", "bert")

# What a field is changed to, where it is not enough to add 1, to turn a switch or to take something away.
OTHERS: dict[tuple[type, str], tuple[Any, ...]] = {
    (s.Linear, "lora"): (s.Lora(rank=1, alpha=2.0),),
    (s.Norm, "kind"): ("rms", "layer", "batch"),
    (s.Rotary, "scaling"): (
        specs.LINEAR,
        specs.LLAMA3,
        replace(specs.LINEAR, kind="other"),
        specs.YARN,
        specs.DYNAMIC,
    ),
    (s.Rotary, "n_dims"): (2, 3, 99),
    (s.Sinusoid, "layout"): ("halves", "tensor2tensor", "columns"),
    (s.Scaling, "kind"): ("yarn", "other", "llama4"),
    (s.Scaling, "settings"): ((), specs.YARN.settings, (("factor", 2.0), *specs.LLAMA3.settings[1:])),
    (s.Scores, "rotary"): (s.Rotary(theta=50.0, n_dims=2),),
    (s.Scores, "softcap"): (5.0,),
    (s.Attention, "v"): (),
    (s.Attention, "window"): (1, 2, 0),
    (s.Attention, "n_kv_heads"): (1, 3),
    (s.FeedForward, "activation"): ("silu", "gelu", "swiglu_clamped", "sine"),
    (s.FeedForward, "gate"): (s.Linear(n_in=D, n_out=48),),
    (s.Experts, "router"): (
        s.SoftmaxRouter(scores=s.Linear(n_in=D, n_out=5), n_chosen=2, normalised=False),
        s.SigmoidRouter(
            scores=s.Linear(n_in=D, n_out=5), n_chosen=2, n_groups=1, n_chosen_groups=1, factor=3.0, normalised=True
        ),
    ),
    (s.Experts, "shared"): (EXPERTS.decoder.layers[0][1].branches[0].part.expert,),
    (s.Experts, "shared_gate"): (s.Linear(n_in=D, n_out=1),),
    (s.Branch, "name"): ("another",),
    (s.Branch, "part"): (EXPERTS.decoder.layers[0][1].branches[0].part,),
    (s.Branch, "norm_in"): (FIRST,),
    (s.Branch, "norm_out"): (FIRST,),
    (s.Residual, "branches"): ((),),
    (s.Residual, "norm_in"): (FIRST,),
    (s.Residual, "norm_out"): (FIRST,),
    (s.Residual, "norm_sum"): (FIRST,),
    (s.Stack, "layers"): ((),),
    (s.Stack, "passes"): ((1, 0), (0, 2)),
    (s.Stack, "positions"): (s.Table(n_rows=30, width=D), s.Table(n_rows=5, width=D)),
    (s.Stack, "relative"): (s.RelativeBias(n_buckets=4, max_distance=8, n_heads=3),),
    (s.Head, "pool"): ("first", "mean", "last"),
    (s.SigmoidRouter, "n_chosen_groups"): (1,),
    (s.Stack, "norm_first"): (FIRST,),
    (s.Stack, "norm_last"): (FIRST,),
    (s.Tokens, "types"): (s.Table(n_rows=2, width=D),),
    (s.Tokens, "positions"): (s.Table(n_rows=30, width=D),),
    (s.Tokens, "norm"): (FIRST,),
    (s.Tokens, "project"): (s.Linear(n_in=D, n_out=D),),
    (s.Head, "transform"): (s.Linear(n_in=D, n_out=D),),
    (s.Head, "activation"): ("gelu", "swiglu_clamped"),
    (s.Head, "norm"): (FIRST,),
    (s.Head, "softcap"): (1.0,),
    (s.Spec, "encoder"): (CROSS,),
    (s.Spec, "towers"): ((PICTURES,),),
    (s.Spec, "max_seq_len"): (3,),
}
RUN = (s.Lora, s.Linear, s.Norm, s.NormedLinear, s.Table, s.Scaling, s.Rotary, s.Scores, s.Attention, s.FeedForward)
RUN += (s.ChosenSoftmaxRouter, s.SoftmaxRouter, s.SigmoidRouter, s.Experts, s.Branch, s.Residual, s.RelativeBias)
RUN += (s.Sinusoid, s.Bottleneck, mixers.LatentAttention, s.Stack, s.Tokens, s.Head, s.Spec)
OF_TRAINING = {(s.Experts, "balance")}  # no reading heeds it: training does
FIELDS = [(kind, field.name) for kind in RUN for field in fields(kind) if (kind, field.name) not in OF_TRAINING]


def other_values(kind: type, name: str, value: Any) -> Iterator[Any]:
    """Values unlike this one."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
    elif value is not None and not isinstance(value, str | tuple):
        yield None  # the part is taken away
    yield from (other for other in OTHERS.get((kind, name), ()) if other != value)


@dataclass(frozen=True)
class Outcome:
    what: str  # "misfit", "refused", "ran"
    said: str = ""
    logits: np.ndarray | None = None


def tried(run: Any) -> Outcome:
    try:
        return Outcome("ran", logits=run())
    except PlainformerError as error:
        return Outcome("refused", str(error))


def outcomes(spec: s.Spec, arrays: dict[str, np.ndarray]) -> tuple[Outcome, Outcome]:
    tokens = torch.tensor(specs.tokens_of(spec, 1, 7))

    def in_model() -> np.ndarray:
        model = laws.double(spec, arrays)
        with torch.no_grad():
            return model(tokens, memory=laws.heard(model, 1))[0].numpy()

    return tried(lambda: defined(spec, arrays)), tried(in_model)


def defined(spec: s.Spec, arrays: dict[str, np.ndarray]) -> np.ndarray:
    source = laws.source_of(spec, 1)
    source_S = None if source is None else source[0]
    return reference.logits(spec, arrays, specs.tokens_of(spec, 1, 7)[0], source_S=source_S)


def changes(kind: type, name: str, n_targets: int) -> Iterator[tuple[s.Spec, s.Spec | None]]:
    """(spec, the same with the field changed on one part of this kind; None: it cannot be said)."""
    for host in map(specs.spec_of, HOSTS):
        targets = dict.fromkeys(part for _, part in walk(host) if type(part) is kind)
        for target in list(targets)[:n_targets]:
            for other in other_values(kind, name, getattr(target, name)):

                def change(part: Any, target: Any = target, other: Any = other) -> Any:
                    return replace(part, **{name: other}) if part == target else part

                try:
                    yield host, specs.rewrite(host, change)
                except PlainformerError:
                    yield host, None


def kept_weights(spec: s.Spec, changed: s.Spec) -> dict[str, np.ndarray]:
    """The weights of the spec where the changed one has the same; others where it has not."""
    old, new = specs.arrays_of(spec), specs.arrays_of(changed, seed=1)
    return {name: old[name] if name in old and old[name].shape == a.shape else a for name, a in new.items()}


@pytest.mark.parametrize("n_targets", [1, pytest.param(9, marks=pytest.mark.proof)])
@pytest.mark.parametrize("kind, name", FIELDS, ids=[f"{kind.__name__}.{name}" for kind, name in FIELDS])
def test_each_field_is_heeded_or_refused(kind: type, name: str, n_targets: int) -> None:
    n_changes = n_heeded = 0
    for spec, changed in changes(kind, name, n_targets):
        n_changes += 1
        if changed is None:
            n_heeded += 1
            continue
        told, built = outcomes(changed, kept_weights(spec, changed))
        assert told.what == built.what, f"{name}: {told.said or 'ran'} / {built.said or 'ran'}"
        if told.what == "refused":
            n_heeded += 1
            assert_named(kind, name, told.said, built.said)
            continue
        laws.close(built.logits, told.logits, f"{kind.__name__}.{name}")
        before = defined(spec, specs.arrays_of(spec))
        others = before.shape != told.logits.shape or not np.array_equal(before, told.logits)
        n_heeded += others or names_of(spec) != names_of(changed)
    assert n_changes
    assert n_heeded, "no change of this field changed a number, a name or was refused"


SIZES = ("n_in", "n_out", "width", "n_rows", "d_head", "n_heads", "n_kv_heads", "n_dims", "n_chosen", "n_experts")


def with_size(part: Any, path: list[str], name: str, more: int) -> Any:
    """The same tree with one size changed in one place alone."""
    if not path:
        return replace(part, **{name: getattr(part, name) + more})
    step, *rest = path
    if isinstance(part, tuple):
        return tuple(with_size(p, rest, name, more) if str(i) == step else p for i, p in enumerate(part))
    return replace(part, **{step: with_size(getattr(part, step), rest, name, more)})


@pytest.mark.parametrize("host", [*specs.ENCODERS, *specs.PAIRS, "deepseek-v3", "qwen2-moe", "qwen3", "opt-narrow"])
def test_a_size_that_does_not_fit_its_neighbours_never_reaches_an_array(host: str) -> None:
    """One size changed in one place: it cannot be said, or both run it and agree, or both refuse."""
    spec, seen = specs.spec_of(host), set()
    for where, part in walk(spec):
        for name in (name for name in SIZES if hasattr(part, name)):
            place = re.sub(r"\.\d+", "", where), name
            if place in seen:
                continue
            seen.add(place)
            try:
                changed = with_size(spec, where.split(".") if where else [], name, 1)
            except PlainformerError:
                continue
            told, built = outcomes(changed, specs.arrays_of(changed))
            assert told.what == built.what, f"{where}.{name}"
            if told.logits is not None:
                laws.close(built.logits, told.logits, f"{where}.{name}")


def names_of(spec: s.Spec) -> set[str]:
    return {w.name for w in Ledger.of(spec).rows}


def assert_named(kind: type, name: str, *said: str) -> None:
    """A refusal tells which field or part, and docs/limits.md has it, unless it is of these tokens."""
    if all(words.startswith("tokens") for words in said):
        return
    for words in said:
        assert "sized" in words
        assert re.search(rf"\b{name}\b|\b{kind.__name__}\b", words, re.IGNORECASE), words
    assert f"`{kind.__name__}.{name}`" in LIMITS


def test_a_whole_that_no_rule_runs_is_refused_by_name_in_both() -> None:
    llama = specs.TINY["llama"]
    gate = s.Linear(n_in=D, n_out=24)
    gated = mixers.GatedAttention(attention=llama.decoder.layers[0][0].branches[0].part, gate=gate)

    def change(part: Any) -> Any:
        return replace(part, part=gated) if isinstance(part, s.Branch) and part.name == "attention" else part

    spec = specs.rewrite(llama, change)
    with pytest.raises(PlainformerError, match="GatedAttention"):
        m.Transformer(spec)
    with pytest.raises(PlainformerError, match="GatedAttention"):
        reference.logits(spec, specs.arrays_of(spec), [1])


def test_a_state_is_refused_where_every_token_changes_what_was_said() -> None:
    spec = replace(specs.TINY["llama"], decoder=replace(specs.TINY["llama"].decoder, causal=False))
    arrays, tokens = specs.arrays_of(spec), specs.tokens_of(spec, 1, 5)
    with pytest.raises(PlainformerError, match="causal"):
        reference.logits(spec, arrays, tokens[0], reference.State())
    with pytest.raises(PlainformerError, match="causal"):
        laws.double(spec, arrays)(torch.tensor(tokens), State(1, capacity=8))
    laws.the_model_is_the_reference(spec)

"""From their names and the order of their arguments to ours, and from their constructors to sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plainformer.check import draws as d
from plainformer.check.topic import REQUIRED, Argument, Topic
from plainformer.check.topics import TOPICS

Thing = Mapping[str, Any]  # one function or class of theirs, as the child describes it


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What a class of theirs is made with."""

    width: int = d.WIDTH
    n_heads: int = d.N_HEADS
    n_kv_heads: int | None = None
    d_ff: int = d.D_FF
    vocab: int = d.VOCAB
    context: int = d.CONTEXT
    n_layers: int = d.N_LAYERS
    dropout: float = 0.0


FLAGS = {"bias", "qkvbias", "usebias", "attnbias", "mask", "seed", "expansion", "mlpratio", "causal"}
CONFIG = ("config", "cfg", "conf", "args", "hparams", "params")


def short(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@dataclass(frozen=True)
class Plan:
    """How to call a thing of theirs. `places`: our argument -> its position, or its name where it must be named."""

    topic: Topic
    thing: str
    line: int
    is_class: bool
    places: Mapping[str, int | str]
    source: str = ""
    kwargs: Mapping[str, Any] | None = None  # of the constructor
    config: Mapping[str, Any] | None = None
    globals: Mapping[str, Any] | None = None  # sizes by the names that a file may give them at its top
    sizes: Mapping[str, Any] | None = None
    unbound: tuple[str, ...] = ()  # what theirs demands and we know no value for
    optional: tuple[str, ...] = ()  # of ours, those that theirs does not demand

    @property
    def bound(self) -> tuple[str, ...]:
        return tuple(self.places)

    def without(self, name: str) -> Plan:
        return replace(self, places={own: place for own, place in self.places.items() if own != name})


def find(things: Sequence[Thing]) -> list[tuple[Topic, Thing]]:
    """Everything of theirs that bears a known name; of several for one topic the one with the topic's own name."""
    found: dict[str, list[tuple[int, Thing]]] = {}
    for thing in things:
        for topic in TOPICS.values():
            if thing["class"] and not topic.weights:
                continue
            names = [short(topic.name), *map(short, topic.aliases)]
            bare = re.sub(
                r"^(?:my|plain|simple|naive|custom|numpy|np|torch|causal)|(?:np|numpy|torch|v\d|fn|func|function)$",
                "",
                short(thing["name"]),
            )
            for said in (short(thing["name"]), bare):
                if said in names:
                    found.setdefault(topic.name, []).append((names.index(said), thing))
                    break
    return [(TOPICS[name], thing) for name, each in found.items() for _, thing in sorted(each, key=lambda one: one[0])]


def matched(
    arguments: Sequence[Argument], parameters: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, int | str], tuple[str, ...], tuple[str, ...]]:
    """(ours -> their place, their demands that nothing meets, ours that theirs does not demand): by name, then by
    order."""
    places: dict[str, int | str] = {}
    left: list[tuple[int, Mapping[str, Any]]] = []
    optional = []
    takes = [(i, p) for i, p in enumerate(parameters) if p["kind"] not in ("VAR_POSITIONAL", "VAR_KEYWORD")]
    for i, p in takes:
        names = short(p["name"])
        own = next((a for a in arguments if a.name not in places and names in map(short, (a.name, *a.aliases))), None)
        if own is None:
            left.append((i, p))
            continue
        places[own.name] = i if p["kind"] == "POSITIONAL_ONLY" else p["name"]
        if not p["required"]:
            optional.append(own.name)
    unbound = []
    for i, p in left:
        if not p["required"]:
            continue
        own = next((a for a in arguments if a.name not in places and a.without is REQUIRED), None)
        if own is None:
            unbound.append(p["name"])
        else:
            places[own.name] = i if p["kind"] == "POSITIONAL_ONLY" else p["name"]
    return places, tuple(unbound), tuple(optional)


def sizes_known(sizes: Sizes) -> dict[str, Any]:
    """Every name that a constructor may have for a size, and its value."""
    n_heads, n_kv, dropout = sizes.n_heads, sizes.n_kv_heads, sizes.dropout
    values: dict[str, Any] = {}
    for names, value in (
        ("d_model embed_dim n_embd dim hidden_size d embedding_dim emb_dim d_in d_out normalized_shape ndim "
         "width size features n_embed d_embed embed_size dim_model in_features c model_dim hidden", sizes.width),
        ("n_heads num_heads n_head h heads num_attention_heads nhead n_attn_heads", n_heads),
        ("n_kv_heads num_kv_heads num_key_value_heads n_kv_head n_groups kv_heads num_query_groups", n_kv or n_heads),
        ("d_head head_dim head_size d_k d_v dim_head d_q", sizes.width // max(n_heads, 1)),
        ("d_ff hidden_dim d_hidden dim_feedforward intermediate_size ffn_dim n_inner ff_dim mlp_dim d_mlp inner_dim "
         "ffn_hidden hidden_features", sizes.d_ff),
        ("n_layers num_layers n_layer depth num_hidden_layers n_blocks num_blocks layers", sizes.n_layers),
        ("vocab_size n_vocab vocab num_tokens v n_tokens", sizes.vocab),
        ("block_size max_seq_len max_len context_length n_positions max_position_embeddings n_ctx seq_len max_length "
         "context ctx_len sequence_length context_size t max_seq_length", sizes.context),
        ("dropout drop drop_rate dropout_rate p_drop attn_pdrop resid_pdrop embd_pdrop attn_dropout resid_dropout p "
         "attention_dropout hidden_dropout dropout_p attn_drop", dropout),
        ("mlp_ratio expansion ff_mult expansion_factor widening_factor", 4),
        ("causal is_causal bias qkv_bias use_bias attn_bias mask", True),
        ("seed", 0),
    ):  # fmt: skip
        values |= dict.fromkeys(names.split(), value)
    return values


def plan_of(topic: Topic, thing: Thing, things: Sequence[Thing], asked: Sizes | None = None) -> Plan:
    """How to call it; what is unbound says why it cannot be. `asked`: the sizes of a class, else our own."""
    if not thing["class"]:
        places, unbound, optional = matched(topic.arguments, thing["parameters"] or ())
        missing = tuple(a.name for a in topic.arguments if a.without is REQUIRED and a.name not in places)
        plan = Plan(topic, thing["name"], thing["line"], False, places, thing["source"], unbound=unbound + tuple(
            f"(nothing for {name})" for name in missing), optional=optional)  # fmt: skip
        return plan
    inputs = [
        a
        for a in topic.arguments
        if "." not in a.name and a.name not in ("gain", "bias", "eps", "n_heads", "n_kv_heads")
    ]
    places, unbound, optional = matched(inputs, thing["forward"] or ())
    groups = {short(n) for n in ("n_kv_heads", "num_kv_heads", "num_key_value_heads", "n_kv_head", "n_groups")}
    grouped = any(short(p["name"]) in groups for p in thing["parameters"] or ())
    n_heads, n_kv = (6, 2) if grouped else (d.N_HEADS, None)
    of = asked or Sizes(n_heads=n_heads, n_kv_heads=n_kv, dropout=0.25 if thing["module"] else 0.0)
    sizes = sizes_known(of)
    by_short = {short(name): value for name, value in sizes.items()}
    kwargs, config, lacking = {}, None, []
    for p in thing["parameters"] or ():
        if p["kind"] in ("VAR_POSITIONAL", "VAR_KEYWORD"):
            continue
        if p["name"].lower() in CONFIG and p["required"]:
            config = config_for(p["name"], things, sizes)
        elif short(p["name"]) in by_short and (p["required"] or wanted(p, thing)):
            kwargs[p["name"]] = by_short[short(p["name"])]
        elif p["required"]:
            lacking.append(p["name"])
    told = {"n_heads": of.n_heads, "n_kv_heads": of.n_kv_heads, "width": of.width}
    return Plan(topic, thing["name"], thing["line"], True, places, thing["source"], kwargs, config,
                {name: value for name, value in sizes.items() if len(name) > 3 and name not in FLAGS}, told,
                (*lacking, *unbound), optional)  # fmt: skip


def wanted(p: Mapping[str, Any], thing: Thing) -> bool:
    """Of what a constructor need not be told, the sizes; its flags stay as they are."""
    name = short(p["name"])
    return name not in FLAGS and not (p["default"] is None and name in {"headdim", "dhead", "headsize"})


def config_for(argument: str, things: Sequence[Thing], sizes: Mapping[str, Any]) -> dict[str, Any]:
    """A config object: the class in their file that has the fields of one, or else a plain bag of every known name."""

    def known(thing: Thing) -> int:
        return len(set(thing.get("fields") or ()) & set(sizes))

    best = max((thing for thing in things if thing["class"]), key=known, default=None)
    values = {**sizes, "model_type": None, "activation_function": "gelu"}
    if best is not None and known(best) >= 2:
        return {"argument": argument, "class": best["name"], "fields": list(best["fields"]), "values": values}
    return {"argument": argument, "class": "", "fields": [], "values": values}

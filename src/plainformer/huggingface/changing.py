"""What if: a config read again with some of its keys changed. A key that its reader never asks for is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.huggingface.configs import Reading, read
from plainformer.records import replace
from plainformer.spec import Spec

# Our names, and those under which configs have them; the first that a reader asks for is meant.
NAMES = {
    "n_layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
    "d_model": ("hidden_size", "n_embd", "d_model", "n_embed", "dim"),
    "n_heads": ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
    "n_kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    "d_head": ("head_dim", "d_kv"),
    "d_ff": ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size", "encoder_ffn_dim"),
    "vocab_size": ("vocab_size",),
    "max_seq_len": ("max_position_embeddings", "n_positions", "seq_length", "max_seq_len"),
    "tied": ("tie_word_embeddings",),
    "n_experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "n_chosen": ("num_experts_per_tok", "top_k_experts", "moe_topk"),
    "d_expert": ("moe_intermediate_size",),
    "window": ("sliding_window",),
}
SECOND = {  # and those of an encoder-decoder's second stack, which are changed with them
    "n_layers": ("num_decoder_layers", "decoder_layers"),
    "n_heads": ("decoder_attention_heads",),
    "d_ff": ("decoder_ffn_dim",),
}


class Heard(dict[str, Any]):
    """A config that knows which of its keys were asked for; the configs inside it are such ones too."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__({k: Heard(v) if isinstance(v, Mapping) else v for k, v in config.items()})
        self.asked: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.asked.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.asked.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self.asked.add(str(key))
        return super().__contains__(key)


def insides(config: Heard) -> Iterator[tuple[str, Heard]]:
    """The config, or the text's own inside it first."""
    if isinstance(inner := dict.get(config, "text_config"), Heard):
        yield "text_config", inner
    yield "", config


def keys_of(name: str, first: Heard) -> list[tuple[str, str]]:
    """Under which keys a change is written, (place, key) each; none where the reader of this config asks for none."""
    inside = dict(insides(first))
    found = [(place, key) for place in inside for key in (name, *NAMES.get(name, ())) if key in inside[place].asked]
    if not found:
        return []
    place, key = next(((at, k) for at, k in found if dict.__contains__(inside[at], k)), found[0])
    return [(place, key), *((place, k) for k in SECOND.get(name, ()) if k in inside[place].asked)]


def other_than(value: Any) -> object:
    if value is None or isinstance(value, bool):
        return not value
    return 2 * value or 1


def changed(
    config: Mapping[str, Any], changes: Mapping[str, object], where: str, family: str | None = None
) -> tuple[Reading, dict[str, object]]:
    """The reading of the config with changes, by our names or its own keys; and those changes that no key of it can
    say, for the spec itself. Refuses keys that are neither, with the nearest, values that the family refuses, and our
    names where nothing is made of what stands under their keys."""
    first = Heard(config)
    read(first, where, family)
    keys = {name: keys_of(name, first) for name in sorted(changes, key=lambda name: name not in NAMES)}

    def reading(values: Mapping[str, object]) -> Reading:
        new = Heard(config)
        inside = dict(insides(new))
        for name, places in keys.items():  # our names first: a key of the config's own says it more closely
            for place, key in places:
                inside[place][key] = values[name]
        return read(new, where, family)

    def counts(name: str) -> bool:
        """Whether another value would make another model, or none."""
        try:
            return reading({**changes, name: other_than(changes[name])}).spec != new.spec
        except PlainformerError:
            return True

    faults = []
    for name in changes:
        if name not in NAMES and not keys[name]:
            known = sorted({*NAMES, *(key for _, one in insides(first) for key in one.asked)})
            near = get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f"near to it: {', '.join(near)}" if near else f"one of {', '.join(NAMES)}"
            faults.append(Fault(f"--what-if {name}", changes[name], "this family's configs have no such key", hint))
    if faults:
        raise PlainformerError(faults)
    new = reading(changes)
    for name in changes:
        if name in NAMES and keys[name] and not counts(name):
            rule = f"changes nothing: no part of this model is made by {keys[name][0][1]}"
            if same := [one for one in changes if one != name and set(keys[one]) & set(keys[name])]:
                rule = f"is said twice, as {same[0]} too"
            faults.append(Fault(f"--what-if {name}", changes[name], rule))
    if faults:
        raise PlainformerError(faults)
    return new, {name: value for name, value in changes.items() if not keys[name]}


# --- for a spec without a config --------------------------------------------------------------------------------------


def change_spec(spec: Spec, name: str, value: object) -> Spec:
    """One change of a whole spec, whatever it came from. Refuses names it doesn't know and what does not fit."""
    from plainformer.conventions import with_vocabulary
    from plainformer.spec import Attention, FeedForward, Linear, NormedLinear
    from plainformer.tree import rewrite

    where = f"--what-if {name}"
    if name == "tied":
        return with_head_tied(spec, value)
    if name not in ("vocab_size", "n_kv_heads", "d_ff", "n_layers"):
        known = "tied, vocab_size, n_kv_heads, d_ff, n_layers"
        near = get_close_matches(name, known.split(", "), n=1, cutoff=0.5)
        raise refuse(where, value, "cannot be changed in this model", f"did you mean {near[0]}?" if near else known)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise refuse(where, value, "must be a whole number of at least 1")
    wanted: int = value
    if name == "vocab_size":
        return with_vocabulary(spec, wanted)
    if name == "n_layers":
        return with_layers(spec, wanted)
    touched: list[int] = []

    def wide(part: Any) -> Any:
        if isinstance(part, Linear):
            return replace(part, n_out=touched[-1])
        return replace(part, linear=wide(part.linear)) if isinstance(part, NormedLinear) else part

    def change(part: Any) -> Any:
        if name == "n_kv_heads" and isinstance(part, Attention) and not part.cross:
            if part.n_heads % wanted:
                raise refuse(where, wanted, f"must divide n_heads ({part.n_heads})")
            touched.append(wanted * part.d_head)
            return replace(part, n_kv_heads=wanted, k=wide(part.k), v=part.v and wide(part.v))
        if name == "d_ff" and isinstance(part, FeedForward):
            touched.append(wanted)
            down = replace(part.down, n_in=wanted)
            return replace(part, up=wide(part.up), gate=part.gate and wide(part.gate), down=down)
        return part

    new = rewrite(spec, change)
    if not touched:
        raise refuse(where, wanted, "no part of this model has it")
    return new


def with_head_tied(spec: Spec, value: object) -> Spec:
    if not isinstance(value, bool):
        raise refuse("--what-if tied", value, "must be true or false")
    if spec.head is None:
        raise refuse("--what-if tied", value, "this model has no head")
    return replace(spec, head=replace(spec.head, tied=value))


def with_layers(spec: Spec, n_layers: int) -> Spec:
    """Every stack that many layers deep; only where a stack's layers are all alike."""
    stacks: dict[str, Any] = {}
    for name in ("encoder", "decoder"):
        if (stack := getattr(spec, name)) is not None:
            if any(layer != stack.layers[0] for layer in stack.layers) or stack.passes is not None:
                raise refuse("--what-if n_layers", n_layers, "the layers of this model are not all alike")
            if n_layers > 10_000:
                raise refuse("--what-if n_layers", n_layers, "must be at most 10,000")
            stacks[name] = replace(stack, layers=stack.layers[:1] * n_layers)
    return replace(spec, **stacks)

"""The keys of one config.json: null means absent, faults gather until they are told all at once, notes gather too."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from math import log, sqrt
from typing import Any, TypeVar, cast

from plainformer.faults import Fault
from plainformer.huggingface.json_files import finite
from plainformer.records import replace
from plainformer.spec import Activation, Head, Linear, Rotary, Scaling, Spec

T = TypeVar("T")

ACTIVATIONS: dict[str, Activation] = {
    "relu": "relu",
    "relu2": "relu_squared",
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "tanh": "tanh",
}
MOST_LAYERS = 10000
MAKE_HEADS = ("hidden_size", "n_embd", "n_embed", "d_model", "num_attention_heads", "n_head", "num_heads", "head_dim")
HEADED: tuple[str, ...] = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForConditionalGeneration", "ForPreTraining")
HEADED += ("DoubleHeadsModel", "MTModel")
ANSWERING = ("ForSequenceClassification", "ForQuestionAnswering", "ForTokenClassification", "ForMultipleChoice")
OWN_HEAD = "is no class that is known here: what its head holds cannot be said"
MOST_COUNT = 10**15  # of anything: what is more, no machine counts through
ABOVE_0 = {"factor", "beta_fast", "beta_slow", "low_freq_factor", "high_freq_factor", "attention_factor"}
ABOVE_0 |= {"original_max_position_embeddings"}
ROPE_BESIDE = {"rope_theta", "rope_type", "type", "partial_rotary_factor", "mrope_section", "mrope_interleaved"}


class Keys:
    """Read-only view of a config. A missing or wrong key is kept as a fault, and 1 stands in; `read` raises all."""

    def __init__(
        self, config: Mapping[str, Any], where: str, faults: list[Fault], notes: list[str], unsaid: list[str]
    ) -> None:
        self.config, self.where, self.faults, self.notes, self.unsaid = config, where, faults, notes, unsaid

    def fault(self, name: str, value: object, rule: str, hint: str = "") -> None:
        fault = Fault(f"{self.where}{name}", value, rule, hint)
        if fault not in self.faults:
            self.faults.append(fault)

    def note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def leave_unsaid(self, sentence: str) -> None:
        """A note on what the model does and the spec does not say: its sizes are exact, its answers would not be."""
        self.note(sentence)
        self.unsaid.append(sentence)

    def has(self, name: str) -> bool:
        return self.config.get(name) is not None

    def get(self, *names: str) -> Any:
        """The value of the first of these keys that is there and not null; None if none is."""
        return next((self.config[name] for name in names if self.has(name)), None)

    def count(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """A whole number under the first of these keys. Without a default the key is needed."""
        name = next((name for name in names if self.has(name)), names[0])
        value = self.config.get(name)
        if value is None and default is not None:
            return default
        if value is None:
            self.fault(name, value, "is missing, and this model has no size without it")
        elif isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.fault(name, value, f"must be a whole number of at least {least}")
        elif value > MOST_COUNT:
            self.fault(name, value, f"must be at most {MOST_COUNT:,}")
        else:
            return value
        return 1

    def layers(self, *names: str, default: int | None = None) -> int:
        """A number of layers, few enough to be listed one by one."""
        n_layers = self.count(*names, default=default)
        if n_layers <= MOST_LAYERS:
            return n_layers
        self.fault(names[0], n_layers, f"must be at most {MOST_LAYERS}")
        return 1

    def optional(self, *names: str, least: int = 1) -> int | None:
        """A whole number, or None where the key is absent or null."""
        return self.count(*names, least=least) if self.get(*names) is not None else None

    def real(self, *names: str, default: float) -> float:
        name = next((name for name in names if self.has(name)), names[0])
        value = self.config.get(name)
        if value is None:
            return default
        if not finite(value):
            self.fault(name, value, "must be a number")
            return default
        return float(value)

    def positive(self, name: str, default: float) -> float:
        value = self.real(name, default=default)
        if 0 < value < float("inf"):
            return value
        self.fault(name, value, "must be above 0")
        return default

    def capped(self, name: str, default: float | None) -> float | None:
        """A number that may be switched off: null means off here, only an absent key takes the default."""
        return self.real(name, default=0.0) if self.has(name) else None if name in self.config else default

    def flag(self, name: str, default: bool) -> bool:
        value = self.config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fault(name, value, "must be true or false")
            return default
        return value

    def choice(self, name: str, known: Mapping[str, T], default: str) -> T:
        """What `known` has for the word under this key; another word is a fault."""
        word = self.config.get(name)
        word = default if word is None else word
        if not isinstance(word, str) or word not in known:
            self.fault(name, word, "is not known here", f"known: {', '.join(known)}")
            return known[default]
        return known[word]

    def activation(self, name: str = "hidden_act", default: str = "silu") -> Activation:
        return self.choice(name, ACTIVATIONS, default)

    def sub(self, name: str) -> Keys:
        """The config inside this one (text_config, vision_config); empty where absent. Shares faults and notes."""
        inner = self.config.get(name)
        if inner is not None and not isinstance(inner, Mapping):
            self.fault(name, inner, "must be an object")
            inner = None
        return self.beside(inner or {}, name)

    def beside(self, config: Mapping[str, Any], name: str) -> Keys:
        """Another config, that stands under this name; faults and notes are shared."""
        return Keys(config, f"{self.where}{name}.", self.faults, self.notes, self.unsaid)

    def with_also(self, more: Mapping[str, Any]) -> Keys:
        """The same, with these keys where they are absent; faults and notes are shared. The config itself is asked, so
        that it hears of each key (see changing.Heard)."""
        asked = ChainMap(cast("dict[str, Any]", self.config), dict(more))
        return Keys(asked, self.where, self.faults, self.notes, self.unsaid)

    def instead(self, more: Mapping[str, Any]) -> Keys:
        """The same with these keys, whatever stands there; faults and notes are shared."""
        asked = ChainMap(dict(more), cast("dict[str, Any]", self.config))
        return Keys(asked, self.where, self.faults, self.notes, self.unsaid)

    def refuse_set(self, name: str, rule: str, allowed: Sequence[object] = (None, False, 0)) -> None:
        """A fault if this key asks for something that a Spec cannot say yet."""
        if (value := self.config.get(name)) not in allowed:
            self.fault(name, value, rule)

    def divides(self, divisor: str, name: str) -> None:
        """A fault if the count under `divisor` does not divide the one under `name`; both are named."""
        small, large = self.config.get(divisor), self.config.get(name)
        if isinstance(small, int) and isinstance(large, int) and small > 0 and large % small:
            self.fault(divisor, small, f"must divide {name} ({large})")

    def tied(self, default: bool) -> bool:
        """Whether the head's weight is the token table's. Absent: as the published class has it."""
        if not self.has("tie_word_embeddings"):
            self.note(f"tie_word_embeddings is not said: {'tied' if default else 'not tied'}, the class's default.")
        return self.flag("tie_word_embeddings", default)

    def tied_or_refused(self, otherwise: str) -> bool:
        """As `tied`, for classes that are tied unless told, and then hold what a Spec cannot say."""
        if not (tied := self.tied(True)):
            self.fault("tie_word_embeddings", False, otherwise)
        return tied

    def with_head(self, spec: Spec) -> Spec:
        """The spec as it is; without its head for a base class; with answers instead for a class that gives some."""
        name = self.architecture()
        if name.endswith(("ForTokenClassification", "ForQuestionAnswering")):
            return replace(spec, head=self.answers(spec.d_model, 2 if name.endswith("Answering") else None))
        if name.endswith("ForSequenceClassification"):
            self.leave_unsaid(f"{name} answers at the last token of a row; the spec says at every one.")
            return replace(spec, head=self.answers(spec.d_model, bias=False))
        if name.endswith("DoubleHeadsModel"):  # the second answers which of several texts goes on
            return replace(spec, towers=(*spec.towers, self.answers(spec.d_model, 1)))
        return spec if self.headed() else replace(spec, head=None)

    def answers(self, d_in: int, n: int | None = None, *, bias: bool = True) -> Head:
        """A head of n answers; unsaid as many as id2label has, else num_labels, else 2."""
        labels = self.get("id2label")
        if n is None:
            n = len(labels) if isinstance(labels, (Mapping, list)) else self.count("num_labels", default=2)
        return Head(linear=Linear(n_in=d_in, n_out=max(n, 1), bias=bias), tied=False)

    def architecture(self) -> str:
        """The first class named in `architectures`; empty if none is."""
        names = self.get("architectures") or [""]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.fault("architectures", names, "must be a list of names")
            return ""
        return str(names[0])

    def answering(self) -> bool:
        """Whether the class named in `architectures` answers questions instead of writing."""
        return self.architecture().endswith(ANSWERING)

    def headed(self) -> bool:
        """Whether the class named in `architectures` has a head over the vocabulary. Unsaid: it has."""
        name = self.architecture()
        if not name or name.endswith(HEADED):
            return True
        if name.endswith("Model"):
            self.note(f"{name} is a base class: it has no head over the vocabulary.")
        else:
            self.fault("architectures", name, OWN_HEAD)
        return False

    def turned(self, d_head: int, share: float) -> int:
        """How many dimensions of a head are turned: an even number, or a fault."""
        n_dims = int(d_head * share)
        wrong = any(fault.where.endswith(MAKE_HEADS) for fault in self.faults)  # a width that stands in is not judged
        if (n_dims % 2 or n_dims < 1) and not wrong:
            rule = f"{n_dims} dimensions of each head would be turned, which takes pairs"
            self.fault("head_dim", self.get("head_dim"), rule)
        return n_dims

    def heads(
        self, *, kv_default: int | None = None, d_head_default: int | None = None, rotary: bool = True
    ) -> tuple[int, int, int]:
        """(n_heads, n_kv_heads, d_head), all that must divide checked; rotary: d_head is turned whole, so it is even.

        A null num_key_value_heads means one for each head, whatever the class's default for an absent one.
        """
        heads, d_model = self.count("num_attention_heads"), self.count("hidden_size")
        said = "num_key_value_heads" in self.config
        kv_heads = self.count("num_key_value_heads", default=heads if said or kv_default is None else kv_default)
        if kv_heads > 0 and heads % kv_heads:
            self.fault("num_key_value_heads", kv_heads, f"must divide num_attention_heads ({heads})")
        if d_head_default is None and not self.has("head_dim"):
            self.divides("num_attention_heads", "hidden_size")
        d_head = self.count("head_dim", default=d_head_default or max(1, d_model // heads))
        if rotary:
            self.turned(d_head, 1.0)
        return heads, kv_heads, d_head

    def windows(self, n_layers: int, default: Sequence[int | None], window: int | None) -> tuple[int | None, ...]:
        """For each layer how many keys a query sees, by `layer_types` where that is said."""
        known = {"full_attention": None, "sliding_attention": window}
        types = self.get("layer_types")
        if window is None and isinstance(types, list) and "sliding_attention" in types:
            self.fault("sliding_window", None, "is missing, and some layers of layer_types have a window")
        return self.kinds("layer_types", n_layers, known, default)

    def kinds(self, name: str, n_layers: int, known: Mapping[str, T], default: Sequence[T]) -> tuple[T, ...]:
        """What `known` has for each layer's word in the list under this key; the default where the key is absent."""
        words = self.get(name)
        if words is None:
            return tuple(default)
        if not isinstance(words, list) or len(words) != n_layers:
            self.fault(name, words, f"must be a list with one word for each of the {n_layers} layers")
            return tuple(default)
        for word in sorted({str(word) for word in words} - known.keys()):
            self.fault(name, word, "is not known here", f"known: {', '.join(known)}")
        some = next(iter(known.values()))
        return tuple(known.get(str(word), some) for word in words)

    def numbers(self, name: str) -> list[int]:
        """A list of whole numbers; empty where the key is absent."""
        found = self.get(name)
        found = [] if found is None else found
        if not isinstance(found, list) or any(isinstance(n, bool) or not isinstance(n, int) for n in found):
            self.fault(name, found, "must be a list of whole numbers")
            return []
        return found

    def rope(self, layer_type: str | None = None) -> Mapping[str, Any]:
        """The rotary settings as published, rope_scaling or rope_parameters; of one type of layer, if said so."""
        found = self.get("rope_scaling", "rope_parameters") or {}
        if not isinstance(found, Mapping):
            self.fault("rope_scaling" if self.has("rope_scaling") else "rope_parameters", found, "must be an object")
            return {}
        if layer_type and isinstance(found.get(layer_type), Mapping):
            return dict(found[layer_type])
        if layer_type is None and any(isinstance(value, Mapping) for value in found.values()):
            name = "rope_scaling" if self.has("rope_scaling") else "rope_parameters"
            self.fault(name, sorted(found), "settings for each kind of layer are not known of this family")
        return {name: value for name, value in found.items() if value is not None and not isinstance(value, Mapping)}

    def rope_by_type(self) -> bool:
        """Whether each type of layer has rotary settings of its own."""
        found = self.get("rope_parameters")
        return isinstance(found, Mapping) and any(isinstance(value, Mapping) for value in found.values())

    def theta(self, default: float = 10000.0, layer_type: str | None = None) -> float:
        inside = self.beside(self.rope(layer_type), "rope_parameters")
        return inside.real("rope_theta", default=self.real("rope_theta", default=default))

    def rotary_share(self, default: float = 1.0, layer_type: str | None = None) -> float:
        """Which part of each head is turned."""
        inside = self.beside(self.rope(layer_type), "rope_parameters")
        share = self.real("partial_rotary_factor", "rotary_pct", default=default)
        share = inside.real("partial_rotary_factor", default=share)
        if not 0 <= share <= 1:
            self.fault("partial_rotary_factor", share, "must be a share, of at most 1")
        return min(max(share, 0.0), 1.0)

    def scaling(self, max_seq_len: int, layer_type: str | None = None) -> Scaling | None:
        """How the rotary frequencies are stretched, every setting said. An unknown kind changes no size: noted."""
        said = self.rope(layer_type)
        kind = str(said.get("rope_type", said.get("type", "default")))
        if kind in ("default", "mrope"):
            return None
        settings = self.numbers_of(said)
        if kind in ("longrope", "su"):
            return self.longrope(said, max_seq_len)
        if kind in ("llama3", "yarn"):
            settings.setdefault("original_max_position_embeddings", float(max_seq_len))
        if kind == "yarn":
            settings = {"beta_fast": 32.0, "beta_slow": 1.0, "truncate": 1.0} | settings
        if kind == "dynamic":
            settings["original_max_position_embeddings"] = float(max_seq_len)
            self.note("Dynamic scaling sets in beyond max_position_embeddings, which is where a row ends here.")
        if kind == "yarn" and self.theta(layer_type=layer_type) == 1:
            self.fault("rope_theta", 1, "must be above 1: YaRN divides by its logarithm")
        if kind == "llama3" and not settings.get("low_freq_factor", 0) < settings.get("high_freq_factor", 1):
            self.fault(
                "rope_scaling.high_freq_factor", settings.get("high_freq_factor"), "must be above low_freq_factor"
            )
        ordered = tuple(sorted(settings.items()))
        match kind:
            case "linear" | "dynamic" | "llama3" | "yarn":
                return Scaling(kind=kind, settings=ordered)
        self.note(f"The rotary positions are scaled in a way named {kind}, which is kept but not understood.")
        return Scaling(kind="other", settings=ordered)

    def numbers_of(self, said: Mapping[str, Any]) -> dict[str, float]:
        """The numbers among rotary settings; a fault for each that no frequency can be made of."""
        settings = {}
        for name, value in said.items():
            wrong = not isinstance(value, (int, float)) or not abs(value) < MOST_COUNT
            if name in ABOVE_0 and (wrong or isinstance(value, bool) or value <= 0):
                self.fault(f"rope_scaling.{name}", value, "must be a number above 0")
            elif name not in ROPE_BESIDE and not wrong:
                settings[name] = float(value)
        return settings

    def longrope(self, said: Mapping[str, Any], max_seq_len: int) -> Scaling:
        """A divisor for each pair of a head, another past the first context; sharper by how far that is left behind."""
        first = self.count("original_max_position_embeddings", default=max_seq_len)
        numbers = self.numbers_of(said)
        first = int(numbers.get("original_max_position_embeddings", first))
        settings = {"original_max_position_embeddings": float(first)}
        for name in ("short_factor", "long_factor"):
            factors = said.get(name)
            if not isinstance(factors, list) or not all(finite(one) and one > 0 for one in factors):
                self.fault(f"rope_scaling.{name}", factors, "must be a list of numbers above 0")
                return Scaling(kind="other", settings=())
            settings |= {f"{name}.{i}": float(one) for i, one in enumerate(factors)}
        factor, told = numbers.get("factor", max_seq_len / max(first, 2)), numbers.get("attention_factor")
        sharper = sqrt(1 + log(factor) / log(max(first, 2))) if factor > 1 else 1.0
        settings["attention_factor"] = float(sharper if told is None else told)
        return Scaling(kind="longrope", settings=tuple(sorted(settings.items())))

    def rotary(
        self,
        d_head: int,
        *,
        max_seq_len: int,
        layer_type: str | None = None,
        theta: float = 10000.0,
        share: float = 1.0,
    ) -> Rotary:
        """The rotation of (one type of) layers; theta and share: the class's defaults."""
        return Rotary(
            theta=self.theta(theta, layer_type),
            n_dims=self.turned(d_head, self.rotary_share(share, layer_type)),
            scaling=self.scaling(max_seq_len, layer_type),
        )

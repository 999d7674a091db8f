"""A published config.json into a Spec: one short reader a model_type, found in one table, imported when needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.huggingface.configs_keys import Keys
from plainformer.spec import Spec

# model_type: the room (configs_<room>) and the function in it, which is also the family's name
READERS = {
    "gpt2": "decoders.gpt2",
    "opt": "decoders.opt",
    "gpt_neox": "decoders.gpt_neox",
    "bloom": "others.bloom",
    "phi3": "others.phi3",
    "llama": "llamas.llama",
    "mistral": "llamas.mistral",
    "qwen2": "llamas.qwen2",
    "qwen3": "llamas.qwen3",
    "olmo2": "llamas.olmo2",
    "olmo3": "llamas.olmo3",
    "gemma": "gemmas.gemma",
    "gemma2": "gemmas.gemma2",
    "gemma3": "gemmas.gemma3",
    "gemma3_text": "gemmas.gemma3",
    "gemma4": "gemmas.gemma4",
    "gemma4_text": "gemmas.gemma4",
    "mixtral": "mixtures.mixtral",
    "qwen2_moe": "others.qwen2_moe",
    "qwen3_moe": "mixtures.qwen3_moe",
    "gpt_oss": "mixtures.gpt_oss",
    "deepseek_v2": "mixtures.deepseek_v2",
    "deepseek_v3": "mixtures.deepseek_v3",
    "nemotron_h": "hybrids.nemotron_h",
    "qwen3_5_moe": "hybrids.qwen3_5_moe",
    "qwen3_5_moe_text": "hybrids.qwen3_5_moe",
    "bert": "encoders.bert",
    "albert": "encoders.albert",
    "modernbert": "others.modernbert",
    "bart": "encoder_decoders.bart",
    "t5": "encoder_decoders.t5",
    "mt5": "encoder_decoders.mt5",
}


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a config.json says. The file's own keys stay in `config`, those that are not understood too."""

    spec: Spec
    family: str
    model_type: str
    dtype: str | None  # as stated; None: not stated
    quantization: dict[str, Any] | None  # as stated
    notes: tuple[str, ...]  # what is approximate or left out, a sentence each
    config: dict[str, Any]


def read(config: Mapping[str, Any], where: str = "config.json") -> Reading:
    """The reading of a config as parsed from JSON. A null key counts as absent; an absent one as its class's default.

    Raises PlainformerError: no model_type or one without a reader, keys missing that have no default, values that
    cannot be, or that ask for what a Spec cannot say; all at once, by the config's own key names.
    """
    if not isinstance(config, Mapping):
        raise refuse(where, config, "must be a JSON object")
    faults: list[Fault] = []
    notes: list[str] = []
    keys = Keys(config, f"{where}: ", faults, notes)
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in READERS:
        raise PlainformerError(unknown(model_type, where))
    keys.refuse_set("per_layer_config", "settings of single layers cannot be said yet", (None, {}))
    room, family = READERS[model_type].split(".")
    reader: Callable[[Keys], Spec] = getattr(import_module(f"plainformer.huggingface.configs_{room}"), family)
    text = keys.sub("text_config")
    dtype = keys.get("torch_dtype", "dtype") or text.get("torch_dtype", "dtype")
    quantization = keys.get("quantization_config", "compression_config") or text.get("quantization_config")
    if quantization is not None and not isinstance(quantization, Mapping):
        keys.fault("quantization_config", quantization, "must be an object")
    try:
        spec = reader(keys)
    except PlainformerError as error:  # what is wrong with the keys comes first: it is said in their names
        raise PlainformerError(faults or error.faults) from None
    if faults:
        raise PlainformerError(faults)
    return Reading(
        spec=spec,
        family=family,
        model_type=model_type,
        dtype=str(dtype).removeprefix("torch.") if dtype else None,
        quantization=dict(quantization) if quantization else None,
        notes=tuple(notes),
        config=dict(config),
    )


def unknown(model_type: object, where: str) -> Fault:
    """Why no reader can take this model_type, with the nearest that can."""
    if model_type is None:
        return Fault(f"{where}: model_type", None, "is missing: nothing says which family this is")
    from difflib import get_close_matches

    near = get_close_matches(str(model_type), READERS, n=3, cutoff=0.5) or sorted(READERS)
    return Fault(f"{where}: model_type", model_type, "has no reader here yet", f"near to it: {', '.join(near)}")


def read_file(path: str | Path) -> Reading:
    """The reading of a config.json, or of the one in a folder. Raises PlainformerError as `read` does, and for a file
    that is not there, not UTF-8 or not JSON."""
    path = Path(path)
    path = path / "config.json" if path.is_dir() else path
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise refuse(str(path), error.strerror, "cannot be read") from None
    except ValueError as error:  # bad UTF-8 and bad JSON alike
        raise refuse(str(path), str(error), "is not JSON") from None
    return read(config, str(path))

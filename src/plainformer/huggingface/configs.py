"""A published config.json into a Spec: one short reader a model_type, found in one table, imported when needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from os import PathLike
from typing import Any

from plainformer.faults import Fault, PlainformerError, refuse
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_table import READERS, UNREAD, family_of
from plainformer.huggingface.json_files import read_object
from plainformer.records import dataclass
from plainformer.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a config.json says. The file's own keys stay in `config`, those that are not understood too."""

    spec: Spec
    family: str
    model_type: str
    dtype: str | None  # as stated; None: not stated
    quantization: dict[str, Any] | None  # as stated
    notes: tuple[str, ...]  # what is approximate or left out, a sentence each
    unsaid: tuple[str, ...]  # the notes on what the model does and the spec does not say: fit to size, not to run
    config: dict[str, Any]


def read(config: Mapping[str, Any], where: str = "config.json", family: str | None = None) -> Reading:
    """The reading of a config as parsed from JSON. A null key counts as absent; an absent one as its class's default.

    family: the model_type to read it by, whatever the file says; for old files that say none.
    Raises PlainformerError: neither model_type nor class has a reader, keys missing that have no default, values that
    cannot be, or that ask for what a Spec cannot say; all at once, by the config's own key names.
    """
    if not isinstance(config, Mapping):
        raise refuse(where, config, "must be a JSON object")
    faults: list[Fault] = []
    notes: list[str] = []
    unsaid: list[str] = []
    keys = Keys(config, f"{where}: ", faults, notes, unsaid)
    model_type = family_of(config) if family is None else family
    if model_type not in READERS or not isinstance(model_type, str):
        raise PlainformerError(unknown(config.get("model_type") if family is None else family, where, family))
    if family is None and model_type != config.get("model_type"):
        keys.note(
            f"Read as {model_type}, by the class that the file names: its model_type is {config.get('model_type')}."
        )
    if not model_type.startswith("gemma4"):  # whose reader knows what they may say
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
        unsaid=tuple(unsaid),
        config=dict(config),
    )


def unknown(model_type: object, where: str, family: str | None = None) -> Fault:
    """Why no reader can take this model_type, with the nearest that can."""
    if model_type is None:
        rule = "is missing, and no class is named: nothing says which family this is"
        return Fault(f"{where}: model_type", None, rule, "--family NAME says it")
    at = f"{where}: model_type" if family is None else "--family"
    if str(model_type) in UNREAD:
        return Fault(at, model_type, f"cannot be sized: {UNREAD[str(model_type)]}")
    from difflib import get_close_matches

    near = get_close_matches(str(model_type), READERS, n=3, cutoff=0.5)
    hint = f"near to it: {', '.join(near)}; " if near else ""
    return Fault(at, model_type, "has no reader here yet", f"{hint}--family NAME reads it as another")


def read_file(path: str | PathLike[str], family: str | None = None) -> Reading:
    """The reading of a config.json, or of the one in a folder. Raises PlainformerError as `read` does, and for a file
    that is not there, not UTF-8 or not JSON."""
    file = os.path.join(path, "config.json") if os.path.isdir(path) else os.fspath(path)
    return read(read_object(file, file), file, family)

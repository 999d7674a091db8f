"""What MODEL stands for on the command line, without torch: a path, a preset's name, a name on the hub."""

from __future__ import annotations

import os

from plainformer.faults import refuse
from plainformer.report.sheet import Subject


def resolve(text: str, family: str | None = None) -> Subject:
    """In this order: a path (a config.json, a folder that holds one, a run folder, a step's folder in it), a preset,
    org/name on the hub. Refuses what is none of them, with the nearest names.

    family: the model_type to read a config by, whatever it says.
    """
    from plainformer.presets import presets

    preset = text in presets
    if os.path.exists(text) and not (preset and os.path.isdir(text) and file_in(text) is None):
        return from_path(text, family)
    if preset:
        return from_preset(text)
    if text.startswith((".", "~", "/", os.sep)) or text.endswith((".json", "/", os.sep)) or text.count("/") > 1:
        raise refuse("MODEL", text, "there is no such file or folder")
    if "/" in text:
        raise refuse("MODEL", text, "no such path, and the hub is not asked", "fetch its config.json and give the path")
    return from_preset(text)


def to_build(text: str) -> Subject:
    """As `resolve`; refuses what is fit to size, not to run: what its spec does not say would be left out unseen."""
    subject = resolve(text)
    if subject.unsaid:
        raise refuse("MODEL", text, subject.unsaid[0], "it can be sized")
    return subject


def from_preset(name: str) -> Subject:
    """A published or trainable preset; refuses other names, offering the nearest."""
    from plainformer.presets import PUBLISHED, TRAINABLE, presets

    spec = presets[name]
    builder, _ = (PUBLISHED | TRAINABLE)[name]
    return Subject(name=name, spec=spec, family=builder.rpartition(".")[2])


def file_in(folder: str) -> str | None:
    """What says the model in a folder: a run's spec.json, that of the run whose step it is, or a config.json."""
    run = os.path.dirname(os.path.dirname(os.path.abspath(folder)))
    step = os.path.basename(os.path.abspath(folder)).startswith("step-")
    places = [os.path.join(folder, "spec.json"), os.path.join(folder, "config.json")]
    places += [os.path.join(run, "spec.json")] if step else []
    return next((place for place in places if os.path.isfile(place)), None)


def from_path(path: str, family: str | None = None) -> Subject:
    """A config.json, one of our own spec.json files, or a folder in which one says the model."""
    if not os.path.exists(path):
        raise refuse("MODEL", path, "there is no such file or folder")
    file = file_in(path) if os.path.isdir(path) else path
    if file is None and os.path.isfile(os.path.join(path, "adapter_config.json")):
        raise refuse("MODEL", path, "holds adapters alone", "give the folder of the model that they stand on")
    if file is None:
        raise refuse("MODEL", path, "the folder holds neither config.json nor spec.json")
    if file.endswith(".gguf"):
        return from_gguf(file)
    from plainformer.huggingface.json_files import read_object

    data = read_object(file, "MODEL")
    if "is" in data:
        from plainformer.spec import Spec
        from plainformer.tree import from_json

        spec = from_json(data, file)
        if not isinstance(spec, Spec):
            raise refuse(f"{file}.is", data["is"], "is a part, not a whole spec")
        return Subject(name=path, spec=spec, family="plainformer")
    from plainformer.huggingface import read

    reading = read(data, file, family)
    return Subject(
        name=path,
        spec=reading.spec,
        family=reading.family,
        model_type=reading.model_type,
        dtype=reading.dtype,
        quantization=reading.quantization,
        notes=reading.notes,
        unsaid=reading.unsaid,
    )


def from_gguf(file: str) -> Subject:
    """A GGUF file, by its header alone."""
    from plainformer.huggingface.gguf_files import read_model

    model = read_model(file)
    reading, held = (
        model.reading,
        f"The file's tensors, {model.kinds}, have {model.n_bytes:,} bytes with their filling.",
    )
    notes = tuple(note for note in reading.notes if "tie_word_embeddings" not in note)
    return Subject(
        name=file,
        spec=reading.spec,
        family=reading.family,
        model_type=reading.model_type,
        notes=(*notes, held),
        unsaid=reading.unsaid,
        n_stored=model.n_bytes,
    )


def config_of(text: str) -> tuple[dict[str, object] | None, str]:
    """The config.json behind MODEL and its path; None where it is a preset or one of our own specs."""
    file = file_in(text) if os.path.isdir(text) else text if os.path.isfile(text) else None
    if file is None:
        return None, text
    if file.endswith(".gguf"):
        from plainformer.huggingface.gguf_files import read_model

        return read_model(file).reading.config, file
    from plainformer.huggingface.json_files import read_object

    data = read_object(file, "MODEL")
    return (None if "is" in data else data), file


def with_unit(text: str) -> int | None:
    """7B, 1.5B, 124M as a number; None for what is no such size."""
    if not (text[:1].isdigit() and text[-1:].lower() in "kmbt"):
        return None
    import re

    if not (found := re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)([kKmMbBtT])", text)):
        return None
    from decimal import Decimal

    return int(Decimal(found[1]) * 10 ** (3 + 3 * "kmbt".index(found[2].lower())))


def bare_size(text: str) -> int | None:
    """7B, 1.5B, 124M as a number of parameters; None for what is a path, or no such size."""
    if (size := with_unit(text)) is None or os.path.exists(text):
        return None
    if size < 1:
        raise refuse("MODEL", text, "is no size: it must be above 0")
    return size

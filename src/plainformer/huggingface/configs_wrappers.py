"""Readers for decoders under a tower for pictures that transformers wraps around a text model of any kind: LLaVA,
PaliGemma, Idefics 3, SmolVLM, Mistral 3, InternVL, Qwen2-VL, Qwen2.5-VL.

Absent keys take the published class's defaults. Sized, not run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from plainformer.families import towers
from plainformer.families.parts import layer_norm, linear, rms_norm
from plainformer.huggingface.configs_keys import Keys
from plainformer.huggingface.configs_llamas import qwen2
from plainformer.huggingface.configs_media import siglip_tower, tower_of
from plainformer.huggingface.configs_table import READERS
from plainformer.mixers import Sized
from plainformer.records import replace
from plainformer.spec import Attention, Branch, FeedForward, Linear, Spec, Stack, Table, Tower
from plainformer.tree import rewrite


def sizes(*values: int, **more: int) -> dict[str, int]:
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    return dict(zip(names, values, strict=True)) | more


# Text configs inside others leave out what is their class's default.
TEXTS: dict[str, dict[str, int]] = {
    "llama": sizes(32000, 4096, 11008, 32, 32),
    "mistral": sizes(32000, 4096, 14336, 32, 32),
    "qwen2": sizes(151936, 4096, 22016, 32, 32),
    "qwen3": sizes(151936, 4096, 22016, 32, 32),
    "gemma": sizes(256000, 3072, 24576, 28, 16),
    "gemma2": sizes(256000, 2304, 9216, 26, 8),
}
TIED = ("gemma", "cohere", "gpt", "bloom", "opt", "starcoder2", "falcon")  # classes that tie unless told
QWEN_VL = sizes(152064, 8192, 29568, 80, 64, num_key_value_heads=8)


def text_of(keys: Keys, default: str, *, tied: bool, either: bool = False, drop: tuple[str, ...] = ()) -> Spec:
    """The text model inside, by its own reader; default: its model_type where none is said; tied: whether the wrapper
    ties by default, whatever the config inside says; either: unless that says so too; drop: keys that are not for its
    reader."""
    text = keys.sub("text_config")
    model_type = text.get("model_type") or default
    if not isinstance(model_type, str) or model_type not in READERS:
        text.fault("model_type", model_type, "has no reader here yet, so the text part cannot be counted")
        model_type = default
    room, name = READERS[model_type].split(".")
    reader: Callable[[Keys], Spec] = getattr(import_module(f"plainformer.huggingface.configs_{room}"), name)
    inside = {key: value for key, value in text.config.items() if key not in drop}
    tie = keys.tied(tied) or (either and text.flag("tie_word_embeddings", model_type.startswith(TIED)))
    inside |= {"tie_word_embeddings": tie, "architectures": [headed(keys)], "model_type": model_type}
    return reader(keys.beside(TEXTS.get(model_type, {}) | inside, "text_config"))


def headed(keys: Keys) -> str:
    """A class for the text inside that has a head just where the wrapper's has."""
    name = keys.architecture()
    if name and not name.endswith(("ForConditionalGeneration", "Model")):
        keys.fault("architectures", name, "the head of this class cannot be said yet")
    return "Model" if name.endswith("Model") else "ForCausalLM"


def picture(keys: Keys, whole: Mapping[str, Any]) -> tuple[Tower, Keys]:
    """The tower by its model_type, without what joins it to the text; whole: the config where none is said."""
    vision = keys.sub("vision_config") if keys.has("vision_config") else keys.beside(whole, "vision_config")
    kind = vision.get("model_type") or "clip_vision_model"
    if kind == "siglip_vision_model":
        return siglip_tower(vision), vision
    if kind == "pixtral":
        return pixtral(vision), vision
    if kind != "clip_vision_model":
        vision.fault("model_type", kind, "this tower cannot be said yet")
    return tower_of(vision, 32, "quick_gelu", 1e-5, first=True, connector=()), vision


def joined(tower: Tower, *steps: Any) -> Tower:
    return replace(tower, connector=(*tower.connector, *steps))


def layers_read(keys: Keys, default: int) -> int:
    """From how many of the tower's layers the text reads."""
    said = keys.get("vision_feature_layer")
    if said is None or (isinstance(said, int) and not isinstance(said, bool)):
        return 1
    if isinstance(said, list) and said:
        return len(said)
    keys.fault("vision_feature_layer", said, f"must be a layer's number, such as {default}, or a list of them")
    return 1


LLAVA_VISION = {"hidden_size": 1024, "intermediate_size": 4096, "patch_size": 14, "image_size": 336}
LLAVA_VISION |= {"num_hidden_layers": 24, "num_attention_heads": 16}


def llava(keys: Keys) -> Spec:
    """Liu et al. 2023, section 4.1 (1.5: two steps between tower and text)."""
    return projected(keys, text_of(keys, "llama", tied=False, either=True))


def projected(keys: Keys, text: Spec) -> Spec:
    """LLaVA's two steps between a tower and this text."""
    tower, _ = picture(keys, LLAVA_VISION)
    bias, d_in = keys.flag("multimodal_projector_bias", True), tower.patches.n_out * layers_read(keys, -2)
    steps = linear(d_in, text.d_model, bias), linear(text.d_model, text.d_model, bias)
    return replace(text, towers=(*text.towers, joined(tower, *steps)))


def llava_next(keys: Keys) -> Spec:
    spec = projected(keys, text_of(keys, "llama", tied=False))
    row = Sized(width=spec.d_model, kind="embedding", pieces=(Table(n_rows=1, width=spec.d_model),))
    return replace(spec, towers=(*spec.towers, row))


def paligemma(keys: Keys) -> Spec:
    """Beyer et al. 2024, section 3.1: Gemma under SigLIP, one linear between."""
    keys.leave_unsaid("The tokens of a prefix all see each other: not said, and it changes no size.")
    text = text_of(keys, "gemma", tied=True, drop=("use_bidirectional_attention",))
    whole: dict[str, Any] = {"hidden_size": 1152, "intermediate_size": 4096, "patch_size": 14, "num_hidden_layers": 27}
    whole |= {"num_attention_heads": 16, "vision_use_head": False, "model_type": "siglip_vision_model"}
    tower, vision = picture(keys, whole)
    d_out = keys.count("projection_dim", default=vision.count("projection_dim", default=2048))
    if d_out != text.d_model:
        keys.fault("projection_dim", d_out, f"must be text_config.hidden_size ({text.d_model})")
    return replace(text, towers=(joined(tower, linear(tower.patches.n_out, d_out, bias=True)),))


def idefics3(keys: Keys) -> Spec:
    """Laurençon et al. 2024, section 2: a few neighbours joined, one linear between."""
    text, vision = text_of(keys, "llama", tied=False), keys.sub("vision_config")
    vision = vision.with_also({"hidden_size": 1152, "num_attention_heads": 16})
    tower = tower_of(vision, 32, "gelu_pytorch_tanh", 1e-6, first=False, connector=())
    d_in = tower.patches.n_out * keys.count("scale_factor", default=2) ** 2
    return replace(text, towers=(joined(tower, linear(d_in, text.d_model)),))


def smolvlm(keys: Keys) -> Spec:
    return idefics3(keys)


def pixtral(vision: Keys) -> Tower:
    """Agrawal et al. 2024, section 2: the text's kind of layers, turned along two axes, a norm before them."""
    d_model = vision.count("hidden_size", default=1024)
    vision = vision.with_also({"num_attention_heads": 16, "hidden_size": d_model})
    vision.divides("num_attention_heads", "hidden_size")
    tower = towers.vision_transformer(
        d_model=d_model,
        n_layers=vision.layers("num_hidden_layers", default=24),
        n_heads=vision.count("num_attention_heads"),
        d_ff=vision.count("intermediate_size", default=4096),
        d_patch=vision.count("num_channels", default=3) * vision.count("patch_size", default=16) ** 2,
        n_positions=None,
        connector=(),
        norm_last=False,
        norm_first=True,
        activation=vision.activation(default="gelu"),
        eps=1e-5,
        patch_bias=False,
        rms=True,
        gated=True,
    )
    return replace(
        tower, stack=rewrite(tower.stack, lambda part: replace(part, bias=False) if isinstance(part, Linear) else part)
    )


def mistral3(keys: Keys) -> Spec:
    """Mistral AI 2025: Mistral under Pixtral's tower, whose neighbours are joined."""
    text = text_of(keys, "mistral", tied=True)
    tower, _ = picture(keys, {"image_size": 1540, "patch_size": 14, "model_type": "pixtral"})
    width, bias = tower.patches.n_out, keys.flag("multimodal_projector_bias", False)
    merged = width * keys.count("spatial_merge_size", default=2) ** 2
    steps = linear(width * layers_read(keys, -1), text.d_model, bias), linear(text.d_model, text.d_model, bias)
    return replace(text, towers=(joined(tower, rms_norm(width, 1e-5), linear(merged, width), *steps),))


def internvl(keys: Keys) -> Spec:
    """Chen et al. 2024: a tower whose parts' outputs are scaled by a learned vector each."""
    keys.leave_unsaid("The vector that scales each part's output is counted, and not said.")
    text, vision = text_of(keys, "qwen2", tied=True), keys.sub("vision_config")
    for name, rule in (("use_mask_token", (None, False)), ("use_absolute_position_embeddings", (None, True))):
        vision.refuse_set(name, "cannot be said yet", rule)
    whole: dict[str, Any] = dict(vision.config)
    for name, default in (("image_size", 448), ("patch_size", 14)):
        said = whole.get(name, [default, default])
        whole[name] = said[0] if isinstance(said, list) and len(set(map(str, said))) == 1 else said
    more = sizes(1, 1024, 4096, 24, 16)
    vision = keys.beside(more | {name: value for name, value in whole.items() if value is not None}, "vision_config")
    tower = tower_of(vision, 14, "gelu", 1e-6, first=True, connector=())
    width, bias = tower.patches.n_out, vision.flag("attention_bias", False)
    kind, normed = vision.get("norm_type") or "layer_norm", vision.flag("use_qk_norm", False)
    if kind not in ("layer_norm", "rms_norm"):
        vision.fault("norm_type", kind, "must be layer_norm or rms_norm")
    norm = rms_norm(width, 1e-6) if kind == "rms_norm" else layer_norm(width, 1e-6)

    def change(part: Any) -> Any:
        if isinstance(part, Attention):
            return replace(part, **{one: replace(getattr(part, one), bias=bias) for one in ("q", "k", "v")})
        if isinstance(part, Branch) and isinstance(part.part, (Attention, FeedForward)):
            attends = isinstance(part.part, Attention)
            pieces = (part.part, Table(n_rows=1, width=width), *((rms_norm(width, 1e-6),) * 2 * (attends and normed)))
            scaled = Sized(width=width, kind="attention" if attends else "feed_forward", pieces=pieces)
            return replace(part, part=scaled, norm_in=norm)
        return part

    last = None if vision.flag("use_mean_pooling", True) else layer_norm(width, 1e-6)
    stack: Stack = replace(rewrite(tower.stack, change), norm_first=None, norm_last=last)
    joins = round(1 / max(1e-6, keys.real("downsample_ratio", default=0.5))) ** 2 * width
    steps = layer_norm(joins, 1e-5), linear(joins, text.d_model, True), linear(text.d_model, text.d_model, True)
    tower = replace(tower, patches=replace(tower.patches, bias=True), stack=stack)
    return replace(text, towers=(joined(tower, *steps),))


def qwen2_vl(keys: Keys) -> Spec:
    """Wang et al. 2024, section 2.1: Qwen2 under a tower whose patches are turned; four neighbours are joined."""
    vision = keys.sub("vision_config")
    width = vision.count("embed_dim", default=1280)
    d_ff = int(width * vision.real("mlp_ratio", default=4))
    return under_qwen(keys, vision, width, d_ff, ("hidden_size", 3584), "quick_gelu", gated=False)


def qwen2_5_vl(keys: Keys) -> Spec:
    """Bai et al. 2025, section 2.1: Qwen2-VL with the text's kind of layers in the tower."""
    vision = keys.sub("vision_config")
    width, d_ff = vision.count("hidden_size", default=3584), vision.count("intermediate_size", default=3420)
    return under_qwen(keys, vision, width, d_ff, ("out_hidden_size", 3584), "silu", gated=True)


def under_qwen(
    keys: Keys, vision: Keys, width: int, d_ff: int, out: tuple[str, int], activation: str, *, gated: bool
) -> Spec:
    inside = keys.get("text_config")
    if inside is not None and not isinstance(inside, Mapping):
        keys.fault("text_config", inside, "must be an object")
        inside = None
    flat = {name: value for name, value in keys.config.items() if name != "text_config"}  # as the first files have it
    tied = keys.flag("tie_word_embeddings", False) or dict(inside or {}).get("tie_word_embeddings") is True
    name = headed(keys)
    text = qwen2(
        keys.beside(
            QWEN_VL | dict(flat if inside is None else inside) | {"architectures": [name], "tie_word_embeddings": tied},
            "text_config",
        )
    )
    keys.leave_unsaid("The tower's rotation along two axes and its connector's GELU are not said: they change no size.")
    act = vision.get("hidden_act") or activation
    vision.count("num_heads", default=16)
    vision.with_also({"num_heads": 16, "width": width}).divides("num_heads", "width")
    d_joined, d_out = width * vision.count("spatial_merge_size", default=2) ** 2, vision.count(out[0], default=out[1])
    if d_out != text.d_model:
        keys.note(f"The tower gives rows of {d_out:,}, the text reads {text.d_model:,}: as the class builds them.")
    channels = vision.count("in_channels", "in_chans", default=3) * vision.count("temporal_patch_size", default=2)
    tower = towers.vision_transformer(
        d_model=width,
        n_layers=vision.layers("depth", default=32),
        n_heads=vision.count("num_heads", default=16),
        d_ff=d_ff,
        d_patch=channels * vision.count("patch_size", default=14) ** 2,
        n_positions=None,
        connector=(
            rms_norm(width, 1e-6) if gated else layer_norm(width, 1e-6),
            linear(d_joined, d_joined, bias=True),
            linear(d_joined, d_out, bias=True),
        ),
        norm_last=False,
        activation="gelu" if act == "quick_gelu" else vision.activation(default="silu"),
        eps=1e-6,
        patch_bias=False,
        rms=gated,
        gated=gated,
    )
    return replace(text, towers=(tower,))

"""What sees or hears, as transformers builds it: classes beyond those that write text alone, their configs drawn anew.

As in drift.py the class on the meta device is the truth."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import drift
from drift import Answer, Config

CLASSES = {
    "clip": ("CLIPModel",),
    "clip_text_model": ("CLIPTextModel", "CLIPTextModelWithProjection"),
    "clip_vision_model": ("CLIPVisionModel", "CLIPVisionModelWithProjection"),
    "siglip": ("SiglipModel",),
    "siglip_text_model": ("SiglipTextModel",),
    "siglip_vision_model": ("SiglipVisionModel",),
    "vit": ("ViTModel", "ViTForImageClassification"),
    "dinov2": ("Dinov2Model", "Dinov2ForImageClassification"),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2ForCTC", "Wav2Vec2ForSequenceClassification"),
    "hubert": ("HubertModel", "HubertForCTC"),
    "whisper": ("WhisperForConditionalGeneration", "WhisperModel"),
    "llava": ("LlavaForConditionalGeneration",),
    "llava_next": ("LlavaNextForConditionalGeneration", "LlavaNextModel"),
    "paligemma": ("PaliGemmaForConditionalGeneration",),
    "idefics3": ("Idefics3ForConditionalGeneration",),
    "smolvlm": ("SmolVLMForConditionalGeneration",),
    "mistral3": ("Mistral3ForConditionalGeneration",),
    "internvl": ("InternVLForConditionalGeneration",),
    "qwen2_vl": ("Qwen2VLForConditionalGeneration", "Qwen2VLModel"),
    "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration",),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration",),
}
VALUES: dict[str, tuple[Any, ...]] = {
    "hidden_size": (64, 96),
    "num_attention_heads": (2, 4),
    "num_hidden_layers": (2, 3),
    "intermediate_size": (40, 48),
    "num_key_value_heads": (1, 2),
    "head_dim": (16,),
    "vocab_size": (61, 99),
    "max_position_embeddings": (20, 33),
    "image_size": (64, 80),
    "patch_size": (8, 16),
    "num_channels": (1, 3),
    "projection_dim": (24, 32),
    "projection_size": (16, 24),
    "vision_use_head": (True, False),
    "d_model": (32, 64),
    "encoder_layers": (2, 3),
    "decoder_layers": (1, 2),
    "encoder_attention_heads": (2, 4),
    "decoder_attention_heads": (2, 4),
    "encoder_ffn_dim": (40, 64),
    "decoder_ffn_dim": (24,),
    "num_mel_bins": (80, 40),
    "max_source_positions": (50,),
    "max_target_positions": (30,),
    "mlp_ratio": (2, 3),
    "qkv_bias": (True, False),
    "use_mask_token": (True, False),
    "conv_bias": (True, False),
    "do_stable_layer_norm": (True, False),
    "feat_extract_norm": ("group", "layer"),
    "feat_proj_layer_norm": (True, False),
    "num_conv_pos_embeddings": (16,),
    "num_conv_pos_embedding_groups": (4, 8),
    "classifier_proj_size": (20,),
    "tie_word_embeddings": (True, False),
    "scale_embedding": (True, False),
    "depth": (2, 3),
    "embed_dim": (32, 64),
    "num_heads": (2, 4),
    "spatial_merge_size": (1, 2),
    "temporal_patch_size": (1, 2),
    "multimodal_projector_bias": (True, False),
    "deepstack_visual_indexes": ([0, 1],),
}


def drawn(full: Config, draw: random.Random) -> Config:
    """Other values for the keys that a config and those inside it have."""
    keys: Config = {}
    for name, value in full.items():
        if name in VALUES and value is not None:
            keys[name] = draw.choice(VALUES[name])
        elif isinstance(value, dict) and name.endswith("_config"):
            keys[name] = drawn(value, draw) | {"model_type": value["model_type"]}
        elif name.endswith("token_id") and isinstance(value, int):
            keys[name] = draw.randint(0, 5)
    return keys


def made_to_fit(model_type: str, keys: Config) -> Config:
    """Widths that a wrapper's parts share."""
    if model_type in ("qwen2_vl", "qwen2_5_vl", "qwen3_vl"):
        out = "hidden_size" if model_type == "qwen2_vl" else "out_hidden_size"
        keys["vision_config"][out] = keys["text_config"]["hidden_size"]
    if model_type == "paligemma":
        keys["projection_dim"] = keys["vision_config"]["projection_dim"] = keys["text_config"]["hidden_size"]
    return keys


@cache
def answers(model_type: str, n_drawn: int = 3) -> tuple[Answer, ...]:
    return tuple(_answers(model_type, n_drawn))


def _answers(model_type: str, n_drawn: int) -> Iterator[Answer]:
    draw = random.Random(model_type)
    full = drift.of_type(model_type, {}).to_dict()
    for class_name in CLASSES[model_type]:
        for _ in range(n_drawn):
            keys = made_to_fit(model_type, drawn(full, draw))
            try:
                config = drift.of_type(model_type, keys)
            except Exception:  # sizes that the config itself refuses
                continue
            truth = drift.built(class_name, config)
            bare = keys | {"architectures": [class_name], "model_type": model_type}
            for said in (drift.saved(config, class_name), bare) if truth is not None else ():
                yield drift.judged(model_type, class_name, said, truth)


def default(model_type: str) -> Iterator[Answer]:
    """The default config, with each class."""
    config = drift.of_type(model_type, {})
    for class_name in CLASSES[model_type]:
        if (truth := drift.built(class_name, config)) is not None:
            yield drift.judged(model_type, class_name, drift.saved(config, class_name), truth)
